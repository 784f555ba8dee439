"""One colour per meaning, in all figures.

Activities of a device have Okabe and Ito's colours, which colour-blind readers can tell apart; kernel classes and
memory contents have palettes of their own, so that no two meanings share a colour.
"""

from __future__ import annotations

from simulator.workload.operators import CLASSES

INK = "#22262b"
WARNING = "#b3261e"  # for what does not fit
BEST = "#1f6f8b"
OTHER = "#c3c9cf"  # for alternatives to the best
WAITING = "#b4bcc4"

ACTIVITIES = {
    "computing": "#0072b2",
    "slowest": "#56b4e9",  # added by the slowest rank, copies and contention
    "update": "#009e73",
    "host": "#6f7c88",
    "input": "#8c6d31",
    "python": "#a3b3c2",
    "copies": "#44aa99",
    "exchange": "#e69f00",
    "data": "#d55e00",
    "tensor": "#f0b93a",
    "context": "#f0e442",
    "expert": "#cc79a7",
    "tied": "#a05195",
    "fill": "#7a5195",
    "waiting": WAITING,
}
"""Activities of a device or its host; exchanges also by axis of parallelism."""

HELD = {
    "parameters": "#5e548e",
    "gradients": "#9f86c0",
    "optimiser": "#be95c4",
    "activations": "#e0b1cb",
    "working": "#8fb8ad",
    "gaps": "#dfe7e4",
    "communication": "#9db4c0",
    "driver": "#ced4da",
}
"""Contents of device memory."""

MARKED_SERIES = (
    *(("#2f86c4", "o"), ("#d9641e", "s"), ("#1f9d78", "^"), ("#b765a7", "D"), ("#b08a00", "v"), ("#7a6fd0", "P")),
    *(("#c0504d", "X"), ("#4d9aa8", "<"), ("#8a8f3c", ">"), ("#8d8d8d", "h")),
)
"""Colours and markers of series: visible on white and on black, and told apart in greyscale by their markers."""


def kernel_colour(name: str) -> str:
    """Return the colour of the kernel class *name*; a class without one has that of the rest."""
    return CLASSES[name].colour if name in CLASSES else OTHER


_STRATEGIES = (
    *("gpu0", "ring", "tree", "bidirectional-ring", "multi-ring", "parameter-server", "hierarchical"),
    *("double-tree", "halving-doubling", "sharded", "single-ring", "naive-ring", "cpu", "gloo"),
)


def strategy_series(name: str) -> tuple[str, str]:
    """Return the colour and marker of the strategy *name*, the same in every figure."""
    if name == "nccl":
        return BEST, "o"
    if name in _STRATEGIES:
        return MARKED_SERIES[_STRATEGIES.index(name) % len(MARKED_SERIES)]
    return MARKED_SERIES[sum(name.encode()) % len(MARKED_SERIES)]
