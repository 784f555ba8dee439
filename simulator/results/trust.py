"""How far to trust a step's time: the error of steps of the same kind that others have measured.

The figures are in ``trust.json`` beside this file; ``python docs/make_tables.py FOLDER`` writes it, from
the measurements that ``validate score training.csv`` scores.  They say how good predictions
were, and no prediction reads them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from simulator.step.options import Policy

__all__ = ["Family", "Format", "Trust", "format_of", "trust_in"]

Family = Literal["CNN", "transformer"]
Format = Literal["fp32", "tf32", "half"]


@dataclass(frozen=True, slots=True)
class Trust:
    """Errors of ``rows`` measured steps: median and 90th percentile of the size, and the mean with its sign."""

    family: Family
    format: Format
    rows: int
    median: float
    p90: float
    bias: float


def format_of(policy: Policy) -> Format | None:
    """Return the format under which steps of *policy* were scored, None for those that nobody measured."""
    if policy in ("fp32", "tf32"):
        return "tf32" if policy == "tf32" else "fp32"
    return "half" if policy in ("fp16", "bf16", "amp-fp16", "amp-bf16") else None


def trust_in(family: Family | None, policy: Policy) -> Trust | None:
    """Return the errors of measured steps of that family and precision on GPUs, None where there are none."""
    wanted = format_of(policy)
    entries = json.loads(files("simulator.results").joinpath("trust.json").read_text(encoding="utf-8"))
    for entry in entries:
        if entry["family"] == family and entry["format"] == wanted:
            return Trust(**entry)
    return None
