"""Streams and disks that are full, faults that look like an interrupt, and names that a terminal would obey."""

from __future__ import annotations

import os
import pstats
import resource
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.console.files import OutputFile
from simulator.console.run import FAILED
from simulator.errors import InputError

_BEST = [
    "best",
    "--topology",
    "p3.16xlarge",
    "--gpus",
    "2",
    "--workload",
    "lenet",
    "--global-batch",
    "8",
    "--jobs",
    "1",
]
_BEST += ["--parallel", "pp=1,tp=1,cp=1,zero=0", "--recompute", "none", "--top", "1", "-q"]
_ESCAPE = """\
schema_version: 1
name: "a\\e]0;title\\a\\e[31mb\\u202e $x$ $\\\\frac"
devices: {"gpu[0-1]": {kind: gpu}, sw: {kind: pcie-switch}}
links: [{between: ["gpu[0-1]", sw], kind: pcie, bandwidth: 10 GB/s}]
"""


def test_a_search_on_a_full_disk_names_its_file(tmp_path: Path, capsys) -> None:
    """Closing the file once wrote again, and its error was taken for one of standard output."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        status = run([*_BEST, "--resume", str(tmp_path / "r")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 2
    assert capsys.readouterr().err == f"simulate: --resume {tmp_path / 'r'}: cannot be written: File too large\n"


def test_an_end_of_file_inside_is_no_interrupt(monkeypatch, capsys) -> None:
    def ends(*_: object) -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr("simulator.cli.output.check_read", ends)
    assert run(["--topology", "t4"]) == FAILED
    assert capsys.readouterr().err.strip() == "simulate: EOFError: marshal data too short (--debug shows where)"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    ("words", "status"),
    [(["--topolgy", "x"], 2), (["--topology", "p3.16xlarge", "--workload", "lenet", "--nccl", "2.3"], 0)],
    ids=["a refusal", "a warning"],
)
def test_a_full_standard_error_changes_nothing(words: list[str], status: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "simulator.cli", *words],
            stdout=subprocess.DEVNULL, stderr=full, cwd=Path(__file__).parents[2], timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == status


def test_a_name_with_control_characters_is_drawn_escaped(tmp_path: Path, capfd) -> None:
    file, plot = tmp_path / "t.yaml", tmp_path / "m.svg"
    file.write_text(_ESCAPE, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(["--topology", str(file), "--plot", str(plot)]) == 0
    said = capfd.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "Warning" not in said.err
    texts = "".join(ET.parse(plot).getroot().itertext())
    assert "a\\x1b]0;title\\x07\\x1b[31mb\\u202e $x$ $\\frac" in texts
    assert os.path.getsize(plot) > 1000


def test_a_dash_is_no_output_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^--out -: names no file; name one, for example --out \./result$"):
        OutputFile("--out", "-")
    assert not list(tmp_path.iterdir())


def test_a_profile_of_the_process_is_written(tmp_path: Path) -> None:
    file = tmp_path / "profile"
    words = ["-m", "cProfile", "-o", str(file), "-m", "simulator", "networks", "resnet18"]
    assert subprocess.run([sys.executable, *words], check=False, capture_output=True).returncode == 0
    assert any(name == "run_process" for _, _, name in pstats.Stats(str(file)).stats)  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", [None, "a-plugin"])
def test_a_process_ends_as_others_do_and_hands_on_what_it_was_given(given: str | None) -> None:
    code = (
        "import atexit, os; from simulator.console.run import environment_given, run_process;"
        "atexit.register(print, 'left');"
        "run_process(lambda: print(environment_given() == before, os.environ['PYDANTIC_DISABLE_PLUGINS']) or 3)"
    )
    environment = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": given or ""}
    if given is None:
        del environment["PYDANTIC_DISABLE_PLUGINS"]
    words = [sys.executable, "-c", f"import os; before = dict(os.environ); {code}"]
    ended = subprocess.run(words, check=False, env=environment, capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == (f"True {given or '__all__'}\nleft\n", 3)


@pytest.mark.parametrize("program", ["simulate", "validate"])
def test_an_interrupt_while_modules_are_imported_is_one_line(program: str) -> None:
    package = {"simulate": "simulator"}.get(program, program)
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        f"from {package}.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, f"{program}: interrupted\n")
