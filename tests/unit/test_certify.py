"""A certificate becomes a calibration and a page, and every answer that uses it says so; designs of measurements."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from simulator.api import Session
from simulator.api.calibrations import read_calibration
from simulator.cli import run as simulate
from simulator.console.run import run_app
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from tests import measured_folders as folders
from validate.cli import app
from validate.constants.design import MeasurableOperator, chosen
from validate.machine.measure.certificate import PARTS

MEASURED = folders.operators(80)


def archive(path: Path, folder: Path, *, steps: bool = True, parts: object = None) -> Path:
    """Write an archive of a device that computes 1.25 times as long as predicted, in operators and in steps."""
    slow = folders.constant(1.25)
    folders.write(folder / "d-operators", {"ops.csv": folders.timed("ops.csv", MEASURED, slow)})
    if steps:
        left = [{"group": "judged", "case": "unet", "reason": "out of memory"}]
        rows = folders.timed("training.csv", folders.steps(), slow)
        folders.write(folder / "g-steps", {"training.csv": rows}, left=left)
    ended = [{"name": part.name, "end": "done"} for part in PARTS] if parts is None else parts
    (folder / "certificate.json").write_text(json.dumps({"began": "2026-11-30T10:00:00+00:00", "parts": ended}))
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, "certificate")
    return path


def certify(tmp_path: Path, cert: Path) -> int:
    into = ["--out", str(tmp_path / "c.yaml"), "--report", str(tmp_path / "c.html")]
    return run_app(app, "validate", ["certify", str(cert), "--topology", folders.TOPOLOGY, *into])


@pytest.mark.slow
def test_a_certificate_calibrates_and_is_judged_by_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certify(tmp_path, archive(tmp_path / "c.tar.gz", tmp_path / "in")) == 0, capsys.readouterr().err
    found = read_calibration(tmp_path / "c.yaml").devices[folders.PART].certificate
    assert found is not None
    assert (found.date, found.driver, found.torch, found.steps) == ("2026-11-30", "570.1", "2.11.0", 8)
    assert found.uncalibrated == pytest.approx(0.2, abs=0.001)
    assert found.calibrated is not None
    assert found.calibrated < 0.7 * found.uncalibrated
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    for words in (
        "driver 570.1",
        "It ends when",
        "8 steps, uncalibrated</td><td class='n'>20.0 %",
        "exchanges between nodes",
        "out of memory",
    ):
        assert words in page
    capsys.readouterr()
    asked = ["--topology", folders.TOPOLOGY, "--nodes", "2", "--workload", "resnet18", "--batch", "8"]
    assert simulate([*asked, "--strategy", "nccl", "--calibration", str(tmp_path / "c.yaml")]) == 0
    assert f"certified on 2026-11-30 for {folders.PART}: " in capsys.readouterr().err


@pytest.mark.slow
def test_exchanges_stay_uncalibrated(tmp_path: Path) -> None:
    assert certify(tmp_path, archive(tmp_path / "c.tar.gz", tmp_path / "in")) == 0
    devices = read_calibration(tmp_path / "c.yaml").devices
    calibrated = Session({name: each.calibration for name, each in devices.items()})
    asked = CollectiveQuestion(where=Where(folders.TOPOLOGY, nodes=2), collective="all-reduce", size_bytes=1 << 28)
    assert calibrated.time_s(asked) == Session().time_s(asked)


def test_without_a_judge_the_page_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [{"name": "d-operators", "end": "cut: its time was over"}]
    cert = archive(tmp_path / "c.tar.gz", tmp_path / "in", steps=False, parts=parts)
    assert certify(tmp_path, cert) == 0
    assert "no step judged it" in capsys.readouterr().err
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "calibration without a judge of steps" in page
    assert "d-operators: cut: its time was over" in page
    assert "g-steps: not begun" in page


def test_what_is_no_certificate_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.tar.gz").write_bytes(b"x")
    with tarfile.open(tmp_path / "o.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("certificate/../../evil.csv")
        tar.addfile(member, io.BytesIO())
    for name in ("n.tar.gz", "o.tar.gz"):
        assert certify(tmp_path, tmp_path / name) == 2
        assert f"{name}: is not an archive of python -m validate.measure --certificate" in capsys.readouterr().err
    assert not list(tmp_path.parent.glob("evil*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--topology", "p3.2xlarge"), "--topology p3.2xlarge: v100-sxm2-16gb has 80 multiprocessors"),
        (("--device", f"{folders.DEVICE}=t4"), "--device: t4 has 40 multiprocessors"),
    ],
)
def test_another_machine_than_was_measured_is_refused(
    tmp_path: Path, words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cert = archive(tmp_path / "c.tar.gz", tmp_path / "in")
    into = ["--out", str(tmp_path / "c.yaml"), "--report", str(tmp_path / "c.html")]
    assert run_app(app, "validate", ["certify", str(cert), *words, *into]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--count", "²"], "--count ²: must be a whole number"),
        (["--count", "0"], "--count 0: "),
        (("--trust", "A"), "--trust: is of the rows of tables; give a table"),
        (("--batch", "2"), "--batch: is of --workload"),
        (("ops.csv", "--batch", "2"), "--batch: is not read with tables"),
        (("ops.csv", "--workload", "mlp"), "--workload: is not read with tables"),
        (("ops.csv", "--out", "chosen.json"), "--out: is not read with tables"),
    ],
)
def test_what_a_design_would_not_read_is_refused(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(app, "validate", ["design", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_design_of_tables_counts_rows_of_the_trust_that_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**row, "trust": "B"} for row in folders.timed("ops.csv", MEASURED, folders.constant(1.25))]
    folders.write(tmp_path / "in", {"ops.csv": rows})
    words = ["design", str(tmp_path / "in" / "ops.csv"), "--device", folders.PART, "--count", "900"]
    for trust, some in (((), False), (("--trust", "A"), False), (("--trust", "A,B"), True)):
        assert run_app(app, "validate", [*words, *trust]) == 2
        assert (f"{folders.PART}: 0 rows to choose from" in capsys.readouterr().err) != some


def place(key: str, n: int, weight: float = 1.0, *, measurable: bool = True) -> MeasurableOperator:
    return MeasurableOperator(key, "gemm bf16", (4096.0, float(n), 1024.0, 1.0, "NT"), weight, measurable)


def test_a_design_begins_where_most_is_unknown_and_repeats_nothing() -> None:
    crowd = [place(f"c{i}", 1024 + i) for i in range(8)]  # alike: one tells of all
    alone = [place("a", 1 << 17, 2.0)]
    found = [each.key for each in chosen([*crowd, *alone], 2)]
    assert str(found[0]).startswith("c")
    assert found[1] == "a"
    assert len({each.key for each in chosen([*crowd, *alone], 99)}) == 9


def test_a_design_takes_what_can_be_measured_for_what_is_asked() -> None:
    asked = [place(f"t{i}", 5000 + i, measurable=False) for i in range(4)]
    pool = [place("far", 64, 0.0), place("near", 4900, 0.0), place("other", 1 << 16, 0.0)]
    assert [each.key for each in chosen([*asked, *pool], 1)] == ["near"]
