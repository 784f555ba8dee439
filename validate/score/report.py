"""The scores as one JSON document, with errors as fractions, as text for the terminal, and each row as inert CSV."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.api.context import ALPHA_S
from simulator.bands.composition import OF_SHARED
from simulator.cli.table import table_of
from simulator.console import PLAIN, Style
from simulator.errors import counted, one_line
from simulator.records import asdict, dataclass, field
from simulator.results import taken
from validate.kinds.kind import ALL_COLUMNS, MEMORY_COLUMNS, Kind, MeasuredRow
from validate.score.scores import Efficiencies, ScoreGroup, Scores, median_of
from validate.tables.cells import figure
from validate.tables.statistics import Errors, by_frequency, percent_text, skipped_table
from validate.tables.table import Table

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ScoredTable:
    """The scores of one table, called ``file``; ``method`` says how its rows were predicted.

    ``memory`` has those of the figures of memory; ``efficiencies`` is filled where the scaling of steps is scored.
    """

    file: str
    rows: Scores
    kind: Kind
    method: str
    memory: Mapping[str, Scores] = field(default_factory=lambda: {name: Scores() for name in MEMORY_COLUMNS})
    efficiencies: Efficiencies = field(default_factory=Efficiencies)

    def add(self, row: MeasuredRow) -> None:
        """Add *row* and its figures of memory; raises InputError where the labels differ too much."""
        self.rows.add(row)
        for each in row.memory:
            self.memory[each.name].put(row.line, each.error, each.skipped)

    @property
    def rows_of_memory(self) -> int:
        """The number of rows with a figure of memory that counts."""
        return len({line for scores in self.memory.values() for line in scores.counted()})


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
        "tables": [_table_document(table, tuple(by), scales=scales) for table in tables],
    }


def _skipped_document(rows: Scores, skipped_errors: Mapping[str, Any]) -> dict[str, Any]:
    lines = by_frequency(rows.skipped())
    return {
        "skipped": {reason: len(numbers) for reason, numbers in lines.items()},
        **skipped_errors,
        "skipped_lines": {reason: list(numbers) for reason, numbers in lines.items()},
    }


def _table_document(table: ScoredTable, by: tuple[str, ...], *, scales: bool) -> dict[str, Any]:
    kind, rows = table.kind, table.rows
    axes = [*kind.axes, *([by] if by and by not in kind.axes else [])]
    everything = rows.whole()
    groups = [group for axis in axes for group in rows.groups(axis)]
    skipped_errors = {reason: asdict(errors) for reason, errors in rows.skipped_errors().items()}
    memory: dict[str, Any] = {}
    for name, figures in table.memory.items():
        if len(figures):
            worst, line = _worst(figures)
            memory[name] = {**asdict(figures.whole().errors), "rows": len(figures), "worst": worst, "worst_line": line}
            memory[name] |= _skipped_document(figures, {})
    return {
        "file": one_line(table.file, 1000),
        "kind": kind.name,
        "method": table.method,
        **taken(everything, "rows scored=errors.n coverage"),
        "context": rows.context,
        **_skipped_document(rows, {"skipped_errors": skipped_errors}),
        **({"shared_networks": _shared(rows)} if rows.shared else {}),
        "overall": {**asdict(everything.errors), f"median_of_{kind.place}s": median_of(kind.place, rows)},
        "groups": [
            {
                "by": group.by,
                **asdict(group.errors),
                **taken(group, "rows coverage"),
                "baselines": {kind.baseline: asdict(group.baseline)},
            }
            for group in groups
            if group.errors.n
        ],
        "not_scored": [{"by": group.by, "rows": group.rows} for group in groups if not group.errors.n],
        "baselines": {kind.baseline: asdict(everything.baseline)},
        "published": {
            name: {**asdict(theirs), "ours": {k: value for k, value in asdict(ours).items() if k != "n"}}
            for name, theirs, ours in rows.beside_published()
        },
        **({"memory": memory} if kind.holds_memory else {}),
        **({"scaling": table.efficiencies.scaling()} if scales else {}),
    }


def _shared(rows: Scores) -> list[dict[str, Any]]:
    """Return by the share by which other jobs lower rates: the rows whose bands reach so far, and those inside."""
    return [{"lower": at, "rows": len(held), "in_band": sum(held)} for at, held in sorted(rows.shared.items())]


def _worst(figures: Scores) -> tuple[float | None, int | None]:
    found = figures.counted()
    line = max(found, key=lambda line: abs(found[line]), default=None)
    return (None, None) if line is None else (found[line], line)


def scores_report(
    tables: Sequence[ScoredTable],
    *,
    trust: Sequence[str],
    by: Sequence[str] = (),
    scales: bool = False,
    style: Style = PLAIN,
) -> str:
    """Return tables of errors over all rows and by the kind's axes or *by*; *scales*: of scaling efficiencies too."""
    blocks = [_table(table, trust, by, style) for table in tables]
    blocks += [_scaling(table, style) for table in tables] if scales else []
    legends = dict.fromkeys(table.kind.legend for table in tables)
    what = "error = (simulated - measured) / measured; median, p90 and mean of its absolute value; bias: its mean"
    blocks.append([line for legend in (what, *legends) for line in style.wrap(legend)])
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _table(table: ScoredTable, trust: Sequence[str], by: Sequence[str], style: Style) -> list[str]:
    everything, of_memory = table.rows.whole(), table.rows_of_memory
    share = f" ({everything.coverage:.1%})" if everything.coverage is not None else ""
    title = f"{one_line(table.file, 200)}: {everything.errors.n} of {everything.rows} rows scored{share}"
    title += f", memory of {of_memory}" if of_memory else ""
    lines = style.wrap(f"{title}; {table.method}, trust {', '.join(trust)}", "bold")
    if everything.errors.n or not of_memory:
        lines += ["", *_times(table, everything, by, style)]
    for each in _shared(table.rows):
        lower, of = f"{100 * each['lower']:.3g} % ", f"{each['in_band']} of {counted(each['rows'], 'row')}"
        lines += ["", *style.wrap(f"80 % band of a shared network: {OF_SHARED.format(lower)}; it holds {of}")]
    lines += _memory(table, style)
    medians = {reason: errors.median_ape for reason, errors in table.rows.skipped_errors().items()}
    skipped = skipped_table("not scored", by_frequency(table.rows.skipped()), style, medians)
    return [*lines, *([""] if skipped else []), *skipped]


def _times(table: ScoredTable, everything: ScoreGroup, by: Sequence[str], style: Style) -> list[str]:
    label = table.kind.baseline_label or table.kind.baseline
    header = ["", "rows", "scored", "median", "p90", "mean", "bias", f"{label} median", f"{label} p90"]
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
    rows = [["on the rows that it predicted too", "rows", "its median", "its mean", "median", "mean"]]
    for name, theirs, ours in table.rows.beside_published():
        figures = (theirs.median_ape, theirs.mean_ape, ours.median_ape, ours.mean_ape)
        rows.append([one_line(name, 40), str(theirs.n), *map(percent_text, figures)])
    return lines + (["", *table_of(rows, [False] + [True] * 5, style)] if rows[1:] else [])


def _figures(label: str, group: ScoreGroup) -> list[str]:
    errors, baseline = group.errors, group.baseline
    cells = [*_sizes(errors), percent_text(errors.mean_ape), percent_text(errors.bias, sign="+"), *_sizes(baseline)]
    return [label, str(group.rows), str(errors.n), *cells]


def _sizes(errors: Errors) -> list[str]:
    return [percent_text(errors.median_ape), percent_text(errors.p90_ape)]


def _memory(table: ScoredTable, style: Style) -> list[str]:
    """Return a table of the errors of memory, and the figures that are not scored; nothing where rows hold none."""
    body = [["", "rows", "scored", "median", "p90", "bias", "worst", "in line"]]
    skipped: dict[str, Sequence[int]] = {}
    for name, figures in table.memory.items():
        if len(figures):
            errors, (worst, line) = figures.whole().errors, _worst(figures)
            cells = [*_sizes(errors), percent_text(errors.bias, "+"), percent_text(worst, "+"), str(line or "-")]
            body.append([f"memory, {name}", str(len(figures)), str(errors.n), *cells])
            skipped |= {f"{name}: {reason}": lines for reason, lines in by_frequency(figures.skipped()).items()}
    why = skipped_table("memory not scored", skipped, style)
    return ["", *table_of(body, [False] + [True] * 7, style), *([""] if why else []), *why] if body[1:] else []


def _scaling(table: ScoredTable, style: Style) -> list[str]:
    body = [["scaling efficiency, in points", "pairs", "measured", "predicted", "median", "p90", "bias"]]
    for each in table.efficiencies.scaling():
        figures = [f"{100 * each[name]:.1f}" for name in ("measured", "predicted", "median", "p90")]
        body.append([each["dataset"] or "(no dataset)", str(each["pairs"]), *figures, f"{100 * each['bias']:+.1f}"])
    none = "scaling efficiency: no two scored rows differ in their number of GPUs alone"
    return table_of(body, [False] + [True] * 6, style) if body[1:] else [none]


ADDED = ("predicted_s", "low_s", "high_s", "error", "skipped")
_MEMORY = {name: f"predicted_{name}_bytes" for name in MEMORY_COLUMNS}  # where a table has such columns


class Predictions:
    """Writes rows as CSV to *write* as they come: their columns, joined by name, then those of ``ADDED`` and of memory.

    Of several tables, a column ``table`` names each row's.  Input columns of these names are dropped; fields beyond the
    header are joined to the last column as text.
    """

    def __init__(self, tables: Sequence[Table], write: Callable[[bytes], None]) -> None:
        columns: dict[str, str] = {}
        for table in tables:
            for index, name in enumerate(_names(table)):
                columns.setdefault(name, table.header[index])
        self._write = write
        self._kept = [name for name in columns if name not in (*ADDED, *_MEMORY.values())]
        self._memory = list(_MEMORY) if not columns.keys().isdisjoint(ALL_COLUMNS) else []
        self._several = len(tables) > 1
        added = [*ADDED, *(_MEMORY[name] for name in self._memory)]
        self._line([*(columns[name] for name in self._kept), *(["table"] if self._several else []), *added])

    def begin(self, table: Table) -> Callable[[MeasuredRow], None]:
        """Return the function that writes a row of *table*."""
        names = _names(table)
        own = [table.file] if self._several else []
        last = len(names) - 1

        def write(row: MeasuredRow) -> None:
            fields = row.record.fields
            fitted = [*fields[:last], ",".join(fields[last:]), *[""] * (last - len(fields))]
            cells = dict(zip(names, fitted, strict=True))
            band = (None, None) if row.band is None else (row.band.low_s, row.band.high_s)
            figures = ["" if value is None else repr(value) for value in (row.predicted_s, *band, row.error)]
            held = {each.name: repr(each.predicted_bytes) for each in row.memory if each.predicted_bytes is not None}
            memory = [held.get(name, "") for name in self._memory]
            self._line([*[cells.get(name, "") for name in self._kept], *own, *figures, row.skipped, *memory])

        return write

    def _line(self, cells: Sequence[str]) -> None:
        self._write((",".join(map(_inert, cells)) + "\n").encode())


_OBEYED = ("Cc", "Cf", "Zl", "Zp")  # control and format characters, separators of lines


def _inert(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        text = "".join(
            c.encode("unicode_escape").decode() if unicodedata.category(c) in _OBEYED and c not in "\t\r\n" else c
            for c in text
        )
    text = f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and figure(text) is None else text
    # The standard library's writer does not quote a lone CR, at which readers end the line.
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _names(table: Table) -> list[str]:
    names: list[str] = []
    for index, text in enumerate(table.header):
        name = text.strip().lower()
        names.append(name if name and name not in names else f"\0{index}")
    return names
