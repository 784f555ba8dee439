"""Tables of launches: what issuing costs, on the device by way of issuing and on the host by what is issued.

Read are the rows that ``validate run`` measures, the floors of small kernels that gpu-benches shows, and
those of single operators of PyTorch between two events.  What an event, a view or a wait costs has no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.predict import cpu_call_time, cpu_dispatch_time
from simulator.devices.dispatch import dispatch_time, gradient_time, graph_launch_time, isolated_time, update_time
from simulator.devices.kernels import Streaming
from simulator.devices.lowering import lower_operator
from simulator.devices.predict import Device, kernel_cost
from simulator.errors import InputError, one_line
from simulator.workload.operators import (
    BatchNorm,
    Conv2d,
    Elementwise,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Phase,
    Pool,
    Recurrent,
    Softmax,
)
from validate.microbench.cells import Cell, measured_s
from validate.microbench.scorer import FunctionScorer
from validate.operators.devices import DeviceBook
from validate.operators.issuing import in_graph
from validate.score.kind import Kind
from validate.score.query import NotScored

__all__ = ["LAUNCH", "LaunchQuery", "launch_scorer", "read_launch"]

Way = Literal["stream", "alone", "graph", "host", "both"]
LAUNCH = Kind(
    name="launch",
    needed=("device", "metric", "mode", "time_s"),
    asked=("device", "metric", "mode", "threads"),
    measured=("time_s",),
    place="device",
    axes=(("issue",), ("device",), ("metric",), ("device", "issue")),
    shown=(("issue",), ("device",)),
    labels=("device", "issue"),
    baseline="kernel",
    baseline_label="kernel",
    legend="kernel: what the kernels take on the device, as if issuing were free",
)
_NUMBERS = 64  # of validate run's small operators
_FLOOR_BYTES = 64 << 10
_PARAMETERS = 64
_SMALL: dict[str, Operator] = {
    "one relu in place": Elementwise("relu", _NUMBERS),
    "one sum of two": Elementwise("add", _NUMBERS, 2),
    "one fill": Elementwise("fill", _NUMBERS),
    "one matrix product": MatMul(_NUMBERS, _NUMBERS, _NUMBERS),
}
# Layers as validate run makes them, and how many parameters each has.
_LAYERS: dict[str, tuple[Operator, int]] = {
    "linear": (Linear(4, 16, 16), 2),
    "conv2d": (Conv2d(2, 4, 4, 8, 8, 3, 3, pad_h=1, pad_w=1), 1),
    "relu": (Elementwise("relu", 64), 0),
    "batch_norm": (BatchNorm(2, 4, 8, 8), 2),
    "layer_norm": (LayerNorm(4, 16), 2),
    "softmax": (Softmax(4, 16), 0),
    "gelu": (Elementwise("gelu", 64), 0),
    "dropout": (Elementwise("dropout", 64), 0),
    "max_pool": (Pool("max", 2, 4, 8, 8, 8, 8, 3, 3), 0),
    "lstm": (Recurrent("lstm", 2, 4, 16, 16), 4),
}
# The shortest of PyTorch's operators between two events, by what published tables call them.
_ALONE: dict[str, Operator] = {
    "bmm": MatMul(1, 1, 1),
    "elementwise": Elementwise("add", 1, 2),
    "linear": Linear(1, 1, 1),
    "ln": LayerNorm(1, 1),
    "softmax": Softmax(1, 1),
    "conv": Conv2d(1, 1, 1, 1, 1, 1, 1),
}
_LAYER = re.compile(r"host time of (\w+), forward(, recorded| and backward)")
_GRAPH = re.compile(r"(host time|time) of a graph of (\d{1,6}) kernels?", re.ASCII)
_LEAST = re.compile(r"min measured (\w+) latency \(cudaEvent around one PyTorch op\)")
_FLOOR = re.compile(r"per-kernel time floor, 64 KiB SCALE kernel")


@dataclass(frozen=True, slots=True)
class LaunchQuery:
    """What is issued, and how.

    ``operator`` by the framework, which keeps its tape where ``is_taped``.  Without one, a captured graph of
    ``count`` small kernels, or, of 0, a kernel of 64 KiB.
    """

    device: str
    way: Way
    operator: Operator | None = None
    count: int = 1
    parameters: int = 0
    is_update: bool = False
    is_taped: bool = False


def read_launch(cell: Cell) -> LaunchQuery:
    """Return what a row asks; raises NotScored where it asks for what has no model."""
    device, metric, mode = cell("device"), cell("metric"), cell("mode")
    for pattern, reader in _READERS:
        found = pattern.match(metric)
        if found:
            return reader(device, found, mode)
    for name, operator in _SMALL.items():
        if metric.startswith(f"time of {name}"):
            return LaunchQuery(device, _way(mode), operator)
        if metric.startswith(f"host time of {name}"):
            return LaunchQuery(device, "host", operator)
    if metric.startswith("host time of a step of ") and "foreach" in metric:
        return LaunchQuery(device, "host", parameters=_PARAMETERS, is_update=True)
    raise NotScored(f"no model of {one_line(metric, 50) or 'a launch without a name'}")


def _way(mode: str) -> Way:
    for word, way in (("graph", "graph"), ("alone", "alone"), ("one after the other", "stream"), ("stream", "stream")):
        if word in mode:
            return way  # type: ignore[return-value]  # the words are those of Way
    raise NotScored(f"no model of launches by {one_line(mode, 40) or 'an unnamed way'}")


def _layer(device: str, found: re.Match[str], mode: str) -> LaunchQuery:
    del mode
    if found[1] not in _LAYERS:
        raise NotScored(f"no model of {one_line(found[0], 50)}")
    operator, parameters = _LAYERS[found[1]]
    return LaunchQuery(
        device, "both" if "backward" in found[2] else "host", operator, parameters=parameters, is_taped=True
    )


def _graph(device: str, found: re.Match[str], mode: str) -> LaunchQuery:
    way: Way = "host" if found[1] == "host time" else "alone" if "alone" in mode else "graph"
    return LaunchQuery(device, way, count=int(found[2]))


def _floor(device: str, found: re.Match[str], mode: str) -> LaunchQuery:
    del found
    if "persistent" in mode:
        raise NotScored("one kernel that stays, and waits for all its blocks")
    return LaunchQuery(device, _way(mode), count=0)


def _least(device: str, found: re.Match[str], mode: str) -> LaunchQuery:
    del mode
    if found[1] not in _ALONE:
        raise NotScored(f"no model of {one_line(found[0], 50)}")
    return LaunchQuery(device, "alone", _ALONE[found[1]])


_READERS: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str], str], LaunchQuery]], ...] = (
    (_LAYER, _layer),
    (_GRAPH, _graph),
    (_FLOOR, _floor),
    (_LEAST, _least),
)


def launch_scorer(book: DeviceBook) -> FunctionScorer:
    """Return the scorer of tables of launches on the devices of *book*."""

    def predict(query: LaunchQuery) -> float:
        device = book.get(query.device)
        try:
            return _time(device, query)
        except InputError as error:
            raise NotScored(one_line(error)) from None

    def kernels(query: LaunchQuery) -> float:
        if query.way in ("host", "both"):
            raise NotScored("the host's part has no kernels")
        return _kernels(book.get(query.device), query, "fwd") * max(1, query.count)

    def labels(cell: Cell) -> dict[str, str]:
        try:
            return {"issue": read_launch(cell).way}
        except NotScored:
            return {}

    needed = tuple(column for column in LAUNCH.needed if column != "device" or book.needs_names)
    return FunctionScorer(
        kind=replace(LAUNCH, needed=needed),
        method="constants of dispatch and of kernels",
        reader=read_launch,
        predict=predict,
        baseline=kernels,
        measured=lambda cell: measured_s(cell, None),
        check_names=book.check_used,
        labelled=labels,
    )


def _time(device: Device, query: LaunchQuery) -> float:
    if query.is_update:
        if isinstance(device, Cpu):
            raise NotScored("the host's part of an update, of a CPU")
        return update_time(device, query.parameters)
    operator = query.operator
    if operator is None:
        if isinstance(device, Cpu):
            raise NotScored("a CPU has no graphs")
        if query.way == "host":
            return graph_launch_time(device)
        kernel_s = _kernels(device, query, "fwd")
        if not query.count:
            return in_graph(device, kernel_s) if query.way == "graph" else kernel_s
        kernels_s = kernel_s + (query.count - 1) * in_graph(device, kernel_s)
        if query.way == "alone":
            return graph_launch_time(device) + kernels_s
        return max(graph_launch_time(device), kernels_s)
    if isinstance(device, Cpu):
        return _on_cpu(device, query)
    host_s = dispatch_time(device, operator, "fwd")
    if query.way == "host":
        return host_s
    if query.way == "both":
        return host_s + dispatch_time(device, operator, "bwd") + gradient_time(device, query.parameters)
    kernels_s = _kernels(device, query, "fwd")
    if query.way == "graph":
        return in_graph(device, kernels_s)
    return isolated_time(device, operator, "fwd", kernels_s) if query.way == "alone" else max(host_s, kernels_s)


def _on_cpu(device: Cpu, query: LaunchQuery) -> float:
    """Return the time of a call where the host is the device: its kernels are in it."""
    if not query.is_taped:
        return cpu_call_time(device) + _kernels(device, query, "fwd")
    phases: tuple[Phase, ...] = ("fwd", "bwd") if query.way == "both" else ("fwd",)
    return sum(cpu_dispatch_time(device, phase) + _kernels(device, query, phase) for phase in phases)


def _kernels(device: Device, query: LaunchQuery, phase: Phase) -> float:
    """Return the seconds of one of what is issued, on the device."""
    if query.operator is not None:
        return sum(kernel_cost(device, kernel).time_s for kernel in lower_operator(query.operator, phase, "fp32"))
    half = _FLOOR_BYTES // 2 if not query.count else 4 * _NUMBERS
    return kernel_cost(device, Streaming("mul_scalar" if not query.count else "relu", half // 8, half, half)).time_s
