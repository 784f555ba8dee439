"""Arithmetic of whole numbers and of lists, as shells, configurations and launch lines write it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TypeVar

from simulator.errors import one_line

T = TypeVar("T")

_SUMS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MOST = 10**15


def whole_sum(text: str) -> int | None:
    """Return the value of integer arithmetic *text*; None if it is anything else."""
    return _value(text.replace("/", "//"), _whole)


def whole_list(text: str, most: int) -> list[int] | None:
    """Return the list of whole numbers that *text* writes out, adds or repeats, as Python does: ``[0]*1+[1]*3``.

    None if it is anything else, or longer than *most*.
    """
    return _value(text, lambda node: _items(node, most))


def _value(text: str, of: Callable[[ast.expr], T]) -> T | None:
    try:
        return of(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _whole(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        found = _SUMS[type(node.op)](_whole(node.left), _whole(node.right))
        if abs(found) < _MOST:
            return found
    raise ValueError(f"{one_line(ast.unparse(node), 40)} is no whole number")


def _items(node: ast.expr, most: int) -> list[int]:
    if isinstance(node, ast.List):
        found = [_whole(each) for each in node.elts]
    elif isinstance(node, ast.BinOp) and type(node.op) is ast.Add:
        found = _items(node.left, most) + _items(node.right, most)
    elif isinstance(node, ast.BinOp) and type(node.op) is ast.Mult:
        found = _items(node.left, most)
        found = found * min(_whole(node.right), most + 1)  # more than there may be is refused below
    else:
        raise ValueError(f"{one_line(ast.unparse(node), 40)} is no list")
    if len(found) > most:
        raise ValueError(f"more than {most} items")
    return found
