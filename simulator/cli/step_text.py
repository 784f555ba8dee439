"""The result of a step as text."""

from collections.abc import Collection, Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from simulator.cli import table
from simulator.console import Style, later
from simulator.errors import counted, mention
from simulator.questions.where import TODAY, month_words
from simulator.records import lists_by_key
from simulator.results import Fact, percent, rate_words
from simulator.results import step_view as view
from simulator.results.headline import answer_lines, count_words
from simulator.results.step import StepResult
from simulator.results.step_confidence import UNSURE, may_overflow
from simulator.results.training import TrainingResult
from simulator.results.training_run import Alternative, Checkpoints, DeviceMemory, Remedy
from simulator.units import format_capacity, format_duration, format_size
from simulator.workload.network import in_any_block
from simulator.workload.operators import Attention
from simulator.workload.zoo import FUSED

if TYPE_CHECKING:
    from simulator.results.input import InputRun
    from simulator.results.servers import ServerRun

MARK = "*"  # of memory that may not do
_SHOWN_LAYERS = 8
_FASTER = 4  # times the rate of a network that a next step tries
_SHOWN_CHANGES = 3
_SIZES = {"attention": "attention", "gelu": "GELU"}  # settings that choose kernels, in words
_KERNELS = {"fused-native": "cuDNN 9 attention", "fused-first": "FlashAttention 1", "fused-fourth": "FlashAttention 4"}


def step_lines(result: TrainingResult, style: Style, *, full: bool = False) -> list[str]:
    """Return the answer: its figures, what was asked beside the step, and what would be better.

    *full*: also time by stream, kernel and layer, and memory by use.
    """
    most = None if full else _SHOWN_CHANGES if result.changed is None else 0
    remedies, better = result.remedies[: most if most is None else _SHOWN_CHANGES + 1], result.alternatives[:most]
    facts = table.fact_lines((fact for fact in view.step_view(result) if full or not fact.detail), style)
    shares = [["divided so that all finish together", "part", "samples"]]
    shares += [[name, part, f"{samples:,}"] for name, part, samples in result.shares]
    within = [_kinds(result.step, style), _layers(result.step, style)] if full else []
    for part in dict.fromkeys(device.part for device in result.memory) if full else ():
        of_part = [device for device in result.memory if device.part == part]
        within.append(_memory(of_part, len(of_part) < len(result.memory), style))
    head = table.head_lines(_title(result), style, [result.confidence], result.changed)
    for said in answer_lines(result):
        head += style.wrap(said, "bold", *([] if result.fits else ["red"]), hang=2)
    last = table.trust_lines(result.confidence, style, full=full)
    last += [] if full else table.next_lines(_next(result), style)
    return table.blocks_apart(
        head,
        [*facts, *table.loss_lines(result.changed, style, full=full)],
        _account(result, style) if full and result.device_count > 1 else [],
        last if result.input is not None else [],
        _input(result.input, result.samples, result.step.sample, style) if result.input is not None else [],
        _servers(result.servers, style) if result.servers is not None else [],
        table.table_of(shares, [False, False, True], style) if result.shares else [],
        _checkpoints(result.checkpoints, style) if result.checkpoints is not None else [],
        *within,
        remedy_lines(remedies, result, style) if remedies else [],
        alternative_lines("what would be faster", better, result, style) if better else [],
        alternative_lines("what if", result.what_if, result, style) if result.what_if else [],
        last if result.input is None else [],
    )


def _next(result: TrainingResult) -> str:
    run, need, layout = result.input, result.tightest.need, result.question.layout
    more = "-v says what takes time and memory, and how to tighten the band"
    if result.remedies and result.remedies[0].change.startswith("--"):
        return f"{result.remedies[0].change}, with which it fits"
    if run is not None and run.is_slower and run.cure is not None:
        rate = f"{rate_words(result.samples / run.cure.step_time_s)} {result.step.sample}/s"
        later_on = " from the second epoch on" * ("cache" in run.cure.change)
        return f"{mention('input', run.cure.change)}, the cheapest fix: {rate}{later_on}"
    nodes = result.question.where.nodes or 1
    if nodes > 1 and any(name.startswith("node") and "." not in name for name, _ in result.question.stragglers):
        return f"{mention('nodes', nodes - 1)} without {mention('straggler')}: the cost of leaving the node out"
    use = result.bottleneck
    link = None if use is None or result.question.where.fabric is None else result.timeline.machine.link(use.name)
    if link is not None and link.kind in view.NETWORKS:
        faster = mention("fabric", f"{_FASTER * link.nominal_Bps * 8e-9:.6g}Gbit/s")
        return f"{faster}, to see what a faster network gains"
    best = next((each for each in result.alternatives if each.fits), None)
    if best is not None:
        needs = "" if best.total_bytes is None else f", needs {format_size(best.total_bytes, 3)} of memory"
        return f"{best.change}, {result.step_time_s / best.step_time_s:.2f} times as fast{needs}; -v says more"
    if result.question.options.recompute != "none" and need.total_bytes < need.available_bytes / 2:
        free = format_size(need.available_bytes - need.total_bytes, 3)
        return f"the same without {result.question.options.recompute_words[0]}, as {free} are free"
    if layout.divides_network and not result.what_if:
        return f"{mention('what_if')} says what would be faster, -v what takes the time"
    return more


def _title(result: TrainingResult) -> str:
    step, programs = result.step, result.question.programs
    batch = f"batch {step.samples // step.micro_batches // programs}"
    if step.micro_batches > 1:
        batch += f" x {step.micro_batches} micro-batches"
    if result.shares:
        batch = f"{result.samples} samples divided over {result.device_count} devices"
    elif result.device_count > 1 and result.replicas > 1:
        batch += f" x {result.replicas} {'replicas' if result.question.layout.model_ranks > 1 else 'devices'}"
    if programs > 1:
        batch += f" x {programs} programs"
    if step.tokens:
        batch += f" x {counted(step.tokens // step.samples, 'token')}"
    divided = [view.divided_words(result)] if result.strategy else []
    how = [batch, *how_words(result, view.precision_words(step)), *divided]
    where = f"{step.device} ({step.part})" if result.device_count == 1 else view.device_words(result)
    what = f"{view.MODE_WORDS[step.options.mode]} of {step.workload} ({parameter_words(step)})"
    return f"{result.machine}, {where}: {what}, {', '.join(how)}"


def how_words(result: TrainingResult, precision: str) -> list[str]:
    """Return how a step runs, in words: its *precision*, optimiser, compiler, recomputation."""
    step, question, software = result.step, result.question, result.question.software
    options, sizes = step.options, dict(result.question.sizes)
    if sizes.get("attention") in FUSED:  # devices without this kernel run another
        of = (x.operator.library for x in step.network.layers if isinstance(x.operator, Attention))
        sizes["attention"] = later("simulator.workload.zoo.attention:attention_of")(next(of, None))
    updates = f"{'fused ' * options.fused_optimizer}{options.optimizer}"
    hosts = question.offload != "none" and (result.device_count == 1 or question.offload_to == "nvme")
    where = "disks" if question.offload_to == "nvme" else "host"
    said = {
        updates if options.optimizer != "none" else "no optimiser": options.mode == "train",
        "compiled": options.compiled,
        "CUDA graph": options.cuda_graph,
        "CUDA graphs of blocks": options.cuda_graph_blocks,
        **{words.removeprefix("--"): True for words in options.recompute_words},
        "channels last": options.channels_last,
        f"{question.offload.replace('+', ' and ')} on the {where}": hosts,
        options.framework: options.framework != "pytorch",
        "gradients all-reduced": question.sums_whole,
        "gathered in fp32": question.gathers_in_fp32,
        "gathered again": question.gathers_again,
        "flat parameters": question.flat_parameters,
        f"kernels of {software.cpu_library}": software.cpu_library != TODAY.cpu_library,
        f"libraries of {month_words(software.libraries or (0, 0))}": software.libraries,
        f"GPUs held to {software.gpu_clock_Hz / 1e6:g} MHz": software.gpu_clock_Hz,
        "calibrated": step.calibrated,
    }
    part = result.timeline.machine.node(step.device).part
    known = _KERNELS if getattr(part, "vendor", "") == "nvidia" else {}  # by NVIDIA's names
    kernels = [known.get(str(sizes[name]), f"{sizes[name]} {word}") for name, word in _SIZES.items() if name in sizes]
    return [precision, *kernels, *(words for words, holds in said.items() if holds)]


def fit_words(result: TrainingResult, of: float = 0.0) -> str:
    """Return the memory of the fullest device, and what it has if not *of* bytes; or how much it or its host lacks."""
    need, available_bytes = result.tightest.need, result.tightest.need.available_bytes
    if not result.fits:
        run = result.offload if need.fits else None
        bytes_, host = (need.missing_bytes, "") if run is None else (run.host_missing_bytes, " on the host")
        share = bytes_ / available_bytes
        return f"{percent(share) if share < view.TIGHT and not host else format_size(bytes_, 3)} over{host}"
    has = "" if available_bytes == of or not isfinite(available_bytes) else format_size(available_bytes, 3)
    needs = format_size(need.total_bytes, 3)
    mark = f" {MARK}" * may_overflow(result, need.total_bytes)
    return f"{needs.removesuffix(' ' + has.rpartition(' ')[2])} of {has}{mark}" if has else f"{needs}{mark}"


def mark_lines(cells: Iterable[str], style: Style) -> list[str]:
    """Return what the mark of memory that may not do says, if any of *cells* has it."""
    marked = any(cell.endswith(f" {MARK}") for cell in cells)
    return style.wrap(f"{MARK} {UNSURE}", "dim", hang=2) if marked else []


def memory_column(results: Sequence[TrainingResult]) -> table.Column:
    """Return the column of memory; what all have stands in its heading."""
    head, of = memory_head({result.tightest.need.available_bytes for result in results})
    return table.Column(head, [fit_words(result, of) for result in results], right=bool(of))


def memory_head(sizes: Collection[float]) -> tuple[str, float]:
    """Return the heading of a column of memory, and the one finite size of all, in bytes; 0 if there is none."""
    of = min(sizes) if len(sizes) == 1 and isfinite(min(sizes)) else 0.0
    return f"memory of {format_capacity(of)}" if of else "memory", of


def parameter_words(step: StepResult) -> str:
    """Return the number of parameters, and of those that are trained if these are fewer."""
    trained = f", {count_words(step.trained_count)} trained" if step.trained_count < step.parameter_count else ""
    return f"{count_words(step.parameter_count)} parameters{trained}"


def _account(result: TrainingResult, style: Style) -> list[str]:
    whole_s = result.step_time_s or 1.0
    rows = [["why so long", "time", "share"]]
    shares = view.time_shares(result).items()
    rows += [[view.SHARE_WORDS[name], format_duration(s), percent(s / whole_s)] for name, s in shares]
    streams = [["streams", "busy", "share", "waits"]]
    for name, use in result.streams.items():
        waits = ", ".join(f"{format_duration(s, 3)} for {other}" for other, s in use.waits_s.items()) or "-"
        streams.append([name.replace("/", " "), format_duration(use.busy_s), percent(use.busy_s / whole_s), waits])
    of_streams = table.table_of(streams, [False, True, True, False], style)
    return table.blocks_apart(table.table_of(rows, [False, True, True], style), of_streams)


def _kinds(result: StepResult, style: Style) -> list[str]:
    rows = [["where the time goes", "time", "share", "kernels", "bound by"]]
    for kind in result.kinds:
        times = {"compute": kind.compute_s, "memory": kind.memory_s, "latency": kind.latency_s}
        bound = max(times, key=lambda bound: round(times[bound], 12))
        of_it = times[bound] / kind.time_s if kind.time_s else 1.0
        time = [format_duration(kind.time_s), percent(kind.time_s / (result.busy_s or 1.0)), f"{kind.count:,}"]
        rows.append([view.kernel_words(kind.kind), *time, bound if of_it > 0.995 else f"{bound} ({percent(of_it)})"])
    return table.table_of(rows, [False, True, True, True, False], style, spare=(3, 4))


def _layers(result: StepResult, style: Style) -> list[str]:
    alike = lists_by_key((in_any_block(layer.name), layer) for layer in result.layers)
    found = [(sum(layer.time_s for layer in layers), name, layers) for name, layers in alike.items()]
    found.sort(key=lambda each: -round(each[0], 12))
    rows = [["slowest layers", "time", "share", "how"]]
    for time_s, name, layers in found[:_SHOWN_LAYERS]:
        shown = f"{name} ({len(layers)})" if len(layers) > 1 else layers[0].name
        how = f"{layers[0].detail} ({layers[0].part})" if layers[0].detail else ""
        rows.append([shown, format_duration(time_s), percent(time_s / (result.busy_s or 1.0)), how])
    rest = len(found) - _SHOWN_LAYERS
    more = f"and {rest} more (--json lists all)" if rest > 0 else ""
    return table.table_of(rows, [False, True, True, False], style, spare=(3,), more=more)


def _memory(devices: Sequence[DeviceMemory], named: bool, style: Style) -> list[str]:
    device = max(devices, key=lambda device: device.need.total_bytes)
    need = device.need
    verdict = "" if need.fits else f": {format_size(need.missing_bytes, 3)} over"
    of = f" of each {device.part}" if named else " of each device" if device.count > 1 else ""
    if device.stage is not None and len(devices) > 1:
        least = min(other.need.total_bytes for other in devices)
        of += f" of stage {device.stage} (others from {format_size(least, 3)})"
    has = f" of {format_capacity(need.available_bytes)}" if isfinite(need.available_bytes) else ""
    peak = f", most {need.peak}" if need.peak else ""
    title = f"memory{of}: {format_size(need.total_bytes, 3)}{has}{verdict}{peak}"
    rows = [["", ""], *([f"  {name}", format_size(n_bytes, 3)] for name, n_bytes in need.by_use.items())]
    return [*style.wrap(title, "bold"), *table.table_of(rows, [False, True], style)]


def alternative_lines(title: str, found: Sequence[Alternative], result: TrainingResult, style: Style) -> list[str]:
    """Return a table of *found*, changes of the step of *result*, with its *title*."""
    rows = [[title, "time", "gain", ""]]
    for other in found:
        time = [format_duration(other.step_time_s), f"{result.step_time_s / other.step_time_s:.2f} x"]
        rows.append([view.change_words(other, result), *time, "" if other.fits else "does not fit in memory"])
    return table.table_of(rows, [False, True, True, False], style)


def remedy_lines(remedies: Sequence[Remedy], result: TrainingResult, style: Style) -> list[str]:
    """Return a table of *remedies*, changes with which the step of *result* fits."""
    samples = f"time for {result.samples:,} {result.step.sample}" if result.samples != 1 else "time"
    rows = [["what would fit", samples, "memory"]]
    for each in remedies:
        time = "time not simulated" if each.step_time_s is None else format_duration(each.step_time_s)
        mark = f" {MARK}" * (each.total_bytes is not None and may_overflow(result, each.total_bytes))
        needs = "fits" if each.total_bytes is None else format_size(each.total_bytes, 3)
        rows.append([each.change, time, f"{needs}{mark}"])
    shown = 1 if all(each.step_time_s is None for each in remedies) else 3
    lines = table.table_of([row[:shown] for row in rows], [False, True, True][:shown], style)
    return [*lines, *mark_lines((row[2] for row in rows[: len(rows) * (shown == 3)]), style)]


def _servers(run: "ServerRun", style: Style) -> list[str]:
    whole_s = run.period_s or 1.0
    rows = [["through servers", "at work", "share of a step"]]
    rows += [[stage, format_duration(seconds), percent(seconds / whole_s)] for stage, seconds in run.stages_s.items()]
    lines = table.table_of(rows, [False, True, True], style)
    longest = max(run.stages_s, key=lambda name: round(run.stages_s[name], 12))
    lines += style.wrap(f"servers on {', '.join(run.servers)}; {longest} is at work longest", "dim")
    rows = [["nodes", "step", "computing", "slack", "staleness", "at most", "ahead"]]
    for pace in run.paces:
        more = f" and {pace.node_count - 1} more" if pace.node_count > 1 else ""
        times = map(format_duration, (pace.period_s, pace.busy_s, pace.slack_s))
        late = f"{pace.staleness_mean:.3g}", str(pace.staleness_max), str(pace.lead)
        rows.append([f"{pace.node}{more}", *times, *late])
    return [*lines, "", *table.table_of(rows, [False] + 6 * [True], style)]


def _checkpoints(found: Checkpoints, style: Style) -> list[str]:
    title = f"a checkpoint every {counted(found.every_steps, 'step')}, a failure every {format_duration(found.mtbf_s)}"
    lost = f"work lost since the last checkpoint, and {format_duration(found.restart_s)} to restart"
    rows = [
        ["", "", ""],
        ["  kept", percent(found.goodput), f"{format_duration(found.interval_s)} between checkpoints"],
        ["  writing", percent(found.written_share), f"{format_duration(found.write_s)} each"],
        ["  lost", percent(found.failed_share), lost],
        ["  best", percent(found.best_goodput), f"every {counted(found.best_steps, 'step')} (Daly)"],
    ]
    return [*style.wrap(title, "bold"), *table.table_of(rows, [False, True, False], style)]


def _input(run: "InputRun", samples: int, sample: str, style: Style) -> list[str]:
    asked = run.asked
    where = " and ".join(dict.fromkeys(run.disks)) if run.disks else "memory"
    name = "" if asked.name == "input" else f"{asked.name} "
    resized = "resized to what the network reads, " if run.load.is_resized else ""
    loader = "loaded by the process that issues"
    if asked.workers:
        ahead = f"{asked.prefetch} batch{'es' * (asked.prefetch > 1)} ahead each"
        loader = f"{asked.workers} worker{'s' * (asked.workers > 1)} a process, {ahead}"

    def rate(seconds: float) -> str:
        return f"{rate_words(samples / seconds)} {sample}/s"

    rows = [[view.INPUT_WORDS[name], format_duration(s), rate(s)] for name, s in run.limits_s.items()]
    alone = table.table_of([["each stage on its own", "a step", ""], *rows], [False, True, True], style)
    idle = f"wait for their input, {percent(run.idle_share)} of the time"
    facts = [Fact("devices", idle if run.is_slower else "are fed in time")]
    if run.is_slower:
        none = "none of the input's own; another disk, or a host with more cores"
        fix = none if run.cure is None else f"{run.cure.change}: {rate(run.cure.step_time_s)}"
        facts.append(Fact("cheapest fix", fix))
    facts += _epochs(run) if run.epoch_steps else []
    has = f" of {format_size(run.memory_bytes, 3)}" if isfinite(run.memory_bytes) else ""
    kept = f", {format_size(run.kept_bytes, 3)} of the set" if run.kept_bytes else ""
    lacks = ": more than there is" if run.buffers_bytes > run.memory_bytes else ""
    facts.append(Fact("host memory", f"{format_size(run.buffers_bytes, 3)} of batches{kept}{has}{lacks}"))
    title = style.wrap(f"input: {name}from {where}, {resized}{loader}", "bold")
    lines = [*title, *alone, *table.fact_lines(facts, style)]
    if run.cures:
        times = [(each.change, each.step_time_s) for each in run.cures]
        rows = [[change, format_duration(s), f"{run.period_s / s:.2f} x"] for change, s in times]
        lines += ["", *table.table_of([["what would feed it", "time", "gain"], *rows], [False, True, True], style)]
    return lines


def _epochs(run: "InputRun") -> list[Fact]:
    asked, steps, several = run.asked, counted(run.epoch_steps, "step"), run.asked.epochs > 1
    said = {
        "first epoch": (run.first_s, steps, several and run.cached_share),
        "later epochs": (run.later_s, f"{percent(run.cached_share)} from memory", several and run.cached_share),
        "epoch": (run.later_s, steps, not (several and run.cached_share)),
        "evaluation": (run.evaluation_s, f"{asked.evaluate:,} samples on one device", asked.evaluate),
        "all epochs": (run.total_s, f"{asked.epochs:,} of them", several or asked.evaluate),
    }
    return [Fact(name, f"{format_duration(s)}, {words}") for name, (s, words, holds) in said.items() if holds]
