"""Tensor parallelism: layers are divided among ranks (docs/decisions/parallelism.md)."""

from typing import Literal

from simulator.errors import InputError, divisors, mention
from simulator.records import replace
from simulator.workload.network import Layer, Network, Parameter, block_name, once
from simulator.workload.operator import Meeting
from simulator.workload.operators import Embedding, Exchange
from simulator.workload.split import Splitter

# Whole on each rank; split by channels, heads or columns; split by rows of the sequence.
State = Literal["whole", "split", "rows"]


@once
def tensor_split(network: Network, ranks: int, by_rows: bool = False) -> Network:
    """Return one rank's part of *network* among *ranks*; *by_rows*: with sequence parallelism.

    Raises InputError if heads or channels do not divide evenly, nor, *by_rows*, the tokens.
    """
    if by_rows and network.tokens % ranks:
        told = f"{mention('layout')}: sp: tp={ranks} does not divide the {network.tokens:,} tokens of {network.name}"
        raise InputError(f"{told}; {divisors(network.tokens)}")
    return network if ranks == 1 else _Splitter(network, ranks, by_rows).run()


class _Splitter(Splitter):
    def __init__(self, network: Network, ranks: int, by_rows: bool) -> None:
        super().__init__(network, ranks)
        self._rest: State = "rows" if by_rows and network.tokens else "whole"
        self._state: dict[int, State] = {}
        self._entered: dict[int, int] = {}  # by tensor: its whole form, as column-split products read it
        self._gathered: dict[int, int] = {}
        tables = (layer.operator.vocabulary for layer in network.layers if isinstance(layer.operator, Embedding))
        self._largest_table = max(tables, default=0)
        self._says = any(layer.split is not None for layer in network.layers)
        self._share: dict[str, int] = {}  # elements on one rank of each split parameter, by name

    def run(self) -> Network:
        for layer in self._network.layers:
            self._add(layer)
        for place, layer in enumerate(self._layers):
            parameters = tuple(replace(p, elements=self._share.get(p.name, p.elements)) for p in layer.parameters)
            self._layers[place] = replace(layer, parameters=parameters) if parameters else layer
        return self._made()

    # -- layers --------------------------------------------------------------------

    def _add(self, layer: Layer) -> None:
        states = [self._of(tensor) for tensor in layer.inputs]
        divided = layer.operator.meets(self._meeting(layer, states))
        if divided is None:
            self._as_rest(layer, states)
            return
        part, n = replace(layer, operator=divided.operator), self._network.elements[layer.output]
        if divided.way == "columns":  # whole input, split result
            self._split_parameters(layer.parameters)
            self._put(replace(part, inputs=(self._enter(layer.inputs[0], layer), *layer.inputs[1:])), "split")
        elif divided.way == "rows":  # partial sums, and the sum over all ranks, to which the bias is added
            self._split_parameters(layer.parameters[:1])
            partial = self._new(n)
            self._layers.append(replace(part, output=partial))
            exchange = Exchange("tp", "all-reduce", None, n, n)
            if self._rest == "rows":
                exchange = Exchange("tp", "reduce-scatter", "all-gather", n, n // self._ranks)
            summed = Layer(f"{layer.name}.sum", exchange, (partial,), layer.output, in_place=self._rest == "whole")
            self._put(summed, self._rest)
        elif divided.way == "loss":  # over split columns; ranks exchange each row's maximum, sum and label entry
            self._layers.append(part)
            self._state[layer.output] = "whole"
            rows = Exchange("tp", "all-reduce", None, divided.summed, 1)
            self._put(Layer(f"{layer.name}.sum", rows, (layer.output,), layer.output, in_place=True), "whole")
        else:
            self._split_parameters(layer.parameters if divided.way == "split" else ())
            self._put(part, "split")

    def _meeting(self, layer: Layer, states: list[State]) -> Meeting:
        network, is_split = self._network, "split" in states
        written = [state for tensor, state in zip(layer.inputs, states, strict=True) if tensor in self._state]
        return Meeting(
            layer=layer.name,
            ranks=self._ranks,
            is_split=is_split,
            alike=is_split and all(state == "split" for state in written),
            kept_whole=self._says and layer.split is None and bool(block_name(layer.name)),
            read_elements=network.elements[layer.inputs[0]] if layer.inputs else 0,
            parameter_elements=sum(parameter.elements for parameter in layer.parameters),
            tokens=network.tokens,
            largest_table=self._largest_table,
        )

    def _as_rest(self, layer: Layer, states: list[State]) -> None:
        """Add an operator on whole tensors or, with sequence parallelism and if it allows that, on rows."""
        operator = layer.operator
        if self._rest == "rows":
            divides = operator.by_token and "rows" in states and self._network.elements[layer.output] % self._ranks == 0
            part = operator.over_sequences(lambda n: n // self._ranks) if divides else None
            if part is not None:
                inputs = tuple(self._gather(t) if self._of(t) == "split" else t for t in layer.inputs)
                self._put(replace(layer, operator=part, inputs=inputs), "rows")
                return
        self._put(replace(layer, inputs=tuple(self._gather(tensor) for tensor in layer.inputs)), "whole")

    def _put(self, layer: Layer, state: State) -> None:
        self._layers.append(layer)
        self._state[layer.output] = state
        if layer.output < len(self._network.elements):
            whole = self._network.elements[layer.output]
            self._elements[layer.output] = whole if state == "whole" else self._padded(whole)

    # -- tensors -------------------------------------------------------------------

    def _of(self, tensor: int) -> State:
        return self._state.get(tensor, "whole")

    def _enter(self, tensor: int, layer: Layer) -> int:
        """Return *tensor* whole, for a column-split product; its gradient is summed over all ranks."""
        if tensor not in self._entered:
            whole = self._network.elements[tensor]
            exchange = Exchange("tp", None, "all-reduce", whole, whole)
            if self._of(tensor) == "rows":
                exchange = Exchange("tp", "all-gather", "reduce-scatter", whole, whole, again=bool(layer.trained))
            # In place: a rank saves only its part for the backward pass, and gathers the tensor again.
            self._entered[tensor] = self._append(f"{layer.name}.enter", exchange, tensor, in_place=True)
        return self._entered[tensor]

    def _gather(self, tensor: int) -> int:
        """Return *tensor* whole, gathered if need be."""
        if self._of(tensor) == "whole":
            return tensor
        if tensor not in self._gathered:
            whole = self._network.elements[tensor]
            backward: Literal["reduce-scatter"] | None = "reduce-scatter" if self._of(tensor) == "rows" else None
            exchange = Exchange("tp", "all-gather", backward, whole, whole)
            self._gathered[tensor] = self._append(f"tensor {tensor}.gather", exchange, tensor)
        return self._gathered[tensor]

    def _padded(self, count: int) -> int:
        """Return a rank's part of *count* rows or columns, padded to divide evenly, as vocabularies are."""
        return -(-count // self._ranks)

    def _split_parameters(self, parameters: tuple[Parameter, ...]) -> None:
        for parameter in parameters:
            self._share[parameter.name] = self._padded(parameter.elements)
