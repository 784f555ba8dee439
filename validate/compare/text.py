"""A comparison as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from statistics import median

from simulator.cli.table import table_of
from simulator.console.style import PLAIN, Style
from simulator.errors import one_line
from simulator.units import format_duration, format_size
from validate.compare.calibrating import CalibrationErrors
from validate.compare.classes import FAR, ClassErrors
from validate.compare.comparison import Comparison
from validate.compare.document import own_code_words, skipped_of
from validate.compare.drift import BOUND, Drift
from validate.compare.explain import in_words
from validate.compare.folder import own_words

WIDTH = 80
_MOST_OUTLIERS = 12
_MOST_REASONS = 5
_MOST_LEFT = 8
_MOST_DRIFT = 10
_MOST_OWN = 20
_LEAST_LABEL = 12  # columns for the name of a class
_MEMORY = {
    "allocated": "peak tensor memory",
    "reserved": "memory that the allocator holds",
    "process": "memory of the process",
}
_HUGE = 100.0  # errors of 10,000 % and more are written with an exponent


def comparison_text(found: Comparison, style: Style = PLAIN) -> str:
    """Return the summary, then errors by class and by row, memory, calibration, drift, and what was left out."""
    style = style.at_most(WIDTH)
    blocks = [
        _head(found, style),
        _own(found, style),
        _classes(found, style),
        _worst(found, style),
        _outliers(found, style),
        _held(found, style),
        _judged(found, style),
        _drift(found.drift, style),
        _left(found, style),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(found: Comparison, style: Style) -> str:
    scored = sum(row.counts for row in found.rows)
    title = f"{one_line(found.folder.path, 50)}: {scored} of {len(found.rows)} rows predicted and judged"
    part = found.places.part
    said = [f"machine {found.folder.machine or 'not named'}"]
    if part:
        said.append(f"device {part}, by {found.places.how}")
    if found.places.topology:
        said.append(f"topology {one_line(found.places.topology, 50)}")
    said += [found.method, f"trust {', '.join(found.trust)}"]
    date = found.folder.record.get("date")
    if date:
        said.append(f"measured {one_line(date, 20)}")
    lines = [*(style.mark(line, "bold") for line in _wrapped(title, style)), *_wrapped("; ".join(said), style)]
    for note in found.notes:
        lines += _wrapped(f"note: {note}", style)
    return "\n".join(lines)


def _own(found: Comparison, style: Style) -> str:
    """Return a table of the steps measured with ``--workload``: predicted and measured times and memory."""
    if not found.own:
        return ""
    held = {id(row): each for row, each in found.held if each.name == "allocated"}
    head = ["asked for", "predicted", "measured", "error", "memory", "measured"]
    body = [head]
    for row in found.own[:_MOST_OWN]:
        cells = [one_line(own_words(row.cells), 80), "-", "-", "-", "-", "-"]
        if row.predicted_s is not None and row.measured_s is not None:
            cells[1:4] = [format_duration(row.predicted_s), format_duration(row.measured_s), _percent(row.error, "+")]
        memory = held.get(id(row))
        if memory is not None:
            cells[4:] = [format_size(memory.predicted_bytes or 0.0), format_size(memory.measured_bytes)]
        body.append(cells)
    if not held:
        body = [row[:4] for row in body]
    widths = len(body[0])
    room = WIDTH - sum(max(len(row[i]) for row in body) + 2 for i in range(1, widths))
    body = [[one_line(row[0], max(_LEAST_LABEL, room)), *row[1:]] for row in body]
    laid = table_of(body, [False] + [True] * (widths - 1), style)
    more = len(found.own) - _MOST_OWN
    python = [
        line for row, times in found.own_code[:_MOST_OWN] for line in _wrapped(own_code_words(row.name, times), style)
    ]
    return "\n".join([*laid, *([f"and {more} more (--json)"] if more > 0 else []), *python])


def _held(found: Comparison, style: Style) -> str:
    lines: list[str] = []
    for figure, what in _MEMORY.items():
        held = [(abs(each.error or 0.0), row, each) for row, each in found.held if each.name == figure]
        if not held:
            continue
        _, row, worst = max(held, key=lambda each: each[0])
        words = f"of {len(held)} steps" if len(held) > 1 else "of one step"
        lines.append(style.mark(f"memory: {what}", "bold"))
        lines += _wrapped(
            f"{words}: median error {_percent(median(error for error, *_ in held))}, the largest"
            f" {_percent(worst.error, '+')} ({row.table}:{row.line}, predicted"
            f" {format_size(worst.predicted_bytes or 0.0)}, measured {format_size(worst.measured_bytes)})",
            style,
        )
    return "\n".join(lines)


def _classes(found: Comparison, style: Style) -> str:
    head = ["error by class", "rows", "median", "95 % of it", "mean", "p90", "bias", "spread"]
    body = [head]
    for item in found.classes:
        if len(item.by) > 1:  # classes by two columns are only in documents and reports
            continue
        if not item.by and len(body) > 1:
            body.append([""] * len(head))
        body.append(_class(item))
    widths = [max(len(row[i]) for row in body) for i in range(1, len(head))]
    room = WIDTH - sum(widths) - 2 * len(widths)
    body = [[_cut(row[0], room), *row[1:]] for row in body]
    inside = [row.in_band for row in found.rows if row.counts and row.in_band is not None]
    words = f"in the 80 % band of their prediction: {sum(inside)} of {len(inside)} rows"
    lines = table_of(body, [False] + [True] * 7, style, spare=(7, 4, 5, 3))
    lines += [
        "",
        *_wrapped(
            "error = (predicted - measured) / measured; median, its 95 % interval, mean and 90th percentile of"
            " its absolute value; bias: median of predicted / measured, minus 1, which calibration corrects;"
            " spread: median half interval of the measurements",
            style,
        ),
        *(_wrapped(words, style) if inside else []),
    ]
    return "\n".join(lines)


def _class(item: ClassErrors) -> list[str]:
    label = f"  {item.label}" if item.by else item.label
    rows = f"{item.scored}" if item.scored == item.rows else f"{item.scored}/{item.rows}"
    if not item.scored:
        return [label, rows, *["-"] * 5, _percent(item.spread)]
    interval = "-"
    if item.median_low is not None and item.median_high is not None:
        interval = f"{_number(item.median_low)}-{_number(item.median_high)}"
    return [
        label,
        rows,
        _percent(item.median),
        interval,
        _percent(item.mean),
        _percent(item.p90),
        _percent(item.bias, "+"),
        _percent(item.spread),
    ]


def _cut(label: str, room: int) -> str:
    """Return *label* shortened to *room* columns, with its indentation."""
    indent = len(label) - len(label.lstrip())
    return " " * indent + one_line(label, max(_LEAST_LABEL, room - indent))


def _worst(found: Comparison, style: Style) -> str:
    if not found.worst:
        return ""
    lines = [style.mark(f"the worst {len(found.worst)} rows", "bold")]
    for row, causes in found.worst:
        lines += _hanging(f"{_percent(row.error, '+'):>9}  ", f"{row.table}:{row.line} {row.name}", style)
        lines += _hanging(" " * 11, in_words(causes, row.log_ratio), style)
    return "\n".join(lines)


def _outliers(found: Comparison, style: Style) -> str:
    if not found.outliers:
        return ""
    count = len(found.outliers)
    title = f"{count} outlier{'s' if count > 1 else ''}: more than {FAR:g} deviations from the median of their class"
    lines = [style.mark(line, "bold") for line in _wrapped(title, style)]
    for outlier in found.outliers[:_MOST_OUTLIERS]:
        row = outlier.row
        lines += _hanging(
            f"{outlier.deviations:+8.1f}  ", f"{row.table}:{row.line} {row.name} ({_percent(row.error, '+')})", style
        )
    if count > _MOST_OUTLIERS:
        lines.append(f"          and {count - _MOST_OUTLIERS} more (--json, --report)")
    return "\n".join(lines)


def _judged(found: Comparison, style: Style) -> str:
    if not found.judged and not found.judged_notes:
        return ""
    lines = [style.mark("calibration, judged on unseen rows", "bold")]
    for item in found.judged:
        lines += _wrapped(f"fitted to {item.fitted} ({item.points}); judged on {item.judged}:", style)
        lines += style.wrap(f"  {_figures(item)}", hang=4)
    for note in found.judged_notes:
        lines += _wrapped(f"note: {note}", style)
    return "\n".join(lines)


def _figures(item: CalibrationErrors) -> str:
    before, after = item.before, item.after
    interval = ""
    if after.median_low is not None and after.median_high is not None:
        interval = f" [{_number(after.median_low)}-{_number(after.median_high)}]"
    return (
        f"{after.scored} rows: median {_percent(before.median)} -> {_percent(after.median)}{interval},"
        f" p90 {_percent(before.p90)} -> {_percent(after.p90)}"
    )


def _drift(drift: Drift | None, style: Style) -> str:
    if drift is None:
        return ""
    lines = [style.mark(line, "bold") for line in _wrapped(f"drift against {one_line(drift.path, 60)}", style)]
    if not drift.classes:
        lines.append("the two have no row in common")
    else:
        body = [["times of the second over the first", "rows", "median", "p90", "ratio", f"> {BOUND:.0%}"]]
        for item in drift.classes:
            cells = [_percent(item.median), _percent(item.p90), f"{item.ratio:.3f}", str(item.beyond)]
            body.append([item.table or "all", str(item.matched), *cells])
        lines += table_of(body, [False] + [True] * 5, style, spare=(3,))
    if drift.only_first or drift.only_second:
        lines.append(f"{drift.only_first} rows in the first alone, {drift.only_second} in the second alone")
    for row in drift.beyond[:_MOST_DRIFT]:
        lines += _hanging(f"{_percent(row.ratio - 1, '+'):>9}  ", f"{row.table} {row.name}", style)
    if len(drift.beyond) > _MOST_DRIFT:
        lines.append(f"           and {len(drift.beyond) - _MOST_DRIFT} more")
    for name, first, second in drift.environment:
        lines += _wrapped(f"{name}: {first} -> {second}", style)
    if not drift.environment:
        lines.append("the environments are the same")
    return "\n".join(lines)


def _left(found: Comparison, style: Style) -> str:
    lines = []
    for table, reasons in skipped_of(found).items():
        for reason, count in list(reasons.items())[:_MOST_REASONS]:
            lines += _hanging(f"{count:>6}  ", f"{table}: {reason}", style)
        if len(reasons) > _MOST_REASONS:
            lines.append(f"        {table}: {len(reasons) - _MOST_REASONS} more reasons (--json)")
    if lines:
        lines.insert(0, style.mark("rows not judged, and why", "bold"))
    reasons_left: dict[str, int] = {}
    for row in found.folder.left:
        text = f"{row.get('group', '')}: {row.get('reason', '')}"
        reasons_left[text] = reasons_left.get(text, 0) + 1
    if reasons_left:
        lines += [*([""] if lines else []), style.mark("not measured, and why", "bold")]
        ordered = sorted(reasons_left.items(), key=lambda item: (-item[1], item[0]))
        for text, count in ordered[:_MOST_LEFT]:
            lines += _hanging(f"{count:>6}  ", one_line(text, 200), style)
        if len(ordered) > _MOST_LEFT:
            lines.append(f"        {len(ordered) - _MOST_LEFT} more reasons (--json)")
    return "\n".join(lines)


def _wrapped(text: str, style: Style) -> list[str]:
    return textwrap.wrap(text, style.width or WIDTH, break_on_hyphens=False) or [""]


def _hanging(first: str, text: str, style: Style) -> list[str]:
    width = style.width or WIDTH
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{_number(value, sign)} %"


def _number(value: float, sign: str = "") -> str:
    """Return the fraction *value* in percent, in about five characters whatever its size."""
    decimals = 1 if abs(value) < 1 else 0
    return f"{value * 100:{sign}.{decimals}f}" if abs(value) < _HUGE else f"{value * 100:{sign}.1e}"
