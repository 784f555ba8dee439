"""Processes that are the ranks of one group: started once, given functions to run, always ended; their common time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.bench import hold_up
from validate.machine.measure.case import Unavailable, fault_line
from validate.machine.measure.host import usable_threads
from validate.machine.measure.timing import Call, Effort, Interval, time_call

RankTask = Callable[..., Any]  # what a rank runs: a function of its rank, of how many there are, and of more
Look = Callable[[], None] | None
Begin = Callable[[int], object] | None
_POLL_S = 0.02
_GRACE_S = 0.5


class RanksFailed(Unavailable):
    """A rank raised, died or did not answer in time; the message says which.  The other ranks have been ended."""


class RankProcesses:
    """*count* processes on one machine, joined in a process group of ``torch.distributed``.

    On GPUs, rank i uses device i, with NCCL; on the CPU, ranks use gloo over loopback and share the threads.  When one
    fails, all are ended, as others may wait forever.  *begin* is called in each with its rank before it joins; a rank
    is *called* so in messages.  Raises RanksFailed where not all have joined within *start_s* seconds (process start,
    GPU contexts, libraries); Unavailable where torch lacks torch.distributed or NCCL.
    """

    def __init__(
        self, count: int, *, cuda: bool, start_s: float = 180.0, begin: Begin = None, called: str = "rank"
    ) -> None:
        if not dist.is_available():
            raise Unavailable("torch is built without torch.distributed")
        if cuda and not dist.is_nccl_available():
            raise Unavailable("torch is built without NCCL")
        self.count, self.cuda, self._called = count, cuda, called
        self._folder = tempfile.TemporaryDirectory(prefix="topocast-ranks-")
        self._members: list[tuple[BaseProcess, Connection]] = []
        # CUDA does not survive a fork.  Other ranks are forked from a process that loads torch once for all.
        multiprocessing.set_forkserver_preload([__name__])
        context: Any = multiprocessing.get_context("spawn" if cuda else "forkserver")
        try:
            for rank in range(count):
                ours, theirs = context.Pipe()
                join = partial(_join, cuda, str(Path(self._folder.name) / "meeting"), start_s)
                process = context.Process(target=_serve, args=(theirs, rank, count, begin, join), daemon=True)
                with _interrupts_held():
                    process.start()
                theirs.close()
                self._members.append((process, ours))
            self._collect("start", start_s, None)
        except BaseException:
            self.close(kill=True)
            raise

    @property
    def alive(self) -> bool:
        """Return whether the group still accepts tasks."""
        return bool(self._members)

    def run(self, function: RankTask, *arguments: Any, timeout_s: float = 120.0, look: Look = None) -> list[Any]:
        """Return the results of ``function(rank, count, *arguments)``, by rank; *look* reads sensors meanwhile.

        *function* must be a module's, arguments and results picklable.  Raises RanksFailed, and closes the group, where
        a rank raises, dies, or takes longer than *timeout_s* seconds.
        """
        if not self._members:
            raise RanksFailed("the ranks have ended already")
        try:
            for _, pipe in self._members:
                with suppress(OSError):  # a dead rank is reported below
                    pipe.send((function, arguments))
            return self._collect(getattr(function, "__name__", "a task").strip("_"), timeout_s, look)
        except BaseException:
            self.close(kill=True)
            raise

    def close(self, *, kill: bool = False) -> None:
        """End all processes: idle ones exit by themselves within 5 s, others, or all with *kill*, are killed."""
        members, self._members = self._members, []
        for _, pipe in members:
            pipe.close()  # an idle rank notices and exits
        deadline_s = time.monotonic() + (0.0 if kill else 5.0)
        for process, _ in members:
            process.join(max(0.0, deadline_s - time.monotonic()))
        for process, _ in members:
            if process.is_alive():
                process.kill()
                process.join(10.0)
        with suppress(OSError):
            self._folder.cleanup()

    def _collect(self, what: str, timeout_s: float, look: Look) -> list[Any]:
        """Return all ranks' answers; raises RanksFailed with all faults, 0.5 s after the first."""
        deadline_s = time.monotonic() + timeout_s
        found: dict[int, Any] = {}
        faults: list[str] = []
        missing = list(range(len(self._members)))
        while missing and time.monotonic() < deadline_s:
            ready = wait([self._members[rank][1] for rank in missing], timeout=_POLL_S)
            if look is not None:
                look()
            for rank in [rank for rank in missing if self._members[rank][1] in ready]:
                missing.remove(rank)
                good, value = _answer(*self._members[rank])
                if good:
                    found[rank] = value
                    continue
                if not faults:
                    deadline_s = min(deadline_s, time.monotonic() + _GRACE_S)
                faults.append(f"{self._called} {rank} {value}")
        if not faults and missing:
            faults = [f"no answer of {self._called} {', '.join(map(str, missing))} within {timeout_s:g} s"]
        if faults:
            raise RanksFailed(f"{what}: {'; '.join(faults)}")
        return [found[rank] for rank in range(len(self._members))]


def _answer(process: BaseProcess, pipe: Connection) -> tuple[bool, Any]:
    """Return whether a task has gone well, and its result or what became of the rank."""
    try:
        good, value = pipe.recv()
        return good, value if good else f"raised {value}"
    except (EOFError, OSError):
        process.join(2.0)
        code = process.exitcode
        return False, f"died of signal {-code}" if code and code < 0 else f"ended with status {code}"


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block SIGINT while a process starts, which inherits the mask until it can ignore SIGINT itself."""
    resource_tracker.ensure_running()  # otherwise the first process start would start it, which unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, rank: int, count: int, begin: Begin, join: Callable[[int, int], None]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # discards a SIGINT that arrived since the start
    try:
        if begin is not None:
            begin(rank)
        join(rank, count)
        pipe.send((True, None))
        while True:
            function, arguments = pipe.recv()
            pipe.send((True, function(rank, count, *arguments)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except BaseException as error:
        with suppress(OSError):
            pipe.send((False, fault_line(error)))
    os._exit(0)  # a regular shutdown of the group would wait for ranks that may be gone


def _join(cuda: bool, meeting: str, timeout_s: float, rank: int, count: int) -> None:
    how: dict[str, Any] = {"init_method": Path(meeting).as_uri(), "timeout": timedelta(seconds=timeout_s)}
    if cuda:
        how["device_id"] = torch.device("cuda", rank)
        torch.cuda.set_device(how["device_id"])
    else:
        if Path("/sys/class/net/lo").exists():
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.set_num_threads(max(1, usable_threads() // count))
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=count, **how)


MOST_CALLS = 64  # most calls per sample: what a GPU's queue takes without blocking the host
_ISSUE_S = 100e-6  # more than the host needs to issue one call


def time_together(call: Call, effort: Effort, *, cuda: bool, renew: Look = None, issue_s: float = _ISSUE_S) -> Interval:
    """Return the median time of one *call* on the slowest rank, in seconds; all ranks call this at the same point.

    Each sample starts after an all-reduce of one number, and its time is the greatest of all ranks, on which alone all
    decisions depend.  On a GPU the stream is blocked for *issue_s* seconds a call, so that only device time counts.
    *renew* is called before each sample, untimed.
    """
    return time_call(_Together(cuda, renew, issue_s), call, replace(effort, most_calls=MOST_CALLS))


class _Together:
    """A stopwatch of all ranks; ``spent_s`` leaves out the first sample, in which libraries connect the ranks."""

    def __init__(self, cuda: bool, renew: Look, issue_s: float) -> None:
        self._cuda, self._renew, self._issue_s = cuda, renew, issue_s
        self._token = torch.zeros(1, device="cuda" if cuda else "cpu")
        self.ran_dry, self.spent_s = False, float("-inf")

    def sample(self, call: Call, calls: int) -> float:
        if self._renew is not None:
            self._renew()
        how = (call, calls, self._token)
        took_s, self.ran_dry = _sample_cuda(*how, self._issue_s) if self._cuda else _sample_cpu(*how)
        self.spent_s = max(0.0, self.spent_s + took_s)
        return took_s


def rank_device(*, cuda: bool) -> Any:
    """Return the device of this rank: its GPU, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")


def greatest(seconds: float, device: Any) -> float:
    """Return the greatest *seconds* of all ranks."""
    value = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value.item())


def _sample_cpu(call: Call, calls: int, token: torch.Tensor) -> tuple[float, bool]:
    dist.all_reduce(token)
    began_s = time.perf_counter()
    for i in range(calls):
        call(i)
    return greatest(time.perf_counter() - began_s, token.device), False


def _sample_cuda(call: Call, calls: int, token: torch.Tensor, issue_s: float) -> tuple[float, bool]:
    """Return the greatest time of all ranks, in seconds, and whether this rank's stream ran dry during issue."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    held = hold_up(calls * issue_s)
    dist.all_reduce(token)
    start.record()
    for i in range(calls):
        call(i)
    early = held and start.query()
    end.record()
    end.synchronize()
    return greatest(start.elapsed_time(end) / 1000, token.device), early
