"""Tables keep measured rows; faults of a single case differ from those that end a run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from validate.machine.measure.case import Fatal, Unavailable, failure_words  # noqa: E402
from validate.machine.measure.table import CAPTURED, COLUMNS, RAN_DRY, RowFile, cell_text  # noqa: E402


def test_rows_are_on_the_disk_at_once_and_found_again(tmp_path: Path) -> None:
    table = RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"])
    table.add({"device": "d", "metric": 'a "b", c', "mode": "m", "time_s": 1.23456789012e-6})
    assert (tmp_path / "launch.csv").read_text().splitlines()[1].startswith('d,"a ""b"", c",m,1.23456789e-06,')
    again = RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"])
    for one in (table, again):
        assert one.find({"device": "d", "metric": 'a "b", c'}) is not None
        assert one.find({"device": "d", "metric": "a"}) is None
    again.add({"device": "e", "metric": "x", "mode": "m", "time_s": 1.0})
    assert again.find({"device": "e", "metric": "x"}) is not None
    assert len(RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"])) == 2


def test_a_row_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "launch.csv"
    RowFile(path, COLUMNS["launch.csv"]).add({"device": "d", "metric": "one", "mode": "m", "time_s": 1.0})
    whole = path.read_bytes()
    path.write_bytes(whole + b"d,two,m,0.0")
    table = RowFile(path, COLUMNS["launch.csv"])
    assert len(table) == 1
    assert path.read_bytes() == whole


def test_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"ops\.csv: is a table of other columns"):
        RowFile(tmp_path / "ops.csv", COLUMNS["ops.csv"])
    with pytest.raises(ValueError, match="no column speed"):
        RowFile(tmp_path / "launch.csv", COLUMNS["launch.csv"]).add({"speed": 1})


def test_a_named_pipe_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ops.csv")
    with pytest.raises(ValueError, match=r"ops\.csv: is not a table"):
        RowFile(tmp_path / "ops.csv", COLUMNS["ops.csv"])


def test_a_full_disk_leaves_the_table_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "launch.csv"
    table = RowFile(path, COLUMNS["launch.csv"])
    table.add({"device": "d", "metric": "one", "mode": "m", "time_s": 1.0})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        table.add({"device": "d", "metric": "two", "mode": "m", "time_s": 1.0})
    assert path.read_bytes() == before
    assert table.find({"metric": "two"}) is None


def test_cells() -> None:
    assert [cell_text(v) for v in (None, True, 3, 0.1 + 0.2, "x")] == ["", "1", "3", "0.3", "x"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unavailable("no C compiler"), "no C compiler"),
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
        (RuntimeError("\"addmm_impl_cpu_\"  not implemented\nfor 'Half'"), 'RuntimeError: "addmm_impl_cpu_" not '),
        (FileNotFoundError(errno.ENOENT, "No such file"), "No such file"),
        (
            RuntimeError("CUDA error: operation not permitted when stream is capturing"),
            "RuntimeError: CUDA error: oper",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`"),
            "RuntimeError: CUDA er",
        ),
    ],
)
def test_faults_of_one_case_are_named(error: Exception, reason: str) -> None:
    assert failure_words(error).startswith(reason)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Quota exceeded"),
    ],
)
def test_faults_that_end_the_run_are_told_apart(error: Exception) -> None:
    with pytest.raises(Fatal):
        failure_words(error)


def test_a_row_is_found_whatever_was_remarked_when_it_was_measured(tmp_path: Path) -> None:
    columns = ("kind", "note", "time_s")
    table = RowFile(tmp_path / "t.csv", columns)
    table.add({"kind": "h2d", "note": f"copy alone; {RAN_DRY}", "time_s": 1.0})
    table.add({"kind": "h2d", "note": f"copy and sums; {CAPTURED}; {RAN_DRY}", "time_s": 2.0})
    for known in (table, RowFile(tmp_path / "t.csv", columns)):
        for note, seconds in (("copy alone", "1"), ("copy and sums", "2")):
            row = known.find({"kind": "h2d", "note": note})
            assert row is not None
            assert row["time_s"] == seconds
        assert known.find({"kind": "h2d", "note": "sums alone"}) is None
