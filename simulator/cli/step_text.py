"""The result of a step as text."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from simulator.cli.table import fact_lines, head_lines, loss_lines, table_of, trust_lines
from simulator.console import later
from simulator.console.style import Style
from simulator.errors import counted
from simulator.questions.where import TODAY, month_words
from simulator.results import Fact
from simulator.results.columns import percent, rate_words
from simulator.results.ran import KindTime, LayerTime
from simulator.results.step import StepResult
from simulator.results.step_view import step_view, time_shares
from simulator.results.training import TrainingResult
from simulator.results.training_run import Alternative, DeviceMemory, Remedy
from simulator.results.words import (
    INPUT_WORDS,
    MODE_WORDS,
    SHARE_WORDS,
    change_words,
    device_words,
    divided_words,
    kernel_words,
    precision_words,
)
from simulator.units import format_duration, format_size
from simulator.workload.network import in_any_block
from simulator.workload.operators import Attention
from simulator.workload.zoo import FUSED

if TYPE_CHECKING:
    from simulator.results.checkpoints import Checkpoints
    from simulator.results.input import InputRun
    from simulator.results.servers import ServerRun

_SHOWN_LAYERS = 8
_SHOWN_CHANGES = 3
_KERNELS = {"attention": "attention", "gelu": "GELU"}  # settings that choose kernels, in words


def step_lines(result: TrainingResult, style: Style, *, full: bool = False) -> list[str]:
    """Return the answer: its figures, what was asked beside the step, and what would be better.

    *full*: also time by stream, kernel and layer, and memory by use.
    """
    most = None if full else _SHOWN_CHANGES
    remedies, better = result.remedies[:most], result.alternatives[:most]
    more = ["the time by stream, kernel and layer", "the memory by use"]
    if max(len(result.remedies), len(result.alternatives)) > _SHOWN_CHANGES:
        more.append("more changes")
    facts = fact_lines((fact for fact in step_view(result) if full or not fact.detail), style)
    shares = [["divided so that all finish together", "part", "samples"]]
    shares += [[name, part, f"{samples:,}"] for name, part, samples in result.shares]
    blocks = [
        [*facts, *loss_lines(result.changed, style, full=full)],
        _account(result, style) if full and result.device_count > 1 else [],
        _input(result.input, result.samples, result.step.sample, style) if result.input is not None else [],
        _servers(result.servers, style) if result.servers is not None else [],
        table_of(shares, [False, False, True], style) if result.shares else [],
        _checkpoints(result.checkpoints, style) if result.checkpoints is not None else [],
        *(_within(result, style) if full else []),
        remedy_lines(remedies, result, style) if remedies else [],
        alternative_lines("what would be faster", better, result, style) if better else [],
        alternative_lines("what if", result.what_if, result, style) if result.what_if else [],
        trust_lines(result.confidence, style),
        [] if full else style.wrap(f"-v shows {', '.join(more)}", "dim"),
    ]
    head = head_lines(_title(result), style, [result.confidence], result.changed)
    return [*head, *(line for block in blocks if block for line in ["", *block])]


def _within(result: TrainingResult, style: Style) -> list[list[str]]:
    """Return what is within the time and the memory of *result*: kernels, layers, and uses of each part's memory."""
    found = [_kinds(result.step, style), _layers(result.step, style)]
    for part in dict.fromkeys(device.part for device in result.memory):
        of_part = [device for device in result.memory if device.part == part]
        tightest = max(of_part, key=lambda device: device.need.total_bytes)
        found.append(_memory(tightest, of_part, len(of_part) < len(result.memory), style))
    return found


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
        batch += f" x {counted(step.tokens // step.samples, 'token')}"
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
    if sizes.get("attention") in FUSED:  # devices without this kernel run another
        of = (x.operator.library for x in step.network.layers if isinstance(x.operator, Attention))
        sizes["attention"] = later("simulator.workload.zoo.attention:attention_of")(next(of, None))
    how = [precision, *(f"{sizes[name]} {word}" for name, word in _KERNELS.items() if name in sizes)]
    if options.mode == "train":
        fused = "fused " if options.fused_optimizer and options.optimizer != "none" else ""
        how.append(fused + options.optimizer if options.optimizer != "none" else "no optimiser")
    graphs = ("CUDA graph", options.cuda_graph), ("CUDA graphs of blocks", options.cuda_graph_blocks)
    how += [word for word, on in (("compiled", options.compiled), *graphs) if on]
    how += [words.removeprefix("--") for words in options.recompute_words]
    how += ["channels last"] if options.channels_last else []
    question = result.question
    if question.offload != "none" and (result.device_count == 1 or question.offload_to == "nvme"):
        where = "disks" if question.offload_to == "nvme" else "host"
        how.append(f"{question.offload.replace('+', ' and ')} on the {where}")
    how += [options.framework] if options.framework != "pytorch" else []
    how += ["gathered in fp32"] if question.gathers_in_fp32 else []
    of_cpu = question.software.cpu_library
    how += [f"kernels of {of_cpu}"] if of_cpu != TODAY.cpu_library else []
    libraries = question.software.libraries
    how += [f"libraries of {month_words(libraries)}"] if libraries else []
    clock_Hz = question.software.gpu_clock_Hz
    how += [f"GPUs held to {clock_Hz / 1e6:g} MHz"] if clock_Hz else []
    return how + (["calibrated"] if step.calibrated else [])


def fit_words(result: TrainingResult) -> str:
    """Return the memory of the fullest device, or how much it or its host lacks."""
    need, run = result.tightest.need, result.offload
    if need.fits and run is not None and not run.fits:
        return f"{format_size(run.host_missing_bytes, 3)} too little on the host"
    if need.fits:
        has = f" of {format_size(need.available_bytes, 3)}" if isfinite(need.available_bytes) else ""
        return f"{format_size(need.total_bytes, 3)}{has}"
    return f"{format_size(need.missing_bytes, 3)} too little"


def _count(number: float) -> str:
    """Return *number* with a letter for thousands, millions or billions: 25.6 M."""
    scale, letter = next(((s, x) for s, x in ((1e9, " B"), (1e6, " M"), (1e3, " k")) if number >= s), (1.0, ""))
    return f"{number / scale:.{3 if scale > 1 else 9}g}{letter}"


def parameter_words(step: StepResult) -> str:
    """Return the number of parameters, and of those that are trained if these are fewer."""
    frozen = step.trained_count < step.parameter_count
    trained = f", {_count(step.trained_count)} trained" if frozen else ""
    return f"{_count(step.parameter_count)} parameters{trained}"


def _account(result: TrainingResult, style: Style) -> list[str]:
    """Return the parts of the step's time, in rows that add up to it, and the waiting times of each stream."""
    whole_s = result.step_time_s or 1.0
    rows = [["why so long", "time", "share"]]
    rows += [[SHARE_WORDS[name], format_duration(s), percent(s / whole_s)] for name, s in time_shares(result).items()]
    streams = [["streams", "busy", "share", "waits"]]
    for name, use in result.streams.items():
        waits = ", ".join(f"{format_duration(s, 3)} for {other}" for other, s in use.waits_s.items())
        busy = [format_duration(use.busy_s), percent(use.busy_s / whole_s)]
        streams.append([name.replace("/", " "), *busy, waits or "-"])
    return [*table_of(rows, [False, True, True], style), "", *table_of(streams, [False, True, True, False], style)]


def _kinds(result: StepResult, style: Style) -> list[str]:
    """Return the time of each kind of kernel."""
    rows = [["where the time goes", "time", "share", "kernels", "bound by"]]
    for kind in result.kinds:
        share = percent(kind.time_s / (result.busy_s or 1.0))
        times = [format_duration(kind.time_s), share, f"{kind.count:,}"]
        rows.append([kernel_words(kind.kind), *times, _bound_of(kind)])
    return table_of(rows, [False, True, True, True, False], style, spare=(3, 4))


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
    found = []
    for name, layers in alike.items():
        shown = f"{name} ({len(layers)})" if len(layers) > 1 else layers[0].name
        how = f"{layers[0].detail} ({layers[0].part})" if layers[0].detail else ""
        found.append((sum(layer.time_s for layer in layers), shown, how))
    found.sort(key=lambda each: -round(each[0], 12))
    rows = [["slowest layers", "time", "share", "how"]]
    for time_s, shown, how in found[:_SHOWN_LAYERS]:
        rows.append([shown, format_duration(time_s), percent(time_s / (result.busy_s or 1.0)), how])
    rest = len(found) - _SHOWN_LAYERS
    more = f"and {rest} more (--json lists all)" if rest > 0 else ""
    return table_of(rows, [False, True, True, False], style, spare=(3,), more=more)


def _memory(device: DeviceMemory, of_part: Sequence[DeviceMemory], named: bool, style: Style) -> list[str]:
    """Return the memory of *device*, the fullest among *of_part*, which are pipeline stages if there are several."""
    need = device.need
    verdict = "" if need.fits else f": {format_size(need.missing_bytes, 3)} too much"
    of = f" of each {device.part}" if named else " of each device" if device.count > 1 else ""
    if device.stage is not None and len(of_part) > 1:
        least = min(other.need.total_bytes for other in of_part)
        of += f" of stage {device.stage} (others from {format_size(least, 3)})"
    has = f" of {format_size(need.available_bytes, 3)}" if isfinite(need.available_bytes) else ""
    peak = f", most {need.peak}" if need.peak else ""
    title = f"memory{of}: {format_size(need.total_bytes, 3)}{has}{verdict}{peak}"
    rows = [["", ""], *([f"  {name}", format_size(n_bytes, 3)] for name, n_bytes in need.by_use.items())]
    return [*style.wrap(title, "bold"), *table_of(rows, [False, True], style)]


def alternative_lines(title: str, found: Sequence[Alternative], result: TrainingResult, style: Style) -> list[str]:
    """Return a table of *found*, changes of the step of *result*, with its *title*."""
    rows = [[title, "time", "gain", ""]]
    for other in found:
        gain = f"{result.step_time_s / other.step_time_s:.2f} x"
        fits = "" if other.fits else "does not fit in memory"
        rows.append([change_words(other, result), format_duration(other.step_time_s), gain, fits])
    return table_of(rows, [False, True, True, False], style)


def remedy_lines(remedies: Sequence[Remedy], result: TrainingResult, style: Style) -> list[str]:
    """Return a table of *remedies*, changes with which the step of *result* fits."""
    samples = f"time for {result.samples:,} {result.step.sample}" if result.samples != 1 else "time"
    rows = [["what would fit", samples, "memory"]]
    for each in remedies:
        time = "-" if each.step_time_s is None else format_duration(each.step_time_s)
        rows.append([each.change, time, "-" if each.total_bytes is None else format_size(each.total_bytes, 3)])
    if all(each.step_time_s is None for each in remedies):
        rows = [row[:1] for row in rows]
    return table_of(rows, [False, True, True][: len(rows[0])], style)


def _servers(run: ServerRun, style: Style) -> list[str]:
    """Return the stages of a step, and the pace of each node."""
    whole_s = run.period_s or 1.0
    rows = [["through servers", "at work", "share of a step"]]
    rows += [[stage, format_duration(seconds), percent(seconds / whole_s)] for stage, seconds in run.stages_s.items()]
    lines = table_of(rows, [False, True, True], style)
    lines += style.wrap(f"servers on {', '.join(run.servers)}; {run.longest_stage} is at work longest", "dim")
    rows = [["nodes", "step", "computing", "slack", "staleness", "at most", "ahead"]]
    for pace in run.paces:
        more = f" and {pace.node_count - 1} more" if pace.node_count > 1 else ""
        times = [format_duration(seconds) for seconds in (pace.period_s, pace.busy_s, pace.slack_s)]
        stale = f"{pace.staleness_mean:.3g}"
        rows.append([f"{pace.node}{more}", *times, stale, str(pace.staleness_max), str(pace.lead)])
    return [*lines, "", *table_of(rows, [False, True, True, True, True, True, True], style)]


def _checkpoints(found: Checkpoints, style: Style) -> list[str]:
    """Return the cost of failures and checkpoints, and the best interval."""
    title = f"a checkpoint every {counted(found.every_steps, 'step')}, a failure every {format_duration(found.mtbf_s)}"
    rows = [
        ["", "", ""],
        ["  kept", percent(found.goodput), f"{format_duration(found.interval_s)} between checkpoints"],
        ["  writing", percent(found.written_share), f"{format_duration(found.write_s)} each"],
        ["  lost", percent(found.failed_share), f"steps done again, and {format_duration(found.restart_s)} to restart"],
        ["  best", percent(found.best_goodput), f"every {counted(found.best_steps, 'step')} (Daly)"],
    ]
    return [*style.wrap(title, "bold"), *table_of(rows, [False, True, False], style)]


def _input(run: InputRun, samples: int, sample: str, style: Style) -> list[str]:
    """Return the lines about the input of *run*, with *samples* per step."""
    where = " and ".join(dict.fromkeys(run.disks)) if run.disks else "memory"
    name = "" if run.asked.name == "input" else f"{run.asked.name} "
    resized = "resized to what the network reads, " if run.load.is_resized else ""
    lines = style.wrap(f"input: {name}from {where}, {resized}{_loader(run)}", "bold")
    rows = [
        [INPUT_WORDS[name], format_duration(seconds), f"{rate_words(samples / seconds)} {sample}/s"]
        for name, seconds in run.limits_s.items()
    ]
    lines += table_of([["what each alone would take", "a step", ""], *rows], [False, True, True], style)
    idle = f"wait for their input, {percent(run.idle_share)} of the time"
    facts = [Fact("devices", idle if run.is_slower else "are fed in time")]
    if run.is_slower:
        facts.append(Fact("bound by", INPUT_WORDS[run.bound]))
        if run.cure is not None:
            rate = rate_words(samples / run.cure.step_time_s)
            facts.append(Fact("cheapest cure", f"{run.cure.change}: {rate} {sample}/s"))
        else:
            facts.append(Fact("cheapest cure", "none of the input's own; another disk, or a host with more cores"))
    if run.epoch_steps:
        facts += _epochs(run)
    has = f" of {format_size(run.memory_bytes, 3)}" if isfinite(run.memory_bytes) else ""
    kept = f", {format_size(run.kept_bytes, 3)} of the set" if run.kept_bytes else ""
    lacks = ": more than there is" if run.buffers_bytes > run.memory_bytes else ""
    facts.append(Fact("host memory", f"{format_size(run.buffers_bytes, 3)} of batches{kept}{has}{lacks}"))
    lines += fact_lines(facts, style)
    if run.cures:
        rows = [
            [cure.change, format_duration(cure.step_time_s), f"{run.period_s / cure.step_time_s:.2f} x"]
            for cure in run.cures
        ]
        lines += ["", *table_of([["what would feed it", "time", "gain"], *rows], [False, True, True], style)]
    return lines


def _loader(run: InputRun) -> str:
    asked = run.asked
    if not asked.workers:
        return "loaded by the process that issues"
    workers = f"{asked.workers} worker{'s' if asked.workers > 1 else ''} a process"
    return f"{workers}, {asked.prefetch} batch{'es' if asked.prefetch > 1 else ''} ahead each"


def _epochs(run: InputRun) -> list[Fact]:
    asked = run.asked
    rows = []
    if asked.epochs > 1 and run.cached_share:
        rows.append(Fact("first epoch", f"{format_duration(run.first_s)}, {counted(run.epoch_steps, 'step')}"))
        rows.append(Fact("later epochs", f"{format_duration(run.later_s)}, {percent(run.cached_share)} from memory"))
    else:
        rows.append(Fact("epoch", f"{format_duration(run.later_s)}, {counted(run.epoch_steps, 'step')}"))
    if asked.evaluate:
        rows.append(
            Fact("evaluation", f"{format_duration(run.evaluation_s)}, {asked.evaluate:,} samples on one device")
        )
    if asked.epochs > 1 or asked.evaluate:
        rows.append(Fact("all epochs", f"{format_duration(run.total_s)}, {asked.epochs:,} of them"))
    return rows
