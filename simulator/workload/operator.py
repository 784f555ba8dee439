"""What an operator says of itself: shape, FLOPs, kernels, gradients, what it saves, how it is divided, its words.

FLOPs are counted as ``torch.utils.flop_counter.FlopCounterMode`` counts: of matrix products and convolutions only, with
a multiplication and an addition as two.  What is abstract here must be said of each operator, a frozen dataclass; the
rest has the answer of one without parameters that every rank computes whole.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from math import prod
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

from simulator.errors import InputError, divisors, mention
from simulator.records import dataclass, replace
from simulator.workload.kernels import Kernel, KindOfCard, must_say
from simulator.workload.precision import Precision

T_co = TypeVar("T_co", covariant=True)
Way = Literal["columns", "rows", "split", "heads", "loss"]
LEAST_COLUMNS = 64
"""Least columns per rank to pad for; narrower products are computed whole on each rank."""


class Divided(NamedTuple, Generic[T_co]):
    """One rank's part of an operator.

    ``columns``: of a whole input, it gives some of the result's columns; ``rows``: of some columns of its input, it
    gives a part of a sum; ``split``: of some channels or heads, it gives the same ones, with its part of the
    parameters; ``heads``: likewise, with parameters that all share; ``loss``: a part of the loss, for which all ranks
    sum ``summed`` numbers.
    """

    way: Way
    operator: T_co
    summed: int = 0


@dataclass(frozen=True, slots=True)
class Meeting:
    """A layer as one of ``ranks`` meets it.

    ``is_split``: the rank has only a part of some input; ``alike``: of every input that a layer writes, equal ones.
    ``kept_whole``: the network marks the products to divide, and not this one.  ``read_elements`` and
    ``parameter_elements`` are those of the undivided first input and of all parameters; ``tokens`` and
    ``largest_table`` those of the network, and the words of its largest embedding.
    """

    layer: str
    ranks: int
    is_split: bool
    alike: bool
    kept_whole: bool
    read_elements: int
    parameter_elements: int
    tokens: int
    largest_table: int

    def part(self, count: int, what: str = "parts") -> int:
        """Return a rank's part of *count*; raises InputError, which calls them *what*, if it is not whole."""
        if count % self.ranks:
            told = f"{mention('layout')}: tp={self.ranks} does not divide the {count} {what} of {self.layer}"
            raise InputError(f"{told}; {divisors(count)}")
        return count // self.ranks

    def padded(self, count: int) -> int:
        """Return a rank's part of *count* rows or columns, padded to divide evenly, as vocabularies are."""
        return -(-count // self.ranks)


Phase = Literal["fwd", "bwd_data", "bwd_weight", "bwd"]
Kernels = tuple[Kernel, ...]
Fusing = Literal["", "pointwise", "rows"]
Autocast = Literal["half", "fp32", "fp32 after a cast", "widest", "promotes", "powers"]
Saved = Literal["input", "input of weights", "inputs", "labels", "factors", "two factors", "output"]


class Operator(metaclass=KindOfCard):
    """Base of the operators.

    ``called`` is its name in refusals, where it is not that of the class.  ``least_inputs`` tensors are read at least;
    those at the places ``indices`` hold integers (words, labels).

    ``host_constant`` names the host's time for the call beyond that of any call (``dispatch.json`` of the
    constants).  ``issued``: the calls that the host makes, forward and backward; ``read_by_host``: whether it reads a
    number of the device then.

    ``fp32_in_mixed``: what a graph in mixed precision computes in fp32; ``fp32_always``: with weights in half precision
    too.  ``quantised``: what a network quantised after training multiplies in integers; ``narrow``: what recipes with
    8- and 4-bit floats multiply so.  ``torch_tf32``: torch computes it in TF32 unless told otherwise.

    ``saves_gradients``: what it saves becomes its gradients, which take no memory of their own; those of its parameters
    are there from the forward pass on.

    ``by_token``: each row or element of a sequence is computed by itself, with no sum over others.  ``by_channel``: the
    size in proportion to channels or heads that are computed each by themselves.

    ``result``: the sizes whose product are the elements of its result; of none, it is one number.

    ``from_torch`` maps names of aten operators to functions that return the operators that a call of these is
    (:class:`simulator.workload.torch_import.call.Call`), in order; None: no kernel runs.

    ``operators.json`` has the others of the classes of this package, and what of the answers below is the same whatever
    the sizes; one of another package says them itself.
    """

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    called: ClassVar[str] = ""
    least_inputs: ClassVar[int] = 1
    indices: ClassVar[tuple[int, ...]] = ()
    host_constant: ClassVar[str] = ""
    issued: ClassVar[tuple[int, int]] = (1, 1)
    read_by_host: ClassVar[tuple[bool, bool]] = (False, False)
    fp32_in_mixed: ClassVar[bool] = False
    fp32_always: ClassVar[bool] = False
    quantised: ClassVar[bool] = False
    narrow: ClassVar[bool] = False
    saves_gradients: ClassVar[bool] = False
    torch_tf32: ClassVar[bool] = False
    by_token: ClassVar[bool] = False
    by_channel: ClassVar[str] = ""
    result: ClassVar[tuple[str, ...]]  # every operator says it, or its output_elements
    from_torch: ClassVar[Mapping[str, Callable[[Any], Operator | tuple[Operator, ...] | None]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.take("operators.json")
        OPERATORS[cls.__name__] = cls

    # -- sizes -----------------------------------------------------------------------

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return prod([getattr(self, name) for name in self.result])

    @property
    def flop(self) -> int:
        """FLOPs of the forward pass; 0 without matrix products."""
        return 0

    @property
    def packed_bytes(self) -> int:
        """Bytes in which its weight, its first parameter, is kept, if not in the format of products; 0 otherwise."""
        return 0

    def check(self) -> None:
        """Raise ValueError if the sizes, which a user wrote, are impossible."""
        has_elements(self.output_elements)

    # -- kernels ---------------------------------------------------------------------

    def kernels(self, phase: Phase, precision: Precision, framework: str = "") -> Kernels:
        """Return the kernels in *phase*, in order, as an eager framework runs them that calls a vendor's libraries.

        ``fwd`` is the forward pass, ``bwd_data`` the gradients of the inputs, ``bwd_weight`` those of the parameters,
        and ``bwd`` both.  *framework*: whose own kernels are meant, where they differ from PyTorch's.
        """
        if phase == "fwd":
            found = self.forward_kernels(precision)
        else:
            of_inputs = () if phase == "bwd_weight" else self.input_gradients(precision)
            found = (*of_inputs, *(() if phase == "bwd_data" else self.parameter_gradients(precision)))
        return self.as_run_by(framework, phase, precision, found) if framework else found

    @abstractmethod
    def forward_kernels(self, precision: Precision) -> Kernels:
        """Return the kernels of the forward pass."""

    @abstractmethod
    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the inputs' gradients."""

    def parameter_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the parameters' gradients."""
        return ()

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return what *framework* runs instead of PyTorch's *kernels*."""
        return kernels

    def host_calls(self, phase: Phase) -> int:
        """Return the number of calls that the host makes in *phase*."""
        return self.issued[phase != "fwd"]

    def host_picks(self, phase: Phase) -> int:
        """Return how often a call in *phase* takes the time of ``host_constant``."""
        return 1

    def host_reads(self, phase: Phase) -> bool:
        """Return whether the host reads a number of the device in *phase*, and so waits for it."""
        return self.read_by_host[phase != "fwd"]

    # -- the backward pass -----------------------------------------------------------

    def backward_flop(self, trained: bool, needed: Sequence[bool]) -> int:
        """Return the FLOPs of the backward pass; *needed*: which inputs need a gradient.

        A product costs its forward FLOPs again for its parameters and for its input.
        """
        return self.flop * (trained + needed[0]) if self.flop else 0

    @property
    @must_say
    def saved(self) -> tuple[Saved, ...]:
        """The tensors that autograd saves, as PyTorch's ``derivatives.yaml`` and its CUDA kernels do.

        ``input``: the first; ``input of weights``: the first, if the parameters are trained; ``inputs``: all;
        ``labels``: the second; ``factors``: each input that the gradient of the other one needs; ``two factors``: the
        same, and of a product with a constant nothing; ``output``: the result.
        """
        raise NotImplementedError

    def saved_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the data that it saves besides: masks, indices, statistics."""
        return 0

    @property
    def passes_gradient(self) -> bool:
        """Whether the gradient of its result, or views of that, are those of its inputs, where sizes allow."""
        return False

    def temporary_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the tensors that come and go in its forward pass."""
        return 0

    def scratch_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the tensors that its backward pass writes besides gradients, at the worst moment."""
        return 0

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        """Return how many of the *whole* elements of input *position* it reads; of a view, those in the view."""
        return whole

    # -- fusion and formats ----------------------------------------------------------

    @property
    def fuses(self) -> Fusing:
        """How a compiler fuses it: element by element, as the one reduction over rows of a group, or not at all."""
        return ""

    @property
    def autocast(self) -> Autocast:
        """What PyTorch's autocast does with it.

        ``half``: it reads and writes half precision; ``fp32``: it writes fp32, whatever it reads, and ``after a cast``
        of its first input; ``widest``: it keeps the widest format of its inputs, which ``promotes`` casts for the
        backward pass; ``powers``: it casts its inputs to fp32.
        """
        return "widest"

    @property
    def is_product(self) -> bool:
        """Whether it multiplies matrices, in the format of products."""
        return self.autocast == "half"

    @property
    def folds(self) -> bool:
        """Whether it has no kernel in a quantised network, as it is folded into weights or into the range of results.

        Jacob et al., arXiv 1712.05877, sections 2.4 and 3.2.
        """
        return False

    # -- division --------------------------------------------------------------------

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        """Return its part on one rank of tensor parallelism; None: it is computed whole, from gathered inputs.

        By default it has its part of the size ``by_channel``.  Raises InputError if heads or channels do not divide
        evenly.
        """
        if not meeting.alike or not self.by_channel:
            return None
        size: int = getattr(self, self.by_channel)
        return Divided("split", replace(self, **{self.by_channel: size // meeting.ranks}))

    @property
    @must_say
    def per_token(self) -> tuple[str, ...] | None:
        """The sizes in proportion to tokens, if sequences are divided; None: its sequences cannot be.

        Without such sizes, each rank computes the whole operator.
        """
        raise NotImplementedError

    def over_sequences(self, part: Callable[[int], int]) -> Self | None:
        """Return its part if sequences are divided and *part* is that of a number of tokens; None: they cannot be."""
        sizes = self.per_token
        return None if sizes is None else replace(self, **{name: part(getattr(self, name)) for name in sizes})


OPERATORS: dict[str, type[Operator]] = {}
"""Every class of operators by its name, bases among them, once its file is loaded."""


def has_elements(*sizes: int) -> None:
    """Raise ValueError if one of the *sizes* of a result is not positive."""
    if min(sizes) < 1:
        raise ValueError("its output has no elements: the window is larger than what it moves over")


Direction = Literal["fwd", "bwd_data", "bwd_weight"]


class OneKernel(Operator):
    """Base of operators that run one kernel in each direction."""

    __slots__ = ()

    @abstractmethod
    def in_direction(self, direction: Direction, precision: Precision) -> Kernel:
        """Return the kernel of *direction*."""

    def forward_kernels(self, precision: Precision) -> Kernels:
        """Return the kernel of the forward pass."""
        return (self.in_direction("fwd", precision),)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernel of the inputs' gradients; where there are any, of all gradients."""
        return (self.in_direction("bwd_data", precision),)


class OfRows(Operator):
    """Base of operators on ``rows`` rows, each by itself."""

    __slots__ = ()

    by_token = True
    per_token = ("rows",)

    rows: int


@dataclass(frozen=True, slots=True)
class Rows(OfRows):
    """Base of operators on ``rows`` rows of ``cols`` elements; by default the result has the same size."""

    result: ClassVar[tuple[str, ...]] = ("rows", "cols")

    rows: int
    cols: int


class Elements(Operator):
    """Base of operators on ``elements`` elements, each by itself."""

    __slots__ = ()

    by_token = True
    per_token = ("elements",)
    by_channel = "elements"
    result = ("elements",)

    elements: int

    @property
    def fuses(self) -> Fusing:
        """How a compiler fuses it."""
        return "pointwise"
