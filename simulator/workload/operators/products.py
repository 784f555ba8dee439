"""Products: linear layers, those of experts, and products of activations."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from simulator.records import dataclass, replace
from simulator.workload.kernels import Gemm, Layout, column_sum, streamed
from simulator.workload.operator import LEAST_COLUMNS, Divided, Kernels, Meeting, OfRows, Operator, Phase
from simulator.workload.precision import ELEMENT_BYTES, Precision


def _multiplied(a: Any, b: Any) -> Operator:
    """Return the product of the tensors *a* and *b*, of matrices or of batches of them, as they are stored."""
    turned = tuple(bool(x.shape[-1] > 1 and x.stride(-1) != 1 and x.stride(-2) == 1) for x in (a, b))
    layouts: dict[tuple[bool, ...], Layout] = {(True, True): "TT", (True, False): "TN", (False, True): "NT"}
    (m, k), n, batch = a.shape[-2:], b.shape[-1], a.shape[0] if len(a.shape) > 2 else 1
    return MatMul(m, n, k, batch, layouts.get(turned, "NN"))


@dataclass(frozen=True, slots=True)
class MatMul(Operator):
    """``batch`` products ``C[m, n] = A[m, k] B[k, n]`` of activations.

    ``layout`` has BLAS's letters for A and B: ``N`` stored as written, ``T`` stored transposed.
    """

    from_torch: ClassVar = {
        **dict.fromkeys(("dot", "vdot"), lambda c: MatMul(1, 1, c.first.numel())),
        "bmm": lambda c: _multiplied(c["self"], c["mat2"]),
        "baddbmm": lambda c: _multiplied(c["batch1"], c["batch2"]),
    }

    m: int
    n: int
    k: int
    batch: int = 1
    layout: Layout = "NN"

    @property
    def flop(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (Gemm(self.m, self.n, self.k, precision, self.batch, self.layout, plain=precision == "int8"),)

    def input_gradients(self, precision: Precision) -> Kernels:
        m, n, k, batch = self.m, self.n, self.k, self.batch
        return Gemm(m, k, n, precision, batch, "NT"), Gemm(k, n, m, precision, batch, "TN")

    def host_calls(self, phase: Phase) -> int:
        return 2 if phase == "bwd" else 1  # one a gradient

    def backward_flop(self, trained: bool, needed: Sequence[bool]) -> int:
        """Return the FLOPs of the backward pass; a factor may be parts of several tensors."""
        return self.flop * min(2, sum(needed))

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.batch * self.k * (self.n if position else self.m))

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        return Divided("split", replace(self, batch=meeting.part(self.batch))) if meeting.alike else None


def _product(call: Any, a: Any, b: Any, bias: Any = None) -> Operator:
    """Return the product ``a b``: a linear layer if one of the factors is a parameter."""
    (m, k), n = a.shape, b.shape[1]
    has_bias = bias is not None and call.is_weight(bias)
    if call.is_weight(b):
        return Linear(m, k, n, has_bias)
    if call.is_weight(a):
        return Linear(n, k, m, has_bias)
    return _multiplied(a, b)


def _grouped(call: Any) -> Operator | None:
    """Return the product of each row with its expert's matrix; the assignment depends on values, not shapes."""
    rows, experts = call["self"], call["mat2"]
    if rows.dim() != 2 or experts.dim() != 3:
        return None
    (m, k), n = rows.shape, experts.shape[2]
    return Linear(m, k, n, bias=False) if call.is_weight(experts) else MatMul(m, n, k)


def _linear(call: Any) -> Operator:
    outputs, inputs = call["weight"].shape
    return Linear(call["input"].numel() // inputs, inputs, outputs, call["bias"] is not None)


@dataclass(frozen=True, slots=True)
class Linear(OfRows):
    """``y[rows, outputs] = x[rows, inputs] W^T``, and a bias."""

    from_torch: ClassVar = {
        "mm": lambda c: _product(c, c["self"], c["mat2"]),
        "addmm": lambda c: _product(c, c["mat1"], c["mat2"], c["self"]),
        "mv": lambda c: _product(c, c["self"], c["vec"].unsqueeze(1)),
        "addmv": lambda c: _product(c, c["mat"], c["vec"].unsqueeze(1), c["self"]),
        "linear": _linear,
        "_grouped_mm": _grouped,
    }

    rows: int
    inputs: int
    outputs: int
    bias: bool = True

    @property
    def flop(self) -> int:
        return 2 * self.rows * self.inputs * self.outputs

    def forward_kernels(self, precision: Precision) -> Kernels:
        epilogue, out = self.outputs if self.bias else 0, result_bytes(precision)
        sizes = self.rows, self.outputs, self.inputs, precision
        return (Gemm(*sizes, layout="NT", epilogue_elements=epilogue, out_bytes=out),)

    def input_gradients(self, precision: Precision) -> Kernels:
        return (Gemm(self.rows, self.inputs, self.outputs, precision, out_bytes=result_bytes(precision)),)

    def parameter_gradients(self, precision: Precision) -> Kernels:
        out = result_bytes(precision)
        product = Gemm(self.outputs, self.inputs, self.rows, precision, layout="TN", out_bytes=out)
        bias = column_sum(self.outputs, self.rows, "bf16" if out else precision)
        return (product, bias) if self.bias else (product,)

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return *kernels*; in TensorFlow (BiasAdd) and Paddle (eager_api_linear) a bias is a kernel of its own."""
        if framework in ("tensorflow", "paddle") and self.bias and phase == "fwd":
            return (*kernels, *streamed(self.output_elements, precision, ("add", 1, 1)))
        return kernels

    def host_calls(self, phase: Phase) -> int:
        return 2 + self.bias if phase == "bwd" else 1  # one a gradient; that of a bias is a sum

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        if meeting.kept_whole:
            return None
        if meeting.is_split:
            return Divided("rows", replace(self, inputs=meeting.part(self.inputs)))
        if self.outputs % meeting.ranks and self.outputs <= LEAST_COLUMNS * meeting.ranks:
            return None
        return Divided("columns", replace(self, outputs=meeting.padded(self.outputs)))


def result_bytes(precision: Precision) -> int:
    """Return the bytes of a result's element where only products read numbers as narrow as *precision*, else 0."""
    return ELEMENT_BYTES["bf16"] if precision in ("fp8", "nvfp4") else 0
