"""A network as a torch module with inputs: built from its description, or the user's own (docs/torch.md) beside it."""

import importlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from validate.machine.measure.built.description import OPERATORS, DescribedLayer, Description
from validate.machine.measure.built.operators import OperatorMaker, needed
from validate.machine.measure.built.shapes import Shape, View, named, reshaped_part
from validate.machine.measure.built.spans import ForwardCall, Recompute, end, pass_through, spans
from validate.machine.measure.case import Unavailable

_BLOCK = re.compile(r"(?:[^.]+\.)*?\d+(?=\.)")  # the repeated block of a layer: blocks.3 in blocks.3.mlp.up
_MIXES = frozenset(("MatMul", "Attention"))  # products of activations, not of parameters


class BuiltModule(NamedTuple):
    """A module with a batch of random inputs; labels are among the inputs, and losses are layers."""

    module: Any
    inputs: tuple[Any, ...]

    def forward(self) -> tuple[Any, ...]:
        """Return the outputs: the tensors that no layer reads."""
        return tuple(self.module(*self.inputs))

    def loss(self) -> Any:
        """Return the sum of the losses; without any, the sum of all outputs that depend on a parameter."""
        outputs = [y for y in self.forward() if y.requires_grad]
        numbers = [y for y in outputs if y.numel() == 1] or [y.float().sum() for y in outputs]
        return sum(numbers[1:], numbers[0])


class BuiltNetwork(nn.Module):  # type: ignore[misc]
    """The module of *description*; every layer runs as one torch call, in the written order.

    *recompute*: keep only the inputs of repeated blocks (``full``), or only attention's (``selective``), and run the
    rest again in the backward pass.  *in_blocks*: make each repeated block a module (``blocks``), as sharding by block
    requires.  Raises Unavailable where torch lacks an operator or the description does not fit torch's shapes.
    """

    def __init__(self, description: Description, recompute: Recompute = "", *, in_blocks: bool = False) -> None:
        super().__init__()
        self.fed = description.fed
        self._known: dict[str, Any] = {}
        self._steps: list[ForwardCall] = []
        self._shapes = {n: _fed(description, n)[0] for n in description.fed}
        # (layer index, input position) of a reader that gets only part of a tensor, to the number of that part
        self._parts: dict[tuple[int, int], int] = {}
        self._split(description, description.fed)
        writers = {layer.output: layer for layer in description.layers}
        readers: dict[int, list[DescribedLayer]] = {}
        for layer in description.layers:
            for number in layer.inputs:
                readers.setdefault(number, []).append(layer)
        places: dict[str, str] = {}
        for index, layer in enumerate(description.layers):
            parted = _BLOCK.match(layer.name)
            block, mixes = parted[0] if parted else "", layer.operator in _MIXES
            for parameter in layer.parameters if in_blocks else ():
                if places.setdefault(parameter.name, block) != block:  # each block would shard it
                    told = f"{layer.name}: {parameter.name} is shared between blocks, which are sharded apart"
                    raise Unavailable(told)
            reads = tuple(self._parts.get((index, i), number) for i, number in enumerate(layer.inputs))
            near = [writers.get(n) for n in layer.inputs], readers.get(layer.output, ())
            made = OperatorMaker(layer, [self._shapes[n] for n in reads], *near).made()
            self._share(layer, made.module)
            is_said = description.elements[layer.output]
            if prod(made.shape) != is_said and made.shape:
                raise Unavailable(f"{layer.name}: returns {prod(made.shape)} elements; {is_said} are said")
            self._shapes[layer.output] = made.shape
            self._steps.append(ForwardCall(made.call, reads, (layer.output,), block, mixes, module=made.module))
            self._split(description, (layer.output,))
        self.outputs = tuple(layer.output for layer in description.layers if layer.output not in readers)
        end(self._steps, self.outputs)
        if sum(p.numel() for p in self._known.values()) != description.parameter_count:
            raise Unavailable(f"{description.name}: parameters of one name differ in size")
        self.spans = nn.ModuleList(spans(self._steps, self.outputs, recompute, in_blocks=in_blocks))

    def _share(self, layer: DescribedLayer, module: Any) -> None:
        trained = {parameter.name: parameter.trained for parameter in layer.parameters}
        for own, name in named(layer, module).items() if module is not None else ():
            parameter = getattr(module, own)
            known = self._known.setdefault(name, parameter)
            if known.shape != parameter.shape:
                raise Unavailable(f"{layer.name}: {name} is shared in another shape")
            known.requires_grad_(trained[name])
            setattr(module, own, known)

    def _split(self, description: Description, numbers: Sequence[int]) -> None:
        """Split tensors of which some layers read only a part; each part gets a tensor number of its own."""
        for number in numbers:
            shape, whole, offset = self._shapes[number], description.elements[number], 0
            found: list[tuple[View, Shape, tuple[int, int]]] = []
            layers = enumerate(description.layers)
            reads = ((at, layer, i) for at, layer in layers for i, read in enumerate(layer.inputs) if read == number)
            for index, layer, i in reads:
                need = needed(layer, i, whole)
                sides: Shape = ()
                if layer.operator == "Copy" and len(layer.inputs) > 1:
                    need, sides = _of_join(description, layer, i, need)
                if need < whole:  # the parameter of a function tells how many columns it reads
                    cols = layer.parameters[0].elements if layer.operator == "Elementwise" and layer.parameters else 0
                    view, part, offset = reshaped_part(shape, need, offset, cols, sides)
                    found.append((view, part, (index, i)))
            if not found:
                continue
            names = [len(description.elements) + len(self._parts) + i for i in range(len(found))]
            widths = [part[-1] for _, part, _ in found]
            tiles = sum(widths) == shape[-1] and all(part[:-1] == shape[:-1] for _, part, _ in found)
            if tiles:
                split = partial(torch.split, split_size_or_sections=widths, dim=-1)
                self._steps.append(ForwardCall(split, (number,), tuple(names), ""))
            for name, (view, part, reader) in zip(names, found, strict=True):
                self._shapes[name], self._parts[reader] = part, name
                if not tiles:
                    self._steps.append(ForwardCall(view, (number,), (name,), ""))

    def forward(self, *fed: Any) -> tuple[Any, ...]:
        """Return the outputs of the network for the inputs *fed*."""
        values = dict(zip(self.fed, fed, strict=True))
        for span in self.spans:
            if span.apart:
                pass_through(span, values, span)
            else:
                span.go(values)
        return tuple(values[n] for n in self.outputs)

    @property
    def blocks(self) -> list[Any]:
        """Return the modules of repeated blocks that have parameters."""
        return [span for span in self.spans if span.apart and next(span.parameters(), None) is not None]


def _of_join(description: Description, layer: DescribedLayer, position: int, need: int) -> tuple[int, Shape]:
    """Return *need*, reduced for the largest input of a concatenation whose output is smaller than its inputs.

    With it, the height and width of the images that *layer* concatenates for a convolution; empty for others.
    """
    sizes = [description.elements[n] for n in layer.inputs]
    more = sum(sizes) - layer.size("elements")
    need -= more if more > 0 and sizes[position] == max(sizes) and need > more else 0
    readers = (each for each in description.layers if layer.output in each.inputs and each.operator == "Conv2d")
    reader = next(readers, None)
    return need, (reader.size("h_in"), reader.size("w_in")) if reader and not reader.sizes.get("transposed") else ()


def _fed(description: Description, number: int) -> tuple[Shape, int]:
    """Return an input tensor's shape, as its first reader has it, and how many values it may take; 0: no integer."""
    layer = next(layer for layer in description.layers if number in layer.inputs)
    s, whole, samples = layer.size, description.elements[number], description.samples
    position = layer.inputs.index(number)
    if layer.operator == "Conv2d" and not layer.sizes.get("transposed"):
        return (s("batch"), s("c_in"), s("h_in"), s("w_in")), 0
    columns, values = next(iter(OPERATORS["fed"].get(layer.operator, [])[position:]), ("", ""))
    cols, most = s(columns, 1), s(values)
    if layer.sizes.get("function") == "nll_loss" and position == 1:
        most = description.elements[layer.inputs[0]] // whole
    rows = whole // cols
    lead = (samples, rows // samples) if rows % samples == 0 and rows > samples else (rows,)
    return lead if cols == 1 else (*lead, cols), most


def build_module(
    description: Description, device: Any, *, dtype: Any = None, recompute: Recompute = "", in_blocks: bool = False
) -> BuiltModule:
    """Return *description* on *device*, in *dtype*, with random inputs (values affect power draw and clock)."""
    dtype = dtype or torch.float32
    with torch.device(device):
        module = BuiltNetwork(description, recompute, in_blocks=in_blocks).to(dtype)
        inputs = []
        for shape, most in (_fed(description, number) for number in description.fed):
            inputs.append(torch.randint(most, shape) if most else torch.randn(shape, dtype=dtype))
    return BuiltModule(module.train(), tuple(inputs))


class _Own(nn.Module):  # type: ignore[misc]
    def __init__(self, module: Any, form: Any, loss: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.module, self._form, self._loss = module, form, loss

    def forward(self, *fed: Any) -> tuple[Any, ...]:
        args, named = pytree.tree_unflatten(list(fed), self._form)
        output = self.module(*args, **named)
        if self.training:
            own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            own = self._loss(output) if self._loss is not None else own if isinstance(own, torch.Tensor) else None
            if own is not None:
                return (own,)
        return tuple(leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor))


def build_own(source: str, device: Any, *, dtype: Any = None, training: bool = True) -> BuiltModule:
    """Return the module that the factory of *source* makes, on *device*: ``torch:package.module:factory batch=8``.

    Parameters and inputs are cast to *dtype*; None keeps their formats.  Raises Unavailable where the factory cannot be
    imported or returns no module with inputs.
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
    accepted: Collection[str] = ()
    with suppress(TypeError, ValueError):
        accepted = inspect.signature(found).parameters
    with torch.device(device):
        made = found(**{size: value for size, value in known.items() if size in accepted})
        module, inputs, loss = (*(made if isinstance(made, tuple) else (made,)), None, None)[:3]
        module = getattr(module, "_orig_mod", module)
        if shapes:
            inputs = tuple(_random(shape, known["batch"]) for shape in shapes[0].split(","))
        elif inputs is None:
            inputs = getattr(module, "example_input", None)
    if not isinstance(module, nn.Module) or inputs is None:
        raise Unavailable(f"{name}: returned no module, or nothing to feed in")
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    args = () if isinstance(inputs, Mapping) else tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    leaves, form = pytree.tree_flatten((args, named))

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(device=device, dtype=dtype if dtype is not None and leaf.is_floating_point() else leaf.dtype)

    own = _Own(module, form, loss).to(device=device, dtype=dtype).train(training)
    return BuiltModule(own, tuple(map(placed, leaves)))


def _random(shape: str, batch: int) -> Any:
    *sides, last = shape.strip().split("x")
    kind = torch.float32
    if last and not last.isdecimal():
        kind = getattr(torch, last)
    elif last:
        sides.append(last)
    size = (batch, *map(int, sides))
    return torch.randn(size, dtype=kind) if kind.is_floating_point else torch.randint(2, size).to(kind)
