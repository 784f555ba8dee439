"""Division of a network among ranks: each function returns one rank's part as a network."""

from simulator.records import replace
from simulator.workload.network import Layer, Network, Part
from simulator.workload.operators import Operator


class Splitter:
    """One rank's part of a network in the making: its layers so far, and the elements of its tensors."""

    of_part: Part | None = None  # of the layers that it adds

    def __init__(self, network: Network, ranks: int) -> None:
        self._network, self._ranks = network, ranks
        self._layers: list[Layer] = []
        self._elements = list(network.elements)

    def _new(self, elements: int) -> int:
        """Return the number of a new tensor of *elements*."""
        self._elements.append(elements)
        return len(self._elements) - 1

    def _append(
        self, name: str, operator: Operator, read: int, output: int | None = None, *, in_place: bool = False
    ) -> int:
        """Append a layer that reads tensor *read*; return its result, tensor *output* or a new one."""
        written = self._new(operator.output_elements) if output is None else output
        self._layers.append(Layer(name, operator, (read,), written, in_place=in_place, part=self.of_part))
        return written

    def _made(self) -> Network:
        return replace(self._network, layers=tuple(self._layers), elements=tuple(self._elements))
