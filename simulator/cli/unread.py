"""Remarks on options that were given but do not affect the answer to a single operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from simulator.cli.written import Written
from simulator.errors import InputError, one_line
from simulator.spelling import mention

_WITHOUT = {  # options removed together: a network needs several machines
    "nodes": ("nodes", "fabric"),
    "fabric": ("fabric",),
    "slow_link": ("slow_link",),
    "neighbour": ("neighbour",),
    "threads": ("threads",),
    "calibration": ("calibration",),
}


def unread_options(written: Written, ask: Callable[[Written], Iterable[float]], times_s: Iterable[float]) -> list[str]:
    """Return a remark on each option of *written* that can be removed without changing *times_s*.

    *ask* answers a set of options with an iterator of seconds, which is read up to the first difference.
    """
    known = list(times_s)
    remarks = []
    for name, together in _WITHOUT.items():
        value = getattr(written, name)
        if value is None or written.topology == "-":  # standard input can be read only once
            continue
        try:
            without: Written = replace(written, **dict.fromkeys(together))  # type: ignore[arg-type]  # all may be None
            changed = any(a != b for a, b in zip(known, ask(without), strict=True))
        except InputError:  # there is no answer without the option
            continue
        if not changed:
            remarks.append(f"{mention(name, one_line(value, 60))}: changes nothing of this answer")
    return remarks
