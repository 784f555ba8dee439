"""The scores as one JSON document, with errors as fractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.api.collectives import ALPHA_S
from simulator.errors import one_line
from simulator.records import asdict, dataclass, field
from validate.kinds.kind import Kind
from validate.score.memory import MemoryErrors, memory_document
from validate.score.scaling import Efficiencies, scaling_document
from validate.score.scores import ScoreGroup, Scores, beside_published, group_rows, median_of, one_group
from validate.tables.lines import by_frequency

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ScoredTable:
    """The scores of one table, which the user called ``file``; ``method`` says how its rows were predicted.

    ``memory`` has the figures of memory that rows hold; ``efficiencies`` is filled only where the scaling of steps is
    scored.
    """

    file: str
    rows: Scores
    kind: Kind
    method: str
    memory: MemoryErrors = field(default_factory=MemoryErrors)
    efficiencies: Efficiencies = field(default_factory=Efficiencies)


def scores_for(kind: Kind, by: Sequence[str] = (), file: str = "") -> Scores:
    """Return empty scores for rows of *kind*, with the labels that documents and reports use; *by* as in document."""
    axes = [*kind.axes, *kind.shown, (kind.place, "trust"), tuple(by)]
    return Scores((), [name for axis in axes for name in axis], file)


def scores_document(
    tables: Sequence[ScoredTable], *, strategy: str, trust: Sequence[str], by: Sequence[str] = (), scales: bool = False
) -> dict[str, Any]:
    """Return the scores of *tables*, grouped by the axes of their kind and by *by*; *scales*: with scaling errors."""
    return {
        "schema_version": SCHEMA_VERSION,
        "strategy": strategy,
        "trust": list(trust),
        "baseline_constants": {"alpha-beta-ring": {"alpha_s": ALPHA_S}},
        "tables": [
            {**_table(table, tuple(by)), **({"scaling": scaling_document(table.efficiencies)} if scales else {})}
            for table in tables
        ],
    }


def skipped_lines(rows: Scores) -> dict[str, Sequence[int]]:
    """Return the lines of the rows that do not count, by reason, the most frequent first."""
    return by_frequency(dict(rows.skipped()))


def _table(table: ScoredTable, by: tuple[str, ...]) -> dict[str, Any]:
    kind = table.kind
    axes = [*kind.axes, *([by] if by and by not in kind.axes else [])]
    everything = one_group(table.rows)
    groups = [group for axis in axes for group in group_rows(table.rows, axis)]
    lines = skipped_lines(table.rows)
    return {
        "file": one_line(table.file, 1000),
        "kind": kind.name,
        "method": table.method,
        "rows": everything.rows,
        "scored": everything.errors.n,
        "coverage": everything.coverage,
        "context": table.rows.context,
        "skipped": {reason: len(numbers) for reason, numbers in lines.items()},
        "skipped_lines": {reason: list(numbers) for reason, numbers in lines.items()},
        "overall": {
            **asdict(everything.errors),
            f"median_of_{kind.place}s": median_of(kind.place, table.rows),
        },
        "groups": [_group(group, kind.baseline) for group in groups if group.errors.n],
        "not_scored": [{"by": group.by, "rows": group.rows} for group in groups if not group.errors.n],
        "baselines": {kind.baseline: asdict(everything.baseline)},
        "published": {
            name: {**asdict(theirs), "ours": {k: value for k, value in asdict(ours).items() if k != "n"}}
            for name, theirs, ours in beside_published(table.rows)
        },
        **({"memory": memory_document(table.memory)} if kind.holds_memory else {}),
    }


def _group(group: ScoreGroup, baseline: str) -> dict[str, Any]:
    return {
        "by": group.by,
        **asdict(group.errors),
        "rows": group.rows,
        "coverage": group.coverage,
        "baselines": {baseline: asdict(group.baseline)},
    }
