"""A layer as torch runs it (:class:`TorchLayer`), views of tensors, and functions of each element.

A description says how many elements an operator reads, and a view keeps the number of the tensor it views.  Where a
tensor is larger than what its readers need, as with a joint projection of queries, keys and values, the readers get
its columns in turn.  Readers that together cover the tensor share one ``split``, whose gradients one kernel joins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.built.description import DescribedLayer
from validate.machine.measure.case import Unavailable

Shape = tuple[int, ...]
View = Callable[[Any], Any]


def reshaped_part(have: Shape, need: int, offset: int, width: int = 0, sides: Shape = ()) -> tuple[View, Shape, int]:
    """Return a view of *need* elements of a tensor of shape *have*, the view's shape, and the next free column.

    It is of columns from *offset* on, where they fit, of all rows, or the last if these are *width* wide; of images of
    the middle pixels, if these have *sides*, else of channels; otherwise of the first rows, or elements.
    """
    cols, lead = have[-1], prod(have[:-1])
    if len(have) == 4 and sides and (*have[:2], *sides) != have and prod(have[:2]) * prod(sides) == need:
        top, left = ((whole - side) // 2 for whole, side in zip(have[2:], sides, strict=True))
        cropped = slice(top, top + sides[0]), slice(left, left + sides[1])
        return lambda x: x[(..., *cropped)], (*have[:2], *sides), offset
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
    """Return the view of a tensor as ``batch`` matrices of ``rows`` by ``cols``, without a copy where possible."""
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
    """A layer as torch runs it: ``call`` on its inputs, the ``shape`` of the result, and what holds its parameters."""

    call: Callable[..., Any]
    shape: Shape
    module: Any = None


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


DROPOUT = 0.1  # fraction set to zero, which does not affect the time
BINARY = frozenset(("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod", "remainder"))
CHOOSING = ("where", "masked_fill")  # functions of a mask, which stays in the cache
LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss")
SCALAR: dict[str, Callable[[Any], Any]] = {
    "add_scalar": lambda x: x + 1.0,
    "sub_scalar": lambda x: x - 1.0,
    "mul_scalar": lambda x: x * 0.5,
    "div_scalar": lambda x: x / 8.0,
    "pow_scalar": lambda x: torch.pow(x, 3.0),
}
_RENAMED = {"log_sigmoid_forward": "logsigmoid"}
_IN_PLACE = ("silu", "mish", "hardswish")  # these have an option, and no function of their own
_LEFT = frozenset(("dropout", "dropout_add", "topk", "nll_loss", "lstm_cell", "fill", "random", "sort", "cast"))


def unary(function: str, *, in_place: bool) -> Callable[[Any], Any] | None:
    """Return torch's *function* of one tensor; None where it has none of that name."""
    if function in SCALAR:
        return SCALAR[function]
    name = _RENAMED.get(function, function)
    if name in _LEFT or name in BINARY or not name.isidentifier() or name.startswith("_"):
        return None
    if in_place:
        in_places = [getattr(place, f"{name}_", None) for place in (torch, F, torch.Tensor)]
        with_option = partial(getattr(F, name), inplace=True) if name in _IN_PLACE else None
        return next((found for found in (*in_places, with_option) if found is not None), None)
    return getattr(F, name, None) or getattr(torch, name, None)


_NOT_IN_TORCH = {
    "lstm_cell": "the fused cell of an LSTM without its products is no public function of torch",
    "dropout_add": "a sum that drops some of it in one kernel is Megatron-LM's and not torch's",
}


def _constants(cols: int, *, mask: bool = False) -> Callable[[Any], Any]:
    """Return what gives ones like a tensor, along its last dimension: kept stand-ins for masks and tables."""
    held: dict[Any, Any] = {}

    def like(x: Any) -> Any:
        key = x.device, x.dtype
        if key not in held:
            held[key] = torch.ones(cols, dtype=torch.bool if mask else x.dtype, device=x.device)
        return held[key]

    return like


def elementwise(layer: DescribedLayer, shapes: Sequence[Shape], near: Neighbours) -> TorchLayer:
    """Return a function of each element, a loss, or a choice; raises Unavailable where torch has none."""
    function, elements = str(layer.sizes["function"]), layer.size("elements")
    if layer.parameters:
        return _with_parameter(layer, shapes, function, elements)
    if function in ("fill", "random") and not shapes:
        return TorchLayer(lambda: torch.zeros(elements), (elements,))
    if not shapes:
        raise Unavailable(f"{layer.name}: {function} of no tensor")
    if function in _NOT_IN_TORCH:
        raise Unavailable(f"{layer.name}: {_NOT_IN_TORCH[function]}")
    if len(shapes) > 1 and (function == "nll_loss" or function in LOSSES):
        return _loss(layer, shapes, function)
    if function == "dropout":
        return TorchLayer(lambda x: F.dropout(x, DROPOUT, training=True), shapes[0])
    if function == "topk":  # returns all values sorted; the reader takes the first ones
        return TorchLayer(lambda x: torch.topk(x, shapes[0][-1]).values, shapes[0])
    last = near.before[-1] if function == "mul" and len(shapes) == 2 else None
    if last is not None and last.sizes.get("function") == "topk":  # by the best scores of each token, which are sorted
        rows, scores = shapes
        chosen = prod(rows) // rows[-1] * scores[-1] // prod(scores)
        return TorchLayer(lambda x, best: x * best[..., :chosen].reshape(*rows[:-1], 1).to(x.dtype), rows)
    return _of_tensors(layer, shapes, function, elements)


def _loss(layer: DescribedLayer, shapes: Sequence[Shape], function: str) -> TorchLayer:
    """Return a loss of predictions and labels or, for each element, of predictions and targets."""
    if function == "nll_loss":
        rows = prod(shapes[1])
        view, labels = seen(shapes[0], (rows, prod(shapes[0]) // rows), layer), seen(shapes[1], (rows,), layer)
        return TorchLayer(lambda x, y: F.nll_loss(view(x), labels(y)), ())
    loss, view = getattr(F, function), seen(shapes[1], shapes[0], layer)
    return TorchLayer(lambda x, y: loss(x, view(y), reduction="none"), shapes[0])


def _of_tensors(layer: DescribedLayer, shapes: Sequence[Shape], function: str, elements: int) -> TorchLayer:
    """Return *function* of tensors of which one has the shape of the result, or of all pairs of two."""
    whole = next((shape for shape in shapes if prod(shape) == elements), None)
    if whole is None and function in BINARY and len(shapes) == 2:  # each row with each, in a sample (keys, queries)
        (batch, rows, *cols), (others, keys, *theirs) = (shape if len(shape) > 2 else (1, *shape) for shape in shapes)
        if batch == others and cols == theirs and batch * rows * keys * prod(cols) == elements:
            of_two, a, b = getattr(torch, function), (batch, rows, 1, *cols), (batch, 1, keys, *cols)
            return TorchLayer(lambda x, y: of_two(x.reshape(a), y.reshape(b)), (batch, rows, keys, *cols))
    if whole is None:
        raise Unavailable(f"{layer.name}: none of what it reads has its {elements} elements")
    if function in CHOOSING:
        like = _constants(whole[-1], mask=True)
        if function == "where":
            return TorchLayer(lambda x, *_: torch.where(like(x), x, -1.0), whole)
        return TorchLayer(lambda x, *_: x.masked_fill(like(x), -1.0), whole)
    if function in BINARY:
        return _binary(layer, shapes, whole, function)
    found = unary(function, in_place=layer.in_place)
    if found is None or len(shapes) > 1:
        raise Unavailable(f"{layer.name}: no function '{function}' of {len(shapes)} tensors is built")
    return TorchLayer(found, shapes[0])


def _binary(layer: DescribedLayer, shapes: Sequence[Shape], whole: Shape, function: str) -> TorchLayer:
    of_two = getattr(torch.Tensor, f"{function}_") if layer.in_place else getattr(torch, function)
    if len(shapes) == 1:
        like = _constants(whole[-1])
        return TorchLayer(lambda x: of_two(x, like(x)), whole)
    if len(shapes) > 2:
        raise Unavailable(f"{layer.name}: {function} of {len(shapes)} tensors is not built")
    large, small = prod(whole), min(map(prod, shapes))
    sides = {prod(part) for k in range(len(whole)) for part in (whole[k:], whole[: k + 1])}
    if small not in sides and large % small == 0:  # repeat the smaller, ignoring dimensions
        wide = (large // small, small)
        repeated = [seen(shape, wide if prod(shape) == large else wide[1:], layer) for shape in shapes]
        return TorchLayer(lambda a, b: of_two(repeated[0](a), repeated[1](b)).reshape(whole), whole)
    views = [_spread(shape, whole, layer) for shape in shapes]
    return TorchLayer(lambda a, b: of_two(views[0](a), views[1](b)), whole)


def _spread(have: Shape, whole: Shape, layer: DescribedLayer) -> Callable[[Any], Any]:
    """Return the view that broadcasts a tensor over *whole*, by rows, images or channels; raises Unavailable."""
    if prod(have) == prod(whole):
        return seen(have, whole, layer)
    for sides in range(len(whole)):
        if prod(whole[sides:]) == prod(have):
            return seen(have, whole[sides:], layer)
        if prod(whole[: len(whole) - sides]) == prod(have):
            return seen(have, (*whole[: len(whole) - sides], *[1] * sides), layer)
    raise Unavailable(f"{layer.name}: {'x'.join(map(str, have))} is not spread over {'x'.join(map(str, whole))}")


def _with_parameter(layer: DescribedLayer, shapes: Sequence[Shape], function: str, elements: int) -> TorchLayer:
    if len(layer.parameters) > 1 or len(shapes) != 1 or function not in BINARY:
        raise Unavailable(f"{layer.name}: {function} with {len(layer.parameters)} parameters is not built")
    whole, size = shapes[0], layer.parameters[0].elements
    shape = next((whole[i:] for i in range(len(whole)) if prod(whole[i:]) == size), None)
    if shape is None and len(whole) == 4 and whole[1] == size:
        shape = (size, 1, 1)
    if shape is None or prod(whole) != elements:
        raise Unavailable(f"{layer.name}: {size} numbers are not spread over {'x'.join(map(str, whole))}")
    module = WithParameters(getattr(torch, function), weight=shape)
    return TorchLayer(module, whole, module)
