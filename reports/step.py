"""The figure of a step: where its time goes, what would be faster, what its memory holds; or of several, compared."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.colours import ACTIVITIES, BEST, HELD, INK, OTHER, WAITING, WARNING, kernel_colour
from reports.file import drawn, with_foot
from reports.kernels import draw_held, draw_passes, draw_roofline, roofline_points, roofs_of
from simulator.results import percent, rate_words
from simulator.results import step_view as view
from simulator.results.changed import said
from simulator.results.held import held_over, not_followed
from simulator.results.ran import critical_path
from simulator.results.reason import steps_verdict
from simulator.results.result import grouped, name_among
from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.units import format_duration, format_size

_WIDTH, _HEIGHT = 10.5, 6.2  # inches
_STREAMS = {"host": "host", "compute": "computing", "update": "update"}  # any other stream: exchanges
_LEGEND_COLUMNS = 5
_TITLE = 1150  # letters times font size, in points, that fit on a line
_LONGEST_NAME = 32  # letters of a line beside a bar


@drawn
def draw_steps(results: Sequence[TrainingResult]) -> Figure:
    """Return a figure of *results*, fastest first: one in parts, several by time."""
    if len(results) == 1:
        return with_foot(_figure(results[0]), said(results[0].changed, begin=""))
    first = grouped(results)[0][0]
    of = f"{first.way} on {first.machine}" if len({result.machine for result in results}) > 1 else first.way
    return with_foot(_compared(results), said(first.changed, begin="", of=of))


def _figure(result: TrainingResult) -> Figure:
    step, several = result.step, result.device_count > 1
    rows = min(16, result.question.layout.pp) if several else 1
    more = max(0.0, 0.2 * rows - 0.65)  # inches that a pipeline's stages need in addition to those of streams
    points, roofs, held = roofline_points(step), roofs_of(step), held_over(result)
    below = 2.75 if (points and roofs) or held else 0.0  # inches
    height = _HEIGHT + below + (1.5 + more if several else 0.0)
    figure = Figure(figsize=(_WIDTH, height))
    options = step.options
    how = f"batch {step.samples}, {view.precision_words(step)}"
    where = view.device_words(result) if several else f"{step.device} ({step.part})"
    head = f"{view.MODE_WORDS[options.mode]} of {step.workload}, {how}, on {result.machine}, {where}"
    if result.strategy:
        head += f", {view.divided_words(result)}"
    _draw_title(figure, head)
    rate = f"{format_duration(result.step_time_s)}, {rate_words(result.throughput)} {step.sample}/s"
    rate += f"; bound by {view.limiting_words(result)}"
    if several:
        rate += f"; {percent(result.scaling_efficiency)} of {result.device_count} devices alone"
    if not result.fits:
        need, run = result.tightest.need, result.offload
        missing = f"{format_size(need.missing_bytes, 3)} too much memory"
        if need.fits and run is not None:
            missing = f"{format_size(run.host_missing_bytes, 3)} too much memory on the host"
        rate = f"does not fit, {missing}; {rate}"
    figure.text(0.02, 1 - 0.59 / height, rate, fontsize=10, va="top", color=INK if result.fits else WARNING)

    def place(left: float, bottom_inch: float, width: float, height_inch: float) -> Axes:
        return figure.add_axes((left, (bottom_inch + below) / height, width, height_inch / height))

    if points and roofs:
        draw_roofline(place(0.11, 0.7 - below, 0.36, 1.75), points, roofs)
    if held:
        draw_held(place(0.62, 0.7 - below, 0.34, 1.75), held, result.tightest.need)
    elif below:
        figure.text(0.62, 1.6 / height, textwrap.fill(not_followed(result), 50), fontsize=9, va="center", color=INK)
    if several:
        _draw_streams(place(0.11, 5.42, 0.86, 1.05 + more), result)
    waiting = "waiting" if several else "waiting for the host"
    _draw_parts(place(0.11, 3.2, 0.86, 1.2 if several else 1.75), step, waiting)
    _draw_memory(place(0.11, 0.75, 0.38, 1.35), result)
    timed = [(each.change, each.step_time_s, True) for each in result.remedies if each.step_time_s is not None]
    if result.alternatives or timed:
        _draw_alternatives(place(0.68, 0.75, 0.24, 1.35), result, timed[:5])
    return figure


def _draw_title(figure: Figure, text: str) -> None:
    size = next((size for size in (12, 11, 10) if len(text) * size <= _TITLE), 11)
    lines = textwrap.wrap(text[0].upper() + text[1:], _TITLE // size)
    _, height = figure.get_size_inches()
    figure.text(0.02, 1 - (0.22 if len(lines) == 1 else 0.1) / height, "\n".join(lines[:2]), fontsize=size,
                fontweight="bold", va="top", linespacing=1.1)  # fmt: skip


def _draw_streams(axes: Axes, result: TrainingResult) -> None:
    if result.question.layout.pp > 1:
        draw_passes(axes, result)
    else:
        prefix = f"{result.step.device}/"
        names = [name for name in result.streams if "/" not in name or name.startswith(prefix)]
        of = {name: _STREAMS.get(name.removeprefix(prefix), "exchange") for name in names}
        colours = {name: ACTIVITIES["copies" if "copies" in name else of[name]] for name in names}
        busy = _bars(result, names, range(len(result.timeline.spans)))
        critical = _bars(result, names, critical_path(result.timeline))
        for row, name in enumerate(names):
            axes.broken_barh(busy[name], (row - 0.31, 0.62), facecolors=colours[name])
        for row, name in enumerate(names):
            axes.broken_barh(critical[name], (row + 0.34, 0.1), color=INK)
        axes.set_yticks(range(len(names)), [name.removeprefix(prefix) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        what = f"what the streams of {result.step.device} do"
        axes.set_title(f"{what}; black: the critical path, which a shorter step must shorten")
    axes.set_xlim(0, result.step_time_s * 1.01 or 1.0)
    _plain(axes)


def _bars(result: TrainingResult, names: Sequence[str], numbers: Iterable[int]) -> dict[str, list[tuple[float, float]]]:
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in numbers:
        held, span = spans.get(result.timeline.plan.tasks[number].stream), result.timeline.spans[number]
        if held is None or span.end_s <= span.start_s:
            continue
        if held and span.start_s - held[-1][1] < 2e-3 * result.step_time_s:  # gap narrower than a line
            held[-1] = held[-1][0], max(held[-1][1], span.end_s)
        else:
            held.append((span.start_s, span.end_s))
    return {name: [(start_s, end_s - start_s) for start_s, end_s in of] for name, of in spans.items()}


def _compared(results: Sequence[TrainingResult]) -> Figure:
    shown, _ = grouped(results)
    machines = {r.machine for r in shown}
    names = [f"{name_among(r, shown)}{' (bound)' * r.is_bound}" for r in shown]
    said = textwrap.wrap("; ".join(steps_verdict(results)), 130)
    room = 1.5 + 0.15 * max(0, len(said) - 1)
    height = room + 0.25 + 0.34 * len(shown)
    figure = Figure(figsize=(_WIDTH, height))
    step = shown[0].step
    samples = {r.samples for r in shown}
    parts = [1 if len(samples) == 1 else r.samples for r in shown]  # where batches differ, show the time per sample
    each = {r.step.samples for r in shown}
    batch = f"batch {step.samples} per device" if len(each) == len(samples) == 1 else "time for a sample"
    if len(samples) == 1 and len(each) > 1:
        batch = f"{shown[0].samples} {step.sample}"
    head = f"{view.MODE_WORDS[step.options.mode]} of {step.workload}, {batch}, {view.precisions_words(shown)}"
    if len(machines) == 1:
        head += f", on {shown[0].machine}, {view.device_words(shown[0])}"
    _draw_title(figure, head)
    figure.text(0.02, 1 - 0.52 / height, "\n".join(said), fontsize=9, va="top")
    axes = figure.add_axes((0.26, 0.5 / height, 0.6, (height - room) / height))
    rows = list(range(len(shown)))
    lefts, rest_s = [0.0] * len(shown), [r.step_time_s for r in shown]
    for of, activity, label in (
        ("alone_s", "computing", "one device alone"),
        ("exposed_s", "exchange", "waiting for an exchange"),
        ("bubble_s", "fill", "waiting for other stages"),
        ("step_time_s", "slowest", "slowed: the slowest rank, copies, contention"),
    ):
        lengths_s = [min(getattr(r, of), max(0.0, seconds)) for r, seconds in zip(shown, rest_s, strict=True)]
        rest_s = [seconds - length_s for seconds, length_s in zip(rest_s, lengths_s, strict=True)]
        if of != "bubble_s" or any(lengths_s):
            lengths = [length_s / part for length_s, part in zip(lengths_s, parts, strict=True)]
            axes.barh(rows, lengths, left=lefts, color=ACTIVITIES[activity], height=0.62, label=label)
            lefts = [left + length for left, length in zip(lefts, lengths, strict=True)]
    ends = [r.step_time_s / part for r, part in zip(shown, parts, strict=True)]
    for row, (result, end_s) in enumerate(zip(shown, ends, strict=True)):
        rate = f"{format_duration(end_s)}, {rate_words(result.throughput)}/s"
        _note(axes, end_s, row, rate if result.fits else f"{rate}, does not fit")
    axes.set_yticks(rows, names)
    axes.set(ylim=(len(shown) - 0.4, -0.6), xlim=(0, max(ends) * 1.02 or 1.0))
    left = -0.35 if len(axes.containers) > 3 else -0.005  # four legend entries need more room
    axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(left, 0.99), handlelength=1.0)
    _plain(axes)
    return figure


def _draw_parts(axes: Axes, result: StepResult, waiting: str) -> None:
    parts = list(result.parts_s)
    for place, kind in enumerate(result.kinds):
        widths = [kind.parts_s.get(part, 0.0) for part in parts]
        lefts = [sum(other.parts_s.get(part, 0.0) for other in result.kinds[:place]) for part in parts]
        name = view.kernel_words(kind.kind)
        axes.barh(parts, widths, left=lefts, color=kernel_colour(kind.kind), height=0.62, label=name)
    busy = [sum(kind.parts_s.get(part, 0.0) for kind in result.kinds) for part in parts]
    waits = [max(0.0, result.parts_s[part] - seconds) for part, seconds in zip(parts, busy, strict=True)]
    if sum(waits) > 0.005 * result.step_time_s:
        axes.barh(parts, waits, left=busy, color=WAITING, height=0.62, label=waiting)
    longest = max(result.parts_s.values(), default=0.0)
    for row, part in enumerate(parts):
        seconds = result.parts_s[part]
        _note(axes, max(seconds, busy[row]), row, format_duration(seconds, 3), 9)
    axes.set_xlim(0, longest * 1.12 or 1.0)
    axes.invert_yaxis()
    lines = -(-len(axes.get_legend_handles_labels()[1]) // _LEGEND_COLUMNS)
    box = axes.get_position()  # a second line of the legend takes its room from the bars
    axes.set_position((box.x0, box.y0, box.width, box.height * (1.1 - 0.1 * lines)))
    axes.set_title("where the time goes", pad=10 + 12 * lines)
    axes.legend(ncols=_LEGEND_COLUMNS, loc="lower left", bbox_to_anchor=(-0.005, 0.98), handlelength=1.0)
    _plain(axes)


def _draw_memory(axes: Axes, result: TrainingResult) -> None:
    device = result.tightest
    need = device.need
    left = 0.0
    for name, n_bytes in need.by_use.items():
        axes.barh([0], [n_bytes], left=left, height=0.5, color=HELD[name], label=name)
        left += n_bytes
    if isfinite(there := need.available_bytes):
        axes.axvline(there, color=INK, linewidth=1.6)
        axes.annotate(
            f"{format_size(there, 3)} there", (there, 0.47), (-4, 0), ha="right",
            textcoords="offset points", va="top", fontsize=8,
        )  # fmt: skip
    axes.set(xlim=(0, max(left, there if isfinite(there) else 0.0) * 1.05), ylim=(-0.5, 0.5), yticks=[])
    verdict = "" if need.fits else f", {format_size(need.missing_bytes, 3)} too much"
    stage = "" if device.stage is None else f" of stage {device.stage}"
    axes.set_title(f"memory{stage}: {format_size(need.total_bytes, 3)} needed{verdict}", pad=34)
    axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(-0.01, 0.97), handlelength=1.0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    _plain(axes, format_size)


def _draw_alternatives(axes: Axes, result: TrainingResult, remedies: Sequence[tuple[str, float, bool]]) -> None:
    rows = [("as it is", result.step_time_s, result.fits)]
    rows += [(view.change_words(other, result), other.step_time_s, other.fits) for other in result.alternatives[:5]]
    rows += remedies
    colours = [INK, *(BEST if fits else OTHER for _, _, fits in rows[1:])]
    names = [fill(name, _LONGEST_NAME, break_on_hyphens=False) for name, _, _ in rows]
    axes.barh(names, [time_s for _, time_s, _ in rows], color=colours, height=0.62)
    for row, (_, time_s, fits) in enumerate(rows):
        _note(axes, time_s, row, format_duration(time_s, 3) + ("" if fits else ", does not fit"))
    axes.set_xlim(0, max(time_s for _, time_s, _ in rows) * 1.35 or 1.0)
    axes.invert_yaxis()
    axes.set_title("what would be faster" if result.alternatives else "what would fit")
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    _plain(axes)


def _note(axes: Axes, x: float, y: float, text: str, fontsize: int = 8) -> None:
    axes.annotate(text, (x, y), (6, 0), textcoords="offset points", va="center", fontsize=fontsize)


def _plain(axes: Axes, words: Callable[..., str] = format_duration) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: words(value, 3))
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
