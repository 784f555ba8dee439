"""Linear layers whose frozen weights are kept in 4 bits."""

from __future__ import annotations

from typing import ClassVar, Self

from simulator.errors import InputError
from simulator.records import dataclass
from simulator.spelling import mention
from simulator.workload.kernels import Streaming
from simulator.workload.operator import Divided, Kernels, Meeting, Phase
from simulator.workload.operators.grouped import GroupedLinear
from simulator.workload.operators.products import Linear
from simulator.workload.precision import ELEMENT_BYTES, PACKED, Precision

_BLOCK, _SCALES = 64, 256  # weights with one scale; scales that are quantised with one scale of their own
_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Nf4Linear(GroupedLinear):
    """A linear layer with frozen weights in nf4 (Dettmers et al., "QLoRA", arXiv 2305.14314, section 3).

    Each block of 64 weights has a scale in fp32; with ``nested`` (double quantisation) one in 8 bits, and each 256 of
    these one in fp32.  Each product first writes the weight in its own format (``MatMul4Bit`` of bitsandbytes, which
    calls ``dequantize_4bit`` in the forward pass and for the gradient of the input), and drops it afterwards; nested
    scales are first written in fp32, and their mean is added.  The host's time for such a call is taken as that of a
    product.
    """

    from_torch: ClassVar = {}
    narrow = False

    nested: bool = False

    @property
    def _multiplies(self) -> type[Linear]:
        return GroupedLinear if self.experts > 1 else Linear

    @property
    def weights(self) -> int:
        """Elements of the weight."""
        return self.experts * self.inputs * self.outputs

    @property
    def packed_bytes(self) -> int:
        scales = -(-self.weights // _BLOCK)
        kept = scales + -(-scales // _SCALES) * _SCALE_BYTES if self.nested else scales * _SCALE_BYTES
        return -(-self.weights // PACKED) + kept

    def _written(self, precision: Precision) -> Kernels:
        """Return the passes that write the weight in *precision*."""
        n = self.busy_experts * self.inputs * self.outputs
        scales = -(-n // _BLOCK)
        wide = scales * _SCALE_BYTES
        of_scales = Streaming("copy", scales, scales, wide), Streaming("add", scales, wide, wide)
        weight = Streaming("copy", n, n // PACKED + wide, n * ELEMENT_BYTES[precision])
        return (*of_scales, weight) if self.nested else (weight,)

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (*self._written(precision), *self._multiplies.forward_kernels(self, precision))

    def input_gradients(self, precision: Precision) -> Kernels:
        return (*self._written(precision), *self._multiplies.input_gradients(self, precision))

    def host_calls(self, phase: Phase) -> int:
        """Return the number of calls: those that write the weight, and the product."""
        return 4 if self.nested else 2

    def temporary_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the weight, of one expert at a time, and of nested scales in fp32."""
        n = self.inputs * self.outputs
        return n * element_bytes + (-(-n // _BLOCK) * _SCALE_BYTES if self.nested else 0)

    def scratch_bytes(self, element_bytes: int) -> int:
        """Return the same: the gradient of the input takes the weight again."""
        return self.temporary_bytes(element_bytes)

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Raise InputError: bitsandbytes does not divide weights in nf4."""
        raise InputError(f"{mention('layout')}: tp={meeting.ranks} divides {meeting.layer}, whose weight is in nf4")
