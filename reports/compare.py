"""A comparison of measurements with predictions as one self-contained HTML page, ``html/compare.html``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from reports.compare_plots import drift_figure, errors_figure, plot_svg, scatter_figure, staircase_figure, staircases
from reports.template import percentage, rendered
from simulator.units import format_duration, format_size

Document = Mapping[str, Any]
_Drawing = tuple[str, Callable[[], Figure]]  # a caption, and what draws the figure above it
_FEWEST_SCATTERED = 3
_MOST = 200  # rows of a table; the JSON document has them all


def comparison_page(document: Document) -> str:
    """Return the page of *document*, the output of ``validate compare --json``; deterministic to the byte."""
    rows, classes, drift = document["rows"], document["classes"], document["drift"]
    single = [item for item in classes if len(item["by"]) <= 1]
    banded = [row for row in rows if "error" in row and "low_s" in row]
    left = Counter(f"{row.get('group', '')}: {row.get('reason', '')}" for row in document["left"])
    scatters: list[_Drawing] = []
    errors: list[_Drawing] = []
    for name in dict.fromkeys(item["table"] for item in classes):
        scored = [row for row in rows if row["table"] == name and "error" in row]
        if len(scored) >= _FEWEST_SCATTERED:
            caption = f"{name}: each point a row with its 80 % band; on the line both are equal, in grey within 25 %"
            scatters.append((caption, partial(scatter_figure, scored)))
        known = [item for item in single if item["table"] == name and item["median"] is not None]
        if len(known) > 1:
            errors.append((f"{name}: absolute error by class", partial(errors_figure, known)))
    stairs: list[_Drawing] = [
        (f"{name} by size: measured, and dashed what is predicted", partial(staircase_figure, series))
        for name, series in staircases(rows).items()
    ]
    drifts: list[_Drawing] = []
    if drift is not None and drift["classes"]:
        dots = "How far the second time is from the first: median (dot) and 90th percentile, and"
        drifts = [
            (f"{dots} {percentage(drift['bound'])} dotted", partial(drift_figure, drift["classes"], drift["bound"]))
        ]
    facts, lists = _facts(document["environment"], "")
    return rendered(
        "compare.html",
        d=document,
        most=_MOST,
        banded=len(banded),
        in_band=sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in banded),
        asked=_asked_steps(document["asked"]),
        scatters=_drawn("scatter", scatters),
        errors=_drawn("errors", errors),
        stairs=_drawn("stairs", stairs),
        drifts=_drawn("drift", drifts),
        single=single,
        crossed=[item for item in classes if len(item["by"]) > 1],
        skipped=[(f"{name}: {why}", n) for name, reasons in document["skipped"].items() for why, n in reasons.items()],
        left=sorted(left.items(), key=lambda item: (-item[1], item[0])),
        facts=facts,
        lists=lists,
    )


def _drawn(kind: str, drawings: Iterable[_Drawing]) -> list[dict[str, str]]:
    """Return each of *drawings* with its caption, numbered among those of its *kind*."""
    return [
        {"svg": plot_svg(f"{kind}{number}", caption, make), "caption": caption}
        for number, (caption, make) in enumerate(drawings)
    ]


def _asked_steps(rows: Sequence[Document]) -> list[Sequence[str]]:
    """Return the heads and rows of the table of requested steps, without the columns that say nothing."""

    def shown(value: float | None, words: Callable[[float], str]) -> str:
        return "-" if value is None else words(value)

    table = [("step", "predicted", "80 % band", "measured", "error", "memory", "measured", "not judged, as")]
    for row in rows:
        banded = "low_s" in row
        table.append(
            (
                row["name"],
                shown(row["predicted_s"], format_duration),
                f"{format_duration(row['low_s'], 3)} to {format_duration(row['high_s'], 3)}" if banded else "-",
                shown(row["measured_s"], format_duration),
                shown(row["error"], lambda error: percentage(error, "+")),
                shown(row["predicted_bytes"], format_size),
                shown(row["measured_bytes"], format_size),
                row["skipped"],
            )
        )
    said = [i for i in range(len(table[0])) if any(row[i] not in ("", "-") for row in table[1:])]
    return [[row[i] for i in said] for row in table] if rows else []


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
