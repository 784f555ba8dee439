"""Bandwidth by working set (``bytes``): streams and gathers of torch, and load latency; all caches are warm.

Copy and triad divide the working set among their buffers; lines fetched before a write are not counted (as in STREAM,
McCalpin 1995).  A gather takes random rows of a table; its GB/s count rows read and written.  On a GPU calls are
replayed from a graph; on a CPU each includes about a microsecond of launch time.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from timeit import repeat
from typing import Any

import torch

from validate.machine.measure.bench import Bench, CpuStopwatch
from validate.machine.measure.case import Case, Columns, TimedWork, Unavailable, ladder, spread
from validate.machine.measure.host import usable_threads
from validate.machine.measure.timing import Call, Interval, Stopwatch

_LEAST, _ROW_LEAST, _ROW_MOST = 16 << 10, 64, 4096
_BEYOND = 8  # working set in multiples of the last-level cache, at which streams hardly hit it
_GPU_MOST = 4 << 30
_CPU_LEAST, _CPU_MOST = 256 << 20, 1 << 30
_GATHERED, _CPU_GATHERED = 64 << 20, 8 << 20
_FLOAT_BYTES = 4
_STEP = 256  # elements: 1 KiB


def cases(bench: Bench) -> Iterator[Case]:
    """Yield streams, pointer chases and gathers over all sizes, interleaved so that any prefix is representative."""
    wanted = _GPU_MOST if bench.is_cuda else min(_CPU_MOST, max(_CPU_LEAST, _BEYOND * bench.cache_bytes))
    largest = (ladder(_LEAST, min(wanted, bench.memory_bytes // 3)) or [_LEAST])[-1]
    sizes = spread(ladder(_LEAST if bench.is_cuda else 4 * _LEAST, largest))
    threads = ("",) if bench.is_cuda else tuple(sorted({usable_threads(), 1}, reverse=True))
    streams = [_case(_stream, k, size, t) for size in sizes for t in threads for k in _STREAMS]
    tables = [min(largest, 1 << 30)]  # far beyond the last-level cache and, on GPUs, half of it
    cached = 1 << max(0, (bench.cache_bytes // 2).bit_length() - 1)
    tables += [cached] if bench.is_cuda and _ROW_MOST <= cached < tables[0] else []
    rows = spread(ladder(_ROW_LEAST, _ROW_MOST))
    gathers = [_case(_gather, row, size, threads[0]) for size in tables for row in rows]
    queues = streams[2:], list(chase_cases(bench, largest)), gathers
    yield from streams[:2]
    # All queues in proportion to their lengths, so that they end together.
    places = [((i + 0.5) / len(queue), which, i) for which, queue in enumerate(queues) for i in range(len(queue))]
    yield from (queues[which][i] for _, which, i in sorted(places))
    if bench.is_cuda:  # sizes between, if time is left
        between = spread(ladder(2 * _LEAST, largest))
        yield from (_case(_stream, kernel, size, "") for size in between for kernel in _STREAMS)


def _written(shape: tuple[int, ...], bench: Bench) -> Any:
    """Return random numbers on a GPU, whose power depends on them; else ones, as unwritten pages share one of zeros."""
    numbers = torch.empty(shape, device=bench.device)
    return numbers.uniform_() if bench.is_cuda else numbers.fill_(1.0)


def _elements(parts: int, size: int) -> int:
    return max(_STEP, size // _FLOAT_BYTES // parts // _STEP * _STEP)


def _read(x: Any) -> Call:
    out = torch.zeros((), device=x.device)
    return lambda _: torch.sum(x, 0, out=out)


# Kernels, with the number of buffers that they divide the working set among.
_STREAMS: dict[str, tuple[int, Callable[..., Call]]] = {
    "read": (1, _read),
    "copy": (2, lambda x, y: lambda _: y.copy_(x)),
    "triad": (3, lambda a, b, c: lambda _: torch.add(a, b, alpha=2.0, out=c)),
    "write": (1, lambda x: lambda _: x.fill_(2.0)),
}


def _case(work: Callable[..., TimedWork], of: str | int, size: int, threads: int | str) -> Case:
    """Return a stream, *of* a kernel, or a gather, of rows of so many bytes, in *size* bytes."""
    bench, kernel, more = ("torch stream", of, 0)
    if work is _gather:
        bench, kernel, more = "torch index_select", f"gather rows of {of} B", 2 * _GATHERED
    columns = Columns(bench=bench, kernel=kernel, bytes=size, threads=threads, dtype="fp32")
    return Case("memory.csv", columns, partial(work, of, size, threads), needs_bytes=size + more)


def _stream(kernel: str, size: int, threads: int | str, bench: Bench) -> TimedWork:
    parts, stream = _STREAMS[kernel]
    moved = parts * _elements(parts, size) * _FLOAT_BYTES
    call = stream(*_written((parts, _elements(parts, size)), bench))
    return TimedWork(call, "graph", partial(_rate, moved), watch=_watch(threads))


def _gather(row_bytes: int, table_bytes: int, threads: int | str, bench: Bench) -> TimedWork:
    rows = table_bytes // row_bytes
    count = min(rows, (_GATHERED if bench.is_cuda else _CPU_GATHERED) // row_bytes)
    table = _written((rows, row_bytes // _FLOAT_BYTES), bench)
    chance = torch.Generator(device="cpu").manual_seed(row_bytes)
    index = torch.randint(rows, (count,), generator=chance).to(bench.device)
    out = torch.empty((count, row_bytes // _FLOAT_BYTES), device=bench.device)
    figures = partial(_rate, 2 * count * row_bytes)
    return TimedWork(lambda _: torch.index_select(table, 0, index, out=out), "graph", figures, watch=_watch(threads))


def _watch(threads: int | str) -> Stopwatch | None:
    return CpuStopwatch(threads) if isinstance(threads, int) else None


def _rate(moved_bytes: int, interval: Interval) -> dict[str, float]:
    return {"GBps": moved_bytes / interval.median / 1e9, "time_s": interval.median}


@lru_cache(maxsize=1)
def _kernel(_device: str) -> Callable[..., None]:
    """Return what launches a thread of the walk on torch's stream, with 64-bit integers; raises Unavailable."""
    if torch.version.hip:
        raise Unavailable("compiles kernels for NVIDIA GPUs only")
    torch.cuda.synchronize()  # makes the context current, as the driver calls below require
    major, minor = torch.cuda.get_device_capability()
    source = _SOURCE.with_suffix(".cu").read_text(encoding="ascii")
    binary = compile_binary(find_nvrtc(), source, f"sm_{major}{minor}")
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Unavailable(f"no libcuda.so.1: {error}") from None
    held, module, function = ctypes.create_string_buffer(binary, len(binary)), ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), held), "cuModuleLoadData")
    _check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"chase"), "cuModuleGetFunction")

    def launch(*arguments: int) -> None:
        values = [ctypes.c_ulonglong(value) for value in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = [ctypes.c_uint(n) for n in (1, 1, 1, 1, 1, 1, 0)]  # no shared memory
        _check(driver.cuLaunchKernel(function, *grid, stream, places, None), "cuLaunchKernel")

    return launch


def find_nvrtc() -> ctypes.CDLL:
    """Return NVRTC: one known to the loader, or one among torch's packages; raises Unavailable without any."""
    major = str(torch.version.cuda or "12").split(".", maxsplit=1)[0]
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [Path(torch.__file__).parent, *map(Path, sys.path), Path(sys.prefix), *toolkits, Path("/usr/local/cuda")]
    # The unversioned name comes last: it may belong to a toolkit too old for this GPU.
    for name in (f"libnvrtc.so.{major}", *_packaged(major, folders), "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Unavailable(f"no libnvrtc.so.{major}, neither known to the loader nor in torch's packages")


def _packaged(major: str, folders: Sequence[Path]) -> list[str]:
    patterns = (f"nvidia/*/lib/libnvrtc.so.{major}*", f"lib/libnvrtc*.so.{major}*", f"lib64/libnvrtc.so.{major}*")
    found = (path for folder in folders if folder.is_dir() for pattern in patterns for path in folder.glob(pattern))
    return list(dict.fromkeys(str(p) for p in found if "builtins" not in p.name and ".alt." not in p.name))


def compile_binary(nvrtc: Any, source: str, architecture: str) -> bytes:
    """Return *source* as a binary for *architecture*, as drivers may be older than PTX; raises Unavailable."""
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None), "NVRTC")
    try:
        option, size = f"--gpu-architecture={architecture}".encode(), ctypes.c_size_t()
        if nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(option)):
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            text = ctypes.create_string_buffer(max(1, size.value))
            nvrtc.nvrtcGetProgramLog(program, text)
            said = " ".join(text.value.decode(errors="replace").split())[:120]
            raise Unavailable(f"NVRTC does not compile for {architecture}: {said}")
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
        binary = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, binary), "nvrtcGetCUBIN")
        return binary.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _check(status: int, call: str) -> None:
    if status:
        raise Unavailable(f"{call} returned {status}")


_CPU_LINE, _GPU_LINE = 64, 128
_SHORTEST, _LONGEST = 4 << 10, 1 << 30
_STEPS = 16384  # loads per call; a multiple of the unrolling
_L1_LINES = 4096  # more lines than any GPU's L1 holds; a new kernel finds the L1 empty
_SOURCE = Path(__file__).with_suffix(".c")  # of CPUs; memory.cu beside it is that of GPUs
_CYCLES, _NS = 1, 2  # indices in the kernel's state


def chase_cases(bench: Bench, largest: int) -> Iterator[Case]:
    """Yield the walks over working sets from the size of the nearest cache up to *largest* bytes."""
    for size in spread(ladder(_SHORTEST, min(largest, _LONGEST), 2 if bench.is_cuda else 4)):
        columns = Columns(bench="pointer chase", kernel="load after load", bytes=size, threads=1, dtype="")
        build = partial(_on_gpu if bench.is_cuda else _on_cpu, size)
        yield Case("memory.csv", columns, build, needs_bytes=4 * size)  # peak, while the order is drawn


def cycle(lines: int, line_bytes: int, device: Any) -> torch.Tensor:
    """Return *lines* lines whose first words hold the address of the next, forming one random cycle over all."""
    words = torch.zeros(lines, line_bytes // 8, dtype=torch.int64, device=device)
    order = torch.randperm(lines, generator=torch.Generator(device).manual_seed(lines), device=device)
    words[order, 0] = words.data_ptr() + line_bytes * order.roll(-1)
    return words


def _on_cpu(size: int, bench: Bench) -> TimedWork:
    library = _library()
    words = cycle(size // _CPU_LINE, _CPU_LINE, bench.device)
    place = library.chase(words.data_ptr(), max(_STEPS, size // _CPU_LINE))  # one round fills the caches
    clock_Hz = _clock(library)

    def call(_: int, kept: Any = words) -> None:
        del kept  # keeps the memory of the walk alive
        nonlocal place
        place = library.chase(place, _STEPS)

    return TimedWork(call, figures=lambda interval: _figures(interval, clock_Hz))


def _figures(interval: Interval, clock_Hz: float) -> dict[str, float]:
    latency_s = interval.median / _STEPS
    return {"latency_s": latency_s, "latency_cycles": latency_s * clock_Hz, "clock_MHz": clock_Hz / 1e6}


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Unavailable("no C compiler (cc, gcc or clang) to compile the walk with")
    with tempfile.TemporaryDirectory(prefix="topocast-chase-") as folder:
        target = Path(folder) / "chase.so"
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(target), str(_SOURCE)]
        how: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        try:
            done = subprocess.run(command, timeout=60, check=False, **how)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{Path(compiler).name} could not be run: {type(error).__name__}") from None
        if done.returncode:
            raise Unavailable(f"{Path(compiler).name} failed: {' '.join(done.stderr.split())[:120]}")
        library = ctypes.CDLL(str(target))  # stays mapped after its file is removed
    library.chase.restype, library.chase.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_long)
    library.spin.restype = ctypes.c_ulong
    library.spin.argtypes = (ctypes.c_ulong, ctypes.c_ulong, ctypes.c_long)
    return library


def _clock(library: ctypes.CDLL) -> float:
    """Return the core's clock in Hz: a long less a short chain of one-cycle operations, the fastest of many tries."""
    turns = 1 << 16

    def fastest(count: int) -> float:
        return min(repeat(partial(library.spin, 1, 3, count), number=1, repeat=64))

    return turns / max(fastest(2 * turns) - fastest(turns), 1e-9)


class _DeviceWatch:
    """Reads the time of a walk from the GPU's own timer, which the kernel starts after warming the caches."""

    def __init__(self, state: torch.Tensor, bench: Bench) -> None:
        self._state, self._bench = state, bench
        self.cycles_per_s = 0.0

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds of *calls* walks, without their warm-up."""
        self._state[_CYCLES : _NS + 1] = 0
        for i in range(calls):
            call(i)
        self._bench.sensors.look()
        cycles, nanoseconds = self._state[_CYCLES : _NS + 1].tolist()
        self.cycles_per_s = cycles / nanoseconds * 1e9
        return float(nanoseconds) / 1e9


def _on_gpu(size: int, bench: Bench) -> TimedWork:
    kernel = _kernel(str(bench.device))
    lines = size // _GPU_LINE
    words = cycle(lines, _GPU_LINE, bench.device)
    words.sum()  # loads the working set into the last-level cache
    state = torch.zeros(4, dtype=torch.int64, device=bench.device)
    state[0] = words.data_ptr()
    watch = _DeviceWatch(state, bench)
    warm = lines if lines <= _L1_LINES else 0

    def call(_: int, kept: Any = words) -> None:
        del kept  # keeps the memory of the walk alive
        kernel(state.data_ptr(), warm, _STEPS)

    return TimedWork(call, figures=lambda interval: _figures(interval, watch.cycles_per_s), watch=watch)
