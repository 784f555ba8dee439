"""What the page of a comparison shows beside its text: figures, and what the machine reported of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from reports.compare_plots import (
    drift_figure,
    errors_figure,
    plot_svg,
    scatter_figure,
    staircase_figure,
    staircases,
)
from reports.page import Block, Drawing
from simulator.results.columns import Heading, PlainTable

Document = Mapping[str, Any]
_FEWEST_SCATTERED = 3


def comparison_figures(document: Document) -> Iterator[Block]:
    """Yield the figures of *document*, the output of ``validate compare --json``, each kind below its heading."""
    rows, classes = document["rows"], document["classes"]
    tables = list(dict.fromkeys(item["table"] for item in classes))
    found: dict[str, list[tuple[str, Callable[[], Figure]]]] = {"Predicted against measured": [], "Error by class": []}
    for name in tables:
        scored = [row for row in rows if row["table"] == name and "error" in row]
        if len(scored) >= _FEWEST_SCATTERED:
            caption = f"{name}: each point a row with its 80 % band; on the line both are equal, in grey within 25 %"
            found["Predicted against measured"].append((caption, partial(scatter_figure, scored)))
        of_table = [item for item in classes if item["table"] == name and item["median"] is not None]
        of_table = [item for item in of_table if len(item["by"]) <= 1]
        if len(of_table) > 1:
            caption = f"{name}: absolute error by class"
            found["Error by class"].append((caption, partial(errors_figure, of_table)))
    found["Staircases"] = [
        (f"{name} by size: measured, and dashed what is predicted", partial(staircase_figure, series))
        for name, series in staircases(rows).items()
    ]
    if document["drift"] and document["drift"]["classes"]:
        drift, bound = document["drift"]["classes"], document["drift"]["bound"]
        caption = "How far the second time is from the first: median (dot) and 90th percentile, and"
        found["Drift"] = [(f"{caption} {bound:.1%} dotted", partial(drift_figure, drift, bound))]
    for title, figures in found.items():
        yield from [Heading(title)] if figures else []
        for number, (caption, make) in enumerate(figures):
            name = f"{title.partition(' ')[0].lower()}{number}"
            yield Drawing(plot_svg(name, caption, make), caption)


def environment_blocks(environment: Document) -> Iterator[Block]:
    """Yield the environment that the machine reported: short facts as a table, long lists verbatim."""
    rows, blocks = _facts(environment, "")
    if rows:
        yield Heading("Environment")
        yield PlainTable(("", "", ""), [(name, "", text) for name, text in rows], (False,) * 3)
    for name, text in blocks:
        yield Heading(name)
        yield from text.split("\n")
        yield ""


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
