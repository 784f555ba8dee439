"""A comparison of measurements with predictions as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from matplotlib.figure import Figure

from reports.compare_plots import (
    drift_figure,
    errors_figure,
    inline_svg,
    scatter_figure,
    staircase_figure,
    staircases,
)
from simulator.results import html_text
from simulator.units import format_duration, format_size

Document = Mapping[str, Any]
_FEWEST_SCATTERED = 3
_MOST = 200  # rows of a table; the JSON document has them all
_ENORMOUS = 10.0  # errors of at least this size are shown without decimals


def comparison_page(document: Document) -> str:
    """Return the page of *document*, the output of ``validate compare --json``; deterministic to the byte."""
    folder = files("reports") / "html"
    parts = [
        _summary(document),
        _section("Steps that were asked for", _asked_table(document["asked"]) + _own_code(document["own_code"])),
        _scatter(document),
        _errors(document),
        _staircases(document),
        _section("The rows that are furthest off", _list_of_worst(document["worst"])),
        _section("Outliers", _outlier_table(document["outliers"], document["outlier_bound_deviations"])),
        _section("Calibration, judged on what it has not seen", _judged_table(document)),
        _drift(document["drift"]),
        _section("What was left out, and why", _left_part(document)),
        _section("Environment", _environment_part(document["environment"])),
    ]
    title = f"{document['machine'] or document['folder']}: measured and predicted"
    return Template((folder / "page.html").read_text(encoding="utf-8")).substitute(
        title=html_text(title),
        style=(folder / "page.css").read_text(encoding="utf-8").strip(),
        body="\n".join(part for part in parts if part),
    )


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{html_text(title)}</h2>\n{content}\n</section>" if content else ""


def _summary(document: Document) -> str:
    name = html_text(document["machine"] or document["folder"])
    run = document["run"]
    said = [f"Device {html_text(document['part'] or document['device'] or 'not known')}"]
    if document["topology"]:
        said.append(f"topology {html_text(document['topology'])}")
    said.append(html_text(document["method"]))
    if run.get("date"):
        said.append(f"measured {html_text(str(run['date']))}")
    if isinstance(run.get("seconds"), int | float):
        said.append(f"in {run['seconds']:.0f} s")
    tiles = [_tile(f"{document['rows_scored']}", f"of {document['rows_total']} rows predicted and judged")]
    for item in document["classes"]:
        if not item["by"] and item["median"] is not None:
            interval = ""
            if item["median_low"] is not None:
                interval = f", {_percent_cell(item['median_low'])} to {_percent_cell(item['median_high'])}"
            label = f"median error of {item['table'].removesuffix('.csv')}{interval}"
            tiles.append(_tile(_percent_cell(item["median"]), label))
    banded = [row for row in document["rows"] if "error" in row and "low_s" in row]
    if banded:
        within = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in banded)
        tiles.append(_tile(f"{within}", f"of {len(banded)} rows in their 80 % band"))
    tiles.append(_tile(str(len(document["outliers"])), "outliers"))
    notes = "".join(f"<li>{html_text(note)}</li>" for note in document["notes"])
    return (
        f"<h1>{name}: measured and predicted</h1>\n<p class='muted'>{'; '.join(said)}</p>\n"
        f"{f'<ul>{notes}</ul>' if notes else ''}<div class='tiles'>{''.join(tiles)}</div>"
    )


def _tile(figure: str, label: str) -> str:
    return f"<div class='tile'><b>{html_text(figure)}</b><span>{html_text(label)}</span></div>"


def _figure(name: str, caption: str, make: Callable[[], Figure]) -> str:
    return f"<figure>{inline_svg(name, caption, make)}<figcaption>{html_text(caption)}</figcaption></figure>"


def _scatter(document: Document) -> str:
    figures = []
    for i, name in enumerate(_tables(document["classes"])):
        rows = [row for row in document["rows"] if row["table"] == name and "error" in row]
        if len(rows) >= _FEWEST_SCATTERED:
            caption = f"{name}: each point a row with its 80 % band; on the line both are equal, in grey within 25 %"
            figures.append(_figure(f"scatter{i}", caption, lambda rows=rows: scatter_figure(rows)))  # type: ignore[misc]
    return _section("Predicted against measured", f"<div class='figures'>{''.join(figures)}</div>" if figures else "")


def _errors(document: Document) -> str:
    figures = []
    for i, name in enumerate(_tables(document["classes"])):
        classes = [item for item in document["classes"] if item["table"] == name and item["median"] is not None]
        classes = [item for item in classes if len(item["by"]) <= 1]
        if len(classes) > 1:
            caption = f"{name}: absolute error by class"
            figures.append(_figure(f"errors{i}", caption, lambda shown=classes: errors_figure(shown)))  # type: ignore[misc]
    legend = (
        "<p class='muted'>error = (predicted - measured) / measured. Bias: the median of predicted / measured, less 1,"
        " which a calibration would mend. Spread: the median half interval of what was measured; an error below it"
        " is noise. In band: of rows that have one, how many were measured within the 80 % band of their"
        " prediction.</p>"
    )
    single = [item for item in document["classes"] if len(item["by"]) <= 1]
    both = [item for item in document["classes"] if len(item["by"]) > 1]
    more = f"<details><summary>By two at once</summary>{_class_table(both)}</details>" if both else ""
    return _section("Error by class", "".join(figures) + _class_table(single) + legend + more)


def _staircases(document: Document) -> str:
    figures = []
    for i, (name, series) in enumerate(staircases(document["rows"]).items()):
        caption = f"{name} by size: measured, and dashed what is predicted"
        figures.append(_figure(f"stairs{i}", caption, lambda series=series: staircase_figure(series)))  # type: ignore[misc]
    return _section("Staircases", f"<div class='figures'>{''.join(figures)}</div>" if figures else "")


def _drift(drift: Document | None) -> str:
    if drift is None:
        return ""
    title = f"Drift against {drift['folder']}"
    if not drift["classes"]:
        return _section(title, "<p>No row of one is in the other.</p>")
    bound = drift["bound"]
    figure = _figure(
        "drift",
        "How far the second time is from the first: median (dot) and 90th percentile, and "
        f"{_percent_cell(bound)} dotted",
        lambda: drift_figure(drift["classes"], bound),
    )
    beyond = _html_table(
        [f"beyond {_percent_cell(bound)}", "second / first"],
        [[f"{row['table']} {row['name']}", f"{row['ratio']:.3f}"] for row in drift["beyond"]],
    )
    environment = _html_table(
        ["environment", "first", "second"],
        [[row["name"], row["first"], row["second"]] for row in drift["environment"]],
        figures=False,
    )
    same = "" if drift["environment"] else "<p>The environments are the same.</p>"
    alone = f"<p class='muted'>{drift['only_first']} rows in the first alone, {drift['only_second']} in the second.</p>"
    return _section(title, figure + (beyond if drift["beyond"] else "") + (environment or same) + alone)


def _tables(items: Sequence[Document]) -> list[str]:
    return list(dict.fromkeys(item["table"] for item in items))


# -- tables ----------------------------------------------------------------------------


def _percent_cell(value: float | None, sign: str = "") -> str:
    """Return the fraction *value* as a percentage; "-" for None."""
    if value is None:
        return "-"
    return f"{value * 100:{sign}.3g} %" if abs(value) >= _ENORMOUS else f"{value * 100:{sign}.1f} %"


def _interval(errors: Document) -> str:
    """Return the interval of a median; "-" without one."""
    low, high = errors["median_low"], errors["median_high"]
    return "-" if low is None else f"{100 * low:.1f} - {100 * high:.1f} %"


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, figures: bool = True, marked: str = "") -> str:
    """Return an HTML table, columns after the first as *figures* if set, rows ending in *marked* highlighted."""
    if not rows:
        return ""

    def cells(tag: str, row: Sequence[str]) -> str:
        classes = ["name", *["n" if figures else "name"] * (len(row) - 1)]
        return "".join(
            f"<{tag} class='{name}'>{html_text(text)}</{tag}>" for name, text in zip(classes, row, strict=True)
        )

    body = "".join(
        f"<tr{' class=all' if marked and row[0].endswith(marked) else ''}>{cells('td', row)}</tr>\n"
        for row in rows[:_MOST]
    )
    more = f"<p class='muted'>and {len(rows) - _MOST} more</p>" if len(rows) > _MOST else ""
    heads = f"<thead><tr>{cells('th', head)}</tr></thead>"
    return f"<div class='wide'><table>{heads}\n<tbody>{body}</tbody></table></div>{more}"


def _class_table(classes: Sequence[Document]) -> str:
    """Return the table of errors by class."""
    rows = []
    for item in classes:
        figures = [
            _percent_cell(item["median"]),
            _interval(item),
            _percent_cell(item["mean"]),
            _percent_cell(item["p90"]),
        ]
        label = item["label"]
        count = f"{item['scored']}" if item["scored"] == item["rows"] else f"{item['scored']} of {item['rows']}"
        held = "-" if item["in_band"] is None else f"{100 * item['in_band']:.0f} %"
        rows.append([label, count, *figures, _percent_cell(item["bias"], "+"), _percent_cell(item["spread"]), held])
    head = ["class", "rows", "median", "95 % interval", "mean", "p90", "bias", "spread", "in band"]
    return _html_table(head, rows, marked=".csv")


def _band(row: Document, words: str) -> str:
    """Return *words* formatted with the band of *row*; empty where it has none."""
    if "low_s" not in row:
        return ""
    return words.format(f"{format_duration(row['low_s'], 3)} to {format_duration(row['high_s'], 3)}")


def _list_of_worst(worst: Sequence[Document]) -> str:
    """Return the list of the worst rows, each with its explanation."""
    items = [
        f"<li><span class='off'>{_percent_cell(item['error'], '+')}</span> "
        f"<span class='name'>{html_text(item['table'])}:{item['line']} {html_text(item['name'])}</span><br>"
        f"<span class='muted'>predicted {format_duration(item['predicted_s'])}{_band(item, ' (80 % band {})')}, "
        f"measured {format_duration(item['measured_s'])}: {html_text(item['explanation'])}</span></li>"
        for item in worst
    ]
    return f"<ol class='worst'>{''.join(items)}</ol>" if items else ""


def _outlier_table(outliers: Sequence[Document], bound: float) -> str:
    """Return the table of rows far from their class."""
    if not outliers:
        return ""
    rows = [
        [f"{o['table']}:{o['line']} {o['name']}", f"{o['deviations']:+.1f}", _percent_cell(o["error"], "+")]
        for o in outliers
    ]
    said = (
        f"<p class='muted'>More than {bound:g} deviations (1.4826 times the median absolute deviation) from the"
        " median of log(predicted / measured) of their class.</p>"
    )
    return _html_table(["row", "deviations", "error"], rows) + said


def _asked_table(rows: Sequence[Document]) -> str:
    """Return the table of requested steps, with predicted and measured times and memory; empty where there is none."""

    def shown(value: float | None, words: Callable[[float], str]) -> str:
        return "-" if value is None else words(value)

    cells = [
        [
            row["name"],
            shown(row["predicted_s"], format_duration),
            _band(row, "{}") or "-",
            shown(row["measured_s"], format_duration),
            shown(row["error"], lambda error: _percent_cell(error, "+")),
            *(shown(row[name], format_size) for name in ("predicted_bytes", "measured_bytes")),
            row["skipped"],
        ]
        for row in rows
    ]
    head = ["step", "predicted", "80 % band", "measured", "error", "memory", "measured", "not judged, as"]
    said = [i for i in range(len(head)) if any(row[i] not in ("", "-") for row in cells)]
    return _html_table([head[i] for i in said], [[row[i] for i in said] for row in cells]) if cells else ""


def _own_code(rows: Sequence[Document]) -> str:
    """Return the cost of the Python code between the operators of measured steps; empty where none was measured."""
    return "".join(f"<p>{html_text(row['words'])}</p>" for row in rows)


def _judged_table(document: Document) -> str:
    """Return the table of errors before and after calibration."""
    rows = []
    for item in document["calibration"]:
        before, after = item["before"], item["after"]
        label = f"{item['judged']}, fitted to {item['fitted']} ({item['points']})"
        figures = [_percent_cell(before["median"]), _percent_cell(after["median"]), _interval(after)]
        rows.append([label, str(after["scored"]), *figures, _percent_cell(before["p90"]), _percent_cell(after["p90"])])
    head = ["judged on", "rows", "median before", "after", "95 % interval", "p90 before", "after"]
    notes = "".join(f"<p class='muted'>{html_text(note)}</p>" for note in document["calibration_notes"])
    return _html_table(head, rows) + notes


def _left_part(document: Document) -> str:
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
    return _html_table(["not judged", "rows"], skipped) + _html_table(["not measured", "cases"], left)


def _environment_part(environment: Document) -> str:
    """Return the environment that the machine reported: short facts as a table, long lists verbatim."""
    rows, blocks = _facts(environment, "")
    return _html_table(["", ""], rows, figures=False) + "".join(
        f"<h3>{html_text(name)}</h3><pre>{html_text(text)}</pre>" for name, text in blocks
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
