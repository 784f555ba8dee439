"""The number of processes that a launcher starts: torchrun, deepspeed, srun, mpirun; and ``#SBATCH`` lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.launch.arguments import Arguments
from simulator.launch.words import Word

__all__ = ["Ranks", "read_ranks"]

_NODES = ("nnodes", "num-nodes", "nodes", "N", "num-machines")
_EACH = ("nproc-per-node", "nproc", "num-gpus", "ntasks-per-node", "gpus-per-node")
_ALL = ("np", "ntasks", "n", "num-processes")


@dataclass(frozen=True, slots=True)
class Ranks:
    """Nodes, processes per node, and processes in total; None if unknown."""

    nodes: int | None = None
    each: int | None = None
    whole: int | None = None


def read_ranks(launcher: Arguments, comments: Sequence[Word], file: str) -> Ranks:
    """Return the ranks that *launcher*, the words before the program, starts; else those of ``#SBATCH`` lines."""
    for name in _EACH:
        if launcher.text(name) in ("gpu", "auto"):  # all GPUs of the node, so the number is unknown
            return Ranks(nodes=launcher.number(*_NODES))
    nodes, each, whole = launcher.number(*_NODES), launcher.number(*_EACH), launcher.number(*_ALL)
    asked = [
        Word(text, word.line, word.column)
        for word in comments
        if word.text.startswith("#SBATCH")
        for text in re.sub(r"\s+#.*", "", word.text).split()[1:]
    ]
    batch = Arguments(asked, file)
    if not (nodes or whole):
        nodes = batch.number("nodes", "N")
    if not (each or whole):
        each = batch.number("ntasks-per-node", "gpus-per-node")
    launcher.faults += batch.faults
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
