"""Run the commands of docs/first-gpu-run.md, in order, on simulated GPUs: each must start and succeed.

This covers the whole loop without a GPU or root rights: describe, run, compare, calibrate, report.  torch operators
take simulated time, and only a few cases of each group are measured.
"""

from __future__ import annotations

import csv
import gc
import json
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("scipy")
torch = pytest.importorskip("torch")
from simulator.console.run import run_app  # noqa: E402
from tests.clocked_cuda import ClockedBench, clocked_bench  # noqa: E402
from tests.measured_folders import FACTS  # noqa: E402
from validate.cli import app  # noqa: E402
from validate.machine.measure import __main__ as measuring  # noqa: E402
from validate.machine.measure import case, run, timing  # noqa: E402
from validate.machine.measure.case import TimedRun  # noqa: E402
from validate.machine.measure.cases import clocks, copies, memory, steps  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "first-gpu-run.md").read_text(encoding="utf-8")
BLOCKS = [body.splitlines() for body in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]
_FEW = 5  # cases per group
MACHINE = """\
schema_version: 1
name: mine
description: A draft, as validate describe writes it where there is a driver
source: an example
devices:
  {gpus}: {{part: h200-sxm}}
  cpu0: {{part: generic-server-cpu}}
links:
  - {{between: ["{gpus}", cpu0], part: pcie5-x16}}
"""


@pytest.fixture(params=[1, 8])
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int) -> Iterator[Path]:
    """Return a working folder on a machine of *count* simulated H200s."""
    gc.freeze()  # each case collects garbage, and need not look through all that tests have loaded
    bench = clocked_bench(monkeypatch, tmp_path, count)
    clock_kernel = torch.cuda._sleep
    facts = {"device": "nvidia-h200", "torch": "2.13.0", "driver": "570.1", "gpu": FACTS | {"count": count}}
    said = SimpleNamespace(
        name="NVIDIA H200", multi_processor_count=132, total_memory=FACTS["memory_bytes"], major=9, minor=0
    )

    def opened(device: str, scratch: Path) -> ClockedBench:
        assert device in ("", "cuda:0")
        return ClockedBench(bench.device, "nvidia-h200", 1 << 20, 64 << 10, scratch, load_s=0.05)

    def few(name: str, bench: Any) -> Any:
        if name == "storage":  # disks do not use the GPU's clock
            return iter(())
        return islice(case.cases_of(name, bench), _FEW)

    real = timing.Effort

    def effort(**asked: Any) -> timing.Effort:
        return real(**asked | {"sample_s": 1e-6, "warmup_s": 0.0, "longest_s": 0.01, "most_samples": 6})

    def a_step(shape: Any, device: Any, wrap: Any = None) -> TimedRun:
        return TimedRun(lambda: clock_kernel(1.5e7))  # 10 ms

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: said)
    monkeypatch.setattr(run, "open_bench", opened)
    monkeypatch.setattr(run, "environment", lambda bench: facts)
    monkeypatch.setattr(run, "cases_of", few)
    monkeypatch.setattr(timing, "Effort", effort)
    monkeypatch.setattr(steps, "make_step", a_step)
    monkeypatch.setattr(memory, "_GATHERED", 16 << 10)
    monkeypatch.setattr(copies, "_SIZES", (64 << 10, 16 << 10))
    for name in ("_SIDE", "_SMALL_SIDE", "_VECTOR", "_SMALL_VECTOR"):
        monkeypatch.setattr(copies, name, 16)
    for name in ("_SIDE", "_LEAST_SIDE", "_ELEMENTS"):
        monkeypatch.setattr(clocks, name, 16)
    monkeypatch.setattr(copies, "random_bytes", lambda size, *_, **__: torch.ones(size, dtype=torch.uint8))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    gc.unfreeze()


def validate(line: str) -> int:
    words = shlex.split(line, comments=True)
    assert words[0] == "validate"
    return run_app(app, "validate", words[1:])


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_every_line_starts_and_ends_well(machine: Path, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = MACHINE.format(gpus="gpu0" if count == 1 else f"gpu[0-{count - 1}]")
    (machine / "mine.yaml").write_text(drawn, encoding="utf-8")
    for line in BLOCKS[0 if count == 1 else 1]:
        status = 0
        if line.startswith("validate describe"):
            assert validate(line.replace("mine.yaml", "drafted.yaml")) == 0  # describes the real machine
        elif line.startswith("validate"):
            status = validate(line.replace("160MB", "64kB"))
        elif line.startswith("torchrun"):
            words = shlex.split(line)
            begin = words.index("validate.measure") + 1
            status = measuring.main(words[begin:])
        else:
            assert line.startswith("pip install")
        said = capsys.readouterr().err
        if "nccl" in line or (count > 1 and line.startswith("validate run") and "--parallel" in line):
            assert "NCCL" in said  # GPU ranks need NCCL, which CPU builds of torch lack
            continue
        if "compare spread/" in line:
            continue
        assert status == 0, (line, said)
    if count == 1:
        for table in ("launch.csv", "ops.csv", "memory.csv", "copies.csv"):
            assert rows(machine / "first" / table), table
        eager, captured = rows(machine / "own" / "training.csv")
        different = {name for name, value in eager.items() if value != captured[name]}
        assert different & {"dtype", "batch_per_gpu", "model", "optimizer", "issue"} == {"issue"}  # the same step
        assert json.loads((machine / "long" / "run.json").read_text())["finished"]
        assert all((machine / page).read_text().rstrip().endswith("</html>") for page in ("first.html", "long.html"))
    else:
        assert {row["strategy"] for row in rows(machine / "exchanges" / "collectives.csv")} >= {"ring", "gpu0", "cpu"}
