"""A calibration as YAML; the same fit gives the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from simulator.api.calibrations import sizes_of
from simulator.questions.calibration import Neighbourhood
from validate.constants.calibrate import Calibrated
from validate.kinds.row import MeasuredRow
from validate.tables.lines import ranges
from validate.tables.statistics import summarise


def calibration_yaml(
    part: str,
    table: str,
    rows: Sequence[MeasuredRow],
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
        *_neighbours(factors.neighbours),
        "    spread: " + _flow(fitted.spread),
        "    points:",
        f"      table: {_quoted(table)}",
        "      count: " + _flow(dict(sorted({**Counter(row.op for row in rows), **(others or {})}.items()))),
        f"      median_error: {left.median_ape:.4f}",
        f"      mean_error: {left.mean_ape:.4f}",
        f"      lines: {_quoted(ranges(sorted(row.line for row in rows), limit=None))}",
        "      asked:",
        *(f"        - {_quoted(key)}" for key in sorted({*(row.digest for row in rows), *asked})),
    ]
    return "\n".join(lines) + "\n"


def _neighbours(found: Sequence[Neighbourhood]) -> Iterator[str]:
    """Yield the lines of the measured kernels, one kernel a line."""
    if found:
        yield "    neighbours:"
    for each in found:
        yield f"      - of: {each.of}"
        yield f"        near: {each.near}"
        yield f"        strength: {each.strength}"
        yield f"        noise: {each.noise}"
        yield "        measured:"
        for shape, ratio in each.measured:
            yield "          - " + _flow(
                {name: _plain(value) for name, value in {**sizes_of(each.of, shape), "ratio": ratio}.items()}
            )


def _plain(value: float | str) -> float | str:
    """Return *value* as people write it: a whole number without a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flow(values: Mapping[str, float] | Mapping[str, int] | Mapping[str, float | str]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"


def _quoted(text: str) -> str:
    """Return *text* as a double-quoted YAML scalar (YAML 1.1, section 5.7)."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'
