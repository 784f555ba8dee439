"""The figure of a scenario of single operations or of several runs: each answer as a bar next to its expected value."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from reports.file import drawn, with_foot
from simulator.scenarios.answers import ScenarioAnswer
from simulator.scenarios.file import Scenario
from simulator.units import format_bandwidth, format_duration, format_size

_PREDICTED, _EXPECTED = "#0072b2", "#e69f00"  # from Okabe and Ito's palette
_FORMATS = {"s": format_duration, "B": format_size, "B/s": format_bandwidth}
_ROW, _HEAD, _FOOT = 0.34, 0.62, 0.55  # inches: height of an answer, of the header, and below each group


@drawn
def draw_answers(scenario: Scenario, answers: Sequence[ScenarioAnswer]) -> Figure:
    """Return a figure of numeric *answers*, an axis a unit; expectations are marked."""
    by_unit: dict[str, list[ScenarioAnswer]] = {}
    for answer in answers:
        if not isinstance(answer.value, str) and answer.value > 0:
            by_unit.setdefault(answer.asked.unit, []).append(answer)
    height = _HEAD + sum(_FOOT + _ROW * len(group) for group in by_unit.values()) + 0.3
    figure = Figure(figsize=(9.0, height))
    figure.text(0.02, 1 - 0.2 / height, scenario.title, fontsize=11.5, fontweight="bold", va="top")
    top = height - _HEAD
    for unit, group in by_unit.items():
        tall = _ROW * len(group)
        axes = figure.add_axes((0.33, (top - tall) / height, 0.62, tall / height))
        _draw(axes, unit, group)
        top -= tall + _FOOT
    figure.text(0.33, 0.1 / height, "bars: predicted", color=_PREDICTED, fontsize=8.5)
    figure.text(0.52, 0.1 / height, "marks: ideal, measured or published", color="#9a6a00", fontsize=8.5)
    runs: dict[str, dict[str, None]] = {}
    for run, what in (each for answer in answers for each in answer.changed):
        runs.setdefault(what, {})[run] = None
    changed = "; ".join(f"in {', '.join(of)}: {what}" for what, of in runs.items())
    return with_foot(figure, f"changed {changed}" if changed else "")


def _draw(axes: Axes, unit: str, group: Sequence[ScenarioAnswer]) -> None:
    values = [float(answer.value) for answer in group]
    ends = [end for answer in group for end in (answer.low, answer.high) if end is not None and end > 0]
    rows = range(len(group))
    axes.barh(rows, values, height=0.62, color=_PREDICTED)
    for row, answer in zip(rows, group, strict=True):
        low, high = answer.low, answer.high
        if low is not None and high is not None and high > low:
            axes.plot([low, high], [row, row], color=_EXPECTED, lw=4, solid_capstyle="butt")
        for end, mark in ((low, "|" if low == high else ">"), (high, "|" if low == high else "<")):
            if end is not None and end > 0:
                axes.plot([end], [row], mark, color=_EXPECTED, ms=15 if mark == "|" else 6, mew=3)
    if max([*values, *ends]) > 20 * min([*values, *ends]):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10, numticks=8))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, 1.08 * max([*values, *ends]))
    shown, of = _FORMATS.get(unit), 100 if unit == "%" else 1

    def words(value: float, _: object) -> str:
        if shown is not None:
            return shown(value, 3)
        return f"{of * value:,.0f}" if 1e4 <= of * value < 1e12 else f"{of * value:,.4g}"

    axes.xaxis.set_major_formatter(words)
    if shown is None and unit != "1":
        axes.set_xlabel(unit, fontsize=8.5)
    labels = ["\n".join(textwrap.wrap(answer.asked.name, 38)) for answer in group]
    axes.set_yticks(list(rows), labels=labels, fontsize=8.5)
    axes.invert_yaxis()
    axes.grid(axis="x")
