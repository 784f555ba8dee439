"""How sure a step is (docs/decisions/results.md): :func:`step_confidence`, :func:`memory_band`, :func:`step_trust`."""

from collections.abc import Sequence
from math import exp
from typing import Literal

from simulator.bands import host_chain
from simulator.bands.composition import MEMORY_CLASSES, Composition, memory_spreads
from simulator.bands.composition import ClassShare as Share
from simulator.network.machine import Node
from simulator.plan.plan import Flow, Fragment, Part
from simulator.records import dataclass, own_data
from simulator.results.changed import is_changed
from simulator.results.confidence import OF_A_BOUND, Confidence, confidence_of, exchange_facts, main_format, steps_alike
from simulator.results.training_run import TrainingRun
from simulator.step.memory import MemoryNeed
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from simulator.training.worker import STREAM
from simulator.units import format_size
from simulator.workload.kernels import without_library
from simulator.workload.network import Family
from simulator.workload.precision import Precision

Processor = Literal["GPU", "CPU"]
Format = Literal["fp32", "tf32", "half", "fp8"]
_HOST_KNOWN = 0.75  # chosen: part of the variance of hosts that measuring this one removes; launches then err by half
_FORMATS: dict[Precision, Format] = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half", "fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class Trust:
    """Errors over ``rows`` measured steps: median and 90th percentile of their magnitude, and the signed mean.

    ``early_rows`` of them ran software from before 2019, of which only the fastest framework counts: others took
    several times as long for the same step.  ``several``: steps over several devices; ``divided``: devices that divide
    the network, not only the samples.
    """

    processor: Processor
    family: Family
    format: Format
    rows: int
    early_rows: int
    several: bool
    divided: bool
    median: float
    p90: float
    bias: float


def step_confidence(result: TrainingRun) -> Confidence:
    """Return the uncertainty of a step's time; ideal schedules, which cannot be measured, have no band."""
    if not result.counts_software and result.servers is None:
        return OF_A_BOUND
    return confidence_of(result.step_time_s, step_composition(result), result.question, result.shared)


def step_trust(result: TrainingRun) -> Trust | None:
    """Return the errors of predictions for such steps, or None if nobody measured them."""
    question = result.question
    if result.servers is not None or question.one_process or result.shares or question.programs > 1:
        return None
    sure = step_confidence(result)
    if sure.band is None and not sure.is_exact:
        return None
    main = main_format(result.step.flop_by_format)
    asked = {
        "processor": "CPU" if result.step.on_host else "GPU",
        "family": result.step.family,
        "format": None if main is None else _FORMATS.get(main),
        "several": result.device_count > 1,
        "divided": question.layout.divides_network,
    }
    entries = own_data("simulator.results", "trust.json")
    return next((Trust(**each) for each in entries if asked.items() <= each.items()), None)


def step_composition(result: TrainingRun) -> Composition:
    """Return the composition of a step: the whole, its kernels, exposed communication, and waits for the host."""
    step, question, time_s = result.step, result.question, result.step_time_s
    machine, is_other = result.timeline.machine, is_changed(question)
    strategy = question.exchanges_by(result.device_count)
    gpus = machine.gpus if question.gpus is None else [machine.gpus[gpu] for gpu in question.gpus]
    parts = []
    if time_s > 0.0:
        parts = [Share(each.chain, each.share / time_s, each.alone / time_s) for each in step.kernel_parts]
    if time_s > 0.0 and result.exposed_s > 0.0:
        between = _between_nodes(result, gpus)
        for where, of_exposed in (("node", 1.0 - between), ("nodes", between)):  # mostly of large messages
            if share := of_exposed * result.exposed_s / time_s:
                chain = f"collective large {where}", "collective large", "collective"
                parts.append(Share(chain, share, share))
    waits_s = step.waiting_s - result.exposed_s - result.bubble_s
    if time_s > 0.0 and waits_s > 0.0 and not step.on_host:
        share = waits_s / time_s
        parts.append(Share(host_chain("launch", "host"), share, share, _HOST_KNOWN if step.host_measured else 0.0))
    return steps_alike(
        step.family,
        main_format(step.flop_by_format),
        parts,
        divided=question.layout.divides_network,
        trains=question.options.mode == "train",
        place=step.part,
        generation=step.generation,
        network=step.network.name,
        ranks=result.device_count,
        calibrated=step.calibrated,
        kernels=tuple(sorted(set(map(without_library, {k for run in step.launched for k in run.issue.work.kinds})))),
        exchange=strategy and exchange_facts(machine, gpus, strategy, changed=is_other),
        unmeasured=_unmeasured(result),
        changed=is_other,
    )


def _between_nodes(result: TrainingRun, gpus: Sequence[int]) -> float:
    """Return the share of the exposed seconds in which groups of *gpus* exchange between nodes."""
    if len(result.timeline.machine.hosts_of(gpus)) < 2:
        return 0.0
    of_streams: dict[str, dict[Part, None]] = {}
    for task in result.timeline.plan.tasks:
        of_streams.setdefault(task.stream, {}).update(dict.fromkeys(task.parts))
    mine = f"{result.step.device}/compute"
    waits_s = result.streams[mine if mine in result.streams else "compute"].waits_s
    exposed_s = {stream: waited_s for stream, waited_s in waits_s.items() if stream.endswith(STREAM)}
    inside = {stream for stream, parts in of_streams.items() if not any(map(_is_between, parts))}
    within_s = sum(waited_s for stream, waited_s in exposed_s.items() if stream in inside)
    return 1.0 - within_s / sum(exposed_s.values()) if within_s else 1.0


def _is_between(part: Part) -> bool:
    if isinstance(part, Fragment):
        return any(_is_between(each) for task in part.plan.tasks for each in task.parts)
    return isinstance(part, Flow) and part.route.path_class == "net"


def _unmeasured(result: TrainingRun) -> str:
    """Return in words the aspect of a step of which no class of errors could be made; empty if there is none."""
    question, layout = result.question, result.question.layout
    if result.servers is not None:  # fewer than a class of errors needs, all synchronous and of one machine
        return "too few measured steps through parameter servers"
    aspects = {
        "together with its input": result.input is not None,
        "of one process for all GPUs": question.one_process,
        "over unlike devices": len(result.parts) > 1,
        "of boards held below their power": any(map(_is_held, result.timeline.machine.nodes)),
        "whose devices share the samples unevenly": result.shares,
        "updated by Muon": question.options.optimizer == "muon" and question.options.mode == "train",
        "with an optimiser on the host": question.offload != "none",
        "whose batch norms are of all ranks' samples": question.layout.sync_bn and result.device_count > 1,
        "of several programs that share their device": question.programs > 1,
        "whose ranks gather the tokens of experts": layout.gathers_tokens,
        "whose experts read rows by index": dict(question.sizes).get("expert_kernels") == "scatter",
        "whose sequences are divided by heads and in rings": 1 < layout.cp_a2a < layout.cp,
    }
    return next((f"no measured step {words}" for words, found in aspects.items() if found), "")


def _is_held(node: Node) -> bool:
    """Return whether *node* is a GPU that may draw less than boards of its part do."""
    part, usual = node.part, load_part(node.part_name)
    limits = [each.board_power for each in (part, usual) if isinstance(each, GpuPart) and each.board_power]
    return len(limits) == 2 and limits[0] < limits[1]


UNSURE = "may run out of memory: the upper end of its band exceeds the memory"


def memory_band(result: TrainingRun, total_bytes: float) -> tuple[float, float] | None:
    """Return the bytes between which *total_bytes*, a need of *result*, lie with a probability of 80 %.

    None where nobody measured it: other than in the training of transformers on GPUs, with parameter servers, for
    several programs on a device, with an optimiser on the host, where ranks gather the tokens of experts, or rings go
    between ranks that exchange heads, and for frameworks without measured memory.
    """
    step = result.step
    layout = result.question.layout
    other = result.question.programs > 1 or result.servers or result.offload or step.options.optimizer == "muon"
    if not _trains_on_gpus(result) or step.family != "transformer" or other:
        return None
    if layout.gathers_tokens or 1 < layout.cp_a2a < layout.cp:
        return None
    spread = memory_spreads().get(MEMORY_CLASSES.get(step.options.framework, ""))
    return None if spread is None else (total_bytes * exp(spread.low), total_bytes * exp(spread.high))


def may_overflow(result: TrainingRun, total_bytes: float) -> bool:
    """Return whether *total_bytes*, a need of a change of *result*, exceeds its memory at the high end of its band."""
    band = memory_band(result, total_bytes)
    return band is not None and total_bytes <= result.tightest.need.available_bytes < band[1]


def fits_by_band(result: TrainingRun, need: MemoryNeed) -> bool | None:
    """Return whether *need* fits even at the high end of its band; None without a band."""
    band = memory_band(result, need.total_bytes)
    return None if band is None else band[1] <= need.available_bytes


def all_fit_by_band(result: TrainingRun) -> bool | None:
    """Return whether the need of each device of *result* fits even at the high end of its band; None without a band."""
    found = [fits_by_band(result, device.need) for device in result.memory]
    return None if None in found else all(found)


def memory_band_words(result: TrainingRun, need: MemoryNeed) -> str:
    """Return the band of *need*, and whether it passes the memory that *need* fits; training on GPUs only."""
    band = memory_band(result, need.total_bytes)
    if band is None:
        return "80 % band not measured" if _trains_on_gpus(result) else ""
    low, high = (format_size(n_bytes, 3) for n_bytes in band)
    unit = high.rpartition(" ")[2]
    unsure = need.fits and not fits_by_band(result, need)
    return f"80 % band {low.removesuffix(' ' + unit)} to {high}" + (f"; {UNSURE}" if unsure else "")


def _trains_on_gpus(result: TrainingRun) -> bool:
    return result.step.options.mode == "train" and not result.step.on_host
