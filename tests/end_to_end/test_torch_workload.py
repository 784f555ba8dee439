"""``simulate --workload torch:...`` on a user's file in the current directory, run as a process."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

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


def simulate(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the command like its console script, without the current directory on the path."""
    (directory / "models.py").write_text(MODELS, encoding="utf-8")
    root = Path(__file__).parents[2]
    code = (
        f"import sys; sys.path[:] = [{str(root)!r}, *(p for p in sys.path if p)]; "
        "from simulator.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "--topology", "p3.2xlarge.yaml", *args]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_a_module_in_the_current_directory_is_simulated_and_its_gradients_exchanged(tmp_path: Path) -> None:
    done = simulate(tmp_path, "--workload", "torch:models:words", "--batch", "8", "--seq-len", "32", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["step_time_s"] > 0
    assert "building" in done.stderr
    exchange = simulate(tmp_path, "--workload", "torch:models:words", "--strategy", "ring", "--json")
    assert json.loads(exchange.stdout)["results"][0]["bytes"] == 4 * document["parameter_count"]


def test_inference_is_shorter_than_training(tmp_path: Path) -> None:
    options = ["--workload", "torch:models:words", "--batch", "64", "--seq-len", "512", "--json"]
    training, inference = (simulate(tmp_path, *options, *mode) for mode in ([], ["--mode", "inference"]))
    assert training.returncode == inference.returncode == 0, inference.stderr
    times = [json.loads(done.stdout)["step_time_s"] for done in (training, inference)]
    assert 0 < times[1] < 0.5 * times[0]


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--workload", "torch:models:wrong", "--batch", "2"], 2, "the forward pass failed in 1: RuntimeError"),
        (["--workload", "torch:model:words", "--batch", "2"], 2, "no module 'model'; did you mean 'models'?"),
        (["--workload", "torch:models:words", "--mode", "inference"], 2, "is about a step of a network; add --batch"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_status_2(tmp_path: Path, args: list[str], status: int, words: str) -> None:
    done = simulate(tmp_path, *args)
    assert done.returncode == status
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
