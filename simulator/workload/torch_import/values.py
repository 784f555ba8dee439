"""Numbers that are known although nothing is computed: those that follow from shapes alone.

Modules ask, for example, whether positions made by ``arange`` are consecutive, or whether a mask of ones masks
anything.  What is made by such functions, and what is made of that alone, is computed beside the trace, so that the
module's question gets its answer.  What depends on inputs or weights is not known.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from simulator.workload.torch_import.call import tensors_in

__all__ = ["FollowingValues", "KnownValues"]

_MAX_ELEMENTS = 2**20
_RANDOM = torch.Tag.nondeterministic_seeded
_UNSET = ("empty", "set_", "resize_")  # hold whatever memory held


class KnownValues:
    """The values of tensors on ``meta`` that are known, as tensors on the CPU."""

    def __init__(self) -> None:
        self._values: Any = WeakIdKeyDictionary()
        self._changed: dict[int, Any] = {}  # storages that something unknown was written to

    def knows(self, tree: Any) -> bool:
        """Whether the values of all tensors in *tree* are known."""
        return all(self._is_known(tensor) for tensor in tensors_in(tree))

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what *func* gives for values that are all known, tensors as tensors on the CPU."""
        args, kwargs = torch.utils._pytree.tree_map(self._value, (args, kwargs))
        with _disable_current_modes(), torch.no_grad():
            return func(*args, **kwargs)

    def on_meta(self, values: Any) -> Any:
        """Return tensors on ``meta`` whose *values* are known from then on."""
        out = torch.utils._pytree.tree_map_only(torch.Tensor, lambda value: value.to("meta"), values)
        self._keep(out, values)
        return out

    def moved(self, tensor: Any) -> Any:
        """Return *tensor* on ``meta``; its values are known where they were."""
        if tensor.device.type == "meta":
            return tensor
        tensor = tensor.detach()
        return self.on_meta(tensor) if tensor.numel() <= _MAX_ELEMENTS else tensor.to("meta")

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Remember the values of *out*, which *func* gave on ``meta``, where they are known."""
        if self._computable(func, (args, kwargs), out):
            try:
                values = self.compute(func, args, kwargs)
            except (RuntimeError, NotImplementedError):
                values = None  # what cannot be computed is not known
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
    """While it is entered, *values* learns what follows from shapes alone; questions about it are answered."""

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
