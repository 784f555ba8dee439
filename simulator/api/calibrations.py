"""Calibrations, files of one device's measured constants; kernels of a step, and passes that are no layers."""

from collections.abc import Iterator, Mapping
from functools import cache

from simulator.api.session import Session
from simulator.constants import DEFAULT
from simulator.devices.calibration_file import Certificate, load_calibration, read_calibration
from simulator.devices.dispatch import HOST_TIMES
from simulator.devices.neighbours import kernel_axes, left_out_errors, places_of, sizes_of, variety_of
from simulator.devices.optimizer import optimizer_kernels
from simulator.devices.predict import kernel_cost, looped_device
from simulator.questions.calibration import Calibration, Shape
from simulator.questions.options import Optimizer, StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, replace
from simulator.step.lowering import KernelRun, Lowering
from simulator.step.operator import operator_kernels
from simulator.workload.backward import backward_steps
from simulator.workload.kernels import Kernel, Streaming, kernel_class
from simulator.workload.network import Layer, Network
from simulator.workload.operator import Elements
from simulator.workload.operators import Phase
from simulator.workload.precision import ELEMENT_BYTES, Precision

__all__ = ["Calibration", "Certificate", "host_constants", "left_out_errors", "load_calibration"]
__all__ += ["places_of", "read_calibration", "sizes_of"]


def host_constants() -> Mapping[str, float]:
    """Return the launch-cost constants that hold for any host, in seconds by name."""
    costs = DEFAULT["dispatch"]
    return {name: getattr(costs, name) for name in HOST_TIMES}


@dataclass(frozen=True, slots=True)
class StepPass(Elements):
    """Passes over ``elements`` elements that a step has besides its layers: casts, mixed sums, updates."""

    saved = ()
    elements: int
    passes: tuple[Streaming, ...]

    def forward_kernels(self, _: Precision) -> tuple[Streaming, ...]:
        """Return its passes, whose bytes say the formats."""
        return self.passes

    def input_gradients(self, _: Precision) -> tuple[Streaming, ...]:
        """Return none: a step has each of them once."""
        return ()


def update_pass(rule: Optimizer, elements: int, precision: Precision, *, fused: bool) -> StepPass:
    """Return PyTorch's step of *elements* parameters in *precision*; *fused*: one kernel for lists of tensors."""
    kernels = optimizer_kernels(rule, elements, ELEMENT_BYTES[precision], fused=fused)
    return StepPass(elements, tuple(replace(kernel, form="tensors") if fused else kernel for kernel in kernels))


@dataclass(frozen=True, slots=True)
class StepKernel:
    """A kernel of a step: its seconds, and its place among measured kernels, if its class has any."""

    kernel: Kernel
    time_s: float
    variety: str
    shape: Shape

    @property
    def mechanism(self) -> str:
        """What repeats: its variety and, of a pass over memory, its function and the bytes of an element each way."""
        kernel = self.kernel
        if not isinstance(kernel, Streaming) or not kernel.elements:
            return self.variety
        ways = (round(n / kernel.elements) for n in (kernel.read_bytes, kernel.written_bytes))
        return f"{self.variety} {kernel.function.removesuffix('_scalar')} {'+'.join(map(str, ways))}"


def step_kernels(session: Session, at: tuple[Where, str], network: Network, how: StepOptions) -> Iterator[StepKernel]:
    """Yield a step's kernels of *network* on the device *at*, not fused; raises InputError if a figure is lacking."""
    device = session.device(*at)
    lowering, backward = Lowering(device, network, how), list(backward_steps(network))
    passes: list[tuple[Layer, Phase]] = [(layer, "fwd") for layer in network.layers]
    runs: list[KernelRun] = []
    for layer, phase in [*passes, *((step.layer, step.phase) for step in backward)]:
        runs += lowering.layer(layer.operator, phase, lowering.mix(layer), has_parameters=bool(layer.parameters))
        runs += lowering.casts(layer, forward=phase == "fwd")
    runs += [lowering.added(elements, step.layer) for step in backward for elements in step.added_elements]
    runs += [run for _, run in lowering.update()]
    placed = cache(lambda run: _placed(run.kernel, run.cost(device).time_s))  # blocks repeat
    yield from map(placed, runs)


def kernel_classes(question: object) -> frozenset[str]:
    """Return the kernel classes of an operator, named as in calibrations."""
    assert isinstance(question, OperatorQuestion)
    return frozenset(map(kernel_class, operator_kernels(question)))


def kernel_shapes(session: Session, question: object) -> list[tuple[str, Shape, float]]:
    """Return the variety, shape and seconds of each kernel of an operator; raises InputError."""
    assert isinstance(question, OperatorQuestion)
    device = session.device(question.where, question.device, question.threads)
    if question.issued == "stream":
        device = looped_device(device)
    cold = 1.0 if question.is_cold else 0.0
    kernels = operator_kernels(question)
    return [(variety_of(k), kernel_axes(k), kernel_cost(device, k, cold).time_s) for k in kernels]


def longest_kernel(session: Session, question: OperatorQuestion) -> StepKernel:
    """Return the longest kernel of an operator; raises InputError if it has none, or the device cannot run it."""
    device = session.device(question.where, question.device, question.threads)
    costs = [(kernel, kernel_cost(device, kernel).time_s) for kernel in operator_kernels(question)]
    return _placed(*max(costs, key=lambda each: each[1]))


def _placed(kernel: Kernel, time_s: float) -> StepKernel:
    place = (variety_of(kernel), kernel_axes(kernel)) if kernel.axes else ("", ())
    return StepKernel(kernel, time_s, *place)
