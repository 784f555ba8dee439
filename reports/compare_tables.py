"""The HTML tables of a comparison's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reports.svg import escape
from simulator.units import format_duration, format_size

Document = Mapping[str, Any]
_MOST = 200  # rows of a table; the JSON document has them all
_ENORMOUS = 10.0  # errors of at least this size are shown without decimals


def percent_cell(value: float | None, sign: str = "") -> str:
    """Return the fraction *value* as a percentage; "-" for None."""
    if value is None:
        return "-"
    return f"{value * 100:{sign}.3g} %" if abs(value) >= _ENORMOUS else f"{value * 100:{sign}.1f} %"


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, figures: bool = True, marked: str = "") -> str:
    """Return an HTML table; all columns but the first are right-aligned figures where *figures* is set.

    Rows whose first cell ends with *marked* are highlighted.
    """
    if not rows:
        return ""

    def cells(tag: str, row: Sequence[str]) -> str:
        classes = ["name", *["n" if figures else "name"] * (len(row) - 1)]
        return "".join(f"<{tag} class='{name}'>{escape(text)}</{tag}>" for name, text in zip(classes, row, strict=True))

    body = "".join(
        f"<tr{' class=all' if marked and row[0].endswith(marked) else ''}>{cells('td', row)}</tr>\n"
        for row in rows[:_MOST]
    )
    more = f"<p class='muted'>and {len(rows) - _MOST} more</p>" if len(rows) > _MOST else ""
    heads = f"<thead><tr>{cells('th', head)}</tr></thead>"
    return f"<div class='wide'><table>{heads}\n<tbody>{body}</tbody></table></div>{more}"


def class_table(classes: Sequence[Document]) -> str:
    """Return the table of errors by class."""
    rows = []
    for item in classes:
        interval = "-"
        if item["median_low"] is not None:
            interval = f"{100 * item['median_low']:.1f} - {100 * item['median_high']:.1f} %"
        figures = [percent_cell(item["median"]), interval, percent_cell(item["mean"]), percent_cell(item["p90"])]
        label = item["label"]
        count = f"{item['scored']}" if item["scored"] == item["rows"] else f"{item['scored']} of {item['rows']}"
        held = "-" if item["in_band"] is None else f"{100 * item['in_band']:.0f} %"
        rows.append([label, count, *figures, percent_cell(item["bias"], "+"), percent_cell(item["spread"]), held])
    head = ["class", "rows", "median", "95 % interval", "mean", "p90", "bias", "spread", "in band"]
    return html_table(head, rows, marked=".csv")


def _band(row: Document, words: str) -> str:
    """Return *words* formatted with the band of *row*; empty where it has none."""
    if "low_s" not in row:
        return ""
    return words.format(f"{format_duration(row['low_s'], 3)} to {format_duration(row['high_s'], 3)}")


def list_of_worst(worst: Sequence[Document]) -> str:
    """Return the list of the worst rows, each with its explanation."""
    items = [
        f"<li><span class='off'>{percent_cell(item['error'], '+')}</span> "
        f"<span class='name'>{escape(item['table'])}:{item['line']} {escape(item['name'])}</span><br>"
        f"<span class='muted'>predicted {format_duration(item['predicted_s'])}{_band(item, ' (80 % band {})')}, "
        f"measured {format_duration(item['measured_s'])}: {escape(item['explanation'])}</span></li>"
        for item in worst
    ]
    return f"<ol class='worst'>{''.join(items)}</ol>" if items else ""


def outlier_table(outliers: Sequence[Document], bound: float) -> str:
    """Return the table of rows far from their class."""
    if not outliers:
        return ""
    rows = [
        [f"{o['table']}:{o['line']} {o['name']}", f"{o['deviations']:+.1f}", percent_cell(o["error"], "+")]
        for o in outliers
    ]
    said = (
        f"<p class='muted'>More than {bound:g} deviations (1.4826 times the median absolute deviation) from the"
        " median of log(predicted / measured) of their class.</p>"
    )
    return html_table(["row", "deviations", "error"], rows) + said


def asked_table(rows: Sequence[Document]) -> str:
    """Return the table of requested steps, with predicted and measured times and memory; empty where there is none."""

    def shown(value: float | None, words: Callable[[float], str]) -> str:
        return "-" if value is None else words(value)

    cells = [
        [
            row["name"],
            shown(row["predicted_s"], format_duration),
            _band(row, "{}") or "-",
            shown(row["measured_s"], format_duration),
            shown(row["error"], lambda error: percent_cell(error, "+")),
            *(shown(row[name], format_size) for name in ("predicted_bytes", "measured_bytes")),
            row["skipped"],
        ]
        for row in rows
    ]
    head = ["step", "predicted", "80 % band", "measured", "error", "memory", "measured", "not judged, as"]
    said = [i for i in range(len(head)) if any(row[i] not in ("", "-") for row in cells)]
    return html_table([head[i] for i in said], [[row[i] for i in said] for row in cells]) if cells else ""


def own_code(rows: Sequence[Document]) -> str:
    """Return the cost of the Python code between the operators of measured steps; empty where none was measured."""
    return "".join(f"<p>{escape(row['words'])}</p>" for row in rows)


def judged_table(document: Document) -> str:
    """Return the table of errors before and after calibration."""
    rows = []
    for item in document["calibration"]:
        before, after = item["before"], item["after"]
        interval = "-"
        if after["median_low"] is not None:
            interval = f"{100 * after['median_low']:.1f} - {100 * after['median_high']:.1f} %"
        label = f"{item['judged']}, fitted to {item['fitted']} ({item['points']})"
        figures = [percent_cell(before["median"]), percent_cell(after["median"]), interval]
        rows.append([label, str(after["scored"]), *figures, percent_cell(before["p90"]), percent_cell(after["p90"])])
    head = ["judged on", "rows", "median before", "after", "95 % interval", "p90 before", "after"]
    notes = "".join(f"<p class='muted'>{escape(note)}</p>" for note in document["calibration_notes"])
    return html_table(head, rows) + notes


def left_part(document: Document) -> str:
    """Return the tables of rows that are not judged and of cases that were not measured, by reason."""
    skipped = [
        [f"{name}: {reason}", str(count)]
        for name, reasons in document["skipped"].items()
        for reason, count in reasons.items()
    ]
    counts: dict[str, int] = {}
    for row in document["left"]:
        text = f"{row.get('group', '')}: {row.get('reason', '')}"
        counts[text] = counts.get(text, 0) + 1
    left = [[text, str(count)] for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return html_table(["not judged", "rows"], skipped) + html_table(["not measured", "cases"], left)


def environment_part(environment: Document) -> str:
    """Return the environment that the machine reported: short facts as a table, long lists verbatim."""
    rows, blocks = _facts(environment, "")
    return html_table(["", ""], rows, figures=False) + "".join(
        f"<h3>{escape(name)}</h3><pre>{escape(text)}</pre>" for name, text in blocks
    )


def _facts(facts: Document, prefix: str) -> tuple[list[list[str]], list[tuple[str, str]]]:
    rows: list[list[str]] = []
    blocks: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            inner, more = _facts(value, f"{name}.")
            rows += inner
            blocks += more
        elif isinstance(value, list) and value and all(isinstance(line, str) for line in value) and len(value) > 1:
            if max(map(len, value)) > 20:
                blocks.append((name, "\n".join(value)))
            else:
                rows.append([name, ", ".join(value)])
        elif isinstance(value, list):
            rows.append([name, "; ".join(_said(line) for line in value)])
        elif value not in (None, ""):
            rows.append([name, str(value)])
    return rows, blocks


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {inner}" for key, inner in value.items())
    return str(value)
