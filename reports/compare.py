"""What the page of a comparison shows beside its text: plots of its document, and what the machine said of itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from reports.colours import MARKED_SERIES as SERIES
from reports.file import figure_file
from reports.page import Block, Drawing, inline_svg
from simulator.records import lists_by_key
from simulator.results import Heading, PlainTable
from simulator.units import format_duration, format_size

Document = Mapping[str, Any]
_FEWEST_SCATTERED = 3


def comparison_figures(document: Document) -> Iterator[Block]:
    """Yield the figures of *document*, the output of ``validate compare --json``, each kind below its heading."""
    rows, classes, drift = document["rows"], document["classes"], document["drift"]
    found: dict[str, list[tuple[str, Callable[[], Figure]]]] = {"Predicted against measured": [], "Error by class": []}
    for name in dict.fromkeys(item["table"] for item in classes):
        scored = [row for row in rows if row["table"] == name and "error" in row]
        if len(scored) >= _FEWEST_SCATTERED:
            caption = f"{name}: each point a row with its 80 % band; on the line both are equal, in grey within 25 %"
            found["Predicted against measured"].append((caption, partial(scatter_figure, scored)))
        of_table = [item for item in classes if item["table"] == name and item["median"] is not None]
        of_table = [item for item in of_table if len(item["by"]) <= 1]
        if len(of_table) > 1:
            found["Error by class"].append((f"{name}: absolute error by class", partial(errors_figure, of_table)))
    by = "by size: measured, and dashed what is predicted"
    found["Staircases"] = [(f"{name} {by}", partial(staircase_figure, each)) for name, each in staircases(rows).items()]
    if drift and drift["classes"]:
        caption = "How far the second time is from the first: median (dot) and 90th percentile, and"
        figure = partial(drift_figure, drift["classes"], drift["bound"])
        found["Drift"] = [(f"{caption} {drift['bound']:.1%} dotted", figure)]
    for title, figures in found.items():
        yield from [Heading(title)] if figures else []
        for number, (caption, make) in enumerate(figures):
            svg = figure_file(make, "svg").decode()
            for colour, of_page in _OF_PAGE.items():
                svg = svg.replace(colour, of_page)
            yield Drawing(inline_svg(svg.encode(), f"{title.partition(' ')[0].lower()}{number}", caption), caption)


def environment_blocks(environment: Document) -> Iterator[Block]:
    """Yield the environment that the machine reported: short facts as a table, long lists verbatim."""
    facts = list(_facts(environment, ""))
    rows = [(name, "", said) for name, said in facts if isinstance(said, str)]
    if rows:
        yield Heading("Environment")
        yield PlainTable(("", "", ""), rows, (False,) * 3)
    for name, lines in facts:
        if not isinstance(lines, str):
            yield Heading(name)
            yield from [*lines, ""]


def _facts(facts: Document, prefix: str) -> Iterator[tuple[str, str | list[str]]]:
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _facts(value, f"{name}.")
        elif isinstance(value, list):
            several = len(value) > 1 and all(isinstance(line, str) for line in value)
            is_long = several and max(map(len, value)) > 20
            yield name, value if is_long else (", " if several else "; ").join(map(_said, value))
        elif value not in (None, ""):
            yield name, str(value)


def _said(value: Any) -> str:
    return " ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, Mapping) else str(value)


Row = Mapping[str, Any]
_CLASS = ("op", "model", "collective", "bench", "kind", "issue", "mode")
_MOST_SERIES = len(SERIES)
_WITHIN = 0.25  # relative half-width of the band around equality
_MOST_CLASSES = 36  # in the plot of errors
_FEW_DECADES = 200.0
_LONGEST = 24  # letters of a legend label, so that three fit side by side


def scatter_figure(rows: Sequence[Row]) -> Figure:
    """Draw predicted over measured seconds of the scored *rows*, by class."""
    figure = Figure(figsize=(6.4, 5.4))
    axes = _axes(figure)
    times = [row[name] for row in rows for name in ("predicted_s", "measured_s")]
    low, high = min(times) / 1.6, max(times) * 1.6
    line = [low, high]
    ends = ([t * (1 - _WITHIN) for t in line], [t * (1 + _WITHIN) for t in line])
    axes.fill_between(line, *ends, color=GRID, alpha=0.7, lw=0)
    axes.plot(line, line, color=MUTED, lw=1)
    for (name, members), (colour, mark) in zip(_series(rows), SERIES, strict=False):
        measured, predicted = ([row[of] for row in members] for of in ("measured_s", "predicted_s"))
        label = f"{name[:_LONGEST]} ({len(members)})"
        axes.plot(measured, predicted, mark, color=colour, ms=4.5, alpha=0.75, mew=0, label=label)
        banded = [row for row in members if "low_s" in row]
        at, low_s, high_s = ([row[name] for row in banded] for name in ("measured_s", "low_s", "high_s"))
        axes.vlines(at, low_s, high_s, color=colour, lw=0.8, alpha=0.3)
    axes.set(xscale="log", yscale="log", xlim=line, ylim=line, xlabel="measured", ylabel="predicted")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: format_duration(value, digits=3))
        _ticks(axis, low, high)
    _legend(axes)
    return figure


def errors_figure(classes: Sequence[Row]) -> Figure:
    """Draw the median error of each of *classes*, with its interval and the 90th percentile."""
    shown = classes[:_MOST_CLASSES]
    figure = Figure(figsize=(6.4, 0.9 + 0.24 * len(shown)))
    axes = _axes(figure)
    colour, other = SERIES[0][0], SERIES[1][0]
    for i, item in enumerate(shown):
        if item["median_low"] is not None:
            axes.plot([item["median_low"], item["median_high"]], [i, i], color=colour, lw=5, alpha=0.35)
        _draw_errors(axes, i, item)
        if item["spread"] is not None:
            axes.plot([item["spread"]], [i], "x", color=other, ms=5)
    ends: list[float] = sorted(item["p90"] for item in shown)
    limit = max(0.01, 1.05 * min(ends[-1], 3.0 * ends[(len(ends) - 1) // 2]))  # one class far off does not stretch it
    for i, item in enumerate(shown):
        if item["p90"] > limit:
            words = f"median {100 * item['median']:,.0f} %, " if item["median"] > limit else ""
            words += f"to {100 * item['p90']:,.0f} %"
            axes.annotate(words, (limit, i), (-3, 5), textcoords="offset points", ha="right", fontsize=8.5)
    axes.set_yticks(range(len(shown)), [item["label"] for item in shown])
    for tick, item in zip(axes.get_yticklabels(), shown, strict=True):
        tick.set_fontweight("normal" if item["by"] else "bold")
    axes.set(ylim=(len(shown) - 0.4, -0.6), xlim=(0, limit))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.xaxis.tick_top()
    axes.grid(visible=False, axis="y")
    axes.plot([], [], "o", color=colour, label="median")
    axes.plot([], [], "|", color=MUTED, label="90th percentile")
    axes.plot([], [], "x", color=other, ms=5, label="spread of the measurement")
    axes.plot([], [], color=colour, lw=5, alpha=0.35, label="95 % interval of the median")
    _legend(axes, (0.4, -0.01), 2)
    return figure


def _draw_errors(axes: Axes, row: int, item: Row) -> None:
    axes.plot([item["median"], item["p90"]], [row, row], color=MUTED, lw=0.8, zorder=1)
    axes.plot([item["median"]], [row], "o", color=SERIES[0][0], ms=6)
    axes.plot([item["p90"]], [row], "|", color=MUTED, ms=9)


_SIZED = ("memory", "copies", "storage", "collectives")
_SERIES_CELLS = ("bench", "kernel", "kind", "mode", "collective", "dtype", "cache")  # that name a series
_BY_SIZE = ("GBps", "busbw_GBps", "latency_s")  # quantities drawn over size; each row has one


def staircases(rows: Iterable[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return bandwidth and latency rows by plot and series, by size; series of fewer than three sizes are left out."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        cells, table = row.get("cells", {}), row["table"].removesuffix(".csv")
        value = next((name for name in _BY_SIZE if name in row.get("measured", {})), "")
        if table not in _SIZED or not value:
            continue
        try:
            size = float(cells.get("bytes", ""))
        except ValueError:
            continue
        words = [cells[name] for name in _SERIES_CELLS if name in cells]
        words += [f"{cells['n_gpus']} GPUs"] if "n_gpus" in cells and table == "collectives" else []
        words += [f"{cells['threads']} threads"] if "threads" in cells else []
        words += [cells["note"]] if table == "copies" and "note" in cells else []
        words += ["pinned" if cells["pinned"] == "1" else "pageable"] if cells.get("pinned") else []
        plot = f"{table}, {'latency' if value == 'latency_s' else 'bandwidth'}"
        series = found.setdefault(plot, {}).setdefault(" ".join(words) or "all", [])
        series.append({**row, "size_bytes": size, "value": row["measured"][value], "unit": value})
    plots: dict[str, dict[str, list[Row]]] = {}
    for plot, name, members in ((plot, *each) for plot, by_name in found.items() for each in by_name.items()):
        if len({row["size_bytes"] for row in members}) >= 3:
            plots.setdefault(plot, {})[name] = sorted(members, key=lambda row: row["size_bytes"])
    return plots


def staircase_figure(series: Mapping[str, Sequence[Row]]) -> Figure:
    """Draw measured values over size, and predicted ones (dashed) where they exist."""
    figure = Figure(figsize=(6.4, 3.9))
    axes = _axes(figure)
    is_latency = next(iter(series.values()))[0]["unit"] == "latency_s"
    for (name, members), (colour, mark) in zip(series.items(), SERIES, strict=False):
        sizes, values = ([row[of] for row in members] for of in ("size_bytes", "value"))
        axes.plot(sizes, values, mark + "-", color=colour, ms=4, lw=1.2, label=name[:_LONGEST])
        known = [row for row in members if "predicted_s" in row and row.get("measured_s")]
        ratios = [row["predicted_s"] / row["measured_s"] for row in known]
        pairs = zip((row["value"] for row in known), ratios, strict=True)
        if known:
            predicted = [value * ratio if is_latency else value / ratio for value, ratio in pairs]
            axes.plot([row["size_bytes"] for row in known], predicted, "--", color=colour, lw=1.4, alpha=0.8)
    axes.set(xscale="log", yscale="log", xlabel="size", ylabel="latency" if is_latency else "GB/s")
    axes.xaxis.set_major_formatter(lambda value, _: format_size(value, digits=3))
    if is_latency:
        axes.yaxis.set_major_formatter(lambda value, _: format_duration(value, digits=3))
    else:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for axis, name in ((axes.xaxis, "size_bytes"), (axes.yaxis, "value")):
        values = [row[name] for members in series.values() for row in members]
        _ticks(axis, min(values), max(values))
    axes.plot([], [], "--", color=MUTED, label="predicted")
    _legend(axes)
    return figure


def drift_figure(classes: Sequence[Row], bound: float) -> Figure:
    """Draw the median and 90th percentile of abs(ratio - 1) of each table, and the required *bound*."""
    figure = Figure(figsize=(6.4, 0.9 + 0.3 * len(classes)))
    axes = _axes(figure)
    for i, item in enumerate(classes):
        _draw_errors(axes, i, item)
    axes.axvline(bound, color=SERIES[1][0], lw=1, ls=":")
    axes.set_yticks(range(len(classes)), [f"{item['table'] or 'all'} ({item['matched']})" for item in classes])
    axes.set(ylim=(len(classes) - 0.5, -0.5), xlim=(0, None))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.grid(visible=False, axis="y")
    return figure


def _series(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return *rows* by class, else by table, the largest first; those beyond the number of colours are joined."""
    of = ((row, row.get("cells", {})) for row in rows)
    found = lists_by_key((next((cells[c] for c in _CLASS if c in cells), str(row["table"])), row) for row, cells in of)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(ordered) > _MOST_SERIES:
        rest = [row for _, members in ordered[_MOST_SERIES - 1 :] for row in members]
        ordered = [*ordered[: _MOST_SERIES - 1], ("others", rest)]
    return ordered


def _axes(figure: Figure) -> Axes:
    figure.patch.set_alpha(0.0)
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    axes.grid(visible=True, color=GRID)
    axes.tick_params(colors=PAGE_INK, which="both", labelsize=9, length=3)
    axes.spines[:].set_color(MUTED)
    axes.xaxis.label.set_color(PAGE_INK)
    axes.yaxis.label.set_color(PAGE_INK)
    return axes


def _ticks(axis: Axis, low: float, high: float) -> None:
    subs = (1.0, 2.0, 5.0) if high < _FEW_DECADES * low else (1.0,)
    axis.set(major_locator=LogLocator(subs=subs, numticks=9), minor_formatter=NullFormatter())


def _legend(axes: Axes, place: tuple[float, float] = (0.5, -0.13), columns: int = 3) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=place, ncols=columns, fontsize=9, labelcolor=PAGE_INK)


# Placeholders for the page's own colours, which differ between its light and dark themes.
PAGE_INK, MUTED, GRID = "#010203", "#010204", "#010205"
_OF_PAGE = {PAGE_INK: "currentColor", MUTED: "var(--muted)", GRID: "var(--grid)"}
