"""One simulated collective."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from simulator.collectives.alpha_beta import ALPHA_S
from simulator.collectives.registry import find_strategy, strategy_names
from simulator.collectives.request import Request, Strategy
from simulator.constants import constants_file
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.plan.plan import Perturbation, merge
from simulator.records import replace
from simulator.results.result import Result, make_result

__all__ = [
    "ALPHA_S",
    "chosen_gpus",
    "is_strategy",
    "machines_fitted_to",
    "planned_nvlink_bps",
    "run_collective",
    "strategy_names",
]


def run_collective(
    strategy: Strategy, requests: Sequence[Request], *, fold: bool = True, perturbations: Sequence[Perturbation] = ()
) -> Result:
    """Simulate *requests*, one for each concurrent group, under *perturbations*; raises Unsuitable."""
    plan = replace(merge([strategy.plan(request) for request in requests]), perturbations=tuple(perturbations))
    return make_result(strategy.name, requests[0], execute(requests[0].machine, plan, fold=fold))


def chosen_gpus(machine: Machine, gpus: Sequence[int] | None) -> tuple[int, ...]:
    """Return the node indices of *gpus* of *machine*, of all its GPUs by default; raises InputError."""
    chosen = range(len(machine.gpus)) if gpus is None else gpus
    wrong = [g for g in chosen if not 0 <= g < len(machine.gpus)]
    if wrong:
        raise InputError(f"{machine.name} has GPUs 0 to {len(machine.gpus) - 1}; there is no GPU {wrong[0]}")
    if not chosen:
        raise InputError("no GPU takes part; name at least one")
    return tuple(machine.gpus[g] for g in chosen)


def is_strategy(name: str) -> bool:
    """Return whether there is a strategy called *name*."""
    try:
        find_strategy(name)
    except InputError:
        return False
    return True


@lru_cache(maxsize=1)
def machines_fitted_to() -> tuple[str, ...]:
    """Return the names, as in tables, of the machines whose measurements NCCL's constants were fitted to."""
    return tuple(constants_file("nccl")["fitted"]["nccl"]["machines"])


def planned_nvlink_bps(compute_capability: str | None) -> float:
    """Return the bandwidth in B/s that NCCL plans for one NVLink of a GPU of this compute capability (``9.0``)."""
    from simulator.collectives.nccl.tables import planned_nvlink

    major, _, minor = (compute_capability or "8.0").partition(".")
    return planned_nvlink(int(major) * 10 + int(minor or 0)) * 1e9
