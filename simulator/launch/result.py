"""What a launch line says, as options of ``simulate``: :class:`LaunchLine`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from simulator.launch.ranks import LaunchRanks
from simulator.launch.visible import EVERY_GPU, VisibleGpus, written_gpus


@dataclass(slots=True)
class LaunchLine:
    """``options`` are those of ``simulate`` as text, by field; ``sizes`` are those of ``--set``.

    ``visible``: the GPUs that take part, by machine; of a single machine, they are an option already.
    ``variables``: those that the program gets.

    ``notes``: one line for each setting of the launch line that is not simulated.  ``each``: processes on each of
    several nodes.  ``whole``: processes of a line that does not say on how many nodes.  ``unknown``: the argument that
    names a network which is not known, empty if none does.  ``files``: those
    that the line names and that are not read.
    """

    options: dict[str, str | bool] = field(default_factory=dict)
    sizes: dict[str, int | str] = field(default_factory=dict)
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
        """Add the network of a program that trains GPT-2 alone, with Adam and GELU as one kernel each.

        *batch*: that of a step, and that of one pass of a process.
        """
        self.options |= {
            "workload": "gpt2", "precision": precision, "seq_len": str(length), "optimizer": "adam",
            "fused_optimizer": True, "global_batch": str(batch[0]), "micro_batch": str(batch[1]),
        }  # fmt: skip
        self.sizes |= {**sizes, "attention": "fused", "gelu": "fused"}
