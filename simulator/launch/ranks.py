"""The processes that a launcher (torchrun, deepspeed, srun, mpirun; ``#SBATCH`` lines), or the program, starts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.errors import InputError, one_line
from simulator.launch.arguments import ARGUMENTS, Arguments, spelt_flag
from simulator.launch.command import Command
from simulator.launch.slurm import batch_arguments, gpus_per_node, read_hosts
from simulator.launch.visible import EVERY_GPU, VisibleGpus, visible_gpus
from simulator.launch.words import COMMANDS, Word
from simulator.records import dataclass

_EACH, _ALL = ARGUMENTS["of_each_node"], ARGUMENTS["of_all"]


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


def read_ranks(command: Command, launcher: Arguments, comments: Sequence[Word], own: int | None) -> LaunchRanks:
    """Return the ranks that *launcher*, the words before the program, starts; else those of ``#SBATCH`` lines.

    *own* is the number of GPUs of the machine.  Where nothing else is said, each visible GPU has a process.
    """
    outer, batch = Arguments(command.outer, launcher.file), batch_arguments(comments, launcher.file)
    is_mpi = any(word.name in COMMANDS["of_mpi"] for word in command.launcher)
    visible = visible_gpus(launcher, command, own)
    whole = launcher.number(*_ALL)
    if is_mpi and not visible.gpus and (slots := read_hosts(launcher)):
        there = sum(slots.values())
        if whole is not None and whole > there:
            launcher.fault(launcher.given(*_ALL), f"{whole} processes, and the host file has {there} slots")
        filled, left = [], there if whole is None else whole
        for count in slots.values():  # mpirun fills the slots of one host after the other
            if left > 0:
                filled.append(tuple(range(min(count, left))))
                left -= count
        visible = VisibleGpus(tuple(filled), "the host file", len(filled))
    nodes = visible.hosts or _nodes(launcher, is_mpi=is_mpi) or outer.number(*ARGUMENTS["nodes"])
    for name in _EACH:
        if launcher.text(name) in ("gpu", "auto"):  # all visible GPUs of the node
            if visible.each is None:
                return LaunchRanks(nodes, visible=visible)
            return _completed(nodes, visible.each, None, launcher, visible)
    placed = launcher.text("map-by") if is_mpi and "map-by" in launcher else None
    of_node = re.fullmatch(r"ppr:(\d{1,6}):node.*", placed or "")
    each = (
        (int(of_node[1]) if of_node else None) or (launcher.number("N") if is_mpi else None) or launcher.number(*_EACH)
    )
    if each is None and visible.of_launcher and "num-processes" not in launcher:
        each = visible.each
    if not (nodes or whole):
        nodes = batch.number("nodes", "N")
    if not (each or whole):  # None: all GPUs of a node have a process
        if command.starts_one:
            each = 1
        elif command.starter:
            each = visible.each or gpus_per_node(batch)
        else:
            each = batch.number("ntasks-per-node") or gpus_per_node(batch) or visible.each
    launcher.faults += [*batch.faults, *outer.faults]
    if each is None and len(visible.gpus) > 1:  # hosts with unlike numbers
        whole = sum(map(len, visible.gpus))
    ranks = _completed(nodes, each, whole, launcher, visible)
    few = min(visible.gpus, key=len, default=())
    if ranks.each is not None and few and ranks.each > len(few):
        name = next((name for name in (*_EACH, *_ALL) if name in launcher), "processes")
        shown = f"{len(few)} GPU{'s' if len(few) != 1 else ''}"
        launcher.fault(name, f"{ranks.each} on a machine, and {visible.said} shows {shown}")
    return ranks


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


def _nodes(launcher: Arguments, *, is_mpi: bool) -> int | None:
    """Return the nodes that *launcher* names; of ``torchrun --nnodes 1:4`` the most."""
    hosts = next((launcher.value(name) for name in ARGUMENTS["hosts"] if name in launcher), None)
    if hosts is not None and is_mpi:
        launcher.has(*ARGUMENTS["hosts"])
        return len({host.partition(":")[0] for host in hosts.split(",")})
    elastic = re.fullmatch(r"\d{1,9}:(\d{1,9})", launcher.value("nnodes") or "")
    if elastic is not None and int(elastic[1]):
        launcher.has("nnodes")
        return int(elastic[1])
    return launcher.number(*(name for name in ARGUMENTS["nodes"] if name != "N" or not is_mpi))


def started_ranks(command: Command, args: Arguments, ranks: LaunchRanks) -> LaunchRanks:
    """Return *ranks*, or those that the program starts itself (``--devices 4``) where no launcher does."""
    of_batch = ranks.nodes is not None or ranks.whole is not None
    only_shown = bool(ranks.visible.gpus) and ranks.nodes == 1
    if command.starter or (of_batch and not only_shown) or "num-layers" in args:
        return ranks
    for name in ARGUMENTS["devices"]:
        said = args.value(name) or ""
        listed = re.fullmatch(r"\d+(,\d+)+", said) is not None
        if listed or re.fullmatch(r"[1-9]\d{0,5}", said):
            args.has(name, "num-nodes")
            chosen = tuple(map(int, said.split(","))) if listed else tuple(range(int(said)))
            nodes, visible = args.number("num-nodes") or 1, ranks.visible
            if len(set(chosen)) < len(chosen):
                args.fault(name, f"{one_line(said, 40)}: a GPU is named twice")
            elif listed or visible.gpus:
                try:
                    visible = visible.among(chosen, f"{spelt_flag(name)} {one_line(said, 40)}")
                except InputError as error:
                    args.fault(name, error.faults[0].message.partition(f"{spelt_flag(name)} ")[2])
            return LaunchRanks(nodes, len(chosen), nodes * len(chosen), visible)
    if args.has("multiprocessing-distributed"):
        return ranks
    if command.program.endswith(".py") and not command.launcher and not only_shown:
        args.notes.append("the line starts one process: simulated with one for each GPU; for one GPU, add --gpus 1")
    return ranks
