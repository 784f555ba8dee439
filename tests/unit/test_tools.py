"""Advice names the tools of the GPUs' vendor."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.api import Session
from simulator.api.variants import without_nvlink
from simulator.console.run import run_app
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from simulator.topology.load import load_topology
from tests.nccl_logs import as_log
from validate.check.check import check_log
from validate.cli import app
from validate.importing.nccl_tests import read_nccl_tests
from validate.machine.describe.driver import named_for


@pytest.mark.parametrize(
    ("vendors", "named"),
    [({"nvidia"}, "nvidia-smi topo -m"), ({"amd"}, "rocm-smi --showtopo"), ({"amd", "nvidia"}, "nvidia-smi topo -m")],
)
def test_tools_are_those_of_all_gpus(vendors: set[str], named: str) -> None:
    assert named_for("`nvidia-smi topo -m`: each", vendors) == f"`{named}`: each"


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "foreign"), [("8x-mi300x", "nvidia"), ("dgx-a100-80gb", "amd-smi")])
def test_a_slow_log_is_explained_with_tools_that_are_there(machine: str, foreign: str) -> None:
    session, slow = Session(), Where("slow")
    session.know(slow, without_nvlink(load_topology(machine)))
    sizes = [1 << power for power in range(20, 31, 2)]
    times = [(n, session.time_s(CollectiveQuestion(where=slow, size_bytes=float(n)))) for n in sizes]
    checked = check_log(session, read_nccl_tests(as_log(times, gpu=""), "x.log"), machine)
    said = [text for each in checked.explanations for text in (each.words, each.measure, *each.alike)]
    assert said
    assert not [text for text in said if foreign in text or ("NVLink" in text and machine == "8x-mi300x")]


def test_a_draft_of_amds_gpus_asks_for_amds_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"GPU{i} " + " ".join("X" if i == j else "SYS" for j in range(4)) for i in range(4))
    (tmp_path / "topo.txt").write_text(f"     GPU0 GPU1 GPU2 GPU3\n{rows}\n", encoding="utf-8")
    words = ["describe", "--from", str(tmp_path / "topo.txt"), "--gpu"]
    for gpu, tool in (("mi300x", "amd-smi topology"), ("a100-pcie-80gb", "nvidia-smi topo -p2p r")):
        assert run_app(app, "validate", [*words, gpu]) == 0
        said = capsys.readouterr().err
        assert tool in said
        assert ("nvidia-smi" in said) == (gpu != "mi300x")
