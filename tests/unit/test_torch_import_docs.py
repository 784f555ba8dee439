"""docs/torch.md: its commands trace its module."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from simulator.cli import run

pytestmark = pytest.mark.torch
if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed: pip install -e '.[torch]'", allow_module_level=True)

TEXT = (Path(__file__).parents[2] / "docs" / "torch.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^simulate (.*)$", TEXT, re.MULTILINE)
(MODELS,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 3


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "torchvision" in command and importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "models", raising=False)
    assert run(command.split()) == 0, capsys.readouterr().err
    assert "training step of " in capsys.readouterr().out
