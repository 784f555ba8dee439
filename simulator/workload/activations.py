"""Activation memory: the formats of tensors, those that autograd keeps, and the peak of a forward pass.

Each operator says what it keeps.  Parameters and constants (masks, sine tables) are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from simulator.records import dataclass, field
from simulator.workload.backward import needs_gradient, storages
from simulator.workload.network import Layer, Network, once
from simulator.workload.precision import INDEX_BYTES, NVFP4_BYTES


@dataclass(frozen=True, eq=False, slots=True)
class Formats:
    """Bytes an element, by tensor and by layer.

    ``stored[number]`` is for the tensor of that number.  ``computed[index]`` is for what layer ``index`` computes in,
    and so for what it keeps besides tensors.  ``copies[index]`` maps the tensors that this layer copies to another
    format before it reads them to the copies' bytes an element; ``promoted[index]`` likewise those that it reads as
    they are, while their gradients are computed in that format.
    """

    stored: tuple[int, ...]
    computed: tuple[int, ...]
    copies: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    promoted: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


@once
def one_format(network: Network, element_bytes: int) -> Formats:
    """Return the formats where all numbers have *element_bytes*, except words and labels."""
    return Formats(
        with_indices(network, [element_bytes] * len(network.elements)), (element_bytes,) * len(network.layers)
    )


def with_indices(network: Network, stored: list[int]) -> tuple[int, ...]:
    """Return *stored*, the bytes of an element of each tensor, with those of words and labels in their places."""
    for layer in network.layers:
        for at in layer.operator.indices:
            stored[layer.inputs[at]] = INDEX_BYTES
    return tuple(stored)


@dataclass(frozen=True, slots=True)
class SavedTensors:
    """Activations saved for the backward pass, in bytes.

    ``by_tensor`` maps the number of a saved tensor to its size.  A tensor that several layers save is counted once,
    and is freed after the backward pass of the first of these layers, ``first_keeper[number]``.  ``by_layer[i]`` is
    the size of the data that layer ``i`` alone saves (masks, indices, statistics), ``copies[i]`` that of its copies of
    tensors in another format.
    """

    by_tensor: dict[int, int]
    by_layer: tuple[int, ...]
    copies: tuple[int, ...]
    first_keeper: dict[int, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of all saved data."""
        return sum(self.by_tensor.values()) + sum(self.by_layer) + sum(self.copies)

    def part(
        self, tensor: Callable[[int], bool], other: Callable[[int], bool], copy: Callable[[int], bool] | None = None
    ) -> SavedTensors:
        """Return the data for which *tensor*, given its number, holds, and of layers for which *other* and *copy* do.

        *copy* is *other* unless given.
        """
        kept = {number: size for number, size in self.by_tensor.items() if tensor(number)}
        by_layer = tuple(n * other(place) for place, n in enumerate(self.by_layer))
        copies = tuple(n * (copy or other)(place) for place, n in enumerate(self.copies))
        return SavedTensors(kept, by_layer, copies, {number: self.first_keeper[number] for number in kept})


@once
def saved_tensors(network: Network, formats: Formats, narrow: frozenset[int] = frozenset()) -> SavedTensors:
    """Return the activations that a forward pass of *network* in *formats* saves for the backward pass.

    A layer that reads a copy saves the copy.  Of their inputs, the layers with the indices *narrow* save a copy in
    nvfp4, which those with the same input share.
    """
    needed = needs_gradient(network)
    places = storages(network)
    by_tensor: dict[int, int] = {}
    by_layer, copied = [0] * len(network.layers), [0] * len(network.layers)
    first: dict[int, int] = {}
    quantised: set[int] = set()
    for index, layer in enumerate(network.layers):
        if not needed[layer.output]:
            continue
        if index in narrow and layer.trained:
            place = places[layer.inputs[0]]
            by_layer[index] = 0 if place in quantised else round(network.elements[place] * NVFP4_BYTES)
            quantised.add(place)
            continue
        copies = formats.copies.get(index, {})
        by_layer[index] = layer.operator.saved_bytes(formats.computed[index])
        for number in dict.fromkeys(kept_by(layer, needed)):
            if number in copies:
                copied[index] += network.elements[number] * copies[number]
                continue
            place = places[number]
            by_tensor[place] = network.elements[place] * formats.stored[place]
            first.setdefault(place, index)
    return SavedTensors(by_tensor, tuple(by_layer), tuple(copied), first)


def kept_by(layer: Layer, needed: Sequence[bool]) -> Iterator[int]:
    """Yield the numbers of the tensors that *layer* saves; *needed*: whether each tensor needs a gradient."""
    inputs = layer.inputs
    for what in layer.operator.saved:
        if what == "output":
            yield layer.output
        elif what == "inputs":
            yield from inputs
        elif what == "labels":
            yield inputs[1]
        elif what == "factors" or (what == "two factors" and len(inputs) == 2):
            yield from (a for a, b in zip(inputs, inputs[::-1], strict=True) if needed[b])
        elif what == "input" or (what == "input of weights" and layer.trained):
            yield inputs[0]


@once
def fed_bytes(network: Network, formats: Formats) -> int:
    """Return the bytes of the network's inputs, which the caller holds throughout."""
    written = {layer.output for layer in network.layers}
    read = {tensor for layer in network.layers for tensor in layer.inputs}
    return sum(network.elements[number] * formats.stored[number] for number in read - written)


@once
def peak_forward_bytes(network: Network, formats: Formats) -> int:
    """Return the peak of live activations in a forward pass that saves nothing, in bytes.

    A tensor lives from the layer that writes it to the last layer that reads it.  The network's inputs live
    throughout, because the caller holds them.
    """
    sizes = [n * size for n, size in zip(network.elements, formats.stored, strict=True)]
    places = storages(network)
    last: dict[int, int] = {}
    for i, layer in enumerate(network.layers):
        for number in (*layer.inputs, layer.output):
            last[places[number]] = i
    written = {layer.output for layer in network.layers}
    most = alive = fed_bytes(network, formats)
    leaving: dict[int, list[int]] = {}
    for place, i in last.items():
        leaving.setdefault(i, []).append(place)
    for i, layer in enumerate(network.layers):
        if not layer.in_place:
            alive += sizes[layer.output]
        copies = sum(network.elements[tensor] * size for tensor, size in formats.copies.get(i, {}).items())
        copies += layer.operator.temporary_bytes(formats.computed[i])
        most = max(most, alive + copies)
        alive -= sum(sizes[place] for place in leaving.get(i, ()) if place in written)
    return most
