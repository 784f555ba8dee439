"""Accesses to a device's memory: passes, picks of rows, and loads that wait for each other."""

from __future__ import annotations

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.predict import cpu_call_time
from simulator.devices.issuing import in_graph
from simulator.devices.kernels import Gather, Kernel, Streaming
from simulator.devices.predict import Device, kernel_cost
from simulator.errors import InputError
from simulator.questions.access import AccessQuestion
from simulator.topology.parts import CpuPart, Part

__all__ = ["access_bound_s", "access_s", "chase_latency"]

_FUNCTIONS = {(1, 0): "sum", (2, 0): "sum", (0, 1): "fill", (1, 1): "copy", (2, 1): "add"}
_FLOAT_BYTES = 4


def access_s(question: AccessQuestion, device: Device, part: Part) -> float:
    """Return the seconds of what *question* asks of *device*, which is of *part*; raises InputError."""
    if question.kind == "chase":
        if not isinstance(part, CpuPart):
            raise InputError("the parts of GPUs have no latencies of their caches and memory")
        return chase_latency(part, question.size_bytes)
    time_s = kernel_cost(device, _kernel(question)).time_s
    if isinstance(device, Cpu):
        return cpu_call_time(device) + time_s
    return in_graph(device, time_s) if question.in_graph else time_s


def access_bound_s(question: AccessQuestion, device: Device) -> float:
    """Return the bytes over the nominal rate of memory; raises InputError where there is none."""
    if question.kind == "chase":
        raise InputError("a latency has no rate")
    moved = 2.0 * question.rows * question.row_bytes if question.kind == "gather" else question.size_bytes
    return moved / (device.memory_bandwidth_Bps * (device.sockets if isinstance(device, Cpu) else 1))


def _kernel(question: AccessQuestion) -> Kernel:
    if question.kind == "gather":
        table_rows = int(question.size_bytes / question.row_bytes)
        return Gather("fwd", question.rows, question.row_bytes // _FLOAT_BYTES, table_rows, "fp32")
    arrays = question.reads, question.writes
    if arrays not in _FUNCTIONS:
        raise InputError(f"no pass reads {question.reads} arrays and writes {question.writes}; 1 and 1, 2 and 1, ...")
    each = question.size_bytes / sum(arrays)
    elements = max(1, int(each / question.element_bytes))
    return Streaming(_FUNCTIONS[arrays], elements, int(each * question.reads), int(each * question.writes))


def chase_latency(part: CpuPart, working_set_bytes: float) -> float:
    """Return the mean latency of loads that go through *working_set_bytes* in no order, by one core, in seconds.

    Each level holds as large a share of the set as it is large; translations of addresses are left out.  Raises
    InputError where the set goes beyond the caches and the part has no latency of memory.
    """
    latency_s = found = 0.0
    for level in part.caches.values():
        held = min(1.0, level.size / working_set_bytes)
        latency_s += max(0.0, held - found) * level.latency
        found = max(found, held)
    if found < 1.0:
        if part.memory_latency is None:
            raise InputError("the part has no memory_latency")
        latency_s += (1.0 - found) * part.memory_latency
    return latency_s
