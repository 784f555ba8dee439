"""The file for reads and writes: never too large, never left behind."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from validate.machine.measure.bench import Bench  # noqa: E402
from validate.machine.measure.case import Unavailable, failure_words  # noqa: E402
from validate.machine.measure.cases import storage  # noqa: E402
from validate.machine.measure.cases.storage import BLOCK, ScratchFile  # noqa: E402
from validate.machine.measure.timing import median_interval  # noqa: E402

pytestmark = pytest.mark.torch
needs_linux = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(torch.device("cpu"), "cpu", 1 << 30, 1 << 20, tmp_path)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_MOST_BYTES", 4 * BLOCK)
    monkeypatch.setattr(storage, "_CACHED_BYTES", 2 * BLOCK)
    monkeypatch.setattr(storage, "_SAMPLE_S", 0.002)
    monkeypatch.setattr(storage, "_LONGEST_S", 0.05)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0


def test_a_file_takes_a_tenth_of_what_is_free_in_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert storage.file_bytes(1 << 40) == 256 << 20
    assert storage.file_bytes(500 * BLOCK + 5) == 50 * BLOCK
    assert storage.file_bytes(20 * BLOCK) == 2 * BLOCK
    assert storage.file_bytes(20 * BLOCK - 1) == 0
    assert storage.file_bytes(0) == 0


def test_an_interrupt_while_the_file_is_opened_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, before = os.open, _descriptors()

    def interrupted(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:  # as tempfile makes the file
            return opened(path, flags, *mode)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ScratchFile(tmp_path, BLOCK)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    assert _descriptors() == before


@pytest.mark.slow
@needs_linux
def test_every_access_is_measured_and_nothing_is_left(bench: Bench, tmp_path: Path) -> None:
    before = _descriptors()
    measured = {}
    for case in storage.cases(bench):
        try:
            work = case.build(bench)
        except Unavailable:
            assert case.columns["cache"] == "direct"  # not every file system supports it
            continue
        assert list(tmp_path.iterdir()) == []  # it has no name even while open
        assert work.own is not None
        assert work.figures is not None
        interval = work.own()
        found = work.figures(interval)
        columns = case.columns
        assert found["bytes"] == 4 * BLOCK
        assert found["GBps"] == pytest.approx(int(columns["block_bytes"]) / interval.median / 1e9)
        assert found["latency_s"] == pytest.approx(int(columns["threads"]) * interval.median)
        measured[tuple(columns.values())] = found["GBps"]
    assert ("read_sequential", BLOCK, 1, "page cache") in measured
    assert ("read_random", 4096, 1, "dropped") in measured
    assert _descriptors() == before


@needs_linux
def test_the_file_is_given_back_where_the_rest_is_not_measured(bench: Bench) -> None:
    before = _descriptors()
    cases = iter(storage.cases(bench))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScratchFile, "descriptor", lambda self, cache: self._plain)
        next(cases).build(bench)
    assert _descriptors() > before
    list(cases)  # as a run does, to name the missing cases
    assert _descriptors() == before


def test_without_room_there_is_nothing_to_measure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 20))
    with pytest.raises(Unavailable, match="less than 80 MiB are free"):
        next(storage.cases(bench))


def test_a_disk_that_is_full_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _descriptors()
    monkeypatch.setattr(os, "pwritev", _full)
    with pytest.raises(Unavailable, match="Disk quota exceeded"):
        ScratchFile(tmp_path, 4 * BLOCK)
    monkeypatch.setattr(os, "pwritev", lambda *_: 100)
    with pytest.raises(Unavailable, match="No space left"):
        ScratchFile(tmp_path, 4 * BLOCK)
    monkeypatch.setattr(tempfile, "mkstemp", _full)
    with pytest.raises(Unavailable, match="Disk quota exceeded"):
        ScratchFile(tmp_path, 4 * BLOCK)
    assert list(tmp_path.iterdir()) == []
    assert _descriptors() == before


def _full(*_: Any, **__: Any) -> int:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_quota_ends_no_run_and_is_run_into_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    monkeypatch.setattr(os, "pwritev", lambda *_: tries.append(1) or _full())
    cases = list(storage.cases(bench))
    for case in cases:
        with pytest.raises(Unavailable) as reason:
            case.build(bench)
        assert "Disk quota exceeded" in failure_words(reason.value)  # and not Fatal
    assert len(tries) == 1


@needs_linux
def test_a_file_system_that_has_no_room_to_write_anew_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ScratchFile(tmp_path, 2 * BLOCK)
    sample = storage._write_sequential(file, storage._Access("write_sequential", BLOCK, 1, "page cache"))
    for call in ("fsync", "pwritev"):
        monkeypatch.setattr(os, call, _full)
        with pytest.raises(Unavailable, match="Disk quota exceeded"):
            sample()
    file.close()


@needs_linux
def test_writing_it_ends_when_it_takes_too_long_and_what_is_read_was_written(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path, 4 * BLOCK, longest_s=0.0)
    assert file.size == BLOCK
    assert os.pread(file.descriptor("dropped"), BLOCK, 0) == bytes(file.block)
    file.close()
    file.close()  # closing again does nothing


@needs_linux
def test_dropped_reads_forget_before_each_sample_and_never_read_a_block_twice(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_SAMPLE_S", 10.0)  # longer than the file lasts
    log: list[Any] = []
    file = ScratchFile(tmp_path, 4 * BLOCK)
    monkeypatch.setattr(ScratchFile, "forget", lambda self: log.append("forget"))
    read = os.preadv

    def logged(descriptor: int, into: Any, place: int) -> int:
        log.append(place)
        return read(descriptor, into, place)

    monkeypatch.setattr(os, "preadv", logged)
    sample = storage._read_sequential(file, storage._Access("read_sequential", BLOCK, 1, "dropped"))
    assert sample() > 0
    sample()
    assert log == 2 * ["forget", 0, BLOCK, 2 * BLOCK, 3 * BLOCK]
    file.close()


def test_a_fault_in_one_thread_is_the_case_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ScratchFile(tmp_path, 2 * BLOCK)

    def broken(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    sample = storage._read_random(file, storage._Access("read_random", 4096, 4, "dropped"))
    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(OSError, match="Input/output"):
        sample()
    file.close()


def test_samples_end_when_the_median_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([9.0] + [1.0] * 100)  # the first is not counted
    monkeypatch.setattr(storage, "_read_random", lambda file, access: lambda: next(times))
    access = storage._Access("read_random", 4096, 1, "page cache")
    assert storage._measure(None, access) == median_interval([1.0] * 6)  # type: ignore[arg-type]
