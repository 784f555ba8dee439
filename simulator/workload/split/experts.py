"""Expert parallelism: experts are divided among ranks, and each may be split (docs/decisions/parallelism.md)."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice, takewhile

from simulator.errors import InputError, divisors, mention, refused
from simulator.records import replace
from simulator.workload import Collective
from simulator.workload.network import Layer, Network, Parameter, once
from simulator.workload.operators import Elements, Exchange, GroupedLinear, Reduction, ScatteredLinear
from simulator.workload.split import Splitter

_Ways = tuple[Collective | None, Collective | None]  # collectives of the forward and the backward pass
_THERE: _Ways = ("all-to-all", "all-to-all")


@once
def expert_split(
    network: Network, ranks: int, shards: int = 1, gathers: bool = True, comm: str = "a2a", beside: bool = False
) -> Network:
    """Return one rank's part of *network*, with the experts divided among *ranks* and each split into *shards*.

    *gathers*: the ranks that split an expert have different tokens.  *comm*: how tokens reach experts: ``a2a``,
    ``flex`` as in Exchange, or ``all_gather``, all tokens of *ranks* x *shards* at once (Megatron-Core's
    ``MoEAllGatherTokenDispatcher``).  *beside*: a shared expert runs while tokens are on their way.

    Raises InputError if the experts, or their columns, do not divide evenly, or none is shared.
    """
    if ranks == shards == 1:
        return network
    if any(isinstance(layer.operator, ScatteredLinear) for layer in network.layers):
        why = f"ep={ranks}, etp={shards}: {network.name} reads tokens where they are (expert_kernels=scatter)"
        raise refused("layout", f"{why}; experts are not divided so here")
    if not any(_is_of_experts(layer) for layer in network.layers):
        if ranks > 1 or comm == "all_gather":
            loops = any(layer.part == "experts" for layer in network.layers)
            asked = f"ep={ranks}" if ranks > 1 else f"ep_comm={comm}"
            why = "calls its experts in a loop" if loops else "has no experts"
            raise refused("layout", f"{asked}: {network.name} {why}")
        return network
    found = _Splitter(network, ranks, shards, gathers=gathers, comm=comm).run()
    return _with_shared_beside(found) if beside else found


def expert_parameters(network: Network) -> frozenset[str]:
    """Return the names of the parameters of experts, which differ between the ranks that divide them."""
    return frozenset(p.name for layer in network.layers if layer.part == "experts" for p in layer.parameters)


def _is_of_experts(layer: Layer) -> bool:
    return isinstance(layer.operator, GroupedLinear) and layer.operator.experts > 1


def _with_shared_beside(network: Network) -> Network:
    """Return *network* with the layers of shared experts marked to run beside the exchanges of the others."""
    layers = list(network.layers)
    found = False
    for first, second, end in _dispatched(layers):
        result = layers[end - 1].output
        shared = list(takewhile(lambda layer, of=result: of not in layer.inputs, layers[end:]))  # type: ignore[misc]
        products = [number for number, layer in enumerate(shared) if layer.parameters]
        if products and len(shared) < len(layers) - end:
            found = True
            for place, count in ((first, products[-1]), (second, len(shared) - products[-1])):
                layers[place] = replace(layers[place], operator=replace(layers[place].operator, beside=count))
    if not found:
        raise refused("layout", f"shared_overlap: {network.name} has no expert that all tokens pass")
    return replace(network, layers=tuple(layers))


def _dispatched(layers: Sequence[Layer]) -> Iterator[tuple[int, int, int]]:
    """Yield the places of the two exchanges of each layer of experts, and the end of its layers."""
    ends = [number for number, layer in enumerate(layers) if layer.part != "experts"]
    places = [
        n for n, layer in enumerate(layers) if isinstance(layer.operator, Exchange) and layer.operator.axis == "ep"
    ]
    for first, second in zip(places[::2], places[1::2], strict=True):
        yield first, second, next((end for end in ends if end > second), len(layers))


def beside_exchanges(network: Network) -> dict[str, str]:
    """Return the exchange beside which each layer runs that is marked so, both by name."""
    found: dict[str, str] = {}
    for first, second, end in _dispatched(network.layers):
        following = iter(network.layers[end:])
        for exchange in (network.layers[first], network.layers[second]):
            count = exchange.operator.beside if isinstance(exchange.operator, Exchange) else 0
            found |= {layer.name: exchange.name for layer in islice(following, count)}
    return found


class _Splitter(Splitter):
    of_part = "experts"

    def __init__(self, network: Network, ranks: int, shards: int, *, gathers: bool, comm: str) -> None:
        super().__init__(network, ranks)
        self._shards, self._gathers, self._comm, self._flex = shards, gathers, comm, comm == "flex"
        products = (layer.operator for layer in network.layers if isinstance(layer.operator, GroupedLinear))
        self._surplus = next(operator.busiest_share(ranks) for operator in products if operator.experts > 1)
        self._times = self._surplus * (shards if gathers else 1)  # rows that a rank multiplies per row that it sends

    def run(self) -> Network:
        for part, run in groupby(self._network.layers, key=lambda layer: layer.part):
            mine = list(run)
            products = [number for number, layer in enumerate(mine) if _is_of_experts(layer)]
            if part != "experts" or not products:
                self._layers += mine
                continue
            first, end = products[0], products[-1] + 1
            if self._comm == "all_gather":
                self._add_gathered(mine, first, end)
                continue
            # The copies per token: the ratio of what enters to the tensor that it is copied from.
            entering = mine[first].inputs[0]
            read = next((layer.inputs[0] for layer in mine[:first] if layer.output == entering), entering)
            copies = max(1, self._elements[entering] // self._elements[read])
            self._layers += mine[:first]
            self._add(mine[first:end], copies)
            self._layers += mine[end:]
        return self._made()

    def _add(self, layers: Sequence[Layer], copies: int) -> None:
        """Add *layers*, from the first product of the experts to the last, with the exchanges around them."""
        first, *_, last = layers
        entering, n_in, n_out = first.inputs[0], self._elements[first.inputs[0]], self._elements[last.output]
        sent, returned = round(n_in * self._surplus), round(n_out * self._surplus)
        there = entering
        if self._ranks > 1:
            dispatch = Exchange("ep", *_THERE, sent, sent, copies, self._flex)
            there = self._append(f"{first.name}.dispatch", dispatch, there)
        if self._shards > 1:
            ways: _Ways = ("all-gather", "reduce-scatter") if self._gathers else (None, "all-reduce")
            enter = round(n_in * self._times)
            there = self._append(f"{first.name}.enter", Exchange("etp", *ways, enter, enter), there)
        for layer in layers:
            if layer is not last:
                self._resize(layer)
            inputs = tuple(there if tensor == entering else tensor for tensor in layer.inputs)
            self._layers.append(replace(self._part_of(layer, is_last=layer is last), inputs=inputs))
        result = self._new(round(n_out * self._times))
        self._layers[-1] = replace(self._layers[-1], output=result)
        if self._shards > 1:
            sums: _Ways = ("reduce-scatter", "all-gather") if self._gathers else ("all-reduce", None)
            to = None if self._ranks > 1 else last.output
            summed = Exchange("etp", *sums, round(n_out * self._times), returned)
            result = self._append(f"{last.name}.sum", summed, result, to)
        if self._ranks > 1:
            back = Exchange("ep", *_THERE, returned, n_out, copies, self._flex)
            self._append(f"{last.name}.return", back, result, last.output)

    def _add_gathered(self, layers: Sequence[Layer], first: int, end: int) -> None:
        """Add *layers*, whose products are from *first* to *end*, on all tokens, and the exchanges around them."""
        lays = next(n for n, layer in enumerate(layers) if layer.output == layers[first].inputs[0])
        sums = next(n for n in range(end, len(layers)) if isinstance(layers[n].operator, Reduction))
        lay, total, n_own = layers[lays], layers[sums], self._elements[layers[lays].inputs[0]]
        whole = n_own * self._ranks * self._shards
        exchange = Exchange("ep", "all-gather", "reduce-scatter", whole, whole)
        self._layers += layers[:lays]
        gathered = self._append(f"{layers[first].name}.gather", exchange, lay.inputs[0])
        for place, layer in enumerate(layers[lays:sums], lays):
            if first <= place < end:
                self._layers.append(self._part_of(layer, is_last=place == end - 1))
                self._resize(layer, split=place < end - 1)
                continue
            inputs = (gathered, *layer.inputs[1:]) if place == lays else layer.inputs
            if not isinstance(layer.operator, Elements):
                raise refused("layout", f"ep_comm=all_gather: cannot divide {layer.name}, between tokens and experts")
            self._resize(layer, split=False)
            part = replace(layer.operator, elements=self._elements[layer.output])
            self._layers.append(replace(layer, operator=part, inputs=inputs))
        assert isinstance(total.operator, Reduction)
        here = replace(total.operator, rows=whole, added=self._elements[total.inputs[0]])
        summed = self._new(whole)
        self._layers.append(replace(total, operator=here, output=summed))
        back = Exchange("ep", "reduce-scatter", "all-gather", whole, n_own)
        self._append(f"{total.name}.scatter", back, summed, total.output)
        self._layers += layers[sums + 1 :]

    def _resize(self, layer: Layer, *, split: bool = True) -> None:
        """Make the result of *layer* that of the rows here; *split*: of a rank's part of its columns."""
        elements = round(self._elements[layer.output] * self._times)
        self._elements[layer.output] = elements // self._shards if split else elements

    def _part_of(self, layer: Layer, *, is_last: bool) -> Layer:
        operator, ranks, shards = layer.operator, self._ranks, self._shards
        if isinstance(operator, Elements):
            return replace(layer, operator=replace(operator, elements=round(operator.elements * self._times) // shards))
        if not _is_of_experts(layer) or not isinstance(operator, GroupedLinear):
            what = f"how {type(operator).__name__} is divided among experts is not known"
            raise refused("layout", f"ep={ranks}: cannot divide {layer.name}: {what}")
        split = operator.inputs if is_last else operator.outputs
        for key, degree, count, what in (("ep", ranks, operator.experts, "experts"), ("etp", shards, split, "columns")):
            if count % degree:
                told = f"{mention('layout')}: {key}={degree} does not divide the {count} {what} of {layer.name}"
                raise InputError(f"{told}; {divisors(count)}")
        of_inputs, of_outputs = (shards, 1) if is_last else (1, shards)
        weight, *bias = (Parameter(p.name, p.elements // ranks, p.trained) for p in layer.parameters)
        parameters = (
            replace(weight, elements=weight.elements // shards),
            *(replace(p, elements=p.elements // of_outputs) for p in bias),
        )
        part = replace(
            operator,
            rows=round(operator.rows * self._times),
            busiest=round(operator.busiest * self._times),
            inputs=operator.inputs // of_inputs,
            outputs=operator.outputs // of_outputs,
            experts=operator.experts // ranks,
        )
        return replace(layer, operator=part, parameters=parameters)
