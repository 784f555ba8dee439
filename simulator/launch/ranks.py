"""The number of processes that a launcher starts: torchrun, deepspeed, srun, mpirun; and ``#SBATCH`` lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from simulator.launch.arguments import Arguments
from simulator.launch.command import Command
from simulator.launch.slurm import batch_arguments, gpus_per_node, read_hosts
from simulator.launch.visible import EVERY_GPU, VisibleGpus, visible_gpus
from simulator.launch.words import Word
from simulator.records import dataclass

_NODES = ("nnodes", "num-nodes", "nodes", "N", "num-machines")
_EACH = ("nproc-per-node", "nproc", "num-gpus", "ntasks-per-node", "gpus-per-node", "npernode")
_ALL = ("np", "ntasks", "n", "num-processes")
_OF_MPI = ("mpirun", "mpiexec", "horovodrun")
_HOSTS = ("H", "host", "hosts")


@dataclass(frozen=True, slots=True)
class LaunchRanks:
    """Nodes, processes per node, and processes in total; None if unknown.  ``visible`` are the GPUs that they see."""

    nodes: int | None = None
    each: int | None = None
    whole: int | None = None
    visible: VisibleGpus = EVERY_GPU

    @property
    def first(self) -> LaunchRanks:
        """The one process of a program that no launcher starts."""
        return LaunchRanks(1, 1, 1, self.visible)


def read_ranks(
    command: Command, launcher: Arguments, comments: Sequence[Word], own: int | None, file: str, notes: list[str]
) -> LaunchRanks:
    """Return the ranks that *launcher*, the words before the program, starts; else those of ``#SBATCH`` lines.

    *own* is the number of GPUs of the machine.  Where nothing else is said, each visible GPU has a process.
    """
    outer, batch = Arguments(command.outer, file), batch_arguments(comments, file)
    visible = visible_gpus(launcher, command, own, notes)
    whole = launcher.number(*_ALL)
    if _is_mpi(command) and not visible.gpus and (slots := read_hosts(launcher, notes)):
        visible, there = _filled(slots, whole), sum(slots.values())
        if whole is not None and whole > there:
            name = next(name for name in _ALL if name in launcher)
            launcher.fault(name, f"{whole} processes, and the host file has {there} slots")
    nodes = visible.hosts or _nodes(command, launcher) or outer.number(*_NODES)
    each = None
    for name in _EACH:
        if launcher.text(name) in ("gpu", "auto"):  # all visible GPUs of the node
            if visible.each is None:
                return LaunchRanks(nodes, visible=visible)
            return _completed(nodes, visible.each, None, launcher, visible)
    each = _per_mpi_node(command, launcher) or launcher.number(*_EACH)
    if each is None and visible.of_launcher and "num-processes" not in launcher:
        each = visible.each
    if not (nodes or whole):
        nodes = batch.number("nodes", "N")
    if not (each or whole):
        each = _unless_told(command, batch, visible)
    launcher.faults += [*batch.faults, *outer.faults]
    if each is None and len(visible.gpus) > 1:  # hosts with unlike numbers
        whole = sum(map(len, visible.gpus))
    return _checked(_completed(nodes, each, whole, launcher, visible), launcher)


def _completed(
    nodes: int | None, each: int | None, whole: int | None, launcher: Arguments, visible: VisibleGpus
) -> LaunchRanks:
    """Return the ranks with what follows from the rest."""
    if nodes is None and each is not None and whole is not None and whole % each == 0:
        nodes = whole // each
    if nodes is None and each is None and "num-processes" in launcher:  # Accelerate's default is one machine
        nodes, each = 1, whole
    if nodes is None and each is not None and whole is None:
        nodes = 1
    if whole is None and nodes is not None and each is not None:
        whole = nodes * each
    unlike = len(visible.gpus) > 1 and visible.each is None
    if each is None and nodes is not None and whole is not None and whole % nodes == 0 and not unlike:
        each = whole // nodes
    return LaunchRanks(nodes, each, whole, visible)


def _checked(ranks: LaunchRanks, launcher: Arguments) -> LaunchRanks:
    """Return *ranks*; more on a machine than it shows GPUs are a fault of *launcher*."""
    few = min(ranks.visible.gpus, key=len, default=())
    if ranks.each is not None and few and ranks.each > len(few):
        name = next((name for name in (*_EACH, *_ALL) if name in launcher), "")
        shown = f"{len(few)} GPU{'s' if len(few) != 1 else ''}"
        launcher.fault(name or "processes", f"{ranks.each} on a machine, and {ranks.visible.said} shows {shown}")
    return ranks


def _filled(slots: Mapping[str, int], whole: int | None) -> VisibleGpus:
    """Return a GPU for each of *whole* processes, with which mpirun fills the *slots* of one host after the other."""
    found = []
    left = sum(slots.values()) if whole is None else whole
    for count in slots.values():
        if left > 0:
            found.append(tuple(range(min(count, left))))
            left -= count
    return VisibleGpus(tuple(found), "the host file", len(found))


def _nodes(command: Command, launcher: Arguments) -> int | None:
    """Return the nodes that *launcher* names; of ``torchrun --nnodes 1:4`` the most."""
    hosts = next((launcher.value(name) for name in _HOSTS if name in launcher), None)
    if hosts is not None and _is_mpi(command):
        launcher.has(*_HOSTS)
        return len({host.partition(":")[0] for host in hosts.split(",")})
    elastic = re.fullmatch(r"\d{1,9}:(\d{1,9})", launcher.value("nnodes") or "")
    if elastic is not None and int(elastic[1]):
        launcher.has("nnodes")
        return int(elastic[1])
    return launcher.number(*(name for name in _NODES if name != "N" or not _is_mpi(command)))


def _is_mpi(command: Command) -> bool:
    return any(word.text.rpartition("/")[2] in _OF_MPI for word in command.launcher)


def _per_mpi_node(command: Command, launcher: Arguments) -> int | None:
    """Return the processes of each node of ``mpirun -N 8`` and ``--map-by ppr:8:node``."""
    if not _is_mpi(command):
        return None
    placed = re.fullmatch(r"ppr:(\d{1,6}):node.*", launcher.text("map-by") or "") if "map-by" in launcher else None
    return int(placed[1]) if placed and int(placed[1]) else launcher.number("N")


def _unless_told(command: Command, batch: Arguments, visible: VisibleGpus) -> int | None:
    """Return the processes of a node whose launcher does not say them; None if all its GPUs have one."""
    if command.starts_one:
        return 1
    if command.starter:
        return visible.each or gpus_per_node(batch)
    return batch.number("ntasks-per-node") or gpus_per_node(batch) or visible.each
