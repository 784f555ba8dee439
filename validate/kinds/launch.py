"""Tables of launches: what they cost on the device by the way of launching, and on the host by the launched work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from simulator.errors import one_line
from simulator.package_data import own_data
from simulator.questions.single import Call, Launched, LaunchQuestion
from simulator.records import replace
from simulator.topology.parts import CpuPart
from simulator.workload import operators as ops
from validate.kinds.kind import Cell, RowQuestion, kind_of
from validate.kinds.timing import between_events
from validate.tables.cells import NotScored, measured_s
from validate.tables.names import RowNames


def _operators(which: str) -> dict[str, ops.Operator]:
    every = own_data("validate.kinds", "words.yaml")[which].items()
    return {name: getattr(ops, said[0])(*said[1:]) for name, said in every}


_CALLS: Mapping[str, tuple[Call, Launched]] = own_data("validate.kinds", "words.yaml")["calls"]
_SMALL, _ALONE, _LAYERS = map(_operators, ("small", "alone", "layers"))
_PARAMETERS: Mapping[str, int] = own_data("validate.kinds", "words.yaml")["parameters of layers"]
_OPTIMISED = 64  # parameters of the measured optimisers
_FLOOR = ops.Elementwise("mul_scalar", (64 << 10) // 16)  # fp64, 64 KiB read and written
_CAPTURED = ops.Elementwise("relu", 64)
_CASTS = (ops.Elementwise("cast", 16 * 16), ops.Elementwise("cast", 16))  # under autocast: of the weight and the bias
_LAYER = re.compile(r"host time of ([\w ]+), forward(, recorded| and backward)")
_GRAPH = re.compile(r"(host time|time) of a graph of (\d{1,6}) kernels?", re.ASCII)
_LEAST = re.compile(r"min measured (\w+) latency \(cudaEvent around one PyTorch op\)")
_Said = dict[str, Any]  # fields of the question


def read_launch_row(cell: Cell, names: RowNames) -> RowQuestion:
    """Return the question that a row asks; raises NotScored if it is not modelled."""
    said, way = _said(cell)
    where, device = names.devices.where(cell("device"))
    question = LaunchQuestion(where=where, device=device, **said)
    layer = _LAYER.match(cell("metric"))
    casts = _CASTS if layer and layer[1].endswith(" under autocast to bf16") else ()
    besides = tuple(replace(question, operator=cast, parameters=0) for cast in casts)
    on_gpu = not isinstance(names.devices.described(cell("device")), CpuPart)
    if way == "alone" and on_gpu and question.operator is not None and not question.kernels and said != _FLOOR_SAID:
        return RowQuestion(question, timing=between_events(device, question.operator, "fwd"))
    return RowQuestion(question, besides)


def _said(cell: Cell) -> tuple[_Said, str]:
    """Return a row's fields and way of launching ("alone": by itself, on GPUs between two events); raises NotScored."""
    metric, mode = cell("metric"), cell("mode")
    layer, least = _LAYER.match(metric), _LEAST.match(metric)
    for found, table in ((layer, _LAYERS), (least, _ALONE)):
        if found and found[1] not in table:
            raise NotScored(f"no model of {one_line(found[0], 50)}")
    if layer:
        said: _Said = {"operator": _LAYERS[layer[1]], "timed": "host", "is_taped": True}
        if "backward" not in layer[2]:
            return said, "host"
        return {**said, "phases": ("fwd", "bwd"), "parameters": _PARAMETERS.get(layer[1], 0)}, "both"
    if graph := _GRAPH.match(metric):
        way = "host" if graph[1] == "host time" else "alone" if "alone" in mode else "graph"
        return {"operator": _CAPTURED, "kernels": int(graph[2]), "timed": _TIMED[way]}, way
    if metric.startswith("per-kernel time floor, 64 KiB SCALE kernel"):
        way = "staying" if "persistent" in mode else _way(mode)
        return {**_FLOOR_SAID, "timed": way if way in ("staying", "graph") else "device"}, way
    if least:
        return {"operator": _ALONE[least[1]], "timed": "device"}, "alone"
    if metric in _CALLS:
        call, timed = _CALLS[metric]
        return {"call": call, "timed": timed}, "host"
    small = next((name for name in _SMALL if metric.removeprefix("host ").startswith(f"time of {name}")), None)
    if small is not None:
        way = "host" if metric.startswith("host") else _way(mode)
        return {"operator": _SMALL[small], "timed": _TIMED[way]}, way
    if metric.startswith("host time of a step of ") and metric.endswith((", foreach", ", fused")):
        return {"parameters": _OPTIMISED, "timed": "host"}, "host"
    raise NotScored(f"no model of {one_line(metric, 50) or 'a launch without a name'}")


_TIMED = {"graph": "graph", "alone": "device", "stream": "stream", "host": "host"}


def _way(mode: str) -> str:
    for word, way in (("graph", "graph"), ("alone", "alone"), ("one after the other", "stream"), ("stream", "stream")):
        if word in mode:
            return way
    raise NotScored(f"no model of launches by {one_line(mode, 40) or 'an unnamed way'}")


_FLOOR_SAID: _Said = {"operator": _FLOOR, "precision": "fp64", "timed": "device"}


def _labels(cell: Cell, _names: RowNames) -> Mapping[str, str]:
    with suppress(NotScored):
        return {"issue": _said(cell)[1]}
    return {}


LAUNCH = kind_of(
    "launch", read=read_launch_row, measured_s=lambda cell, _names: measured_s(cell, None), labelled=_labels
)
