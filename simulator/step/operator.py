"""One operator alone on a device: the time of its kernels, depending on how they are issued."""

from collections.abc import Sequence

from simulator.devices.cpu import Cpu
from simulator.devices.dispatch import cpu_call_time, dispatch_time, in_graph
from simulator.devices.predict import Device, kernel_cost, looped_device, roofline_s
from simulator.errors import InputError
from simulator.questions.options import StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.records import replace
from simulator.step.precision import precision_of
from simulator.workload.backward import backward_steps
from simulator.workload.kernels import Kernel, Rowwise, Streaming, kernel_class
from simulator.workload.network import Network, once
from simulator.workload.operators import Convolution, Operator, Phase


def operator_kernels(question: OperatorQuestion) -> Sequence[Kernel]:
    """Return the kernels of *question*; raises InputError if the operator has none in its phase."""
    kernels = question.operator.kernels(question.phase, question.precision)
    kernels = tuple(k.by_index() if isinstance(k, Streaming) else k for k in kernels)  # as eager PyTorch runs it
    if not kernels:
        name = type(question.operator).__name__.lower()
        raise InputError(f"{name} has no kernels in phase {question.phase}")
    if not question.channels_last:
        return kernels
    return [replace(k, channels_last=True) if isinstance(k, Convolution | Rowwise) else k for k in kernels]


def operator_s(question: OperatorQuestion, device: Device) -> float:
    """Return the time of *question* on *device*, in seconds; raises InputError if the device cannot run it."""
    cold = 1.0 if question.is_cold else 0.0
    if question.issued == "stream":
        device = looped_device(device)
    times_s = [kernel_cost(device, kernel, cold).time_s for kernel in operator_kernels(question)]
    if isinstance(device, Cpu):
        return (cpu_call_time(device) if question.calls else 0.0) + sum(times_s)
    if question.issued == "graph":
        return sum(in_graph(device, time_s) for time_s in times_s)
    if question.issued == "stream":
        return max(sum(times_s), dispatch_time(device, question.operator, question.phase))
    return sum(times_s)


def operator_roofline_s(question: OperatorQuestion, device: Device) -> float:
    """Return the sum of the kernels' roofline times, in seconds; raises as :func:`operator_s`."""
    return sum(roofline_s(device, kernel) for kernel in operator_kernels(question))


@once
def network_kernel_classes(network: Network, *, trains: bool) -> tuple[str, ...]:
    """Return the classes of the kernels of *network*, sorted.  They are the same in each format."""
    asked: set[tuple[Operator, Phase]] = {(layer.operator, "fwd") for layer in network.layers}
    if trains:
        asked |= {(step.layer.operator, step.phase) for step in backward_steps(network)}
    found = {kernel_class(kernel) for operator, phase in asked for kernel in operator.kernels(phase, "fp32")}
    return tuple(sorted(found))


def network_roofline_s(network: Network, options: StepOptions, device: Device) -> float:
    """Return the sum of the roofline times of all kernels in a step of *network*, without the update, in seconds."""
    asked: list[tuple[Operator, Phase]] = []
    if options.mode != "backward":
        asked += [(layer.operator, "fwd") for layer in network.layers]
    if options.mode in ("train", "backward"):
        asked += [(step.layer.operator, step.phase) for step in backward_steps(network)]
    known: dict[tuple[int, Phase], list[float]] = {}  # by identity: blocks repeat
    for operator, phase in asked:
        if (id(operator), phase) not in known:
            kernels = operator.kernels(phase, precision_of(options.precision, operator, device))
            known[id(operator), phase] = [roofline_s(device, kernel) for kernel in kernels]
    return sum(time_s for operator, phase in asked for time_s in known[id(operator), phase])
