"""Ranks started by a launcher (``torchrun``) on one node or several: the first directs, the others serve.

The first rank measures and puts tasks into a store that all can reach.  A task's ranks join a process group of exactly
that size, so that one launch measures 1, 2, 4, ... ranks; after a fault a new one.
"""

import os
import pickle
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Self

import torch
import torch.distributed as dist

from validate.machine.measure.case import fault_line
from validate.machine.measure.host import usable_threads
from validate.machine.measure.ranks import Look, RankProcesses, RanksFailed, RankTask

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
        self.group = group
        count, number = group
        if self.rank >= count:
            return
        if not cuda:
            torch.set_num_threads(max(1, usable_threads() // min(count, self.local_world)))
        how: dict[str, Any] = {"store": dist.PrefixStore(f"group/{number}", self.store), "rank": self.rank}
        how |= {"device_id": torch.device("cuda", self.device)} if cuda else {}
        dist.init_process_group("nccl" if cuda else "gloo", world_size=count, timeout=timedelta(seconds=_JOIN_S), **how)


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
        """Return the results of *function* on *count* ranks, in their order; raises RanksFailed, or Unavailable.

        *look* reads sensors meanwhile, but where this process is one of the ranks.
        """
        self.start(count)
        if (here := launch()) is not None:
            return here.run(count, self.cuda, function, arguments, timeout_s=self._timeout_s)
        assert self._ranks is not None
        return self._ranks.run(function, *arguments, timeout_s=self._timeout_s, look=look)
