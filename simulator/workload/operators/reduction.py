"""Sums, means and maxima of rows."""

from __future__ import annotations

from typing import Any, ClassVar

from simulator.package_data import own_data
from simulator.records import dataclass
from simulator.workload.kernels import Rowwise, Streaming
from simulator.workload.operator import Kernels, Operator, Rows
from simulator.workload.operators.elementwise import Elementwise
from simulator.workload.operators.pool import Pool
from simulator.workload.precision import ELEMENT_BYTES, Precision

_TORCH = own_data("simulator.workload", "torch_functions.json")


def _reduction(call: Any) -> Operator:
    n, kept = call.first.numel(), max(1, call.out.numel())
    if call.name == "mean" and _is_global_pool(call):
        batch, channels, height, width = call.first.shape
        return Pool("avg", batch, channels, height, width, 1, 1, height, width)
    if call.name == "topk":
        kept = n // max(1, call.first.shape[call["dim"]])
    return Reduction(kept, n // kept)


def _is_global_pool(call: Any) -> bool:
    dims = call.arguments.get("dim")
    return call.first.dim() == 4 and dims is not None and sorted(d % 4 for d in dims) == [2, 3]


def _loss(call: Any) -> tuple[Operator, ...]:
    n = call["self"].numel()
    return (Elementwise(call.name, n, 2), *((Reduction(1, n),) if call["reduction"] else ()))


@dataclass(frozen=True, slots=True)
class Reduction(Rows):
    """A sum, mean or maximum over each of ``rows`` rows of ``cols`` elements."""

    autocast = "fp32"
    saved = ()
    from_torch: ClassVar = {
        **dict.fromkeys(_TORCH["sums"], _reduction),
        **dict.fromkeys(_TORCH["losses"], _loss),
    }

    @property
    def output_elements(self) -> int:
        return self.rows

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (Rowwise("sum", self.rows, self.cols, precision),)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the inputs' gradients: that of a row is written to every element of it."""
        n, size = self.rows * self.cols, ELEMENT_BYTES[precision]
        return (Streaming("fill", n, self.rows * size, n * size),)
