"""The scores as one JSON document, with errors as fractions, and as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.api.collectives import ALPHA_S
from simulator.cli.table import table_of
from simulator.console.style import PLAIN, Style
from simulator.errors import one_line
from simulator.records import asdict, dataclass, field
from simulator.results import taken
from validate.kinds.kind import Kind
from validate.score import besides
from validate.score.scores import ScoreGroup, Scores, beside_published, median_of
from validate.tables.lines import by_frequency, percent_text, skipped_table

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
    memory: besides.MemoryErrors = field(default_factory=besides.MemoryErrors)
    efficiencies: besides.Efficiencies = field(default_factory=besides.Efficiencies)


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
            {
                **_table_document(table, tuple(by)),
                **({"scaling": [asdict(each) for each in table.efficiencies.scaling()]} if scales else {}),
            }
            for table in tables
        ],
    }


def skipped_lines(rows: Scores) -> dict[str, Sequence[int]]:
    """Return the lines of the rows that do not count, by reason, the most frequent first."""
    return by_frequency(dict(rows.skipped()))


def _table_document(table: ScoredTable, by: tuple[str, ...]) -> dict[str, Any]:
    kind = table.kind
    axes = [*kind.axes, *([by] if by and by not in kind.axes else [])]
    everything = table.rows.whole()
    groups = [group for axis in axes for group in table.rows.groups(axis)]
    lines = skipped_lines(table.rows)
    return {
        "file": one_line(table.file, 1000),
        "kind": kind.name,
        "method": table.method,
        **taken(everything, "rows scored=errors.n coverage"),
        "context": table.rows.context,
        "skipped": {reason: len(numbers) for reason, numbers in lines.items()},
        "skipped_errors": {reason: asdict(errors) for reason, errors in table.rows.skipped_errors().items()},
        "skipped_lines": {reason: list(numbers) for reason, numbers in lines.items()},
        "overall": {
            **asdict(everything.errors),
            f"median_of_{kind.place}s": median_of(kind.place, table.rows),
        },
        "groups": [_group_document(group, kind.baseline) for group in groups if group.errors.n],
        "not_scored": [{"by": group.by, "rows": group.rows} for group in groups if not group.errors.n],
        "baselines": {kind.baseline: asdict(everything.baseline)},
        "published": {
            name: {**asdict(theirs), "ours": {k: value for k, value in asdict(ours).items() if k != "n"}}
            for name, theirs, ours in beside_published(table.rows)
        },
        **({"memory": besides.memory_document(table.memory)} if kind.holds_memory else {}),
    }


def _group_document(group: ScoreGroup, baseline: str) -> dict[str, Any]:
    return {
        "by": group.by,
        **asdict(group.errors),
        **taken(group, "rows coverage"),
        "baselines": {baseline: asdict(group.baseline)},
    }


_HEADER = ["", "rows", "scored", "median", "p90", "mean", "bias"]


def scores_report(
    tables: Sequence[ScoredTable],
    *,
    trust: Sequence[str],
    by: Sequence[str] = (),
    scales: bool = False,
    style: Style = PLAIN,
) -> str:
    """Return tables of errors: over all rows, then by the axes of the kind of table, or by *by*.

    *scales*: with the errors of scaling efficiencies, where steps are measured with different numbers of GPUs.
    """
    blocks = [_table(table, trust, by, style) for table in tables]
    if scales:
        blocks += ["\n".join(besides.scaling_lines(table.efficiencies, style)) for table in tables]
    legends = dict.fromkeys(table.kind.legend for table in tables)
    what = "error = (simulated - measured) / measured; median, p90 and mean of its absolute value; bias: its mean"
    blocks.append("\n".join(line for legend in (what, *legends) for line in style.wrap(legend)))
    return "\n\n".join(blocks) + "\n"


def _table(table: ScoredTable, trust: Sequence[str], by: Sequence[str], style: Style) -> str:
    everything = table.rows.whole()
    share = f" ({everything.coverage:.1%})" if everything.coverage is not None else ""
    title = f"{one_line(table.file, 200)}: {everything.errors.n} of {everything.rows} rows scored{share}"
    if table.memory.scored:
        title += f", memory of {table.memory.scored}"
    lines = style.wrap(f"{title}; {table.method}, trust {', '.join(trust)}", "bold")
    if everything.errors.n or not table.memory.scored:
        lines += ["", *_times(table, everything, by, style)]
    lines += besides.memory_lines(table.memory, style)
    medians = {reason: errors.median_ape for reason, errors in table.rows.skipped_errors().items()}
    skipped = skipped_table("not scored", skipped_lines(table.rows), style, medians)
    return "\n".join([*lines, *([""] if skipped else []), *skipped])


def _times(table: ScoredTable, everything: ScoreGroup, by: Sequence[str], style: Style) -> list[str]:
    """Return the table of the errors of times, and of other predictors'."""
    label = table.kind.baseline_label or table.kind.baseline
    header = [*_HEADER, f"{label} median", f"{label} p90"]
    alike = ["", "", percent_text(median_of(table.kind.place, table.rows)), *[""] * (len(header) - 4)]
    body = [header, _figures("all rows", everything), [f"median of {table.kind.place}s", *alike]]
    marks: dict[int, str] = {}
    for axes in [tuple(by)] if by else table.kind.shown:
        groups = [
            _figures("  " + "  ".join(one_line(label, 40) for label in group.by.values()), group)
            for group in table.rows.groups(axes)
        ]
        if by:
            missing, rest = table.rows.without(axes)  # so that the groups add up to all rows
            groups += [_figures(f"  (no {' or '.join(missing)})", rest)] if rest.rows else []
        if groups:
            marks[len(body) - 1] = "by " + ", ".join(axes)
            body += groups
    lines = table_of(body, [False] + [True] * (len(header) - 1), style, (8, 5, 7, 4), marks)
    return lines + _published(table, style)


def _published(table: ScoredTable, style: Style) -> list[str]:
    found = beside_published(table.rows)
    if not found:
        return []
    rows = [["on the rows that it predicted too", "rows", "its median", "its mean", "median", "mean"]]
    for name, theirs, ours in found:
        figures = (theirs.median_ape, theirs.mean_ape, ours.median_ape, ours.mean_ape)
        rows.append([one_line(name, 40), str(theirs.n), *(percent_text(value) for value in figures)])
    return ["", *table_of(rows, [False] + [True] * 5, style)]


def _figures(label: str, group: ScoreGroup) -> list[str]:
    errors, baseline = group.errors, group.baseline
    cells = [errors.median_ape, errors.p90_ape, errors.mean_ape]
    return [
        label,
        str(group.rows),
        str(errors.n),
        *(percent_text(value) for value in cells),
        percent_text(errors.bias, sign="+"),
        percent_text(baseline.median_ape),
        percent_text(baseline.p90_ape),
    ]
