"""A comparison as one JSON document, as text of at most 80 columns, and as a page with all of it and figures."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from simulator.cli.table import Collected, blocks_apart, page_blocks, table_of
from simulator.console import PLAIN, Style
from simulator.errors import one_line
from simulator.records import lists_by_key
from simulator.results import plain, taken
from simulator.units import format_duration, format_size
from validate.compare.classes import FAR, ClassErrors, in_words
from validate.compare.comparison import MEASURED_ONLY, Comparison
from validate.compare.folder import BOUND, COLUMNS, VALUES, Drift, own_words
from validate.kinds.kind import MeasuredRow
from validate.tables.cells import figure

SCHEMA_VERSION = 1


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Return *found* as plain data, the only input of the report; errors are fractions, times are in seconds."""
    drift = found.drift
    return {
        "schema_version": SCHEMA_VERSION,
        "folder": one_line(found.folder.path, 1000),
        **taken(found, "machine=folder.machine device=folder.device part=places.part part_known_by=places.how"),
        "topology": one_line(found.places.topology or "", 1000),
        **taken(found, "method trust"),
        "run": {key: found.folder.record.get(key) for key in ("date", "finished", "end", "seconds", "rows")},
        **taken(found, "environment=folder.environment notes"),
        "rows_total": len(found.rows),
        "rows_scored": sum(row.counts for row in found.rows),
        "classes": [{"label": item.label, **plain(item)} for item in found.classes],
        "outliers": [{**_place(row), **taken(row, "error deviations")} for row in found.outliers],
        "outlier_bound_deviations": FAR,
        "worst": [
            {
                **_place(row),
                **taken(row, "error predicted_s measured_s"),
                **_band(row),
                "rules": [cause.rule for cause in causes],
                "explanation": in_words(causes, row.log_ratio),
            }
            for row, causes in found.worst
        ],
        "asked": [_own_document(row) for row in found.own],
        "own_code": [
            {**_place(row), "times": times, "words": _own_code_words(row.name, times)} for row, times in found.own_code
        ],
        "held": [
            {**_place(row), **taken(each, "figure=name predicted_bytes measured_bytes error")}
            for row, each in found.held
        ],
        **taken(found, "calibration=judged calibration_notes=judged_notes"),
        "drift": drift
        and {
            "folder": one_line(drift.path, 1000),
            "bound": BOUND,
            **taken(drift, "classes beyond only_first only_second"),
            "environment": [dict(zip(("name", "first", "second"), each, strict=True)) for each in drift.environment],
        },
        "skipped": _skipped_of(found),
        "left": [{key: one_line(text, 300) for key, text in row.items()} for row in found.folder.left],
        "rows": [_row_document(row) for row in found.rows],
    }


def _skipped_of(found: Comparison) -> dict[str, dict[str, int]]:
    reasons = lists_by_key((row.table, row.skipped) for row in found.rows if row.skipped)
    return {table: dict(_by_count(Counter(every))) for table, every in sorted(reasons.items())}


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _place(row: MeasuredRow) -> dict[str, Any]:
    return taken(row, "table line name")


def _band(row: MeasuredRow) -> dict[str, float]:
    return {} if row.band is None else taken(row.band, "low_s high_s")


def _own_code_words(name: str, times: float) -> str:
    return f"{name}: takes {times:.3g} times as long as the module that is built of its operators"


def _own_document(row: MeasuredRow) -> dict[str, Any]:
    held = next((each for each in row.memory if each.name == "allocated" and each.error is not None), None)
    times = {**_place(row), **taken(row, "predicted_s measured_s"), **_band(row), "error": row.error}
    return {**times, **taken(held, "predicted_bytes measured_bytes"), "skipped": row.skipped}


def _row_document(row: MeasuredRow) -> dict[str, Any]:
    measured = {name: figure(row.labels.get(name.lower(), "")) for name in VALUES}
    skipped = "measured only" if row.skipped == MEASURED_ONLY else row.skipped
    shown: dict[str, Any] = {
        **_place(row),
        "cells": {name: row.labels[name] for name in COLUMNS["shown"] if name in row.labels},
        "interval": row.interval,
        "measured": {name: value for name, value in measured.items() if value is not None and value > 0},
        **({} if row.predicted_s is None else {"predicted_s": row.predicted_s, **_band(row)}),
        **({} if row.measured_s is None else {"measured_s": row.measured_s}),
        **({"error": row.error} if row.counts else {}),
        **({"outlier": True} if row.deviations else {}),
        **({"skipped": skipped} if skipped else {}),
    }
    return {key: value for key, value in shown.items() if not isinstance(value, float) or math.isfinite(value)}


WIDTH = 80
_MOST_ON_PAGES = 200  # of anything that is listed
_MOST = {"outliers": 12, "reasons": 5, "left": 8, "drift": 10, "own": 20}  # in texts
_LEAST_LABEL = 12  # columns for the name of a class
_HUGE = 100.0  # errors of 10,000 % and more are written with an exponent


def comparison_text(found: Comparison, style: Style = PLAIN) -> str:
    """Return the summary, then errors by class and by row, memory, calibration, drift, and what was left out."""
    return "\n".join(_lines(found, style.at_most(WIDTH))) + "\n"


def _lines(found: Comparison, style: Style) -> list[str]:
    writers = (_head, _own, _classes, _worst, _outliers, _held, _judged, _drift, _left)
    return blocks_apart(*(write(found, style) for write in writers))


def comparison_page(found: Comparison, command: str) -> str:
    """Return the text of *found*, its figures and the measured environment as a page; *command* asks for it again."""
    from reports.compare import comparison_figures, environment_blocks
    from reports.page import Page, page_of

    document = comparison_document(found)
    title, *text = page_blocks(_lines(found, Collected()))
    environment = environment_blocks(document["environment"])
    return page_of(Page([title, *text, *comparison_figures(document), *environment], command))


def _most(what: str, style: Style) -> int:
    return _MOST_ON_PAGES if isinstance(style, Collected) else _MOST[what]


def _listed(heads: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> list[str]:
    """Return *rows* of a figure and texts: on pages a table below *heads*, else each text on lines of its own."""
    if isinstance(style, Collected):
        right = [True, *[False] * (len(heads) - 1)]
        return table_of([heads, *([cell.strip() for cell in row] for row in rows)], right, style)
    lines = []
    for begin, *texts in rows:
        room = len(begin) + 2
        for number, text in enumerate(texts):
            lines += style.wrap((" " * room if number else f"{begin}  ") + text, hang=room)
    return lines


def _head(found: Comparison, style: Style) -> list[str]:
    scored = sum(row.counts for row in found.rows)
    title = f"{one_line(found.folder.path, 50)}: {scored} of {len(found.rows)} rows predicted and judged"
    part, topology, date = found.places.part, found.places.topology, found.folder.record.get("date")
    said = [f"machine {found.folder.machine or 'not named'}"]
    said += [f"device {part}, by {found.places.how}"] if part else []
    said += [f"topology {one_line(topology, 50)}"] if topology else []
    said += [found.method, f"trust {', '.join(found.trust)}"]
    said += [f"measured {one_line(date, 20)}"] if date else []
    notes = [line for note in found.notes for line in style.wrap(f"note: {note}")]
    return [*style.wrap(title, "bold"), *style.wrap("; ".join(said)), *notes]


def _own(found: Comparison, style: Style) -> list[str]:
    if not found.own:
        return []
    held = {id(row): each for row, each in found.held if each.name == "allocated"}
    most = _most("own", style)
    body = [["asked for", "predicted", "measured", "error", "memory", "measured"]]
    for row in found.own[:most]:
        cells = [one_line(own_words(row.labels), 80), "-", "-", "-", "-", "-"]
        if row.predicted_s is not None and row.measured_s is not None:
            cells[1:4] = [format_duration(row.predicted_s), format_duration(row.measured_s), _percent(row.error, "+")]
        if memory := held.get(id(row)):
            cells[4:] = [format_size(memory.predicted_bytes or 0.0), format_size(memory.measured_bytes)]
        body.append(cells if held else cells[:4])
    body[0] = body[0] if held else body[0][:4]
    laid = table_of(_fitting(body, style), [False] + [True] * (len(body[0]) - 1), style)
    more = len(found.own) - most
    python = [
        line for row, times in found.own_code[: _MOST["own"]] for line in style.wrap(_own_code_words(row.name, times))
    ]
    return [*laid, *([f"and {more} more (--json)"] if more > 0 else []), *python]


def _fitting(body: Sequence[Sequence[str]], style: Style) -> list[list[str]]:
    """Return *body* with its first column, whose texts may be indented, cut to what the others leave of a line."""
    if isinstance(style, Collected):
        return [list(row) for row in body]
    room = WIDTH - sum(max(len(row[i]) for row in body) + 2 for i in range(1, len(body[0])))
    indents = [len(row[0]) - len(row[0].lstrip()) for row in body]
    return [
        [" " * indent + one_line(row[0], max(_LEAST_LABEL, room - indent)), *row[1:]]
        for indent, row in zip(indents, body, strict=True)
    ]


def _held(found: Comparison, style: Style) -> list[str]:
    lines: list[str] = []
    for name, what in COLUMNS["memory"].items():
        held = [(abs(each.error or 0.0), row, each) for row, each in found.held if each.name == name]
        if not held:
            continue
        _, row, worst = max(held, key=lambda each: each[0])
        words = f"of {len(held)} steps" if len(held) > 1 else "of one step"
        lines.append(style.mark(f"memory: {what}", "bold"))
        lines += style.wrap(
            f"{words}: median error {_percent(median(error for error, *_ in held))}, the largest"
            f" {_percent(worst.error, '+')} ({row.table}:{row.line}, predicted"
            f" {format_size(worst.predicted_bytes or 0.0)}, measured {format_size(worst.measured_bytes)})"
        )
    return lines


def _classes(found: Comparison, style: Style) -> list[str]:
    on_page = isinstance(style, Collected)
    head = ["error by class", "rows", "median", "95 % of it", "mean", "p90", "bias", "spread", "in band"]
    head = head if on_page else head[:-1]
    body = [head]
    for item in found.classes:
        if len(item.by) > 1 and not on_page:  # those by two columns are in documents and on pages
            continue
        if not item.by and len(body) > 1 and not on_page:
            body.append([""] * len(head))
        label = f"  {item.label}" if item.by else item.label
        rows = f"{item.scored}" if item.scored == item.rows else f"{item.scored}/{item.rows}"
        figures = [_percent(item.median), _interval(item) or "-", _percent(item.mean), _percent(item.p90)]
        figures += [_percent(item.bias, "+"), _percent(item.spread)]
        body.append([label, rows, *figures, "-" if item.in_band is None else f"{item.in_band:.0%}"][: len(head)])
    inside = [row.in_band for row in found.rows if row.counts and row.in_band is not None]
    words = f"in the 80 % band of their prediction: {sum(inside)} of {len(inside)} rows"
    lines = table_of(_fitting(body, style), [False] + [True] * (len(head) - 1), style, spare=(7, 4, 5, 3))
    legend = (
        "error = (predicted - measured) / measured; median, its 95 % interval, mean and 90th percentile of"
        " its absolute value; bias: median of predicted / measured, minus 1, which calibration corrects;"
        " spread: median half interval of the measurements"
    )
    return [*lines, "", *style.wrap(legend), *(style.wrap(words) if inside else [])]


def _interval(item: ClassErrors) -> str:
    known = item.median_low is not None and item.median_high is not None
    return f"{_number(item.median_low or 0.0)}-{_number(item.median_high or 0.0)}" if known else ""


def _worst(found: Comparison, style: Style) -> list[str]:
    rows = [
        (f"{_percent(row.error, '+'):>9}", f"{row.table}:{row.line} {row.name}", in_words(causes, row.log_ratio))
        for row, causes in found.worst
    ]
    title = style.mark(f"the worst {len(found.worst)} rows", "bold")
    return [title, *_listed(("error", "row", "likely cause"), rows, style)] if rows else []


def _outliers(found: Comparison, style: Style) -> list[str]:
    count, most = len(found.outliers), _most("outliers", style)
    title = f"{count} outlier{'s' if count > 1 else ''}: more than {FAR:g} deviations from the median of their class"
    rows = [
        (f"{row.deviations:+8.1f}", f"{row.table}:{row.line} {row.name} ({_percent(row.error, '+')})")
        for row in found.outliers[:most]
    ]
    more = [f"          and {count - most} more (--json, --report)"] if count > most else []
    return [*style.wrap(title, "bold"), *_listed(("deviations", "row"), rows, style), *more] if rows else []


def _judged(found: Comparison, style: Style) -> list[str]:
    if not found.judged and not found.judged_notes:
        return []
    lines = [style.mark("calibration, judged on unseen rows", "bold")]
    for item in found.judged:
        before, after = item.before, item.after
        interval = f" [{_interval(after)}]" if _interval(after) else ""
        lines += style.wrap(f"fitted to {item.fitted} ({item.points}); judged on {item.judged}:")
        lines += style.wrap(
            f"  {after.scored} rows: median {_percent(before.median)} -> {_percent(after.median)}{interval},"
            f" p90 {_percent(before.p90)} -> {_percent(after.p90)}",
            hang=4,
        )
    return [*lines, *(line for note in found.judged_notes for line in style.wrap(f"note: {note}"))]


def _drift(found: Comparison, style: Style) -> list[str]:
    drift: Drift | None = found.drift
    if drift is None:
        return []
    lines = style.wrap(f"drift against {one_line(drift.path, 60)}", "bold")
    body = [["times of the second over the first", "rows", "median", "p90", "ratio", f"> {BOUND:.0%}"]]
    for item in drift.classes:
        cells = [_percent(item.median), _percent(item.p90), f"{item.ratio:.3f}", str(item.beyond)]
        body.append([item.table or "all", str(item.matched), *cells])
    whole = table_of(body, [False] + [True] * 5, style, spare=(3,)) if drift.classes else []
    lines += whole or ["the two have no row in common"]
    if drift.only_first or drift.only_second:
        lines.append(f"{drift.only_first} rows in the first alone, {drift.only_second} in the second alone")
    most = _most("drift", style)
    rows = [(f"{_percent(row.ratio - 1, '+'):>9}", f"{row.table} {row.name}") for row in drift.beyond[:most]]
    lines += _listed(("change", "row"), rows, style) if rows else []
    if len(drift.beyond) > most:
        lines.append(f"           and {len(drift.beyond) - most} more")
    for name, first, second in drift.environment:
        lines += style.wrap(f"{name}: {first} -> {second}")
    return lines if drift.environment else [*lines, "the environments are the same"]


def _left(found: Comparison, style: Style) -> list[str]:
    most = _most("reasons", style)
    judged: list[tuple[str, str]] = []
    for table, reasons in _skipped_of(found).items():
        judged += [(f"{count:>6}", f"{table}: {reason}") for reason, count in list(reasons.items())[:most]]
        if len(reasons) > most:
            judged.append((" " * 6, f"{table}: {len(reasons) - most} more reasons (--json)"))
    ordered = _by_count(Counter(f"{row.get('group', '')}: {row.get('reason', '')}" for row in found.folder.left))
    most = _most("left", style)
    left = [(f"{count:>6}", one_line(text, 200)) for text, count in ordered[:most]]
    if len(ordered) > most:
        left.append((" " * 6, f"{len(ordered) - most} more reasons (--json)"))
    lines: list[str] = []
    for title, rows in (("rows not judged, and why", judged), ("not measured, and why", left)):
        if rows:
            lines += [*([""] if lines else []), style.mark(title, "bold"), *_listed(("", "reason"), rows, style)]
    return lines


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{_number(value, sign)} %"


def _number(value: float, sign: str = "") -> str:
    """Return the fraction *value* in percent, in about five characters whatever its size."""
    decimals = 1 if abs(value) < 1 else 0
    return f"{value * 100:{sign}.{decimals}f}" if abs(value) < _HUGE else f"{value * 100:{sign}.1e}"
