"""The version of NCCL that a row used: the one it states, else that of its time."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from simulator.questions.nccl import FEATURES, OLDEST_RULES, Feature, Version, chip_since
from simulator.questions.where import NCCL_TODAY

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

    It is the one that *software* states; else that of the date it implies (a year, a container's year and month, a
    PyTorch release); else that of one year after the release of GPUs with *compute_capability*, from the oldest version
    on whose rules are known; else today's.  If not stated, it is at least the first one made for these GPUs, with all
    of *features*.
    """
    said = _NCCL.search(software)
    if said is not None:
        return int(said[1]), int(said[2])
    year = _year(software)
    least = [FEATURES[feature].version for feature in features]
    if compute_capability is not None:
        least.append(chip_since(round(10 * float(compute_capability))))
    if year is None and compute_capability is not None:
        year = _IN_USE + max((came for since, came in _CAME["gpus"] if since <= float(compute_capability)), default=0.0)
        least.append(OLDEST_RULES)
    if year is None:
        return NCCL_TODAY
    return max([_RELEASES[0][1], *(version for came, version in _RELEASES if came <= year), *least])


def _year(software: str) -> float | None:
    month, year, torch = _MONTH.search(software), _YEAR.search(software), _TORCH.search(software)
    if month is not None:
        return 2000 + int(month[1]) + int(month[2]) / 12
    if year is not None:
        return int(year[1]) + 0.5
    if torch is not None:
        return _TORCH_CAME[int(torch[1])] + _TORCH_APART * int(torch[2])
    return None
