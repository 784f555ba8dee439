"""A GPU of tensors without numbers, with a clock, for a process that has torch alone; it begins with the interpreter.

Copied beside ``clocked_cuda.py``, and imported by a ``.pth`` file.  Tensors are on torch's device ``meta``; each
operator takes the time of its FLOPs and bytes, and much of the host's, so that minutes of the clock pass in seconds.
``GPU_FAULTS`` names what is wrong with the GPU, ``GPU_CLOCK`` a file to which each process adds its clock's seconds.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

FLOPS_PER_S, BYTES_PER_S, ISSUE_S = 300e12, 2e12, 8e-3
TOTAL_BYTES = 80 << 30


class _Patch:
    """pytest's MonkeyPatch for a process that ends with it."""

    def setattr(self, owner: Any, name: str, value: Any, raising: bool = True) -> None:
        del raising
        setattr(owner, name, value)


def install(faults: frozenset[str]) -> None:
    """Give this process the GPU."""
    import signal

    import torch
    from clocked_cuda import Clock, torch_cuda
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    clock = Clock(1, ISSUE_S)
    patch = _Patch()
    torch_cuda(patch, clock, 1)  # type: ignore[arg-type]
    allocated = [0, 0]  # bytes now, and at most

    def moved(value: Any) -> Any:
        is_gpu = (isinstance(value, torch.device) and value.type == "cuda") or (
            isinstance(value, str) and value.partition(":")[0] == "cuda"
        )
        return torch.device("meta") if is_gpu else value

    class Placed(TorchFunctionMode):
        """Puts on ``meta`` what is asked for on the GPU."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.device:
                return func(*args, **(kwargs or {}))
            how = {name: moved(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
            return func(*map(moved, args), **how)

    class Timed(TorchDispatchMode):
        """Takes the time of each operator."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            tensors = [x for x in (*args, found) if isinstance(x, torch.Tensor)]
            held = sum(x.numel() * x.element_size() for x in tensors)
            if "allocation" in faults and isinstance(found, torch.Tensor) and found.numel() > 1 << 28:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
            if "lost" in faults and clock.now_s > 20.0 and "mm" in str(func):
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            count = flop_registry.get(func._overloadpacket)
            flop = count(*args, **(kwargs or {}), out_val=found) if count is not None else 0
            slow = 1.0 if "throttle" not in faults else min(2.0, 1.0 + clock.now_s / 60.0)
            seconds = slow * (2e-6 + max(flop / FLOPS_PER_S, held / BYTES_PER_S))
            clock.issue(clock.current[clock.device], seconds, (lambda: None, lambda _: None))
            allocated[1] = max(allocated[1], held)
            return found

    said = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, total_memory=TOTAL_BYTES,
        L2_cache_size=50 << 20, uuid="",
    )  # fmt: skip
    free = TOTAL_BYTES // 2 if "memory" in faults else TOTAL_BYTES - (1 << 30)

    @contextmanager
    def refused(graph: Any, pool: Any = None) -> Any:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        yield

    for name, value in {
        "is_available": lambda: True,
        "set_device": lambda _: None,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: said,
        "mem_get_info": lambda *_: (free, TOTAL_BYTES),
        "empty_cache": lambda: None,
        "memory_allocated": lambda *_: allocated[0],
        "memory_reserved": lambda *_: allocated[0],
        "max_memory_allocated": lambda *_: allocated[1],
        "max_memory_reserved": lambda *_: allocated[1],
        "reset_peak_memory_stats": lambda *_: allocated.__setitem__(1, 0),
        "set_stream": lambda _: None,
        **({"graph": refused} if "captures" in faults else {}),
    }.items():
        patch.setattr(torch.cuda, name, value)
    torch.version.cuda = "12.8"  # type: ignore[assignment]
    time.perf_counter = clock.looked_at
    time.sleep = lambda seconds: clock.wait(clock.now_s + seconds)
    alarm_s: list[float] = []

    def set_alarm(_: int, seconds: float) -> None:
        alarm_s[:] = [clock.now_s + seconds] if seconds else []

    def issue(*args: Any, **how: Any) -> None:
        if alarm_s and clock.now_s > alarm_s[0]:
            alarm_s.clear()
            handler = signal.getsignal(signal.SIGALRM)
            if callable(handler):
                handler(signal.SIGALRM, None)
        issued(*args, **how)

    issued, clock.issue = clock.issue, issue  # type: ignore[method-assign]
    signal.setitimer = set_alarm  # type: ignore[assignment]  # by this clock, not the system's
    for mode in (Placed(), Timed()):
        mode.__enter__()
    _patch_cases(faults, clock)
    gc.freeze()  # the code that measures collects garbage before each step, and torch stays
    if "GPU_CLOCK" in os.environ:
        atexit.register(_tell, os.environ["GPU_CLOCK"], clock)


def _patch_cases(faults: frozenset[str], clock: Any) -> None:
    """Replace what tensors without numbers cannot do: to see that the GPU lives, and steps of networks."""
    import torch

    from validate.machine.measure import bench
    from validate.machine.measure.case import TimedRun
    from validate.machine.measure.cases import copies, steps

    def alive(_: Any) -> bool:
        return not ("lost" in faults and clock.now_s > 20.0)

    def a_step(shape: Any, device: Any, wrap: Any = None) -> TimedRun:
        if shape.issue == "compile":
            clock.wait(clock.now_s + 30.0)
            sys.stderr.write("W1129 inductor warns\n" * 1000)
        if shape.channels_last and shape.issue == "eager":  # cuDNN tries its algorithms
            clock.wait(clock.now_s + 15.0)
        return TimedRun(lambda: clock.kernel(20e-3))

    bench.Bench.alive = alive  # type: ignore[method-assign]
    bench.Bench.release = lambda _: None  # type: ignore[method-assign]
    steps.make_step = a_step
    torch._VF.lstm = lambda *args: _one_kernel(*args, states=2)  # type: ignore[attr-defined]  # as cuDNN's
    torch._VF.gru = lambda *args: _one_kernel(*args, states=1)  # type: ignore[attr-defined]
    copies.random_bytes = lambda size, *_, **__: torch.empty(size, dtype=torch.uint8, device="meta")
    if "throttle" in faults:
        bench.Sensors.take = lambda _: bench.Readings(  # type: ignore[method-assign]
            900.0, 2600.0, 690.0, 91.0, "hardware thermal"
        )


def _one_kernel(x: Any, state: Any, weights: Any, *_: Any, states: int) -> Any:
    """Return what a recurrent layer returns: on ``meta`` torch runs some operators for each step of time."""
    hidden = state if states == 1 else state[0]
    out = (x.sum(-1, keepdim=True) * weights[1].sum()).expand(*x.shape[:-1], hidden.shape[-1])
    return out, *[hidden] * states


def _tell(path: str, clock: Any) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{clock.now_s - 1.0}\n")


_real_s = time.monotonic
time.monotonic = lambda: _real_s() / 50.0  # a busy machine must not end what a clock of its own ends
if "--folder" in getattr(sys, "orig_argv", ()):  # the process that measures; the other has no use for a GPU
    install(frozenset(filter(None, os.environ.get("GPU_FAULTS", "").split(","))))
