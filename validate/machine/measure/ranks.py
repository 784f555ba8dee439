"""Processes that are the ranks of one group: started here once, or by a launcher; their common time.

Those started here are given functions to run, and always ended.  Of those that a launcher (``torchrun``) starts on one
node or several, the first measures and puts tasks into a store that all can reach.  A task's ranks join a process group
of exactly that size, so that one launch measures 1, 2, 4, ... ranks; after a fault a new one.
"""

import multiprocessing
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist

from validate.machine.measure.case import Unavailable, fault_line
from validate.machine.measure.host import usable_threads

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
        self._members: list[tuple[BaseProcess, Connection]] = []  # a process, and the pipe to it
        # CUDA does not survive a fork.  Other ranks are forked from a process that loads torch once for all.
        multiprocessing.set_forkserver_preload([__name__])
        context: Any = multiprocessing.get_context("spawn" if cuda else "forkserver")
        try:
            for rank in range(count):
                ours, theirs = context.Pipe()
                join = partial(_join, cuda, (Path(self._folder.name) / "meeting").as_uri(), start_s)
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
    if cuda:
        torch.cuda.set_device(rank)
    elif Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    _join_group(rank if cuda else None, count, timeout_s, init_method=meeting, rank=rank, world_size=count)


def _join_group(device: int | None, sharing: int, timeout_s: float, **how: Any) -> None:
    """Join a process group on GPU *device*, or on the CPU (None), whose threads *sharing* ranks share."""
    if device is None:
        torch.set_num_threads(max(1, usable_threads() // sharing))
    else:
        how["device_id"] = torch.device("cuda", device)
    dist.init_process_group("gloo" if device is None else "nccl", timeout=timedelta(seconds=timeout_s), **how)


def rank_device(*, cuda: bool) -> Any:
    """Return the device of this rank: its GPU, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")


def greatest(seconds: float, device: Any) -> float:
    """Return the greatest *seconds* of all ranks."""
    value = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value.item())


_JOIN_S = 300.0
_IDLE_S = 7 * 86_400.0  # the first rank may measure alone for a long time

Group = tuple[int, int]  # a process group: its size, and the task that created it


@dataclass(slots=True)
class LauncherProcess:
    """The launcher's description of this process: its rank among ``world``, and among the ranks of its node."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    store: Any
    device: int = 0  # GPU of this process, if any
    tasks: int = 0  # tasks put into the store so far
    group: Group = (0, 0)
    faulty: int = -1  # last task in which a rank failed, known to the first rank

    def serve(self) -> None:
        """Run tasks from the store until the first rank ends the run; raises RuntimeError where the store goes away."""
        while True:
            key = f"task/{self.tasks}"
            self.store.wait([key], timedelta(seconds=_IDLE_S))
            task = pickle.loads(self.store.get(key))
            if task is None:
                return
            self.do(*task)

    def end(self) -> None:
        """Tell the other ranks to exit."""
        self.store.set(f"task/{self.tasks}", pickle.dumps(None))

    def do(self, group: Group, cuda: bool, function: RankTask, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """Run this rank's part of a task, if it is in *group*; return (success, result), also left in the store."""
        number, self.tasks = self.tasks, self.tasks + 1
        count, _ = group
        try:
            self._join(group, cuda=cuda)
            answer: tuple[bool, Any] = (True, function(self.rank, count, *arguments) if self.rank < count else None)
        except Exception as error:
            answer = (False, fault_line(error))
        self.store.set(f"done/{number}/{self.rank}", pickle.dumps(answer))
        return answer

    def run(self, count: int, *task: Any, timeout_s: float) -> list[Any]:
        """Return the results of the first *count* ranks, in order, of a *task* of :meth:`do`; raises RanksFailed."""
        number = self.tasks
        size, begun = self.group
        group = self.group if size == count and begun > self.faulty else (count, number)
        self.store.set(f"task/{number}", pickle.dumps((group, *task)))
        answers = [self.do(group, *task)]
        for rank in range(1, count):
            key = f"done/{number}/{rank}"
            try:
                self.store.wait([key], timedelta(seconds=timeout_s))
            except RuntimeError:
                self.faulty = number
                raise RanksFailed(f"no answer of rank {rank} within {timeout_s:g} s") from None
            answers.append(pickle.loads(self.store.get(key)))
        faults = [f"rank {rank} raised {value}" for rank, (good, value) in enumerate(answers) if not good]
        if faults:
            self.faulty = number
            raise RanksFailed("; ".join(faults))
        return [value for _, value in answers]

    def _join(self, group: Group, *, cuda: bool) -> None:
        if group == self.group:
            return
        if dist.is_initialized():
            dist.destroy_process_group()
        self.group = count, number = group
        if self.rank >= count:
            return
        how: dict[str, Any] = {"store": dist.PrefixStore(f"group/{number}", self.store), "rank": self.rank}
        _join_group(self.device if cuda else None, min(count, self.local_world), _JOIN_S, world_size=count, **how)


@cache
def launch() -> LauncherProcess | None:
    """Return the launch, connected to its store; None without a launcher or with a single rank."""
    rank, world, address, port = map(os.environ.get, ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    if rank is None or world is None or address is None or port is None or int(world) < 2:
        return None
    local, of_node = os.environ.get("LOCAL_RANK", rank), os.environ.get("LOCAL_WORLD_SIZE", world)
    here = LauncherProcess(int(rank), int(world), int(local), int(of_node), None)
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun's agent hosts the store
    store = dist.TCPStore(address, int(port), is_master=not kept and here.rank == 0, timeout=timedelta(seconds=_JOIN_S))
    here.store = dist.PrefixStore("validate", store)
    if torch.cuda.is_available():
        here.device = here.local_rank % torch.cuda.device_count()  # a launcher may expose one GPU to each process
        torch.cuda.set_device(here.device)
    return here


def nodes_of(count: int) -> int:
    """Return the number of nodes that the first *count* ranks occupy: one without a launcher."""
    here = launch()
    return 1 if here is None else -(-count // here.local_world)


class KeptRanks:
    """Ranks that are kept from task to task: the launcher's if there is one, else processes started here.

    They start at the first task for their number, and again after a fault.  They must join within *start_s* seconds,
    and end a task within *timeout_s*.  Leaving the context ends them.
    """

    def __init__(self, *, cuda: bool, start_s: float = 180.0, timeout_s: float = 120.0) -> None:
        self.cuda = cuda
        self._start_s, self._timeout_s = start_s, timeout_s
        self._ranks: RankProcesses | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ranks is not None:
            self._ranks.close()
        self._ranks = None

    def start(self, count: int) -> None:
        """Have *count* ranks; raises RanksFailed, or Unavailable."""
        here, ranks = launch(), self._ranks
        if here is not None and count > here.world:
            raise RanksFailed(f"the launcher has started {here.world} ranks, and {count} are asked for")
        if here is None and (ranks is None or ranks.count != count or not ranks.alive):
            self.__exit__()
            self._ranks = RankProcesses(count, cuda=self.cuda, start_s=self._start_s)

    def run(self, count: int, function: RankTask, *arguments: Any, look: Look = None) -> list[Any]:
        """Return the results of *function* by rank; *look* reads sensors if this is none; raises as :meth:`start`."""
        self.start(count)
        if (here := launch()) is not None:
            return here.run(count, self.cuda, function, arguments, timeout_s=self._timeout_s)
        assert self._ranks is not None
        return self._ranks.run(function, *arguments, timeout_s=self._timeout_s, look=look)
