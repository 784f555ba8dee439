"""Linear layers of experts, each row multiplied by the matrix of its expert, and those whose weights have 4 bits.

Routing that is not balanced, and a capacity beyond which tokens are dropped, say how many rows experts get.
"""

from math import sqrt
from statistics import NormalDist
from typing import Any, ClassVar, Literal, NamedTuple, Self

from simulator.errors import InputError, mention
from simulator.records import dataclass, replace
from simulator.workload.kernels import Gemm, Rowwise, Streaming
from simulator.workload.operator import Divided, Kernels, Meeting, Phase
from simulator.workload.operators.moves import rows_gathered, rows_spread
from simulator.workload.operators.products import Linear, result_bytes
from simulator.workload.precision import ELEMENT_BYTES, PACKED, Precision

_NORMAL = NormalDist()


def largest_of(count: int) -> float:
    """Return the expected largest of *count* normal numbers, in standard deviations (Blom, "Statistical Estimates")."""
    return _NORMAL.inv_cdf((count - 0.375) / (count + 0.25))


class Routing(NamedTuple):
    """The rows of experts: normal, with a standard deviation of ``imbalance`` percent of their mean, an even share.

    ``capacity`` is the most that an expert takes, in percent of an even share; further rows are dropped, and 0 is
    without limit (Lepikhin et al., "GShard", arXiv 2006.16668).  ``padded``: each expert gets as many, some of them
    zeros.
    """

    imbalance: int = 0
    capacity: int = 0
    padded: bool = False

    @property
    def kept(self) -> float:
        """The rows that experts multiply over those that are routed: the mean of what a limit leaves of each expert."""
        limit = self.capacity / 100
        if self.padded or not limit:
            return limit or 1.0
        return limit - self._left_free[0]

    @property
    def spread(self) -> float:
        """The standard deviation of the rows that an expert multiplies, over their mean."""
        if self.padded:
            return 0.0
        if not self.capacity:
            return self.imbalance / 100
        mean, square = self._left_free
        return sqrt(max(0.0, square - mean**2)) / self.kept

    def most(self, experts: int) -> float:
        """Return the rows of the busiest of *experts* over the mean of what they multiply."""
        if self.padded or experts == 1:
            return 1.0
        largest = 1.0 + self.imbalance / 100 * largest_of(experts)
        return min(largest, self.capacity / 100) / self.kept if self.capacity else largest

    @property
    def _left_free(self) -> tuple[float, float]:
        """The mean of what a normal number leaves of a limit c, and that of its square.

        With z = (c - 1) / s these are s (z P(z) + p(z)) and s^2 ((z^2 + 1) P(z) + z p(z)), of the normal density p and
        its integral P.
        """
        spread, limit = self.imbalance / 100, self.capacity / 100
        if not spread:
            free = max(0.0, limit - 1.0)
            return free, free**2
        z = (limit - 1.0) / spread
        below, density = _NORMAL.cdf(z), _NORMAL.pdf(z)
        return spread * (z * below + density), spread**2 * ((z * z + 1.0) * below + z * density)


Grouping = Literal["kernel", "streams", "loop"]


@dataclass(frozen=True, slots=True)
class GroupedGemm(Gemm):
    """Products of ``batch`` experts; that of the busiest has the size ``busiest`` in dimension ``varies`` (0: equal).

    ``grouping``: ``kernel``, tiles of all products in one kernel; ``streams``, a kernel each, on four streams;
    ``loop``, a kernel each, one after the other.
    """

    grouping: Grouping = "kernel"
    varies: Literal["m", "k"] = "m"
    busiest: int = 0

    @property
    def groups(self) -> tuple[tuple[Gemm, int], ...]:
        """The products as plain ones, with how many there are of each."""
        sizes = self.m, self.n, self.k, self.precision, 1, self.layout, self.epilogue_elements, self.out_bytes
        one = Gemm(*sizes, adds=self.adds)
        if not self.busiest:
            return ((one, self.batch),)
        busiest = (replace(one, m=self.busiest) if self.varies == "m" else replace(one, k=self.busiest), 1)
        return (busiest, (one, self.batch - 1)) if self.batch > 1 else (busiest,)

    @property
    def flop(self) -> int:
        return sum(count * one.flop for one, count in self.groups)

    @property
    def bytes(self) -> int:
        """Least bytes moved by all products."""
        return sum(count * one.bytes for one, count in self.groups)

    def variety(self) -> tuple[str, ...]:
        return (*Gemm.variety(self), "grouped")


@dataclass(frozen=True, slots=True)
class GroupedLinear(Linear):
    """``experts`` linear layers, each with its own matrix and bias; each row is multiplied by one of the matrices.

    ``busiest``: the rows of the expert that has most; the others have equally many.  0: as ``routing`` spreads them.

    ``grouping``: one ``kernel`` multiplies, or a call of cuBLAS for each expert, on ``streams`` or in a ``loop``
    (docs/decisions/zoo.md).  ``into_buffer``: gradients of weights are added to an fp32 one (Megatron-LM's).
    """

    from_torch: ClassVar = {}

    experts: int = 1
    busiest: int = 0
    grouping: Grouping = "kernel"
    into_buffer: bool = False
    routing: Routing = Routing()

    def check(self) -> None:
        if self.busiest and not self.rows_each <= self.busiest <= self.rows:
            raise ValueError(
                f"the busiest of {self.experts} experts has {self.rows_each} to {self.rows} of {self.rows} rows; "
                f"busiest is {self.busiest}"
            )
        Linear.check(self)

    @property
    def most_rows(self) -> int:
        """Rows of the expert that has most; 0: all have equally many."""
        if self.busiest or not self.routing.spread or self.experts == 1:
            return self.busiest
        return min(self.rows, round(self.rows_each * self.routing.most(self.experts)))

    def busiest_share(self, ranks: int) -> float:
        """Return the rows of the busiest of *ranks* that divide the experts, over the mean of all."""
        return 1.0 + self.routing.spread / sqrt(self.experts / ranks) * largest_of(ranks)

    @property
    def busy_experts(self) -> int:
        """Experts with at least one row: all, unless there are fewer rows than experts."""
        return min(self.experts, self.rows - self.most_rows + 1 if self.most_rows else self.rows)

    @property
    def rows_each(self) -> int:
        """Rows of an expert, if all have equally many."""
        return -(-self.rows // min(self.experts, self.rows))

    @property
    def _rows_of_others(self) -> int:
        others, most = self.busy_experts - 1, self.most_rows
        return -(-(self.rows - most) // others) if most and others else most or self.rows_each

    def _grouped(self, m: int, n: int, k: int, precision: Precision, layout: Any, bias: int = 0) -> GroupedGemm:
        busiest = self.most_rows if self.busy_experts > 1 else 0
        sizes = m, n, k, precision, self.busy_experts, layout, bias, result_bytes(precision)
        return GroupedGemm(*sizes, grouping=self.grouping, varies="k" if layout == "TN" else "m", busiest=busiest)

    def forward_kernels(self, precision: Precision) -> Kernels:
        bias = self.outputs if self.bias else 0
        return (self._grouped(self._rows_of_others, self.outputs, self.inputs, precision, "NT", bias),)

    def input_gradients(self, precision: Precision) -> Kernels:
        return (self._grouped(self._rows_of_others, self.inputs, self.outputs, precision, "NN"),)

    def parameter_gradients(self, precision: Precision) -> Kernels:
        rows = self._rows_of_others
        product = self._grouped(self.outputs, self.inputs, rows, precision, "TN")
        if self.into_buffer:
            product = replace(product, adds=True, out_bytes=ELEMENT_BYTES["fp32"])
        summed = "bf16" if result_bytes(precision) else precision
        bias = (Rowwise("sum", self.outputs * self.busy_experts, rows, summed),) if self.bias else ()
        return (product, *bias)

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return *kernels* as *framework* runs them: Megatron-LM, with Transformer Engine, on streams."""
        if framework != "megatron":
            return kernels
        return tuple(replace(k, grouping="streams") if isinstance(k, GroupedGemm) else k for k in kernels)

    def host_picks(self, phase: Phase) -> int:
        return 1 if self.grouping == "kernel" else self.busy_experts  # cuBLAS's


@dataclass(frozen=True, slots=True)
class ScatteredLinear(GroupedLinear):
    """A grouped product by indices (``ParallelLinear`` of scattermoe): rows are read and written where they are.

    ``chosen``: each row of the input is that of so many results; backward alone they are copied, for the gradients of
    weights, and the copy becomes the input's gradients of each, which are summed.  Gradients of weights begin as zeros.
    """

    from_torch: ClassVar = {}

    chosen: int = 1

    @property
    def _read(self) -> int:
        """Elements of the input."""
        return self.rows * self.inputs // self.chosen

    def input_gradients(self, precision: Precision) -> Kernels:
        summed = rows_gathered(self._read, self.rows * self.inputs, ELEMENT_BYTES[precision])
        return (*GroupedLinear.input_gradients(self, precision), *((summed,) if self.chosen > 1 else ()))

    def parameter_gradients(self, precision: Precision) -> Kernels:
        copied = rows_spread(self._read, self.rows * self.inputs, ELEMENT_BYTES[precision])
        n = self.experts * self.inputs * self.outputs
        zeros = Streaming("fill", n, 0, n * ELEMENT_BYTES[precision])
        products = GroupedLinear.parameter_gradients(self, precision)
        return (*((copied,) if self.chosen > 1 else ()), zeros, *products)

    def host_calls(self, phase: Phase) -> int:
        return 1 if phase == "fwd" else (5 if self.chosen > 1 else 3) + self.bias

    def scratch_bytes(self, element_bytes: int) -> int:
        return self.rows * self.inputs * element_bytes if self.chosen > 1 else 0


_BLOCK, _SCALES = 64, 256  # weights with one scale; scales that are quantised with one scale of their own
_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Nf4Linear(GroupedLinear):
    """A linear layer with frozen weights in nf4 (Dettmers et al., "QLoRA", arXiv 2305.14314, section 3).

    ``nested``: double quantisation, of the scales too.  Each product first writes the weight in its own format.
    """

    from_torch: ClassVar = {}

    nested: bool = False

    @property
    def _multiplies(self) -> type[Linear]:
        return GroupedLinear if self.experts > 1 else Linear

    @property
    def packed_bytes(self) -> int:
        weights = self.experts * self.inputs * self.outputs
        scales = -(-weights // _BLOCK)
        kept = scales + -(-scales // _SCALES) * _SCALE_BYTES if self.nested else scales * _SCALE_BYTES
        return -(-weights // PACKED) + kept

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
        return 4 if self.nested else 2  # those that write the weight, and the product

    def temporary_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the weight, of one expert at a time, and of nested scales in fp32."""
        n = self.inputs * self.outputs
        return n * element_bytes + (-(-n // _BLOCK) * _SCALE_BYTES if self.nested else 0)

    def scratch_bytes(self, element_bytes: int) -> int:
        return self.temporary_bytes(element_bytes)  # the gradient of the input takes the weight again

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Raise InputError: bitsandbytes does not divide weights in nf4."""
        raise InputError(f"{mention('layout')}: tp={meeting.ranks} divides {meeting.layer}, whose weight is in nf4")
