"""Small changes to a module, most of which break it: another number, another comparison, ..."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """Change number ``index`` of a module, in lines ``line`` to ``last_line``; ``what`` describes it.

    ``function`` says whether the change is in the body of a function; other code runs when the module is imported.
    """

    index: int
    line: int
    last_line: int
    function: bool
    what: str


def _skipped(tree: ast.Module) -> set[int]:
    """Return nodes whose change no test can notice: annotations, impossible cases, storage of results and classes."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        roots += [note for name in ("annotation", "returns") if isinstance(note := getattr(node, name, None), ast.AST)]
        roots += getattr(node, "decorator_list", [])
        is_listed = isinstance(node, ast.Assign) and ast.unparse(node).startswith("__all__")
        if is_listed or isinstance(node, ast.Raise | ast.Assert) or getattr(node, "arg", "") == "strict":
            roots.append(node)
    return {id(inner) for root in roots for inner in ast.walk(root)}


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, int]]:
    """Yield each node that can be changed, with the index of its operator."""
    skipped = _skipped(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare):
            yield from ((node, i) for i, op in enumerate(node.ops) if type(op) in _COMPARED)
        elif (
            (isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _COMPUTED)
            or isinstance(node, ast.BoolOp | ast.Continue | ast.Break)
            or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub))
            or (isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float))
            or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLED)
        ):
            yield node, 0


def mutants(source: str) -> list[Mutant]:
    """Return all changes of the module *source*, in the order of lines."""
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
    }
    found = [
        Mutant(
            i,
            getattr(node, "lineno", 0),
            getattr(node, "end_lineno", 0),
            id(node) in inside,
            f"{ast.unparse(node).splitlines()[0][:80]} -> {ast.unparse(_changed(node, which)).splitlines()[0][:80]}",
        )
        for i, (node, which) in enumerate(_places(tree))
    ]
    return sorted(found, key=lambda mutant: (mutant.line, mutant.index))


def mutated(source: str, index: int) -> ast.Module:
    """Return the module *source* with change number *index* applied."""
    tree = ast.parse(source)
    node, which = list(_places(tree))[index]
    changed = _changed(node, which)

    class _Replace(ast.NodeTransformer):
        def visit(self, found: ast.AST) -> ast.AST:
            return ast.copy_location(changed, found) if found is node else self.generic_visit(found)

    return ast.fix_missing_locations(_Replace().visit(tree))


def _changed(node: ast.AST, which: int) -> ast.AST:
    new = copy.deepcopy(node)
    match new:
        case ast.Compare():
            new.ops[which] = _COMPARED[type(new.ops[which])]()
        case ast.BinOp() | ast.AugAssign():
            new.op = _COMPUTED[type(new.op)]()
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        case ast.UnaryOp():
            return new.operand
        case ast.Continue():
            return ast.Break()
        case ast.Break():
            return ast.Continue()
        case ast.Constant(value=bool()):
            new.value = not new.value
        case ast.Constant(value=float()) if abs(new.value) >= 100:
            new.value = 2 * new.value
        case ast.Constant():
            new.value = new.value + 1
        case ast.Call(func=ast.Name()):
            new.func.id = _CALLED[new.func.id]  # type: ignore[attr-defined]
    return new
