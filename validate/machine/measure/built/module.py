"""A network that is written out as a torch module, with what is fed into it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn

from validate.machine.measure.built.description import Description, Layer
from validate.machine.measure.built.made import Made, Neighbours
from validate.machine.measure.built.operators import MAKERS, needed
from validate.machine.measure.built.shapes import Shape, View, part_of
from validate.machine.measure.built.spans import Recompute, Step, end, spans
from validate.machine.measure.case import Unavailable

__all__ = ["Built", "BuiltNetwork", "build_network"]

_BLOCK = re.compile(r"(?:[^.]+\.)*?\d+(?=\.)")  # the repeated block that a layer is in: blocks.3 of blocks.3.mlp.up
_MIXES = frozenset(("MatMul", "Attention"))  # products of activations


@dataclass(frozen=True, slots=True)
class Built:
    """A module with a batch of random inputs; labels go in with the others, and losses are layers of it."""

    module: Any
    inputs: tuple[Any, ...]

    def forward(self) -> tuple[Any, ...]:
        """Return the outputs: what no layer reads."""
        found: tuple[Any, ...] = self.module(*self.inputs)
        return found

    def loss(self) -> Any:
        """Return the sum of the losses; where the network has none, of all outputs that depend on a parameter."""
        outputs = [y for y in self.forward() if y.requires_grad]
        numbers = [y for y in outputs if y.numel() == 1] or [y.float().sum() for y in outputs]
        return sum(numbers[1:], numbers[0])


@dataclass(slots=True)
class _Plan:
    """What is known while layers are made, one after the other."""

    shapes: dict[int, Shape]
    steps: list[Step] = field(default_factory=list)
    # by tensor and what reads it (layer and position), the number of the part that it gets
    parts: dict[tuple[int, int], int] = field(default_factory=dict)


class BuiltNetwork(nn.Module):  # type: ignore[misc]
    """The module of *description*; every layer runs as one call of torch, in the order that is written.

    *recompute*: of repeated blocks the inputs alone are kept (``full``), or of attention queries, keys and values
    (``selective``), and what is between runs forward again.  *in_blocks*: each repeated block is a module of its own
    (``blocks``), as those who shard parameters block by block need it.  Raises Unavailable where torch has no such
    operator.
    """

    def __init__(self, description: Description, recompute: Recompute = "", *, in_blocks: bool = False) -> None:
        super().__init__()
        self.fed = description.fed
        self._known: dict[str, Any] = {}
        plan = _Plan({n: _fed_shape(description, n) for n in description.fed})
        self._split(description, plan, description.fed)
        writers = {layer.output: layer for layer in description.layers}
        readers: dict[int, list[Layer]] = {}
        for layer in description.layers:
            for number in layer.inputs:
                readers.setdefault(number, []).append(layer)
        for index, layer in enumerate(description.layers):
            reads = tuple(plan.parts.get((index, i), number) for i, number in enumerate(layer.inputs))
            near = Neighbours(tuple(writers.get(n) for n in layer.inputs), tuple(readers.get(layer.output, ())))
            made = self._made(layer, [plan.shapes[n] for n in reads], near)
            if prod(made.shape) != description.elements[layer.output] and made.shape:
                raise Unavailable(
                    f"{layer.name}: returns {prod(made.shape)} elements; {description.elements[layer.output]} are said"
                )
            plan.shapes[layer.output] = made.shape
            block = _BLOCK.match(layer.name)
            mixes = layer.operator in _MIXES
            name = block[0] if block else ""
            plan.steps.append(Step(made.call, reads, (layer.output,), name, mixes, module=made.module))
            self._split(description, plan, (layer.output,))
        self.outputs = tuple(layer.output for layer in description.layers if layer.output not in readers)
        end(plan.steps, self.outputs)
        if in_blocks:
            _check_apart(description, plan.steps)
        if sum(p.numel() for p in self._known.values()) != description.parameter_count:
            raise Unavailable(f"{description.name}: parameters of one name differ in size")
        self.spans = nn.ModuleList(spans(plan.steps, self.outputs, recompute, in_blocks=in_blocks))

    def _made(self, layer: Layer, shapes: Sequence[Shape], near: Neighbours) -> Made:
        if layer.operator not in MAKERS:
            raise Unavailable(f"{layer.name}: no way to build a {layer.operator}")
        made = MAKERS[layer.operator](layer, shapes, near)
        trained = {parameter.name: parameter.trained for parameter in layer.parameters}
        for own, name in made.names.items():
            parameter = getattr(made.module, own)
            known = self._known.setdefault(name, parameter)
            if known.shape != parameter.shape:
                raise Unavailable(f"{layer.name}: {name} is shared in another shape")
            known.requires_grad_(trained[name])
            setattr(made.module, own, known)
        return made

    def _split(self, description: Description, plan: _Plan, numbers: Sequence[int]) -> None:
        """Take parts of tensors of which layers read less than all; parts get numbers of their own."""
        for number in numbers:
            shape, whole = plan.shapes[number], description.elements[number]
            wanted = [
                (index, i, needed(layer, i, whole))
                for index, layer in enumerate(description.layers)
                for i, read in enumerate(layer.inputs)
                if read == number
            ]
            wanted = [(index, i, _of_join(description, index, i, need)) for index, i, need in wanted]
            found: list[tuple[View, Shape, tuple[int, int]]] = []
            offset = 0
            for index, i, need in wanted:
                if need < whole:
                    view, part, offset = part_of(shape, need, offset, _cols(description.layers[index]))
                    found.append((view, part, (index, i)))
            if not found:
                continue
            names = [len(description.elements) + len(plan.parts) + i for i in range(len(found))]
            widths = [part[-1] for _, part, _ in found]
            tiles = sum(widths) == shape[-1] and all(part[:-1] == shape[:-1] for _, part, _ in found)
            if tiles:
                plan.steps.append(Step(_splitter(widths), (number,), tuple(names), ""))
            for name, (view, part, reader) in zip(names, found, strict=True):
                plan.shapes[name], plan.parts[reader] = part, name
                if not tiles:
                    plan.steps.append(Step(view, (number,), (name,), ""))

    def forward(self, *fed: Any) -> tuple[Any, ...]:
        """Return what no layer reads, of what is *fed* in."""
        values = dict(zip(self.fed, fed, strict=True))
        for span in self.spans:
            if span.apart:
                given = [values[n] for n in span.inside]
                span.drop(values)
                values.update(zip(span.outside, span(*given), strict=True))
            else:
                span.go(values)
        return tuple(values[n] for n in self.outputs)

    @property
    def blocks(self) -> list[Any]:
        """Return the modules of repeated blocks that have parameters."""
        return [span for span in self.spans if span.apart and next(span.parameters(), None) is not None]


def _check_apart(description: Description, steps: Sequence[Step]) -> None:
    """Raise Unavailable where blocks share a parameter: it would be sharded in each of them."""
    places: dict[str, str] = {}
    blocks = {step.writes[0]: step.block for step in steps}
    for layer in description.layers:
        for parameter in layer.parameters:
            block = blocks[layer.output]
            if places.setdefault(parameter.name, block) != block:
                raise Unavailable(f"{layer.name}: {parameter.name} is shared between blocks, which are sharded apart")


def _of_join(description: Description, index: int, position: int, need: int) -> int:
    """Return *need*, or where tensors are joined to fewer than they hold, what is left for the last of them."""
    layer = description.layers[index]
    if layer.operator != "Copy" or len(layer.inputs) < 2:
        return need
    sizes = [description.elements[n] for n in layer.inputs]
    more = sum(sizes) - layer.size("elements")
    return need - more if more > 0 and sizes[position] == max(sizes) and need > more else need


def _cols(layer: Layer) -> int:
    """Return how many columns a layer reads of what is wider, where its parameter says it; else 0."""
    return layer.parameters[0].elements if layer.operator == "Elementwise" and layer.parameters else 0


def _splitter(widths: list[int]) -> Callable[[Any], Any]:
    return lambda x: torch.split(x, widths, -1)


# -- what is fed in --------------------------------------------------------------------


def _first_reader(description: Description, number: int) -> tuple[Layer, int]:
    return next((layer, layer.inputs.index(number)) for layer in description.layers if number in layer.inputs)


def _fed_shape(description: Description, number: int) -> Shape:
    """Return the shape of a tensor that is fed in, by what reads it first."""
    layer, position = _first_reader(description, number)
    s, whole, samples = layer.size, description.elements[number], description.samples
    if layer.operator == "Conv2d" and not layer.sizes.get("transposed"):
        return s("batch"), s("c_in"), s("h_in"), s("w_in")
    if layer.operator in ("Linear", "Recurrent"):
        cols = s("inputs")
    elif layer.operator in ("LayerNorm", "Softmax", "CrossEntropy"):
        cols = s("cols") if position == 0 else 1
    else:
        cols = 1
    rows = whole // cols
    lead = (samples, rows // samples) if rows % samples == 0 and rows > samples else (rows,)
    return lead if cols == 1 else (*lead, cols)


def _range_of(description: Description, number: int) -> int:
    """Return how many values a whole number that is fed in may have; 0 where it is not a whole number."""
    layer, position = _first_reader(description, number)
    if layer.operator == "Embedding":
        return layer.size("vocabulary")
    if layer.operator == "CrossEntropy" and position == 1:
        return layer.size("cols")
    if layer.operator == "Elementwise" and layer.sizes.get("function") == "nll_loss" and position == 1:
        return description.elements[layer.inputs[0]] // description.elements[number]
    return 0


def build_network(
    description: Description,
    device: Any,
    *,
    dtype: Any = None,
    recompute: Recompute = "",
    in_blocks: bool = False,
) -> Built:
    """Return *description* on *device* with random inputs; parameters, and what is not a number of a thing, in *dtype*.

    Values are random: what a device draws, and so its clock, depends on them.  Raises Unavailable.
    """
    dtype = dtype or torch.float32
    with torch.device(device):
        module = BuiltNetwork(description, recompute, in_blocks=in_blocks).to(dtype)
        inputs = []
        for number in description.fed:
            shape, most = _fed_shape(description, number), _range_of(description, number)
            inputs.append(torch.randint(most, shape) if most else torch.randn(shape, dtype=dtype))
    return Built(module.train(), tuple(inputs))
