"""Predict the time of a query: plan it with a strategy and run the plan."""

from __future__ import annotations

from dataclasses import replace

from simulator.api import make_request
from simulator.engine.executor import execute
from simulator.errors import InputError, SimulationError, one_line
from simulator.plan.merge import merge
from simulator.plan.plan import Plan
from simulator.strategies.base import Strategy, Unsuitable
from simulator.strategies.nccl.cost import FITTED_TO, Costs, costs_of
from simulator.strategies.nccl.strategy import Nccl
from simulator.strategies.registry import find_strategy
from simulator.topology.parts import GpuPart
from validate.collectives.query import Query
from validate.score.baselines import alpha_beta_ring_s
from validate.score.machines import Compiled, MachineBook
from validate.score.query import NotScored

__all__ = ["Predictor", "check_hardware", "groups_of", "nccl_of", "plan_query"]

_NCCL = "nccl"
_Answer = float | str  # seconds, or why there is no prediction


class Predictor:
    """Predicts queries on the machines of a book with one strategy; equal queries once."""

    def __init__(self, book: MachineBook, strategy: str = _NCCL) -> None:
        self._book = book
        self._name = strategy
        self._strategies: dict[str, Strategy] = {strategy: find_strategy(strategy)}
        self._kept: dict[tuple[str, Query], _Answer] = {}
        self._baselines: dict[tuple[str, Query], _Answer] = {}

    @property
    def fitted_to(self) -> tuple[str, ...]:
        """Machines, as tables name them, whose measurements shaped the strategy's constants."""
        return FITTED_TO if self._name == _NCCL else ()

    def predict_s(self, query: Query) -> float:
        """Return the predicted time of *query*.

        Raises
        ------
        NotScored
            Where it cannot be predicted; says why.

        """
        compiled = self._book.get(query.machine, query.n_nodes)
        key = (compiled.topology, replace(query, machine=""))
        if key not in self._kept:
            try:
                self._kept[key] = self._run(query, compiled)
            except NotScored as error:
                self._kept[key] = str(error)
        return _seconds(self._kept[key])

    def baseline_s(self, query: Query) -> float:
        """Return what a bare alpha-beta ring says of *query*; raises as :meth:`predict_s`."""
        compiled = self._book.get(query.machine, query.n_nodes)
        asked = replace(query, machine="", algorithm=None, strategy=None, n_groups=1, in_switch=True, nccl=None)
        key = (compiled.topology, asked)
        if key not in self._baselines:
            try:
                ranks = [compiled.machine.gpus[g] for g in groups_of(query, compiled)[0]]
                self._baselines[key] = alpha_beta_ring_s(
                    compiled.machine, compiled.router, ranks, query.collective, query.size_bytes
                )
            except (NotScored, InputError) as error:
                self._baselines[key] = one_line(error)
        return _seconds(self._baselines[key])

    def _run(self, query: Query, compiled: Compiled) -> float:
        groups = groups_of(query, compiled)
        if self._name == _NCCL and query.strategy is None:
            check_hardware(compiled, groups)
        strategy = self._strategy(query)
        try:
            end_s = execute(compiled.machine, plan_query(query, compiled, strategy)).end_s
        except Unsuitable as error:
            raise NotScored(f"{self._name} does not fit: {one_line(error)}") from None
        except (InputError, SimulationError) as error:
            raise NotScored(one_line(error)) from None
        if not 0 < end_s < float("inf"):
            raise NotScored("the simulated time is not positive")
        return end_s

    def _strategy(self, query: Query) -> Strategy:
        """Return the strategy that the row names, or else this predictor's as the row has it."""
        if query.strategy in (None, self._name) and self._name == _NCCL:
            return nccl_of(query)
        forced = query.strategy or query.algorithm
        if forced not in (None, self._name) and self._name != _NCCL:
            raise NotScored(f"forced algorithm '{forced}' is not what {self._name} does")
        name = query.strategy or self._name
        if name not in self._strategies:
            self._strategies[name] = find_strategy(name)
        return self._strategies[name]


def nccl_of(query: Query, costs: Costs | None = None) -> Nccl:
    """Return NCCL of the version, with the algorithm and on the type of *query*."""
    return Nccl(query.algorithm, costs or costs_of(query.nccl), in_switch=query.in_switch)


def plan_query(query: Query, compiled: Compiled, strategy: Strategy) -> Plan:
    """Return the plan of all groups of *query* at once; raises as the strategy does, or NotScored."""
    return merge(
        [
            strategy.plan(
                make_request(
                    compiled.machine,
                    query.size_bytes,
                    collective=query.collective,
                    gpus=gpus,
                    pairs=query.pairs,
                    router=compiled.router,
                    gpus_per_process=query.gpus_per_process,
                )
            )
            for gpus in groups_of(query, compiled)
        ]
    )


def _seconds(answer: _Answer) -> float:
    if isinstance(answer, str):
        raise NotScored(answer)
    return answer


def groups_of(query: Query, compiled: Compiled) -> list[list[int]]:
    """Return the GPUs of each group, in rank order."""
    machine = compiled.machine
    per_host = len(machine.gpus) // machine.n_hosts
    local = range(query.n_gpus // query.n_nodes) if query.local_gpus is None else query.local_gpus
    if machine.n_hosts != query.n_nodes:
        raise NotScored(f"{machine.name} has {machine.n_hosts} nodes, n_nodes is {query.n_nodes}")
    if max(local) >= per_host:
        raise NotScored(f"more GPUs a node than {compiled.topology} has")
    ranks = [host * per_host + gpu for host in range(query.n_nodes) for gpu in local]
    return [ranks[i * query.group_size : (i + 1) * query.group_size] for i in range(query.n_groups)]


def check_hardware(compiled: Compiled, groups: list[list[int]]) -> None:
    """Raise NotScored where NCCL does not run on the GPUs."""
    nodes = compiled.machine.nodes
    for gpu in (g for group in groups for g in group):
        part = nodes[compiled.machine.gpus[gpu]].part
        if isinstance(part, GpuPart) and part.vendor == "other":
            raise NotScored("no hardware that NCCL runs on")
