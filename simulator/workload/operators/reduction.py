"""Sums, means and maxima of rows and of windows of images; normalisation of rows and of the channels of images."""

from math import prod
from typing import Any, ClassVar, Literal, Self

from simulator.records import dataclass, own_data, replace
from simulator.workload import operator
from simulator.workload.kernels import Kernel, Rowwise, Shape, Streaming, as_formula, column_sum, formula_of, streamed
from simulator.workload.operators.elementwise import Elementwise
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES, STATISTIC_BYTES, Precision

_TORCH = own_data("simulator.workload", "torch_functions.json")


@dataclass(frozen=True, slots=True)
class Pooling(Kernel):
    """Windows of images reduced (``fwd``) or their gradients spread (``bwd``)."""

    kind: Literal["max", "avg"]
    direction: Literal["fwd", "bwd"]
    input_elements: int
    output_elements: int
    window: int
    precision: Precision

    @property
    def bytes(self) -> int:
        """Least bytes moved, including the index of each maximum."""
        index = INDEX_BYTES * self.output_elements if self.kind == "max" else 0
        return ELEMENT_BYTES[self.precision] * (self.input_elements + self.output_elements) + index

    def place(self) -> Shape:
        return self.window, self.input_elements, self.output_elements


def _pool(call: Any, kind: Literal["max", "avg"]) -> operator.Operator:
    """Return pooling; in 3-D pooling, depth and height are merged into the height."""
    lead = 3 if "3d" in call.name else 2
    source, result = call.first, call.out
    batch, channels = (1, *source.shape[:-lead])[-2:]
    h_in, w_in = prod(source.shape[-lead:-1]), source.shape[-1]
    h_out, w_out = prod(result.shape[-lead:-1]), result.shape[-1]
    adaptive = -(-h_in // h_out), -(-w_in // w_out)
    kernel = call.pair("kernel_size") if "kernel_size" in call.arguments else adaptive
    return Pool(kind, batch, channels, h_in, w_in, h_out, w_out, *kernel)


@dataclass(frozen=True, slots=True)
class Pool(operator.OneKernel):
    """The maximum or mean of each window of an image; ``h_out`` and ``w_out`` as the framework rounds them."""

    from_torch: ClassVar = {
        **{f"max_pool{n}d_with_indices": lambda c: _pool(c, "max") for n in (2, 3)},
        **{f"adaptive_max_pool{n}d": lambda c: _pool(c, "max") for n in (2, 3)},
        **{f"{kind}avg_pool{n}d": lambda c: _pool(c, "avg") for kind in ("", "_adaptive_") for n in (2, 3)},
    }

    kind: Literal["max", "avg"]
    batch: int
    channels: int
    h_in: int
    w_in: int
    h_out: int
    w_out: int
    kernel_h: int
    kernel_w: int

    def check(self) -> None:
        operator.has_elements(self.h_out, self.w_out, self.output_elements)

    def in_direction(self, direction: operator.Direction, precision: Precision) -> Pooling:
        read, window = self.batch * self.channels * self.h_in * self.w_in, self.kernel_h * self.kernel_w
        way: Literal["fwd", "bwd"] = "fwd" if direction == "fwd" else "bwd"
        return Pooling(self.kind, way, read, self.output_elements, window, precision)

    @property
    def saved(self) -> tuple[operator.Saved, ...]:
        """What it saves; a mean of whole images needs only their size."""
        whole = (self.kernel_h, self.kernel_w) == (self.h_in, self.w_in)
        return () if whole and self.kind == "avg" else ("input",)

    def saved_bytes(self, element_bytes: int) -> int:
        return self.output_elements * INDEX_BYTES if self.kind == "max" else 0  # the places of maxima


def _reduction(call: Any) -> operator.Operator:
    """Return a sum of rows; a mean over height and width is a pool of whole images."""
    n, kept, dims = call.first.numel(), max(1, call.out.numel()), call.arguments.get("dim")
    if call.name == "mean" and call.first.dim() == 4 and dims is not None and sorted(d % 4 for d in dims) == [2, 3]:
        batch, channels, height, width = call.first.shape
        return Pool("avg", batch, channels, height, width, 1, 1, height, width)
    if call.name == "topk":
        kept = n // max(1, call.first.shape[call["dim"]])
    return Reduction(kept, n // kept)


def _loss(call: Any) -> tuple[operator.Operator, ...]:
    n = call["self"].numel()
    return (Elementwise(call.name, n, 2), *((Reduction(1, n),) if call["reduction"] else ()))


@dataclass(frozen=True, slots=True)
class Reduction(operator.Rows):
    """A sum, mean or maximum over each of ``rows`` rows of ``cols`` elements.

    ``added``: only so many elements are here, and are added to zeros (``scatter_add``); other ranks have the rest.
    """

    from_torch: ClassVar = {**dict.fromkeys(_TORCH["sums"], _reduction), **dict.fromkeys(_TORCH["losses"], _loss)}

    added: int = 0

    def forward_kernels(self, precision: Precision) -> operator.Kernels:
        if self.added:
            size = ELEMENT_BYTES[precision]
            zeros = Streaming("fill", self.rows, 0, self.rows * size)
            return zeros, Streaming("add", self.added, 2 * self.added * size, self.added * size)
        return (Rowwise("sum", self.rows, self.cols, precision),)

    def input_gradients(self, precision: Precision) -> operator.Kernels:
        """Return the kernels of the inputs' gradients: that of a row is written to every element of it."""
        n, size = self.added or self.rows * self.cols, ELEMENT_BYTES[precision]
        if self.added:
            return (Streaming("copy", n, n * size, n * size),)
        return (Streaming("fill", n, self.rows * size, n * size),)


_WIDE = ELEMENT_BYTES["fp32"]
Norm = Literal["layer_norm", "rms_norm"]


def _layer_norm(call: Any, kind: Norm = "layer_norm") -> operator.Operator:
    cols = prod(call["normalized_shape"])
    return LayerNorm(call["input"].numel() // cols, cols, kind)


_PLAIN = ("pytorch", "deepspeed-zero3", "adaptdl", "paddle")  # frameworks whose modules are the model's own


@dataclass(frozen=True, slots=True)
class LayerNorm(operator.Rows):
    """Normalisation of each of ``rows`` rows of ``cols`` elements; RMSNorm does not subtract the mean.

    ``plain``: a module computes it by calls of the framework, in fp32 (``LlamaRMSNorm`` of Hugging Face's transformers
    and of PaddleNLP); Megatron-LM, TensorFlow and compilers have it their own way.
    """

    from_torch: ClassVar = {
        "native_layer_norm": _layer_norm,
        "native_group_norm": lambda c: LayerNorm(c["N"] * c["group"], c["input"].numel() // (c["N"] * c["group"])),
        "_fused_rms_norm": lambda c: _layer_norm(c, "rms_norm"),
    }

    kind: Norm = "layer_norm"
    plain: bool = False

    def forward_kernels(self, precision: Precision) -> operator.Kernels:
        return (Rowwise(self.kind, self.rows, self.cols, precision),)

    def input_gradients(self, precision: Precision) -> operator.Kernels:
        return (Rowwise(f"{self.kind}_bwd", self.rows, self.cols, precision),)

    def parameter_gradients(self, precision: Precision) -> operator.Kernels:
        return (Rowwise(f"{self.kind}_weight_bwd", self.rows, self.cols, precision, own=True),)

    def as_run_by(
        self, framework: str, phase: operator.Phase, precision: Precision, kernels: operator.Kernels
    ) -> operator.Kernels:
        """Return *kernels*, TensorFlow's formula, or the calls of a module."""
        if framework == "tensorflow":
            return as_formula("norm", self.output_elements, phase, precision)
        if not self.plain or framework not in _PLAIN:
            return kernels
        n, rows = self.output_elements, self.rows
        sizes: dict[str, tuple[int, Precision]] = {"own": (n, precision), "wide": (n, "fp32"), "row": (rows, "fp32")}
        of_weight = *streamed(n, precision, ("mul", 2, 1)), column_sum(self.cols, rows, precision)
        others: dict[str, operator.Kernels] = {
            "widen": self._cast(precision, wide=True),
            "narrow": self._cast(precision, wide=False),
            "sum": (Rowwise("sum", rows, self.cols, "fp32"),),
            "weight": of_weight if phase != "bwd_data" else (),
        }
        found: operator.Kernels = ()
        for each in formula_of("module", phase):
            found += others[each] if isinstance(each, str) else streamed(*sizes[each[3]], tuple(each[:3]))
        return found

    def _cast(self, precision: Precision, *, wide: bool) -> operator.Kernels:
        """Return the cast between *precision* and fp32, to fp32 if *wide*."""
        n, e = self.output_elements, ELEMENT_BYTES[precision]
        sizes = (n * e, n * _WIDE) if wide else (n * _WIDE, n * e)
        return () if e == _WIDE else (Streaming("copy", n, *sizes, "casts" if wide else ""),)

    def saved_bytes(self, element_bytes: int) -> int:  # of the statistics of each row
        return self.rows * STATISTIC_BYTES * (2 if self.kind == "layer_norm" else 1)

    def meets(self, meeting: operator.Meeting) -> operator.Divided[Self] | None:
        """Return its part on one rank: some groups of each token, or some heads.

        Groups have weights of their own (Mamba-2's gated norm), heads share theirs.
        """
        n, tokens = meeting.ranks, meeting.tokens
        if not meeting.is_split or not 0 < tokens < self.rows:
            return None
        if meeting.parameter_elements > 2 * self.cols:
            return operator.Divided("split", replace(self, rows=tokens * meeting.part(self.rows // tokens, "groups")))
        return None if self.rows % (tokens * n) else operator.Divided("heads", replace(self, rows=self.rows // n))


_NAMES = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")


def _batch_norm(call: Any) -> operator.Operator:
    batch, channels, *sizes = call["input"].shape
    return BatchNorm(batch, channels, prod(sizes[:-1]), sizes[-1] if sizes else 1)


@dataclass(frozen=True, slots=True)
class BatchNorm(operator.OneKernel):
    """Normalisation of each channel over the batch and the image."""

    from_torch: ClassVar = dict.fromkeys((*_NAMES, "_batch_norm_with_update"), _batch_norm)

    batch: int
    channels: int
    height: int
    width: int

    def in_direction(self, direction: operator.Direction, precision: Precision) -> Rowwise:
        """Return the kernel of all channels; in bf16 PyTorch asks no library (``_select_batch_norm_backend``)."""
        kind, numbers = "batch_norm" if direction == "fwd" else "batch_norm_bwd", self.batch * self.height * self.width
        return Rowwise(kind, self.channels, numbers, precision, own=precision == "bf16")

    def saved_bytes(self, element_bytes: int) -> int:
        return 2 * self.channels * STATISTIC_BYTES  # the mean and the deviation of each channel

    def _half(self, kind: str, precision: Precision) -> Rowwise:
        return Rowwise(kind, self.channels, self.batch * self.height * self.width, precision, own=True)


@dataclass(frozen=True, slots=True)
class LocalStatistics(BatchNorm):
    """What a synchronised batch norm does before its exchange forward, and after it backward.

    ``batch_norm_stats``, the count and their concatenation; ``batch_norm_backward_elemt`` (``SyncBatchNorm`` in
    torch/nn/modules/_functions.py).
    """

    from_torch: ClassVar = {}

    def forward_kernels(self, precision: Precision) -> operator.Kernels:
        found = streamed(1, "fp32", ("fill", 0, 1)) + streamed(2 * self.channels + 1, "fp32", ("copy", 1, 1))
        return self._half("batch_norm_stats", precision), *found

    def input_gradients(self, precision: Precision) -> operator.Kernels:
        return streamed(self.output_elements, precision, ("batch_norm", 2, 1))


@dataclass(frozen=True, slots=True)
class SyncedNorm(BatchNorm):
    """What it does after its exchange forward, and before it backward, among ``ranks``.

    ``batch_norm_gather_stats_with_counts``, the counts as integers and ``batch_norm_elemt``;
    ``batch_norm_backward_reduce`` and a concatenation.  ``waits``: for the last :class:`RanksFound`.
    """

    from_torch: ClassVar = {}

    ranks: int
    waits: bool

    def forward_kernels(self, precision: Precision) -> operator.Kernels:
        n, wide = 2 * self.channels, ELEMENT_BYTES["fp32"]
        found = Streaming("copy", n, self.ranks * n * wide, n * wide), *streamed(self.ranks, "fp32", ("copy", 1, 1))
        return *found, *streamed(self.output_elements, precision, ("batch_norm", 1, 1))

    def input_gradients(self, precision: Precision) -> operator.Kernels:
        sums = streamed(2 * self.channels, "fp32", ("copy", 1, 1))
        return self._half("batch_norm_stats_bwd", precision), *sums

    def host_reads(self, phase: operator.Phase) -> bool:
        return self.waits and phase == "fwd"
