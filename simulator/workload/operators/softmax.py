"""Softmax of rows, and the loss of classes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from simulator.records import dataclass, replace
from simulator.workload.kernels import Rowwise, Streaming, as_formula
from simulator.workload.operator import Divided, Kernels, Meeting, Operator, Phase, Rows
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES, Precision

# In TensorFlow: the maximum of a row, the sum of its exponentials, and the quotients; backward, (g - sum(g y)) y.
_FORMULA = (("max", 1, 0), ("exp", 1, 0), ("exp", 1, 1))
_FORMULA_BACKWARD = (("mul", 2, 1), ("sum", 1, 0), ("sub", 1, 1), ("mul", 2, 1))


def _softmax(call: Any) -> Operator:
    cols = call.first.shape[call["dim"]] if call.first.dim() else 1
    return Softmax(call.first.numel() // cols, cols)


@dataclass(frozen=True, slots=True)
class Softmax(Rows):
    """Softmax (or log-softmax) of each of ``rows`` rows of ``cols`` elements.

    ``kernel``: "" is the framework's own.  Megatron-LM's fused kernels also scale and mask, and hold a row of any
    length in a warp's registers: ``masked`` is ``scaled_masked_softmax``; ``causal``,
    ``scaled_upper_triang_masked_softmax``, reads only the unmasked elements.
    """

    fuses = "rows"
    autocast = "fp32"
    saved = ("output",)
    fp32_in_mixed = True
    from_torch: ClassVar = dict.fromkeys(("_softmax", "_safe_softmax", "_log_softmax"), _softmax)

    kernel: Literal["", "masked", "causal"] = ""

    @property
    def calls(self) -> int:
        """Number of calls: 1, or 5 if Megatron-LM has to cast, scale and mask separately.

        Its kernels need a multiple of four of heads and samples (``FusedScaleMaskSoftmax.is_kernel_available``).
        Otherwise it calls PyTorch's softmax, in fp32 with ``--apply-query-key-layer-scaling``, its default until 2023.
        """
        return 5 if self.kernel and self.rows // self.cols % 4 else 1

    def _over_rows(self, ending: str, precision: Precision) -> Rowwise:
        kind = f"{self.kernel}_softmax" if self.kernel and self.calls == 1 else "softmax"
        return Rowwise(kind + ending, self.rows, self.cols, precision)

    def _apart(self, precision: Precision) -> tuple[Streaming, Streaming, Streaming, Streaming]:
        """Return the cast to fp32, the scale, the mask and the cast back, where these are kernels of their own."""
        n, size, wide = self.output_elements, ELEMENT_BYTES[precision], ELEMENT_BYTES["fp32"]
        widen, narrow = Streaming("copy", n, n * size, n * wide), Streaming("copy", n, n * wide, n * size)
        return (
            widen,
            Streaming("mul_scalar", n, n * wide, n * wide),
            Streaming("where", n, n * wide + n, n * wide),
            narrow,
        )

    def forward_kernels(self, precision: Precision) -> Kernels:
        if self.calls == 1:
            return (self._over_rows("", precision),)
        widen, scale, mask, narrow = self._apart(precision)
        return widen, scale, mask, self._over_rows("", "fp32"), narrow

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the inputs' gradients; PyTorch first multiplies the gradient by the result."""
        if self.calls > 1:
            widen, scale, mask, narrow = self._apart(precision)
            return widen, self._over_rows("_bwd", "fp32"), mask, scale, narrow
        n, size = self.output_elements, ELEMENT_BYTES[precision]
        product = () if self.kernel else (Streaming("mul", n, 2 * n * size, n * size),)
        return (*product, self._over_rows("_bwd", precision))

    def scratch_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the product of gradient and result (``softmax_backward_cuda_out``)."""
        return 0 if self.kernel else self.output_elements * element_bytes

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return *kernels*, or TensorFlow's formula."""
        if framework != "tensorflow":
            return kernels
        return as_formula(_FORMULA, _FORMULA_BACKWARD, self.output_elements, phase, precision)

    def host_calls(self, phase: Phase) -> int:
        return self.calls

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        if not meeting.alike or meeting.read_elements % meeting.ranks:
            return None
        return Divided("split", replace(self, rows=self.rows // meeting.ranks))


@dataclass(frozen=True, slots=True)
class CrossEntropy(Rows):
    """The loss: log-softmax of ``rows`` rows of ``cols`` classes, and the mean over the labels' entries."""

    autocast = "fp32 after a cast"
    saved = ("labels",)
    least_inputs = 2
    indices = (1,)
    by_token = False
    fp32_in_mixed = True
    fp32_always = True

    @property
    def output_elements(self) -> int:
        """1: the loss is one number."""
        return 1

    def forward_kernels(self, precision: Precision) -> Kernels:
        read = self.rows * (INDEX_BYTES + ELEMENT_BYTES[precision])
        return Rowwise("log_softmax", self.rows, self.cols, precision), Streaming("nll_loss", self.rows, read, 4)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the scores' gradients."""
        n, size = self.rows * self.cols, ELEMENT_BYTES[precision]
        return Streaming("fill", n, 0, n * size), Rowwise("log_softmax_bwd", self.rows, self.cols, precision)

    def host_calls(self, phase: Phase) -> int:
        """Return the number of calls: log-softmax, then the loss."""
        return 2

    def saved_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the log-softmax."""
        return self.rows * self.cols * element_bytes

    def scratch_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the log-softmax's gradient, which is zero but for the labels' entries."""
        return self.rows * self.cols * element_bytes

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank: some classes."""
        part = replace(self, cols=meeting.padded(self.cols))
        return Divided("loss", part, 3 * self.rows) if meeting.is_split else None  # maximum, sum and label's entry
