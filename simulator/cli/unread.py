"""Options that a single operation takes and does not depend on: said, so that nobody takes its answer for theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from simulator.cli.written import Written, spelt
from simulator.errors import InputError, one_line

__all__ = ["unread_options"]

_WITHOUT = {  # what is left out together: a network needs machines that it joins
    "nodes": ("nodes", "fabric"),
    "fabric": ("fabric",),
    "slow_link": ("slow_link",),
    "neighbour": ("neighbour",),
    "threads": ("threads",),
    "calibration": ("calibration",),
}


def unread_options(written: Written, ask: Callable[[Written], Iterable[float]], times_s: Iterable[float]) -> list[str]:
    """Return a remark on each option of *written* without which all answers take the same *times_s*.

    *ask* answers what was written, second by second, and is asked no further than to the first that differs.
    """
    known = list(times_s)
    remarks = []
    for name, together in _WITHOUT.items():
        value = getattr(written, name)
        if value is None or written.topology == "-":  # which can be read once
            continue
        try:
            without: Written = replace(written, **dict.fromkeys(together))  # type: ignore[arg-type]  # all may be None
            changed = any(a != b for a, b in zip(known, ask(without), strict=True))
        except InputError:  # it cannot be asked without
            continue
        if not changed:
            remarks.append(f"{spelt(name)} {one_line(value, 60)}: changes nothing of this answer")
    return remarks
