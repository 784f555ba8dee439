"""What work on a GPU takes from other work at the same time: :class:`ContentionCosts`."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants


@constants("contention")
@dataclass(frozen=True, slots=True)
class ContentionCosts:
    """Constants of concurrent work; ``simulator/constants/contention.json`` explains each."""

    memory_passes: float
    filling_share: float
