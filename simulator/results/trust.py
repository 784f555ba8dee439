"""How far to trust a step's time: the errors of predictions for measured steps of the same kind.

The figures are in ``trust.json`` beside this file.  ``python docs/make_tables.py FOLDER`` writes it, from
the measurements that ``validate score training.csv`` scores.  They only describe past predictions; no prediction reads
them.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Literal

from simulator.records import dataclass
from simulator.workload.network import Family
from simulator.workload.precision import Precision

Processor = Literal["GPU", "CPU"]
Format = Literal["fp32", "tf32", "half", "fp8"]
_FORMATS: dict[Precision, Format] = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half", "fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class Trust:
    """Errors over ``rows`` measured steps: median and 90th percentile of their magnitude, and the signed mean.

    ``early_rows`` of them ran software from before 2019, of which only the fastest framework counts: others took
    several times as long for the same step.  ``several``: steps over several devices; ``divided``: devices that divide
    the network, not only the samples.
    """

    processor: Processor
    family: Family
    format: Format
    rows: int
    early_rows: int
    several: bool
    divided: bool
    median: float
    p90: float
    bias: float


def format_of(precision: Precision) -> Format | None:
    """Return the format under which steps in *precision* were scored, or None if nobody measured them."""
    return _FORMATS.get(precision)


def trust_in(
    processor: Processor,
    family: Family | None,
    form: Format | None,
    *,
    several: bool = False,
    divided: bool = False,
) -> Trust | None:
    """Return the errors of measured steps of that family and format on one *processor* or *several*, or None.

    *divided*: steps that divide the network among devices.
    """
    entries = json.loads(files("simulator.results").joinpath("trust.json").read_text(encoding="utf-8"))
    for entry in entries:
        found = entry["processor"], entry["family"], entry["format"], entry["several"], entry["divided"]
        if found == (processor, family, form, several, divided):
            return Trust(**entry)
    return None
