"""Kernels: what a class of them says of itself, and those that many operators have (ARCHITECTURE.md)."""

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar

from simulator.records import dataclass, own_data, replace
from simulator.workload.precision import ELEMENT_BYTES, Precision

Asked = TypeVar("Asked", bound=Callable[..., Any])
Shape = tuple[float | str, ...]
"""The values of a kernel on the axes of its class."""
Traced = Literal["product", "convolution", "attention", "elementwise"]
"""Classes by which profilers' kernels are told apart."""


class KindOfCard(ABCMeta):
    """The type of kernels and operators, to which nothing is registered: an object is asked about a base at once."""

    __instancecheck__ = type.__instancecheck__

    def take(cls, file: str) -> None:
        """Set the attributes that *file* has of the class, if it is of this package."""
        if cls.__module__.startswith("simulator."):
            for name, value in own_data("simulator.workload", file).get(cls.__name__, {}).items():
                setattr(cls, name, tuple(value) if isinstance(value, list) else value)


def must_say(asked: Asked) -> Asked:
    """Mark what each card says, in its class or in a file: it is abstract, which a type checker cannot follow."""
    return abstractmethod(asked)


class Kernel(metaclass=KindOfCard):
    """Base of the classes of kernels, which are frozen dataclasses.

    ``word`` and ``colour`` are what readers see; ``in_sentences`` is the word there, if another.  ``traced`` is the
    class of such kernels in a profiler's trace.

    ``gpu_cost`` and ``cpu_cost`` name the functions that return a kernel's cost on a GPU and on a CPU,
    ``module:function``; empty: kernels of this class are refused there.  ``of_library``: a vendor's library of products
    and layers runs them, and may choose among formats.

    ``axes`` says what tells kernels of one variety apart: the name of each size or word of :meth:`place`, and how far
    apart a factor of 2 in it or another word lies (chosen on every other device and judged on the rest:
    docs/decisions/calibration.md).  Without axes, measured kernels correct no others.  ``axis_words`` names the axes
    that are words, with the words that they may have (none: any); ``variety_words`` are those that :meth:`variety` may
    have besides formats (none: any after the first).

    ``kernels.json`` has these of the classes of this package; one of another package has them itself.
    """

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    word: ClassVar[str] = ""
    in_sentences: ClassVar[str] = ""
    colour: ClassVar[str] = ""
    traced: ClassVar[Traced] = "elementwise"
    gpu_cost: ClassVar[str] = ""
    cpu_cost: ClassVar[str] = ""
    of_library: ClassVar[bool] = False
    apart: ClassVar[tuple[str, ...]] = ("precision",)
    axes: ClassVar[Mapping[str, float]] = {}
    axis_words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    variety_words: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.take("kernels.json")
        if "word" in cls.__dict__:
            CLASSES[cls.__name__.lower()] = cls

    @property
    def flop(self) -> float:
        """FLOPs of products; 0 for kernels without."""
        return 0

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Least bytes moved."""

    def variety(self) -> tuple[str, ...]:
        """Return the words that tell varieties apart, whose kernels do not correct each other; empty ones fall out.

        By default the values of the fields :attr:`apart`; of flags, the names of those that are set.
        """
        values = ((name, getattr(self, name)) for name in self.apart)
        return tuple(name if value is True else value or "" for name, value in values)

    def place(self) -> Shape:
        """Return the values on :attr:`axes`, in their order; by default the fields of these names."""
        return tuple(getattr(self, name) for name in self.axes)

    @classmethod
    def further(cls, sizes: Mapping[str, float]) -> tuple[float, ...]:
        """Return more coordinates of a kernel with the values *sizes* on its axes, in units of distance."""
        return ()

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return the bytes that the kernel reads and the kernels before it in a step neither read nor wrote.

        In the forward pass these are parameters, if the operator has any; in the backward pass, parameters or saved
        activations.
        """
        return 0.0

    def packed(self, precision: Precision, per_element: int) -> Self | None:
        """Return the kernel with *per_element* of its numbers in each of *precision*; None if it has no such form."""
        return None


class Product(Kernel):
    """Base of kernels that compute matrix products, whose time depends on the format."""

    __slots__ = ()

    precision: Precision

    @property
    @abstractmethod
    def flop(self) -> float:
        """FLOPs."""


CLASSES: dict[str, type[Kernel]] = {}
"""Every class of kernels by its name in calibrations and tables, once its file is loaded."""


def kernel_class(kernel: Kernel) -> str:
    """Return the name of *kernel*'s class in calibrations and tables: its base's, if it has no word of its own."""
    return _named(type(kernel))


@cache
def _named(kind: type[Kernel]) -> str:
    bases = (cls for cls in kind.__mro__[:-1] if cls is not Kernel and "word" in cls.__dict__)
    return next(bases, kind).__name__.lower()


def error_class(kernel: Kernel) -> str:
    """Return the class of kernels whose errors are alike: that of *kernel*, apart by the library that it is from."""
    return "-".join(filter(None, (kernel_class(kernel), getattr(kernel, "library", ""))))


def without_library(kind: str) -> str:
    """Return the class of kernels of the error class *kind*."""
    return kind.partition("-")[0]


Layout = Literal["NN", "NT", "TN", "TT"]
_FLOP_APART = 0.25  # of the FLOPs of a product, in its space of shapes,
_ALIGNED_APART = {"m": 0.3, "n": 1.0, "k": 0.3}  # and of the powers of two that divide its sizes,
_ALIGNED = 6  # up to 2^6 elements, the widest piece of a row that a product's kernel reads at once


@dataclass(frozen=True, slots=True)
class Gemm(Product):
    """``batch`` products ``C[m, n] = A[m, k] B[k, n]``.

    ``epilogue_elements`` are read in addition when C is written (a bias).  ``adds``: the products are added to what is
    in C, which is read too.
    """

    m: int
    n: int
    k: int
    precision: Precision
    batch: int = 1
    layout: Layout = "NN"
    epilogue_elements: int = 0
    out_bytes: int = 0  # per element of C; 0: that of the precision
    plain: bool = False  # matrices in the ordinary row-major layout, not in one that a library of layers prepares
    adds: bool = False

    @property
    def flop(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Least bytes moved: A, B and C once; C twice if the products are added to it."""
        element = ELEMENT_BYTES[self.precision]
        inputs = self.batch * (self.m * self.k + self.k * self.n) * element
        return inputs + self.batch * self.result_bytes

    @property
    def result_bytes(self) -> int:
        """Bytes of one C, moved once or, if the product is added to it, twice."""
        return self.m * self.n * (self.out_bytes or ELEMENT_BYTES[self.precision]) * (1 + self.adds)

    def variety(self) -> tuple[str, ...]:
        return self.precision, "bias" if self.epilogue_elements else "", "batched" if self.batch > 1 else ""

    @classmethod
    def further(cls, sizes: Mapping[str, float]) -> tuple[float, ...]:
        """Return the coordinates of the FLOPs, and of the powers of two that divide the sizes."""
        flop = sizes["m"] * sizes["n"] * sizes["k"] * sizes["batch"]
        twos = {name: (int(size) & -int(size)).bit_length() - 1 for name, size in sizes.items()}
        aligned = (apart * min(_ALIGNED, twos[name]) for name, apart in _ALIGNED_APART.items())
        return (_FLOP_APART * math.log2(flop), *aligned)

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return the bytes of the weight or of the saved factor; in ``C = A B``, B is the weight or the saved input."""
        left, right = self.m * self.k, self.k * self.n
        if forward and not has_parameters:
            return 0.0
        elements = self.batch * (left if not has_parameters and self.layout == "TN" else right)
        return float(elements * ELEMENT_BYTES[self.precision])

    def packed(self, precision: Precision, per_element: int) -> Self:
        """Return the product with a reduction that is so many times shorter."""
        return replace(self, precision=precision, k=-(-self.k // per_element))


_OF_TWO = ("add", "sub", "mul", "div", "where", "masked_fill")
PassForm = Literal["", "casts", "strided", "transposed", "tensors"]


@dataclass(frozen=True, slots=True)
class Streaming(Kernel):
    """A pass over memory that reads and writes the given bytes and applies a function to each of ``elements``.

    ``function`` names it (``add``, ``tanh``), which sets the cost of computing it.  ``form`` says how it reads and
    writes, if not by vectors in the order of memory: ``casts``, each element by its format, known when it runs;
    ``strided``, each from a place computed from its index; ``transposed``, so that neighbours lie apart on one side;
    ``tensors``, one kernel for lists of tensors, a chunk to a block.
    """

    function: str
    elements: int
    read_bytes: int
    written_bytes: int
    form: PassForm = ""

    def by_index(self) -> "Streaming":
        """Return the pass as eager PyTorch runs it: an operand that is not read whole is found by an index."""
        is_broadcast = self.function in _OF_TWO and self.read_bytes <= self.written_bytes
        return replace(self, form=self.form or "strided") if is_broadcast else self

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def place(self) -> Shape:
        return self.function, max(1, self.elements), max(1, self.bytes) / max(1, self.elements)

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return, backward, the bytes of all but the gradient, which is as large as the output."""
        return 0.0 if forward else float(max(0, self.read_bytes - self.written_bytes))


_READ_FIRST = ("layer_norm_bwd", "rms_norm_bwd", "batch_norm_bwd", "batch_norm_stats_bwd", "log_softmax_bwd")
_READ_ALONE = {"sum": 1, "batch_norm_stats": 1, "batch_norm_stats_bwd": 2}  # arrays of the rows' size


@dataclass(frozen=True, slots=True)
class Rowwise(Kernel):
    """A reduction over each of ``rows`` rows of ``cols`` elements, and the output written from it.

    ``kind``: softmax, log_softmax, masked_softmax and causal_softmax (a row in a warp's registers; a causal one reads
    half of it), layer_norm, rms_norm, batch_norm, each with ``_bwd``; sum (a reduction alone),
    and batch_norm_stats, that of batch_norm apart, with ``_bwd``.  For ``batch_norm`` a
    row is a channel.  ``channels_last``: the elements of a row or channel are not contiguous, and blocks divide them
    rather than the rows.  ``in_warps``: a normalisation keeps a short row in a warp's registers, as softmax does;
    softmax, a longer one.  ``own``: by PyTorch's own kernels, which run eagerly, not by a library or compiler.
    """

    kind: str
    rows: int
    cols: int
    precision: Precision
    channels_last: bool = False
    in_warps: bool = False
    own: bool = False

    @property
    def bytes(self) -> int:
        passes = _READ_ALONE.get(self.kind, 3 if self.kind.endswith("_bwd") else 2)
        return passes * self.rows * self.cols * ELEMENT_BYTES[self.precision]

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return, backward, the bytes of the saved input or output; a product has just read that of a softmax."""
        elements = 0 if forward or self.kind not in _READ_FIRST else self.rows * self.cols
        return float(elements * ELEMENT_BYTES[self.precision])


def as_formula(name: str, elements: int, phase: str, precision: Precision) -> tuple[Kernel, ...]:
    """Return the kernels of TensorFlow's formula *name* on *elements* elements.

    *precision*: of products, or fp32 if that is wider.  The gradients of parameters are among those of the inputs.
    """
    wide: Precision = "fp32" if ELEMENT_BYTES[precision] < ELEMENT_BYTES["fp32"] else precision
    if phase == "bwd_weight":
        return ()
    return streamed(elements, wide, *(tuple(each) for row in formula_of(name, phase) for each in row))


def formula_of(name: str, phase: str) -> Any:
    """Return the passes that ``composed.yaml`` has of *name* in *phase*."""
    return own_data("simulator.workload", "composed.yaml")[name]["forward" if phase == "fwd" else "backward"]


def column_sum(outputs: int, count: int, precision: Precision) -> Rowwise:
    """Return the kernel that adds up *count* rows of *outputs* elements, each in the order of memory."""
    return Rowwise("sum", outputs, count, precision, channels_last=True, own=True)


def streamed(elements: int, precision: Precision, *passes: tuple[str, int, int]) -> tuple[Kernel, ...]:
    """Return *passes* over *elements* elements in *precision* as kernels."""
    size = elements * ELEMENT_BYTES[precision]
    return tuple(Streaming(function, elements, reads * size, writes * size) for function, reads, writes in passes)
