"""The device that is measured, and how calls on it are timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from validate.machine.measure.hold import time_queued
from validate.machine.measure.recording import recorded
from validate.machine.measure.sensors import Sensors
from validate.machine.measure.slug import slug
from validate.machine.measure.timing import Call, Stopwatch

__all__ = ["Bench", "CpuStopwatch", "CudaStopwatch", "GraphStopwatch", "open_bench"]

_LAUNCH_S = 100e-6  # what the host may need to launch a graph, at the first try
_MOST_LAUNCH_S = 10e-3
_CPU_CACHE_BYTES = 64 << 20  # where the system does not say: beyond it a CPU's caches are cold


@dataclass(frozen=True, slots=True)
class Bench:
    """A device and what cases need to know of it."""

    device: Any  # where tensors live
    name: str  # what the device calls itself, in small letters with hyphens
    # memory_bytes, cache_bytes: what a case may allocate at most, and how large the last cache is
    memory_bytes: int
    cache_bytes: int
    scratch: Path  # a folder for files that are read and deleted again
    sensors: Sensors = field(default_factory=Sensors)  # looked at while the device works
    alone: bool = False  # whether this device was chosen by name, so that others of the machine are left alone

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU."""
        return bool(self.device.type == "cuda")

    def stopwatch(self) -> Stopwatch:
        """Return what times calls issued one after the other."""
        return CudaStopwatch(self.sensors.look) if self.is_cuda else CpuStopwatch()

    def settle(self) -> None:
        """Wait until the device is idle."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def alive(self) -> bool:
        """Return whether the device still computes; a GPU that has failed fails every call from then on."""
        if not self.is_cuda:
            return True
        try:
            one = torch.ones(1, device=self.device)
            return float(one + one) == 2.0
        except RuntimeError:
            return False

    def release(self) -> None:
        """Give memory back that the last case held.

        Also that of cuBLAS: 32 MiB for each stream that products ever ran on, which the most memory of a step would
        have in it, and which keep pools of captured graphs.
        """
        if self.is_cuda:
            clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
            if clear is not None:
                torch.cuda.synchronize(self.device)  # products may be under way where a case failed
                clear()
            torch.cuda.empty_cache()


class CpuStopwatch:
    """Times calls that return when they are done."""

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds of *calls* calls by the monotonic clock."""
        started = time.perf_counter()
        for i in range(calls):
            call(i)
        return time.perf_counter() - started


class CudaStopwatch:
    """Times what calls put on the current stream, between two CUDA events.

    *look* is called while the device still works, to read its sensors.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds on the device from the first of *calls* calls to the end of the last."""
        torch.cuda.synchronize()
        self._start.record()
        for i in range(calls):
            call(i)
        self._end.record()
        self._look()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) / 1000


class GraphStopwatch:
    """Times calls from a captured graph, so that the host's part is not in it, nor that of the launch.

    The stream is held up while the host launches; where it has run dry before, the sample is taken again with
    more time to launch.  The first sample of a number of calls captures them; *reserve* graphs are kept.
    """

    def __init__(self, look: Callable[[], None], reserve: int = 2) -> None:
        self._look = look
        self._launch_s = _LAUNCH_S
        self.ran_dry = False  # whether the stream was free before the last replay was launched
        self._graphs: dict[int, Any] = {}
        self._reserve = reserve

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds on the device of one replay of *calls* calls."""
        if calls not in self._graphs:
            while len(self._graphs) >= self._reserve:
                del self._graphs[next(iter(self._graphs))]
            self._graphs[calls] = capture(call, calls)
        graph = self._graphs[calls]
        while True:
            took_s, self.ran_dry = time_queued(self._launch_s, graph.replay, self._look)
            if not self.ran_dry or self._launch_s >= _MOST_LAUNCH_S:
                return took_s
            self._launch_s *= 2


def capture(call: Call, calls: int) -> Any:
    """Return a CUDA graph of *calls* calls; they run before on a stream of their own, as capture asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(min(calls, 3)):
            call(i)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with recorded(graph):
        for i in range(calls):
            call(i)
    graph.replay()  # the first uploads it
    torch.cuda.synchronize()
    return graph


def open_bench(device: str, scratch: Path) -> Bench:
    """Return the bench of *device* (``cuda:0``, ``cpu``); of the first GPU, or the CPU, where it is empty.

    Raises ValueError where there is no such device; says which there are.  Where a GPU is there that torch cannot
    use.
    """
    count = torch.cuda.device_count()
    there = [f"cuda:{i}" for i in range(count)] + ["cpu"]
    chosen = f"{device}:0" if device == "cuda" else device or there[0]
    if chosen not in there:
        raise ValueError(f"--device: no device '{device}' here; there is {', '.join(there)}")
    if chosen == "cpu":
        if not device and _gpu_is_there():
            raise ValueError(
                f"a GPU is here that this torch ({torch.__version__}) cannot use; --device cpu measures the CPU"
            )
        return Bench(torch.device("cpu"), cpu_slug(), _free_bytes() // 2, _cpu_cache_bytes(), scratch)
    found = torch.device(chosen)
    torch.cuda.set_device(found)
    properties = torch.cuda.get_device_properties(found)
    free, _ = torch.cuda.mem_get_info(found)
    cache = int(getattr(properties, "L2_cache_size", 64 << 20))
    sensors = Sensors(str(getattr(properties, "uuid", "")))
    alone = device.startswith("cuda:")
    return Bench(found, slug(properties.name), int(free * 0.9), cache, scratch, sensors, alone)


def _gpu_is_there() -> bool:
    """Return whether the driver shows a GPU, whatever torch can do with it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def cpu_slug() -> str:
    """Return the name of the CPU, ``cpu`` where the system does not say."""
    for key, value in cpu_facts():
        if key in ("model name", "Model name"):
            return slug(value)
    return "cpu"


def cpu_facts() -> list[tuple[str, str]]:
    """Return the lines of the first processor in ``/proc/cpuinfo`` as pairs; none where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = text.split("\n\n", maxsplit=1)[0].splitlines()
    return [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]


def _free_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 4 << 30


def _cpu_cache_bytes() -> int:
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    largest = 0
    for file in folder.glob("index*/size"):
        text = file.read_text(encoding="ascii").strip()
        scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 0)
        largest = max(largest, int(text[:-1] or 0) * scale)
    return largest or _CPU_CACHE_BYTES
