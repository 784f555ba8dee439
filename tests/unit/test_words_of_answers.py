"""What an answer says of itself is what its figures say: precision, largest loss, what measured ones took, memory."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.cli import run
from simulator.cli.search_command import _best_verdict
from simulator.search.run import RankedLayout, Ranking

pytestmark = pytest.mark.usefixtures("answered_once")

UNLIKE = """
schema_version: 1
name: unlike
devices:
  gpu0: {part: rtx-4090}
  gpu1: {part: rtx-3090}
  cpu0: {part: generic-server-cpu}
links:
  - {between: ["gpu[0-1]", cpu0], part: pcie4-x8}
"""


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]):
    def answered(words: str, status: int = 0) -> str:
        assert run([*words.split(), "--quiet"]) == status
        return " ".join(capsys.readouterr().out.split())

    return answered


def test_machines_of_unlike_precisions_are_each_told_theirs(said) -> None:
    asked = "--topology p3.16xlarge,dgx-h100 --workload gpt2 --batch 4"
    text = said(asked)
    assert "amp-bf16 on dgx-h100 and amp-fp16 on p3.16xlarge, " in text
    assert "fp32" not in text
    rows = {row["topology"]: row["precision"] for row in json.loads(said(f"{asked} --json"))["results"]}
    assert rows == {"dgx-h100": "amp-bf16", "p3.16xlarge": "amp-fp16"}


def test_unlike_gpus_say_whom_they_wait_for_and_that_samples_can_be_divided(said, tmp_path) -> None:
    path = tmp_path / "unlike.yaml"
    path.write_text(UNLIKE, encoding="utf-8")
    text = said(f"--topology {path} --workload gpt2 --batch 4 --what-if")
    assert "times the work of an average one; 6" in text
    assert "% of the loss is waiting for rtx-3090; communication over PCIe costs 14" in text
    assert text.count("--divide best ") == 2
    assert "--divide best " not in said("--topology 2x-rtx4090-desktop --workload gpt2 --batch 4 --what-if")


def test_a_loss_that_is_not_communication_is_named(said) -> None:
    text = said("--topology dgx-h100 --workload gpt2-xl --batch 4")
    cause = "% of the loss is kernels slowed by the exchange beside them and by copies into buckets"
    assert f"{cause}; communication over NVLink costs 0.0 % of the step (0 s; " in text


def test_an_exchange_outside_its_band_says_that_measured_ones_took_longer(said) -> None:
    words = "--topology dgx-a100-80gb --nodes 4 --fabric 200Gbit/s --workload bytes:100MB --strategy nccl"
    assert "busbw, but measured exchanges of this kind took longer than simulated (80 % band " in said(words)
    text = said("--topology 4x-rtx4090 --workload gnmt --batch 64 --precision tf32")
    assert (
        "expect 19.7 model TFLOP/s per GPU (80 % band 9.57 to 18.4), but measured steps of this kind took longer"
        in text
    )


def _layout(words: str, seconds: float, memory_bytes: float, fits_by_band: bool | None) -> RankedLayout:
    named: Any = SimpleNamespace(layout=SimpleNamespace(words=words), recompute="none", divided=False)
    rates: Any = None
    more = {"band": None, "outside": (), "rates": rates, "width": None, "available_bytes": 25.8e9}
    return RankedLayout(named, seconds, memory_bytes, {"computing": 1.0}, fits_by_band=fits_by_band, **more)


def test_a_layout_that_nearly_fills_the_memory_is_told_the_next_that_does_not() -> None:
    """No error is measured: the tie is that of any model, not of this one's error."""
    full, near = _layout("dp=2", 1.0, 25.6e9, None), _layout("dp=2,zero=1", 1.005, 25.5e9, None)
    safe = _layout("dp=2,fsdp", 1.03, 19.2e9, None)
    line = _best_verdict(Ranking((full, near, safe), 3, {}, 3))[0]
    assert "the next is equal within 1 %; it needs 25.6 GB of 25.8 GB and may run out of memory: " in line
    assert line.endswith("dp=2,fsdp takes 3.0 % more time and needs 19.2 GB")
    assert "run out" not in _best_verdict(Ranking((safe, full), 2, {}, 2))[0]
    assert (
        "run out" in _best_verdict(Ranking((full._replace(memory_bytes=20e9, fits_by_band=False), safe), 2, {}, 2))[0]
    )


def test_recomputation_that_takes_more_memory_says_where(said) -> None:
    asked = "sweep --topology dgx-h100 --workload llama3-8b --seq-len 1024 --batch 1 --parallel fsdp"
    assert " more memory (fragmentation grows by " in said(f"{asked} --over recompute=no,yes --jobs 1")


def test_no_gpu_beyond_ten_times_the_largest_is_proposed(capsys) -> None:
    for batch, proposes in ((1000, True), (100_000_000, False)):
        assert run(["--topology", "dgx-h100", "--workload", "gpt2", "--batch", str(batch), "--quiet"]) == 1
        told = capsys.readouterr()
        assert ("which no GPU of the catalogue has" in told.out + told.err) == proposes
        assert "--batch 53" in told.err
