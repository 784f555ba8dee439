"""Which GPUs of a machine do a thing fastest, of those that its symmetries leave to choose from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.api.session import Session
from simulator.collectives.request import Unsuitable
from simulator.errors import InputError
from simulator.network.symmetry import Symmetry
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import REPLICAS
from simulator.questions.step import StepQuestion
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["Choice", "fastest_gpus"]

_MOST_KINDS = ((16, 48), (64, 12), (10**9, 4))  # up to so many GPUs of a machine, so many kinds of sets of a size
_MOST_STEPS = 3  # simulated whole; which ones, their exchange alone says
Chosen = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest ``gpus``, of so many ``kinds`` of sets that were tried; ``is_whole``: these are all there are."""

    gpus: Chosen
    kinds: int
    is_whole: bool


def fastest_gpus(
    session: Session,
    question: CollectiveQuestion | StepQuestion,
    count: int,
    tried: Callable[[str], None] = lambda _: None,
) -> Choice:
    """Return which *count* GPUs of the machine of *question* answer it fastest; of equal ones those named first.

    One set of each kind is tried, of so many that the search ends; *tried* hears of each.  Of a step, the exchange of
    its gradients says which few are simulated whole.  Raises InputError where no set can do it.
    """
    alone = replace(question, gpus=None)
    exchange_s = _exchange_seconds(session, alone, tried)
    machine = session.machine(question.where)
    most = next(kinds for gpus, kinds in _MOST_KINDS if len(machine.gpus) <= gpus)
    kinds, is_whole = Symmetry(machine).kinds(count, most, exchange_s)
    seconds = {chosen: exchange_s(chosen) for chosen in kinds}
    count_of_kinds = len(kinds)
    if isinstance(question, StepQuestion) and len(kinds) > 1:
        kinds = sorted(kinds, key=lambda chosen: _rounded(seconds[chosen]))[:_MOST_STEPS]
        seconds = {chosen: _step_s(session, replace(question, gpus=chosen), tried) for chosen in kinds}
    best = min(seconds, key=lambda chosen: (_rounded(seconds[chosen]), chosen))
    if math.isinf(seconds[best]):
        raise InputError(f"no {count} GPUs of {machine.name} can do it by {question.strategy}")
    return Choice(best, count_of_kinds, is_whole)


def _exchange_seconds(
    session: Session, question: CollectiveQuestion | StepQuestion, tried: Callable[[str], None]
) -> Callable[[Chosen], float]:
    """Return what says how long the exchange takes on a set: of a step that of its gradients, after its arithmetic."""
    if isinstance(question, StepQuestion):
        network = session.network(question)
        asked = CollectiveQuestion(
            where=question.where,
            size_bytes=float(network.trained_count * ELEMENT_BYTES["fp32"]),
            strategy=question.strategy,
            servers=question.servers,
            software=question.software,
        )
    else:
        asked = question

    def seconds(chosen: Chosen) -> float:
        tried(",".join(map(str, chosen)))
        part = replace(asked, gpus=chosen, root=min(asked.root, len(chosen) - 1))
        if asked.group_size is not None and len(chosen) % asked.group_size:
            part = replace(part, group_size=None)
        if any(max(pair) >= len(chosen) for pair in asked.pairs):
            part = replace(part, pairs=())
        try:
            exchange_s = session.collective(part).sync_time_s if len(chosen) > 1 else 0.0
        except Unsuitable:
            return math.inf
        return exchange_s + (_alone_s(session, question, chosen) if isinstance(question, StepQuestion) else 0.0)

    return seconds


def _alone_s(session: Session, question: StepQuestion, chosen: Chosen) -> float:
    """Return what the step takes on the slowest of *chosen* by itself, where the machine's GPUs differ."""
    machine = session.machine(question.where)
    of_part = {machine.nodes[node].part_name: gpu for gpu, node in reversed(list(enumerate(machine.gpus)))}
    if len(of_part) == 1:
        return 0.0
    there = {machine.nodes[machine.gpus[gpu]].part_name for gpu in chosen}
    alone = replace(question, layout=REPLICAS, input=None, checkpoints=None, divided=False, helpers=())
    return max(session.step(replace(alone, gpus=(of_part[part],))).step_time_s for part in there)


def _step_s(session: Session, question: StepQuestion, tried: Callable[[str], None]) -> float:
    tried(",".join(map(str, question.gpus or ())))
    try:
        return session.step(question).step_time_s
    except Unsuitable:
        return math.inf


def _rounded(seconds: float) -> float:
    """Return *seconds* so that rounding alone does not put one set before another."""
    return float(f"{seconds:.6e}")
