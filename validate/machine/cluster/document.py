"""The result, with the environment, as one JSON document; errors are fractions, not percent."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from validate.machine.cluster.commands import CommandFailed, LinkShape, run_shell
from validate.machine.cluster.outcome import CaseOutcome, by, orders
from validate.machine.cluster.topology import EFFICIENCY, MessageCosts, machine_name
from validate.machine.measure.host import cpu_facts, usable_threads
from validate.machine.measure.statistics import FEWEST
from validate.tables.statistics import Errors, summarise


def cluster_document(
    outcomes: Sequence[CaseOutcome],
    probes: Mapping[LinkShape, float],
    costs: Mapping[LinkShape, MessageCosts],
    facts: Mapping[str, Any],
    *,
    calibrated: bool,
) -> dict[str, Any]:
    """Return the environment, links with their probes, cases, orders of strategies and error statistics.

    *probes* are rates in B/s; *facts* describe the environment.
    """
    return {
        "format": 1,
        "environment": dict(facts),
        "calibrated": calibrated,
        "links": [
            {
                "machine": machine_name(shape),
                "rate_Bps": shape.rate_Bps,
                "delay_s": shape.delay_s,
                "payload_Bps": shape.rate_Bps * EFFICIENCY,
                "probe_Bps": probe_Bps,
                "messages": {
                    "message_s": costs[shape].message_s,
                    "round_s": costs[shape].round_s,
                    "processors": costs[shape].processors,
                },
            }
            for shape, probe_Bps in probes.items()
        ],
        "cases": [_case(outcome) for outcome in outcomes],
        "orders": [
            {
                "machine": machine_name(order.case.shape),
                "nodes": order.case.n_nodes,
                "bytes": order.case.size_bytes,
                "measured": order.measured,
                "predicted": order.predicted,
                "wrong_pairs": order.wrong,
            }
            for order in orders(outcomes)
        ],
        "errors": {
            "all": _errors(summarise([o.error for o in outcomes])),
            "nodes": _groups(by(outcomes, lambda o: str(o.case.n_nodes))),
            "machine": _groups(by(outcomes, lambda o: machine_name(o.case.shape))),
            "strategy": _groups(by(outcomes, lambda o: o.case.strategy.name)),
            "bytes": _groups(by(outcomes, lambda o: str(o.case.size_bytes))),
        },
    }


def _case(outcome: CaseOutcome) -> dict[str, Any]:
    case, measured = outcome.case, outcome.measured
    return {
        "machine": machine_name(case.shape),
        "nodes": case.n_nodes,
        "strategy": case.strategy.name,
        "collective": case.strategy.collective,
        "bytes": case.size_bytes,
        "measured_s": measured.median,
        "interval_s": [measured.low, measured.high] if measured.samples >= FEWEST else None,
        "times": measured.samples,
        "predicted_s": outcome.predicted_s,
        "error": outcome.error,
    }


def _groups(groups: Mapping[str, Errors]) -> dict[str, Any]:
    return {name: _errors(errors) for name, errors in groups.items()}


def _errors(errors: Errors) -> dict[str, float | int | None]:
    return {
        "n": errors.n,
        "median": errors.median_ape,
        "p90": errors.p90_ape,
        "mean": errors.mean_ape,
        "bias": errors.bias,
    }


def cluster_environment() -> dict[str, str | int | float]:
    """Return facts about this machine that a reader of the results needs."""
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": cpu_facts().get("model name", ""),
        "cpu_count": usable_threads(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "iproute2": _iproute2(),
    }


def _iproute2() -> str:
    try:
        return run_shell(("ip", "-V")).strip().removeprefix("ip utility, ")
    except CommandFailed:
        return ""
