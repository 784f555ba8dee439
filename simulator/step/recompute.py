"""Recomputation: activations that the backward pass computes again (docs/decisions/step-models.md)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from simulator.questions.options import Recompute, RecomputedPart, StepOptions
from simulator.records import dataclass, lists_by_key, replace
from simulator.workload.backward import one_format, saved_tensors, storages
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.operators import Attention, Elementwise, Exchange, LayerNorm, Linear, MatMul, Softmax


@dataclass(frozen=True, slots=True)
class Rerun:
    """Layers whose forward pass runs again, before the backward pass of layer ``before``; all are indices."""

    layers: tuple[int, ...]
    before: int
    tensors: frozenset[int]  # not saved, and there again from then on
    copying: tuple[int, ...] = ()  # layers whose copies of tensors in another format are made again
    stored: frozenset[int] = frozenset()  # tensors held until then, even if nothing reads them


def reruns_of(network: Network, options: StepOptions) -> tuple[Rerun, ...]:
    """Return what of *network* runs again in the backward pass of a step with *options*."""
    if options.recompute == "none":
        return ()
    return _found(network, options.recompute, options.recompute_parts, options.recompute_blocks)


@dataclass(frozen=True, slots=True)
class _Block:
    """A repeated block: the indices of its layers, and for each storage of a tensor the layers that read it."""

    network: Network
    places: Sequence[int]
    readers: Mapping[int, Sequence[int]]

    def layers(self, wanted: Callable[[Layer], bool]) -> list[int]:
        return [place for place in self.places if wanted(self.network.layers[place])]

    def written(self, place: int) -> int:
        return storages(self.network)[self.network.layers[place].output]

    def inside(self, layers: Sequence[int], span: Sequence[int]) -> frozenset[int]:
        """Return what *layers* write and only layers in *span* read."""
        written = {self.written(place) for place in layers}
        return frozenset(t for t in written if set(span).issuperset(self.readers.get(t, (-1,))))

    def part(self, layers: Sequence[int]) -> Iterator[Rerun]:
        """Yield the rerun of *layers*, whose last result is kept."""
        if layers:
            yield Rerun(tuple(layers), layers[-1], self.inside(layers, range(layers[0], layers[-1] + 1)))

    def results(self, layers: Sequence[int]) -> Iterator[Rerun]:
        """Yield the rerun of *layers*, whose results are not kept: it comes before the last layer that reads them."""
        tensors = frozenset(self.written(place) for place in layers)
        after = [reader for tensor in tensors for reader in self.readers.get(tensor, ())]
        if after:
            yield Rerun(tuple(layers), max(after), tensors)


@once
def _found(network: Network, how: Recompute, parts: tuple[RecomputedPart, ...], most: int | None) -> tuple[Rerun, ...]:
    pairs = ((place, tensor) for place, layer in enumerate(network.layers) for tensor in layer.inputs)
    readers = lists_by_key((storages(network)[tensor], place) for place, tensor in pairs)
    found: list[Rerun] = []
    for places in _blocks(network)[:most]:
        block = _Block(network, places, readers)
        if how == "full":
            found.append(Rerun(tuple(places), places[-1], block.inside(places, places)))
        elif how == "operators":
            found += _operators(block)
        else:
            for part in parts:
                found += _part(block, part)
    return tuple(found)


@once
def _blocks(network: Network) -> list[list[int]]:
    named = groupby(range(len(network.layers)), key=lambda place: block_name(network.layers[place].name))
    return [list(run) for name, run in named if name]


def of_blocks(options: StepOptions, network: Network) -> StepOptions:
    """Return *options*, with all blocks of *network* recomputed where they name as many or more."""
    few = options.recompute_blocks is None or options.recompute_blocks < len(_blocks(network))
    return options if few else replace(options, recompute_blocks=None)


def _operators(block: _Block) -> Iterator[Rerun]:
    """Yield what runs again if results are kept by the kind of operator: no more than the backward pass reads."""
    kept, products = set[int](), 0
    for place in block.places:
        operator = block.network.layers[place].operator
        products += isinstance(operator, Linear)
        scatters = isinstance(operator, Exchange) and operator.forward == "reduce-scatter"
        if isinstance(operator, Attention) or scatters or (isinstance(operator, Linear) and products % 2):
            kept.add(place)
    tensors = block.inside([place for place in block.places if place not in kept], block.places)
    writers = lists_by_key((block.written(place), place) for place in block.places)
    again: set[int] = set()
    saved = saved_tensors(block.network, one_format(block.network, 2)).by_tensor
    wanted = [tensor for tensor in saved if tensor in tensors]
    while wanted:
        tensor = wanted.pop()
        for place in set(writers[tensor] if tensor in tensors else ()) - again:
            again.add(place)
            wanted += [storages(block.network)[read] for read in block.network.layers[place].inputs]
    if again:
        written = tensors.intersection(map(block.written, again))
        stored = frozenset(map(block.written, kept))
        yield Rerun(tuple(sorted(again)), block.places[-1], written, tuple(block.places), stored)


def _attention(block: _Block) -> Iterator[Rerun]:
    """Yield each attention: one kernel, or the layers from the product of scores to the first product after softmax."""
    start: int | None = None
    last, weighed = -1, False
    for place in block.places:
        operator = block.network.layers[place].operator
        if isinstance(operator, Attention):
            yield from block.part([place])
        elif isinstance(operator, MatMul):
            start, last = place if start is None else start, place
            if weighed:
                yield from block.part(range(start, place + 1))
                start, weighed = None, False
        elif isinstance(operator, Softmax) and start is not None:
            weighed = True
    if start is not None:
        yield from block.part(range(start, last + 1))


def _part(block: _Block, part: RecomputedPart) -> Iterator[Rerun]:
    """Yield what runs again of *part*, one of Megatron-LM's ``--recompute-modules``."""
    if part == "core_attn":
        yield from _attention(block)
    elif part == "layernorm":
        for place in block.layers(lambda layer: isinstance(layer.operator, LayerNorm) and layer.part is None):
            yield from block.results([place])
    elif part == "mla_up_proj":
        products = block.layers(lambda layer: isinstance(layer.operator, Attention | MatMul))
        if products and any(_own_name(block.network.layers[i]) == "kv_latent" for i in block.places):
            ups = block.layers(lambda layer: layer.part == "attention" and _own_name(layer) not in _LATENT)
            yield from block.results([i for i in ups if i < products[0]])
    elif part == "moe_act":
        products = block.layers(lambda layer: layer.part == "experts" and isinstance(layer.operator, Linear))
        between = block.layers(lambda layer: layer.part == "experts" and isinstance(layer.operator, Elementwise))
        yield from block.results([i for i in between if products and products[0] < i < products[-1]])
    elif part == "shared_experts":
        yield from block.part(block.layers(_is_shared))
    else:
        beside = ("router", "shared_add")
        ours = block.layers(lambda each: each.part == "experts" or _is_shared(each) or _own_name(each) in beside)
        if part == "moe":
            yield from block.part([i for i in block.places if ours and ours[0] <= i <= ours[-1]])
        elif not ours:
            yield from block.part(block.layers(lambda layer: layer.part == "feed-forward"))


_LATENT = ("q_latent", "q_norm", "kv_latent", "kv_norm")


def _own_name(layer: Layer) -> str:
    return layer.name.rpartition(".")[2]


def _is_shared(layer: Layer) -> bool:
    return layer.part == "feed-forward" and ".shared." in layer.name
