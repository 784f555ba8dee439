"""``simulate`` as a process: imported modules, closed pipes, standard input, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RING = ["--topology", "p3.16xlarge.yaml", "--strategy", "ring"]
HEAVY = ("torch", "matplotlib", "numpy", "networkx", "scipy", "rich", "pandas", "PIL")


def simulate(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}  # type: ignore[dict-item]
    return subprocess.run(
        [sys.executable, "-m", "simulator.cli", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("arguments", [RING, [*RING, "--json"], ["--help"], ["machines"]], ids=" ".join)
def test_nothing_heavy_is_imported_and_little_memory_used(arguments: list[str]) -> None:
    # VmHWM is reset at exec; ru_maxrss would include the parent's memory.
    code = (
        "import sys, pathlib; from simulator.cli import run; status = run(sys.argv[1:]);"
        "peak = pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0];"
        "print(status, peak, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    status, peak_KiB, *modules = done.stderr.split()
    assert status == "0"
    assert int(peak_KiB) < 80 * 1024
    assert not {module.partition(".")[0] for module in modules} & set(HEAVY)
    assert not {"simulator.devices.predict", "simulator.programs.reader", "simulator.step.issue"} & set(modules)


def test_it_runs_from_any_folder(tmp_path: Path) -> None:
    assert simulate(RING, cwd=tmp_path).returncode == 0


def test_a_path_comes_before_a_built_in_name(tmp_path: Path) -> None:
    text = (ROOT / "topologies" / "4gpu-pcie.yaml").read_text().replace("name: 4gpu-pcie", "name: mine")
    (tmp_path / "p3.16xlarge.yaml").write_text(text)
    done = simulate([*RING, "--json"], cwd=tmp_path)
    assert json.loads(done.stdout)["topology"] == "mine"


def test_a_topology_from_standard_input() -> None:
    text = (ROOT / "topologies" / "4gpu-pcie.yaml").read_text()
    done = simulate(["--topology", "-", "--strategy", "ring", "--json"], input=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["topology"] == "4gpu-pcie"
    done = simulate(["--topology", "-"], input=text.replace("kind: cpu", "kind: cpux"))
    assert done.returncode == 2
    assert re.fullmatch(r"<stdin>:\d+:\d+: devices\.cpu0\.kind: got 'cpux'; did you mean 'cpu'\?\n", done.stderr)


@pytest.mark.parametrize("arguments", [["parts"], [*RING, "--json"], ["--help"]], ids=" ".join)
def test_a_pipe_that_closes_is_no_fault(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "simulator.cli", *arguments],
            stdout=closed, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "simulator.cli", *RING],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "simulate: cannot write to standard output: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="file descriptors as in a POSIX shell")
def test_closed_streams_are_no_traceback() -> None:
    command = f"'{sys.executable}' -m simulator.cli {' '.join(RING)}"
    for redirection in (">&-", "2>&-", ">&- 2>&-", "<&-"):
        done = subprocess.run(
            f"{command} {redirection}", shell=True, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr


def test_a_pipe_gets_plain_ascii_text() -> None:
    done = simulate(RING, env={"LC_ALL": "C", "PYTHONUTF8": "0", "FORCE_COLOR": "1"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout


def test_a_device_is_written_to_and_not_replaced() -> None:
    done = simulate([*RING, "--trace", os.devnull, "--quiet"])
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(os.devnull).is_file()


def test_both_modules_and_the_version() -> None:
    for module in ("simulator", "simulator.cli"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--version"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            check=True,
        )
        assert done.stdout.startswith("simulate ")
