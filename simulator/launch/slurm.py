"""What the ``#SBATCH`` lines of a script ask for, and the variables of such a job (docs/decisions/launch-lines.md)."""

import re
from collections.abc import Sequence

from simulator.launch.arguments import Arguments
from simulator.launch.words import Word

_SHORT = re.compile(r"-([A-Za-z])=?(\d\S*)")  # of an #SBATCH line
_GRES = re.compile(r"gpu(?::[\w.-]*[A-Za-z][\w.-]*)?:(\d{1,6})")


def batch_arguments(comments: Sequence[Word], file: str) -> Arguments:
    """Return the arguments of the ``#SBATCH`` lines among *comments*; ``-N4`` is ``-N 4``."""
    asked = []
    for word in comments:
        if not word.text.startswith("#SBATCH"):
            continue
        for text in re.sub(r"\s+#.*", "", word.text).split()[1:]:
            short = _SHORT.fullmatch(text)
            asked += [Word(each, word.line, word.column) for each in ([f"-{short[1]}", short[2]] if short else [text])]
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
