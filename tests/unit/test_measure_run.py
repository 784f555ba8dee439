"""Runs: everything is measured, results are kept, and missing cases are named."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from validate.machine.measure.timing import FEWEST, Effort

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from validate.machine.measure import bench as benches  # noqa: E402  needs torch
from validate.machine.measure import run as runs  # noqa: E402
from validate.machine.measure.__main__ import main  # noqa: E402
from validate.machine.measure.case import Case, TimedWork, Unavailable  # noqa: E402
from validate.machine.measure.run import Settings, measure  # noqa: E402


def launch_case(name: str, call: Callable[[int], object], needs_bytes: int = 0) -> Case:
    return Case("launch.csv", {"metric": name, "mode": "m"}, lambda _: TimedWork(call), needs_bytes)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Case]]:
    """Return the cases by group, in place of the real ones."""
    made: dict[str, list[Case]] = {}

    def cases_of(name: str, bench: Any) -> Iterator[Case]:
        del bench
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
    assert measure(Settings(tmp_path, ("launch", "ops"), "cpu", effort=FAST), said.append) == 0
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
    assert measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None) == 0
    assert [row["metric"] for row in measured(tmp_path)] == ["good"]
    left = {row["case"].split()[0]: row["reason"] for row in record(tmp_path)["left"]}
    assert left["bad"].startswith("RuntimeError: not implemented")
    assert left["large"] == "out of memory"
    assert left["larger"].startswith("needs 1.15e+09 GB of memory")


def test_a_step_over_more_ranks_that_fails_is_told_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cases are those of steps, whose group is another."""

    def fail(*_: object) -> None:
        raise ValueError("no such step")

    monkeypatch.setattr("validate.machine.measure.cases.steps.make_step", fail)
    scaled = {"model": "resnet50", "batch": 1, "gpus": [1], "precision": "fp32", "bucket_bytes": 0, "parallel": ["dp"]}
    (tmp_path / "scaling.json").write_text(json.dumps({"schema_version": 1, **scaled}))
    said: list[str] = []
    assert measure(Settings(tmp_path, ("scaling",), "cpu", effort=FAST), said.append) == 0
    assert [row["group"] for row in record(tmp_path)["left"]] == ["scaling"]
    assert said[-1].endswith("1 x ValueError: no such step")


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
    assert measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None) == status
    assert [row["metric"] for row in measured(tmp_path)] == ["one"]
    found = record(tmp_path)
    assert not found["finished"]
    assert found["end"].startswith(end)
    # A case that was running when the run ended is listed too.
    assert {row["case"].split()[0] for row in found["left"]} == {"two", "three"}


def test_a_device_that_computes_no_more_ends_the_run(
    tmp_path: Path, groups: dict[str, list[Case]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the first error is called."""

    def fail(_: int) -> None:
        raise RuntimeError("cuDNN error: something new")

    monkeypatch.setattr(benches.Bench, "alive", lambda _: False)
    groups["launch"] = [launch_case("one", fail), launch_case("two", lambda _: None)]
    assert measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None) == 1
    assert record(tmp_path)["end"] == "the device is lost: RuntimeError: cuDNN error: something new"
    assert len(record(tmp_path)["left"]) == 2


def test_a_full_disk_in_mid_run(tmp_path: Path, groups: dict[str, list[Case]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that does not fit is not written in part; the reason is reported."""
    real = os.fsync
    calls = itertools.count()

    def fsync(number: int) -> None:
        if next(calls) == 2:  # the record at the start and the first row succeed, then the disk is full
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    groups["launch"] = [launch_case(name, lambda _: None) for name in ("one", "two", "three")]
    said: list[str] = []
    assert measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), said.append) == 1
    assert [row["metric"] for row in measured(tmp_path)] == ["one"]
    assert "ended: the disk is full" in said
    assert {row["case"].split()[0] for row in record(tmp_path)["left"]} == {"two", "three"}


def test_room_for_the_record_is_kept(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    """On a full disk the missing cases are still named; the reserve leaves no file."""
    groups["launch"] = [launch_case("one", lambda _: None)]
    measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    assert not list(tmp_path.glob(".reserve*"))


def test_a_gpu_that_torch_cannot_use_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "_gpu_is_there", lambda: True)
    with pytest.raises(ValueError, match=r"a GPU is here that this torch .* cannot use; --device cpu"):
        measure(Settings(tmp_path), lambda _: None)
    assert benches.open_bench("cpu", tmp_path).name


def test_a_device_that_cannot_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any) -> None:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might")

    monkeypatch.setattr(runs, "open_bench", busy)
    with pytest.raises(ValueError, match=r"the device cannot be used: CUDA error: .*unavailable CUDA kernel"):
        measure(Settings(tmp_path), lambda _: None)


def test_rows_of_another_number_of_threads_do_not_mix(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    groups["launch"] = [launch_case("one", lambda _: None)]
    measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.raises(ValueError, match=f"with threads {before}, and here it is {before + 1}"):
            measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    finally:
        torch.set_num_threads(before)


def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    calls: list[str] = []

    def work(name: str) -> Case:
        return launch_case(name, lambda _: calls.append(name))

    groups["launch"] = [work("one")]
    measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    calls.clear()
    groups["launch"] = [work("one"), work("two")]
    measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    assert set(calls) == {"two"}
    assert [row["metric"] for row in measured(tmp_path)] == ["one", "two"]
    assert record(tmp_path)["rows"] == {"launch.csv": 2}


def test_a_folder_keeps_the_name_of_its_machine(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    groups["launch"] = [launch_case("one", lambda _: None)]
    measure(Settings(tmp_path, ("launch",), "cpu", machine="mine", effort=FAST), lambda _: None)
    measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    assert record(tmp_path)["machine"] == "mine"
    with pytest.raises(ValueError, match="holds rows of machine mine"):
        measure(Settings(tmp_path, ("launch",), "cpu", machine="yours", effort=FAST), lambda _: None)


def test_measurements_of_another_machine_are_not_added_to(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    groups["launch"] = [launch_case("one", lambda _: None)]
    measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    path = tmp_path / "run.json"
    before = record(tmp_path)
    before["environment"]["torch"] = "1.0"
    path.write_text(json.dumps(before))
    with pytest.raises(ValueError, match=r"holds measurements with torch 1\.0, and here it is"):
        measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    path.write_text("[]")
    with pytest.raises(ValueError, match="is not a record of a run"):
        measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is not a record of a run"):
        measure(Settings(tmp_path, ("launch",), "cpu", effort=FAST), lambda _: None)


def test_a_budget_is_shared_and_kept(tmp_path: Path, groups: dict[str, list[Case]]) -> None:
    """Two groups that could each fill the time both get their share."""

    def many(group: str) -> list[Case]:
        return [
            Case(
                "launch.csv",
                {"metric": f"{group} {i}", "mode": "m"},
                lambda _: TimedWork(lambda _: time.sleep(2e-3)),
            )
            for i in range(2000)
        ]

    groups["launch"], groups["ops"] = many("launch"), many("ops")
    assert measure(Settings(tmp_path, ("launch", "ops"), "cpu", 1.5, effort=FAST), lambda _: None) == 0
    counts = {name: sum(row["metric"].startswith(name) for row in measured(tmp_path)) for name in groups}
    assert counts["ops"] > 4 * counts["launch"] > 0  # shares of 50 and 3
    found = record(tmp_path)
    assert found["end"] == "no time left in the budget"
    assert not found["finished"]
    assert len(found["left"]) + len(measured(tmp_path)) == 4000


def test_unknown_groups_and_devices_are_refused_before_anything(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no group 'op'; there is asked, strategies, scaling, launch, clocks, ops"):
        measure(Settings(tmp_path / "a", ("op",)), lambda _: None)
    with pytest.raises(ValueError, match="no device 'cuda:7' here; there is cpu"):
        measure(Settings(tmp_path / "a", device="cuda:7"), lambda _: None)
    with pytest.raises(ValueError, match="--only: collectives: collectives are measured between GPUs"):
        measure(Settings(tmp_path / "b", ("collectives",), "cpu"), lambda _: None)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--minutes 1", "--minutes: is of a certificate; add --certificate"),
        ("--asked steps", "--asked: is of a certificate; add --certificate"),
        ("--only ops --precision amp-bf16", "--precision: is of the step of --workload; add --workload and --gpus"),
        ("--gpus 2 --batch 8", "--batch: is of the step of --workload; add --workload and --gpus"),
        ("--certificate --parallel fsdp", "--parallel: a certificate measures the same everywhere"),
        ("--certificate --within 5%", "--within: a certificate measures the same everywhere"),
    ],
)
def test_an_option_that_nothing_reads_is_refused(words: str, said: str, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path / "m"), *words.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_real_run_with_its_rows_kept(name: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "validate.measure", "--out", str(tmp_path), "--only", "ops", "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore interrupts, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  no threads here
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


def test_captured_graphs_fall_back_to_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that cannot be captured is timed as it is issued, and the row says so."""

    class Queue:
        def __init__(self, bench: Any) -> None:
            del bench

        def sample(self, call: Callable[[int], object], calls: int) -> float:
            del call
            return 2e-3 * calls

    class Graph:
        def __init__(self, look: Any) -> None:
            del look

        def sample(self, call: Callable[[int], object], calls: int) -> float:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(runs, "GraphStopwatch", Graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(benches.Bench, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(runs, "QueuedStopwatch", Queue)
    bench = benches.Bench(torch.device("cpu"), "d", 1 << 30, 1 << 20, tmp_path)
    this = runs._Run(Settings(tmp_path, effort=FAST), bench, {}, print, float("inf"))
    interval, issue = runs._time(this, TimedWork(lambda _: None, "graph"))
    assert interval.median == pytest.approx(2e-3)
    assert issue == "queued"
