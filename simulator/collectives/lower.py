"""Map a schedule to a machine: ranks become nodes, and sends become flows along routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from simulator.collectives.host_messages import BINDING, bind, host_work
from simulator.collectives.request import Request
from simulator.collectives.schedule import Round, Schedule
from simulator.network.route import Route
from simulator.plan.carried import Carried, Carries, Region, block, joined
from simulator.plan.plan import Flow, PlanBuilder
from simulator.topology.parts import CpuPart, GpuPart


def lower(
    builder: PlanBuilder,
    request: Request,
    schedule: Schedule,
    *,
    size_bytes: float,
    nodes: Sequence[int] | None = None,
    stream: str = "main",
    after: Sequence[int] = (),
    count: int = 1,
    route: Callable[[int, int], Route] | None = None,
    region: Callable[[int], Region] | None = None,
) -> int:
    """Add the tasks of *schedule* to *builder*; return the number of the last task.

    *size_bytes*: size of the buffer that the schedule cuts into chunks.
    *nodes*: the node of each rank and helper of the schedule; by default the request's ranks.
    *count*: number of equal copies of each flow that run in parallel, each with *size_bytes*.
    *route*: the route between two nodes; by default the one given by the machine's transport rules.
    *region*: the part of the request's buffer that a chunk holds; by default equal parts of the whole, in order.

    Consecutive rounds that move equally many bytes along the same routes become one task.  Raises ValueError for a
    repeated round with local work.
    """
    where = request.ranks if nodes is None else nodes
    find = route or request.router.route
    chunk_bytes = size_bytes / schedule.n_chunks
    last: list[int] = list(after)
    pending: list[Round] = []

    def flush() -> None:
        nonlocal last, pending
        if not pending:
            return
        head = pending[0]
        flows = tuple(Flow(find(where[s.src], where[s.dst]), s.width * chunk_bytes, count) for s in head.sends)
        label = head.label or "round"
        repeat = sum(r.repeat for r in pending)
        carries = _carries(schedule, tuple(pending), region) if count == 1 else None
        work = host_work(request.machine, ((where[s.src], where[s.dst]) for s in head.sends for _ in range(count)))
        if bind(request.machine, work, flows) and BINDING not in builder.notes:
            builder.notes.append(BINDING)
        last = [builder.transfer(label, flows, stream=stream, after=last, repeat=repeat, carries=carries, beside=work)]
        pending = []

    for step in schedule.rounds:
        if pending and (pending[-1].local or _shape(pending[0]) != _shape(step)):
            flush()
        if step.sends:
            pending.append(step)
        if step.local:
            if step.repeat > 1:
                raise ValueError("a round with local work cannot repeat")
            flush()
            works = []
            for local in step.local:
                seconds = memory_s(request, where[local.rank], local.chunks_touched * chunk_bytes * count)
                if seconds > 0:
                    name = request.machine.nodes[where[local.rank]].name
                    works.append(builder.work("reduce", name, seconds, stream=f"{stream}:{name}:reduce", after=last))
            last = works or last
    flush()
    if len(last) == 1:
        return last[0]
    return builder.work("join", "host", 0.0, stream=f"{stream}:join", after=last)


def carried_in(
    schedule: Schedule, repetition: int, region: Callable[[int], Region], rounds: tuple[Round, ...] | None = None
) -> Iterator[Carried]:
    """Yield the data carried by each send in one *repetition* of consecutive *rounds* of *schedule*.

    *repetition* counts over all *rounds* (by default all rounds of the schedule).
    """
    m = schedule.n_chunks
    for step in rounds or schedule.rounds:
        if repetition < step.repeat:
            break
        repetition -= step.repeat
    for send in step.sends:
        first = send.chunk(repetition, m)
        yield Carried(joined(region((first + i) % m) for i in range(send.width)), send.reduce)


def _carries(schedule: Schedule, rounds: tuple[Round, ...], region: Callable[[int], Region] | None) -> Carries:
    """Return a function from the repetition of *rounds* to the data carried, computed on demand."""
    part = region or (lambda chunk: block(chunk, schedule.n_chunks))
    return lambda repetition: list(carried_in(schedule, repetition, part, rounds))


def _shape(step: Round) -> tuple[tuple[int, int, int], ...]:
    return tuple((s.src, s.dst, s.width) for s in step.sends)


def memory_s(request: Request, node: int, n_bytes: float) -> float:
    """Return the time in s in which *node* reads and writes *n_bytes* of its memory; 0 if its bandwidth is unknown."""
    part = request.machine.nodes[node].part
    bandwidth = part.memory_bandwidth if isinstance(part, GpuPart | CpuPart) else None
    return n_bytes / bandwidth if bandwidth else 0.0
