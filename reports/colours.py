"""One colour per meaning, in all figures: those of ``colours.yaml``, and of the kernels' classes."""

from simulator.records import own_data
from simulator.workload.operators import CLASSES

INK = "#22262b"
WARNING = "#b3261e"  # for what does not fit
BEST = "#1f6f8b"
OTHER = "#c3c9cf"  # for alternatives to the best

_TABLES = own_data("reports", "colours.yaml")
ACTIVITIES: dict[str, str] = _TABLES["activities"]
HELD: dict[str, str] = _TABLES["held"]
PASSES: dict[str, str] = _TABLES["passes"]
DEVICES: dict[str, str] = _TABLES["devices"]
USE: list[str] = _TABLES["use"]
MARKED_SERIES: list[tuple[str, str]] = [(colour, mark) for colour, mark in _TABLES["series"]]
WAITING = ACTIVITIES["waiting"]


def kernel_colour(name: str) -> str:
    """Return the colour of the kernel class *name*; a class without one has that of the rest."""
    return CLASSES[name].colour if name in CLASSES else OTHER


def strategy_series(name: str) -> tuple[str, str]:
    """Return the colour and marker of the strategy *name*, the same in every figure."""
    if name == "nccl":
        return BEST, "o"
    known: list[str] = _TABLES["strategies"]
    return MARKED_SERIES[(known.index(name) if name in known else sum(name.encode())) % len(MARKED_SERIES)]
