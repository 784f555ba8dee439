"""Compiled steps: groups of operators that are one kernel, and what is saved (docs/decisions/step-models.md)."""

from itertools import accumulate

from simulator.questions.options import StepOptions
from simulator.records import dataclass, field
from simulator.workload.backward import Formats, SavedTensors, kept_by, needs_gradient, storages
from simulator.workload.network import Layer, Network, block_name, once, readers_of
from simulator.workload.operators import Copy, CrossEntropy, Elementwise, Pool
from simulator.workload.operators.elementwise import BOUNDS


@dataclass(frozen=True, slots=True)
class FusedLayers:
    """Layers that run as one kernel; a group of one layer runs that layer's own kernels."""

    layers: tuple[Layer, ...]
    places: tuple[int, ...]  # in the network
    reads: tuple[int, ...]  # tensors, from memory
    writes: tuple[int, ...]  # tensors, to memory

    @property
    def reduction(self) -> Layer | None:
        """The layer that reduces over rows, or None."""
        return next((layer for layer in self.layers if layer.operator.fuses == "rows"), None)


@dataclass(eq=False, slots=True)
class _Open:
    """A group that later layers may join: the indices of its layers, and the tensors that they write."""

    block: str
    reduces: bool
    places: list[int] = field(default_factory=list)
    written: set[int] = field(default_factory=set)


def run_groups(network: Network, options: StepOptions) -> tuple[FusedLayers, ...]:
    """Return *network*'s layers in groups, in the order in which they run; none spans recomputed blocks."""
    if options.compiled:
        return fused_groups(network, apart=options.trains and options.recompute in ("full", "operators"))
    return _alone(network)


@once
def _alone(network: Network) -> tuple[FusedLayers, ...]:
    return tuple(FusedLayers((layer,), (i,), layer.inputs, (layer.output,)) for i, layer in enumerate(network.layers))


@once
def fused_groups(network: Network, *, apart: bool = False) -> tuple[FusedLayers, ...]:
    """Return the layers of *network* in fused groups, by their last layers; *apart*: none spans two blocks."""
    writer: dict[int, _Open] = {}  # the open group that writes a tensor
    found: list[_Open] = []
    for place, layer in enumerate(network.layers):
        near = list({id(writer[t]): writer[t] for t in layer.inputs if t in writer}.values())
        block, reduces = block_name(layer.name) if apart else "", layer.operator.fuses == "rows"
        joined: list[_Open] = []  # those that it becomes one kernel with
        for group in near if layer.operator.fuses else ():
            if group.block == block and not (reduces and group.reduces):
                joined.append(group)
                reduces = reduces or group.reduces
        for other in near:
            if other not in joined:  # its result is read outside, so it runs before this layer
                for tensor in other.written:
                    if writer.get(tensor) is other:
                        del writer[tensor]
        if joined:
            into = joined[0]
            for other in joined[1:]:
                found.remove(other)
                into.places += other.places
                into.written |= other.written
                into.reduces |= other.reduces
        else:
            into = _Open(block, reduces=False)
            found.append(into)
        into.reduces |= layer.operator.fuses == "rows"
        into.places.append(place)
        into.written.add(layer.output)
        if layer.operator.fuses:
            writer.update(dict.fromkeys(into.written, into))
    return tuple(_made(network, each) for each in sorted(found, key=lambda each: max(each.places)))


def _made(network: Network, group: _Open) -> FusedLayers:
    places, after = sorted(group.places), readers_of(network)
    layers = tuple(network.layers[place] for place in places)
    reads = dict.fromkeys(tensor for layer in layers for tensor in layer.inputs if tensor not in group.written)
    inside = set(map(id, layers))
    # What is read outside, or is a result of the network.
    writes = [layer.output for layer in layers if not inside.issuperset(map(id, after.get(layer.output, (None,))))]
    return FusedLayers(layers, tuple(places), tuple(reads), tuple(dict.fromkeys(writes)))


def is_generated(layer: Layer, *, in_blocks: bool = False) -> bool:
    """Return whether a compiler generates *layer*'s kernels; *in_blocks*: blocks one by one, not the loss."""
    return _is_fused(layer) or (isinstance(layer.operator, CrossEntropy) and not in_blocks)


def _is_fused(layer: Layer) -> bool:
    joins = isinstance(layer.operator, Copy) and len(layer.inputs) > 1
    return bool(layer.operator.fuses) and not joins


class Partition:
    """What a compiled step saves, where autograd alone saves *eager*; *in_blocks*: blocks one by one, not the loss."""

    def __init__(self, network: Network, formats: Formats, eager: SavedTensors, *, in_blocks: bool = False) -> None:
        self._network, self._formats = network, formats
        self._places, self._needed = storages(network), needs_gradient(network)
        self._writers = {layer.output: index for index, layer in enumerate(network.layers)}
        alone = [0, *accumulate(not _is_fused(layer) for layer in network.layers)]
        first: dict[int, int] = {}
        self._far: set[int] = set()  # fused, and read a tensor after one that is not, before which it is read, too
        for index, layer in enumerate(network.layers):
            begins = [first.setdefault(number, index) for number in layer.inputs]
            if _is_fused(layer) and any(alone[index] > alone[begin] for begin in begins):
                self._far.add(index)
        self._kept: dict[int, int] = {}  # the bytes of each storage
        self._first: dict[int, int] = {}
        self._by_layer = list(eager.by_layer)
        self._in_blocks = in_blocks

    def saved(self, narrow: frozenset[int] = frozenset()) -> SavedTensors:
        """Return what is saved; *narrow*: layers that save copies of their inputs in nvfp4."""
        layers, copies = self._network.layers, [0] * len(self._network.layers)
        copied: set[int] = set()
        trained = [(i, layer) for i, layer in enumerate(layers) if self._needed[layer.output]]
        for index, layer in trained:  # what kernels of their own read
            operator, made = layer.operator, self._formats.copies.get(index, {})
            if isinstance(operator, CrossEntropy) and not self._in_blocks:
                self._by_layer[index] = 0
                self._keep(layer.inputs[1], index)
            elif isinstance(operator, Pool) and operator.kind == "max":
                self._by_layer[index] = operator.output_elements
            elif not _is_fused(layer) and index not in narrow:
                for number in dict.fromkeys(kept_by(layer, self._needed)):
                    if number not in made:
                        self._keep(number, index)
                    elif number not in copied:
                        copied.add(number)
                        copies[index] += self._network.elements[number] * made[number]
        for index, layer in trained:  # what fused kernels compute again
            if isinstance(layer.operator, CrossEntropy) and not self._in_blocks:
                self._recompute(layer.inputs[0], index)
            elif _is_fused(layer):
                for number in kept_by(layer, self._needed):
                    self._recompute(number, index)
        return SavedTensors(self._kept, tuple(self._by_layer), tuple(copies), self._first)

    def _size(self, number: int) -> int:
        place = self._places[number]
        return self._network.elements[place] * self._formats.stored[place]

    def _keep(self, number: int, index: int) -> None:
        place = self._places[number]
        self._kept[place] = self._size(number)
        self._first[place] = min(index, self._first.get(place, index))

    def _recompute(self, number: int, index: int) -> None:
        """Keep that from which *number* is computed again for layer *index*: its sources, or itself if it is less."""
        layer = self._network.layers[index]
        exact = number != layer.output or self._formats.stored[number] >= self._formats.computed[index]
        sources = self._sources(number, exact=exact)
        added = sum(self._size(source) for source in sources if self._places[source] not in self._kept)
        bounds = isinstance(layer.operator, Elementwise) and layer.operator.function in BOUNDS
        if bounds and added > layer.operator.output_elements:
            self._by_layer[index] = layer.operator.output_elements
            return
        for source in sources if not exact or added < self._size(number) else (number,):
            self._keep(source, index)

    def _sources(self, number: int, *, exact: bool) -> list[int]:
        """Return the tensors from which *number* follows; *exact*: *number* itself serves, if it is kept."""
        found: list[int] = []
        wanted, seen = [number], {number}
        while wanted:
            tensor = wanted.pop()
            at = self._writers.get(tensor)
            is_there = self._places[tensor] in self._kept and (exact or tensor != number)
            if at is None or at in self._far or is_there or not _is_fused(self._network.layers[at]):
                found.append(tensor)
            else:
                wanted += (new := set(self._network.layers[at].inputs) - seen)
                seen |= new
        return found
