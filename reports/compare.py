"""A comparison of measurements with predictions as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from matplotlib.figure import Figure

from reports.compare_plots import drift_figure, errors_figure, scatter_figure, staircase_figure, staircases
from reports.compare_tables import (
    asked_table,
    class_table,
    environment_part,
    html_table,
    judged_table,
    left_part,
    list_of_worst,
    outlier_table,
    own_code,
    percent_cell,
)
from reports.svg import escape, inline_svg

Document = Mapping[str, Any]
_FEWEST_SCATTERED = 3


def comparison_page(document: Document) -> str:
    """Return the page of *document*, the output of ``validate compare --json``; deterministic to the byte."""
    folder = files("reports") / "html"
    parts = [
        _summary(document),
        _section("Steps that were asked for", asked_table(document["asked"]) + own_code(document["own_code"])),
        _scatter(document),
        _errors(document),
        _staircases(document),
        _section("The rows that are furthest off", list_of_worst(document["worst"])),
        _section("Outliers", outlier_table(document["outliers"], document["outlier_bound_deviations"])),
        _section("Calibration, judged on what it has not seen", judged_table(document)),
        _drift(document["drift"]),
        _section("What was left out, and why", left_part(document)),
        _section("Environment", environment_part(document["environment"])),
    ]
    title = f"{document['machine'] or document['folder']}: measured and predicted"
    return Template((folder / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(folder / "page.css").read_text(encoding="utf-8").strip(),
        body="\n".join(part for part in parts if part),
    )


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>" if content else ""


def _summary(document: Document) -> str:
    name = escape(document["machine"] or document["folder"])
    run = document["run"]
    said = [f"Device {escape(document['part'] or document['device'] or 'not known')}"]
    if document["topology"]:
        said.append(f"topology {escape(document['topology'])}")
    said.append(escape(document["method"]))
    if run.get("date"):
        said.append(f"measured {escape(str(run['date']))}")
    if isinstance(run.get("seconds"), int | float):
        said.append(f"in {run['seconds']:.0f} s")
    tiles = [_tile(f"{document['rows_scored']}", f"of {document['rows_total']} rows predicted and judged")]
    for item in document["classes"]:
        if not item["by"] and item["median"] is not None:
            interval = ""
            if item["median_low"] is not None:
                interval = f", {percent_cell(item['median_low'])} to {percent_cell(item['median_high'])}"
            label = f"median error of {item['table'].removesuffix('.csv')}{interval}"
            tiles.append(_tile(percent_cell(item["median"]), label))
    banded = [row for row in document["rows"] if "error" in row and "low_s" in row]
    if banded:
        within = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in banded)
        tiles.append(_tile(f"{within}", f"of {len(banded)} rows in their 80 % band"))
    tiles.append(_tile(str(len(document["outliers"])), "outliers"))
    notes = "".join(f"<li>{escape(note)}</li>" for note in document["notes"])
    return (
        f"<h1>{name}: measured and predicted</h1>\n<p class='muted'>{'; '.join(said)}</p>\n"
        f"{f'<ul>{notes}</ul>' if notes else ''}<div class='tiles'>{''.join(tiles)}</div>"
    )


def _tile(figure: str, label: str) -> str:
    return f"<div class='tile'><b>{escape(figure)}</b><span>{escape(label)}</span></div>"


def _figure(name: str, caption: str, make: Callable[[], Figure]) -> str:
    return f"<figure>{inline_svg(name, caption, make)}<figcaption>{escape(caption)}</figcaption></figure>"


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
    more = f"<details><summary>By two at once</summary>{class_table(both)}</details>" if both else ""
    return _section("Error by class", "".join(figures) + class_table(single) + legend + more)


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
        f"{percent_cell(bound)} dotted",
        lambda: drift_figure(drift["classes"], bound),
    )
    beyond = html_table(
        [f"beyond {percent_cell(bound)}", "second / first"],
        [[f"{row['table']} {row['name']}", f"{row['ratio']:.3f}"] for row in drift["beyond"]],
    )
    environment = html_table(
        ["environment", "first", "second"],
        [[row["name"], row["first"], row["second"]] for row in drift["environment"]],
        figures=False,
    )
    same = "" if drift["environment"] else "<p>The environments are the same.</p>"
    alone = f"<p class='muted'>{drift['only_first']} rows in the first alone, {drift['only_second']} in the second.</p>"
    return _section(title, figure + (beyond if drift["beyond"] else "") + (environment or same) + alone)


def _tables(items: Sequence[Document]) -> list[str]:
    return list(dict.fromkeys(item["table"] for item in items))
