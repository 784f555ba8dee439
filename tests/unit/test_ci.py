"""CI's lanes run beside one another, printed whole and in order; the first failure is the run's; nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_configure, pytest_ignore_collect

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")

ROOT = Path(__file__).resolve().parents[2]
HEAD = f"""set -euo pipefail
room=$(mktemp -d -p .)
. {ROOT}/.ci/lanes.sh
trap 'end_lanes' EXIT
trap 'exit 143' TERM
"""


def test_lanes_are_beside_one_another_and_printed_in_order(tmp_path: Path) -> None:
    script = """
    slow() { echo slow begins; until [ -e "$room/quick" ]; do sleep 0.05; done; echo slow ends; return 3; }
    quick() { echo quick; touch "$room/quick"; return 4; }
    well() { echo well; false; echo not reached; }
    lane first slow; lane second quick; lane third well
    status=0; show_lanes || status=$?
    exit "$status"
    """
    done = subprocess.run(
        ["bash", "-c", HEAD + script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 3, done.stderr
    assert [line.strip() for line in done.stdout.splitlines()] == [
        *("== first", "slow begins", "slow ends", "== first failed with status 3"),
        *("== second", "quick", "== second failed with status 4"),
        *("== third", "well", "== third failed with status 1"),
    ]


def test_a_run_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    script = """
    nests() { (sleep 60 & echo $! >deep; wait) & echo $! >child; wait; }
    lane one nests
    show_lanes
    """
    process = subprocess.Popen(["bash", "-c", HEAD + script], cwd=tmp_path, stdout=subprocess.DEVNULL)
    limit = time.monotonic() + 30
    while not ((deep := tmp_path / "deep").is_file() and deep.read_text()) and time.monotonic() < limit:
        time.sleep(0.02)
    started = [int((tmp_path / name).read_text()) for name in ("child", "deep")]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert [pid for pid in started if _runs(pid)] == []


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.is_file() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_files_that_need_an_oracle_are_those_that_wait_for_it() -> None:
    """Those that skip for want of one; a file in neither part, or in both, would run never or twice."""
    skips = '("'.join(("importorskip", "torch"))  # this file itself needs none
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    text = {path: path.read_text(encoding="utf-8") for path in files}
    chosen = {
        which: {path for path in files if not pytest_ignore_collect(path, Chosen(which))}
        for which in ("only", "without")
    }
    assert chosen["only"] | chosen["without"] == set(files)
    assert chosen["only"] & chosen["without"] == set()
    assert {path for path in files if skips in text[path]} - chosen["only"] == set()
    assert ROOT / "tests" / "end_to_end" / "test_pages.py" in chosen["only"]
    assert ROOT / "tests" / "unit" / "test_units.py" in chosen["without"]


def test_a_plain_run_leaves_out_the_files_of_slow_tests_alone() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    left = {path.name for path in files if pytest_ignore_collect(path, Chosen(None, "not slow"))}
    assert {"test_golden.py", "test_adapters.py", "test_docs.py", "test_servers.py"} <= left
    assert not {"test_check.py", "test_imports.py"} & left  # some of their tests are slow
    assert not any(pytest_ignore_collect(path, Chosen(None)) for path in files)


def test_a_slow_test_that_is_named_is_found() -> None:
    quick = Chosen(None, "not slow", "tests/unit/test_check.py::test_of_any_name")
    assert not any(pytest_ignore_collect(path, quick) for path in (ROOT / "tests").rglob("test_*.py"))
    pytest_configure(quick)
    assert quick.option.markexpr == ""
    for said in (("tests",), ("-m", "not slow", "tests/unit/test_check.py::test_of_any_name")):
        other = Chosen(None, "not slow", *said)
        pytest_configure(other)
        assert other.option.markexpr == "not slow"


class Chosen:
    """Options of a run with this ``--oracles`` and ``-m``."""

    def __init__(self, which: str | None, marks: str = "", *said: str) -> None:
        self.said = {"--oracles": which, "markexpr": marks}
        self.args, self.invocation_params = said, SimpleNamespace(args=said)
        self.option = SimpleNamespace(markexpr=marks)

    def getoption(self, name: str) -> str | None:
        return self.said[name]
