"""Values of tensors on ``meta`` that follow from shapes alone.

Modules ask, for example, whether positions made by ``arange`` are consecutive, or whether a mask of ones masks
anything.  The results of such functions, and of further functions of them alone, are computed beside the trace, so
that these questions can be answered.  Values that depend on inputs or weights are unknown.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from simulator.workload.torch_import.call import tensors_in

_MAX_ELEMENTS = 2**20
_RANDOM = torch.Tag.nondeterministic_seeded
_UNSET = ("empty", "set_", "resize_")  # their contents are undefined


class KnownValues:
    """The known values of tensors on ``meta``, as tensors on the CPU."""

    def __init__(self) -> None:
        self._values: Any = WeakIdKeyDictionary()
        self._changed: dict[int, Any] = {}  # storages overwritten with unknown values

    def knows(self, tree: Any) -> bool:
        """Return whether the values of all tensors in *tree* are known."""
        return all(self._is_known(tensor) for tensor in tensors_in(tree))

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
        if self._computable(func, (args, kwargs), out):
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

    def _computable(self, func: Any, given: Any, out: Any) -> bool:
        if _RANDOM in func.tags or func._schema.name.removeprefix("aten::").removeprefix("new_").startswith(_UNSET):
            return False
        outputs = tensors_in(out)
        return (
            bool(outputs)
            and all(t.numel() <= _MAX_ELEMENTS for t in (*outputs, *tensors_in(given)))
            and self.knows(given)
        )

    def _is_known(self, tensor: Any) -> bool:
        if tensor.device.type == "cpu":
            return True
        return tensor in self._values and tensor.untyped_storage()._cdata not in self._changed

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
