"""An answer with its reason: :class:`HostTime`."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.records import dataclass, field


@dataclass(frozen=True, slots=True)
class HostTime:
    """The time of an operation, what bounds it, and why.

    ``of`` names what is timed: a pass, one access, a block.  ``bound`` is a few words; ``why`` holds whole sentences
    with the figures behind the time.  ``figures`` holds the same figures by name, in SI, with their unit in the name.
    """

    time_s: float
    of: str
    bound: str
    why: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
