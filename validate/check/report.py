"""A checked log as text of at most 80 columns, as JSON and as a page."""

from collections.abc import Iterable
from itertools import groupby
from statistics import median
from typing import Any

from simulator.cli.table import Collected, page_blocks, table_of
from simulator.console import PLAIN, Style
from simulator.errors import few, some
from simulator.results import taken
from simulator.units import format_binary, format_duration
from validate.check.causes import CLEARLY
from validate.check.check import CheckedLog
from validate.check.pace import SizeComparison, Sizes, evenly, links_document, links_words, outside, slow_groups
from validate.importing.nccl_tests import unread_words

SCHEMA_VERSION = 1
_WIDTH = 80
_MOST_ROWS = 24
_MOST_NAMED = 3  # spans of sizes in the headline; causes in a line
_MOST_CAUSES = 5
_MOST_ALIKE = 5
_NEXT = "pairs of machines, one machine alone, NCCL_DEBUG=INFO, `ib_write_bw` over all adapters at once"


def headline(checked: CheckedLog) -> str:
    """Return the verdict in one line, with machine, collective and number of GPUs."""
    log = checked.log
    placed = " in place" if all(row.in_place for row in checked.rows) else ""
    what = f"{checked.machine}: {log.collective}{placed} over {log.n_ranks} GPUs"
    if checked.verdict == "wrong":
        return f"{what} gives wrong results, {checked.wrong}: look for faulty links or memory before anything else"
    return f"{what}{_as_if(checked)} is {_pace(checked)}"


def _as_if(checked: CheckedLog) -> str:
    if not checked.ignored:
        return ""
    were = "was" if len(checked.ignored) == 1 else "were"
    return f", compared as if {few(checked.ignored, _MOST_NAMED)} {were} not set,"


def _pace(checked: CheckedLog) -> str:
    def apart_words(run: Sizes) -> str:
        ratios = sorted({f"{row.ratio:.2f}" for row in run}, key=float)
        times = ratios[0] if len(ratios) == 1 else f"{ratios[0]} to {ratios[-1]}"
        return f"{run[0].mark} at {_span(run)} ({times} times the expected time)"

    rows, apart = checked.rows, outside(checked.rows)
    if checked.pace == "faster":
        words = "faster than expected: does the topology understate a link, or leave one out?"
        apart = [run for run in apart if run[0].mark == "slow"]
    elif checked.pace == "healthy":
        words = "healthy,"
    else:
        groups = {is_large for group in slow_groups(rows) for is_large in group}
        runs = [list(run) for mark, run in groupby(rows, key=lambda row: row.mark) if mark == "slow"]
        runs = [run for run in runs if run in apart or any(row.is_large in groups for row in run)]
        words = "slow," if runs and len(runs[0]) == len(rows) else f"slow at {some([*map(_span, runs)], _MOST_NAMED)},"
        words = words if runs else "slow by its shape over sizes, each within its range,"
        apart = [run for run in apart if run[0].mark == "fast"]
    return f"{words} but {some([*map(apart_words, apart)], _MOST_NAMED)}" if apart else words.rstrip(",")


def _span(rows: Sizes) -> str:
    first, last = format_binary(rows[0].size_bytes), format_binary(rows[-1].size_bytes)
    return first if first == last else f"{first} to {last}"


def as_text(checked: CheckedLog, style: Style = PLAIN) -> str:
    """Return the verdict, a table of sizes, then possible explanations."""
    return "".join(f"{line}\n" for line in _lines(checked, style.at_most(_WIDTH)))


def _lines(checked: CheckedLog, style: Style) -> list[str]:
    log, cliff = checked.log, checked.cliff
    lines = [headline(checked)]
    lines += [f"its times{_as_if(checked)} are {_pace(checked)}"] if checked.verdict == "wrong" else []
    lines += [f"the test failed, {log.failure}"] if log.failure else []
    lines += filter(None, [unread_words(log.unread)])
    lines += map(_group, checked.groups)
    if cliff is not None:
        before, after = (f"{_rates(checked, row)[0]} GB/s at {format_binary(row.size_bytes)}" for row in cliff)
        lines.append(f"bandwidth falls from {before} to {after} and stays low: look for what only large messages meet")
    lines += checked.uneven
    body = [("size", "time", "busbw", "expected", "healthy", "time/expected", "")]
    for row in evenly(checked.rows, _MOST_ROWS):
        size, time = format_binary(row.size_bytes), format_duration(row.measured_s, digits=3)
        measured, expected, low, high = _rates(checked, row)
        body.append((size, time, f"{measured} GB/s", expected, f"{low} to {high}", f"{row.ratio:.2f}", row.mark))
    lines += ["", *table_of(body, (*[True] * 6, False), style, spare=(4, 3)), ""]
    lines += [*links_words(checked.links), *_causes(checked)]
    for effect in checked.effects:  # of a setting: what it changes, or would
        now, other = (_rate(checked, effect.size_bytes, time_s) for time_s in (effect.time_s, effect.other_s))
        size = format_binary(effect.size_bytes)
        gain = f"{effect.time_s / effect.other_s:.2f} times as fast ({effect.gain_low:.2f} to {effect.gain_high:.2f})"
        if effect.is_set:
            lines.append(f"with {effect.setting} as set, {now} GB/s is normal at {size}; without it {other}")
        else:
            lines.append(f"{effect.setting} would make {size} {gain}: {other} for {now} GB/s expected")
    return [part for line in lines for part in style.wrap(line, hang=2)]


def check_page(checked: CheckedLog, command: str) -> str:
    """Return the text of *checked* and its plot as a page; *command* asks for it again."""
    from reports.curves import draw_check
    from reports.page import Page, page_of

    blocks = page_blocks(_lines(checked, Collected()))
    return page_of(Page(blocks, command, figure=draw_check(as_document(checked), headline(checked), "svg")))


def _causes(checked: CheckedLog) -> list[str]:
    found = checked.explanations[:_MOST_CAUSES]
    if not found:
        told = "(links, adapters, settings, versions)"
        none = f"none of the {checked.tried} causes tried {told} explains it; measure next: {_NEXT}"
        return [none] if checked.pace == "slow" else []
    within = "within the healthy range, but it would also fit" if checked.pace == "healthy" else ""
    lines = [f"{within or 'possible explanations'}, the likeliest first, with the error that each leaves:"]
    for each in found:
        lines.append(f"  {each.error * 100:4.0f} %  {each.words}")
        if each.alike:
            names = [words.partition(" (")[0] for words in each.alike]
            lines.append(f"          or, as slow: {'; '.join(names[:_MOST_ALIKE])}")
    close = [each for each in found if each.behind <= CLEARLY]
    one = len(close) == 1 and not close[0].alike
    fits = "the others fit clearly worse" if one and len(found) > 1 else "times alone do not tell these apart"
    shown = dict.fromkeys(each.measure for each in close if each.measure)
    fits = "" if one and len(found) == 1 else f"{fits}; "
    lines.append(f"{fits}measure next: {'; '.join(list(shown)[:_MOST_NAMED])}")
    if checked.pace == "slow":
        size, (now, mended, low, high) = format_binary(checked.rows[-1].size_bytes), _rates(checked, checked.rows[-1])
        lines.append(f"once fixed, {size} should reach {mended} GB/s ({low} to {high}), now {now}")
    return lines


def _group(rows: Sizes) -> str:
    def span(texts: Iterable[str]) -> str:
        found = sorted(texts, key=lambda text: float(text.replace(",", "")))
        return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"

    bands, ratios = {row.band for row in rows}, [round(row.ratio, 2) for row in rows]
    fastest, slowest = (span(f"{getattr(band, end):.2f}" for band in bands) for end in ("fastest", "slowest"))
    like, machines = (span(f"{getattr(band, what):,}" for band in bands) for what in ("rows", "machines"))
    middle = f", in the middle {median(row.ratio for row in rows):.2f}" if len(set(ratios)) > 1 else ""
    words = f"{'largest' if rows[0].is_large else 'smaller'} sizes: {span(f'{ratio:.2f}' for ratio in ratios)} times "
    words += f"the expected time{middle}; healthy "
    words += f"is {fastest} to {slowest}" if len(bands) == 1 else f"begins at {fastest} and ends at {slowest}, by size"
    return f"{words}, as {like} rows on {machines} machines say"


def as_document(checked: CheckedLog) -> dict[str, Any]:
    """Return the checked log as plain data for JSON, in seconds, bytes, B/s and fractions."""
    log, question = checked.log, checked.question
    return {
        "schema_version": SCHEMA_VERSION,
        **taken(checked, "log=log.shown machine collective=log.collective n_ranks=log.n_ranks"),
        "nccl": ".".join(map(str, question.software.nccl)),
        **taken(checked, "verdict wrong"),
        "unread": [each._asdict() for each in log.unread],
        "failure": log.failure,
        "ratios": [
            {
                "sizes": "largest" if rows[0].is_large else "smaller",
                "measured_over_expected": median(row.ratio for row in rows),
                "healthy_from": min(row.band.fastest for row in rows),
                "healthy_to": max(row.band.slowest for row in rows),
                "rows": min(row.band.rows for row in rows),
                "machines": min(row.band.machines for row in rows),
            }
            for rows in checked.groups
        ],
        "sizes": [
            {
                **taken(row, "size_bytes is_large"),
                "placement": "in-place" if row.in_place else "out-of-place",
                **taken(row, "mark measured_s expected_s healthy_from_s=fastest_s healthy_to_s=slowest_s"),
                "measured_busbw_Bps": checked.busbw_bps(row.size_bytes, row.measured_s),
                "expected_busbw_Bps": checked.busbw_bps(row.size_bytes, row.expected_s),
            }
            for row in checked.rows
        ],
        "settings_ignored": list(checked.ignored),
        "explanations": [
            {
                **taken(each, "words error measure behind alike"),
                "times": [{"size_bytes": size, "time_s": time_s} for size, time_s in each.time_s],
            }
            for each in checked.explanations
        ],
        "variations_tried": checked.tried,
        **links_document(checked.links),
        "settings": [effect._asdict() for effect in checked.effects],
        "uneven": list(checked.uneven),
        "cliff": checked.cliff
        and {
            **taken(checked.cliff[0], "before_bytes=size_bytes before_s=measured_s"),
            **taken(checked.cliff[1], "after_bytes=size_bytes after_s=measured_s"),
        },
        "remarks": list(checked.remarks),
    }


def _rate(checked: CheckedLog, size_bytes: int, time_s: float) -> str:
    value = checked.busbw_bps(size_bytes, time_s) / 1e9
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _rates(checked: CheckedLog, row: SizeComparison) -> list[str]:
    """Return the bus bandwidth as measured and expected, then the least and the most that is healthy, in GB/s."""
    times_s = (row.measured_s, row.expected_s, row.slowest_s, row.fastest_s)
    return [_rate(checked, row.size_bytes, time_s) for time_s in times_s]
