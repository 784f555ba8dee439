"""How files write many names and links: ranges of names, and matrices of link counts between GPUs.

A range: ``gpu[0-3]`` is gpu0, gpu1, gpu2, gpu3; ``nic[0,2]`` is nic0, nic2.  Numbers may be repeated: ``plx[0,0,1,1]``
pairs two GPUs with each switch.

A matrix has the format of ``nvidia-smi topo -m``.  A header row is optional, and so are columns other than GPUs (NICs,
affinity).  Cells are ``X`` on the diagonal; ``NV2``, ``XGMI2`` or ``2`` for two links; and ``SYS``, ``NODE``, ``PHB``,
``PXB``, ``PIX``, ``SOC`` or ``-`` for none.
"""

from __future__ import annotations

import re

from simulator.errors import one_line

MAX_NAMES = 65_536
_MAX_DIGITS = 9
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_RANGED = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)\[([0-9,\- ]+)\]([A-Za-z0-9_.-]*)", re.ASCII)


def expand(text: str) -> list[str]:
    """Return the names that *text*, a name or a range, denotes; raises ValueError for others, and for too many."""
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
            read = one_line(repr(piece.strip()), 40)
            raise ValueError(f"{shown}: {read} is neither a number nor a range such as 0-7")
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


_GPU = re.compile(r"gpu(\d+)", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"(?:NV|XGMI)?(\d{1,4})", re.IGNORECASE | re.ASCII)
_NONE = {"SYS", "NODE", "PHB", "PXB", "PIX", "SOC", "-", "X"}


def read_matrix(text: str) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return the numbers of the GPUs with a row in a matrix, and the links between them, as (a, b, count) with a < b.

    Raises ValueError if a row is short, a cell is unknown, X is missing on the diagonal or found elsewhere, the header
    and rows name different GPUs, or the matrix is not symmetric.
    """
    columns, rows = _table(text)
    order = columns if columns is not None else list(rows)
    if sorted(order) != sorted(rows):
        raise ValueError("matrix: the header and the rows do not name the same GPUs")
    if len(order) < 2:
        raise ValueError("matrix: needs at least two rows")
    counts: dict[tuple[int, int], int] = {}
    for a in order:
        if len(rows[a]) < len(order):
            raise ValueError(f"matrix: row gpu{a} has {len(rows[a])} cells for {len(order)} GPUs")
        for b, cell in zip(order, rows[a], strict=False):
            counts[a, b] = _count(a, b, cell)
        for cell in rows[a][len(order) :] if columns is None else ():
            if cell.upper().startswith(("NV", "XGMI")):
                raise ValueError(f"matrix: row gpu{a} has {cell} in a column for which there is no row")
    for (a, b), count_ab in counts.items():
        if counts[b, a] != count_ab:
            raise ValueError(f"matrix: gpu{a} to gpu{b} has {count_ab} links, but gpu{b} to gpu{a} has {counts[b, a]}")
    return sorted(order), [(a, b, n) for (a, b), n in sorted(counts.items()) if a < b and n]


def _table(text: str) -> tuple[list[int] | None, dict[int, list[str]]]:
    """Return the GPUs that the header names, None without a header, and the cells of each GPU's row."""
    rows: dict[int, list[str]] = {}
    columns: list[int] | None = None
    named = False
    for words in map(str.split, text.splitlines()):
        if not words or words[0].startswith("#"):
            continue
        numbers = [_GPU.fullmatch(word) for word in words]
        if len(words) > 1 and numbers[0] and numbers[1]:
            columns = [int(m.group(1)) for m in numbers if m]
        elif numbers[0] is not None:
            named = True
            number = int(numbers[0].group(1))
            if number in rows:
                raise ValueError(f"matrix: gpu{number} has two rows")
            rows[number] = words[1:]
        elif named:
            continue  # rows of NICs, or the legend below the matrix
        elif rows or words[0].upper() in _NONE or _COUNT.fullmatch(words[0]):
            rows[len(rows)] = words
        else:
            raise ValueError(f"matrix: a row starts with a GPU (gpu0) or a cell (X, NV1, SYS); got {words[0]!r}")
    return columns, rows


def _count(a: int, b: int, cell: str) -> int:
    """Return the links that the *cell* in row *a*, column *b* stands for."""
    place = f"row gpu{a}, column gpu{b}"
    if (cell.upper() == "X") != (a == b) and cell != "0":
        raise ValueError(f"matrix: {place}: X belongs on the diagonal and only there; got {cell!r}")
    count = _COUNT.fullmatch(cell)
    if count is None and cell.upper() not in _NONE:
        raise ValueError(f"matrix: {place}: {cell!r} is no count such as NV2, 2 or SYS")
    return int(count.group(1)) if count else 0
