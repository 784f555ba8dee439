"""A step with what would be faster, and what would make it fit into memory: :func:`advised`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from simulator.api.input import with_input_cures
from simulator.questions.layout import FSDP, REPLICAS
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.results.alternatives import Way, faster
from simulator.results.input import STEP
from simulator.results.training import TrainingResult
from simulator.step.changes import changes_of
from simulator.step.fitting import larger_device, what_would_fit
from simulator.step.memory import MemoryNeed, memory_need
from simulator.training.divide import divided
from simulator.training.memory import device_memory
from simulator.workload.network import Network

if TYPE_CHECKING:
    from simulator.api.session import Session
    from simulator.devices.predict import Device
    from simulator.questions.options import StepOptions

__all__ = ["advised"]

_MOST_DOUBLINGS = 8  # of the machines that shards are spread over


def advised(session: Session, question: StepQuestion) -> TrainingResult:
    """Return the result of *question* with ``alternatives`` that are faster and ``remedies`` that make it fit.

    Raises
    ------
    InputError, Unsuitable
        As :meth:`Session.step`.
    """
    result = with_input_cures(session, question, session.step(question))
    count = result.device_count
    device = session.device(question.where, result.step.device, question.threads)
    ways = _ways(session, question, device, several=count > 1)
    is_fed = result.input is None or result.input.bound == STEP  # else nothing but its input makes it faster
    alternatives = faster(result.step_time_s, question.programs * question.batch, ways) if is_fed else ()
    remedies: tuple[str, ...] = ()
    if not result.fits:
        needed_bytes = result.tightest.need.total_bytes
        remedies = (*_remedies(session, question, device, count), larger_device(needed_bytes))
    return replace(result, alternatives=alternatives, remedies=remedies)


def _ways(session: Session, question: StepQuestion, device: Device, *, several: bool) -> Iterator[Way]:
    def way(words: str, changed: StepQuestion) -> Way:
        def run() -> tuple[float, bool]:
            found = session.step(changed)
            return found.step_time_s, found.fits

        return Way(words, changed.programs * changed.batch, run)

    if question.layout.pp > 1:  # each would be a simulation of all stages
        return
    for words, sizes in _variants(session, question):
        yield way(words, replace(question, sizes=sizes))
    for change in changes_of(question.options, device):
        if change.time:
            yield way(change.words, replace(question, options=change.applied(question.options)))
    if several and question.layout.zero < 3 and not question.bucket_bytes:
        yield way("--overlap bucket:25MiB", replace(question, bucket_bytes=BUCKET_BYTES))
    yield way(f"--batch {2 * question.batch}", replace(question, batch=2 * question.batch))


def _variants(session: Session, question: StepQuestion) -> Iterator[tuple[str, tuple[tuple[str, int | str], ...]]]:
    """Yield other ways to compute the network, and its sizes then."""
    for words, setting in session.source(question).variants:
        yield words, (*(size for size in question.sizes if size[0] != setting[0]), setting)


def _remedies(session: Session, question: StepQuestion, device: Device, count: int) -> Iterator[str]:
    """Yield changes that would each make the step fit on each of *count* devices; of shards, also on more machines."""

    def builder(of: StepQuestion) -> Callable[[int], Network]:
        return lambda batch: session.network(replace(of, batch=batch))

    def need(of: StepQuestion, ranks: int, network: Network, options: StepOptions) -> MemoryNeed:
        if ranks == 1:
            return memory_need(network, options, device).times(of.programs)
        layout = of.layout.on(ranks)
        return device_memory(divided(network, layout), replace(of, options=options), device, layout)

    def fitting(of: StepQuestion) -> list[str]:
        variants = [(words, builder(replace(of, sizes=sizes))) for words, sizes in _variants(session, of)]
        return what_would_fit(builder(of), of.batch, of.options, device, variants, partial(need, of, count))

    found = fitting(question)
    if count == 1 or question.layout not in (REPLICAS, FSDP) or not question.options.trains:
        yield from found
        return
    sharded, words = replace(question, layout=FSDP), "--parallel fsdp"
    network = session.network(sharded)
    if question.layout == REPLICAS:
        if need(sharded, count, network, sharded.options).fits:
            yield words
        elif not found:
            found = [f"{words} {change}" for change in fitting(sharded)]
    yield from found
    again = replace(question.options, recompute=True)
    for machines in (2**k for k in range(1, _MOST_DOUBLINGS)):
        if not found and question.gpus in (None, tuple(range(count))):
            here = f"--nodes {machines * (question.where.nodes or 1)} {words}"
            found = [
                f"{here}{more}"
                for options, more in ((question.options, ""), (again, " --recompute"))
                if need(sharded, count * machines, network, options).fits
            ]
            yield from found[:1]
