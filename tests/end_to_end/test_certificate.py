"""A certificate is measured where torch is all there is, whatever is wrong with the GPU, in its time; then judged."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("scipy")

from simulator.console.run import run_app
from validate.cli import app
from validate.machine.measure import certificate
from validate.machine.measure.certificate import CUT, PARTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
MEASURING = ("validate/__init__.py", "validate/measure.py", "validate/machine/__init__.py", "validate/machine/measure")


def needed(name: str, found: dict[str, importlib.metadata.Distribution]) -> None:
    """Add the distribution *name* and those that it needs to *found*, by name."""
    try:
        found[name] = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return
    for line in found[name].requires or ():
        other = re.match(r"[\w.-]+", line)
        if other is not None and "extra ==" not in line and other[0].lower() not in found:
            needed(other[0].lower(), found)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a virtual environment with torch, what it needs, and the measuring code."""
    place = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    packages = next((place / "lib").glob("python*/site-packages"))
    wanted: dict[str, importlib.metadata.Distribution] = {}
    needed("torch", wanted)
    for each in wanted.values():
        for top in {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}:
            source = Path(str(each.locate_file(top)))
            if source.exists() and not (packages / top).exists():
                (packages / top).symlink_to(source)
    for name in MEASURING:
        source, into = ROOT / name, packages / name
        into.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, into)
        else:
            shutil.copyfile(source, into)
    shutil.copyfile(ROOT / "tests" / "clocked_cuda.py", packages / "clocked_cuda.py")
    shutil.copyfile(ROOT / "tests" / "torch_alone.py", packages / "torch_alone.py")
    (packages / "torch_alone.pth").write_text("import torch_alone\n")  # Debian's Python has a sitecustomize of its own
    return place / "bin" / "python"


def measured(python: Path, folder: Path, minutes: float, faults: str = "") -> tuple[dict[str, bytes], list[float], str]:
    """Return the files of a certificate, the clock's seconds of each process, and what was said."""
    surroundings = {"PATH": os.environ["PATH"], "GPU_FAULTS": faults, "GPU_CLOCK": str(folder / "clock.txt")}
    command = [str(python), "-m", "validate.measure", "--certificate", "--minutes", str(minutes), "--out", "c.tar.gz"]
    done = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    archive = folder / "c.tar.gz"
    assert archive.stat().st_size < 10 << 20
    with tarfile.open(archive) as tar:
        files = {m.name.removeprefix("certificate/"): tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]
    seconds = [float(line) for line in (folder / "clock.txt").read_text().split()]
    return files, seconds, done.stderr


def rows(files: dict[str, bytes], name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(files[name].decode()))) if name in files else []


def ends(files: dict[str, bytes]) -> dict[str, str]:
    return {row["name"]: row["end"] for row in json.loads(files["certificate.json"])["parts"]}


def reasons(files: dict[str, bytes]) -> str:
    records = [json.loads(content) for name, content in files.items() if name.endswith("run.json")]
    return " ".join(row["reason"] for record in records for row in record.get("left", ()))


def test_torch_is_all_there_is(python: Path) -> None:
    for name in ("simpy", "pydantic", "yaml", "pytest", "simulator"):
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{name}') is not None)"
        alone = {"PATH": os.environ["PATH"]}
        assert subprocess.run([str(python), "-c", code], env=alone, cwd="/", check=False).returncode == 0, name


def test_nine_minutes_make_a_calibration(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, seconds, err = measured(python, tmp_path, 9)
    assert sum(seconds) < 540.0
    assert set(ends(files).values()) <= {"done", CUT}
    assert len(rows(files, "b-clocks/clocks.csv")) == 3
    assert len(rows(files, "e-memory/allocations.csv")) == 11
    assert {row["op"] for row in rows(files, "d-operators/ops.csv")} >= {"linear", "conv2d", "attention", "layer_norm"}
    steps = rows(files, "g-steps/training.csv")
    assert len({row["model"] for row in steps}) == 6
    assert {row["issue"] for row in steps} >= {"eager", "graph", "compile"}
    assert len(err.splitlines()) < 10, "what libraries say is kept back"
    assert len(rows(files, "h-operators/ops.csv")) >= 60
    monkeypatch.chdir(tmp_path)
    assert run_app(app, "validate", ["certify", "c.tar.gz", "--topology", "dgx-h100"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().err
    assert "certified on " in said
    page = (tmp_path / "mine.certificate.html").read_text()
    assert "Steps and operators that nothing was fitted to" in page
    assert re.search(r"\d{2,3} operators, uncalibrated", page)
    from simulator.cli import run

    asked = ["--topology", "dgx-h100", "--nodes", "2", "--workload", "resnet18", "--batch", "8", "--strategy", "nccl"]
    run([*asked, "--calibration", "mine.calibration.yaml"])
    assert "certified on " in capsys.readouterr().err


def test_one_minute_measures_some_steps(python: Path, tmp_path: Path) -> None:
    """No network whose library tries algorithms for a quarter of it comes first, and no signal ends the part."""
    files, seconds, _ = measured(python, tmp_path, 1)
    assert sum(seconds) < 60.0
    assert set(ends(files).values()) <= {"done", CUT}
    assert len({row["model"] for row in rows(files, "g-steps/training.csv")}) >= 3
    assert rows(files, "h-operators/ops.csv")


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    started, slept = tmp_path / "started", tmp_path / "slept"
    hangs = f"import signal, time; from pathlib import Path; Path({str(started)!r}).touch()"
    hangs += f"; time.sleep(60); Path({str(slept)!r}).touch()"
    assert certificate._ended([sys.executable, "-c", hangs], 3.0) == "cut: no time left"
    ignoring = hangs.replace("; Path", "; signal.signal(signal.SIGTERM, signal.SIG_IGN); Path", 1)
    assert certificate._ended([sys.executable, "-c", ignoring], 3.0) == "cut: no time left"
    assert started.is_file()
    assert not slept.is_file(), "neither was waited for"
    assert certificate._ended([sys.executable, "-c", "import os; os.abort()"], 30.0) == "ended by signal 6"
    raising = certificate._ended([sys.executable, "-c", "raise ValueError('no GPU')"], 30.0)
    assert raising == "ended with status 1: ValueError: no GPU"


def test_a_signal_after_the_time_leaves_neither_a_process_nor_a_folder(tmp_path: Path) -> None:
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/begun\ntrap '' TERM\nexec sleep 60\n")
    child.chmod(0o755)
    code = f"import sys; sys.executable = {str(child)!r}\nfrom pathlib import Path\n"
    code += "from validate.machine.measure import certificate\n"
    code += "certificate._LAST_S, certificate._LEAST_S, certificate._GRACE_S = 0.0, 0.0, 40.0\n"
    code += f"certificate.write_certificate(Path({str(tmp_path / 'c.tar.gz')!r}), 1 / 60)\n"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as process:
        while not ((begun := tmp_path / "begun").is_file() and begun.read_text()):
            time.sleep(0.1)
        time.sleep(3.0)  # into the time that a process has to end
        process.terminate()
        process.wait(20.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), signal.SIGKILL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "c.tar.gz", "child"]


@pytest.mark.parametrize(
    ("minutes", "faults", "said"),
    [
        (2, "throttle,memory,allocation,captures", "out of memory"),
        (1, "lost", "the device is lost"),
    ],
)
def test_whatever_is_wrong_the_archive_is_whole_and_in_time(
    python: Path, tmp_path: Path, minutes: float, faults: str, said: str
) -> None:
    files, seconds, err = measured(python, tmp_path, minutes, faults)
    assert sum(seconds) < 60.0 * minutes
    found = ends(files)
    assert list(found) == [part.name for part in PARTS]
    assert all(found.values())
    assert json.loads(files["a-machine/run.json"])["environment"]["device"]
    assert rows(files, "d-operators/ops.csv")
    assert said in reasons(files) + " ".join(found.values())
    if "captures" in faults:
        issues = {row["issue"] for row in rows(files, "d-operators/ops.csv")}
        assert issues == {"queued"}
        assert "hardware thermal" in {row["throttled"] for row in rows(files, "d-operators/ops.csv")}
    assert "validate certify" in err
