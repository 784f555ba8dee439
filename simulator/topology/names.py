"""Names and ranges of names: ``gpu[0-3]`` is gpu0, gpu1, gpu2, gpu3; ``nic[0,2]`` is nic0, nic2.

Numbers may be repeated: ``plx[0,0,1,1]`` pairs two GPUs with each switch.
"""

from __future__ import annotations

import re

from simulator.errors import one_line

MAX_NAMES = 65_536
_MAX_DIGITS = 9
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_RANGED = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)\[([0-9,\- ]+)\]([A-Za-z0-9_.-]*)", re.ASCII)


def expand(text: str) -> list[str]:
    """Return the names that *text* denotes, in the given order.

    Raises ValueError if *text* is neither a name nor a range of names, or denotes too many names.
    """
    stem, ranges, tail = _read(text)
    return [f"{stem}{i}{tail}" for low, high in ranges for i in range(low, high + 1)] if ranges else [text]


def count(text: str) -> int:
    """Return the number of names that *text* denotes, without expanding them; raises as :func:`expand`."""
    _, ranges, _ = _read(text)
    return sum(high - low + 1 for low, high in ranges) or 1


def _read(text: str) -> tuple[str, list[tuple[int, int]], str]:
    """Return (text before the numbers, ranges of numbers, text after them); a plain name has no ranges."""
    if _NAME.fullmatch(text):
        return text, [], ""
    shown = one_line(repr(text), 60)
    match = _RANGED.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown} is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]")
    stem, ranges, tail = match.groups()
    found: list[tuple[int, int]] = []
    n_names = 0
    for piece in ranges.split(","):
        low, dash, high = piece.strip().partition("-")
        numbers = [each.strip() for each in ((low, high) if dash else (low,))]
        if not all(each.isascii() and each.isdigit() for each in numbers):
            raise ValueError(
                f"{shown}: {one_line(repr(piece.strip()), 40)} is neither a number nor a range such as 0-7"
            )
        if max(len(low.strip()), len(high.strip())) > _MAX_DIGITS:
            raise ValueError(f"{shown}: a number has at most {_MAX_DIGITS} digits")
        first, last = int(low), int(high or low)
        if last < first:
            raise ValueError(f"{shown}: the range {piece.strip()} runs backwards")
        n_names += last - first + 1
        if n_names > MAX_NAMES:
            raise ValueError(f"{shown} stands for more than {MAX_NAMES} names")
        found.append((first, last))
    return stem, found, tail
