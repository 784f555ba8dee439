"""Functions of each element, as ``torch_functions.json`` has them; traced networks may call any other.

A name that a user types is checked because a typing error would silently cost as much as the simplest pass.
"""

from typing import Any, ClassVar

from simulator.errors import nearest, one_line
from simulator.records import dataclass, field, own_data
from simulator.workload.kernels import Rowwise, Streaming, as_formula, streamed
from simulator.workload.operator import Autocast, Elements, Fusing, Kernels, Operator, Phase, Saved
from simulator.workload.precision import ELEMENT_BYTES, Precision

_TORCH = own_data("simulator.workload", "torch_functions.json")
_OF_TWO = _TORCH["of_two"]  # some run another kernel if the second is a number
FUNCTIONS: tuple[str, ...] = (*_OF_TWO, *(f"{name}_scalar" for name in _OF_TWO), *_TORCH["functions"])
DROPS, BOUNDS = _TORCH["drops"], _TORCH["bounds"]
"""Those that write a mask of one byte per element, and those that only bound their result."""


def check_function(name: str) -> None:
    """Raise ValueError unless *name*, without its endings ``_inplace`` and ``_bwd``, is a known function."""
    plain = name.removesuffix("_inplace").removesuffix("_bwd")
    if plain not in FUNCTIONS:
        raise ValueError(f"function: there is no '{one_line(name, 40)}'; {nearest(plain, FUNCTIONS)}")


def of_elements(call: Any) -> Operator:
    """Return the function of *call*; with a number as the second operand, some run another kernel."""
    name = "sub" if call.name == "rsub" else call.name.strip("_")
    n = call.out.numel()
    whole = sum(tensor.numel() == n for tensor in call.inputs)
    if name in _OF_TWO:
        second = next((call.arguments[key] for key in ("other", "exponent") if key in call.arguments), None)
        if getattr(second, "ndim", 0) == 0 and whole <= 1:
            name += "_scalar"
    return Elementwise(name, n, max(1, whole))


@dataclass(frozen=True, slots=True)
class Elementwise(Elements):
    """``function`` applied to each of ``elements`` elements, with ``inputs`` input tensors of that size.

    ``function`` is the framework's name in lower case (``add``, ``relu``, ``gelu``, ``dropout``), with the ending
    ``_scalar`` if the second operand is a number.  ``summed``: the number of operands of a sum that are smaller and
    broadcast, so that their gradients are sums over all elements.  ``part_of``: if an operand is a slice of a larger
    tensor, the elements of that tensor, whose gradient is zero outside the slice.
    """

    from_torch: ClassVar = {
        **dict.fromkeys(_TORCH["pointwise"], of_elements),  # a sort is more than the one pass it counts as
        **dict.fromkeys(_TORCH["fills"], lambda c: Elementwise("fill", c.out.numel(), 0)),
        **dict.fromkeys(_TORCH["random"], lambda c: Elementwise("random", c.out.numel(), 0)),
        "native_dropout": lambda c: Elementwise("dropout", c["input"].numel()),
        **{f"nll_loss{n}_forward": lambda c: Elementwise("nll_loss", c["target"].numel()) for n in ("", "2d")},
    }

    function: str
    elements: int
    inputs: int = field(default=1, metadata={"least": 0})
    summed: int = field(default=0, metadata={"least": 0})
    part_of: int = field(default=0, metadata={"least": 0})

    @property
    def fuses(self) -> Fusing:
        """How a compiler fuses it; it leaves the choice of largest elements to the framework's own kernels."""
        return "" if self.function == "topk" else "pointwise"

    @property
    def autocast(self) -> Autocast:
        return "powers" if self.function.startswith("pow") else "promotes"

    @property
    def folds(self) -> bool:
        return self.function in BOUNDS

    def check(self) -> None:
        """Raise ValueError for impossible sizes and unknown functions."""
        check_function(self.function)
        Operator.check(self)

    def forward_kernels(self, precision: Precision) -> Kernels:
        size, n = ELEMENT_BYTES[precision], self.elements
        mask = n if self.function in DROPS else 0
        return (Streaming(self.function, n, self.inputs * n * size, n * size + mask),)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the inputs' gradients; that of a slice is written into a zeroed tensor."""
        function, n, size = self.function, self.elements, self.elements * ELEMENT_BYTES[precision]
        if function in DROPS:  # for dropout_add, the gradient of the other operand is passed on as it is
            found: Kernels = (Streaming("dropout_bwd", n, size + n, size),)
        elif function in _TORCH["added"]:  # the gradient is passed on, or summed for small operands
            found = (Rowwise("sum", 1, n, precision),) * self.summed
        elif function in _TORCH["of_small"] or (function, self.inputs) == ("mul", 1):  # a mask, a table, a number
            found = streamed(n, precision, (function, 1, 1))
        elif function in _TORCH["of_factors"]:
            found = streamed(n, precision, *(("mul", 2, 1),) * self.inputs)
        elif function == "pow_scalar":  # a power, times the exponent, times the gradient
            found = streamed(n, precision, (function, 1, 1), ("mul_scalar", 1, 1), ("mul", 2, 1))
        else:
            found = streamed(n, precision, (f"{function}_bwd", 2, 1))
        if not self.part_of:
            return found
        return *found, *streamed(self.part_of, precision, ("fill", 0, 1)), *streamed(n, precision, ("copy", 1, 1))

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return *kernels*, or TensorFlow's formula."""
        if framework != "tensorflow" or self.function not in ("gelu", "dropout"):
            return kernels
        return as_formula(self.function, self.elements, phase, precision)

    def host_calls(self, phase: Phase) -> int:
        # TorchScript fuses dropout_add but spends the host time of both operators.
        return 2 if self.function == "dropout_add" else 1

    @property
    def saved(self) -> tuple[Saved, ...]:
        return next((tuple(kept) for kept, names in _TORCH["saved"] if self.function in names), ("inputs",))

    @property
    def passes_gradient(self) -> bool:
        return self.function in _TORCH["passed"]

    def scratch_bytes(self, element_bytes: int) -> int:
        # Of the power, from which a gradient is computed in several steps.
        return self.elements * element_bytes if self.function == "pow_scalar" else 0

    def saved_bytes(self, element_bytes: int) -> int:
        return self.elements if self.function in DROPS else 0  # a mask

    def read_elements(self, position: int, n_inputs: int, whole: int) -> int:
        return min(whole, self.part_of or self.elements)
