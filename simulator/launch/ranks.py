"""The number of processes that a launcher starts: torchrun, deepspeed, srun, mpirun; and ``#SBATCH`` lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.launch.arguments import Arguments
from simulator.launch.command import Command
from simulator.launch.slurm import batch_arguments, gpus_per_node
from simulator.launch.words import Word

__all__ = ["Ranks", "read_ranks"]

_NODES = ("nnodes", "num-nodes", "nodes", "N", "num-machines")
_EACH = ("nproc-per-node", "nproc", "num-gpus", "ntasks-per-node", "gpus-per-node", "npernode")
_ALL = ("np", "ntasks", "n", "num-processes")
_OF_MPI = ("mpirun", "mpiexec", "horovodrun")
_HOSTS = ("H", "host", "hosts")


@dataclass(frozen=True, slots=True)
class Ranks:
    """Nodes, processes per node, and processes in total; None if unknown."""

    nodes: int | None = None
    each: int | None = None
    whole: int | None = None


def read_ranks(
    command: Command, launcher: Arguments, comments: Sequence[Word], variables: Mapping[str, str], file: str
) -> Ranks:
    """Return the ranks that *launcher*, the words before the program, starts; else those of ``#SBATCH`` lines.

    *variables* are the shell's: of ``CUDA_VISIBLE_DEVICES`` each GPU has a process where nothing else is said.
    """
    outer, batch = Arguments(command.outer, file), batch_arguments(comments, file)
    nodes = _nodes(command, launcher) or outer.number(*_NODES)
    each, whole = None, launcher.number(*_ALL)
    for name in _EACH:
        if launcher.text(name) in ("gpu", "auto"):  # all GPUs of the node, so the number is unknown
            return Ranks(nodes=nodes)
    each = _per_mpi_node(command, launcher) or launcher.number(*_EACH) or _included(launcher)
    if not (nodes or whole):
        nodes = batch.number("nodes", "N")
    if not (each or whole):
        each = _unless_told(command, batch, variables)
    launcher.faults += [*batch.faults, *outer.faults]
    if nodes is None and each is not None and whole is not None and whole % each == 0:
        nodes = whole // each
    if nodes is None and each is None and "num-processes" in launcher:  # Accelerate's default is one machine
        nodes, each = 1, whole
    if nodes is None and each is not None and whole is None:
        nodes = 1
    if whole is None and nodes is not None and each is not None:
        whole = nodes * each
    if each is None and nodes is not None and whole is not None and whole % nodes == 0:
        each = whole // nodes
    return Ranks(nodes, each, whole)


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


def _included(launcher: Arguments) -> int | None:
    """Return the GPUs of a node that DeepSpeed's ``--include node:0,1`` or Accelerate's ``--gpu_ids 0,1`` name."""
    said = launcher.value("include") or launcher.value("gpu-ids")
    launcher.has("include", "gpu-ids")
    named = (said or "").partition("@")[0].rpartition(":")[2].split(",")
    return len(named) if said and all(name.isdigit() for name in named) else None


def _unless_told(command: Command, batch: Arguments, variables: Mapping[str, str]) -> int | None:
    """Return the processes of a node whose launcher does not say them; None if all its GPUs have one."""
    visible = variables.get("CUDA_VISIBLE_DEVICES", "")
    seen = len(visible.split(",")) if re.fullmatch(r"\d+(,\d+)*", visible.replace(" ", "")) else None
    if command.starts_one:
        return 1
    if command.starter:
        return seen or gpus_per_node(batch)
    return batch.number("ntasks-per-node") or gpus_per_node(batch) or seen
