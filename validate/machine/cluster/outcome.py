"""Cases with their measured and predicted times, their errors, and whether the order of strategies is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from simulator.api import Session
from simulator.api.exchanges import exchange_of
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from simulator.records import dataclass
from simulator.topology.load import topology_from_text
from validate.machine.cluster.cases import ClusterCase
from validate.machine.cluster.commands import LinkShape
from validate.machine.cluster.topology import MessageCosts, machine_name, topology_text
from validate.machine.measure.timing import Interval
from validate.tables.statistics import Errors, relative_error, summarise

_LEVEL = 0.05  # strategies whose predicted times differ by less count as equal: no order is claimed


class Predictor:
    """Predicts the times of cases from their topologies.

    *payload_Bps* holds the measured payload rate of each link (``--calibrate``), *costs* its measured message costs.
    Links without an entry use the defaults.
    """

    def __init__(
        self,
        payload_Bps: Mapping[LinkShape, float] | None = None,
        costs: Mapping[LinkShape, MessageCosts] | None = None,
    ) -> None:
        self._payload_Bps = dict(payload_Bps or {})
        self._costs = dict(costs or {})
        self._session = Session()
        self._known: set[Where] = set()

    def predict_s(self, case: ClusterCase) -> float:
        """Return the simulated time of *case*, in seconds; raises InputError where its strategy does not fit."""
        return self._session.time_s(self._question(case))

    def exchange(self, case: ClusterCase) -> dict[str, Any] | None:
        """Return what the hosts send and add, as plain data; None where torch's own collective is measured."""
        return None if case.strategy.by_torch else exchange_of(self._session, self._question(case)).data()

    def _question(self, case: ClusterCase) -> CollectiveQuestion:
        where = Where(machine_name(case.shape), nodes=case.n_nodes)
        if where not in self._known:
            text = topology_text(
                *(case.shape, case.n_nodes, self._payload_Bps.get(case.shape), self._costs.get(case.shape))
            )
            self._session.know(where, topology_from_text(text))
            self._known.add(where)
        strategy = case.strategy
        return CollectiveQuestion(
            where=where, size_bytes=case.size_bytes, collective=strategy.collective, strategy=strategy.predictor
        )


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
    """The strategies of one all-reduce, fastest first, as measured and as predicted.

    ``wrong`` lists pairs (predicted faster, predicted slower) that were measured the other way round.  Pairs predicted
    within 5 % of each other count as equal and are never wrong.
    """

    case: ClusterCase
    measured: tuple[str, ...]
    predicted: tuple[str, ...]
    wrong: tuple[tuple[str, str], ...]


def by(outcomes: Sequence[CaseOutcome], key: Callable[[CaseOutcome], str]) -> dict[str, Errors]:
    """Return the error statistics of *outcomes* grouped by *key*, in order of first appearance."""
    groups: dict[str, list[float]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome.error)
    return {name: summarise(errors) for name, errors in groups.items()}


def orders(outcomes: Sequence[CaseOutcome]) -> list[StrategyOrder]:
    """Return the order of strategies for each combination of link, node count and size with two or more all-reduces."""
    groups: dict[tuple[object, ...], list[CaseOutcome]] = {}
    for outcome in outcomes:
        case = outcome.case
        if case.strategy.collective == "all-reduce":
            groups.setdefault((case.shape, case.n_nodes, case.size_bytes), []).append(outcome)
    return [_order(group) for group in groups.values() if len(group) > 1]


def _order(group: Sequence[CaseOutcome]) -> StrategyOrder:
    measured = sorted(group, key=lambda o: o.measured.median)
    predicted = sorted(group, key=lambda o: o.predicted_s)
    wrong = [
        (a.case.strategy.name, b.case.strategy.name)
        for a, b in combinations(predicted, 2)
        if b.predicted_s > a.predicted_s * (1 + _LEVEL) and b.measured.median < a.measured.median
    ]
    return StrategyOrder(
        group[0].case,
        tuple(o.case.strategy.name for o in measured),
        tuple(o.case.strategy.name for o in predicted),
        tuple(wrong),
    )
