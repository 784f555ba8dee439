"""A calibration as YAML; the same fit gives the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from validate.constants.calibrate import Calibrated
from validate.constants.rows import AskedRow
from validate.tables.lines import ranges
from validate.tables.statistics import summarise

__all__ = ["calibration_yaml"]


def calibration_yaml(
    part: str,
    table: str,
    rows: Sequence[AskedRow],
    fitted: Calibrated,
    *,
    others: Mapping[str, int] | None = None,
    asked: Iterable[str] = (),
) -> str:
    """Return the calibration file of the device *part*: the *fitted* factors and the *rows* of *table* fitted to.

    *others* counts other rows fitted to, by kind; *asked* are the digests of their questions.
    """
    factors = fitted.calibration
    left = summarise(fitted.errors)
    assert left.median_ape is not None
    assert left.mean_ape is not None
    lines = [
        "# Written by validate calibrate; docs/calibration.md.",
        "schema_version: 1",
        "devices:",
        f"  {part}:",
        f"    compute: {factors.compute}",
        f"    bandwidth: {factors.bandwidth}",
        f"    dispatch: {factors.dispatch}",
        "    by_class: " + _flow({name: factors.by_class[name] for name in sorted(factors.by_class)}),
        *([f"    by_data_sheet: [{', '.join(sorted(factors.by_data_sheet))}]"] if factors.by_data_sheet else []),
        *(["    host: " + _flow(dict(factors.host))] if factors.host else []),
        "    spread: " + _flow(fitted.spread),
        "    points:",
        f"      table: {_quoted(table)}",
        "      count: " + _flow(dict(sorted({**Counter(row.op for row in rows), **(others or {})}.items()))),
        f"      median_error: {left.median_ape:.4f}",
        f"      mean_error: {left.mean_ape:.4f}",
        f"      lines: {_quoted(ranges(sorted(row.record.line for row in rows), limit=None))}",
        "      asked:",
        *(f"        - {_quoted(key)}" for key in sorted({*(row.digest for row in rows), *asked})),
    ]
    return "\n".join(lines) + "\n"


def _flow(values: dict[str, float] | dict[str, int]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"


def _quoted(text: str) -> str:
    """Return *text* as a double-quoted YAML scalar (YAML 1.1, section 5.7)."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'
