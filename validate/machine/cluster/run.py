"""Measure all cases on a network that stands only for that long."""

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

__all__ = ["Measured", "least_s", "run_cases"]


@dataclass(slots=True)
class Measured:
    """What has been measured so far, and by which versions."""

    times: dict[Case, Interval] = field(default_factory=dict)
    probes: dict[Shape, float] = field(default_factory=dict)
    costs: dict[Shape, MessageCosts] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def least_s(about_s: Sequence[float]) -> float:
    """Return about how long the fewest repeats of all cases take, warming up included."""
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
    """Measure *cases*, which take *about_s* each, into *into*; the network is gone afterwards, whatever happens.

    *exchange* gives what the hosts of a case send and add, None where torch's own collective does it.

    For each rate the links are shaped first, since a connection keeps the length of packets that it began
    with, then the hosts start, and probes say what plain TCP reaches and what messages cost.  Each case may
    spend the part of the budget that its time is of all times.

    Raises CommandFailed, WorkerFailed where the network cannot be made, or a host fails.
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
    finally:  # where an interrupt has cut leaving them short; there is one at most (removed_on_signals)
        crew.end()
        network.remove()
