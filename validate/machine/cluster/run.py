"""Measure all cases on a network that exists only meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from validate.machine.cluster.cases import Case
from validate.machine.cluster.commands import Shape
from validate.machine.cluster.crew import Crew
from validate.machine.cluster.measure import LEAST_REPEATS, Limits, measure_case, message_costs, probe
from validate.machine.cluster.names import Names
from validate.machine.cluster.network import Network
from validate.machine.cluster.topology import MessageCosts
from validate.machine.measure.statistics import Interval


@dataclass(slots=True)
class Measured:
    """Results so far, and the software versions that produced them; ``probes`` are payload rates in B/s."""

    times: dict[Case, Interval] = field(default_factory=dict)
    probes: dict[Shape, float] = field(default_factory=dict)
    costs: dict[Shape, MessageCosts] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def least_s(about_s: Sequence[float]) -> float:
    """Return the approximate time of the fewest allowed repetitions of all cases, with warm-up, in seconds."""
    return sum(about_s) * (LEAST_REPEATS + 1)


def run_cases(
    names: Names,
    cases: Sequence[Case],
    about_s: Sequence[float],
    exchange: Callable[[Case], dict[str, Any] | None],
    *,
    repeats: int,
    budget_s: float,
    into: Measured,
    advance: Callable[[str], None],
) -> None:
    """Measure *cases*, predicted to take *about_s* each, and store the results in *into*; always remove the network.

    *exchange* returns what the hosts of a case send and add, or None where torch's own collective is measured.

    For each rate, the links are shaped before the hosts start, since a connection keeps its initial packet length.
    Probes then measure plain TCP and the cost of messages.  The budget is divided among the cases in proportion to
    their predicted times.

    Raises CommandFailed where the network cannot be created, WorkerFailed where a host fails.
    """
    counts = sorted({case.n_nodes for case in cases})
    share = budget_s / max(sum(about_s), 1e-9)
    network, crew = Network(names, counts[-1]), Crew(names, counts[-1], counts)
    try:
        with network:
            for shape in dict.fromkeys(case.shape for case in cases):
                network.shape(shape)
                with crew:
                    into.versions.update(crew.versions)
                    into.versions["packets"] = "in order" if network.is_steered else "may overtake each other"
                    into.costs[shape] = message_costs(crew, counts[-1])
                    into.probes[shape] = probe(crew, shape, counts[-1])
                    for case, about in zip(cases, about_s, strict=True):
                        if case.shape == shape:
                            into.times[case] = measure_case(
                                crew, case, Limits(repeats, share * about), about, exchange(case)
                            )
                            advance(f"{case.n_nodes} nodes, {case.strategy.name}")
    finally:  # in case an interrupt cut the context exits short; a second one is ignored (removed_on_signals)
        crew.end()
        network.remove()
