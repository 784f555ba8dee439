"""Latencies of one CPU core: :class:`CoreQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.checks import check
from simulator.questions.where import Where

Operation = Literal["fma", "branch-miss", "mutex"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreQuestion:
    """The time of ``count`` dependent operations, each of which needs the result of the one before.

    A fused multiply-add, a mispredicted branch, or locking and unlocking an uncontended mutex.
    """

    where: Where
    operation: Operation
    device: str | None = None
    count: int = 1

    def __post_init__(self) -> None:
        check(self)
