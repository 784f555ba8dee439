"""What a launch line says, as options of ``simulate``: :class:`Launch`."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.launch.ranks import Ranks

__all__ = ["Launch"]


@dataclass(slots=True)
class Launch:
    """``options`` are those of ``simulate`` as text, by field; ``sizes`` are those of ``--set``.

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
    unknown: str = ""
    files: list[str] = field(default_factory=list)

    def place(self, ranks: Ranks) -> None:
        """Add the options that say where *ranks* are."""
        if ranks.nodes is not None and ranks.nodes > 1:
            self.options["nodes"] = str(ranks.nodes)
            self.each = ranks.each
        elif ranks.nodes == 1 and ranks.each is not None:
            self.options["gpus"] = str(ranks.each)
        elif ranks.nodes is None:
            self.whole = ranks.whole
