"""The band of a step's memory, from the measured errors of predicted memory.

``memory.json`` in this folder has quantiles of log(measured / predicted) by class of frameworks.  ``python
docs/make_memory_band.py TABLE.csv...`` makes it from tables of measurements; no prediction reads it.  All sources
weigh the same.  The quantiles are those of the rows, widened until 80 % of the rows lie inside the band of the *other*
sources.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files

from simulator.records import dataclass

LEVEL = 0.8
_CLASSES = {"megatron": "Megatron", "pytorch": "PyTorch", "deepspeed-zero3": "PyTorch"}


@dataclass(frozen=True, slots=True)
class MemorySpread:
    """The interval of log(measured / predicted) that holds 80 % of memories of a class of frameworks.

    ``sources`` are the numbers of rows by source; ``inside`` the shares of rows within the quantiles of the other
    sources, before and after they were widened.
    """

    framework: str
    sources: dict[str, int]
    low: float
    high: float
    inside: tuple[float, float]


def class_of(framework: str) -> str | None:
    """Return the class of frameworks to whose measurements *framework* belongs, or None if nobody measured it."""
    return _CLASSES.get(framework)


@lru_cache(maxsize=1)
def memory_spreads() -> dict[str, MemorySpread]:
    """Return the intervals by class of frameworks."""
    entries = json.loads(files("simulator.bands").joinpath("memory.json").read_text(encoding="utf-8"))
    return {entry["framework"]: MemorySpread(**entry | {"inside": tuple(entry["inside"])}) for entry in entries}
