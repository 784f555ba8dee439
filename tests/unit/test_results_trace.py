"""The trace: slices nest, counters add up to the bytes, and the end is the sync time."""

from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from simulator.api import load_machine
from simulator.results import WORDS
from simulator.results.result import Result
from simulator.results.trace import MAX_ROUNDS, chrome_trace
from simulator.workload import COLLECTIVES
from tests.asked import exchange_on

CASES = {
    "ring": ("p3.16xlarge", "ring", 102_228_128, {}),
    "gather": ("4gpu-pcie", "gpu0", 160e6, {}),
    "on the CPU": ("4gpu-pcie", "cpu", 160e6, {}),
    "tree": ("p3.16xlarge", "tree", 8e6, {}),
    "unfolded": ("p3.16xlarge", "ring", 1e6, {"fold": False}),
    "gather of parts": ("4gpu-pcie", "ring", 4e6, {"collective": "all-gather"}),
}


def result_of(case: str) -> Result:
    topology, strategy, size, options = CASES[case]
    return exchange_on(load_machine(topology), strategy, size, **options)


def events_of(result: Result) -> list[dict[str, Any]]:
    data = json.loads(chrome_trace(result), parse_float=Decimal)
    assert set(data) >= {"schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "traceEvents"}
    return data["traceEvents"]


@pytest.mark.parametrize("case", CASES)
def test_slices_of_one_thread_follow_one_another(case: str) -> None:
    threads = defaultdict(list)
    for event in events_of(result_of(case)):
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert threads
    for spans in threads.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("case", CASES)
def test_the_last_slice_ends_at_the_sync_time(case: str) -> None:
    result = result_of(case)
    ends = [e["ts"] + e["dur"] for e in events_of(result) if e["ph"] == "X"]
    flows = [e["ts"] + e["dur"] for e in events_of(result) if e["ph"] == "X" and e["cat"] != "kernel"]
    assert max(ends) == Decimal(round(result.sync_time_s * 1e9)) / 1000
    assert max(flows) == max(ends)


@pytest.mark.parametrize("case", CASES)
def test_the_area_of_each_counter_is_the_bytes_on_the_link(case: str) -> None:
    result = result_of(case)
    counters = defaultdict(list)
    for event in events_of(result):
        if event["ph"] == "C":
            counters[event["name"]].append((float(event["ts"]), float(event["args"]["GB/s"])))
    carried = {f"link {use.name} GB/s": use.bytes for use in result.links[: len(result.timeline.machine.links)]}
    assert set(counters) == {name for name, n_bytes in carried.items() if n_bytes > 0}
    for name, points in counters.items():
        assert points == sorted(points)
        assert points[-1][1] == 0
        area = sum(rate * (then - now) * 1e3 for (now, rate), (then, _) in pairwise(points))
        assert area == pytest.approx(carried[name], rel=1e-3)


def test_each_gpu_is_a_process_and_each_rank_has_the_collective() -> None:
    result = result_of("ring")
    events = events_of(result)
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert {pid: names[pid] for pid in range(8)} == {i: f"gpu{i}" for i in range(8)}
    kernels = [e for e in events if e["ph"] == "X" and e["cat"] == "kernel" and "Rank" in e["args"]]
    assert [k["args"]["Rank"] for k in kernels] == list(range(8))
    assert kernels[0]["name"] == "ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE"
    args = kernels[0]["args"]
    assert args["Collective name"] == "allreduce"
    assert args["In msg nelems"] == args["Out msg nelems"] == 25_557_032
    assert args["Group size"] == 8
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= threads


def test_times_are_microseconds_with_three_decimals() -> None:
    text = chrome_trace(result_of("ring"))
    events = json.loads(text, parse_float=str)["traceEvents"]
    times = [e[key] for e in events for key in ("ts", "dur") if key in e and e["ph"] != "M"]
    assert all(len(str(time).partition(".")[2]) == 3 for time in times)


def test_the_same_result_gives_the_same_trace() -> None:
    assert chrome_trace(result_of("ring")) == chrome_trace(result_of("ring"))


def test_many_rounds_are_drawn_as_one_slice_that_says_how_many() -> None:
    result = exchange_on(load_machine("p3.16xlarge", n_nodes=8), "ring", 64e6)
    drawn = [e for e in events_of(result) if e["ph"] == "X" and "rounds" in e["args"]]
    assert max(e["args"]["rounds"] for e in drawn) > MAX_ROUNDS or len(drawn) < 25_000
    rounds: dict[tuple[int, int, int], int] = defaultdict(int)
    for event in drawn:
        first, _, last = str(event["args"]["round"]).partition(" to ")
        rounds[event["pid"], event["tid"], event["args"]["task"]] += int(last or first) - int(first) + 1
    assert all(count % 1 == 0 for count in rounds.values())
    for event in drawn:
        key = (event["pid"], event["tid"], event["args"]["task"])
        assert rounds[key] % event["args"]["rounds"] == 0


def test_every_collective_has_the_names_of_its_call_and_of_its_kernel() -> None:
    assert WORDS["kineto"].keys() == WORDS["nccl_kernels"].keys() == set(COLLECTIVES)
