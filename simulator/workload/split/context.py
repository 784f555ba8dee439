"""Context parallelism: sequences are divided among ranks (docs/decisions/parallelism.md)."""

from collections.abc import Callable

from simulator.errors import divisors, mention, refused
from simulator.records import replace
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import Attention, Copy, Elementwise, Exchange
from simulator.workload.split import Splitter


@once
def context_split(network: Network, ranks: int, comm: str = "p2p") -> Network:
    """Return one rank's part of *network* among *ranks*, which exchange for attention as *comm* says.

    Raises InputError if its sequences or, for ``a2a``, its heads cannot be divided.
    """
    if ranks == 1:
        return network
    if not any(isinstance(layer.operator, Attention) for layer in network.layers):
        fused = f"compute attention in one kernel: {mention('sizes', 'attention=fused')}"
        why = fused if network.tokens else "it reads no sequences"
        raise refused("layout", f"cp={ranks} does not divide {network.name}: {why}")
    return _Splitter(network, ranks).run(comm)


def _key_elements(operator: Attention, length: int) -> int:
    """Return the elements of the keys and values of *length* tokens."""
    each = operator.head_size + (operator.value_size or operator.head_size)
    return operator.batch * (operator.kv_heads or operator.heads) * length * each


class _Splitter(Splitter):
    of_part = "attention"

    def run(self, comm: str) -> Network:
        ways: dict[str, Callable[[Layer, Attention], None]]
        ways = {"p2p": self._ring, "a2a": self._heads, "all_gather": self._gather}
        self._elements = [self._part(n) for n in self._elements]
        for layer in self._network.layers:
            operator, n = layer.operator, self._ranks
            if isinstance(operator, Attention):
                self._check(layer, operator, comm)
                ways[comm](layer, operator)
                continue
            part = operator.over_sequences(self._part)
            if part is None:
                what = operator.called or type(operator).__name__
                raise refused("layout", f"cp={n} cannot divide {layer.name}, a {what} of whole sequences")
            self._layers.append(replace(layer, operator=part))
        return self._made()

    def _part(self, count: int) -> int:
        return count // self._ranks if count % self._ranks == 0 else count

    def _pieces(self, operator: Attention) -> int:
        """Return how many chunks a sequence has, two for each rank if attention is causal."""
        return 2 * self._ranks if operator.causal else self._ranks

    def _check(self, layer: Layer, operator: Attention, comm: str) -> None:
        n, length, pieces = self._ranks, operator.key_length, self._pieces(operator)
        if operator.documents:
            raise refused("layout", f"cp={n}: documents packed into a sequence are not divided among ranks here")
        if comm == "p2p" and operator.window:
            why = f"keys do not circulate where a query sees a window of them; {mention('layout', 'cp_comm=a2a')}"
            raise refused("layout", f"cp={n} does not divide {layer.name}: {why}")
        if operator.query_length != length or length % pieces:
            raise refused("layout", f"cp={n} does not divide {layer.name}, {length} long; a multiple of {pieces} does")
        heads = operator.kv_heads or operator.heads
        if comm == "a2a" and heads % n:
            told = f"cp_comm=a2a: cp={n} does not divide the {heads} heads of keys of {layer.name}"
            raise refused("layout", f"{told}; {divisors(heads)}")

    def _ring(self, layer: Layer, operator: Attention) -> None:
        """Add the attention to a rank's own keys and values, and to those of every other rank as they arrive."""
        n, length = self._ranks, operator.key_length
        own = replace(operator, query_length=length // n, key_length=length // n, keeps="sums")
        seen = length // self._pieces(operator)  # only the unmasked half is computed
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
        """Add the attention of whole sequences in a part of the heads, between exchanges of all sequences' parts."""
        n = self._ranks
        own = replace(operator, heads=operator.heads // n, kv_heads=operator.kv_heads // n)
        query, keys, _ = layer.inputs
        queries = own.batch * own.heads * own.query_length * own.head_size  # as many as the rank's own, of all heads
        here = self._sent(layer, "queries", query, queries)
        arrived = self._sent(layer, "keys", keys, _key_elements(own, own.key_length))
        out = self._new(own.output_elements)
        self._layers.append(replace(layer, operator=own, inputs=(here, arrived, arrived), output=out))
        # In place: the results are kept once, as exchanged (Transformer Engine to 2.7; from 2.8 on, twice).
        self._sent(layer, "results", out, own.output_elements, layer.output, in_place=True)

    def _sent(
        self, layer: Layer, what: str, read: int, elements: int, output: int | None = None, *, in_place: bool = False
    ) -> int:
        """Add the exchange of *elements* of tensor *read*, and the copies on either side; return the result."""
        laid = self._append(f"{layer.name}.lay_{what}", Copy(elements), read, in_place=in_place)
        exchange = Exchange("cp", "all-to-all", "all-to-all", elements, elements)
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
