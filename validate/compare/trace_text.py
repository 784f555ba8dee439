"""A compared trace as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from simulator.cli.table import table_of
from simulator.console.style import PLAIN, Style
from simulator.results.columns import duration_column
from simulator.units import format_duration
from validate.compare.trace import ComparedTrace

SCHEMA_VERSION = 1
_WIDTH = 80
_NAME = 36
_SHORT = 18


def trace_text(compared: ComparedTrace, shown: str, style: Style = PLAIN) -> str:
    """Return the comparison as text: the step time, times by class of kernels, and the largest differences."""
    style = style.at_most(_WIDTH)
    seen, said = compared.measured, compared.predicted
    ratio = said.step_s / seen.step_s if seen.step_s > 0 else 0.0
    change = f"{abs(ratio - 1.0):.0%} {'more' if ratio > 1.0 else 'less'}"
    steps = "1 step" if compared.steps == 1 else f"{compared.steps} steps"
    head = (
        f"a step takes {format_duration(seen.step_s, digits=3)} (mean of {steps}), "
        f"predicted {format_duration(said.step_s, digits=3)}, {change}"
    )
    lines = [*style.wrap(head, hang=2), *style.wrap(f"of {shown}", hang=2), ""]
    rows = [("", "measured", "predicted", "difference")]
    overview = (
        ("step", seen.step_s, said.step_s),
        ("kernels run", seen.busy_s, said.busy_s),
        ("exposed communication", seen.exposed_s, said.exposed_s),
        ("device idle", seen.idle_s, said.idle_s),
    )
    rows += [(name, *_pair(a, b)) for name, a, b in overview]
    lines += [*table_of(rows, (False, True, True, True), style), ""]
    table = [("kernels", "number", "predicted", "measured", "predicted", "difference")]
    for each in sorted(compared.classes, key=lambda each: -max(each.measured_s, each.predicted_s)):
        pair = _pair(each.measured_s, each.predicted_s)
        table.append((each.kind, f"{each.measured:.4g}", f"{each.predicted:.4g}", *pair))
    lines += [*table_of(table, (False, True, True, True, True, True), style), ""]
    worst: list[tuple[str, ...]] = [("largest differences", "ran as", "measured", "predicted")]
    for other in compared.differences:
        worst.append(
            (
                _cut(f"{other.kind}: {other.name}", _NAME),
                _cut(other.ran_as, _SHORT),
                *duration_column([other.measured_s, other.predicted_s]),
            )
        )
    lines += table_of(worst, (False, False, True, True), style)
    return "\n".join(lines) + "\n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _pair(measured_s: float, predicted_s: float) -> tuple[str, str, str]:
    sign = "+" if predicted_s >= measured_s else "-"
    change = f"{sign}{format_duration(abs(predicted_s - measured_s), digits=3)}"
    return format_duration(measured_s, digits=3), format_duration(predicted_s, digits=3), change


def trace_document(compared: ComparedTrace, shown: str) -> dict[str, Any]:
    """Return the comparison as plain data for JSON; times are in seconds."""
    document = asdict(compared)
    return {"schema_version": SCHEMA_VERSION, "trace": shown, **document}
