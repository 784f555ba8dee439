"""What a compiled step saves for its backward pass, as torch divides the joint graph of both passes.

AOTAutograd cuts the graph where the fewest bytes are saved, under rules that forbid to run some results again
(``should_ban_recomputation`` and ``solve_min_cut`` in ``torch/_functorch/partitioners.py``):

* Results of what no fused kernel computes (products, convolutions, pools, joined tensors) never run again.
* What such an operator reads in the backward pass is *materialised* there, and is saved: the input of a convolution or
  a product, in its format, once for all that read it.
* What fused kernels alone need, they compute again from saved tensors, but for the result of a layer that reads a
  tensor which an earlier layer reads, too, before one that no kernel is fused with (*used far apart*): a sum along the
  residuals is saved.  The normalised rows that Inductor saves in its place have its size.
* Statistics of rows are saved, and with one byte an element masks of random numbers, and where a bound (ReLU) held of
  which nothing else is saved.

A loss of scores saves the scores, and not their log-softmax.  The largest of a window is found by an offset of one byte
(``_low_memory_max_pool_with_offsets``), and not by the input.
"""

from __future__ import annotations

from itertools import accumulate

from simulator.workload.activations import Formats, SavedTensors, kept_by
from simulator.workload.backward import needs_gradient, storages
from simulator.workload.network import Layer, Network
from simulator.workload.operators import Copy, CrossEntropy, Elementwise, Pool
from simulator.workload.operators.elementwise import BOUNDS


def saved_by_partition(
    network: Network,
    formats: Formats,
    eager: SavedTensors,
    narrow: frozenset[int] = frozenset(),
    *,
    in_blocks: bool = False,
) -> SavedTensors:
    """Return what a compiled step of *network* in *formats* saves; *eager*: what autograd alone saves.

    The layers with the indices *narrow* save copies of their inputs in nvfp4.  *in_blocks*: blocks are compiled one by
    one, and the loss is not.
    """
    return _Partition(network, formats, eager, in_blocks).saved(narrow)


def is_generated(layer: Layer, *, in_blocks: bool = False) -> bool:
    """Return whether a compiler generates the kernels of *layer*, which keep what they need besides in registers.

    *in_blocks*: as of :func:`saved_by_partition`.
    """
    return _is_fused(layer) or (isinstance(layer.operator, CrossEntropy) and not in_blocks)


def _is_fused(layer: Layer) -> bool:
    joins = isinstance(layer.operator, Copy) and len(layer.inputs) > 1
    return bool(layer.operator.fuses) and not joins


class _Partition:
    def __init__(self, network: Network, formats: Formats, eager: SavedTensors, in_blocks: bool) -> None:
        self._network, self._formats = network, formats
        self._places, self._needed = storages(network), needs_gradient(network)
        self._writers = {layer.output: index for index, layer in enumerate(network.layers)}
        self._far = _used_far_apart(network)
        self._kept: dict[int, int] = {}  # the bytes of each storage
        self._first: dict[int, int] = {}
        self._by_layer = list(eager.by_layer)
        self._in_blocks = in_blocks

    def saved(self, narrow: frozenset[int]) -> SavedTensors:
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


def _used_far_apart(network: Network) -> frozenset[int]:
    """Return the fused layers that read a tensor after one that is not fused, before which it is read, too."""
    alone = [0, *accumulate(not _is_fused(layer) for layer in network.layers)]
    first: dict[int, int] = {}
    found: set[int] = set()
    for index, layer in enumerate(network.layers):
        for number in layer.inputs:
            begins = first.setdefault(number, index)
            if _is_fused(layer) and alone[index] > alone[begins]:
                found.add(index)
    return frozenset(found)
