"""The device to measure, its sensors by NVML, which are read alone, stopwatches for calls, and captures in a graph."""

import ctypes
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from validate.machine.measure.host import DRIVER, cpu_facts, host_bytes, largest_cache_bytes, slug
from validate.machine.measure.timing import Call, Stopwatch

_CLOCKS = {"SM": 1, "memory": 2}  # nvmlClockType_t
_CORE_C = 0  # nvmlTemperatureSensors_t
_REASONS = {int(bit, 16): text for bit, text in DRIVER["throttles"].items()}
_POWER_CAP = _REASONS[0x4]
_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT, in mW; nvmlDeviceGetPowerUsage is a mean over a second
_PERIOD_S = 0.02  # update period of the driver's readings
_HELD = 0.5  # of the power limit: a board that draws less is not held by it, but remembers for seconds that it was


class Readings(NamedTuple):
    """Sensor readings while a case ran, by column: medians, and all reasons for throttling; None where unavailable."""

    sm_clock_MHz: float | None = None
    memory_clock_MHz: float | None = None
    power_W: float | None = None
    temperature_C: float | None = None
    throttled: str = ""

    @property
    def held_back(self) -> bool:
        """Return whether heat or the board slowed the clock; the power cap, also present in training, is excluded."""
        return any(reason in self.throttled for reason in _REASONS.values() if reason != _POWER_CAP)


class _FieldValue(ctypes.Structure):
    """NVML's nvmlFieldValue_t."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("fieldId", "scopeId")),
        *((name, ctypes.c_longlong) for name in ("timestamp", "latencyUsec")),
        *((name, ctypes.c_int) for name in ("valueType", "nvmlReturn")),
        *((name, ctypes.c_uint) for name in ("value", "rest")),  # the rest of a union of eight bytes
    )


class Sensors:
    """The sensors of the GPU with torch's *uuid*; without any if it is empty."""

    def __init__(self, uuid: str = "") -> None:
        self._library: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        self._rows: list[tuple[float | None, float | None, float | None, float | None]] = []
        self._reasons: set[str] = set()
        self._last_s = 0.0
        with suppress(OSError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            name = f"GPU-{uuid}".encode()
            if not (library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._handle))):
                self._library = library

    def look(self) -> None:
        """Take a reading, at most every 20 ms; call it while the GPU works."""
        if self._library is None or time.perf_counter() - self._last_s < _PERIOD_S:
            return
        power_mW, heat_C = self._power_mw(), self._unsigned("nvmlDeviceGetTemperature", _CORE_C)
        clock, memory = (self._unsigned("nvmlDeviceGetClockInfo", kind) for kind in _CLOCKS.values())
        self._rows.append((clock, memory, None if power_mW is None else power_mW / 1000, heat_C))
        mask = ctypes.c_ulonglong()
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        reasons = next((call for name in names if (call := getattr(self._library, name, None))), None)
        if reasons is not None and not reasons(self._handle, ctypes.byref(mask)):
            self._reasons |= {text for bit, text in _REASONS.items() if mask.value & bit}
        self._last_s = time.perf_counter()

    def take(self) -> Readings:
        """Return the readings since the last call, and clear them."""
        columns = [[v for v in column if v is not None] for column in zip(*self._rows, strict=True)] or [[]] * 4
        clock, memory, power, heat = (median(column) if column else None for column in columns)
        limit_mW = self._unsigned("nvmlDeviceGetEnforcedPowerLimit")
        if power is not None and limit_mW is not None and power < _HELD * limit_mW / 1000:
            self._reasons.discard(_POWER_CAP)
        taken = Readings(clock, memory, power, heat, "; ".join(sorted(self._reasons)))
        self._rows, self._reasons = [], set()
        return taken

    def limits(self) -> dict[str, float]:
        """Return the card's limits: power in W, clocks in MHz, PCIe generation and width."""
        asked: dict[str, list[str]] = DRIVER["limits"]  # a function, and the clock that it is asked for, if any
        found = {name: self._unsigned(of, *(_CLOCKS[each] for each in clock)) for name, (of, *clock) in asked.items()}
        if found["power_limit_W"] is not None:
            found["power_limit_W"] /= 1000
        return {name: value for name, value in found.items() if value is not None}

    def _power_mw(self) -> float | None:
        """Return the board's present power in mW; older drivers only give the mean over the last second."""
        call = getattr(self._library, "nvmlDeviceGetFieldValues", None)
        field = _FieldValue(fieldId=_POWER_INSTANT)
        if call is not None and not call(self._handle, 1, ctypes.byref(field)) and not field.nvmlReturn and field.value:
            return float(field.value)
        return self._unsigned("nvmlDeviceGetPowerUsage")

    def _unsigned(self, function: str, *arguments: int) -> float | None:
        if self._library is None:
            return None
        value = ctypes.c_uint()
        call = getattr(self._library, function, None)
        return None if call is None or call(self._handle, *arguments, ctypes.byref(value)) else float(value.value)


@contextmanager
def recorded(graph: Any) -> Iterator[None]:
    """Capture the work of the body into *graph*; on failure, or if nothing is captured, restore torch and raise."""
    pool = torch.cuda.graph_pool_handle()  # explicit, so that it can be released
    try:
        with warnings.catch_warnings(record=True) as said, torch.cuda.graph(graph, pool=pool):
            warnings.simplefilter("always")
            yield
    except BaseException:
        _recover(pool)
        raise
    if any("CUDA Graph is empty" in str(each.message) for each in said):
        raise RuntimeError("nothing was captured in the graph")


def _recover(pool: Any) -> None:
    """Undo what torch 2.11 leaves of a refused capture: its stream, kept memory, a generator that is blocked."""
    torch.cuda.set_stream(torch.cuda.default_stream())
    with suppress(RuntimeError, AttributeError):  # raised where the capture did end properly
        device = torch.cuda.current_device()
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
    try:
        number = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # a successful capture resets the generator
            number.zero_()
    except RuntimeError:  # the device may be lost, which the original error reports
        torch.cuda.set_stream(torch.cuda.default_stream())


_CLOCK_HZ = 1.5e9  # clocks run between 1 and 2.5 GHz


def hold_up(seconds: float) -> bool:
    """Block the current stream for about *seconds*, so that later work queues; return whether this torch can."""
    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return False
    sleep(int(seconds * _CLOCK_HZ))
    return True


@dataclass(frozen=True, slots=True)
class Bench:
    """A device, and what cases need to know of it."""

    device: Any  # where tensors live
    name: str  # the device's own name, in lower case with hyphens
    memory_bytes: int  # the most that a case may allocate
    cache_bytes: int  # size of the last-level cache
    scratch: Path  # folder for temporary files
    sensors: Sensors = field(default_factory=Sensors)  # read while the device works
    alone: bool = False  # whether the user named this device, so that other devices must not be used
    machine: str = ""  # its name in rows
    load_s: float = 2.5  # seconds of a run that shows what the board holds

    @property
    def is_cuda(self) -> bool:
        """Return whether the device is a GPU."""
        return bool(self.device.type == "cuda")

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch for calls issued back to back."""
        return CudaStopwatch(self) if self.is_cuda else CpuStopwatch()

    def settle(self) -> None:
        """Wait until the device is idle."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def alive(self) -> bool:
        """Return whether the device still computes; after a fatal fault a GPU fails every call."""
        if not self.is_cuda:
            return True
        try:
            one = torch.ones(1, device=self.device)
            return float(one + one) == 2.0
        except RuntimeError:
            return False

    def release(self) -> None:
        """Free the last case's memory, with cuBLAS's workspaces of 32 MiB a stream, which peaks would count."""
        if not self.is_cuda:
            return
        if (clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None)) is not None:
            torch.cuda.synchronize(self.device)  # products may still be running after a failed case
            clear()
        torch.cuda.empty_cache()


@contextmanager
def aside() -> Iterator[None]:
    """Run the work of the body on a stream of its own, as what is captured later requires."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def capture(call: Call, calls: int) -> Any:
    """Return a CUDA graph of *calls* calls, warmed up on a side stream."""
    with aside():
        for i in range(min(calls, 3)):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with recorded(graph):
        for i in range(calls):
            call(i)
    graph.replay()  # the first replay uploads the graph
    torch.cuda.synchronize()
    return graph


def open_bench(device: str, scratch: Path) -> Bench:
    """Return the bench of *device* (``cuda:0``), by default the first GPU, else the CPU; raises ValueError."""
    there = [*(f"cuda:{i}" for i in range(torch.cuda.device_count())), "cpu"]
    chosen = f"{device}:0" if device == "cuda" else device or there[0]
    if chosen not in there:
        raise ValueError(f"--device: no device '{device}' here; there is {', '.join(there)}")
    if chosen == "cpu":
        if not device and _gpu_is_there():
            told = f"a GPU is here that this torch ({torch.__version__}) cannot use"
            raise ValueError(f"{told}; --device cpu measures the CPU")
        facts = cpu_facts()[0]
        name = slug(facts.get("model name") or facts.get("Model name") or "cpu")
        return Bench(torch.device("cpu"), name, host_bytes() // 2, largest_cache_bytes(), scratch)
    found = torch.device(chosen)
    torch.cuda.set_device(found)
    properties = torch.cuda.get_device_properties(found)
    free, _ = torch.cuda.mem_get_info(found)
    cache, uuid = int(getattr(properties, "L2_cache_size", 64 << 20)), str(getattr(properties, "uuid", ""))
    alone = device.startswith("cuda:")
    return Bench(found, slug(properties.name), int(free * 0.9), cache, scratch, Sensors(uuid), alone)


def _gpu_is_there() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


@dataclass(frozen=True, slots=True)
class CpuStopwatch:
    """Times calls that complete before they return; with *threads*, on so many CPU threads."""

    threads: int = 0

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds that *calls* calls take, by the monotonic clock."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        try:
            started = time.perf_counter()
            for i in range(calls):
                call(i)
            return time.perf_counter() - started
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class HostStopwatch:
    """Times calls by the host's clock from an idle device on: how long they occupy the host, or take if it *waits*."""

    bench: Bench
    waits: bool = False

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds until *calls* calls have returned, or the device has completed each."""
        self.bench.settle()
        began_s = time.perf_counter()
        for i in range(calls):
            call(i)
            if self.waits:
                self.bench.settle()
        took_s = time.perf_counter() - began_s
        if not self.waits:
            self.bench.sensors.look()
        return took_s


class CudaStopwatch:
    """Times work on the current stream of *device* between CUDA events, and reads the sensors while it runs.

    With an allowance, in seconds a call, the stream is blocked until all are issued, so that issuing does not count.
    If it runs dry, the sample is repeated with twice the allowance, up to a largest one and *most_tries* in all.
    """

    issue_s = most_issue_s = 0.0
    most_tries = 1

    def __init__(self, bench: Bench, device: int | None = None) -> None:
        self._look = bench.sensors.look
        self._device = bench.device if device is None else torch.device("cuda", device)
        self.ran_dry = False  # whether the stream was idle before the last call of the last sample was issued

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds on the device from the start of the first of *calls* calls to the end of the last."""

        def issue() -> None:
            for i in range(calls):
                call(i)

        return self._timed(issue, calls)

    def _timed(self, issue: Callable[[], object], count: int) -> float:
        with torch.cuda.device(self._device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(self.most_tries):
                torch.cuda.synchronize()
                held = self.issue_s > 0.0 and hold_up(count * self.issue_s)
                start.record()
                issue()
                self.ran_dry = bool(held and start.query())
                end.record()
                self._look()
                end.synchronize()
                if not self.ran_dry or self.issue_s >= self.most_issue_s:
                    break
                self.issue_s = min(self.most_issue_s, self.issue_s * 2)
            return float(start.elapsed_time(end)) / 1000


class QueuedStopwatch(CudaStopwatch):
    """Times calls that are all queued before the first starts; *most_issue_s* is the largest allowance for a call."""

    issue_s = 15e-6
    most_tries = 5  # each holds the stream for the allowances of all calls

    def __init__(self, bench: Bench, device: int | None = None, most_issue_s: float = 1e-3) -> None:
        super().__init__(bench, device)
        self.most_issue_s = most_issue_s


class GraphStopwatch(CudaStopwatch):
    """Times calls replayed from a graph, captured at the first sample of their number, without host time."""

    issue_s, most_issue_s, most_tries = 100e-6, 10e-3, 8  # tries enough from the first allowance to the largest

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._graphs: dict[int, Any] = {}

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds on the device for one replay of *calls* calls."""
        if calls not in self._graphs:
            while len(self._graphs) >= 2:
                del self._graphs[next(iter(self._graphs))]
            self._graphs[calls] = capture(call, calls)
        return self._timed(self._graphs[calls].replay, 1)
