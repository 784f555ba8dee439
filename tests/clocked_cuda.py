"""Simulated GPUs with a clock: concurrent streams that each run in order, events, graphs, and a host.

Only issuing work and waiting advance the host's clock.  Work starts when its stream is free and takes the time it is
given.  It reads the first half of its operands when it starts and the second half when it ends, when it also writes.
Work that does not wait for its inputs, or whose end nobody waits for, therefore computes wrong values.  A stream may
run dry.

The memory of all devices is the CPU's.  :meth:`Clock.kernel` issues kernels without operands.  With a bench from
:func:`clocked_bench`, every torch operator is a kernel on the current stream: it runs at once and takes a kernel's
time.
"""

from __future__ import annotations

import heapq
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _device as torch_device
from torch.utils._python_dispatch import TorchDispatchMode

from validate.machine.measure.bench import Bench

if TYPE_CHECKING:  # also used where torch is all there is
    import pytest

_GRAPH_LAUNCH_S, _LOOK_S = 10e-6, 1e-7
_SLEEP_HZ = 1.5e9
_UNSET = 77  # what memory holds before it is written
_KERNEL_S = 2e-6  # least duration
_Effect = tuple[Callable[[], Any], Callable[[Any], None]]  # reads at the start; writes the result at the end
_NONE: _Effect = (lambda: None, lambda _: None)


class Clock:
    """The host's time, and all pending work on *count* devices.

    ``issue_s`` is the host's cost of issuing one piece of work; an event costs a fifth of that.  *uneven*, a seed,
    scales the duration of each copy and add by a random factor between 1/5 and 5.  Waits on the source lines in
    ``ignored`` have no effect.
    """

    def __init__(self, count: int, issue_s: float = 5e-6, uneven: int | None = None) -> None:
        self.count, self.issue_s = count, issue_s
        self.launch_s = _GRAPH_LAUNCH_S
        self.now_s = 1.0
        self.ignored: set[int] = set()
        self.waits: set[int] = set()  # source lines that have waited
        self.device = 0
        self.main = {i: Stream(self, i) for i in range(count)}
        self.current = dict(self.main)
        self.capturing: Graph | None = None
        self._chance = None if uneven is None else random.Random(uneven)
        self._under_way: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number = 0
        self._homes: dict[int, tuple[int, torch.Tensor]] = {}

    # -- issued work -------------------------------------------------------------------

    def kernel(self, seconds: float) -> None:
        """Issue a kernel of this duration on the current stream."""
        self.issue(self.current[self.device], seconds, _NONE)

    def issue(self, stream: Stream, seconds: float, effect: _Effect, *, costs_host: bool = True) -> None:
        """Put work on *stream*, or into the graph being captured."""
        if self.capturing is not None:
            self.capturing.work.append((seconds, effect))
            return
        self.now_s += self.issue_s if costs_host else 0.0
        start_s = max(stream.free_s, self.now_s)
        stream.free_s = start_s + seconds
        read, write = effect
        held: list[Any] = []
        self._at(start_s, 1, lambda: held.append(read()))
        self._at(stream.free_s, 0, lambda: write(held[0]))

    def _at(self, when_s: float, rank: int, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._under_way, (when_s, rank, self._number, act))

    def looked_at(self) -> float:
        """Return the host's time; to look takes some, too."""
        self.now_s += _LOOK_S
        return self.now_s

    def wait(self, until_s: float) -> None:
        """Let the host wait until then, and apply everything that ends by then."""
        self.now_s = max(self.now_s, until_s)
        self.happen()

    def happen(self) -> None:
        """Apply all effects due by now, in order; at equal times, ends come first."""
        while self._under_way and self._under_way[0][0] <= self.now_s:
            heapq.heappop(self._under_way)[3]()

    def may_wait(self) -> bool:
        """Return whether the wait on the calling program's line takes effect."""
        line = sys._getframe(2).f_lineno
        self.waits.add(line)
        return line not in self.ignored

    # -- memory ------------------------------------------------------------------------

    def put(self, tensor: torch.Tensor, device: int) -> torch.Tensor:
        """Place *tensor* on *device*."""
        self._homes[tensor.untyped_storage().data_ptr()] = device, tensor
        return tensor

    def home(self, tensor: torch.Tensor) -> int | None:
        """Return the device that holds *tensor*; None for the host."""
        found = self._homes.get(tensor.untyped_storage().data_ptr())
        return None if found is None else found[0]

    def lasts_s(self, tensor: torch.Tensor) -> float:
        """Return the duration of work on *tensor*, in seconds."""
        factor = 1.0 if self._chance is None else 5 ** self._chance.uniform(-1, 1)
        return factor * (_KERNEL_S + tensor.numel() * tensor.element_size() / 1e9)


class Stream:
    """Runs its work in order; ``free_s`` is the time when all work so far is done."""

    def __init__(self, clock: Clock, device: Any = None) -> None:
        self._clock = clock
        self.device = clock.device if device is None else _index(device)
        self.free_s = 0.0

    def wait_event(self, event: Event) -> None:
        if self._clock.may_wait():
            self.free_s = max(self.free_s, event.at_s)

    def wait_stream(self, other: Stream) -> None:
        if self._clock.may_wait():
            self.free_s = max(self.free_s, other.free_s)

    def synchronize(self) -> None:
        if self._clock.may_wait():
            self._clock.wait(self.free_s)


class Event:
    """A moment in a stream; an event that was never recorded counts as complete."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at_s = 0.0

    def record(self, stream: Stream | None = None) -> None:
        clock = self._clock
        clock.now_s += clock.issue_s / 5
        stream = clock.current[clock.device] if stream is None else stream
        self.at_s = max(stream.free_s, clock.now_s)

    def query(self) -> bool:
        self._clock.now_s += _LOOK_S
        self._clock.happen()
        return self._clock.now_s >= self.at_s

    def synchronize(self) -> None:
        if self._clock.may_wait():
            self._clock.wait(self.at_s)

    def elapsed_time(self, end: Event) -> float:
        if min(self.at_s, end.at_s) <= 0 or self._clock.now_s < max(self.at_s, end.at_s):
            raise RuntimeError("CUDA error: device not ready")
        return (end.at_s - self.at_s) * 1000


class Graph:
    """Holds the work issued during capture; a replay launches all of it at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.work: list[tuple[float, _Effect]] = []

    def replay(self) -> None:
        clock = self._clock
        clock.now_s += clock.launch_s
        for seconds, effect in self.work:
            clock.issue(clock.current[clock.device], seconds, effect, costs_host=False)


def clocked_gpus(
    monkeypatch: pytest.MonkeyPatch, count: int = 1, *, issue_s: float = 5e-6, uneven: int | None = None
) -> Clock:
    """Return the clock of *count* GPUs that torch sees until the test ends."""
    clock = Clock(count, issue_s, uneven)
    _make_tensors(monkeypatch, clock)
    _work_on_tensors(monkeypatch, clock)
    torch_cuda(monkeypatch, clock, count)
    monkeypatch.setattr(time, "perf_counter", clock.looked_at)
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.wait(clock.now_s + seconds))
    return clock


def _make_tensors(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Replace the functions that make tensors."""
    # As a context torch.device remembers which functions it gives a device; what it learns here ends with the test.
    monkeypatch.setattr(torch_device, "_device_constructors", cache(torch_device._device_constructors.__wrapped__))
    makes = {name: getattr(torch, name) for name in ("empty", "zeros", "ones", "tensor")}

    def maker(make: Any) -> Any:
        def made(*sizes: Any, device: Any = None, pin_memory: bool = False, **more: Any) -> torch.Tensor:
            found = make(*sizes, **more)
            if make is makes["empty"]:
                found.fill_(_UNSET)  # what an earlier run left in this memory may be right by chance
            where = torch.device(device) if device is not None else None
            return found if where is None or where.type != "cuda" else clock.put(found, _index(where, clock.device))

        return made

    for name, make in makes.items():
        monkeypatch.setattr(torch, name, maker(make))


def _work_on_tensors(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Replace the methods of tensors that take a GPU's time."""
    copy_, add_, fill_, cpu = (getattr(torch.Tensor, name) for name in ("copy_", "add_", "fill_", "cpu"))

    def copied(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        here, there = clock.home(self), clock.home(source)
        if here is None and there is None:
            clock.happen()
            return copy_(self, source)
        carrier = clock.current[there if there is not None else here]  # type: ignore[index]
        if here is not None and there is not None and here != there:
            carrier.free_s = max(carrier.free_s, clock.current[here].free_s)
        effect = (source.clone, lambda early: copy_(self, _halves(early, source)))
        clock.issue(carrier, clock.lasts_s(self), effect)
        if here is not None and there is not None and here != there:
            clock.current[here].free_s = max(clock.current[here].free_s, carrier.free_s)
        if not non_blocking:
            clock.wait(carrier.free_s)
        return self

    def added(self: torch.Tensor, other: Any) -> torch.Tensor:
        home = clock.home(self)
        if home is None:
            clock.happen()
            return add_(self, other)
        effect = (lambda: self + other, lambda early: copy_(self, _halves(early, self + other)))
        clock.issue(clock.current[home], clock.lasts_s(self), effect)
        return self

    def filled(self: torch.Tensor, value: Any) -> torch.Tensor:
        home = clock.home(self)
        if home is None:
            clock.happen()
            return fill_(self, value)
        clock.issue(clock.current[home], clock.lasts_s(self), (lambda: value, lambda found: fill_(self, found)))
        return self

    def to_host(self: torch.Tensor) -> torch.Tensor:
        home = clock.home(self)
        if home is not None:
            clock.wait(clock.current[home].free_s)
        return cpu(self.clone()) if home is not None else cpu(self)

    for name, method in (("copy_", copied), ("add_", added), ("fill_", filled), ("cpu", to_host)):
        monkeypatch.setattr(torch.Tensor, name, method)


def torch_cuda(monkeypatch: pytest.MonkeyPatch, clock: Clock, count: int) -> None:
    """Replace the functions of torch.cuda."""

    @contextmanager
    def on_stream(stream: Stream) -> Iterator[None]:
        before = clock.device, clock.current[stream.device]
        clock.device, clock.current[stream.device] = stream.device, stream
        try:
            yield
        finally:
            clock.device, clock.current[stream.device] = before

    @contextmanager
    def on_device(device: Any) -> Iterator[None]:
        before, clock.device = clock.device, _index(device)
        try:
            yield
        finally:
            clock.device = before

    @contextmanager
    def captured(graph: Graph, pool: Any = None) -> Iterator[None]:
        clock.capturing = graph
        try:
            yield
        finally:
            clock.capturing = None

    streams: list[Stream] = []

    def new_stream(device: Any = None) -> Stream:
        streams.append(Stream(clock, device))
        return streams[-1]

    def synchronize(device: Any = None) -> None:
        at = clock.device if device is None else _index(device)
        clock.wait(max(stream.free_s for stream in (clock.main[at], *streams) if stream.device == at))

    patches: dict[str, Any] = {
        "Stream": new_stream,
        "Event": lambda enable_timing=False: Event(clock),
        "current_stream": lambda device=None: clock.current[clock.device if device is None else _index(device)],
        "default_stream": lambda device=None: clock.main[clock.device if device is None else _index(device)],
        "stream": on_stream,
        "device": on_device,
        "synchronize": synchronize,
        "device_count": lambda: count,
        "can_device_access_peer": lambda one, other: True,
        "_sleep": lambda cycles: clock.kernel(cycles / _SLEEP_HZ),
        "CUDAGraph": lambda: Graph(clock),
        "graph": captured,
        "graph_pool_handle": lambda: (0, 1),
    }
    for name, value in patches.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)


class ClockedBench(Bench):
    """A bench that claims to be a GPU; its tensors are the CPU's, its streams, events and graphs the clock's."""

    @property
    def is_cuda(self) -> bool:
        return True

    def settle(self) -> None:
        torch.cuda.synchronize()

    def release(self) -> None:
        """Do nothing: there are no GPU libraries."""


class _Everything(TorchDispatchMode):  # type: ignore[misc]
    """While ``on``, every torch operator takes a kernel's time on the current stream."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._on = clock, False

    @property
    def on(self) -> bool:
        return self._on

    @on.setter
    def on(self, wanted: bool) -> None:
        if wanted and not self._on:
            self.__enter__()
        elif self._on and not wanted:
            self.__exit__(None, None, None)
        self._on = wanted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        clock = self._clock
        seconds = clock.lasts_s(found) if isinstance(found, torch.Tensor) else _KERNEL_S
        clock.issue(clock.current[clock.device], seconds, _NONE)
        return found


def clocked_bench(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int = 1) -> ClockedBench:
    """Return a bench of the first of *count* GPUs that torch sees until the test ends."""
    # A slow host, so that loops that run for a given clock time have few iterations.
    everything = _Everything(clocked_gpus(monkeypatch, count, issue_s=20e-6))
    monkeypatch.setattr(everything, "on", True)  # until the test ends
    return ClockedBench(torch.device("cpu"), "clocked", 8 << 30, 1 << 20, folder)


def _halves(early: torch.Tensor, late: torch.Tensor) -> torch.Tensor:
    """Return what work reads: the first half as it was at its start, the second as it was at its end."""
    half = len(early) // 2
    return torch.cat((early[:half], late[half:]))


def _index(device: Any, current: int = 0) -> int:
    if isinstance(device, int):
        return device
    found = torch.device(device).index
    return current if found is None else found
