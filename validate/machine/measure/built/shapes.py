"""A layer as torch runs it (:class:`TorchLayer`), and views of tensors: one as another, and parts that operators share.

A description says how many elements an operator reads, and a view keeps the number of the tensor it views.  Where a
tensor is larger than what its readers need, as with a joint projection of queries, keys and values, the readers get
its columns in turn.  Readers that together cover the tensor share one ``split``, whose gradients one kernel joins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn

from validate.machine.measure.built.description import DescribedLayer
from validate.machine.measure.case import Unavailable

Shape = tuple[int, ...]
View = Callable[[Any], Any]


def reshaped_part(have: Shape, need: int, offset: int, width: int = 0) -> tuple[View, Shape, int]:
    """Return a view of *need* elements of a tensor of shape *have*, the view's shape, and the next free column.

    The part consists of columns from *offset* on, where they fit: of all rows, or of the last rows if they are *width*
    wide.  Of images it consists of channels.  Otherwise it is the first rows, or the first elements.
    """
    cols, lead = have[-1], prod(have[:-1])
    if width and width <= cols and need % width == 0 and need < width * lead:
        first = offset if offset + width <= cols else 0
        rows = need // width
        return lambda x: x.reshape(-1, cols)[-rows:].narrow(-1, first, width), (rows, width), first + width
    if len(have) == 4 and need % (prod(have) // have[1]) == 0:
        channels = need // (prod(have) // have[1])
        first = offset if offset + channels <= have[1] else 0
        return lambda x: x.narrow(1, first, channels), (have[0], channels, *have[2:]), first + channels
    if need % lead == 0:
        width = need // lead
        first = offset if offset + width <= cols else 0
        return lambda x: x.narrow(-1, first, width), (*have[:-1], width), first + width
    if need % cols == 0:
        rows = need // cols
        return lambda x: x.reshape(-1, cols)[:rows], (rows, cols), offset
    return lambda x: x.reshape(-1)[:need], (need,), offset


def as_heads(have: Shape, batch: int, rows: int, cols: int) -> View:
    """Return the view of a tensor as ``batch`` matrices of ``rows`` by ``cols``.

    Rows that hold several matrices side by side, such as attention heads, are transposed without a copy where the
    strides allow it.
    """
    if have == (batch, rows, cols):
        return itself
    if have[-1] != cols and have[-1] % cols == 0 and batch % (have[-1] // cols) == 0:
        if have[0] * (have[-1] // cols) == batch and have[0] > 1 and len(have) == 3:
            heads = have[-1] // cols
            return lambda x: x.view(have[0], rows, heads, cols).transpose(1, 2).reshape(batch, rows, cols)
        return lambda x: x.reshape(rows, batch, cols).transpose(0, 1)
    return lambda x: x.reshape(batch, rows, cols)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of a layer: the layers that write its inputs, and those that read its output."""

    before: tuple[DescribedLayer | None, ...] = ()
    after: tuple[DescribedLayer, ...] = ()


@dataclass(frozen=True, slots=True)
class TorchLayer:
    """A layer as torch runs it: ``call`` on its input tensors, and the ``shape`` of the result.

    ``module`` holds its parameters; ``names`` maps the module's parameter names to the description's.
    """

    call: Callable[..., Any]
    shape: Shape
    module: Any = None
    names: dict[str, str] = field(default_factory=dict)


def named(layer: DescribedLayer, module: Any) -> dict[str, str]:
    """Return the description's name of each parameter, by element counts; raises Unavailable if these differ."""
    left = list(layer.parameters)
    found = {}
    for name, parameter in module.named_parameters():
        match = next((p for p in left if p.elements == parameter.numel()), None)
        if match is None:
            raise Unavailable(f"{layer.name}: no parameter of {parameter.numel()} elements for its {name}")
        left.remove(match)
        found[name] = match.name
    if left:
        raise Unavailable(f"{layer.name}: nothing takes its parameter {left[0].name}")
    return found


def seen(have: Shape, want: Shape, layer: DescribedLayer) -> View:
    """Return the view of a tensor of shape *have* as *want*; raises Unavailable where there is none."""
    if have == want:
        return itself
    if prod(have) != prod(want):
        raise Unavailable(f"{layer.name}: {'x'.join(map(str, have))} cannot be seen as {'x'.join(map(str, want))}")
    return lambda x: x.reshape(want)


def itself(x: Any) -> Any:
    """Return *x*: the view of a tensor that already has the right shape."""
    return x


class WithParameters(nn.Module):  # type: ignore[misc]
    """*function* of a tensor and of *own*, by name: parameters of a shape, which are ones, or constant tensors."""

    def __init__(self, function: Callable[..., Any], **own: Shape | torch.Tensor) -> None:
        super().__init__()
        self.function, self.names = function, tuple(own)
        for name, each in own.items():
            if isinstance(each, torch.Tensor):
                self.register_buffer(name, each, persistent=False)
            else:
                setattr(self, name, nn.Parameter(torch.ones(each)))

    def forward(self, x: Any) -> Any:
        """Return the function of *x*."""
        return self.function(x, *(getattr(self, name) for name in self.names))
