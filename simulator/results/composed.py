"""The error classes that collectives and steps are composed of, for their uncertainty (:mod:`simulator.bands`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from simulator.bands.classes import FORMATS, collective_chain, exchange_chain, step_chain
from simulator.bands.composition import Composition, Part
from simulator.bands.distance import Facts
from simulator.network.machine import Machine
from simulator.topology.parts import GpuPart
from simulator.topology.parts import Part as AnyPart
from simulator.workload.precision import Precision

if TYPE_CHECKING:  # exchanges alone need no device models
    from simulator.results.training import TrainingResult

__all__ = ["collective_composition", "device_facts", "generation_of", "main_format", "step_composition", "steps_alike"]


def main_format(flop_by_format: Mapping[Precision, int]) -> Precision | None:
    """Return the format of most FLOPs of matrix products, or None without products."""
    return max(flop_by_format.items(), key=lambda item: item[1], default=(None, 0))[0]


def generation_of(part: AnyPart) -> str:
    """Return the generation of a GPU, the first word of its architecture in lower case; ``cpu`` for every CPU."""
    if not isinstance(part, GpuPart):
        return "cpu"
    return part.architecture.split()[0].lower() if part.architecture else ""


def collective_composition(
    machine: Machine, ranks: Sequence[int], collective: str, size_bytes: float, strategy: str
) -> Composition:
    """Return the composition of a collective of *size_bytes* among the nodes *ranks*; only NCCL's were measured."""
    is_measured = strategy == "nccl"
    several = len(machine.hosts_of(ranks)) > 1
    facts = Facts(
        kind="collective",
        place=machine.name.rpartition(" x ")[2],
        generation=generation_of(machine.nodes[ranks[0]].part),
        what=collective,
        way="nodes" if several else "node",
        ranks=len(ranks),
        unmeasured="" if is_measured else f"no measured collective of strategy {strategy}",
    )
    chain = collective_chain(collective, size_bytes, several_nodes=several) if is_measured else ()
    return Composition(chain, (), facts)


def steps_alike(
    *,
    part: str,
    generation: str,
    network: str,
    family: str | None,
    form: Precision | None,
    gpus: int,
    divided: bool,
    calibrated: bool,
    unmeasured: str = "",
) -> Composition:
    """Return the composition of a step as a whole, without its parts; *form* is the format of most of its products."""
    processor = "CPU" if generation == "cpu" else "GPU"
    way = "divided" if divided else "several" if gpus > 1 else "one"
    shown = None if form is None else FORMATS.get(form, form)
    facts = Facts(
        kind="step",
        place=part,
        generation=generation,
        form=shown or "fp32",
        network=network,
        way=way,
        ranks=gpus,
        calibrated=calibrated,
        unmeasured=unmeasured,
    )
    return Composition(step_chain(processor, family, shown, way), (), facts)


def device_facts(part: str, generation: str, form: str, *, calibrated: bool) -> Facts:
    """Return the facts of an operator on a device."""
    return Facts(
        kind="operator", place=part, generation=generation, form=FORMATS.get(form, form), calibrated=calibrated
    )


def step_composition(result: TrainingResult) -> Composition:
    """Return the composition of a step: the whole, its kernels and its exposed communication."""
    step, question = result.step, result.question
    whole = steps_alike(
        part=step.part,
        generation=step.generation,
        network=step.network.name,
        family=step.family,
        form=main_format(step.flop_by_format),
        gpus=result.device_count,
        divided=question.layout.divides_network,
        calibrated=step.calibrated,
        unmeasured=_unmeasured(result),
    )
    time_s = result.step_time_s
    if time_s <= 0.0:
        return whole
    parts = [Part(each.chain, each.share / time_s, each.alone / time_s) for each in step.kernel_parts]
    if result.exposed_s > 0.0:
        hosts = result.timeline.machine.hosts_of(result.timeline.machine.gpus)
        share = result.exposed_s / time_s
        parts.append(Part(exchange_chain(several_nodes=len(hosts) > 1), share, share))
    return Composition(whole.chain, tuple(parts), whole.facts)


def _unmeasured(result: TrainingResult) -> str:
    """Return in words the aspect of a step that no published measurement covers; empty if there is none."""
    question = result.question
    for found, words in (
        (result.servers is not None, "through parameter servers"),
        (result.input is not None, "together with its input"),
        (question.one_process, "of one process for all GPUs"),
        (bool(result.shares) or len({device.part for device in result.memory}) > 1, "over unlike devices"),
        (question.programs > 1, "of several programs that share their device"),
    ):
        if found:
            return f"no measured step {words}"
    return ""
