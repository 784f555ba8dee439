"""Softmax of rows, and the loss of classes: from scores, in place of scores, or with the output layer in chunks."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from simulator.errors import InputError, mention
from simulator.records import dataclass, replace
from simulator.workload.kernels import Gemm, Kernel, PassForm, Rowwise, Streaming, as_formula, streamed
from simulator.workload.operator import Divided, Kernels, Meeting, Operator, Phase, Rows
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES, STATISTIC_BYTES, Precision

_WIDE_BYTES = ELEMENT_BYTES["fp32"]


def _softmax(call: Any) -> Operator:
    cols = call.first.shape[call["dim"]] if call.first.dim() else 1
    return Softmax(call.first.numel() // cols, cols)


@dataclass(frozen=True, slots=True)
class Softmax(Rows):
    """Softmax (or log-softmax) of each of ``rows`` rows of ``cols`` elements.

    ``kernel``: "" is the framework's own.  Megatron-LM's fused kernels also scale and mask, and hold a row of any
    length in a warp's registers: ``masked`` is ``scaled_masked_softmax``; ``causal``,
    ``scaled_upper_triang_masked_softmax``, reads only the unmasked elements.  ``holds_rows``: PyTorch's since 2.8 reads
    a row once, of up to 2,048 elements into a warp's registers.
    """

    from_torch: ClassVar = dict.fromkeys(("_softmax", "_safe_softmax", "_log_softmax"), _softmax)

    kernel: Literal["", "masked", "causal"] = ""
    holds_rows: bool = True

    @property
    def calls(self) -> int:
        """Number of calls: 1, or 5 if Megatron-LM has to cast, scale and mask separately.

        Its kernels need a multiple of four of heads and samples (``FusedScaleMaskSoftmax.is_kernel_available``).
        Otherwise it calls PyTorch's softmax, in fp32 with ``--apply-query-key-layer-scaling``, its default until 2023.
        """
        return 5 if self.kernel and self.rows // self.cols % 4 else 1

    def _over_rows(self, ending: str, precision: Precision) -> Rowwise:
        kind = f"{self.kernel}_softmax" if self.kernel and self.calls == 1 else "softmax"
        return Rowwise(kind + ending, self.rows, self.cols, precision, in_warps=self.holds_rows and not ending)

    def _apart(self, precision: Precision) -> tuple[Streaming, Streaming, Streaming, Streaming]:
        """Return the cast to fp32, the scale, the mask and the cast back, where these are kernels of their own."""
        n, size = self.output_elements, ELEMENT_BYTES[precision]
        wide = n * _WIDE_BYTES
        widen, narrow = Streaming("copy", n, n * size, wide, "casts"), Streaming("copy", n, wide, n * size)
        return widen, Streaming("mul_scalar", n, wide, wide), Streaming("where", n, wide + n, wide), narrow

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
        product = () if self.kernel else streamed(self.output_elements, precision, ("mul", 2, 1))
        return *product, self._over_rows("_bwd", precision)

    def scratch_bytes(self, element_bytes: int) -> int:
        # The product of gradient and result (``softmax_backward_cuda_out``).
        return 0 if self.kernel else self.output_elements * element_bytes

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return *kernels*, or TensorFlow's formula."""
        if framework != "tensorflow":
            return kernels
        return as_formula("softmax", self.output_elements, phase, precision)

    def host_calls(self, phase: Phase) -> int:
        return self.calls

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        if not meeting.alike or meeting.read_elements % meeting.ranks:
            return None
        return Divided("split", replace(self, rows=self.rows // meeting.ranks))


class _Loss(Rows):
    """A loss, one number, from scores of ``cols`` classes in ``rows`` rows and their labels."""

    __slots__ = ()

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank: some classes."""
        part = replace(self, cols=meeting.padded(self.cols))
        return Divided("loss", part, 3 * self.rows) if meeting.is_split else None  # maximum, sum and label's entry


@dataclass(frozen=True, slots=True)
class CrossEntropy(_Loss):
    """The loss: log-softmax of ``rows`` rows of ``cols`` classes, and the mean over the labels' entries."""

    def forward_kernels(self, precision: Precision) -> Kernels:
        read = self.rows * (INDEX_BYTES + ELEMENT_BYTES[precision])
        return Rowwise("log_softmax", self.rows, self.cols, precision), Streaming("nll_loss", self.rows, read, 4)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the scores' gradients."""
        zeros = streamed(self.rows * self.cols, precision, ("fill", 0, 1))
        return *zeros, Rowwise("log_softmax_bwd", self.rows, self.cols, precision)

    def saved_bytes(self, element_bytes: int) -> int:
        return self.rows * self.cols * element_bytes  # the log-softmax

    def scratch_bytes(self, element_bytes: int) -> int:
        # The log-softmax's gradient, which is zero but for the labels' entries.
        return self.rows * self.cols * element_bytes


@dataclass(frozen=True, slots=True)
class HalfCrossEntropy(CrossEntropy):
    """The loss computed in the scores' own 16 bits, without a cast to fp32, where the policy is not autocast's."""


@dataclass(frozen=True, slots=True)
class InPlaceCrossEntropy(_Loss):
    """The loss from scores in their own format, whose gradient is written over the scores (docs/decisions/zoo.md)."""

    def forward_kernels(self, precision: Precision) -> Kernels:
        sums, n_bytes = Rowwise("sum", self.rows, self.cols, precision), 3 * self.rows * STATISTIC_BYTES
        return sums, Streaming("nll_loss", self.rows, n_bytes, self.rows * _WIDE_BYTES)

    def input_gradients(self, precision: Precision) -> Kernels:
        return streamed(self.rows * self.cols, precision, ("exp", 1, 1))

    def saved_bytes(self, element_bytes: int) -> int:
        return 3 * self.rows * STATISTIC_BYTES  # each row's maximum, sum and label's score


@dataclass(frozen=True, slots=True)
class LinearCrossEntropy(Operator):
    """The output layer and the loss of its scores, a chunk of rows at a time; the forward pass computes gradients, too.

    ``chunks``: of torch's own operators (torchtitan); 0: of Liger's fused kernel (docs/decisions/zoo.md).  ``trained``:
    the weight has a gradient.
    """

    rows: int
    inputs: int
    classes: int
    chunks: int = 0
    trained: bool = True

    @property
    def flop(self) -> int:
        return 2 * self.rows * self.inputs * self.classes

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
        if self.chunks:
            return -(-self.rows // self.chunks)
        rows = -(-self.rows // -(-self.classes // self.inputs))
        return min(self.rows, 1 << (rows - 1).bit_length())

    def forward_kernels(self, precision: Precision) -> Kernels:
        whole, rest = divmod(self.rows, self.chunk_rows)
        found: list[Kernel] = []
        for number, rows in enumerate([self.chunk_rows] * whole + [rest] * bool(rest)):
            of_input = Gemm(rows, self.inputs, self.classes, precision, 1, "NN")
            found.append(Gemm(rows, self.classes, self.inputs, precision, 1, "NT"))
            found += [*self._loss(rows, precision), of_input, *self._added(rows, precision, again=number > 0)]
        if self.chunks:
            found += _cast(self.rows * self.inputs, _WIDE_BYTES, ELEMENT_BYTES[precision])
        return tuple(found)

    def _loss(self, rows: int, precision: Precision) -> Kernels:
        """Return the kernels from scores to their gradients."""
        if not self.chunks:
            return (Rowwise("log_softmax", rows, self.classes, precision),)
        loss, n, size = CrossEntropy(rows, self.classes), rows * self.classes, ELEMENT_BYTES[precision]
        passes = *loss.forward_kernels("fp32"), *loss.input_gradients("fp32")
        return *_cast(n, size, _WIDE_BYTES), *passes, *_cast(n, _WIDE_BYTES, size)

    def _added(self, rows: int, precision: Precision, *, again: bool) -> Kernels:
        """Return the kernels of the weight's gradient, and in chunks of their own the copy of the input's."""
        size, sizes, copied = ELEMENT_BYTES[precision], (self.classes, self.inputs, rows), rows * self.inputs
        if not self.chunks:  # each element of the result is read and written
            return (Gemm(*sizes, precision, 1, "TN", out_bytes=2 * size),) if self.trained else ()
        added = streamed(self.inputs * self.classes, precision, ("add", 2, 1)) if again else ()
        product = (Gemm(*sizes, precision, 1, "TN"), *added) if self.trained else ()
        return *product, Streaming("copy", copied, copied * size, copied * _WIDE_BYTES)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the backward pass: the gradient is there, and is scaled."""
        return () if self.chunks else streamed(self.rows * self.inputs, precision, ("mul_scalar", 1, 1))

    def parameter_gradients(self, precision: Precision) -> Kernels:
        """Return the same for the weight's gradient."""
        return () if self.chunks else streamed(self.inputs * self.classes, precision, ("mul_scalar", 1, 1))

    def host_calls(self, phase: Phase) -> int:
        """Return the number of calls: of each chunk three products and those of the loss."""
        if phase != "fwd":
            return 2
        each = 2 + self.trained + (7 if self.chunks else 1)
        return each * -(-self.rows // self.chunk_rows)

    def host_reads(self, phase: Phase) -> bool:
        return not self.chunks

    def saved_bytes(self, element_bytes: int) -> int:
        return self.rows * self.inputs * element_bytes  # the input's gradient

    def temporary_bytes(self, element_bytes: int) -> int:
        """Return the bytes of a chunk's scores, or of what else is there at once.

        In chunks of torch's operators: scores, their log-softmax in fp32, its gradient and that of the fp32 scores; or
        scores, their gradient and that of the weight; besides the fp32 buffer of the input's gradient.
        """
        scores = self.chunk_rows * self.classes
        if not self.chunks:
            return scores * element_bytes
        added = self.inputs * self.classes * element_bytes if self.trained else 0
        most = max(scores * (element_bytes + 3 * _WIDE_BYTES), 2 * scores * element_bytes + added)
        return most + self.rows * self.inputs * _WIDE_BYTES

    def meets(self, meeting: Meeting) -> "Divided[LinearCrossEntropy] | None":
        """Raise InputError: no such loss is of a part of the classes."""
        way = "chunked" if self.chunks else "fused-linear"
        told = f"{mention('layout')}: tp={meeting.ranks} divides the output layer"
        raise InputError(f"{told}, and {mention('sizes', f'cross_entropy={way}')} computes it whole")


def _cast(elements: int, read_bytes: int, written_bytes: int) -> Sequence[Kernel]:
    """Return the pass that casts *elements* numbers of *read_bytes* each; none between equal formats."""
    if read_bytes == written_bytes:
        return ()
    form: PassForm = "casts" if written_bytes > read_bytes else ""
    return (Streaming("copy", elements, elements * read_bytes, elements * written_bytes, form),)
