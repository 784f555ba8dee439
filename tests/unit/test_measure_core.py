"""The measuring loop: intervals, samples, tables that keep what was measured, faults in mid-run."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.measure.statistics import FEWEST, median_interval
from validate.measure.timing import Effort, time_call

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from validate.measure import bench as benches  # noqa: E402  needs torch
from validate.measure import run as runs  # noqa: E402
from validate.measure.case import Case, Unavailable, Work  # noqa: E402
from validate.measure.cases.operators import cases as operator_cases  # noqa: E402
from validate.measure.cases.shapes import Limits, shapes  # noqa: E402
from validate.measure.faults import Fatal, reason_of  # noqa: E402
from validate.measure.groups import GROUPS, Group  # noqa: E402
from validate.measure.run import Settings, run  # noqa: E402
from validate.measure.table import COLUMNS, RowFile, cell_text  # noqa: E402

# -- statistics ------------------------------------------------------------------------


def test_interval_of_few_samples_is_their_range_and_is_not_called_known() -> None:
    found = median_interval([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.relative == float("inf")
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


# Conover's table of the interval of the median: of n samples, the k-th smallest to the k-th greatest.
@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (50, 18), (100, 40)])
def test_interval_lies_between_the_published_ranks(n: int, k: int) -> None:
    found = median_interval(random.Random(n).sample(range(1, n + 1), n))
    assert (found.low, found.high) == (k, n + 1 - k)


def test_interval_holds_the_true_median_in_19_of_20_cases() -> None:
    draw = random.Random(7)
    held = 0
    for _ in range(4000):
        found = median_interval([draw.expovariate(1.0) for _ in range(15)])
        held += found.low <= 0.693147 <= found.high
    assert 0.95 <= held / 4000 < 0.985


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60))
def test_median_lies_within_its_interval(samples: list[float]) -> None:
    found = median_interval(samples)
    assert min(samples) <= found.low <= found.median <= found.high <= max(samples)


# -- timing ----------------------------------------------------------------------------


class Clock:
    """A stopwatch whose calls take what *one_s* says, and count."""

    def __init__(self, one_s: Callable[[int], float]) -> None:
        self.one_s = one_s
        self.asked: list[int] = []

    def sample(self, call: Callable[[int], object], calls: int) -> float:
        for i in range(min(calls, 3)):
            call(i)
        self.asked.append(calls)
        return sum(self.one_s(len(self.asked)) for _ in range(calls))


def test_steady_calls_end_at_the_fewest_samples() -> None:
    clock = Clock(lambda _: 10e-6)
    found = time_call(clock, lambda _: None, Effort(warmup_s=0))
    assert found.median == pytest.approx(10e-6)
    assert found.samples == FEWEST
    assert clock.asked[-1] == 32  # at least 200 us a sample


def test_noisy_calls_are_repeated_until_the_interval_is_narrow() -> None:
    draw = random.Random(3)
    found = time_call(Clock(lambda _: draw.gauss(1e-3, 3e-5)), lambda _: None, Effort(warmup_s=0, longest_s=60))
    assert FEWEST < found.samples < 200
    assert found.relative <= 0.01


def test_calls_that_never_settle_end_with_what_is_known() -> None:
    draw = random.Random(3)
    effort = Effort(warmup_s=0, longest_s=60, most_samples=40)
    found = time_call(Clock(lambda _: draw.uniform(1e-3, 3e-3)), lambda _: None, effort)
    assert found.samples == 40
    assert found.relative > 0.01


def test_calls_alone_are_one_a_sample_and_buffers_have_their_turn() -> None:
    alone = Clock(lambda _: 1e-6)
    time_call(alone, lambda _: None, Effort(warmup_s=0), one_by_one=True)
    assert set(alone.asked) == {1}
    rotating = Clock(lambda _: 1e-3)
    time_call(rotating, lambda _: None, Effort(warmup_s=0), at_least=17)
    assert rotating.asked[-1] == 17


class Device:
    """Calls of *one_s*, slower until the device has worked for *cold_s*; each sample costs *launch_s* besides."""

    def __init__(self, one_s: float, cold_s: float = 0.0, launch_s: float = 0.0, first_s: float = 0.0) -> None:
        self.one_s, self.cold_s, self.launch_s, self.first_s = one_s, cold_s, launch_s, first_s
        self.worked_s = 0.0

    def sample(self, call: Callable[[int], object], calls: int) -> float:
        time.sleep(self.first_s)  # what is built and chosen is no work of the device
        self.first_s = 0.0
        took_s = self.launch_s + calls * self.one_s * (2.0 if self.worked_s < self.cold_s else 1.0)
        self.worked_s += took_s
        return took_s


def test_warm_up_is_work_of_the_device_and_does_not_count() -> None:
    """However long the library takes to choose a kernel."""
    device = Device(1e-3, cold_s=0.04, first_s=0.1)
    found = time_call(device, lambda _: None, Effort(warmup_s=0.05))
    assert found.high == pytest.approx(1e-3)


def test_what_computes_hard_works_until_its_clock_has_settled() -> None:
    found = time_call(Device(1e-3, cold_s=0.14), lambda _: None, Effort(), hard=True)
    assert found.high == pytest.approx(1e-3)
    short = Device(1e-5)
    time_call(short, lambda _: None, Effort(), hard=True)
    assert short.worked_s < 0.1  # no call so short heats a chip


@pytest.mark.parametrize("one_s", [1.6e-6, 4e-6, 20e-6, 100e-6])
def test_a_sample_lasts_long_against_what_it_costs_itself(one_s: float) -> None:
    """The first look holds a launch of 7 us and more; it must not settle how many calls a sample holds."""
    found = time_call(Device(one_s, launch_s=7e-6, first_s=0.06), lambda _: None, Effort())
    assert found.median == pytest.approx(one_s, rel=0.04)


# -- tables ----------------------------------------------------------------------------


def test_rows_are_on_the_disk_at_once_and_found_again(tmp_path: Path) -> None:
    table = RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"])
    table.add({"device": "d", "metric": 'a "b", c', "mode": "m", "time_s": 1.23456789012e-6})
    assert (tmp_path / "launch.csv").read_text().splitlines()[1].startswith('d,"a ""b"", c",m,1.23456789e-06,')
    again = RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"])
    for one in (table, again):
        assert one.holds({"device": "d", "metric": 'a "b", c'})
        assert not one.holds({"device": "d", "metric": "a"})
    again.add({"device": "e", "metric": "x", "mode": "m", "time_s": 1.0})
    assert again.holds({"device": "e", "metric": "x"})
    assert len(RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"])) == 2


def test_a_row_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "launch.csv"
    RowFile(path, COLUMNS["launch.csv"]).add({"device": "d", "metric": "one", "mode": "m", "time_s": 1.0})
    whole = path.read_bytes()
    path.write_bytes(whole + b"d,two,m,0.0")
    table = RowFile(path, COLUMNS["launch.csv"])
    assert len(table) == 1
    assert path.read_bytes() == whole


def test_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"ops\.csv: is a table of other columns"):
        RowFile(tmp_path / "ops.csv", COLUMNS["ops.csv"])
    with pytest.raises(ValueError, match="no column speed"):
        RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"]).add({"speed": 1})


def test_a_full_disk_leaves_the_table_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "launch.csv"
    table = RowFile(path, COLUMNS["launch.csv"])
    table.add({"device": "d", "metric": "one", "mode": "m", "time_s": 1.0})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        table.add({"device": "d", "metric": "two", "mode": "m", "time_s": 1.0})
    assert path.read_bytes() == before
    assert not table.holds({"metric": "two"})


def test_cells() -> None:
    assert [cell_text(v) for v in (None, True, 3, 0.1 + 0.2, "x")] == ["", "1", "3", "0.3", "x"]


# -- faults ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unavailable("no C compiler"), "no C compiler"),
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
        (RuntimeError("\"addmm_impl_cpu_\"  not implemented\nfor 'Half'"), 'RuntimeError: "addmm_impl_cpu_" not '),
        (FileNotFoundError(errno.ENOENT, "No such file"), "No such file"),
        (
            RuntimeError("CUDA error: operation not permitted when stream is capturing"),
            "RuntimeError: CUDA error: oper",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`"),
            "RuntimeError: CUDA er",
        ),
    ],
)
def test_faults_of_one_case_are_named(error: Exception, reason: str) -> None:
    assert reason_of(error).startswith(reason)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Quota exceeded"),
    ],
)
def test_faults_that_end_the_run_are_told_apart(error: Exception) -> None:
    with pytest.raises(Fatal):
        reason_of(error)


# -- runs ------------------------------------------------------------------------------


def launch_case(name: str, call: Callable[[int], object], needs_bytes: int = 0) -> Case:
    return Case("launch", "launch.csv", {"metric": name, "mode": "m"}, lambda _: Work(call), needs_bytes)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Case]]:
    """Cases by group, in place of the real ones."""
    made: dict[str, list[Case]] = {}

    def cases_of(name: str, bench: Any, machine: str) -> Iterator[Case]:
        del bench, machine
        if name not in made:
            raise Unavailable(f"nothing to measure of {name}")
        return iter(made[name])

    monkeypatch.setattr(runs, "cases_of", cases_of)
    return made


FAST = Effort(warmup_s=0, sample_s=1e-6, longest_s=0.05)


def measured(out: Path, table: str = "launch.csv") -> list[dict[str, str]]:
    with (out / table).open(newline="") as file:
        return list(csv.DictReader(file))


def record(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


def test_a_run_measures_all_and_says_so(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    groups["launch"] = [launch_case("one", lambda _: None), launch_case("two", lambda _: time.sleep(1e-4))]
    said: list[str] = []
    assert run(Settings(tmp_path, ("launch", "ops"), "cpu", effort=FAST), said.append) == 0
    rows = measured(tmp_path)
    assert [row["metric"] for row in rows] == ["one", "two"]
    assert float(rows[1]["time_s"]) > 1e-4
    assert int(rows[0]["samples"]) >= FEWEST
    found = record(tmp_path)
    assert found["finished"]
    assert found["rows"] == {"launch.csv": 2}
    assert found["left"] == [{"group": "ops", "case": "", "reason": "nothing to measure of ops"}]
    assert found["environment"]["torch"] == torch.__version__
    assert found["load_at_start"] >= 0
    assert found["load_at_end"] >= 0
    assert any(text.startswith("launch: 2 measured") for text in said)


def test_a_case_that_fails_is_named_and_the_others_go_on(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    def fail(_: int) -> None:
        raise RuntimeError("not implemented for 'Half'")

    def exhaust(_: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    groups["launch"] = [
        launch_case("bad", fail),
        launch_case("large", exhaust),
        launch_case("larger", lambda _: None, needs_bytes=1 << 60),
        launch_case("good", lambda _: None),
    ]
    assert run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None) == 0
    assert [row["metric"] for row in measured(tmp_path)] == ["good"]
    left = {row["case"].split()[0]: row["reason"] for row in record(tmp_path)["left"]}
    assert left["bad"].startswith("RuntimeError: not implemented")
    assert left["large"] == "out of memory"
    assert left["larger"].startswith("needs 1.15e+09 GB of memory")


@pytest.mark.parametrize(
    ("fault", "status", "end"),
    [
        (RuntimeError("CUDA error: unspecified launch failure"), 1, "the device is lost"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "the disk is full"),
    ],
)
def test_what_was_measured_is_kept_and_the_rest_is_named(
    fault: BaseException, status: int, end: str, tmp_path: Path, groups: dict[str, list[Case]]
) -> None:
    def fail(_: int) -> None:
        raise fault

    groups["launch"] = [
        launch_case("one", lambda _: None),
        launch_case("two", fail),
        launch_case("three", lambda _: None),
    ]
    assert run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None) == status
    assert [row["metric"] for row in measured(tmp_path)] == ["one"]
    found = record(tmp_path)
    assert not found["finished"]
    assert found["end"].startswith(end)
    # A case that was under way when the run ended is not lost from the list either.
    assert {row["case"].split()[0] for row in found["left"]} == {"two", "three"}


def test_a_device_that_computes_no_more_ends_the_run(
    tmp_path: Path, groups: dict[str, list[Case]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the first error was called."""

    def fail(_: int) -> None:
        raise RuntimeError("cuDNN error: something new")

    monkeypatch.setattr(benches.Bench, "alive", lambda _: False)
    groups["launch"] = [launch_case("one", fail), launch_case("two", lambda _: None)]
    assert run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None) == 1
    assert record(tmp_path)["end"] == "the device is lost: RuntimeError: cuDNN error: something new"
    assert len(record(tmp_path)["left"]) == 2


def test_a_full_disk_in_mid_run(tmp_path: Path, groups: dict[str, list[Case]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that does not fit is not half there; what it was is said."""
    real = os.fsync
    calls = itertools.count()

    def fsync(number: int) -> None:
        if next(calls) == 2:  # the record at the start, the first row, and then no more room
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    groups["launch"] = [launch_case(name, lambda _: None) for name in ("one", "two", "three")]
    said: list[str] = []
    assert run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), said.append) == 1
    assert [row["metric"] for row in measured(tmp_path)] == ["one"]
    assert "ended: the disk is full" in said
    assert {row["case"].split()[0] for row in record(tmp_path)["left"]} == {"two", "three"}


def test_room_for_the_record_is_kept(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    """On a disk that has become full, what was left out is still named."""
    held: list[int] = []
    reserve = tmp_path / ".reserve"
    groups["launch"] = [launch_case("one", lambda _: held.append(reserve.stat().st_size))]
    run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    assert min(held) >= 512 << 10
    assert not reserve.exists()


def test_a_gpu_that_torch_cannot_use_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "_gpu_is_there", lambda: True)
    with pytest.raises(ValueError, match=r"a GPU is here that this torch .* cannot use; --device cpu"):
        run(Settings(tmp_path), lambda _: None)
    assert benches.open_bench("cpu", tmp_path).name


def test_a_device_that_cannot_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any) -> None:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might")

    monkeypatch.setattr(runs, "open_bench", busy)
    with pytest.raises(ValueError, match=r"the device cannot be used: CUDA error: .*unavailable CUDA kernel"):
        run(Settings(tmp_path), lambda _: None)


def test_rows_of_another_number_of_threads_do_not_mix(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    groups["launch"] = [launch_case("one", lambda _: None)]
    run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.raises(ValueError, match=f"with threads {before}, and here it is {before + 1}"):
            run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    finally:
        torch.set_num_threads(before)


def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    calls: list[str] = []

    def work(name: str) -> Case:
        return launch_case(name, lambda _: calls.append(name))

    groups["launch"] = [work("one")]
    run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    calls.clear()
    groups["launch"] = [work("one"), work("two")]
    run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    assert set(calls) == {"two"}
    assert [row["metric"] for row in measured(tmp_path)] == ["one", "two"]
    assert record(tmp_path)["rows"] == {"launch.csv": 2}


def test_measurements_of_another_machine_are_not_added_to(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    groups["launch"] = [launch_case("one", lambda _: None)]
    run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    path = tmp_path / "run.json"
    before = record(tmp_path)
    before["environment"]["torch"] = "1.0"
    path.write_text(json.dumps(before))
    with pytest.raises(ValueError, match=r"holds measurements with torch 1\.0, and here it is"):
        run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    path.write_text("[]")
    with pytest.raises(ValueError, match="is no record of a run"):
        run(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)


def test_a_budget_is_shared_and_kept(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    """Of two groups that could each fill the time, both get a part by their share."""

    def many(group: str) -> list[Case]:
        return [
            Case(
                group, "launch.csv", {"metric": f"{group} {i}", "mode": "m"}, lambda _: Work(lambda _: time.sleep(2e-3))
            )
            for i in range(2000)
        ]

    groups["launch"], groups["ops"] = many("launch"), many("ops")
    began = time.perf_counter()
    assert run(Settings(tmp_path, ("launch", "ops"), "cpu", 1.5, effort=FAST), lambda _: None) == 0
    assert time.perf_counter() - began < 3
    counts = {name: sum(row["metric"].startswith(name) for row in measured(tmp_path)) for name in groups}
    assert counts["ops"] > 4 * counts["launch"] > 0  # 50 to 3
    found = record(tmp_path)
    assert found["end"] == "no time left in the budget"
    assert not found["finished"]
    assert len(found["left"]) + len(measured(tmp_path)) == 4000


def test_unknown_groups_and_devices_are_refused_before_anything(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no group 'op'; there is launch, ops"):
        run(Settings(tmp_path / "a", ("op",)), lambda _: None)
    with pytest.raises(ValueError, match="no device 'cuda:7' here; there is cpu"):
        run(Settings(tmp_path / "a", device="cuda:7"), lambda _: None)
    with pytest.raises(ValueError, match="--only: collectives: collectives are measured between GPUs"):
        run(Settings(tmp_path / "b", ("collectives",), "cpu"), lambda _: None)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_real_run_with_its_rows_kept(name: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "validate.measure", "--out", str(tmp_path), "--only", "ops", "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (tmp_path / "ops.csv").exists():
        time.sleep(0.05)
    process.send_signal(getattr(signal, name))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    found = record(tmp_path)
    assert found["end"].startswith("interrupted")
    assert len(measured(tmp_path, "ops.csv")) == found["rows"]["ops.csv"] >= 1
    assert len(found["left"]) > 50


# -- what is measured ------------------------------------------------------------------


@pytest.fixture
def cpu_bench(tmp_path: Path) -> benches.Bench:
    return benches.open_bench("cpu", tmp_path)


def test_every_class_of_operator_runs(cpu_bench: benches.Bench) -> None:
    """One case of each operator, phase and way, with caches warm and cold."""
    seen: set[tuple[str, ...]] = set()
    for case in operator_cases(cpu_bench, "m"):
        kind = tuple(str(case.columns.get(name)) for name in ("op", "phase", "cache"))
        if kind in seen or case.needs_bytes > 2e8:
            continue
        seen.add(kind)
        work = case.build(cpu_bench)
        for i in range(min(work.at_least, 3)):
            assert work.call(i) is not None
        assert set(case.columns) <= set(COLUMNS["ops.csv"])
    ops = {op for op, _, _ in seen}
    assert ops >= {"linear", "matmul", "bmm", "conv2d", "layer_norm", "softmax", "elementwise", "batch_norm"}
    assert ops >= {"embedding", "attention", "lstm", "gru"}
    assert {phase for op, phase, _ in seen if op == "conv2d"} == {"fwd", "bwd_data", "bwd_weight"}
    assert {cache for _, _, cache in seen} == {"warm", "cold"}


def test_shapes_are_the_same_everywhere_and_their_beginning_is_a_fair_sample() -> None:
    limits = Limits(1e12, 1e9, ("fp32", "tf32", "fp16", "bf16", "fp8"))
    first = [shape.cells for shape in shapes(limits, 300)]
    assert first == [shape.cells for shape in shapes(limits, 300)]
    assert len({json.dumps(cells, sort_keys=True) for cells in first}) == 300
    beginning = {str(cells["op"]) for cells in first[:40]}
    assert beginning >= {"linear", "conv2d", "bmm", "matmul", "softmax", "layer_norm", "elementwise"}
    assert {str(cells["dtype"]) for cells in first[:60]} >= {"fp32", "tf32", "fp16", "bf16"}
    for shape in shapes(limits, 300):
        assert shape.flop <= 1e12
        assert shape.bytes <= 1e9


def test_a_gpu_is_measured_from_graphs_alone_and_with_cold_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    gpu = benches.Bench(SimpleNamespace(type="cuda"), "gpu", 70 << 30, 50 << 20, Path())
    found = list(operator_cases(gpu, "m"))
    assert {c.columns["dtype"] for c in found} == {"fp32", "tf32", "fp16", "bf16", "fp8"}
    ways = [(c.columns["includes_dispatch"], c.columns["cache"]) for c in found]
    assert min(ways.count(way) for way in ((0, "warm"), (1, "warm"), (0, "cold"))) > 20
    assert max(c.needs_bytes for c in found) < gpu.memory_bytes
    keys = [json.dumps(dict(c.columns), sort_keys=True) for c in found]
    assert len(set(keys)) == len(keys)


def test_all_groups_have_a_module(cpu_bench: benches.Bench) -> None:
    for name, group in GROUPS.items():
        assert isinstance(group, Group)
        try:
            cases = list(itertools.islice(runs.cases_of(name, cpu_bench, "m"), 3))
        except Unavailable:  # one device has no collectives, say
            continue
        for case in cases:
            assert case.group == name
            assert set(case.columns) <= set(COLUMNS[case.table])


def test_sensors_that_are_not_there_say_nothing() -> None:
    from validate.measure.sensors import Readings, Sensors

    sensors = Sensors("")
    sensors.look()
    assert not sensors.there
    assert sensors.take() == Readings()
    assert sensors.limits() == {}


def test_sensors_read_and_never_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a library that answers as NVML does; a function that sets anything is not there."""
    import ctypes

    from validate.measure import sensors as module

    class Nvml:  # its functions have the names that the library gives them
        def nvmlInit_v2(self) -> int:  # noqa: N802
            return 0

        def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
            return 0 if uuid == b"GPU-6f1d" else 6

        def nvmlDeviceGetFieldValues(self, handle: Any, count: int, field: Any) -> int:  # noqa: N802
            assert (count, field._obj.fieldId, ctypes.sizeof(field._obj)) == (1, 186, 40)
            field._obj.value, field._obj.nvmlReturn = self.instant_mw, 0 if self.instant_mw else 3
            return 0

        instant_mw = 0

        def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:  # noqa: N802
            value._obj.value = 651_000
            return 0

        def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, value: Any) -> int:  # noqa: N802
            value._obj.value = {1: 1755, 2: 2619}[kind]
            return 0

        def nvmlDeviceGetTemperature(self, handle: Any, kind: int, value: Any) -> int:  # noqa: N802
            return 3  # not supported

        def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, value: Any) -> int:  # noqa: N802
            value._obj.value = 0x4 | 0x40
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Nvml())
    found = module.Sensors("6f1d")
    assert found.there
    assert not module.Sensors("7f1d").there
    found.look()
    readings = found.take()
    assert (readings.sm_clock_mhz, readings.memory_clock_mhz, readings.power_w) == (1755, 2619, 651)
    assert readings.temperature_c is None
    assert readings.throttled == "hardware thermal; power cap"
    assert found.take().power_w is None
    monkeypatch.setattr(Nvml, "instant_mw", 702_000)
    found._last_s = 0.0
    found.look()
    assert found.take().power_w == 702
    assert found.limits() == {}


def test_captured_graphs_fall_back_to_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that cannot be captured is timed as it is issued, and the row says which it was."""

    class Graph(Clock):
        def __init__(self, look: Any) -> None:
            super().__init__(lambda _: 1e-3)

        def sample(self, call: Callable[[int], object], calls: int) -> float:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(runs, "GraphStopwatch", Graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(benches.Bench, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(runs, "QueuedStopwatch", lambda _: Clock(lambda _: 2e-3))
    bench = benches.Bench(torch.device("cpu"), "d", 1 << 30, 1 << 20, tmp_path)
    this = runs._Run(Settings(tmp_path, effort=FAST), bench, {}, print, time.perf_counter())
    interval, issue = runs._time(this, Work(lambda _: None, "graph"))
    assert interval.median == pytest.approx(2e-3)
    assert issue == "queued"
