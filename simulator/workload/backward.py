"""The backward pass of a network: its layers, their order, when each gradient is ready, and what is kept for it.

The order is that of automatic differentiation, from the last layer to the first, without those with no trained
parameter at or before them.  Of activations, constants (masks, sine tables) are not counted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from simulator.records import dataclass, field, lists_by_key
from simulator.workload.network import Layer, Network, Parameter, once
from simulator.workload.operators import Phase
from simulator.workload.precision import INDEX_BYTES, NVFP4_BYTES


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """The backward pass of layer ``index``.

    ``phase`` names the gradients that it computes.  ``added_elements`` are the sizes of the gradients that it adds to
    an existing one: a tensor or parameter that several layers read gets a gradient from each of them.  ``ready`` lists
    the parameters whose gradients are then complete; a shared parameter's gradient is complete after its first layer
    in forward order, whose backward pass runs last.
    """

    index: int
    layer: Layer
    phase: Phase
    added_elements: tuple[int, ...]
    ready: tuple[Parameter, ...]


@once
def needs_gradient(network: Network) -> Sequence[bool]:
    """Return for each tensor whether a gradient flows to it, because a trained parameter precedes it.

    The parameter may be in this network or, for ``trained_inputs``, on another device.
    """
    needed = [number in network.trained_inputs for number in range(len(network.elements))]
    for layer in network.layers:
        needed[layer.output] = bool(layer.trained) or any(needed[i] for i in layer.inputs)
    return needed


@once
def storages(network: Network) -> Sequence[int]:
    """Return for each tensor the number of the tensor whose memory it uses: its own, or its in-place source's."""
    places = list(range(len(network.elements)))
    for layer in network.layers:
        if layer.in_place:
            places[layer.output] = places[layer.inputs[0]]
    return places


def read_elements(network: Network, layer: Layer, position: int) -> int:
    """Return how many elements of input *position* the layer reads; of a view, only the elements in the view.

    For example, if queries, keys and values are views of one tensor, the gradient of each is a third of its size.
    """
    return layer.operator.read_elements(position, len(layer.inputs), network.elements[layer.inputs[position]])


@once
def backward_steps(network: Network) -> tuple[BackwardStep, ...]:
    """Return the backward passes of all layers that have one, last layer first."""
    needed = needs_gradient(network)
    backwards = reversed([*enumerate(network.layers)])
    first = {parameter.name: i for i, layer in backwards for parameter in layer.trained}
    there: set[int] = set()
    parameters_there: set[str] = set()
    found = []
    for i in reversed(range(len(network.layers))):
        layer = network.layers[i]
        of_inputs, of_weights = any(needed[tensor] for tensor in layer.inputs), bool(layer.trained)
        if not of_inputs and not of_weights:
            continue
        phase: Phase = "bwd" if of_inputs and of_weights else "bwd_data" if of_inputs else "bwd_weight"
        added = []
        for position, tensor in enumerate(layer.inputs):
            if needed[tensor]:
                if tensor in there:
                    added.append(read_elements(network, layer, position))
                there.add(tensor)
        for parameter in layer.trained:
            if parameter.name in parameters_there:
                added.append(parameter.elements)
            parameters_there.add(parameter.name)
        ready = tuple(p for p in layer.trained if first[p.name] == i)
        found.append(BackwardStep(i, layer, phase, tuple(added), ready))
    return tuple(found)


def gradient_order(network: Network) -> list[str]:
    """Return the names of the parameters in the order in which their gradients become complete."""
    return [parameter.name for step in backward_steps(network) for parameter in step.ready]


@once
def training_flop(network: Network) -> int:
    """Return the FLOPs of one forward and backward pass, as FlopCounterMode counts them."""
    needed = needs_gradient(network)
    return network.flop + sum(
        layer.operator.backward_flop(bool(layer.trained), [needed[tensor] for tensor in layer.inputs])
        for layer in network.layers
    )


# -- what is kept -----------------------------------------------------------------------


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
    ) -> "SavedTensors":
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
    used = ((i, number) for i, layer in enumerate(network.layers) for number in (*layer.inputs, layer.output))
    last = {places[number]: i for i, number in used}
    written = {layer.output for layer in network.layers}
    most = alive = fed_bytes(network, formats)
    leaving = lists_by_key((i, place) for place, i in last.items())
    for i, layer in enumerate(network.layers):
        if not layer.in_place:
            alive += sizes[layer.output]
        copies = sum(network.elements[tensor] * size for tensor, size in formats.copies.get(i, {}).items())
        copies += layer.operator.temporary_bytes(formats.computed[i])
        most = max(most, alive + copies)
        alive -= sum(sizes[place] for place in leaving.get(i, ()) if place in written)
    return most
