"""Context parallelism: sequences are divided among ranks, which exchange what attention needs of the others.

Each rank has two chunks of the sequence, one from either end, so that all ranks have equal work in causal attention
(the division of Transformer Engine).  Three ways to attend (its ``cp_comm_type``; ``Layout.cp_comm``):

- ``p2p``: keys and values circulate.  A rank attends to its own, then to those received from its neighbour, while the
  next ones arrive (Liu et al., "Ring Attention", arXiv 2310.01889).
- ``a2a``: an all-to-all brings each rank the whole sequences of some heads, and another returns the results (Jacobs et
  al., "DeepSpeed Ulysses", arXiv 2309.14509).  Each is laid into order of the sequence, or of ranks, by a copy.
- ``all_gather``: each rank gathers the keys and values of the whole sequence, and its two chunks attend to half of
  them on average (Llama 3, arXiv 2407.21783, section 3.3.2); the gradients are reduce-scattered.

Attention in a window is refused in rings, as Transformer Engine refuses it.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import divisors, refused
from simulator.spelling import mention
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import Attention, Copy, Elementwise, Exchange, Operator


@once
def context_split(network: Network, ranks: int, comm: str = "p2p") -> Network:
    """Return one rank's part of *network* among *ranks*, which exchange for attention as *comm* says.

    Raises InputError if its sequences or, for ``a2a``, its heads cannot be divided.
    """
    if ranks == 1:
        return network
    if not any(isinstance(layer.operator, Attention) for layer in network.layers):
        why = (
            f"compute attention in one kernel: {mention('sizes', 'attention=fused')}"
            if network.tokens
            else "it reads no sequences"
        )
        raise refused("layout", f"cp={ranks} does not divide {network.name}: {why}")
    return _WAYS[comm](network, ranks).run()


class _Splitter:
    def __init__(self, network: Network, ranks: int) -> None:
        self._network = network
        self._ranks = ranks
        self._layers: list[Layer] = []
        self._elements = [self._part(n) for n in network.elements]

    def run(self) -> Network:
        for layer in self._network.layers:
            if isinstance(layer.operator, Attention):
                self._check(layer, layer.operator)
                self._attend(layer, layer.operator)
            else:
                self._layers.append(replace(layer, operator=self._rows_of(layer.operator, layer.name)))
        return replace(self._network, layers=tuple(self._layers), elements=tuple(self._elements))

    def _part(self, count: int) -> int:
        return count // self._ranks if count % self._ranks == 0 else count

    def _rows_of(self, operator: Operator, name: str) -> Operator:
        part = operator.over_sequences(self._part)
        if part is None:
            what = operator.called or type(operator).__name__
            raise refused("layout", f"cp={self._ranks} cannot divide {name}, a {what} of whole sequences")
        return part

    def _check(self, layer: Layer, operator: Attention) -> None:
        n, length = self._ranks, operator.key_length
        pieces = 2 * n if operator.causal else n
        if operator.query_length != length or length % pieces:
            raise refused("layout", f"cp={n} does not divide {layer.name}, {length} long; a multiple of {pieces} does")

    def _attend(self, layer: Layer, operator: Attention) -> None:
        """Add the attention of a rank's queries, with its exchanges."""
        raise NotImplementedError

    def _add(
        self, name: str, operator: Operator, read: int, output: int | None = None, *, in_place: bool = False
    ) -> int:
        """Add a layer that reads tensor *read*; return its result, tensor *output* or a new one."""
        written = self._new(operator.output_elements) if output is None else output
        self._layers.append(Layer(name, operator, (read,), written, in_place=in_place, part="attention"))
        return written

    def _new(self, elements: int) -> int:
        self._elements.append(elements)
        return len(self._elements) - 1


def _key_elements(operator: Attention, length: int) -> int:
    """Return the elements of the keys and values of *length* tokens."""
    each = operator.head_size + (operator.value_size or operator.head_size)
    return operator.batch * (operator.kv_heads or operator.heads) * length * each


class _Ring(_Splitter):
    def _check(self, layer: Layer, operator: Attention) -> None:
        if operator.window:
            why = f"keys do not circulate where a query sees a window of them; {mention('layout', 'cp_comm=a2a')}"
            raise refused("layout", f"cp={self._ranks} does not divide {layer.name}: {why}")
        _Splitter._check(self, layer, operator)

    def _attend(self, layer: Layer, operator: Attention) -> None:
        """Add the attention to a rank's own keys and values, and to those of every other rank as they arrive."""
        n, length = self._ranks, operator.key_length
        pieces = 2 * n if operator.causal else n
        own = replace(operator, query_length=length // n, key_length=length // n, keeps="sums")
        other = replace(
            own, key_length=length // pieces, causal=False, keeps="nothing"
        )  # only the unmasked half is computed
        query, keys, _ = layer.inputs
        sent = _key_elements(operator, length // n)
        exchange = Exchange("cp", "send-recv", "send-recv", sent, sent)
        out = self._new(own.output_elements)
        arriving = self._receive(layer, 1, keys, exchange)
        self._layers.append(replace(layer, operator=own, output=out))
        for number in range(1, n):
            here = arriving
            if number + 1 < n:  # the next ones arrive during this attention
                arriving = self._receive(layer, number + 1, here, exchange)
            part = self._new(own.output_elements)
            name = f"{layer.name}.other{number}"
            self._layers.append(Layer(name, other, (query, here, here), part))
            total = layer.output if number + 1 == n else self._new(own.output_elements)
            add = Elementwise("add", own.output_elements, 2)
            self._layers.append(Layer(f"{layer.name}.add", add, (out, part), total))
            out = total

    def _receive(self, layer: Layer, number: int, sent: int, exchange: Exchange) -> int:
        # In place: only a rank's own keys and values are kept; the others circulate again in the backward pass.
        return self._add(f"{layer.name}.receive{number}", exchange, sent, in_place=True)


class _Heads(_Splitter):
    def _check(self, layer: Layer, operator: Attention) -> None:
        _Splitter._check(self, layer, operator)
        heads = operator.kv_heads or operator.heads
        if heads % self._ranks:
            told = f"cp_comm=a2a: cp={self._ranks} does not divide the {heads} heads of keys of {layer.name}"
            raise refused("layout", f"{told}; {divisors(heads)}")

    def _attend(self, layer: Layer, operator: Attention) -> None:
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
        laid = self._add(f"{layer.name}.lay_{what}", Copy(elements), read, in_place=in_place)
        exchange = Exchange("cp", "all-to-all", "all-to-all", elements, elements)
        sent = self._add(f"{layer.name}.send_{what}", exchange, laid, in_place=in_place)
        return self._add(f"{layer.name}.order_{what}", Copy(elements), sent, output, in_place=in_place)


class _Gather(_Splitter):
    def _attend(self, layer: Layer, operator: Attention) -> None:
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
        gathered = self._add(f"{layer.name}.gather", exchange, keys, in_place=True)
        self._layers.append(replace(layer, operator=own, inputs=(query, gathered, gathered)))


_WAYS: dict[str, type[_Splitter]] = {"p2p": _Ring, "a2a": _Heads, "all_gather": _Gather}
