"""A layer as torch runs it (:class:`TorchLayer`), views of tensors, and functions of each element.

A description says how many elements an operator reads, and a view keeps the number of the tensor it views.  Where a
tensor is larger than what its readers need, as with a joint projection of queries, keys and values, the readers get
its columns in turn.  Readers that together cover the tensor share one ``split``, whose gradients one kernel joins.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.built.description import OPERATORS, DescribedLayer
from validate.machine.measure.case import Unavailable

Shape = tuple[int, ...]
View = Callable[[Any], Any]
Layers = Sequence[DescribedLayer | None]


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


class TorchLayer(NamedTuple):
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
BINARY = frozenset(OPERATORS["of_two"])


def unary(function: str, *, in_place: bool) -> Callable[[Any], Any] | None:
    """Return torch's *function* of one tensor; None where it has none of that name."""
    if (scalar := OPERATORS["scalar"].get(function)) is not None:
        of_two = getattr(torch, function.removesuffix("_scalar"))
        return lambda x: of_two(x, scalar)
    name = OPERATORS["renamed"].get(function, function)
    if name in OPERATORS["no_unary"] or name in BINARY or not name.isidentifier() or name.startswith("_"):
        return None
    if in_place:
        in_places = [getattr(place, f"{name}_", None) for place in (torch, F, torch.Tensor)]
        with_option = partial(getattr(F, name), inplace=True) if name in OPERATORS["in_place_option"] else None
        return next((found for found in (*in_places, with_option) if found is not None), None)
    return getattr(F, name, None) or getattr(torch, name, None)


def _constants(cols: int, *, mask: bool = False) -> Callable[[Any], Any]:
    """Return what gives ones like a tensor, along its last dimension: kept stand-ins for masks and tables."""
    held: dict[Any, Any] = {}

    def like(x: Any) -> Any:
        key = x.device, x.dtype
        if key not in held:
            held[key] = torch.ones(cols, dtype=torch.bool if mask else x.dtype, device=x.device)
        return held[key]

    return like


class LayerMaker:
    """Makes *layer* for inputs of *shapes*, between the layers *before* and *after*; raises Unavailable for others."""

    def __init__(
        self, layer: DescribedLayer, shapes: Sequence[Shape], before: Layers = (), after: Sequence[DescribedLayer] = ()
    ) -> None:
        self.layer, self.shapes, self.before, self.after = layer, shapes, before, after
        self.size, self.sizes, self.parameters = layer.size, layer.sizes, layer.parameters
        self.have = shapes[0] if shapes else ()  # the shape of the first input

    def lacks(self, why: str) -> Unavailable:
        """Return the fault that the layer cannot be made, with the reason."""
        return Unavailable(f"{self.layer.name}: {why}")

    def seen(self, want: Shape, have: Shape | None = None) -> View:
        """Return the view of a tensor of shape *have*, by default the first input's, as *want*."""
        have = self.have if have is None else have
        if have == want:
            return itself
        if prod(have) != prod(want):
            raise self.lacks(f"{'x'.join(map(str, have))} cannot be seen as {'x'.join(map(str, want))}")
        return lambda x: x.reshape(want)

    def _make_elementwise(self) -> TorchLayer:
        function, elements, shapes = str(self.sizes["function"]), self.size("elements"), self.shapes
        if self.parameters:
            return self._with_parameter(function, elements)
        if function in ("fill", "random") and not shapes:
            return TorchLayer(lambda: torch.zeros(elements), (elements,))
        if not shapes:
            raise self.lacks(f"{function} of no tensor")
        if function in OPERATORS["not_in_torch"]:
            raise self.lacks(OPERATORS["not_in_torch"][function])
        if len(shapes) > 1 and (function == "nll_loss" or function in OPERATORS["losses"]):
            return self._loss(function)
        if function == "dropout":
            return TorchLayer(lambda x: F.dropout(x, DROPOUT, training=True), shapes[0])
        if function == "topk":  # returns all values sorted; the reader takes the first ones
            return TorchLayer(lambda x: torch.topk(x, shapes[0][-1]).values, shapes[0])
        last = self.before[-1] if function == "mul" and len(shapes) == 2 else None
        if last is not None and last.sizes.get("function") == "topk":  # by each token's best scores, which are sorted
            rows, scores = shapes
            chosen = prod(rows) // rows[-1] * scores[-1] // prod(scores)
            return TorchLayer(lambda x, best: x * best[..., :chosen].reshape(*rows[:-1], 1).to(x.dtype), rows)
        return self._of_tensors(function, elements)

    def _loss(self, function: str) -> TorchLayer:
        have, other = self.shapes
        if function == "nll_loss":
            rows = prod(other)
            view, labels = self.seen((rows, prod(have) // rows)), self.seen((rows,), other)
            return TorchLayer(lambda x, y: F.nll_loss(view(x), labels(y)), ())
        loss, view = getattr(F, function), self.seen(have, other)
        return TorchLayer(lambda x, y: loss(x, view(y), reduction="none"), have)

    def _of_tensors(self, function: str, elements: int) -> TorchLayer:
        """Return *function* of tensors of which one has the shape of the result, or of all pairs of two."""
        shapes = self.shapes
        whole = next((shape for shape in shapes if prod(shape) == elements), None)
        if whole is None and function in BINARY and len(shapes) == 2:  # each row with each, in a sample (keys, queries)
            (batch, rows, *cols), (others, keys, *theirs) = (each if len(each) > 2 else (1, *each) for each in shapes)
            if batch == others and cols == theirs and batch * rows * keys * prod(cols) == elements:
                of_two, a, b = getattr(torch, function), (batch, rows, 1, *cols), (batch, 1, keys, *cols)
                return TorchLayer(lambda x, y: of_two(x.reshape(a), y.reshape(b)), (batch, rows, keys, *cols))
        if whole is None:
            raise self.lacks(f"none of what it reads has its {elements} elements")
        if function in OPERATORS["choosing"]:
            like = _constants(whole[-1], mask=True)
            if function == "where":
                return TorchLayer(lambda x, *_: torch.where(like(x), x, -1.0), whole)
            return TorchLayer(lambda x, *_: x.masked_fill(like(x), -1.0), whole)
        if function in BINARY:
            return self._binary(function, whole)
        found = unary(function, in_place=self.layer.in_place)
        if found is None or len(shapes) > 1:
            raise self.lacks(f"no function '{function}' of {len(shapes)} tensors is built")
        return TorchLayer(found, self.have)

    def _binary(self, function: str, whole: Shape) -> TorchLayer:
        of_two = getattr(torch.Tensor, f"{function}_") if self.layer.in_place else getattr(torch, function)
        if len(self.shapes) == 1:
            like = _constants(whole[-1])
            return TorchLayer(lambda x: of_two(x, like(x)), whole)
        if len(self.shapes) > 2:
            raise self.lacks(f"{function} of {len(self.shapes)} tensors is not built")
        large, small = prod(whole), min(map(prod, self.shapes))
        sides = {prod(part) for k in range(len(whole)) for part in (whole[k:], whole[: k + 1])}
        if small not in sides and large % small == 0:  # repeat the smaller, ignoring dimensions
            wide = (large // small, small)
            repeated = [self.seen(wide if prod(shape) == large else wide[1:], shape) for shape in self.shapes]
            return TorchLayer(lambda a, b: of_two(repeated[0](a), repeated[1](b)).reshape(whole), whole)
        views = [self._spread(shape, whole) for shape in self.shapes]
        return TorchLayer(lambda a, b: of_two(views[0](a), views[1](b)), whole)

    def _spread(self, have: Shape, whole: Shape) -> View:
        if prod(have) == prod(whole):
            return self.seen(whole, have)
        for sides in range(len(whole)):
            if prod(whole[sides:]) == prod(have):
                return self.seen(whole[sides:], have)
            if prod(whole[: len(whole) - sides]) == prod(have):
                return self.seen((*whole[: len(whole) - sides], *[1] * sides), have)
        raise self.lacks(f"{'x'.join(map(str, have))} is not spread over {'x'.join(map(str, whole))}")

    def _with_parameter(self, function: str, elements: int) -> TorchLayer:
        if len(self.parameters) > 1 or len(self.shapes) != 1 or function not in BINARY:
            raise self.lacks(f"{function} with {len(self.parameters)} parameters is not built")
        whole, size = self.have, self.parameters[0].elements
        shape = next((whole[i:] for i in range(len(whole)) if prod(whole[i:]) == size), None)
        if shape is None and len(whole) == 4 and whole[1] == size:
            shape = (size, 1, 1)
        if shape is None or prod(whole) != elements:
            raise self.lacks(f"{size} numbers are not spread over {'x'.join(map(str, whole))}")
        module = WithParameters(getattr(torch, function), weight=shape)
        return TorchLayer(module, whole, module)
