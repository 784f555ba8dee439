"""Whether a step fits in memory, and which other ones are faster, without an account of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from simulator.api.context import Context
from simulator.collectives.communicator import Communicator, Unsuitable
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.options import SamplesOption
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.results.training_run import WORTH_SAYING, Alternative
from simulator.spelling import word_of
from simulator.step.changes import Change
from simulator.step.issue import launches_of
from simulator.step.memory import MemoryNeed
from simulator.training import divided
from simulator.training.memory import alone_memory, most_needed
from simulator.training.placement import Placement
from simulator.training.plan import contend
from simulator.training.roles import slowest_of
from simulator.workload.network import Network

_ROUNDED = 1 - 1e-9  # allows for rounding when the same seconds are added in another order


def faster(
    step_time_s: float,
    question: StepQuestion,
    ways: Iterable[tuple[str, Context, StepQuestion]],
    least_gain: float = WORTH_SAYING,
) -> tuple[Alternative, ...]:
    """Return the *ways* that are faster by *least_gain* than *question*, which takes *step_time_s*, the best first.

    A way is told in words, as a question to a context.  One that does not go with the step, or that the device lacks
    figures for, is left out; one that does not fit in memory is marked so.  Larger batches are compared at equal
    numbers of samples.
    """
    found: list[Alternative] = []
    own = question.programs * question.batch * question.micro_batches  # samples of a device in a step
    for words, context, asked in ways:
        batch = asked.programs * asked.batch
        share = batch * asked.micro_batches / own
        with suppress(InputError, Unsuitable):
            if least_step_s(context, asked) > step_time_s / least_gain * share:
                continue
            time_s = context.time_s(asked) / share
            if time_s * least_gain < step_time_s:
                fits = step_fits(context, asked)
                found.append(Alternative(words, time_s, fits, batch, batch * asked.micro_batches))
    return tuple(sorted(found, key=lambda other: round(other.step_time_s, 12)))


def with_size(question: StepQuestion, setting: tuple[str, int | str]) -> StepQuestion:
    """Return *question* with *setting*, a size of its network."""
    return replace(question, sizes=(*(size for size in question.sizes if size[0] != setting[0]), setting))


def with_change(change: Change, question: StepQuestion) -> StepQuestion:
    """Return *question* with *change* of its options; raises InputError where they do not go together."""
    return replace(question, options=change.applied(question.options))


def samples_words(samples: SamplesOption, question: StepQuestion) -> str:
    """Return the option *samples* with its value in *question*."""
    return f"{word_of(samples)} {question.micro_batches if samples == 'micro_batches' else question.batch}"


def step_fits(context: Context, question: StepQuestion) -> bool:
    """Return whether the step of *question* fits in each device's memory; raises as :meth:`Context.step`."""
    bare = needs(context, question, gaps=False)
    whole = bare if all(map(has_room, bare)) or not all(need.fits for need in bare) else needs(context, question)
    return all(need.fits for need in whole)


def has_room(need: MemoryNeed) -> bool:
    """Return whether the allocator's gaps, which *need* leaves out, would fit too, however many they are."""
    return need.total_bytes + need.allocated_bytes <= need.available_bytes


def needs(context: Context, question: StepQuestion, *, gaps: bool = True) -> list[MemoryNeed]:
    """Return what *question* needs on its unlike devices, *gaps* or not; raises as :meth:`Context.step`."""
    devices, count = _devices(context, question)
    if question.divided or (question.layout.pp > 1 and len(devices) > 1):  # who computes what must be found first
        return [device.need for device in context.step(question).memory]
    network, group = context.network(question), group_taking_part(context, question, count)
    return [need_on(device, count, network, question, group, gaps=gaps) for device in devices]


def group_taking_part(context: Context, question: StepQuestion, count: int) -> Communicator | None:
    """Return the communicator of the *count* GPUs of *question*; None for one device, or where CPUs help them."""
    group = context.group(question.where, question.gpus) if count > 1 else None
    return group if group is not None and group.n_ranks == count else None


def need_on(
    device: Device,
    n_ranks: int,
    network: Network,
    question: StepQuestion,
    group: Communicator | None = None,
    *,
    gaps: bool = True,
) -> MemoryNeed:
    """Return what a step of the undivided *network* needs on *device*, the one of *n_ranks* that holds most.

    Without *gaps*, what the allocator holds besides does not count; without their *group*, nor what communicators
    hold.  Raises InputError if the network cannot be divided.
    """
    if n_ranks == 1:
        return alone_memory(network, question, device, gaps=gaps).times(question.programs)
    layout = question.layout.on(n_ranks)
    placement = Placement(group, layout) if group is not None else None
    return most_needed(divided(network, layout), question, device, layout, placement, gaps=gaps)


def least_step_s(context: Context, question: StepQuestion) -> float:
    """Return a lower bound of the step time of *question*, in seconds; raises InputError where it cannot be divided.

    The slowest device runs the kernels of all micro-batches one after the other, each for at least its time alone, and
    its host launches them one after the other.  The bound is 0 for pipelines, unlike devices, and processes that share
    a device or feed several.
    """
    devices, count = _devices(context, question)
    shared = question.one_process or question.programs > 1 or question.divided
    if question.layout.pp > 1 or len(devices) > 1 or shared:
        return 0.0
    network, options = context.network(question), question.rank_options
    part = divided(network, question.layout.on(count)) if count > 1 else network
    issues = [issue for issue in launches_of(devices[0], part, options) if issue.part != "update"]
    once = [issue for issue in issues if not issue.adds]  # the first micro-batch accumulates nothing
    waits = contend(question) and not question.has_servers
    pace = slowest_of(count, devices[0].constants) if waits else 1.0
    host_s = 0.0 if options.cuda_graph else sum(issue.host_s for issue in once)
    return question.micro_batches * max(host_s, pace * sum(issue.device_s for issue in once)) * _ROUNDED


def _devices(context: Context, question: StepQuestion) -> tuple[list[Device], int]:
    """Return the unlike devices of *question*, and how many there are of all; raises InputError."""
    places = context.places(question.where, question.software)
    place = context.single(question)
    if place is not None:
        return [place.device], 1
    group = context.group(question.where, question.gpus)
    unlike = group.machine.unlike(group.ranks)
    return list(dict.fromkeys(places.place(node.index).device for node in unlike)), group.n_ranks
