"""The result of a step as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite

from simulator.cli.table import Column, changed_lines, fact_lines, outside_lines, table_lines
from simulator.console.style import Style
from simulator.questions.where import month_words
from simulator.results.alternatives import Alternative
from simulator.results.columns import percent, rate_words
from simulator.results.ran import KindTime, LayerTime
from simulator.results.shares import SHARE_WORDS, time_shares
from simulator.results.step import StepResult
from simulator.results.step_view import step_view
from simulator.results.training import TrainingResult
from simulator.results.training_run import DeviceMemory
from simulator.results.words import (
    MODE_WORDS,
    change_words,
    divided_words,
    kernel_words,
    precision_words,
)
from simulator.units import format_duration, format_size
from simulator.workload.network import in_any_block

_SHOWN_LAYERS = 8
_KERNELS = {"attention": "attention", "gelu": "GELU"}  # settings that choose kernels, in words


def step_lines(result: TrainingResult, style: Style) -> list[str]:
    """Return the full answer: the verdict, the parts of the time, memory, and faster alternatives."""
    step = result.step
    lines = style.wrap(_title(result), "bold")
    lines += [*changed_lines(result.changed, style), *outside_lines([result.confidence], style)]
    lines += ["", *fact_lines(step_view(result), style)]
    if result.device_count > 1:
        lines += ["", *_account(result, style)]
        lines += ["", *_streams(result, style)]
    if result.input is not None:
        from simulator.cli.input_text import input_lines

        lines += ["", *input_lines(result.input, result.samples, step.sample, rate_words, style)]
    if result.servers is not None or result.shares or result.checkpoints is not None:
        from simulator.cli.server_text import checkpoint_lines, server_lines, share_lines

        lines += ["", *server_lines(result.servers, style)] if result.servers is not None else []
        lines += ["", *share_lines(result.shares, style)] if result.shares else []
        lines += ["", *checkpoint_lines(result.checkpoints, style)] if result.checkpoints is not None else []
    lines += ["", *_kinds(step, style)]
    lines += ["", *_layers(step, style)]
    for part in dict.fromkeys(device.part for device in result.memory):
        of_part = [device for device in result.memory if device.part == part]
        tightest = max(of_part, key=lambda device: device.need.total_bytes)
        lines += ["", *_memory(tightest, of_part, len(of_part) < len(result.memory), style)]
    if result.alternatives:
        lines += ["", *alternative_lines("what would be faster", result.alternatives, result, style)]
    if result.what_if:
        lines += ["", *alternative_lines("what if", result.what_if, result, style)]
    return lines


def _title(result: TrainingResult) -> str:
    step = result.step
    options = step.options
    programs = result.question.programs
    each = step.samples // step.micro_batches // programs
    batch = f"batch {each}"
    if step.micro_batches > 1:
        batch += f" x {step.micro_batches} micro-batches"
    if result.shares:
        batch = f"{result.samples} samples divided over {result.device_count} devices"
    elif result.device_count > 1:
        several = "replicas" if result.question.layout.model_ranks > 1 else "devices"
        batch += f" x {result.replicas} {several}" if result.replicas > 1 else ""
    if programs > 1:
        batch += f" x {programs} programs"
    if step.tokens:
        batch += f" x {step.tokens // step.samples:,} tokens"
    how = [batch, *how_words(result, precision_words(step))]
    if result.strategy:
        how.append(divided_words(result))
    where = f"{result.machine}, {step.device} ({step.part})" if result.device_count == 1 else ""
    where = where or f"{result.machine}, {device_words(result)}"
    what = f"{step.workload} ({parameter_words(step)})"
    return f"{where}: {MODE_WORDS[options.mode]} of {what}, {', '.join(how)}"


def how_words(result: TrainingResult, precision: str) -> list[str]:
    """Return how a step runs, in words: its *precision*, optimiser, compiler, recomputation."""
    step = result.step
    options = step.options
    sizes = dict(result.question.sizes)
    how = [precision, *(f"{sizes[name]} {word}" for name, word in _KERNELS.items() if name in sizes)]
    if options.mode == "train":
        fused = "fused " if options.fused_optimizer and options.optimizer != "none" else ""
        how.append(fused + options.optimizer if options.optimizer != "none" else "no optimiser")
    graphs = ("CUDA graph", options.cuda_graph), ("CUDA graphs of blocks", options.cuda_graph_blocks)
    how += [word for word, on in (("compiled", options.compiled), *graphs) if on]
    how += [words.removeprefix("--") for words in options.recompute_words]
    how += ["channels last"] if options.channels_last else []
    libraries = result.question.software.libraries
    how += [f"libraries of {month_words(libraries)}"] if libraries else []
    return how + (["calibrated"] if step.calibrated else [])


def device_words(result: TrainingResult) -> str:
    """Return the devices by part: ``8 x v100-sxm2-16gb``."""
    counts: Counter[str] = Counter()
    for device in result.memory:
        counts[device.part] += device.count
    return " and ".join(f"{count} x {part}" if count > 1 else part for part, count in counts.items())


def fit_words(result: TrainingResult) -> str:
    """Return the memory of the fullest device, or how much it lacks."""
    need = result.tightest.need
    if need.fits:
        has = f" of {format_size(need.available_bytes, 3)}" if isfinite(need.available_bytes) else ""
        return f"{format_size(need.total_bytes, 3)}{has}"
    return f"{format_size(need.missing_bytes, 3)} too little"


def _count(number: float) -> str:
    """Return *number* with a letter for thousands, millions or billions: 25.6 M."""
    scale, letter = next(((s, x) for s, x in ((1e9, " G"), (1e6, " M"), (1e3, " k")) if number >= s), (1.0, ""))
    return f"{number / scale:.{3 if scale > 1 else 9}g}{letter}"


def parameter_words(step: StepResult) -> str:
    """Return the number of parameters, and of those that are trained if these are fewer."""
    frozen = step.trained_count < step.parameter_count
    trained = f", {_count(step.trained_count)} trained" if frozen else ""
    return f"{_count(step.parameter_count)} parameters{trained}"


def _account(result: TrainingResult, style: Style) -> list[str]:
    """Return the parts of the step's time, in rows that add up to it."""
    shares = time_shares(result)
    columns = [
        Column("why so long", [SHARE_WORDS[share.name] for share in shares], right=False),
        Column("time", [format_duration(share.seconds) for share in shares]),
        Column("share", [percent(share.seconds / (result.step_time_s or 1.0)) for share in shares]),
    ]
    return table_lines(columns, style)


def _streams(result: TrainingResult, style: Style) -> list[str]:
    """Return the waiting times of each stream."""
    whole_s = result.step_time_s or 1.0
    names = list(result.streams)
    uses = list(result.streams.values())
    waits = [", ".join(f"{format_duration(s, 3)} for {other}" for other, s in use.waits_s.items()) for use in uses]
    columns = [
        Column("streams", [name.replace("/", " ") for name in names], right=False),
        Column("busy", [format_duration(use.busy_s) for use in uses]),
        Column("share", [percent(use.busy_s / whole_s) for use in uses]),
        Column("waits", [each or "-" for each in waits], right=False),
    ]
    return table_lines(columns, style)


def _kinds(result: StepResult, style: Style) -> list[str]:
    busy = result.busy_s or 1.0
    kinds = result.kinds
    columns = [
        Column("where the time goes", [kernel_words(kind.kind) for kind in kinds], right=False),
        Column("time", [format_duration(kind.time_s) for kind in kinds]),
        Column("share", [percent(kind.time_s / busy) for kind in kinds]),
        Column("kernels", [f"{kind.count:,}" for kind in kinds], spare=2),
        Column("bound by", [_bound_of(kind) for kind in kinds], right=False, spare=1),
    ]
    return table_lines(columns, style)


def _bound_of(kind: KindTime) -> str:
    times = {"compute": kind.compute_s, "memory": kind.memory_s, "latency": kind.latency_s}
    name = max(times, key=lambda bound: round(times[bound], 12))
    share = times[name] / kind.time_s if kind.time_s else 1.0
    word = {"compute": "arithmetic", "memory": "memory", "latency": "latency"}[name]
    return word if share > 0.995 else f"{word} ({percent(share)})"


def _layers(result: StepResult, style: Style) -> list[str]:
    """Return the slowest layers, with those of repeated blocks combined on one line."""
    alike: dict[str, list[LayerTime]] = {}
    for layer in result.layers:
        alike.setdefault(in_any_block(layer.name), []).append(layer)
    busy = result.busy_s or 1.0
    rows = []
    for name, layers in alike.items():
        shown = f"{name} ({len(layers)})" if len(layers) > 1 else layers[0].name
        how = f"{layers[0].detail} ({layers[0].part})" if layers[0].detail else ""
        rows.append((sum(layer.time_s for layer in layers), shown, how))
    rows.sort(key=lambda row: -round(row[0], 12))
    first = rows[:_SHOWN_LAYERS]
    columns = [
        Column("slowest layers", [name for _, name, _ in first], right=False),
        Column("time", [format_duration(time_s) for time_s, _, _ in first]),
        Column("share", [percent(time_s / busy) for time_s, _, _ in first]),
        Column("how", [detail for _, _, detail in first], right=False, spare=1),
    ]
    rest = len(rows) - _SHOWN_LAYERS
    return table_lines(columns, style, more=f"and {rest} more (--json lists all)" if rest > 0 else "")


def _memory(device: DeviceMemory, of_part: Sequence[DeviceMemory], named: bool, style: Style) -> list[str]:
    """Return the memory of *device*, the fullest among *of_part*, which are pipeline stages if there are several."""
    need = device.need
    verdict = "" if need.fits else f": {format_size(need.missing_bytes, 3)} too much"
    of = f" of each {device.part}" if named else " of each device" if device.count > 1 else ""
    if device.stage is not None and len(of_part) > 1:
        least = min(other.need.total_bytes for other in of_part)
        of += f" of stage {device.stage} (others from {format_size(least, 3)})"
    has = f" of {format_size(need.available_bytes, 3)}" if isfinite(need.available_bytes) else ""
    title = f"memory{of}: {format_size(need.total_bytes, 3)}{has}{verdict}"
    columns = [
        Column("", [f"  {name}" for name in need.by_use], right=False),
        Column("", [format_size(n_bytes, 3) for n_bytes in need.by_use.values()]),
    ]
    return [*style.wrap(title, "bold"), *table_lines(columns, style)]


def alternative_lines(title: str, found: Sequence[Alternative], result: TrainingResult, style: Style) -> list[str]:
    """Return a table of *found*, changes of the step of *result*, with its *title*."""
    columns = [
        Column(title, [change_words(other, result.step) for other in found], right=False),
        Column("time", [format_duration(other.step_time_s) for other in found]),
        Column("gain", [f"{result.step_time_s / other.step_time_s:.2f} x" for other in found]),
        Column("", ["" if other.fits else "does not fit in memory" for other in found], right=False),
    ]
    return table_lines(columns, style)
