"""More stopwatches: host time only, wall-clock time, device time only, and a given number of threads."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from validate.machine.measure.bench import Bench, CpuStopwatch
from validate.machine.measure.recording import time_queued
from validate.machine.measure.timing import Call

_ISSUE_S = 15e-6  # initial allowance for the host to issue a call
_TRIES = 5


@dataclass(frozen=True, slots=True)
class HostStopwatch:
    """Times how long calls occupy the host: the device starts idle and is not waited for."""

    bench: Bench

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds until *calls* calls have returned."""
        self.bench.settle()
        began_s = time.perf_counter()
        for i in range(calls):
            call(i)
        took_s = time.perf_counter() - began_s
        self.bench.sensors.look()
        return took_s


@dataclass(frozen=True, slots=True)
class WallStopwatch:
    """Times calls by the host's clock until the device has completed them."""

    bench: Bench

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds for *calls* calls, each waited for."""
        self.bench.settle()
        began_s = time.perf_counter()
        for i in range(calls):
            call(i)
            self.bench.settle()
        return time.perf_counter() - began_s


@dataclass(frozen=True, slots=True)
class ThreadsStopwatch:
    """Times calls on *threads* CPU threads, then restores the previous number."""

    threads: int

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds for *calls* calls."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            return CpuStopwatch().sample(call, calls)
        finally:
            torch.set_num_threads(before)


class QueuedStopwatch:
    """Times GPU calls that are all queued before the first starts, so that issuing them does not count.

    Events are recorded on the current stream of *device*.  If the stream runs dry before all calls are issued, the
    sample is repeated with a larger allowance, up to *most_issue_s* seconds per call.
    """

    def __init__(self, bench: Bench, device: int | None = None, most_issue_s: float = 1e-3) -> None:
        self._bench = bench
        self._device = bench.device if device is None else torch.device("cuda", device)
        self._issue_s, self._most_issue_s = _ISSUE_S, most_issue_s
        self.ran_dry = False  # whether the stream ran dry while the last sample was issued

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds on the device from the start of the first of *calls* calls to the end of the last."""

        def issue() -> None:
            for i in range(calls):
                call(i)

        took_s = 0.0
        with torch.cuda.device(self._device):
            for _ in range(_TRIES):
                took_s, self.ran_dry = time_queued(calls * self._issue_s, issue, self._bench.sensors.look)
                if not self.ran_dry:
                    break
                self._issue_s = min(self._most_issue_s, self._issue_s * 2)
        return took_s
