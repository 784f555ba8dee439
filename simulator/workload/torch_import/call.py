"""A call of an aten operator, with its arguments by name, and the operators of this package that it is.

They are found by the operator's name, as these say, and by torch's tag of functions.
"""

from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from simulator.records import dataclass, own_data
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

    def pair(self, name: str) -> tuple[int, int]:
        """Return an argument as (height, width); in three dimensions, depth and height are multiplied."""
        value = self.arguments.get(name)
        values = [value] if isinstance(value, int) else list(value or ())
        if len(values) == 1:
            spatial = self.first.dim() - 2
            return (1 if spatial == 1 else values[0]), values[0]
        return (prod(values[:-1]), values[-1]) if values else (1, 1)


def call_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, weights: frozenset[int]) -> Call:
    """Return the call of *func* that returned *out*."""
    schema = func._schema.arguments
    arguments = {a.name: a.default_value for a in schema if a.has_default_value()}
    arguments.update({a.name: value for a, value in zip(schema, args, strict=False)})
    arguments.update(kwargs)
    name = func._schema.name.removeprefix("aten::")
    inplace = func._schema.is_mutable and name.endswith("_") and not name.endswith("__")
    return Call(name[:-1] if inplace else name, func, arguments, tensors_in((args, kwargs)), tensors_in(out), weights)


def tensors_in(tree: Any) -> tuple[Any, ...]:
    """Return the tensors of nested tuples, lists and dicts, in order."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


# No kernel runs: these only allocate memory, or pass a number to the next kernel.
FREE = frozenset(own_data("simulator.workload", "torch_functions.json")["free"])


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
    # Torch tags the operator, or its out-of-place variant, as element-wise.
    packet = getattr(torch.ops.aten, call.name, None) if call.func.namespace == "aten" else None
    overloads = packet.overloads() if packet is not None else ()
    variants = call.func, *(getattr(packet, overload) for overload in overloads)
    is_pointwise = any(torch.Tag.pointwise in variant.tags for variant in variants)
    return (of_elements(call),) if call.outputs and is_pointwise else None


_MAX_ELEMENTS = 2**20
_RANDOM = torch.Tag.nondeterministic_seeded
_UNSET = ("empty", "set_", "resize_")  # their contents are undefined


class KnownValues:
    """The values of tensors on ``meta`` that follow from shapes alone (``arange``, a mask of ones), on the CPU.

    Those of functions of them alone are computed beside the trace, so that what modules ask of them can be answered.
    """

    def __init__(self) -> None:
        self._values: Any = WeakIdKeyDictionary()
        self._changed: dict[int, Any] = {}  # storages overwritten with unknown values

    def knows(self, tree: Any) -> bool:
        """Return whether the values of all tensors in *tree* are known."""
        found = (tensor for tensor in tensors_in(tree) if tensor.device.type != "cpu")
        return all(x in self._values and x.untyped_storage()._cdata not in self._changed for x in found)

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of *func* on the CPU; the values of all its arguments must be known."""
        args, kwargs = torch.utils._pytree.tree_map(self._value, (args, kwargs))
        with _disable_current_modes(), torch.no_grad():
            return func(*args, **kwargs)

    def on_meta(self, values: Any) -> Any:
        """Return tensors on ``meta``, and remember their *values*."""
        out = torch.utils._pytree.tree_map_only(torch.Tensor, lambda value: value.to("meta"), values)
        self._keep(out, values)
        return out

    def moved(self, tensor: Any) -> Any:
        """Return *tensor* on ``meta``; remembers its values unless it is large."""
        if tensor.device.type == "meta":
            return tensor
        tensor = tensor.detach()
        return self.on_meta(tensor) if tensor.numel() <= _MAX_ELEMENTS else tensor.to("meta")

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Remember the values of *out*, the result of *func* on ``meta``, if they can be computed."""
        given, outputs = (args, kwargs), tensors_in(out)
        drawn = _RANDOM in func.tags or func._schema.name.removeprefix("aten::").removeprefix("new_").startswith(_UNSET)
        small = all(tensor.numel() <= _MAX_ELEMENTS for tensor in (*outputs, *tensors_in(given)))
        if outputs and small and not drawn and self.knows(given):
            try:
                values = self.compute(func, args, kwargs)
            except (RuntimeError, NotImplementedError):
                values = None  # no kernel on the CPU: unknown
            if values is not None:
                self._keep(out, values)
                return
        if func._schema.is_mutable:
            for argument, given in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in tensors_in(given):
                        storage = tensor.untyped_storage()
                        self._changed[storage._cdata] = storage

    def _value(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf if leaf.device.type == "cpu" else self._values[leaf]
        return torch.device("cpu") if isinstance(leaf, torch.device) and leaf.type == "meta" else leaf

    def _keep(self, out: Any, values: Any) -> None:
        for tensor, value in zip(tensors_in(out), tensors_in(values), strict=True):
            if tensor.device.type == "meta":
                self._values[tensor] = value


class FollowingValues(TorchDispatchMode):  # type: ignore[misc]  # torch is not read by the type checker
    """While entered, updates *values* with every operator, and answers questions about known values."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__()
        self._known = values

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name == "aten::_local_scalar_dense" and self._known.knows(args):
            return self._known.compute(func, args, kwargs)
        out = func(*args, **kwargs)
        self._known.follow(func, args, kwargs, out)
        return out
