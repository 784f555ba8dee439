"""A checked log as text of at most 80 columns and as JSON."""

from __future__ import annotations

from typing import Any

from simulator.cli.table import table_of
from simulator.console.style import PLAIN, Style
from simulator.units import format_duration
from validate.check.check import Checked, Compared
from validate.check.shape import Cliff

__all__ = ["SCHEMA_VERSION", "as_document", "as_text", "headline"]

SCHEMA_VERSION = 1
_WIDTH = 80
_MOST_ROWS = 24
_WORDS = {
    "healthy": "healthy",
    "slow": "slow",
    "faster": "faster than expected: does the topology understate a link, or leave one out?",
}


def headline(checked: Checked) -> str:
    """Return the verdict in one line, with machine, collective and number of GPUs."""
    log = checked.log
    return f"{checked.machine}: {log.collective} over {log.n_ranks} GPUs is {_WORDS[checked.verdict]}"


def as_text(checked: Checked, style: Style = PLAIN) -> str:
    """Return that the GPUs are others, if they are, the verdict, a table of sizes, then possible explanations."""
    style = style.at_most(_WIDTH)
    lines = [checked.wrong] if checked.wrong else []
    lines += [f"{checked.mismatch}: --topology names another machine"] if checked.mismatch else []
    lines.append(headline(checked))
    for large, ratio, band in checked.ratios:
        words = "largest sizes" if large else "smaller sizes"
        rows = f"{band.rows:,} rows on {band.machines} machines"
        beside = f"; healthy is {band.fastest:.2f} to {band.slowest:.2f}, as {rows} say"
        lines.append(f"{words}: {ratio:.2f} times the expected time{beside}")
    if checked.cliff is not None:
        lines.append(f"{_cliff(checked, checked.cliff)}: look for what only large messages meet")
    lines += ["", *_table(checked, style), ""]
    if checked.explanations:
        within = "within the healthy range, but it would also fit" if checked.verdict == "healthy" else ""
        lines.append(f"{within or 'possible explanations'}, best first, with the remaining error:")
        lines += [f"  {each.error * 100:4.0f} %  {each.words}" for each in checked.explanations[:5]]
    elif checked.verdict == "slow":
        lines.append(f"none of the {checked.tried} causes tried (links, adapters, settings, versions) explains it")
    return "".join(f"{part}\n" for line in lines for part in style.wrap(line, hang=2))


def _cliff(checked: Checked, cliff: Cliff) -> str:
    before, after = (
        f"{_figure(checked.busbw_bps(size, time_s) / 1e9)} GB/s at {_size(size)}"
        for size, time_s in ((cliff.before_bytes, cliff.before_s), (cliff.after_bytes, cliff.after_s))
    )
    return f"bandwidth falls from {before} to {after} and stays low"


def _table(checked: Checked, style: Style) -> list[str]:
    every = max(1, -(-len(checked.rows) // _MOST_ROWS))
    shown = checked.rows[::-1][::every][::-1]
    rows = [("size", "time", "busbw", "expected", "healthy", "time/expected", "")]
    for row in shown:
        bus = [
            checked.busbw_bps(row.size_bytes, s) / 1e9
            for s in (row.measured_s, row.expected_s, row.slowest_s, row.fastest_s)
        ]
        mark = "slow" if row.measured_s > row.slowest_s else ""
        rows.append(
            (
                _size(row.size_bytes),
                format_duration(row.measured_s, digits=3),
                f"{_figure(bus[0])} GB/s",
                f"{_figure(bus[1])}",
                f"{_figure(bus[2])} to {_figure(bus[3])}",
                f"{row.ratio:.2f}",
                mark,
            )
        )
    return table_of(rows, (True, True, True, True, True, True, False), style, spare=(4, 3))


def as_document(checked: Checked) -> dict[str, Any]:
    """Return the checked log as plain data for JSON, in seconds, bytes, B/s and fractions."""
    log, question = checked.log, checked.question
    return {
        "schema_version": SCHEMA_VERSION,
        "log": log.shown,
        "machine": checked.machine,
        "collective": log.collective,
        "n_ranks": log.n_ranks,
        "nccl": ".".join(map(str, question.software.nccl)),
        "verdict": checked.verdict,
        "wrong": checked.wrong,
        "ratios": [
            {
                "sizes": "largest" if large else "smaller",
                "measured_over_expected": ratio,
                "healthy_from": band.fastest,
                "healthy_to": band.slowest,
                "rows": band.rows,
                "machines": band.machines,
            }
            for large, ratio, band in checked.ratios
        ],
        "sizes": [_row_document(checked, row) for row in checked.rows],
        "explanations": [
            {
                "words": each.words,
                "error": each.error,
                "times": [{"size_bytes": size, "time_s": time_s} for size, time_s in each.time_s],
            }
            for each in checked.explanations
        ],
        "variations_tried": checked.tried,
        "cliff": None if checked.cliff is None else checked.cliff._asdict(),
        "remarks": [*filter(None, [checked.mismatch]), *checked.remarks],
    }


def _row_document(checked: Checked, row: Compared) -> dict[str, Any]:
    return {
        "size_bytes": row.size_bytes,
        "is_large": row.is_large,
        "measured_s": row.measured_s,
        "expected_s": row.expected_s,
        "healthy_from_s": row.fastest_s,
        "healthy_to_s": row.slowest_s,
        "measured_busbw_Bps": checked.busbw_bps(row.size_bytes, row.measured_s),
        "expected_busbw_Bps": checked.busbw_bps(row.size_bytes, row.expected_s),
    }


def _size(n_bytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.4g} {unit}"
    return f"{n_bytes} B"


def _figure(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
