"""What one core of a CPU waits for: :class:`CoreQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.where import Where

__all__ = ["CoreQuestion", "Operation"]

Operation = Literal["fma", "branch-miss", "mutex"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreQuestion:
    """How long an operation takes whose result the next one needs, ``count`` of them.

    A fused multiply-add, a branch that was predicted wrongly, or a mutex locked and unlocked that nobody else wants.
    """

    where: Where
    operation: Operation
    device: str | None = None
    count: int = 1
