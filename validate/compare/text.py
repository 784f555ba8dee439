"""A comparison as text of at most 80 columns, and as a page with all of it and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from simulator.cli.table import Collected, table_of
from simulator.console.style import PLAIN, Style
from simulator.errors import one_line
from simulator.units import format_duration, format_size
from validate.compare.calibrating import CalibrationErrors
from validate.compare.classes import FAR, ClassErrors
from validate.compare.comparison import Comparison
from validate.compare.document import comparison_document, own_code_words, skipped_of
from validate.compare.drift import BOUND, Drift
from validate.compare.explain import in_words
from validate.compare.folder import own_words

WIDTH = 80
_MOST_ON_PAGES = 200  # of anything that is listed
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


def comparison_page(found: Comparison, command: str) -> str:
    """Return the text of *found*, its figures and the measured environment as a page; *command* asks for it again."""
    from reports.compare import comparison_figures, environment_blocks
    from reports.page import Page, page_of

    document = comparison_document(found)
    style = Collected()
    title, *text = style.blocks(comparison_text(found, style).splitlines())
    environment = environment_blocks(document["environment"])
    return page_of(Page([title, *text, *comparison_figures(document), *environment], command))


def _most(count: int, style: Style) -> int:
    """Return how many of a list are shown: *count*, or nearly all on a page."""
    return _MOST_ON_PAGES if isinstance(style, Collected) else count


def _listed(heads: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> list[str]:
    """Return *rows* of a figure and texts: on pages a table below *heads*, else each text on lines of its own."""
    if isinstance(style, Collected):
        right = [True, *[False] * (len(heads) - 1)]
        return table_of([heads, *([cell.strip() for cell in row] for row in rows)], right, style)
    lines = []
    for figure, *texts in rows:
        room = len(figure) + 2
        for begin, text in zip([f"{figure}  ", *[" " * room] * len(texts)], texts, strict=False):
            lines += style.wrap(begin + text, hang=room)
    return lines


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
    lines = [*style.wrap(title, "bold"), *style.wrap("; ".join(said))]
    for note in found.notes:
        lines += style.wrap(f"note: {note}")
    return "\n".join(lines)


def _own(found: Comparison, style: Style) -> str:
    """Return a table of the steps measured with ``--workload``: predicted and measured times and memory."""
    if not found.own:
        return ""
    held = {id(row): each for row, each in found.held if each.name == "allocated"}
    head = ["asked for", "predicted", "measured", "error", "memory", "measured"]
    body = [head]
    for row in found.own[: _most(_MOST_OWN, style)]:
        cells = [one_line(own_words(row.labels), 80), "-", "-", "-", "-", "-"]
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
    if not isinstance(style, Collected):
        body = [[one_line(row[0], max(_LEAST_LABEL, room)), *row[1:]] for row in body]
    laid = table_of(body, [False] + [True] * (widths - 1), style)
    more = len(found.own) - _most(_MOST_OWN, style)
    python = [line for row, times in found.own_code[:_MOST_OWN] for line in style.wrap(own_code_words(row.name, times))]
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
        lines += style.wrap(
            f"{words}: median error {_percent(median(error for error, *_ in held))}, the largest"
            f" {_percent(worst.error, '+')} ({row.table}:{row.line}, predicted"
            f" {format_size(worst.predicted_bytes or 0.0)}, measured {format_size(worst.measured_bytes)})"
        )
    return "\n".join(lines)


def _classes(found: Comparison, style: Style) -> str:
    head = ["error by class", "rows", "median", "95 % of it", "mean", "p90", "bias", "spread", "in band"]
    head = head if isinstance(style, Collected) else head[:-1]
    body = [head]
    for item in found.classes:
        if len(item.by) > 1 and not isinstance(style, Collected):  # those by two columns are in documents and on pages
            continue
        if not item.by and len(body) > 1 and not isinstance(style, Collected):
            body.append([""] * len(head))
        body.append(_class(item)[: len(head)])
    widths = [max(len(row[i]) for row in body) for i in range(1, len(head))]
    room = WIDTH - sum(widths) - 2 * len(widths)
    if not isinstance(style, Collected):
        body = [[_cut(row[0], room), *row[1:]] for row in body]
    inside = [row.in_band for row in found.rows if row.counts and row.in_band is not None]
    words = f"in the 80 % band of their prediction: {sum(inside)} of {len(inside)} rows"
    lines = table_of(body, [False] + [True] * (len(head) - 1), style, spare=(7, 4, 5, 3))
    lines += [
        "",
        *style.wrap(
            "error = (predicted - measured) / measured; median, its 95 % interval, mean and 90th percentile of"
            " its absolute value; bias: median of predicted / measured, minus 1, which calibration corrects;"
            " spread: median half interval of the measurements"
        ),
        *(style.wrap(words) if inside else []),
    ]
    return "\n".join(lines)


def _class(item: ClassErrors) -> list[str]:
    label = f"  {item.label}" if item.by else item.label
    rows = f"{item.scored}" if item.scored == item.rows else f"{item.scored}/{item.rows}"
    if not item.scored:
        return [label, rows, *["-"] * 5, _percent(item.spread), "-"]
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
        "-" if item.in_band is None else f"{item.in_band:.0%}",
    ]


def _cut(label: str, room: int) -> str:
    """Return *label* shortened to *room* columns, with its indentation."""
    indent = len(label) - len(label.lstrip())
    return " " * indent + one_line(label, max(_LEAST_LABEL, room - indent))


def _worst(found: Comparison, style: Style) -> str:
    if not found.worst:
        return ""
    rows = [
        (f"{_percent(row.error, '+'):>9}", f"{row.table}:{row.line} {row.name}", in_words(causes, row.log_ratio))
        for row, causes in found.worst
    ]
    title = style.mark(f"the worst {len(found.worst)} rows", "bold")
    return "\n".join([title, *_listed(("error", "row", "likely cause"), rows, style)])


def _outliers(found: Comparison, style: Style) -> str:
    if not found.outliers:
        return ""
    count, most = len(found.outliers), _most(_MOST_OUTLIERS, style)
    title = f"{count} outlier{'s' if count > 1 else ''}: more than {FAR:g} deviations from the median of their class"
    rows = [
        (f"{o.deviations:+8.1f}", f"{o.row.table}:{o.row.line} {o.row.name} ({_percent(o.row.error, '+')})")
        for o in found.outliers[:most]
    ]
    lines = [*style.wrap(title, "bold"), *_listed(("deviations", "row"), rows, style)]
    if count > most:
        lines.append(f"          and {count - most} more (--json, --report)")
    return "\n".join(lines)


def _judged(found: Comparison, style: Style) -> str:
    if not found.judged and not found.judged_notes:
        return ""
    lines = [style.mark("calibration, judged on unseen rows", "bold")]
    for item in found.judged:
        lines += style.wrap(f"fitted to {item.fitted} ({item.points}); judged on {item.judged}:")
        lines += style.wrap(f"  {_figures(item)}", hang=4)
    for note in found.judged_notes:
        lines += style.wrap(f"note: {note}")
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
    lines = style.wrap(f"drift against {one_line(drift.path, 60)}", "bold")
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
    most = _most(_MOST_DRIFT, style)
    rows = [(f"{_percent(row.ratio - 1, '+'):>9}", f"{row.table} {row.name}") for row in drift.beyond[:most]]
    lines += _listed(("change", "row"), rows, style) if rows else []
    if len(drift.beyond) > most:
        lines.append(f"           and {len(drift.beyond) - most} more")
    for name, first, second in drift.environment:
        lines += style.wrap(f"{name}: {first} -> {second}")
    if not drift.environment:
        lines.append("the environments are the same")
    return "\n".join(lines)


def _left(found: Comparison, style: Style) -> str:
    judged: list[tuple[str, str]] = []
    for table, reasons in skipped_of(found).items():
        most = _most(_MOST_REASONS, style)
        judged += [(f"{count:>6}", f"{table}: {reason}") for reason, count in list(reasons.items())[:most]]
        if len(reasons) > most:
            judged.append((" " * 6, f"{table}: {len(reasons) - most} more reasons (--json)"))
    counts = Counter(f"{row.get('group', '')}: {row.get('reason', '')}" for row in found.folder.left)
    ordered, most = sorted(counts.items(), key=lambda item: (-item[1], item[0])), _most(_MOST_LEFT, style)
    left = [(f"{count:>6}", one_line(text, 200)) for text, count in ordered[:most]]
    if len(ordered) > most:
        left.append((" " * 6, f"{len(ordered) - most} more reasons (--json)"))
    said = (("rows not judged, and why", judged), ("not measured, and why", left))
    blocks = [[style.mark(title, "bold"), *_listed(("", "reason"), rows, style)] for title, rows in said if rows]
    return "\n\n".join("\n".join(lines) for lines in blocks)


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{_number(value, sign)} %"


def _number(value: float, sign: str = "") -> str:
    """Return the fraction *value* in percent, in about five characters whatever its size."""
    decimals = 1 if abs(value) < 1 else 0
    return f"{value * 100:{sign}.{decimals}f}" if abs(value) < _HUGE else f"{value * 100:{sign}.1e}"
