"""Streams, gathers and pointer chases: the bytes they touch, and the figures derived from their times."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.clocked_cuda import clocked_bench  # noqa: E402
from validate.machine.measure import bench as benches  # noqa: E402
from validate.machine.measure.bench import Bench  # noqa: E402
from validate.machine.measure.case import Unavailable  # noqa: E402
from validate.machine.measure.cases import memory  # noqa: E402
from validate.machine.measure.timing import median_interval  # noqa: E402

pytestmark = pytest.mark.torch
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
TOOK = median_interval([1e-3] * 6)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(torch.device("cpu"), "cpu", 1 << 30, 1 << 20, tmp_path)


def _figures(work: Any) -> dict[str, Any]:
    assert work.figures is not None
    return dict(work.figures(TOOK))


def test_cases_differ_begin_with_large_streams_and_stay_within_memory(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for device in (bench, clocked_bench(monkeypatch, tmp_path)):
        cases = list(memory.cases(device))
        assert len({tuple(case.columns.items()) for case in cases}) == len(cases)
        assert cases[0].columns["kernel"] == "read"
        assert cases[0].columns["bytes"] == max(int(case.columns["bytes"]) for case in cases)
        assert all(case.needs_bytes <= device.memory_bytes for case in cases if "stream" in str(case.columns["bench"]))
        first = {case.columns["bench"] for case in cases[: len(cases) // 3]}
        assert first == {"torch stream", "torch index_select", "pointer chase"}  # the first third has some of each


@pytest.mark.parametrize(("kernel", "parts"), [("read", 1), ("write", 1), ("copy", 2), ("triad", 3)])
def test_a_stream_touches_its_working_set_once(kernel: str, parts: int, bench: Bench) -> None:
    size = 3 << 20  # divisible into three parts of whole lines
    work = memory._stream(kernel, size, 1, bench)
    assert _figures(work)["GBps"] == pytest.approx(size / 1e-3 / 1e9)
    buffers = memory._written((parts, memory._elements(parts, size)), bench)
    assert sum(buffer.nbytes for buffer in buffers) == size
    assert all(buffer.data_ptr() % 16 == 0 for buffer in buffers)  # otherwise GPUs load single elements
    assert work.watch is not None
    assert work.watch.sample(work.call, 2) > 0


def test_parts_that_do_not_divide_the_size_stay_aligned_and_are_counted_as_they_are(bench: Bench) -> None:
    work = memory._stream("triad", 1 << 20, 1, bench)
    buffers = memory._written((3, memory._elements(3, 1 << 20)), bench)
    assert all(buffer.data_ptr() % 16 == 0 for buffer in buffers)
    assert _figures(work)["GBps"] == pytest.approx(sum(buffer.nbytes for buffer in buffers) / 1e-3 / 1e9)


def test_a_gather_counts_rows_read_and_written(bench: Bench) -> None:
    work = memory._gather(256, 1 << 20, 1, bench)
    assert _figures(work)["GBps"] == pytest.approx(2 * 4096 * 256 / 1e-3 / 1e9)  # as many rows as the table has
    assert work.watch is not None
    assert work.watch.sample(work.call, 2) > 0


def test_threads_are_as_before_even_where_a_call_fails() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    benches.CpuStopwatch(before + 1).sample(lambda _: seen.append(torch.get_num_threads()), 1)
    assert seen == [before + 1]

    def fails(_: int) -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  the message does not matter
        benches.CpuStopwatch(before + 1).sample(fails, 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("lines", [1, 2, 3, 64, 1000])
def test_the_walk_visits_every_line_before_it_comes_back(lines: int) -> None:
    words = memory.cycle(lines, 64, torch.device("cpu"))
    first = place = words.data_ptr()
    seen = set()
    for _ in range(lines):
        assert (place - first) % 64 == 0
        seen.add(place)
        place = ctypes.c_int64.from_address(place).value
    assert place == first
    assert len(seen) == lines


@needs_compiler
def test_the_compiled_walk_takes_as_many_steps_as_it_says() -> None:
    library = memory._library()
    words = memory.cycle(64, 64, torch.device("cpu"))
    first = words.data_ptr()
    place = first
    for _ in range(24):
        place = ctypes.c_int64.from_address(place).value
    assert library.chase(first, 24) == place
    assert library.chase(first, 64) == first
    assert library.spin(5, 3, 8) == 5  # XOR with the same value an even number of times changes nothing
    assert 0.2e9 < memory._clock(library) < 8e9


@needs_compiler
def test_a_walk_on_the_cpu_tells_latency_and_clock(bench: Bench) -> None:
    work = memory._on_cpu(16 << 10, bench)
    assert bench.stopwatch().sample(work.call, 1) > 0
    found = _figures(work)
    assert found["latency_s"] == pytest.approx(1e-3 / 16384)
    assert found["latency_cycles"] == pytest.approx(found["latency_s"] * found["clock_MHz"] * 1e6)


def test_without_a_compiler_the_walk_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unavailable, match="no C compiler"):
        memory._library.__wrapped__()
    monkeypatch.setattr(shutil, "which", lambda name: "/nowhere/cc")
    with pytest.raises(Unavailable, match="cc could not be run"):
        memory._library.__wrapped__()


class _FakeKernel:
    """Walks like the GPU's kernel, at 2 GHz and 40 cycles per load."""

    def __call__(self, *arguments: int) -> None:
        state, warm, steps = arguments
        words = (ctypes.c_int64 * 4).from_address(state)
        for _ in range(warm + steps):
            words[0] = ctypes.c_int64.from_address(words[0]).value
        words[1] += 40 * steps
        words[2] += 20 * steps


def test_a_walk_on_a_gpu_is_timed_by_its_own_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = clocked_bench(monkeypatch, tmp_path)
    monkeypatch.setattr(memory, "_kernel", lambda device: _FakeKernel())
    monkeypatch.setattr(memory, "_STEPS", 64)
    work = memory._on_gpu(16 << 10, bench)
    assert work.watch is not None
    assert work.watch.sample(work.call, 3) == pytest.approx(3 * 64 * 20e-9)
    assert work.watch.sample(work.call, 1) == pytest.approx(64 * 20e-9)  # the counters start from zero again
    assert work.figures is not None
    found = work.figures(median_interval([64 * 20e-9] * 6))
    assert found == {
        "latency_s": pytest.approx(20e-9),
        "latency_cycles": pytest.approx(40),
        "clock_MHz": pytest.approx(2000),
    }


class _FakeNvrtc:
    """Answers like NVRTC; compiling returns the given status."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.destroyed = 0
        self.options: list[bytes] = []

    def nvrtcCreateProgram(self, *_: Any) -> int:  # noqa: N802  NVRTC's name
        return 0

    def nvrtcCompileProgram(self, program: Any, count: int, options: Any) -> int:  # noqa: N802
        self.options = list(options[:count])
        return self.status

    def nvrtcGetCUBINSize(self, program: Any, size: Any) -> int:  # noqa: N802
        size._obj.value = 4
        return 0

    def nvrtcGetCUBIN(self, program: Any, binary: Any) -> int:  # noqa: N802
        binary.raw = b"\x7fELF"
        return 0

    def nvrtcGetProgramLogSize(self, program: Any, size: Any) -> int:  # noqa: N802
        size._obj.value = 20
        return 0

    def nvrtcGetProgramLog(self, program: Any, text: Any) -> int:  # noqa: N802
        text.value = b"error: \n no"
        return 0

    def nvrtcDestroyProgram(self, program: Any) -> int:  # noqa: N802
        self.destroyed += 1
        return 0


def test_a_kernel_is_compiled_for_the_gpu_at_hand_or_its_log_is_told() -> None:
    good, bad = _FakeNvrtc(0), _FakeNvrtc(6)
    assert memory.compile_binary(good, "source", "sm_90") == b"\x7fELF"
    assert good.options == [b"--gpu-architecture=sm_90"]
    with pytest.raises(Unavailable, match="does not compile for sm_90: error: no"):
        memory.compile_binary(bad, "source", "sm_90")
    assert good.destroyed == bad.destroyed == 1


def test_nvrtc_is_found_in_wheels_of_both_layouts(tmp_path: Path) -> None:
    names = {
        "12": ("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9"),
        "13": ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc.alt.so.13"),
    }
    for name in (name for pair in names.values() for name in pair):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for major, (library, _) in names.items():
        assert memory._packaged(major, [tmp_path, tmp_path / "absent"]) == [str(tmp_path / library)]


def test_torch_s_own_nvrtc_comes_before_some_toolkit_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader's unversioned NVRTC may belong to another toolkit, which may not know the GPU."""
    bundled = tmp_path / "nvidia/cu13/lib/libnvrtc.so.13"
    bundled.parent.mkdir(parents=True)
    bundled.touch()
    known = {str(bundled), "libnvrtc.so"}

    def load(name: str) -> str:
        if name not in known:
            raise OSError(name)
        return name

    monkeypatch.setattr(memory.ctypes, "CDLL", load)
    monkeypatch.setattr(memory.sys, "path", [str(tmp_path)])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert memory.find_nvrtc() == str(bundled)
    known.add("libnvrtc.so.13")
    assert memory.find_nvrtc() == "libnvrtc.so.13"
    known -= {str(bundled), "libnvrtc.so.13"}
    assert memory.find_nvrtc() == "libnvrtc.so"
