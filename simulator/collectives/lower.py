"""Map a schedule to a machine, and time it by the alpha-beta model (docs/decisions/collectives.md)."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import ceil, floor, inf, sqrt

from simulator.collectives.communicator import Communicator, Request
from simulator.collectives.schedules import Round, Schedule, Send
from simulator.network.machine import Machine
from simulator.network.route import Route
from simulator.network.routing import Router
from simulator.plan.flow import FlowData, Region, block, joined_regions
from simulator.plan.plan import Flow, PlanBuilder, Work
from simulator.records import sums_by_key
from simulator.workload import Collective

BINDING = "messages keep the hosts' processors busy for longer than bytes keep the links"

_SHARED = "the hosts' processors"


def host_work(machine: Machine, pairs: Iterable[tuple[int, int]]) -> tuple[Work, ...]:
    """Return a message's processor work (round + k message seconds a host) by pair; empty if messages cost nothing."""
    costs = machine.messages
    if not costs.message and not costs.round:
        return ()
    crossing = ([machine.locate(node)[1] for node in pair] for pair in pairs)
    ends = sums_by_key((host, 1) for hosts in crossing if hosts[0] != hosts[1] for host in hosts)
    if not ends:
        return ()
    busy_s = {f"processor of host {host}": costs.round + count * costs.message for host, count in ends.items()}
    if costs.processors is not None:
        busy_s[_SHARED] = sum(busy_s.values()) / costs.processors
    alone_s = max(busy_s.values())
    return (Work(alone_s, tuple((name, seconds / alone_s) for name, seconds in busy_s.items())),)


def bind(machine: Machine, work: Sequence[Work], flows: Sequence[Flow]) -> bool:
    """Return whether the processors' *work* of a round takes longer than its *flows* take on their links."""
    if not work:
        return False
    loads = sums_by_key((r, share * flow.wire_bytes * flow.count) for flow in flows for r, share in flow.route.loads)
    wire_s = max((n_bytes / machine.capacity_Bps[resource] for resource, n_bytes in loads.items()), default=0.0)
    return max(part.duration_s for part in work) > wire_s


def lower(
    builder: PlanBuilder,
    request: Request,
    schedule: Schedule,
    *,
    size_bytes: float,
    nodes: Sequence[int] | None = None,
    stream: str = "main",
    after: Sequence[int] = (),
    route: Callable[[int, int], Route] | None = None,
    region: Callable[[int], Region] | None = None,
) -> int:
    """Add *schedule*, which cuts *size_bytes*, to *builder*, equal rounds as one; return the last task."""
    where = request.ranks if nodes is None else nodes
    find = route or request.router.route
    chunk_bytes = size_bytes / schedule.n_chunks
    last: list[int] = list(after)
    part = region or (lambda chunk: block(chunk, schedule.n_chunks))
    runs: list[list[Round]] = []  # of rounds with equal sends; one with work in memory ends a run
    for step in schedule.rounds:
        if runs and not runs[-1][-1].local and _shape(runs[-1][0]) == _shape(step):
            runs[-1].append(step)
        else:
            runs.append([step])
    for run in runs:
        head, works = run[0], []
        if head.sends:
            flows = tuple(Flow(find(where[s.src], where[s.dst]), s.width * chunk_bytes) for s in head.sends)
            work = host_work(request.machine, ((where[s.src], where[s.dst]) for s in head.sends))
            if bind(request.machine, work, flows) and BINDING not in builder.notes:
                builder.notes.append(BINDING)
            send = partial(builder.transfer, head.label or "round", flows, stream=stream, after=last, beside=work)
            carries = partial(carried_in, schedule, region=part, rounds=tuple(run))
            last = [send(repeat=sum(r.repeat for r in run), carries=carries)]
        for local in run[-1].local:
            if run[-1].repeat > 1:
                raise ValueError("a round with local work cannot repeat")
            seconds = request.memory_s(where[local.rank], local.chunks_touched * chunk_bytes)
            if seconds > 0:
                name = request.machine.nodes[where[local.rank]].name
                works.append(builder.work("reduce", name, seconds, stream=f"{stream}:{name}:reduce", after=last))
        last = works or last
    return last[0] if len(last) == 1 else builder.work("join", "host", 0.0, stream=f"{stream}:join", after=last)


def carried_in(
    schedule: Schedule, repetition: int, region: Callable[[int], Region], rounds: tuple[Round, ...] | None = None
) -> list[FlowData]:
    """Return the data of each send in one *repetition*, counted over *rounds*, by default all of *schedule*."""
    m = schedule.n_chunks
    for step in rounds or schedule.rounds:
        if repetition < step.repeat:
            break
        repetition -= step.repeat
    chunks = ((send, send.chunk(repetition, m)) for send in step.sends)
    return [
        FlowData(joined_regions(region((first + i) % m) for i in range(send.width)), send.reduce)
        for send, first in chunks
    ]


def _shape(step: Round) -> tuple[tuple[int, int, int], ...]:
    return tuple((s.src, s.dst, s.width) for s in step.sends)


# Smaller chunks give no measurable gain and make unfolded runs long.
_MIN_CHUNK_BYTES = 4096
_MAX_CHUNKS = 65_536


def best_chunk_count(size_bytes: float, n_fill: int, latency_s: float, s_per_byte: float) -> int:
    """Return the m that minimises (m + n_fill)(latency_s + size_bytes s_per_byte / m); chunks have 4 KiB or more."""
    most = max(1, min(_MAX_CHUNKS, int(size_bytes / _MIN_CHUNK_BYTES)))
    if n_fill <= 0 or most == 1:
        return 1
    if latency_s <= 0:
        return most

    def time_s(m: int) -> float:
        return (m + n_fill) * (latency_s + size_bytes * s_per_byte / m)

    ideal = min(float(most), max(1.0, sqrt(n_fill * size_bytes * s_per_byte / latency_s)))
    return min(floor(ideal), ceil(ideal), key=time_s)


def estimate_s(
    request: Request, schedule: Schedule, size_bytes: float, nodes: Sequence[int], most: float = inf
) -> float:
    """Return the approximate time of *schedule* over *nodes*, in s, without work in memory; above *most*, of a part."""
    chunk_bytes = size_bytes / schedule.n_chunks
    total_s = 0.0
    for step in schedule.rounds:
        latency_s, s_per_byte = _round_cost(request, step.sends, nodes)
        total_s += step.repeat * (latency_s + s_per_byte * chunk_bytes)
        if total_s > most:
            break
    return total_s


def overlapped_cost(
    request: Request, schedule: Schedule, nodes: Sequence[int], most: float = inf
) -> tuple[float, float]:
    """Return (latency in s, seconds per byte of a chunk) of all sends of *schedule* at once; above *most*, of some."""
    return _round_cost(request, (s for r in schedule.rounds for s in r.sends), nodes, most)


def _round_cost(
    request: Request, sends: Iterable[Send], nodes: Sequence[int], most: float = inf
) -> tuple[float, float]:
    loads: dict[int, float] = {}
    known, find, capacity = loads.get, request.router.route, request.machine.capacity_Bps
    latency_s = 0.0
    for send in sends:
        route, width = find(nodes[send.src], nodes[send.dst]), send.width
        if route.latency_s > latency_s:  # noqa: PLR1730  a call takes three times as long
            latency_s = route.latency_s
        for resource, share in route.loads:
            loads[resource] = load = known(resource, 0.0) + share * width
            if load > most * capacity[resource]:
                return latency_s, load / capacity[resource]
    return latency_s, max([load / capacity[r] for r, load in loads.items()], default=0.0)


# One message between two GPUs, launch included: a round number, not fitted.
ALPHA_S = 2e-6
_MAX_SEARCHED = 16  # the most GPUs of a node for which the best ring is searched


def alpha_beta_ring_s(group: Communicator, collective: Collective, size_bytes: float) -> float:
    """Return the seconds of one ring over *group* by the alpha-beta model, at the slowest data-sheet rate."""
    n = group.n_ranks
    bandwidth_Bps = group.once("alpha-beta ring", lambda: _ring_bandwidth(group))
    if collective == "all-reduce":
        return 2 * (n - 1) * (ALPHA_S + size_bytes / (n * bandwidth_Bps))
    if collective in ("all-gather", "reduce-scatter", "all-to-all"):
        return (n - 1) * (ALPHA_S + size_bytes / (n * bandwidth_Bps))
    return (1 if collective == "send-recv" else n - 1) * ALPHA_S + size_bytes / bandwidth_Bps


def _ring_bandwidth(group: Communicator) -> float:
    machine, router = group.machine, group.router
    hosts = {host: [group.ranks[rank] for rank in ranks] for host, ranks in group.by_host().items()}
    # Equal nodes with the same GPUs taking part are examined once.
    different = {key: hosts[host] for host, (_, _, key) in reversed(group.taking_part().items())}
    rates = [_widest(router, gpus, closed=len(hosts) == 1) for gpus in different.values() if len(gpus) > 1]
    if len(hosts) > 1:
        onward = [*list(hosts)[1:], *list(hosts)[:1]]
        unlike = {(machine.like(a), machine.like(b)): (a, b) for a, b in zip(hosts, onward, strict=True)}
        for a, b in unlike.values():
            rates.append(max(_nominal_rate(router, src, dst) for src in hosts[a] for dst in hosts[b]))
    return min(rates)


def _nominal_rate(router: Router, src: int, dst: int) -> float:
    return min(router.machine.links[link].nominal_Bps / share for link, share in router.route(src, dst).links)


def _widest(router: Router, gpus: Sequence[int], *, closed: bool) -> float:
    """Return the largest rate in B/s at which a ring (or, if not *closed*, a chain) joins all *gpus*."""
    n = len(gpus)
    rate = [[_nominal_rate(router, a, b) if a != b else 0.0 for b in gpus] for a in gpus]
    if n > _MAX_SEARCHED:
        return min(rate[i][(i + 1) % n] for i in range(n if closed else n - 1))
    levels = sorted({value for row in rate for value in row if value > 0}, reverse=True)
    for level in levels:
        near = [[j for j in range(n) if rate[i][j] >= level] for i in range(n)]
        if _spans(near, closed=closed):
            return level
    return levels[-1]


def _spans(near: list[list[int]], *, closed: bool) -> bool:
    """Return whether a path or cycle visits all nodes, in 2^n n steps (Held and Karp, 1962, section 2)."""
    n = len(near)
    into = [sum(1 << j for j in range(n) if i in near[j]) for i in range(n)]  # by node, the set of its predecessors
    ends = [0] * (1 << n)  # by the set of visited nodes: the possible last nodes
    for i in [0] if closed else range(n):
        ends[1 << i] = 1 << i
    for visited in range(1, 1 << n):
        if not ends[visited]:
            continue
        for i in range(n):
            if not visited >> i & 1 and ends[visited] & into[i]:
                ends[visited | 1 << i] |= 1 << i
    return bool(ends[-1] & (into[0] if closed else -1))
