"""A call of an aten operator, with its arguments by name, and the operators of this package that it is.

They are found by the operator's name, as these say, and by torch's tag of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any

import torch

from simulator.records import dataclass
from simulator.workload.operators import Operator, known_operators
from simulator.workload.operators.elementwise import of_elements


@dataclass(frozen=True, slots=True)
class Call:
    """A call named without ``aten::``, overload and in-place underscore; ``weights``: storages of the parameters."""

    name: str
    func: Any
    arguments: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    weights: frozenset[int]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def first(self) -> Any:
        """The first input tensor."""
        return self.inputs[0]

    @property
    def out(self) -> Any:
        """The first output tensor."""
        return self.outputs[0]

    def is_weight(self, tensor: Any) -> bool:
        """Return whether *tensor* is a parameter, or a view of one."""
        return tensor.untyped_storage()._cdata in self.weights

    def pair(self, name: str, default: int = 1) -> tuple[int, int]:
        """Return an argument as (height, width); in three dimensions, depth and height are multiplied."""
        value = self.arguments.get(name)
        values = [value] if isinstance(value, int) else list(value or ())
        if len(values) == 1:
            spatial = self.first.dim() - 2
            return (1 if spatial == 1 else values[0]), values[0]
        return (prod(values[:-1]), values[-1]) if values else (default, default)


def call_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, weights: frozenset[int]) -> Call:
    """Return the call of *func* that returned *out*."""
    schema = func._schema.arguments
    arguments = {a.name: a.default_value for a in schema if a.has_default_value()}
    arguments.update({a.name: value for a, value in zip(schema, args, strict=False)})
    arguments.update(kwargs)
    name = func._schema.name.removeprefix("aten::")
    inplace = func._schema.is_mutable and name.endswith("_") and not name.endswith("__")
    return Call(name[:-1] if inplace else name, func, arguments, tensors_in((args, kwargs)), tensors_in(out), weights)


def is_pointwise(call: Call) -> bool:
    """Return whether torch tags the operator, or its out-of-place variant, as element-wise."""
    if torch.Tag.pointwise in call.func.tags:
        return True
    packet = getattr(torch.ops.aten, call.name, None) if call.func.namespace == "aten" else None
    overloads = packet.overloads() if packet is not None else []
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in overloads)


def tensors_in(tree: Any) -> tuple[Any, ...]:
    """Return the tensors of nested tuples, lists and dicts, in order."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


# No kernel runs: these only allocate memory, or pass a number to the next kernel.
_FREE = """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided scalar_tensor lift_fresh
    _local_scalar_dense set_ resize_ as_strided set _assert_async _assert_scalar
"""
FREE = frozenset(_FREE.split())


@cache
def _by_name() -> Mapping[str, Callable[[Any], Operator | tuple[Operator, ...] | None]]:
    return {name: made for cls in known_operators().values() for name, made in cls.from_torch.items()}


def operators_of(call: Call) -> tuple[Operator, ...] | None:
    """Return the operators that *call* runs, in order; None if it is unknown."""
    made = _by_name().get(call.name) if call.func.namespace in ("aten", "prims") else None
    of_two = call.name in ("max", "min") and "other" in call.arguments
    if made is not None and not of_two:
        found = made(call)
        return found if isinstance(found, tuple) else () if found is None else (found,)
    return (of_elements(call),) if call.outputs and is_pointwise(call) else None
