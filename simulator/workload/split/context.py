"""Context parallelism: sequences are divided among ranks (docs/decisions/parallelism.md)."""

from typing import Literal

from simulator.errors import divisors, mention, refused
from simulator.records import replace
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import Attention, Copy, Elementwise, Exchange
from simulator.workload.split import Splitter


@once
def context_split(network: Network, ranks: int, comm: str = "p2p", of_heads: int = 1) -> Network:
    """Return one rank's part of *network* among *ranks*, which exchange for attention as *comm* says.

    *of_heads* neighbours exchange all of their tokens for some of the heads; rings go between them.

    Raises InputError if its sequences or, where they are exchanged, its heads cannot be divided.
    """
    if ranks == 1:
        return network
    if not any(isinstance(layer.operator, Attention) for layer in network.layers):
        fused = f"compute attention in one kernel: {mention('sizes', 'attention=fused')}"
        why = fused if network.tokens else "it reads no sequences"
        raise refused("layout", f"cp={ranks} does not divide {network.name}: {why}")
    return _Splitter(network, ranks, ranks if comm == "a2a" else of_heads).run(comm)


def _chunks(operator: Attention, ranks: int) -> int:
    """Return how many chunks a sequence has, two for each of *ranks* if attention is causal."""
    return 2 * ranks if operator.causal else ranks


def _key_elements(operator: Attention, length: int) -> int:
    """Return the elements of the keys and values of *length* tokens."""
    each = operator.head_size + (operator.value_size or operator.head_size)
    return operator.batch * (operator.kv_heads or operator.heads) * length * each


class _Splitter(Splitter):
    of_part = "attention"

    def __init__(self, network: Network, ranks: int, of_heads: int) -> None:
        super().__init__(network, ranks)
        self._of_heads, self._of_ring = of_heads, ranks // of_heads

    def run(self, comm: str) -> Network:
        add = self._gather if comm == "all_gather" else self._ring if self._of_heads == 1 else self._heads
        self._elements = [self._part(n) for n in self._elements]
        for layer in self._network.layers:
            operator, n = layer.operator, self._ranks
            if isinstance(operator, Attention):
                self._check(layer, operator, comm)
                add(layer, operator)
                continue
            part = operator.over_sequences(self._part)
            if part is None:
                what = operator.called or type(operator).__name__
                raise refused("layout", f"cp={n} cannot divide {layer.name}, a {what} of whole sequences")
            self._layers.append(replace(layer, operator=part))
        return self._made()

    def _part(self, count: int) -> int:
        return count // self._ranks if count % self._ranks == 0 else count

    def _check(self, layer: Layer, operator: Attention, comm: str) -> None:
        n, length, pieces = self._ranks, operator.key_length, _chunks(operator, self._ranks)
        if operator.documents:
            raise refused("layout", f"cp={n}: documents packed into a sequence are not divided among ranks here")
        if comm == "p2p" and operator.window and self._of_ring > 1:
            why = f"keys do not circulate where a query sees a window of them; {mention('layout', 'cp_comm=a2a')}"
            raise refused("layout", f"cp={n} does not divide {layer.name}: {why}")
        if operator.query_length != length or length % pieces:
            raise refused("layout", f"cp={n} does not divide {layer.name}, {length} long; a multiple of {pieces} does")
        heads = operator.kv_heads or operator.heads
        if heads % self._of_heads:
            asked = f"cp_comm=a2a: cp={n}" if comm == "a2a" else f"cp_a2a={self._of_heads}"
            told = f"{asked} does not divide the {heads} heads of keys of {layer.name}"
            raise refused("layout", f"{told}; {divisors(heads)}")

    def _ring(self, layer: Layer, operator: Attention) -> None:
        """Add the attention to a rank's own keys and values, and to those of every other rank as they arrive."""
        n, length = self._of_ring, operator.key_length
        if n == 1:
            self._layers.append(layer)
            return
        own = replace(operator, query_length=length // n, key_length=length // n, keeps="sums")
        seen = length // _chunks(operator, n)  # only the unmasked half is computed
        other = replace(own, key_length=seen, causal=False, keeps="nothing")
        query, keys, _ = layer.inputs
        sent = _key_elements(operator, length // n)
        exchange = Exchange("cp", "send-recv", "send-recv", sent, sent)
        out = self._new(own.output_elements)
        # In place: only a rank's own keys and values are kept; the others circulate again in the backward pass.
        arriving = self._append(f"{layer.name}.receive1", exchange, keys, in_place=True)
        self._layers.append(replace(layer, operator=own, output=out))
        for number in range(1, n):
            here = arriving
            if number + 1 < n:  # the next ones arrive during this attention
                arriving = self._append(f"{layer.name}.receive{number + 1}", exchange, here, in_place=True)
            part = self._new(own.output_elements)
            self._layers.append(Layer(f"{layer.name}.other{number}", other, (query, here, here), part))
            total = layer.output if number + 1 == n else self._new(own.output_elements)
            add = Elementwise("add", own.output_elements, 2)
            self._layers.append(Layer(f"{layer.name}.add", add, (out, part), total))
            out = total

    def _heads(self, layer: Layer, operator: Attention) -> None:
        """Add the attention in a part of the heads, between exchanges with those who have the others."""
        n = self._of_heads
        own = replace(operator, heads=operator.heads // n, kv_heads=operator.kv_heads // n)
        query, keys, _ = layer.inputs
        length = own.query_length // self._of_ring
        queries = own.batch * own.heads * length * own.head_size  # as many as the rank's own, of all heads
        here = self._sent(layer, "queries", query, queries)
        arrived = self._sent(layer, "keys", keys, _key_elements(own, length))
        results = own.output_elements // self._of_ring
        out = self._new(results)
        self._ring(replace(layer, operator=own, inputs=(here, arrived, arrived), output=out), own)
        # In place: the results are kept once, as exchanged (Transformer Engine to 2.7; from 2.8 on, twice).
        self._sent(layer, "results", out, results, layer.output, in_place=True)

    def _sent(
        self, layer: Layer, what: str, read: int, elements: int, output: int | None = None, *, in_place: bool = False
    ) -> int:
        """Add the exchange of *elements* of tensor *read*, and the copies on either side; return the result."""
        laid = self._append(f"{layer.name}.lay_{what}", Copy(elements), read, in_place=in_place)
        axis: Literal["cp", "cp heads"] = "cp" if self._of_ring == 1 else "cp heads"
        exchange = Exchange(axis, "all-to-all", "all-to-all", elements, elements)
        sent = self._append(f"{layer.name}.send_{what}", exchange, laid, in_place=in_place)
        return self._append(f"{layer.name}.order_{what}", Copy(elements), sent, output, in_place=in_place)

    def _gather(self, layer: Layer, operator: Attention) -> None:
        """Add the attention of a rank's queries to gathered keys, half of which are masked on average."""
        n, length = self._ranks, operator.key_length
        seen = length // 2 if operator.causal else length
        own = replace(operator, query_length=length // n, key_length=seen, causal=False)
        if operator.window:
            own = replace(own, key_length=min(seen, operator.window), window=0)
        query, keys, _ = layer.inputs
        whole = _key_elements(operator, length)
        exchange = Exchange("cp", "all-gather", "reduce-scatter", whole, whole, again=True)
        # In place: a rank's own keys and values are kept, and gathered again in the backward pass.
        gathered = self._append(f"{layer.name}.gather", exchange, keys, in_place=True)
        self._layers.append(replace(layer, operator=own, inputs=(query, gathered, gathered)))
