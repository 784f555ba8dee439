"""Hosts of a job: ``#SBATCH`` lines, as arguments and as the variables that Slurm sets; host files.

Host files of DeepSpeed and Open MPI (``worker-1 slots=8``): :func:`read_hosts`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.errors import Fault, InputError, one_line
from simulator.launch.arguments import Arguments
from simulator.launch.words import Word

_SHORT = re.compile(r"-([A-Za-z])=?(\d\S*)")
_GRES = re.compile(r"gpu(?::[\w.-]*[A-Za-z][\w.-]*)?:(\d{1,6})")
_MOST_BYTES = 1_000_000
_HOST = re.compile(
    r"(?P<name>[^\s=]{1,255})(?:\s+slots\s*=\s*(?P<slots>\d{1,6}))?(?:\s+max[-_]slots\s*=\s*\d+)?", re.ASCII
)
_NAMES = ("hostfile", "machinefile", "default-hostfile")


def batch_arguments(comments: Sequence[Word], file: str) -> Arguments:
    """Return the arguments of the ``#SBATCH`` lines among *comments*; ``-N4`` is ``-N 4``."""
    asked = []
    for word in comments:
        if not word.text.startswith("#SBATCH"):
            continue
        for text in re.sub(r"\s+#.*", "", word.text).split()[1:]:
            short = _SHORT.fullmatch(text)
            texts = [f"-{short[1]}", short[2]] if short else [text]
            asked += [Word(each, word.line, word.column) for each in texts]
    return Arguments(asked, file)


def gpus_per_node(batch: Arguments) -> int | None:
    """Return the GPUs of each node that *batch* asks for; None if it does not say."""
    typed = batch.text("gpus-per-node") or ""
    if ":" in typed:  # a100:4
        return int(typed.rpartition(":")[2]) if re.fullmatch(r"[\w.-]+:\d{1,6}", typed) else None
    if typed:
        return batch.number("gpus-per-node")
    if "gpus-per-task" in batch and batch.number("ntasks-per-node") in (None, 1):
        return batch.number("gpus-per-task")
    gres = _GRES.search(batch.text("gres") or "")
    return int(gres[1]) if gres else None


def job_variables(batch: Arguments) -> dict[str, str]:
    """Return the variables of a job that *batch* asks for, by name; those that depend on the machine are left out."""
    nodes, tasks, each = batch.number("nodes", "N"), batch.number("ntasks", "n"), batch.number("ntasks-per-node")
    if nodes is None and tasks is not None and each is not None and tasks % each == 0:
        nodes = tasks // each
    nodes = nodes or 1
    tasks = tasks or nodes * (each or 1)
    gpus = gpus_per_node(batch)
    found: dict[str, int | None] = {
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks),
        "SLURM_NTASKS_PER_NODE": each,
        **dict.fromkeys(("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), gpus),
        "SLURM_GPUS_PER_TASK": batch.number("gpus-per-task"),
        "SLURM_GPUS": batch.number("gpus", "G"),
        "SLURM_CPUS_PER_TASK": batch.number("cpus-per-task", "c"),
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def read_hosts(launcher: Arguments, *more: str) -> dict[str, int] | None:
    """Return the slots of each host in the file that *launcher* names, in order; a host without them has one.

    *more* are names of that argument besides the usual ones.  None if it names none, or one that is not at hand, which
    a note says, or that has faults, which are added to those of *launcher*.
    """
    path = launcher.text(*_NAMES, *more)
    if path is None:
        return None
    if not launcher.files.has(path):
        told = "is not here; the machines are those that the line tells"
        launcher.notes.append(f"--hostfile {one_line(path, 60)}: {told}")
        return None
    found: dict[str, int] = {}
    hosts: dict[str, int] | None = None
    with launcher.recording():
        raw = launcher.files.read(path, _MOST_BYTES, needed="a host file", usual="a host file is a few kB")
        for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
            text = line.partition("#")[0].strip()
            match = _HOST.fullmatch(text)
            if text and (match is None or match["slots"] == "0"):
                why = f"'{one_line(text, 60)}' is no host; write for example worker-1 slots=8"
                raise InputError(Fault(why, path, number, 1))
            if match is not None and match["name"] in found:
                raise InputError(Fault(f"{one_line(match['name'], 60)} is there twice", path, number, 1))
            if match is not None:
                found[match["name"]] = int(match["slots"] or 1)
        hosts = found
        if not found:
            raise InputError(Fault("names no host; write for example worker-1 slots=8", path, 1, 1))
    return hosts
