"""A case: the options that ask for it, the topology that predicts it, its outcome, and the order of strategies."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import combinations, product
from string import Template
from typing import Any

from simulator.api import Session
from simulator.api.context import is_strategy, strategy_names
from simulator.api.exchanges import exchange_of
from simulator.errors import InputError, nearest, one_line
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, field, lists_by_key
from simulator.topology.load import topology_from_text
from simulator.units import parse_quantity
from simulator.workload import Collective
from validate.machine.cluster.network import LinkShape
from validate.machine.measure.duration import duration_s
from validate.machine.measure.timing import Interval
from validate.tables.statistics import Errors, relative_error, summarise

# A frame carries 1500 B: 20 of IP, 20 of TCP, 12 of TCP timestamps and 1448 of payload.  tc counts each frame with its
# 14 B header, also within a longer packet (Linux, net/core/dev.c, qdisc_pkt_len_init).  The 24 B of preamble, checksum
# and gap that a real wire adds do not exist here.
EFFICIENCY = 1448 / (1500 + 14)


@dataclass(frozen=True, slots=True)
class MessageCosts:
    """Seconds of a message and of a round on ``processors`` all hosts share; measured: torch 2.13, gloo, 2 cores."""

    message_s: float = 35e-6
    round_s: float = 100e-6
    processors: int | None = None  # None: each host has its own


def machine_name(shape: LinkShape) -> str:
    """Return the network's name in tables: ``netns-100mbit``, or ``netns-100mbit-1000us`` with a delay."""
    name = f"netns-{shape.rate_Bps * 8 / 1e6:g}mbit"
    return f"{name}-{shape.delay_s * 1e6:g}us" if shape.delay_s else name


def topology_text(
    shape: LinkShape, n_nodes: int, payload_Bps: float | None = None, costs: MessageCosts | None = None
) -> str:
    """Return the topology of *n_nodes* hosts as YAML; the rates and *costs* that were not measured are usual ones."""
    by = "a virtual machine with two cores" if costs is None else "rounds of short messages on this machine"
    costs = costs or MessageCosts()
    efficiency = EFFICIENCY if payload_Bps is None else min(1.0, payload_Bps / shape.rate_Bps)
    source = "TCP with an MTU of 1500: 1448 B of payload in the 1514 B that tc counts for a frame"
    if payload_Bps is not None:
        source = "a plain TCP stream on this machine (validate cluster --calibrate)"
    said = {"name": machine_name(shape), "nodes": str(n_nodes), "source": source, "by": by}
    said |= {"megabits": f"{shape.rate_Bps * 8 / 1e6:g}", "bits": f"{shape.rate_Bps * 8:.0f}"}
    said |= {"efficiency": f"{efficiency:.6g}", "latency": f"{shape.delay_s / 2 * 1e6:g}"}
    said |= {"message": f"{costs.message_s * 1e6:.4g}", "round": f"{costs.round_s * 1e6:.4g}"}
    said["processors"] = "" if costs.processors is None else f"    processors: {costs.processors}\n"
    return Template(files(__package__).joinpath("topology.template.yaml").read_text("utf-8")).substitute(said)


_SERVERS = re.compile(r"parameter-server-([1-9]\d{0,2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterStrategy:
    """A strategy of ``--strategies``, run ``by_torch`` or send by send; ``predictor`` is its name in ``simulate``."""

    name: str
    collective: Collective
    predictor: str
    by_torch: bool = False
    least_nodes: int = 2


_BY_TORCH = {
    "gloo": ClusterStrategy("gloo", "all-reduce", "gloo", by_torch=True),
    "broadcast": ClusterStrategy("broadcast", "broadcast", "gloo", by_torch=True),
}


def find_cluster_strategy(name: str) -> ClusterStrategy:
    """Return a strategy of torch's or any schedule of ``simulate --strategy``; raises InputError with the nearest."""
    word = name.strip().lower()
    if word in _BY_TORCH:
        return _BY_TORCH[word]
    if is_strategy(word) and word != "nccl":
        servers = _SERVERS.fullmatch(word)
        return ClusterStrategy(word, "all-reduce", word, least_nodes=max(2, int(servers[1])) if servers else 2)
    names = [*(known for known in strategy_names() if known != "nccl"), "parameter-server-2", *_BY_TORCH]
    raise InputError(f"--strategies: '{one_line(name, 40)}' is not measured; {nearest(word, names)}")


_MOST_NODES = 32
_RATES = 125e3, 12.5e9, "1 Mbit/s to 100 Gbit/s"
_SIZES = 4, 1e9, "4 B to 1 GB"
_MOST_CASES = 2000
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterCase:
    """One combination of link, host count, size and strategy to measure and predict; holds no results."""

    shape: LinkShape
    n_nodes: int
    size_bytes: int
    strategy: ClusterStrategy


def make_cases(nodes: str, rates: Sequence[str], sizes: str, strategies: str, delay: str | None) -> list[ClusterCase]:
    """Return the cases by rate, nodes, size (whole fp32 elements) and strategy, for as many nodes as there are."""
    counts: list[int] = []
    for word in _words("--nodes", nodes):
        match = _RANGE.fullmatch(word)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 2 <= low <= high <= _MOST_NODES:
            needed = f"--nodes: numbers from 2 to {_MOST_NODES} such as 4, 2,4 or 2-6 are needed"
            raise InputError(f"{needed}; got '{one_line(word, 40)}'")
        counts.extend(range(low, high + 1))
    named = [find_cluster_strategy(word) for word in _words("--strategies", strategies)]
    delay_s = _within("--delay", delay, "time", 0.0, math.inf, "") if delay is not None else 0.0
    words = [word for rate in rates for word in _words("--rate", rate)]
    shapes = [LinkShape(_within("--rate", word, "bandwidth", *_RATES), delay_s) for word in words]
    lengths = [int(_within("--sizes", word, "size", *_SIZES)) // 4 * 4 for word in _words("--sizes", sizes)]
    every = product(dict.fromkeys(shapes), dict.fromkeys(counts), dict.fromkeys(lengths), dict.fromkeys(named))
    cases = [ClusterCase(*each) for each in every if each[-1].least_nodes <= each[1]]
    if not cases:
        raise InputError("--strategies: more servers than nodes; nothing is left to measure")
    if len(cases) > _MOST_CASES:
        raise InputError(f"{len(cases)} cases are too many (up to {_MOST_CASES}); name fewer nodes, rates or sizes")
    return cases


def read_duration(option: str, text: str) -> float:
    """Return a duration above 0, in s, in ``validate run``'s or any unit of time; raises InputError with *option*."""
    try:
        return duration_s(text)
    except ValueError as error:
        try:
            return parse_quantity(text, "time", positive=True)
        except ValueError:
            raise InputError(f"{option}: {one_line(error, 120)}") from None


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option}: names or numbers with commas between are needed; got '{one_line(text, 60)}'")
    return words


def _within(option: str, text: str, dimension: str, least: float, most: float, limits: str) -> float:
    try:  # a negative size is reported as out of range, not as a number without a unit
        value = -1.0 if dimension == "size" and text.startswith("-") else parse_quantity(text, dimension)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
    if not least <= value <= most:
        raise InputError(f"{option}: {one_line(text, 40)} is outside {limits}")
    return value


_LEVEL = 0.05  # strategies whose predicted times differ by less count as equal: no order is claimed

PayloadRates = Mapping[LinkShape, float]  # in B/s
CostsByLink = Mapping[LinkShape, MessageCosts]


class Predictor:
    """Predicts the times of cases; measured *payload_Bps* and *costs* (``--calibrate``) replace usual ones."""

    def __init__(self, payload_Bps: PayloadRates | None = None, costs: CostsByLink | None = None) -> None:
        self._payload_Bps, self._costs = payload_Bps or {}, costs or {}
        self._session = Session()
        self._known: set[Where] = set()

    def predict_s(self, case: ClusterCase) -> float:
        """Return the simulated time of *case*, in seconds; raises InputError where its strategy does not fit."""
        return self._session.time_s(self._question(case))

    def exchange(self, case: ClusterCase) -> dict[str, Any] | None:
        """Return what the hosts send and add, as plain data; None where torch's own collective is measured."""
        return None if case.strategy.by_torch else exchange_of(self._session, self._question(case))

    def _question(self, case: ClusterCase) -> CollectiveQuestion:
        where = Where(machine_name(case.shape), nodes=case.n_nodes)
        if where not in self._known:
            measured = self._payload_Bps.get(case.shape), self._costs.get(case.shape)
            self._session.know(where, topology_from_text(topology_text(case.shape, case.n_nodes, *measured)))
            self._known.add(where)
        collective, strategy = case.strategy.collective, case.strategy.predictor
        return CollectiveQuestion(where=where, size_bytes=case.size_bytes, collective=collective, strategy=strategy)


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """One case: the measured median with its interval, and the prediction."""

    case: ClusterCase
    measured: Interval
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error, (predicted - measured) / measured."""
        return relative_error(self.predicted_s, self.measured.median)


@dataclass(frozen=True, slots=True)
class StrategyOrder:
    """The strategies of an all-reduce, fastest first, measured and predicted; ``wrong`` pairs are over 5 % apart."""

    case: ClusterCase
    measured: tuple[str, ...]
    predicted: tuple[str, ...]
    wrong: tuple[tuple[str, str], ...]


LEAST_REPEATS = 3


@dataclass(slots=True)
class ClusterResults:
    """Results so far, and the software versions that produced them; ``probes`` are payload rates in B/s."""

    times: dict[ClusterCase, Interval] = field(default_factory=dict)
    probes: dict[LinkShape, float] = field(default_factory=dict)
    costs: dict[LinkShape, MessageCosts] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def by(outcomes: Sequence[CaseOutcome], key: Callable[[CaseOutcome], str]) -> dict[str, Errors]:
    """Return the error statistics of *outcomes* grouped by *key*, in order of first appearance."""
    groups = lists_by_key((key(outcome), outcome.error) for outcome in outcomes)
    return {name: summarise(errors) for name, errors in groups.items()}


def orders(outcomes: Sequence[CaseOutcome]) -> list[StrategyOrder]:
    """Return the order of strategies for each combination of link, node count and size with two or more all-reduces."""
    reduced = [(o.case, o) for o in outcomes if o.case.strategy.collective == "all-reduce"]
    groups = lists_by_key(((case.shape, case.n_nodes, case.size_bytes), outcome) for case, outcome in reduced)
    found = []
    for group in (group for group in groups.values() if len(group) > 1):
        predicted = sorted(group, key=lambda o: o.predicted_s)
        wrong = [
            (a.case.strategy.name, b.case.strategy.name)
            for a, b in combinations(predicted, 2)
            if b.predicted_s > a.predicted_s * (1 + _LEVEL) and b.measured.median < a.measured.median
        ]
        both = sorted(group, key=lambda o: o.measured.median), predicted
        measured, said = (tuple(o.case.strategy.name for o in each) for each in both)
        found.append(StrategyOrder(group[0].case, measured, said, tuple(wrong)))
    return found
