"""``simulate --workload torch:...`` on a user's file in the current directory."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli import run

pytestmark = pytest.mark.torch
if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed: pip install -e '.[torch]'", allow_module_level=True)

MODELS = """
import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        print("building")  # must not get into the JSON
        self.embed = nn.Embedding(1000, 64)
        self.body = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.head = nn.Linear(64, 1000)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))


def words(batch, sequence_length=16):
    tokens = torch.zeros(batch, sequence_length, dtype=torch.int64)
    return Words(), tokens, lambda scores: nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def wrong(batch):
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4)), torch.zeros(batch, 4)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the current directory of commands in this process, whose modules one process traces."""
    found = tmp_path_factory.mktemp("here")
    (found / "models.py").write_text(MODELS, encoding="utf-8")
    return found


def simulate(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the command like its console script, without the current directory on the path."""
    root = Path(__file__).parents[2]
    code = (
        f"import sys; sys.path[:] = [{str(root)!r}, *(p for p in sys.path if p)]; "
        "from simulator.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "--topology", "p3.2xlarge.yaml", *args]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_a_module_in_the_current_directory_is_simulated_and_its_gradients_exchanged(folder: Path) -> None:
    done = simulate(folder, "--workload", "torch:models:words", "--batch", "8", "--seq-len", "32", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["step_time_s"] > 0
    assert "building" in done.stderr
    exchange = simulate(folder, "--workload", "torch:models:words", "--strategy", "ring", "--json")
    assert json.loads(exchange.stdout)["results"][0]["bytes"] == 4 * document["parameter_count"]


def test_inference_is_shorter_than_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    options = ["--topology", "p3.2xlarge", "--workload", "torch:models:words", "--batch", "64", "--seq-len", "512"]
    times = []
    for mode in ([], ["--mode", "inference"]):
        assert run([*options, *mode, "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["step_time_s"])
    assert 0 < times[1] < 0.5 * times[0]


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--workload", "torch:models:wrong", "--batch", "2"], 2, "the forward pass failed in 1: RuntimeError"),
        (["--workload", "torch:model:words", "--batch", "2"], 2, "no module 'model'; did you mean 'models'?"),
        (["--workload", "torch:models:words", "--mode", "inference"], 2, "is about a step of a network; add --batch"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_status_2(
    folder: Path,
    args: list[str],
    status: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert run(["--topology", "p3.2xlarge", *args]) == status
    out, err = capfd.readouterr()
    assert words in err
    assert err.count("\n") == 1
    assert out == ""
