"""The view of a step, the parts of its time, and words in place of names in code (docs/decisions/results.md)."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from simulator.collectives.nccl.strategy import KEPT
from simulator.devices.optimizer import state_tensors
from simulator.errors import counted, few
from simulator.network.machine import Machine
from simulator.questions.where import VersionNote
from simulator.records import lists_by_key, sums_by_key
from simulator.results import WORDS, Fact, percent, rate_words, three_digits
from simulator.results.bottleneck import LinkUse
from simulator.results.confidence import BAND_HEAD
from simulator.results.ran import StreamUse
from simulator.results.rates import rate_facts
from simulator.results.result import BARE, STAGED
from simulator.results.step import StepResult
from simulator.results.step_confidence import memory_band_words, step_confidence, step_trust
from simulator.results.training_run import NOT_TRIED, Alternative, TrainingRun
from simulator.step.memory import parameter_gradient_bytes
from simulator.step.precision import updated_bytes
from simulator.topology.parts import GpuPart
from simulator.training.worker import AUTOGRAD, HOST, STREAM
from simulator.units import format_duration, format_size
from simulator.workload.operators import CLASSES

if TYPE_CHECKING:
    from simulator.results.offload import OffloadRun


NETWORKS = ("ethernet", "infiniband", "efa", "omnipath")
_MASTERS = {f"master-{form}": f"{form}, fp32 master weights" for form in ("bf16", "fp16", "fp8")}
_SHOWN_USES = 3  # of a tight memory
TIGHT = 0.5  # of a memory: from here on, whether the step fits is what comes first
MATTERS, _LEAST = 0.1, 0.05  # of a step, in a cell and in a line
_LOST_BY = {"exchange": "exposed", "fill": "bubble", "host": "host", "input": "input"}
_BOUNDS = {lost: bound for bound, lost in _LOST_BY.items()}
_OVER = {False: "over several devices", True: "whose network is divided among devices"}


def step_view(result: TrainingRun) -> Iterator[Fact]:
    """Yield the figures of a step, then what explains them; what few ask for is marked as detail."""
    step, confidence = result.step, step_confidence(result)
    marks = ("bold", "green" if result.fits else "red")
    rate = f"{rate_words(result.throughput)} {step.sample}/s"
    if result.tokens:
        rate += f", {rate_words(result.throughput * result.tokens / result.samples)} tokens/s"
    rate += " in all" * (result.device_count > 1)
    rate = rate if result.fits else f"with enough memory: {rate}"
    yield Fact("step", rate, format_duration(result.step_time_s), marks)
    if not confidence.is_exact:
        yield Fact(BAND_HEAD, confidence.words, "")
    need, several = result.tightest.need, result.device_count > 1
    tight = need.total_bytes > TIGHT * need.available_bytes
    most = sorted(need.by_use.items(), key=lambda use: -use[1])[: _SHOWN_USES if tight else 0]
    most += [("others", need.total_bytes - sum(n_bytes for _, n_bytes in most))] * bool(most)
    uses = ", ".join(f"{name} {format_size(n_bytes, 3)}" for name, n_bytes in most if n_bytes > 0)
    said = "; ".join(filter(None, (memory_band_words(result, need), uses)))
    name = "memory per device" if several and step.on_host else "memory"
    yield Fact(name, said, format_size(need.total_bytes, 3), () if result.fits else marks)
    yield from rate_facts(result, confidence.band) if result.fits else ()
    if (price := result.price_per_million) is not None:
        yield Fact("price", f"for a million {step.sample}", price.words())
    if result.epoch_steps:
        yield Fact("epoch", counted(result.epoch_steps, "step"), format_duration(result.epoch_s))
    if result.bubble_s:
        yield Fact("bubble", "for other pipeline stages", format_duration(result.bubble_s))
    if len(step.parts_s) > 1:
        parts = step.parts_s.items()
        yield from (Fact(part, "", format_duration(seconds), detail=True) for part, seconds in parts)
    yield from _offload(result.offload)
    yield Fact("framework" if step.on_host else "host issues", "", format_duration(step.host_s), detail=True)
    if not step.on_host:
        yield Fact("device waits", "", format_duration(step.waiting_s), detail=True)
        yield Fact("first step", first_step_words(result), detail=True)
    yield from _explained(result)


def _offload(run: "OffloadRun | None") -> Iterator[Fact]:
    if run is None:
        return
    yield Fact("update", "on the host", format_duration(run.update_s))
    down, up = (format_size(n_bytes, 3) for n_bytes in (run.to_host_bytes, run.to_device_bytes))
    yield Fact("copies", f"to the host, {down} of a device", format_duration(run.to_host_s))
    both = f"of {'all' if run.disk_bytes else 'both'}, {format_duration(run.exposed_copies_s)} are exposed"
    yield Fact("copies back", f"to the device, {up}; {both}", format_duration(run.to_device_s))
    if run.disk_bytes:
        read, written = (format_size(n_bytes, 3) for n_bytes in (run.from_disks_bytes, run.to_disks_bytes))
        moved = f"to read {read} of a device, {format_duration(run.to_disks_s)} to write {written}"
        yield Fact("disks", f"{moved}; they hold {format_size(run.disk_bytes, 3)}", format_duration(run.from_disks_s))
    has = f"of {format_size(run.host_available_bytes, 3)}" if isfinite(run.host_available_bytes) else ""
    has += "" if run.fits else f": {format_size(run.host_missing_bytes, 3)} over, it does not fit"
    yield Fact("host memory", has, format_size(run.host_bytes, 3), () if run.fits else ("bold", "red"))


def _explained(result: TrainingRun) -> Iterator[Fact]:
    several = result.device_count > 1
    yield Fact("bound by", limiting_words(result))
    yield Fact("achieved", _achieved(result), detail=several or result.tokens > 0)  # else MFU says it
    yield Fact("time goes to", largest_words(result))
    if (clock := result.clock) is not None:
        words, less = WORDS["clocks"][clock.state], percent(1.0 - clock.rested_s / clock.kernels_s)
        words = words.format(watt=clock.board_power_W)
        yield Fact("clock", f"{words} kernels would take {less} less", detail=True)
    if result.bottleneck is not None:
        used = f"{percent(result.bottleneck.utilisation)} in use"
        yield Fact("slowest link", f"{link_words(result.timeline.machine, result.bottleneck)}, {used}")
    yield from (Fact("staged", note) for note in result.notes if note.startswith(STAGED))
    yield from (Fact("software", note) for note in result.notes if isinstance(note, VersionNote) or note == KEPT)
    yield from (Fact("faster", note) for note in result.notes if note == NOT_TRIED)
    yield from (Fact("servers", note) for note in (result.servers.notes if result.servers else ()))
    if result.is_bound:
        yield Fact("a bound", f"{result.strategy} is an ideal schedule, without launches and protocols")
    elif not result.counts_software:
        yield Fact("at least", f"{result.strategy} is {BARE}")
    yield Fact("past errors", trust_words(result), detail=True)


def largest_words(result: TrainingRun) -> str:
    """Return the largest parts of the time: of a step of several devices, or of the kernels of one."""
    if result.device_count > 1:
        shares, whole_s = {SHARE_WORDS[name]: s for name, s in time_shares(result).items()}, result.step_time_s
    else:
        shares = {kernel_words(kind.kind): kind.time_s for kind in result.step.kinds}
        whole_s = result.step.busy_s
    some = [(name, s / (whole_s or 1.0)) for name, s in [*shares.items()][:3]]
    return "; ".join(f"{percent(share)} {name}" for name, share in some if share >= _LEAST or name == some[0][0])


def _achieved(result: TrainingRun) -> str:
    """Return the FLOP/s of the products, and their share of the device's peak; of unlike devices, those of the mean."""
    step, count = result.step, result.device_count
    rate, peak = step.utilisation * step.peak_flops_per_s, step.peak_flops_per_s
    each = (" per device" if step.on_host else " per GPU") * (count > 1)
    if len(result.parts) > 1 and not result.question.layout.divides_network:
        rate *= result.samples / step.samples / count
        peak = sum(device.count * device.peak_flops_per_s for device in result.memory) / count
        each += ", on average"
    share = rate / peak if peak else 0.0
    used = f"{three_digits(rate / 1e12)} of {three_digits(peak / 1e12)} TFLOP/s{each}, {percent(share)} of the peak"
    if share <= 1.0:
        return used
    convolves = any(kind.kind == "convolution" for kind in step.kinds)
    why = "Winograd's algorithm multiplies less than" if convolves else "causal attention computes half of what"
    return f"{used}; {why} is counted"


_LOGGED_RANKS = 8  # BERT's; of ResNet-50, one log in eight has 16


def first_step_words(result: TrainingRun) -> str:
    """Return how much longer first steps took in published logs of such steps; no step here is the first."""
    step, options = result.step, result.question.options
    plain = options.mode == "train" and options.framework == "pytorch" and result.question.where.nodes in (None, 1)
    part, as_issued = result.timeline.machine.node(step.device).part, not (options.compiled or options.cuda_graph)
    known = plain and as_issued and isinstance(part, GpuPart) and part.vendor == "nvidia"
    in_half = step.family != "CNN" or options.precision.startswith("amp-")  # as all logs of ResNet-50 are
    alike = known and in_half and result.device_count <= _LOGGED_RANKS
    return WORDS["first_step"].get((step.family or "") if alike else "", WORDS["first_step"][""])


def has_baseline(result: TrainingRun) -> bool:
    """Return whether one device alone is a baseline: it can hold the step, and does no less than its share together."""
    layout, options, step = result.question.layout, result.question.rank_options, result.step
    if result.scaling_efficiency > 1.0:
        return False
    if not (layout.divides_network or layout.zero) or result.offload is not None:
        return True
    element, state = updated_bytes(options.precision), 0
    if options.trains:
        state = parameter_gradient_bytes(options)
        state += sum(state_tensors(options.optimizer, step.trained_count, element)) // (step.trained_count or 1)
    return step.trained_count * (element + state) <= result.tightest.need.available_bytes


def link_kind(machine: Machine, use: LinkUse) -> str:
    """Return the kind of the link of *use*, between nodes with its rate and their adapters; or its name, if it is none.

    For example: PCIe; 100 Gbit/s Ethernet (8 NICs per node).
    """
    link = machine.link(use.name)
    if link is None:
        return use.name
    kind = LINK_WORDS.get(link.kind, link.kind)
    if link.kind not in NETWORKS:
        return kind
    host = max(machine.nodes[link.src].host, machine.nodes[link.dst].host, 0)
    nics = sum(any(out.kind in NETWORKS for out in machine.outgoing[node.index]) for node in machine.nodes_of(host))
    return f"{link.nominal_Bps * 8e-9:.3g} Gbit/s {kind} ({counted(nics, 'NIC')} per node)"


def link_words(machine: Machine, use: LinkUse) -> str:
    """Return the kind of the link of *use*; inside a node also its name."""
    link = machine.link(use.name)
    kind = link_kind(machine, use)
    return kind if link is None or link.kind in NETWORKS else f"{kind} ({use.name})"


def limiting_words(result: TrainingRun) -> str:
    """Return what bounds a step, with its input's stage; of several devices, also the largest part lost besides."""
    if result.input is not None and result.bound == "input":
        return f"{BOUND_WORDS['input']}: {INPUT_WORDS[result.input.bound]}"
    return BOUND_WORDS[result.bound] if result.device_count == 1 else limit_words(result, " (its kernels)")


def limit_words(result: TrainingRun, of_kernels: str = "") -> str:
    """Return for a cell what bounds a step, and the largest part lost besides; *of_kernels*: its kernels' bound."""
    shares, lost = time_shares(result), waits_of(result)
    name = max(lost, key=lambda each: lost[each], default="")
    waits, computes = lost.get(name, 0.0), shares.get("computing", 0.0) / (result.step_time_s or 1.0)
    waited = result.bound if result.bound in ("input", "host") else _BOUNDS.get(name) if waits > computes else None
    words = BOUND_WORDS[waited or _bound_of_kernels(result)].partition(":")[0]
    if waited is not None:
        return f"{words}, {100 * lost.get(_LOST_BY[waited], 0.0):.0f} %"
    return f"{words}{of_kernels}, {100 * waits:.0f} % {name}" if waits >= MATTERS else words


def _bound_of_kernels(result: TrainingRun) -> str:
    """Return what bounds a step or, if that is a wait, what most of the time of its kernels is bound by."""
    kinds = result.step.kinds
    if result.bound not in _LOST_BY or not kinds:
        return result.bound
    times = {name: sum(getattr(kind, f"{name}_s") for kind in kinds) for name in ("compute", "memory", "latency")}
    return max(times, key=lambda name: round(times[name], 12))


def main_wait(result: TrainingRun) -> str:
    """Return what the device waits for longest, as :func:`waits_of` names it; empty if that hardly matters."""
    waits = waits_of(result)
    name = max(waits, key=lambda each: waits[each], default="")
    return name if waits.get(name, 0.0) >= MATTERS else ""


def waits_of(result: TrainingRun) -> dict[str, float]:
    """Return the shares of a step's time that its device waits: exposed communication, slowest rank, bubble, ..."""
    whole_s = result.step_time_s or 1.0
    return sums_by_key((LOST[name], s / whole_s) for name, s in time_shares(result).items() if name in LOST)


def trust_words(result: TrainingRun) -> str:
    """Return the errors of predictions for such steps, in words, and what most of the band's width is from."""
    trust, widest = step_trust(result), step_confidence(result).widest
    if trust is None:
        over = " over several devices" if result.device_count > 1 else ""
        known = f"no such step{over} has" if result.servers is None else f"too few such steps{over} have"
        return "; ".join(filter(None, (f"{known} been measured", widest)))
    what = f"{trust.rows} measured steps of {trust.family}s in {FORMAT_WORDS[trust.format]}"
    what += " on CPUs" if trust.processor == "CPU" else f" {_OVER[trust.divided]}" if trust.several else ""
    way = ", mostly too fast" if trust.bias < -trust.median / 2 else ""
    way = ", mostly too slow" if trust.bias > trust.median / 2 else way
    early = " (before 2019: only the fastest framework)" if trust.early_rows else ""
    known = f"half of {what} within {trust.median * 100:.0f} %, nine in ten within {trust.p90 * 100:.0f} %{way}{early}"
    return "; ".join(filter(None, (known, widest)))


# -- parts of the time -----------------------------------------------------------------


_AXES = {"tp": "tensor", "cp": "context", "cp heads": "context", "ep": "expert", "etp": "expert"}


def time_shares(result: TrainingRun) -> dict[str, float]:
    """Return the seconds of the parts of the step's time on the device that *result* describes, the largest first.

    A part is ``computing``, ``slowest`` (extra time of the slowest rank), ``update``, ``host`` (the device waits for
    the host), ``input`` (all devices wait for input), ``cpu_update`` and ``cpu_copies`` (the device waits for its host,
    which updates), ``fill`` (a pipeline stage waits for others), or the axis of exposed communication: ``tensor``,
    ``context``, ``expert``, ``data``; or ``tied``, if two pipeline stages hold a parameter and sum its gradients.

    They add up to the step's time.  The waiting time of a pipeline stage is split into the exchange of gradients or
    parameters, while no stage computes, and pipeline fill.
    """
    found: dict[str, float] = {}
    is_pipeline, whole_s = result.question.layout.pp > 1, result.step_time_s
    several = f"{result.step.device}/compute"  # if ranks have several roles
    compute = result.streams.get(several, result.streams.get("compute", StreamUse()))
    for stream, waited_s in compute.waits_s.items():
        name = "fill" if is_pipeline else "data"  # servers, a copy between devices, or one that has not sent yet
        if stream.endswith((HOST, AUTOGRAD)):
            name = "host"
        elif stream.endswith(STREAM):
            name = _AXES.get(stream.rpartition("/")[2].removesuffix(STREAM).strip(), "data")
        found[name] = found.get(name, 0.0) + waited_s
    if is_pipeline:
        waits_s = found.get("fill", 0.0) + found.get("data", 0.0)
        found["fill"] = min(waits_s, result.bubble_s)
        found["tied"] = min(waits_s - found["fill"], result.tied_s)
        found["data"] = waits_s - found["fill"] - found["tied"]
    if result.offload is not None:
        run, waits_s = result.offload, found.get("data", 0.0)  # the rest waits for the host's launches meanwhile
        found["cpu_update"] = min(run.exposed_update_s, waits_s)
        found["cpu_copies"] = min(run.exposed_copies_s, waits_s - found["cpu_update"])
        found["data"] = waits_s - found["cpu_update"] - found["cpu_copies"]
    by_kind = [] if is_pipeline else [kind.parts_s for kind in result.step.kinds]
    found["update"] = sum(parts_s.get("update", 0.0) for parts_s in by_kind or [result.step.parts_s])
    if result.input is not None:
        found["input"] = max(0.0, whole_s - result.input.step_s)
    found["slowest"] = max(0.0, whole_s - sum(found.values())) * (1.0 - 1.0 / result.pace)
    found["computing"] = whole_s - sum(found.values())
    ranked = sorted(found.items(), key=lambda share: (-round(share[1], 12), share[0]))
    return {name: seconds for name, seconds in ranked if seconds > 0}


LINK_WORDS, BOUND_WORDS, INPUT_WORDS, LOST = WORDS["links"], WORDS["bounds"], WORDS["input"], WORDS["lost"]
MODE_WORDS, FORMAT_WORDS, SHARE_WORDS = WORDS["modes"], WORDS["formats"], WORDS["shares"]


def kernel_words(name: str) -> str:
    """Return what readers call the class *name* of kernels."""
    return CLASSES[name].word if name in CLASSES else name


def precision_words(result: StepResult) -> str:
    """Return the precision of a step; for PyTorch's default, the formats that this means on the device."""
    if result.options.precision != "torch":
        return _MASTERS.get(result.options.precision, result.options.precision)
    return "fp32, convolutions in TF32 where faster" if result.flop_by_format.get("tf32") else "fp32"


def precisions_words(results: Sequence[TrainingRun]) -> str:
    """Return the precision of *results*; where they are unlike, also the machines of each."""
    on = lists_by_key((precision_words(result.step), result.machine) for result in results)
    return " and ".join(f"{each}{f' on {few([*dict.fromkeys(of)])}' * (len(on) > 1)}" for each, of in on.items())


def change_words(other: Alternative, result: TrainingRun) -> str:
    """Return the change; with another batch, also the samples that its time is for: of a device, or of all together."""
    question, step = result.question, result.step
    if other.samples == question.programs * question.batch * question.micro_batches:
        return other.change
    samples = result.samples if result.shares else step.samples
    return f"{other.change} (per {counted(samples, step.sample[:-1]) if samples != 1 else step.sample[:-1]})"


def device_words(result: TrainingRun) -> str:
    """Return the devices by part: ``8 x v100-sxm2-16gb``."""
    return " and ".join(f"{count} x {part}" if count > 1 else part for part, count in result.parts.items())


def divided_words(result: TrainingRun) -> str:
    """Return how the devices divide the step and exchange."""
    layout = result.question.layout
    if result.strategy == "nccl":
        return result.called
    if layout.divides_network or layout.zero in (1, 2) or layout.process != "each" or result.servers is not None:
        return result.way
    return f"FSDP, {result.strategy}{result.question.forced}" if layout.zero else f"DDP, {result.way}"
