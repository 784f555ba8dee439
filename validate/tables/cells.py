"""Parsing of table cells: a number or version, or the reason why the row is not scored."""

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib.resources import files
from typing import TypeVar

from simulator.errors import one_line
from simulator.questions.nccl import FEATURES, OLDEST_RULES, Feature, Version, chip_since
from simulator.questions.where import NCCL_TODAY
from simulator.units import parse_quantity

NOMINAL_BYTES = 256 << 20  # stands in for a size that a table does not give: so large that only bandwidth counts

T = TypeVar("T", bound=str)
_MOST_BYTES = 1e15
_MOST_THREADS = 4096

_MEASURABLE_S = (1e-9, 1e9)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


class NotScored(Exception):  # noqa: N818  a row that is not scored is no fault
    """The row cannot be scored; the message gives a reason in words that many rows can share."""


def figure(text: str) -> float | None:
    """Return the finite number that *text* is in plain decimal notation, the only one that tables use; else None."""
    value = float(text) if len(text) <= 60 and _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def number(column: str, text: str) -> float:
    """Return the number *text* of *column*; raises NotScored where it is empty, no number, or not positive."""
    value = figure(text)
    if value is None:
        raise NotScored(f"{column} is not a number" if text else f"{column} missing")
    if value <= 0:
        raise NotScored(f"{column} not positive")
    return value


def whole_cell(column: str, text: str, most: float = math.inf) -> int:
    """Return the positive whole number *text* of *column*; raises NotScored as :func:`number`, or above *most*."""
    value = number(column, text)
    if value != int(value):
        raise NotScored(f"{column} is not a whole number")
    if value > most:
        raise NotScored(f"{column} is more than {most:g}")
    return int(value)


def whole_or_none(cell: Callable[[str], str], column: str, most: float = math.inf) -> int | None:
    """Return the positive whole number in *column*, None if it is empty; raises NotScored as :func:`whole_cell`."""
    return whole_cell(column, cell(column), most) if cell(column) else None


def one_of(text: str, known: Sequence[T], refusal: str) -> T:
    """Return which of *known* the *text* is; raises NotScored, with the *refusal*, where it is none."""
    found = next((each for each in known if each == text), None)
    if found is None:
        raise NotScored(refusal)
    return found


def quantity(column: str, text: str, kind: str) -> float:
    """Return the positive quantity *text* of *column*, in SI units; raises NotScored where it is none."""
    try:
        return parse_quantity(text, kind, positive=True)
    except ValueError as error:
        raise NotScored(f"{column} '{one_line(text, 20)}': {one_line(error)}") from None


def measured_time(seconds: float) -> float:
    """Return *seconds*; raises NotScored where they are too few or too many for any measurement."""
    if not _MEASURABLE_S[0] <= seconds <= _MEASURABLE_S[1]:
        raise NotScored(f"time_s outside {_MEASURABLE_S[0]:g} to {_MEASURABLE_S[1]:g} s")
    return seconds


def size_bytes(cell: Callable[[str], str], column: str = "bytes") -> float:
    """Return the bytes under *column*, ``NOMINAL_BYTES`` where it is empty; raises NotScored on no valid size."""
    value = number(column, cell(column)) if cell(column) else float(NOMINAL_BYTES)
    if value > _MOST_BYTES:
        raise NotScored(f"{column} is more than {_MOST_BYTES:g}")
    return value


def threads_of(cell: Callable[[str], str]) -> int | None:
    """Return the number under ``threads``, None where it is empty; raises NotScored on no valid number."""
    return whole_or_none(cell, "threads", _MOST_THREADS)


def decade_of(size: float) -> str:
    """Return the decade of *size* for grouping rows: ``1e6`` from 1,000,000 to below 10,000,000."""
    return f"1e{Decimal(repr(size)).adjusted()}"


def measured_s(cell: Callable[[str], str], counted_bytes: float | None) -> float:
    """Return a row's seconds by its rate for *counted_bytes*, else its time or latency; raises NotScored."""
    if cell("gbps") and counted_bytes is not None:
        return counted_bytes / (number("GBps", cell("gbps")) * 1e9)
    return number("time_s", cell("time_s")) if cell("time_s") else number("latency_s", cell("latency_s"))


_NCCL = re.compile(r"\b[nr]ccl[ =v]{0,2}([1-9]\d?)\.(\d{1,3})\b", re.IGNORECASE | re.ASCII)
_YEAR = re.compile(r"\b(20[0-4]\d)\b", re.ASCII)
_MONTH = re.compile(r"(?<![\d.])(1[6-9]|[2-4]\d)\.(0[1-9]|1[0-2]|[1-9])(?![\d.])", re.ASCII)  # containers, HPC SDK
_TORCH = re.compile(r"\b(?:py)?torch ?v?([12])\.(\d{1,2})\b", re.IGNORECASE | re.ASCII)
_CAME = json.loads(files("validate.tables").joinpath("releases.json").read_text(encoding="utf-8"))
# Release dates in years (github.com/NVIDIA/nccl/releases); a version covers the time until the next one listed.
_RELEASES: list[tuple[float, Version]] = [
    (came, (int(version.partition(".")[0]), int(version.partition(".")[2]))) for came, version in _CAME["nccl"]
]
_TORCH_CAME = {1: 2018.9, 2: 2023.2}  # release years of 1.0 and 2.0 (github.com/pytorch/pytorch/releases)
_TORCH_APART = 0.29  # years between minor versions
_IN_USE = 1.0  # years after a GPU's release when most published measurements of it are taken


def nccl_of(software: str, compute_capability: str | None, *features: Feature) -> Version:
    """Return NCCL's major and minor version.

    It is the one that *software* states or whose date it implies (a year, a container's month, a PyTorch release); else
    that of one year after the release of GPUs with *compute_capability*; else today's.  If not stated, it is at least
    the first one for these GPUs, with all of *features*.
    """
    if said := _NCCL.search(software):
        return int(said[1]), int(said[2])
    least = [FEATURES[feature].version for feature in features]
    if compute_capability is not None:
        least.append(chip_since(round(10 * float(compute_capability))))
    if month := _MONTH.search(software):
        year = 2000 + int(month[1]) + int(month[2]) / 12
    elif said := _YEAR.search(software):
        year = int(said[1]) + 0.5
    elif torch := _TORCH.search(software):
        year = _TORCH_CAME[int(torch[1])] + _TORCH_APART * int(torch[2])
    elif compute_capability is not None:
        year = _IN_USE + max((came for since, came in _CAME["gpus"] if since <= float(compute_capability)), default=0.0)
        least.append(OLDEST_RULES)
    else:
        return NCCL_TODAY
    return max([_RELEASES[0][1], *(version for came, version in _RELEASES if came <= year), *least])
