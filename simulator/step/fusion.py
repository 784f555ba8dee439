"""Fusion by compilers: element-wise operators share one pass over memory.

Each layer of a group reads a result of an earlier layer in the group, or is the first; at most one of them reduces
over rows (a normalisation, a softmax).  A group waits for layers that join later, past others that read none of its
results: a gate's activation waits for the product that it is multiplied by, and a whole rotation is one kernel.  The
group's kernel reads only external inputs and writes only results that are read outside the group.  In the backward
pass, the group is recomputed from what is saved (:mod:`simulator.step.partition`). (As in TorchInductor; Ansel et al.,
"PyTorch 2", ASPLOS 2024, sections 4 and 5.)
"""

from __future__ import annotations

from simulator.questions.options import StepOptions
from simulator.records import dataclass, field
from simulator.workload.network import Layer, Network, block_name, once


@dataclass(frozen=True, slots=True)
class FusedLayers:
    """Layers that run as one kernel; a group of one layer runs that layer's own kernels.

    ``places`` are the layers' indices in the network; ``reads`` and ``writes`` are the tensors read from and written to
    memory.
    """

    layers: tuple[Layer, ...]
    places: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

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
    """Return the layers of *network* in the groups, and the order, in which a step with *options* runs them.

    Blocks that are recomputed are compiled one by one, so that no group spans two of them.
    """
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
    readers: dict[int, list[int]] = {}
    for place, layer in enumerate(network.layers):
        for tensor in layer.inputs:
            readers.setdefault(tensor, []).append(place)
    return tuple(_made(network, each, readers) for each in sorted(found, key=lambda each: max(each.places)))


def _made(network: Network, group: _Open, readers: dict[int, list[int]]) -> FusedLayers:
    places = sorted(group.places)
    layers = tuple(network.layers[place] for place in places)
    reads = dict.fromkeys(tensor for layer in layers for tensor in layer.inputs if tensor not in group.written)
    inside = set(places)
    # What is read outside, or is a result of the network.
    writes = [layer.output for layer in layers if not inside.issuperset(readers.get(layer.output, (-1,)))]
    return FusedLayers(layers, tuple(places), tuple(reads), tuple(dict.fromkeys(writes)))
