"""What a launch line and its variables say, as options of ``simulate``: :class:`LaunchLine`, :func:`read_variables`."""

from __future__ import annotations

import re

from simulator.errors import one_line
from simulator.launch.arguments import KNOWN, is_off, reasons
from simulator.launch.ranks import LaunchRanks
from simulator.launch.visible import EVERY_GPU, VisibleGpus, written_gpus
from simulator.records import dataclass, field, replace

_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
_EXPANDABLE = re.compile(r"(?:^|,)\s*expandable_segments\s*:\s*true\s*(?:,|$)", re.IGNORECASE | re.ASCII)
_KNOWN = KNOWN["variables"]


@dataclass(slots=True)
class LaunchLine:
    """``options`` are those of ``simulate`` as text, by field; ``sizes`` are those of ``--set``.

    ``visible``: the GPUs that take part, by machine; of a single machine, they are an option already.
    ``variables``: those that the program gets.

    ``batch``: the argument that says the batch, as the line has it; empty if a file does.

    ``notes``: one line for each setting of the launch line that is not simulated.  ``each``: processes on each of
    several nodes.  ``whole``: processes of a line that does not say on how many nodes.  ``unknown``: the argument that
    names a network which is not known, empty if none does.  ``files``: those
    that the line names and that are not read.
    """

    options: dict[str, str | bool] = field(default_factory=dict)
    sizes: dict[str, int | str] = field(default_factory=dict)
    batch: str = ""
    notes: list[str] = field(default_factory=list)
    each: int | None = None
    whole: int | None = None
    visible: VisibleGpus = EVERY_GPU
    variables: dict[str, str] = field(default_factory=dict)
    unknown: str = ""
    files: list[str] = field(default_factory=list)

    def place(self, ranks: LaunchRanks) -> None:
        """Add the options that say where *ranks* are."""
        gpus = tuple(each[: ranks.each] for each in ranks.visible.gpus)
        self.visible = replace(ranks.visible, gpus=gpus)
        if ranks.nodes is not None and ranks.nodes > 1:
            self.options["nodes"] = str(ranks.nodes)
            self.each = ranks.each
        elif gpus and (ranks.nodes == 1 or ranks.whole is None):
            self.options["gpus"] = written_gpus(gpus[0])
        elif ranks.nodes == 1 and ranks.each is not None:
            self.options["gpus"] = str(ranks.each)
        elif ranks.nodes is None:
            self.whole = ranks.whole

    def take_gpt2(self, sizes: dict[str, int], length: int, batch: tuple[int, int], precision: str) -> None:
        """Add GPT-2 trained alone with Adam, fused GELU; *batch*: that of a step, and of one pass of a process."""
        self.options |= {
            "workload": "gpt2", "precision": precision, "seq_len": str(length), "optimizer": "adam",
            "fused_optimizer": True, "global_batch": str(batch[0]), "micro_batch": str(batch[1]),
        }  # fmt: skip
        self.sizes |= {**sizes, "attention": "fused", "gelu": "fused"}


def read_variables(found: LaunchLine) -> None:
    """Add the options of the variables of *found*, and notes on those that are not simulated, except NCCL's."""
    variables = found.variables
    if any(not is_off(variables.get(name, "0")) for name in _BLOCKING):
        found.options["launch_blocking"] = True
    if any(_EXPANDABLE.search(variables.get(name, "")) for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")):
        found.options["expandable_segments"] = True
    instead, usual = reasons(_KNOWN["instead"]), _KNOWN["usual"]
    if variables.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper() == "DETAIL":
        instead["TORCH_DISTRIBUTED_DEBUG"] = "the checks of each collective are left out"
    for name in (name for name in instead if name in variables):
        value = variables[name]
        off = name not in usual and name != "NVIDIA_TF32_OVERRIDE" and is_off(value)
        if value != usual.get(name) and not off:
            found.notes.append(f"{name}={one_line(value, 40)}: is not modelled; {instead[name]}")
