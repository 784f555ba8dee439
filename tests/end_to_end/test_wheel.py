"""The wheel, installed in an environment of its own, answers, draws, measures and checks without a clone.

``.ci/run`` builds it, and names the environment's interpreter in ``TOPOCAST_WHEEL``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.nccl_logs import as_log

PYTHON = os.environ.get("TOPOCAST_WHEEL", "")

pytestmark = [pytest.mark.wheel, pytest.mark.skipif(not PYTHON, reason="TOPOCAST_WHEEL names no interpreter")]

LOG = as_log([(1 << 20, 1e-4), (1 << 24, 4e-4), (1 << 28, 9e-3)])


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command *words* of the wheel in *folder*, which knows nothing of this clone."""
    known = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "TOPOCAST"))}
    command = [str(Path(PYTHON).with_name(words[0])), *words[1:]]
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False, timeout=300)


def test_it_stands_in_its_environment(tmp_path: Path) -> None:
    code = "import reports, simulator, topologies, validate; print(*(m.__path__[0] for m in (reports, validate)))"
    found = ran(tmp_path, "python", "-c", code).stdout.split()
    assert len(found) == 2
    assert all(Path(each).is_relative_to(Path(PYTHON).parents[1]) for each in found)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("simulate --topology dgx-h100 --workload resnet50 --batch 8 --report page.html", 0, "80 % band"),
        ("simulate --topology p3.16xlarge --strategy ring --plot links.svg", 0, "ring"),
        ("simulate scenario one-process-eight-gpus", 0, "One Python process"),
        ("validate check --topology dgx-h100 a.log --report check.html", 3, "is slow"),
        ("validate blind show", 0, "fresh-steps"),
        ("python -m validate.measure --help", 0, "--out"),
    ],
)
def test_its_commands_find_their_files(command: str, status: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG, encoding="utf-8")
    done = ran(tmp_path, *command.split())
    assert done.returncode == status, done.stderr
    assert said in done.stdout
    assert all((tmp_path / name).stat().st_size > 1000 for name in command.split() if name.endswith((".html", ".svg")))
