"""An answer with its reason: :class:`Answer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How long something takes, what bounds it, and why.

    ``of`` says what the seconds are of: a pass, one access, a block.  ``bound`` is a few words; ``why`` whole
    sentences with the figures that lead there.  ``figures`` are the same figures by name, in SI with their unit in the
    name.
    """

    time_s: float
    of: str
    bound: str
    why: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
