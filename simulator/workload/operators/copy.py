"""Copies, and exchanges among the ranks that divide a layer: operators without arithmetic."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from simulator.package_data import own_data
from simulator.records import dataclass, field
from simulator.workload import Collective
from simulator.workload.kernels import Streaming
from simulator.workload.operator import Elements, Kernels, Operator
from simulator.workload.precision import ELEMENT_BYTES, Precision


def _copy(call: Any) -> Operator:
    return Copy((call["self"] if call.name == "copy" else call.out).numel(), _is_transposed(call))


def _is_transposed(call: Any) -> bool:
    """Return whether the copy reorders elements: the output's unit-stride dimension is strided in the input."""
    if call.name not in ("clone", "copy", "_to_copy"):
        return False
    source, target = (call["src"], call["self"]) if call.name == "copy" else (call.first, call.out)
    if source.shape != target.shape:
        return False
    for size, read, written in zip(source.shape, source.stride(), target.stride(), strict=True):
        if size > 1 and written == 1:
            return read not in (0, 1)
    return False


@dataclass(frozen=True, slots=True)
class Copy(Elements):
    """A copy of ``elements`` elements: a materialised transposition, a concatenation, a cast.

    Data movement without arithmetic (padding, gathering, interpolation) counts as a copy of its output.
    """

    saved = ()
    passes_gradient = True
    from_torch: ClassVar = dict.fromkeys(own_data("simulator.workload", "torch_functions.json")["copies"], _copy)

    elements: int
    transposed: bool = False

    def forward_kernels(self, precision: Precision) -> Kernels:
        n_bytes = self.elements * ELEMENT_BYTES[precision]
        return (Streaming("copy", self.elements, n_bytes, n_bytes, transposed=self.transposed),)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the inputs' gradients: the copy back."""
        return self.forward_kernels(precision)

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.elements) if n_inputs == 1 else whole


@dataclass(frozen=True, slots=True)
class Exchange(Operator):
    """A collective among the ranks that divide a layer, along the degree ``axis`` of a layout.

    ``forward`` and ``backward`` are the collectives of the two passes, or None.  ``elements`` is the
    collective's size by nccl-tests' convention (:mod:`simulator.workload`), ``output_elements`` the size of
    the result.  ``copies``: how many equal copies are sent or summed, as of a token for its different experts.
    ``flex``: the dispatcher of experts sends one of them to each rank, and copies it there (DeepEP, HybridEP).
    ``again``: Megatron-LM repeats ``forward`` in the backward pass, which reads the result, as each rank saves its part
    (Korthikanti et al., "Reducing Activation Recomputation", arXiv 2205.05198, section 4.2.2).
    """

    saved = ()
    per_token = ("elements", "output_elements")

    axis: Literal["tp", "cp", "ep", "etp"]
    forward: Collective | None
    backward: Collective | None
    elements: int
    output_elements: int = field()
    copies: int = 1
    flex: bool = False
    again: bool = False

    @property
    def passes_gradient(self) -> bool:
        return self.backward in (None, "all-reduce")  # which sums in place

    def forward_kernels(self, precision: Precision) -> Kernels:
        """Return no kernels of its own: a communicator moves the data."""
        return ()

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return no kernels of its own."""
        return ()
