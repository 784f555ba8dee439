"""A Chakra trace as a plan: rank *r* is the machine's GPU *r* (docs/decisions/host.md)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from simulator.errors import Fault, InputError, counted, one_line
from simulator.plan.plan import Fragment, Part, Plan, PlanBuilder
from simulator.programs.chakra import MOST_NODES, ChakraNode, ChakraTrace
from simulator.programs.costs import Bound, ProgramLabel
from simulator.records import dataclass
from simulator.workload import Collective

Member = tuple[int, ChakraNode]  # a node and its rank
_Key = tuple[object, ...]
_Keys = Sequence[Mapping[int, _Key]] | Mapping[int, Mapping[int, _Key]]  # by rank and node
_GIVEN: Bound = "given"


@dataclass(frozen=True, slots=True)
class ChakraCosts:
    """What the nodes of a trace cost on a machine, whose places of ranks are ``gpus`` and ``hosts``."""

    gpus: Sequence[str]
    hosts: Sequence[str]
    exchange: Callable[[tuple[int, ...], Collective, float], Fragment]  # by nccl-tests' size
    transfer: Callable[[int, int, float], Fragment]  # from a rank to another
    copy: Callable[[int, bool, float], Sequence[tuple[Part, ...]]]  # parts in turn, to (True) or from its GPU
    computing: Callable[[int, float, float], tuple[float, Bound]]  # seconds, with their limiter


def plan_trace(trace: ChakraTrace, costs: ChakraCosts) -> Plan:
    """Return the plan of *trace*; raises InputError if ranks disagree or wait for each other."""
    if (count := sum(map(len, trace.ranks))) > MOST_NODES:
        raise InputError(f"{trace.name}: has {count:,} nodes; up to {MOST_NODES:,} are simulated")
    doings, keys = _doings(trace)
    _check(trace, doings)
    writer = _Writer(trace, costs)
    for key in _in_order(trace.name, doings, keys):
        writer.add(doings[key])
    return writer.builder.build()


def _doings(trace: ChakraTrace) -> tuple[dict[_Key, list[Member]], list[dict[int, _Key]]]:
    """Return what is done, each with the nodes of all ranks that do it together, and its key by rank and node."""
    doings: dict[_Key, list[Member]] = defaultdict(list)
    keys: list[dict[int, _Key]] = []
    for rank, nodes in enumerate(trace.ranks):
        alone: dict[_Key, list[Member]] = {(number,): [(rank, node)] for number, node in nodes.items()}
        numbers = {number: (number,) for number in nodes}
        own: dict[int, _Key] = {}
        met = Counter[_Key]()
        for (number,) in _in_order(trace.name, alone, {rank: numbers}):
            node = nodes[number]  # type: ignore[index]  # the keys are those of alone
            key: _Key = rank, node.id
            if node.kind in ("exchange", "send", "receive"):
                ends = (rank, node.peer) if node.kind == "send" else (node.peer, rank)
                joint = ("exchange", node.group) if node.kind == "exchange" else ("transfer", *ends, node.tag)
                met[node.kind, *joint] += 1
                key = *joint, met[node.kind, *joint]
            own[node.id] = key
            doings[key].append((rank, node))
        keys.append(own)
    return dict(doings), keys


def _check(trace: ChakraTrace, doings: Mapping[_Key, Sequence[Member]]) -> None:
    """Raise InputError where ranks do not do the same together, with all such places."""
    faults: list[Fault] = []
    told = "{0.op} of {0.size_bytes:,.0f} bytes".format
    for key, ((rank, node), *others) in doings.items():
        said: list[str] = []
        if key[0] == "exchange":
            there = {rank, *(other for other, _ in others)}
            absent = next((each for each in trace.groups[node.group] if each not in there), None)
            if absent is not None:
                said.append(f": rank {absent} of group {one_line(node.group, 40)!r} has no exchange number {key[-1]}")
            said += [
                f" is {told(node)}; node {theirs.id} of rank {other} is {told(theirs)}"
                for other, theirs in others
                if (theirs.op, theirs.size_bytes) != (node.op, node.size_bytes)
            ]
        elif key[0] == "transfer" and sorted([node.kind, *(each.kind for _, each in others)]) != ["receive", "send"]:
            lacks = "receive" if node.kind == "send" else "send"
            said.append(f": rank {node.peer} has no {lacks} that matches, with tag {node.tag}")
        faults += [Fault(f"{trace.name}: node {node.id} of rank {rank}{each}") for each in said]
    if faults:
        raise InputError(faults)


def _in_order(name: str, doings: Mapping[_Key, Sequence[Member]], keys: _Keys) -> Iterator[_Key]:
    """Yield the keys of *doings* so that each comes after those that it waits for, and else by the nodes' numbers."""
    after = {key: {keys[rank][n] for rank, node in members for n in node.after} for key, members in doings.items()}
    for key in doings:  # exchanges of a group, and transfers of a pair and tag, run in order
        if key[0] in ("exchange", "transfer") and (before := (*key[:-1], key[-1] - 1)) in doings:  # type: ignore[operator]
            after[key].add(before)
    left = {min((node.id, rank) for rank, node in members): key for key, members in doings.items()}
    place = {key: first for first, key in left.items()}
    sorter, ready = TopologicalSorter(after), list[tuple[int, int]]()
    with suppress(CycleError):  # it still gives out what waits for no cycle
        sorter.prepare()
    while sorter.is_active():
        for key in sorter.get_ready():
            heappush(ready, place[key])
        key = left.pop(heappop(ready))
        yield key
        sorter.done(key)
    if left:
        (number, rank), waiting = min(left), counted(len(left), "node")
        raise InputError(f"{name}: {waiting} wait for each other, node {number} of rank {rank} among them")


class _Writer:
    """Adds what ranks do to a plan, in an order in which all that it waits for is there."""

    def __init__(self, trace: ChakraTrace, costs: ChakraCosts) -> None:
        self.builder = PlanBuilder()
        self._trace = trace
        self._costs = costs
        self._ends: dict[tuple[int, int], tuple[int, ...]] = {}  # activities, by rank and node

    def add(self, members: Sequence[Member]) -> None:
        """Add what *members* do together."""
        (rank, node), *_ = members
        after = sorted({end for rank, each in members for other in each.after for end in self._ends[rank, other]})
        ends = tuple(after) if node.kind == "nothing" else (self._added(rank, node, members, after),)
        for each, of in members:
            self._ends[each, of.id] = ends

    def _added(self, rank: int, node: ChakraNode, members: Sequence[Member], after: Sequence[int]) -> int:
        costs, builder = self._costs, self.builder
        gpu, label = costs.gpus[rank], node.name or node.kind
        if node.kind == "host":
            stream, about = f"host {rank}" + (f" {node.stream}" if node.stream else ""), ProgramLabel("issue")
            return builder.work(label, costs.hosts[rank], node.duration_s, stream=stream, after=after, about=about)
        if node.kind == "compute":
            seconds, bound = node.duration_s, _GIVEN
            if not seconds and (node.flop or node.size_bytes):
                seconds, bound = costs.computing(rank, node.flop, node.size_bytes)
            stream = f"stream {node.stream}" if node.stream else "compute"
            about = ProgramLabel("kernel", bound)
            return builder.work(label, gpu, seconds, stream=f"{gpu}/{stream}", after=after, about=about)
        about = ProgramLabel("copy", bytes=node.size_bytes)
        if node.kind in ("load", "store"):
            stream = f"{gpu}/copies {'in' if node.kind == 'load' else 'out'}"
            number = -1
            for parts in costs.copy(rank, node.kind == "load", node.size_bytes):
                number = builder.add(label, parts, stream=stream, after=after, place=gpu, about=about)
                after = [number]
            return number
        if node.kind == "exchange":
            ranks = self._trace.groups[node.group]
            size = node.size_bytes * (len(ranks) if node.op == "all-gather" else 1)
            fragment, stream = costs.exchange(ranks, node.op, size), f"exchanges {node.group}".rstrip()
        else:
            (src, sent), (dst, received) = sorted(members, key=lambda each: each[1].kind == "receive")
            size = max(sent.size_bytes, received.size_bytes)
            fragment, stream = costs.transfer(src, dst, size), f"sends {src} to {dst}"
        return builder.add(label, (fragment,), stream=stream, after=after, place=gpu, about=about)
