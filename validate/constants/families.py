"""Shared constants that are fitted to the same kind of rows (:class:`Family`), which they are, and their terms.

They are written in ``families.yaml``, with their priors and terms.  Exclusions have their reasons here, or in
``published.yaml`` if they concern single tables (column ``fit_weight``); docs/constants.md lists them.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from simulator.api import Session
from simulator.constants import constants_file
from simulator.errors import one_line
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass, field, lists_by_key, own_data
from simulator.topology.parts import GpuPart
from simulator.workload.operators import Attention
from validate.kinds import KINDS, OPERATORS
from validate.kinds.kind import MeasuredRow, Rows, every_row, read_measurements
from validate.kinds.timing import replays
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.table import Table


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior of a constant: its value, the standard deviation of its logarithm, and its bounds."""

    value: float
    sigma: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FitStage:
    """Constants that are fitted together: ``free`` ones, and ``tied`` ones, which equal others.

    Rows count if ``counts`` holds and a free constant moves them; of rows alike in ``alike``, ``most``, evenly spaced.
    """

    free: Mapping[str, Prior]
    alike: tuple[str, ...]
    most: int
    counts: Callable[[MeasuredRow], bool] = lambda _row: True
    tied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """Constants that are fitted to the same kind of rows, in ``stages`` one after the other.

    ``kind`` is the kind of table; ``ops`` are operators or collectives, empty for all; ``grades`` maps trust grades to
    weights; ``held_out`` names the sizes of a shape, of which one in 16 is never fitted to; ``predicts`` selects the
    rows of this model.  ``straight``: the fit is linearised at the constants in use (:mod:`validate.constants.fit`).
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    grades: Mapping[str, float]
    stages: tuple[FitStage, ...]
    held_out: tuple[str, ...] = ()
    predicts: Callable[[MeasuredRow], bool] = lambda _row: True
    straight: bool = False


_WRITTEN: Mapping[str, Any] = own_data("validate.constants", "families.yaml")


def priors_of(stage: str) -> dict[str, Prior]:
    """Return the priors of the constants that are fitted together in *stage*, a name of ``families.yaml``."""
    written = dict(_WRITTEN["priors"][stage])
    factor = written.pop("factor", math.inf)
    found = {}
    for name, (said, sigma, *ends) in written.items():
        value = float(in_use(name) if said == "in use" else said)
        least, most = map(float, (*ends, *(0.0, math.inf)[len(ends) :]))
        found[name] = Prior(value, float(sigma), max(value / factor, least), min(value * factor, most))
    return found


def in_use(name: str) -> float:
    """Return the value of the constant *name* in its file."""
    file, _, key = name.partition(".")
    return float(constants_file(file)["constants"][key]["value"])


@dataclass(frozen=True, slots=True)
class Term:
    """A term of *family*, an effect with constants of its own: values that turn it ``off``, and those then ``idle``."""

    family: str
    name: str
    off: Mapping[str, float]
    idle: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = tuple(
    Term(family, name, {key: float(value) for key, value in said.items() if key != "idle"}, tuple(said.get("idle", ())))
    for family, terms in _WRITTEN["terms"].items()
    for name, said in terms.items()
)
"""The terms of all families, in the order of reports.

``validate fit --terms`` fits each family again without one term at a time, on the same rows and with the same devices
left out, and compares the errors on these devices: a term that does not lower them should go.
"""


def _on_matrix_units(row: MeasuredRow) -> bool:
    """Whether a 16-bit product runs on NVIDIA tensor cores before Ampere, whose operands come through registers."""
    precision, part = _asked(row).precision, row.part
    of_16_bit = precision in ("fp16", "bf16") and not _is_pipelined(row)
    return of_16_bit and isinstance(part, GpuPart) and precision in part.peak and part.vendor == "nvidia"


def _is_pipelined(row: MeasuredRow) -> bool:
    """Whether a product runs on NVIDIA tensor cores from Ampere on, which have their own model."""
    since_ampere = isinstance(row.part, GpuPart) and float(row.part.compute_capability or 0.0) >= 8.0
    return since_ampere and _asked(row).precision not in ("fp32", "fp64")


def _asked(row: MeasuredRow) -> OperatorQuestion:
    question = row.asks.question
    assert isinstance(question, OperatorQuestion)
    return question


def _is_as_in_training(row: MeasuredRow) -> bool:
    """Whether a row is attention of 128 tokens or more as in training: SGLang's, one family, before Blackwell."""
    part = row.part
    if not row.cells.get("software", "").startswith("sglang") or not isinstance(part, GpuPart):
        return False
    operator = _asked(row).operator
    assert isinstance(operator, Attention)
    packs = float(part.compute_capability or 0.0) >= 9.0
    kv_heads = operator.kv_heads or operator.heads
    group = operator.heads // kv_heads if packs else 1
    blocks = operator.batch * operator.heads // group * -(-operator.query_length * group // 128)
    is_whole = operator.key_length <= 256 or blocks >= (part.sm_count or 0)
    return operator.query_length >= 128 and (packs or kv_heads == operator.heads) and is_whole


def _is_alone(row: MeasuredRow) -> bool:
    return row.cells.get("includes_dispatch") == "1"


def _is_convolution(dtype: str) -> Callable[[MeasuredRow], bool]:
    """Return a test for convolutions in *dtype* whose time is mostly the device's; hosts differ."""
    return lambda row: row.cells.get("dtype") == dtype and (not _is_alone(row) or row.time_s > 1.2e-3)


_ROWS: Mapping[str, Callable[[MeasuredRow], bool]] = {
    "all": lambda _row: True,
    "lanes": lambda row: not _is_pipelined(row) and not _on_matrix_units(row),
    "early matrix units": _on_matrix_units,
    "matrix units since Ampere": _is_pipelined,
    # long passes over memory with inline ECC
    "checked memory": lambda row: (
        isinstance(row.part, GpuPart) and row.part.inline_ecc and _is_alone(row) and row.time_s > 1e-3
    ),
    "as in training": _is_as_in_training,
    # without short ones on an AMD GPU, whose only host launched in half the time
    "alone": lambda row: (
        _is_alone(row) and not (row.grade == "C" and isinstance(row.part, GpuPart) and row.part.vendor == "amd")
    ),
    "fp32 convolutions": _is_convolution("fp32"),
    "fp16 convolutions": _is_convolution("fp16"),
}  # rows by their names in ``families.yaml``


def _family(name: str, stages: Mapping[str, Any], rows: Mapping[str, Any], **others: Any) -> Family:
    tied = {each: fitted for fitted, equal in _WRITTEN["tied"].get(name, {}).items() for each in equal}
    made = tuple(
        FitStage(priors_of(stage), tuple(how["alike"]), how["most"], _ROWS[how.get("counts", "all")], tied)
        for stage, how in stages.items()
    )
    predicts, held_out = _ROWS[rows.get("predicts", "all")], tuple(others.get("held_out", ()))
    ops, straight = tuple(rows.get("ops", ())), others.get("straight", False)
    return Family(name, rows["kind"], ops, rows["grades"], made, held_out, predicts, straight)


FAMILIES: tuple[Family, ...] = tuple(_family(name, **written) for name, written in _WRITTEN["families"].items())

_APART = 1.25  # chosen: times of one question that differ by more are of different work


def read_rows(files: Sequence[str], names: RowNames, kinds: Collection[str]) -> list[MeasuredRow]:
    """Return the measured rows of *files* of *kinds*; raises InputError if one cannot be read or lacks a column."""
    every = (read_measurements(file, KINDS) for file in files)
    rows = (row for table, kind in every if kind.name in kinds for row in every_row(table, kind, names))
    return [row for row in rows if row.asked and not row.untimed]


def device_rows(table: Table, names: RowNames) -> dict[str, list[MeasuredRow]]:
    """Return the rows of operators of *table* by the device's part, "" for none, in the order of the table."""
    found: dict[str, list[MeasuredRow]] = {}
    for row in every_row(table, OPERATORS, names):
        try:
            names.device(row.place)
        except NotScored as reason:
            row.skipped = row.skipped or str(reason)
        found.setdefault(names.devices.part(row.place) or "", []).append(row)
    return found


def countable(rows: Rows, session: Session, trust: Collection[str]) -> list[MeasuredRow]:
    """Return *rows* of *trust* with a prediction and a plausible time; the others say why not in ``skipped``."""
    found = []
    for row in (row for row in rows if not row.skipped):
        try:
            if row.untimed:
                raise NotScored(row.untimed)
            row.asks.time_s(session)
            if row.grade and row.grade not in trust:
                raise NotScored(f"trust {one_line(row.grade, 20)}")
            if row.op == "attention" and replays(row.cells.get("software", "")):
                raise NotScored("attention of a framework for serving: what it runs along is not part of the device")
            found.append(row)
        except NotScored as reason:
            row.skipped = str(reason)
    return found


def calibrating_rows(rows: Rows, chosen: Collection[str]) -> list[MeasuredRow]:
    """Return the fastest of *rows* for each digest *chosen*, in order; none of equal questions that are far apart."""
    alike = lists_by_key((row.digest, row) for row in rows if row.digest in chosen)
    best = [min(alike[key], key=lambda row: row.time_s) for key in sorted(alike)]
    return [row for row in best if max(each.time_s for each in alike[row.digest]) <= _APART * row.time_s]
