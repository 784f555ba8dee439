"""Context parallelism: sequences are divided among ranks, and keys and values circulate (ring attention).

Each rank has two chunks of the sequence, one from either end, so that all ranks have equal work in causal attention. A
rank attends to its own keys and values, then to those received from its neighbour, while the next ones arrive (Liu et
al., "Ring Attention", arXiv 2310.01889; the division of causal work is that of Transformer Engine).  Attention in a
window is refused, as Transformer Engine refuses it in rings (``cp_comm_type="p2p"``).
"""

from __future__ import annotations

from simulator.errors import refused
from simulator.records import replace
from simulator.spelling import mention
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import Attention, Elementwise, Exchange, Operator


@once
def context_split(network: Network, ranks: int) -> Network:
    """Return one rank's part of *network* among *ranks*; raises InputError if its sequences cannot be divided."""
    if ranks == 1:
        return network
    if not any(isinstance(layer.operator, Attention) for layer in network.layers):
        why = (
            f"compute attention in one kernel: {mention('sizes', 'attention=fused')}"
            if network.tokens
            else "it reads no sequences"
        )
        raise refused("layout", f"cp={ranks} does not divide {network.name}: {why}")
    return _Ring(network, ranks).run()


class _Ring:
    def __init__(self, network: Network, ranks: int) -> None:
        self._network = network
        self._ranks = ranks
        self._layers: list[Layer] = []
        self._elements = [self._part(n) for n in network.elements]

    def run(self) -> Network:
        for layer in self._network.layers:
            if isinstance(layer.operator, Attention):
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

    def _attend(self, layer: Layer, operator: Attention) -> None:
        """Add the attention to a rank's own keys and values, and to those of every other rank as they arrive."""
        n, length = self._ranks, operator.key_length
        if operator.window:
            why = "keys do not circulate where a query sees a window of them"
            raise refused("layout", f"cp={n} does not divide {layer.name}: {why}")
        pieces = 2 * n if operator.causal else n
        if operator.query_length != length or length % pieces:
            raise refused("layout", f"cp={n} does not divide {layer.name}, {length} long; a multiple of {pieces} does")
        own = replace(operator, query_length=length // n, key_length=length // n, keeps="sums")
        other = replace(
            own, key_length=length // pieces, causal=False, keeps="nothing"
        )  # only the unmasked half is computed
        query, keys, _ = layer.inputs
        sent = 2 * operator.batch * (operator.kv_heads or operator.heads) * (length // n) * operator.head_size
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
            self._layers.append(Layer(f"{name}.add", add, (out, part), total))
            out = total

    def _receive(self, layer: Layer, number: int, sent: int, exchange: Exchange) -> int:
        arrived = self._new(exchange.output_elements)
        # In place: only a rank's own keys and values are kept; the others circulate again in the backward pass.
        name = f"{layer.name}.receive{number}"
        self._layers.append(Layer(name, exchange, (sent,), arrived, in_place=True))
        return arrived

    def _new(self, elements: int) -> int:
        self._elements.append(elements)
        return len(self._elements) - 1
