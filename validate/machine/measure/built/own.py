"""The user's own torch module, measured beside the module built from its operators.

The factory is called as docs/torch.md describes, on the device to measure, and is fed its own inputs.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from validate.machine.measure.built.module import BuiltModule
from validate.machine.measure.case import Unavailable


class _Own(nn.Module):  # type: ignore[misc]
    """The user's module followed by its loss, called with a flat list of tensors."""

    def __init__(self, module: Any, form: Any, loss: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.module, self._form, self._loss = module, form, loss

    def forward(self, *fed: Any) -> tuple[Any, ...]:
        """Return the loss in training, if there is one; else the tensors that the module returns."""
        args, named = pytree.tree_unflatten(list(fed), self._form)
        output = self.module(*args, **named)
        if self.training:
            own = self._loss(output) if self._loss is not None else _loss_of(output)
            if own is not None:
                return (own,)
        return tuple(leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor))


def build_own(source: str, device: Any, *, dtype: Any = None, training: bool = True) -> BuiltModule:
    """Return the module that the factory of *source* makes, on *device*: ``torch:package.module:factory batch=8``.

    Parameters and floating-point inputs are cast to *dtype*; None keeps their formats.

    Raises Unavailable where the factory cannot be imported or returns no module with inputs.
    """
    name, *sizes = source.split(" ")
    known = {key: int(value) for key, _, value in (size.partition("=") for size in sizes)}
    _, package, factory, *shapes = name.split(":")
    try:
        found: Any = importlib.import_module(package)
        for part in factory.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise Unavailable(f"{name}: its own code is not here ({error}); it is looked for as Python imports") from None
    with torch.device(device):
        made = found(**_accepted(found, known))
        module, inputs, loss = (*(made if isinstance(made, tuple) else (made,)), None, None)[:3]
        module = getattr(module, "_orig_mod", module)
        if shapes:
            inputs = tuple(_random(shape, known["batch"]) for shape in shapes[0].split(","))
        elif inputs is None:
            inputs = getattr(module, "example_input", None)
    if not isinstance(module, nn.Module) or inputs is None:
        raise Unavailable(f"{name}: returned no module, or nothing to feed in")
    args: tuple[tuple[Any, ...], Mapping[str, Any]] = ((inputs,), {})
    if isinstance(inputs, Mapping):
        args = ((), dict(inputs))
    elif isinstance(inputs, tuple | list):
        args = (tuple(inputs), {})
    leaves, form = pytree.tree_flatten(args)
    fed = tuple(_placed(leaf, device, dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    return BuiltModule(_Own(module, form, loss).to(device=device, dtype=dtype).train(training), fed)


def _accepted(factory: Any, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return those of *sizes* that the factory has parameters for."""
    try:
        names = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}
    return {name: size for name, size in sizes.items() if name in names}


def _random(shape: str, batch: int) -> Any:
    """Return a random input of *shape*, as written behind a factory: ``3x224x224``, ``128xint64``."""
    *sides, last = shape.strip().split("x")
    kind = torch.float32
    if last and not last.isdecimal():
        kind = getattr(torch, last)
    elif last:
        sides.append(last)
    size = (batch, *map(int, sides))
    return torch.randn(size, dtype=kind) if kind.is_floating_point else torch.randint(2, size).to(kind)


def _placed(leaf: Any, device: Any, dtype: Any) -> Any:
    return leaf.to(device=device, dtype=dtype if dtype is not None and leaf.is_floating_point() else leaf.dtype)


def _loss_of(output: Any) -> Any:
    """Return the loss that *output* contains; None where it contains none."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return own if isinstance(own, torch.Tensor) else None
