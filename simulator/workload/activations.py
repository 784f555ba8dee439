"""Activation memory: the tensors that autograd keeps for the backward pass, and the peak of a forward pass.

Each operator says what it keeps.  Parameters and constants (masks, sine tables) are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from simulator.records import dataclass
from simulator.workload.backward import needs_gradient, storages
from simulator.workload.network import Layer, Network, once
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES, NVFP4_BYTES, Precision


@dataclass(frozen=True, slots=True)
class SavedTensors:
    """Activations saved for the backward pass, in bytes.

    ``by_tensor`` maps the number of a saved tensor to its size.  A tensor that several layers save is counted once,
    and is freed after the backward pass of the first of these layers, ``first_keeper[number]``.  ``by_layer[i]`` is
    the size of the data that layer ``i`` alone saves: masks, indices, statistics.
    """

    by_tensor: dict[int, int]
    by_layer: tuple[int, ...]
    first_keeper: dict[int, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of all saved data."""
        return sum(self.by_tensor.values()) + sum(self.by_layer)

    @property
    def goes_with(self) -> Counter[int]:
        """Bytes freed after the backward pass of each layer, by the layer's index."""
        found = Counter(dict(enumerate(self.by_layer)))
        for tensor, index in self.first_keeper.items():
            found[index] += self.by_tensor[tensor]
        return found

    def part(self, holds: Callable[[int], bool], by_layer: Iterable[int]) -> SavedTensors:
        """Return those of the tensors that *holds*, and of the other data *by_layer*."""
        kept = {tensor: size for tensor, size in self.by_tensor.items() if holds(tensor)}
        return SavedTensors(kept, tuple(by_layer), {tensor: self.first_keeper[tensor] for tensor in kept})


@once
def saved_tensors(network: Network, precision: Precision, narrow: frozenset[int] = frozenset()) -> SavedTensors:
    """Return the activations that a forward pass of *network* in *precision* saves for the backward pass.

    Of their inputs, the layers with the indices *narrow* save a copy in nvfp4, which those with the same input share.
    """
    size = ELEMENT_BYTES[precision]
    needed = needs_gradient(network)
    places = storages(network)
    tokens = _index_tensors(network)
    by_tensor: dict[int, int] = {}
    by_layer: list[int] = []
    first: dict[int, int] = {}
    copied: set[int] = set()
    for index, layer in enumerate(network.layers):
        if not needed[layer.output]:
            by_layer.append(0)
            continue
        if index in narrow and layer.trained:
            place = places[layer.inputs[0]]
            by_layer.append(0 if place in copied else round(network.elements[place] * NVFP4_BYTES))
            copied.add(place)
            continue
        for number in _kept(layer, needed):
            place = places[number]
            width = INDEX_BYTES if number in tokens else size
            by_tensor[place] = network.elements[place] * width
            first.setdefault(place, index)
        by_layer.append(layer.operator.saved_bytes(size))
    return SavedTensors(by_tensor, tuple(by_layer), first)


def _kept(layer: Layer, needed: Sequence[bool]) -> Iterator[int]:
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


def _index_tensors(network: Network) -> set[int]:
    """Return the numbers of the integer tensors: embedding indices and labels."""
    return {layer.inputs[at] for layer in network.layers for at in layer.operator.indices}


@once
def peak_forward_bytes(network: Network, precision: Precision) -> int:
    """Return the peak of live activations in a forward pass that saves nothing, in bytes.

    A tensor lives from the layer that writes it to the last layer that reads it.  The network's inputs live
    throughout, because the caller holds them.
    """
    size = ELEMENT_BYTES[precision]
    places = storages(network)
    tokens = _index_tensors(network)
    last: dict[int, int] = {}
    for i, layer in enumerate(network.layers):
        for number in (*layer.inputs, layer.output):
            last[places[number]] = i
    written = {layer.output for layer in network.layers}
    alive = sum(
        n * (INDEX_BYTES if number in tokens else size)
        for number, n in enumerate(network.elements)
        if number not in written
    )
    most = alive
    leaving: dict[int, list[int]] = {}
    for place, i in last.items():
        leaving.setdefault(i, []).append(place)
    for i, layer in enumerate(network.layers):
        if not layer.in_place:
            alive += network.elements[layer.output] * size
        most = max(most, alive)
        alive -= sum(network.elements[place] * size for place in leaving.get(i, ()) if place in written)
    return most
