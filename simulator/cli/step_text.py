"""A step's result as text for a reader."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from simulator.console.style import Style
from simulator.results.columns import lay_out, percent
from simulator.results.step import KindTime, LayerTime, StepResult
from simulator.results.words import BOUND_WORDS, FORMAT_WORDS, KIND_WORDS, MODE_WORDS, change_words, precision_words
from simulator.units import format_duration, format_size

__all__ = ["step_lines"]

_SHOWN_LAYERS = 8
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a block that repeats


def step_lines(result: StepResult, style: Style) -> list[str]:
    """Return the whole answer: time, where it goes, memory, and what would be faster."""
    lines = _wrapped(_title(result), style, "bold")
    lines += ["", *_times(result, style)]
    lines += ["", *_kinds(result, style)]
    lines += ["", *_layers(result, style)]
    lines += ["", *_memory(result, style)]
    if result.alternatives:
        lines += ["", *_alternatives(result, style)]
    return lines


def _title(result: StepResult) -> str:
    options = result.options
    batch = f"batch {result.samples}"
    if result.tokens:
        batch += f" x {result.tokens // result.samples:,} tokens"
    how = [batch, precision_words(result)]
    if options.mode == "train":
        fused = "fused " if options.fused_optimizer and options.optimizer != "none" else ""
        how.append(fused + options.optimizer if options.optimizer != "none" else "no optimiser")
    how += [word for word, on in (("compiled", options.compiled), ("CUDA graph", options.cuda_graph)) if on]
    how += [word for word, on in (("recompute", options.recompute), ("channels last", options.channels_last)) if on]
    how += ["calibrated"] if result.calibrated else []
    where = f"{result.machine}, {result.device} ({result.part})"
    what = f"{result.workload} ({_count(result.parameter_count)} parameters)"
    return f"{where}: {MODE_WORDS[options.mode]} of {what}, {', '.join(how)}"


def _count(number: float) -> str:
    """Return *number* with a letter for thousands, millions, milliards: 25.6 M."""
    scale, letter = next(((s, x) for s, x in ((1e9, " G"), (1e6, " M"), (1e3, " k")) if number >= s), (1.0, ""))
    return f"{number / scale:.{3 if scale > 1 else 9}g}{letter}"


def _rate(number: float) -> str:
    """Return *number* with four digits, and no exponent."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def _digits(number: float) -> str:
    """Return *number* with three digits, and no exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _throughput(result: StepResult) -> str:
    text = f"{_rate(result.throughput)} {result.sample}/s"
    if result.tokens:
        text += f", {_rate(result.throughput * result.tokens / result.samples)} tokens/s"
    return text


def _times(result: StepResult, style: Style) -> list[str]:
    rows = [["step", format_duration(result.step_time_s), _throughput(result)]]
    if len(result.parts_s) > 1:
        rows += [[part, format_duration(seconds), ""] for part, seconds in result.parts_s.items()]
    if result.on_host:
        rows.append(["framework", format_duration(result.host_s), ""])
    else:
        rows.append(["host issues", format_duration(result.host_s), ""])
        rows.append(["device waits", format_duration(result.waiting_s), ""])
    lines = lay_out(rows, [False, True, False])
    lines[0] = style.mark(lines[0], "bold", "green")
    rate = result.model_flop / result.step_time_s if result.step_time_s > 0 else 0.0
    peak = _digits(result.peak_flops_per_s / 1e12)
    used = f"{_digits(rate / 1e12)} of {peak} TFLOP/s, {percent(result.utilisation)} of the peak"
    if result.utilisation > 1.0:
        convolves = any(kind.kind == "convolution" for kind in result.kinds)
        why = "Winograd's algorithm multiplies less than" if convolves else "causal attention computes half of what"
        used += f"; {why} is counted"
    width = max(len(row[0]) for row in rows)
    facts = [("arithmetic", used), ("bound by", BOUND_WORDS[result.bound])]
    facts += [("trust", text)] if (text := _trust(result)) else []
    for name, text in facts:
        lines += _wrapped(f"{name.ljust(width)}  {text}", style, hang=width + 2)
    return lines


def _trust(result: StepResult) -> str:
    """Return in words how good predictions of such steps were."""
    trust = result.trust
    if trust is None:
        return "no such step has been scored against measurements"
    what = f"{trust.rows} measured steps of {trust.family}s in {FORMAT_WORDS[trust.format]}"
    what += " on CPUs" if trust.processor == "CPU" else ""
    if trust.bias < -trust.median / 2:
        way = ", mostly too fast"
    else:
        way = ", mostly too slow" if trust.bias > trust.median / 2 else ""
    early = " (before 2019: of the fastest framework alone)" if trust.early_rows else ""
    return f"half of {what} within {trust.median * 100:.0f} %, nine in ten within {trust.p90 * 100:.0f} %{way}{early}"


def _kinds(result: StepResult, style: Style) -> list[str]:
    busy = result.busy_s or 1.0
    kinds = result.kinds
    columns = [
        [KIND_WORDS.get(kind.kind, kind.kind) for kind in kinds],
        [format_duration(kind.time_s) for kind in kinds],
        [percent(kind.time_s / busy) for kind in kinds],
        [f"{kind.count:,}" for kind in kinds],
        [_bound_of(kind) for kind in kinds],
    ]
    header = ["where the time goes", "time", "share", "kernels", "bound by"]
    return _table(header, columns, [False, True, True, True, False], style, spare=(3, 4))


def _bound_of(kind: KindTime) -> str:
    times = {"compute": kind.compute_s, "memory": kind.memory_s, "latency": kind.latency_s}
    name = max(times, key=lambda bound: round(times[bound], 12))
    share = times[name] / kind.time_s if kind.time_s else 1.0
    word = {"compute": "arithmetic", "memory": "memory", "latency": "latency"}[name]
    return word if share > 0.995 else f"{word} ({percent(share)})"


def _layers(result: StepResult, style: Style) -> list[str]:
    """Return the slowest layers, those of repeated blocks as one line."""
    alike: dict[str, list[LayerTime]] = {}
    for layer in result.layers:
        alike.setdefault(_NUMBER.sub("*", layer.name), []).append(layer)
    busy = result.busy_s or 1.0
    rows = []
    for name, layers in alike.items():
        shown = f"{name} ({len(layers)})" if len(layers) > 1 else layers[0].name
        how = f"{layers[0].detail} ({layers[0].part})" if layers[0].detail else ""
        rows.append((sum(layer.time_s for layer in layers), shown, how))
    rows.sort(key=lambda row: -round(row[0], 12))
    columns = [
        [name for _, name, _ in rows[:_SHOWN_LAYERS]],
        [format_duration(time_s) for time_s, _, _ in rows[:_SHOWN_LAYERS]],
        [percent(time_s / busy) for time_s, _, _ in rows[:_SHOWN_LAYERS]],
        [detail for _, _, detail in rows[:_SHOWN_LAYERS]],
    ]
    lines = _table(["slowest layers", "time", "share", "how"], columns, [False, True, True, False], style, spare=(3,))
    rest = len(rows) - _SHOWN_LAYERS
    if rest > 0:
        lines.append(f"and {rest} more (--json lists all)")
    return lines


def _table(
    header: Sequence[str],
    columns: Sequence[Sequence[str]],
    right: Sequence[bool],
    style: Style,
    spare: Sequence[int] = (),
) -> list[str]:
    """Return a table; where it is too wide, without the columns *spare*, the first of them first, or as a list."""
    shown = list(range(len(header)))
    left_out = iter(spare)
    while True:
        rows = [[header[i] for i in shown], *([row[i] for i in shown] for row in zip(*columns, strict=True))]
        lines = lay_out(rows, [right[i] for i in shown])
        if style.width is None or max(len(line) for line in lines) <= style.width:
            break
        if (spared := next(left_out, None)) is not None:
            shown.remove(spared)
            continue
        lines = [header[0]]
        for name, *rest in rows[1:]:
            lines += textwrap.wrap(
                f"  {name}: {', '.join(t for t in rest if t)}", style.width, subsequent_indent="    "
            )
        break
    lines[0] = style.mark(lines[0], "bold")
    return lines


def _memory(result: StepResult, style: Style) -> list[str]:
    need = result.memory
    rows = {
        "parameters": need.parameters_bytes,
        "gradients": need.gradients_bytes,
        "optimiser": need.optimizer_bytes,
        "activations": need.activations_bytes,
        "working": need.working_bytes,
        "driver": need.context_bytes,
    }
    held = {name: n_bytes for name, n_bytes in rows.items() if n_bytes}
    verdict = "" if need.fits else f": {format_size(need.missing_bytes, 3)} too much"
    title = f"memory: {format_size(need.total_bytes, 3)} of {format_size(need.available_bytes, 3)}{verdict}"
    columns = [[f"  {name}" for name in held], [format_size(n_bytes, 3) for n_bytes in held.values()]]
    table = lay_out([list(row) for row in zip(*columns, strict=True)], [False, True])
    return [*_wrapped(title, style, "bold"), *table]


def _alternatives(result: StepResult, style: Style) -> list[str]:
    found = result.alternatives
    columns = [
        [change_words(other, result) for other in found],
        [format_duration(other.step_time_s) for other in found],
        [f"{result.step_time_s / other.step_time_s:.2f} x" for other in found],
        ["" if other.fits else "does not fit in memory" for other in found],
    ]
    return _table(["what would be faster", "time", "gain", ""], columns, [False, True, True, False], style)


def _wrapped(text: str, style: Style, *marks: str, hang: int = 0) -> list[str]:
    if style.width is None:
        return [style.mark(text, *marks)]
    wrapped = textwrap.wrap(
        text, style.width, subsequent_indent=" " * hang, break_on_hyphens=False, break_long_words=False
    )
    return [style.mark(line, *marks) for line in wrapped or [text]]
