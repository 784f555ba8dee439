"""Map aten operators to the operators of this package: by name, as these say, and by torch's tag of functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from simulator.workload.operators import Operator, known_operators
from simulator.workload.operators.elementwise import of_elements
from simulator.workload.torch_import.call import Call, is_pointwise

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
