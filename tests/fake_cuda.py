"""A GPU that is not there: torch.cuda's streams and events as far as measuring uses them, on the CPU."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from validate.machine.measure.bench import Bench


class FakeGpu(Bench):
    """Says that it is a GPU; its tensors live on the CPU."""

    @property
    def is_cuda(self) -> bool:
        return True

    def settle(self) -> None:
        torch.cuda.synchronize()


class FakeStream:
    def __init__(self, device: Any = None) -> None:
        self.device = device

    def wait_stream(self, other: Any) -> None:
        assert isinstance(other, FakeStream)

    def wait_event(self, event: Any) -> None:
        assert isinstance(event, FakeEvent)


class FakeEvent:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at_s = 0.0

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        assert self.at_s, "an event that was never recorded"

    def elapsed_time(self, end: FakeEvent) -> float:
        return (end.at_s - self.at_s) * 1000


class FakeGraph:
    """Runs its calls when it is replayed."""

    def __init__(self, call: Any, calls: int) -> None:
        self._call, self._calls = call, calls

    def replay(self) -> None:
        for i in range(self._calls):
            self._call(i)


def fake_gpu(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int = 1) -> FakeGpu:
    """Return a bench of the first of *count* GPUs; torch.cuda is patched as long as the test runs."""
    empty = torch.empty
    main = FakeStream()

    def without_device(*shape: Any, pin_memory: bool = False, device: Any = None, **more: Any) -> Any:
        return empty(*shape, **more)

    patches: dict[str, Any] = {
        "Stream": FakeStream,
        "Event": FakeEvent,
        "current_stream": lambda device=None: main,
        "stream": lambda stream: nullcontext(),
        "device": lambda device: nullcontext(),
        "synchronize": lambda device=None: None,
        "device_count": lambda: count,
        "can_device_access_peer": lambda one, other: True,
        "_sleep": lambda cycles: None,
    }
    for name, value in patches.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    monkeypatch.setattr(torch, "empty", without_device)
    return FakeGpu(torch.device("cpu"), "fake", 8 << 30, 1 << 20, folder)
