"""The cost of issuing work, on device and host, and latencies of a core: arithmetic, branches, locks."""

from simulator.devices import dispatch
from simulator.devices.cpu import Cpu
from simulator.devices.predict import Device, operator_costs
from simulator.errors import InputError, stated
from simulator.host.answer import HostTime
from simulator.network.machine import Machine
from simulator.questions.single import CoreQuestion, LaunchQuestion
from simulator.records import own_data
from simulator.topology.parts import CpuPart
from simulator.units import format_duration
from simulator.workload.operators import Phase


def launch_answer(question: LaunchQuestion, device: Device) -> HostTime:
    """Return the time of a launch and its bound; raises InputError where *question* does not apply to *device*."""
    time_s = _call_s(question, device) if question.call else _launch_s(question, device)
    if question.call:
        return HostTime(time_s, "a call", "the host's call")
    if question.timed == "host" or question.operator is None:
        return HostTime(time_s, "a call", "the host, which issues")
    kernels_s = launch_kernels_s(question, device)
    said = (f"the kernels themselves take {format_duration(kernels_s, 3)}",)
    figures = {"kernels_s": kernels_s}
    return HostTime(time_s, "a launch", "kernels" if 2.0 * kernels_s > time_s else "issuing", said, figures)


def _launch_s(question: LaunchQuestion, device: Device) -> float:
    timed, on_cpu = question.timed, isinstance(device, Cpu)
    if question.operator is None:
        if not question.parameters:
            raise InputError("what is launched is not said; write for example op=elementwise,function=relu,elements=64")
        if on_cpu:
            raise InputError("the host's part of an update, of a CPU")
        return dispatch.host_time(device, "update_s", question.parameters)
    if question.kernels:
        if on_cpu:
            raise InputError("a CPU has no graphs")
        launched_s = dispatch.graph_launch_time(device)
        if timed == "host":
            return launched_s
        kernels_s = launch_kernels_s(question, device)
        return launched_s + kernels_s if timed == "device" else max(launched_s, kernels_s)
    if isinstance(device, Cpu):  # which is its own host
        if not question.is_taped:
            return dispatch.cpu_call_time(device) + _kernels_s(question, device)
        issued = ((dispatch.cpu_dispatch_time(device, phase), phase) for phase in question.phases)
        return sum(issued_s + _kernels_s(question, device, phase) for issued_s, phase in issued)
    if timed == "host":
        of, is_taped = question.operator, question.is_taped
        issued_s = sum(dispatch.dispatch_time(device, of, phase, is_taped=is_taped) for phase in question.phases)
        return issued_s + dispatch.host_time(device, "gradient_s", question.parameters)
    kernels_s = launch_kernels_s(question, device)
    if timed == "stream":
        return max(dispatch.dispatch_time(device, question.operator, "fwd", is_taped=question.is_taped), kernels_s)
    return dispatch.stays(device, kernels_s) if timed == "staying" else kernels_s


def _call_s(question: LaunchQuestion, device: Device) -> float:
    """Return the seconds of a call that runs no operator; raises InputError where it does not apply to the device."""
    if question.operator is not None:
        raise InputError(f"call={question.call} runs no operator; leave op away")
    costs, call = device.constants["front_ends"], question.call
    if isinstance(device, Cpu):
        if call in ("view", "read"):
            return dispatch.cpu_call_time(device)
        raise InputError(f"call={call}: a CPU has no streams")
    if call == "read":
        return dispatch.bare_launch_time(device) + device.constants["copying"].engine_s + costs.wait_s
    if call == "empty":
        return dispatch.bare_launch_time(device) + (costs.wait_s if question.timed == "device" else 0.0)
    return costs.wait_s if call == "wait" else costs.call_s


def launch_kernels_s(question: LaunchQuestion, device: Device) -> float:
    """Return the seconds of the kernels alone, with free issuing; raises InputError where only the host is timed."""
    if question.timed == "host" or question.operator is None or question.call:
        raise InputError("the host's part has no kernels")
    kernel_s = _kernels_s(question, device)
    if question.kernels and not isinstance(device, Cpu):  # of a graph, the first of which starts like a single one
        return kernel_s + (question.kernels - 1) * dispatch.in_graph(device, kernel_s)
    return dispatch.in_graph(device, kernel_s) if question.timed == "graph" else kernel_s


def _kernels_s(question: LaunchQuestion, device: Device, phase: Phase = "fwd") -> float:
    assert question.operator is not None
    return sum(cost.time_s for cost in operator_costs(device, question.operator, phase, question.precision))


def core_answer(question: CoreQuestion, machine: Machine) -> HostTime:
    """Return *question*'s time on the first CPU or ``device``; raises InputError without it, its latency or a count."""
    cpus = [node for node in machine.nodes if isinstance(node.part, CpuPart)]
    named = [node for node in cpus if question.device in (None, "cpu", node.name, node.part_name)]
    if not named:
        raise InputError(f"{machine.name} has no CPU of that name: {question.device or 'none at all'}")
    part = named[0].part
    assert isinstance(part, CpuPart)
    known = ", ".join(part.core_latency) or "none"
    lacks = f"the part has no core_latency of {question.operation}; it has {known}"
    each_s = stated(part.core_latency.get(question.operation), lacks)
    if question.count < 1:
        raise InputError(f"count is at least 1; got {question.count}")
    does = own_data("simulator.host", "reads.yaml")["a core"][question.operation]
    why = (f"{does}: {format_duration(each_s, 3)}",)
    return HostTime(question.count * each_s, "all of it" if question.count > 1 else "an operation", "the core", why)
