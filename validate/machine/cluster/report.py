"""Measured and predicted times as text and, with the environment, as one JSON document, whose errors are fractions."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.cli.table import table_of
from simulator.console.style import PLAIN, Style
from simulator.results.columns import duration_column, percent
from simulator.results.document import taken
from simulator.units import format_duration, format_size
from validate.machine.cluster.commands import CommandFailed, LinkShape, run_shell
from validate.machine.cluster.outcome import CaseOutcome, by, orders
from validate.machine.cluster.topology import EFFICIENCY, MessageCosts, machine_name
from validate.machine.measure.host import cpu_facts, usable_threads
from validate.machine.measure.timing import FEWEST
from validate.tables.statistics import Errors, summarise

_LEAST = 0.9  # probed fraction of a link's payload rate below which the machine, not the rate, is the bottleneck


def shown_rate(shape: LinkShape) -> str:
    """Return the rate of a link, and its delay if it has one, as text."""
    bits = shape.rate_Bps * 8
    text = f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"
    return f"{text} + {format_duration(shape.delay_s)}" if shape.delay_s else text


def limited(probes: Mapping[LinkShape, float]) -> list[LinkShape]:
    """Return the links on which plain TCP reaches less than 90 % of the payload rate."""
    return [shape for shape, probe_Bps in probes.items() if probe_Bps < _LEAST * shape.rate_Bps * EFFICIENCY]


def limited_words(shape: LinkShape, probe_Bps: float) -> str:
    """Return a warning that the machine limits link *shape*, where the probe reached *probe_Bps*."""
    reached = probe_Bps / (shape.rate_Bps * EFFICIENCY)
    return (
        f"at {shown_rate(shape)} this machine, and not the rate, is the limit: plain TCP reaches {reached:.0%}"
        " of what the links carry; take a lower --rate or fewer --nodes"
    )


def cluster_report(
    outcomes: Sequence[CaseOutcome],
    probes: Mapping[LinkShape, float],
    costs: Mapping[LinkShape, MessageCosts],
    style: Style = PLAIN,
) -> str:
    """Return the probes, one line per case, the order of strategies and the error statistics, as text."""
    legend = (
        "measured: median of the times from a common start to the last host; +-: half its 95 % interval,\n"
        f"- of fewer than {FEWEST} times, which give none\n"
        "error = (simulated - measured) / measured; median, p90 and mean of its absolute value; bias: its mean"
    )
    probed, ordered, explained = (_wrapped(text, style) for text in (_probes(probes, costs), _orders(outcomes), legend))
    blocks = [probed, _case_lines(outcomes, style), ordered, _medians(outcomes, style), explained]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _wrapped(text: str, style: Style) -> str:
    return "\n".join(part for line in text.splitlines() for part in style.wrap(line, hang=2))


def _probes(probes: Mapping[LinkShape, float], costs: Mapping[LinkShape, MessageCosts]) -> str:
    lines = []
    for shape, probe_Bps in probes.items():
        reached = probe_Bps / (shape.rate_Bps * EFFICIENCY)
        lines.append(
            f"probe at {shown_rate(shape)}: plain TCP to the next host, all hosts at once, reaches "
            f"{probe_Bps * 8 / 1e6:.1f} Mbit/s of payload, {reached:.1%} of what the link carries"
        )
        cost = costs[shape]
        lines.append(
            f"short messages: {format_duration(cost.message_s)} of a host's processor each, "
            f"{format_duration(cost.round_s)} a round, on {cost.processors} processors that all hosts share"
        )
    return "\n".join(lines)


def _case_lines(outcomes: Sequence[CaseOutcome], style: Style) -> str:
    header = ["nodes", "rate", "strategy", "size", "measured", "+-", "times", "predicted", "error"]
    times = duration_column([t for o in outcomes for t in (o.measured.median, o.predicted_s)])
    rows = [
        [
            str(o.case.n_nodes),
            shown_rate(o.case.shape),
            o.case.strategy.name,
            format_size(o.case.size_bytes),
            times[2 * i],
            percent(o.measured.relative) if o.measured.samples >= FEWEST else "-",
            str(o.measured.samples),
            times[2 * i + 1],
            _signed(o.error),
        ]
        for i, o in enumerate(outcomes)
    ]
    right = [True, True, False, True, True, True, True, True, True]
    return "\n".join(table_of([header, *rows], right, style, spare=(6, 5)))


def _orders(outcomes: Sequence[CaseOutcome]) -> str:
    found = orders(outcomes)
    if not found:
        return ""
    wrong = [order for order in found if order.wrong]
    lines = [f"order of the strategies: as predicted in {len(found) - len(wrong)} of {len(found)}"]
    for order in wrong:
        case = order.case
        where = f"{case.n_nodes} nodes, {shown_rate(case.shape)}, {format_size(case.size_bytes)}"
        lines.append(f"  {where}: measured {' < '.join(order.measured)}; predicted {' < '.join(order.predicted)}")
    return "\n".join(lines)


def _medians(outcomes: Sequence[CaseOutcome], style: Style) -> str:
    rows = [["error", "cases", "median", "p90", "mean", "bias"]]
    groups: dict[str, Callable[[CaseOutcome], str]] = {
        "": lambda _: "all",
        "by nodes": lambda o: str(o.case.n_nodes),
        "by rate": lambda o: shown_rate(o.case.shape),
        "by strategy": lambda o: o.case.strategy.name,
        "by size": lambda o: format_size(o.case.size_bytes),
    }
    marks: dict[int, str] = {}
    for title, key in groups.items():
        found = by(outcomes, key)
        if title:
            if len(found) < 2:
                continue
            marks[len(rows) - 1] = title
        for name, errors in found.items():
            figures = [errors.median_ape, errors.p90_ape, errors.mean_ape]
            cells = ["-" if figure is None else percent(figure) for figure in figures]
            bias = "-" if errors.bias is None else _signed(errors.bias)
            rows.append([f"  {name}" if title else name, str(errors.n), *cells, bias])
    return "\n".join(table_of(rows, [False, True, True, True, True, True], style, spare=(4, 3), marks=marks))


def _signed(error: float) -> str:
    return f"{error * 100:+.1f} %"


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
                **taken(shape, "rate_Bps delay_s"),
                "payload_Bps": shape.rate_Bps * EFFICIENCY,
                "probe_Bps": probe_Bps,
                "messages": taken(costs[shape], "message_s round_s processors"),
            }
            for shape, probe_Bps in probes.items()
        ],
        "cases": [_case(outcome) for outcome in outcomes],
        "orders": [
            {
                "machine": machine_name(order.case.shape),
                **taken(order, "nodes=case.n_nodes bytes=case.size_bytes measured predicted wrong_pairs=wrong"),
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
        **taken(case, "nodes=n_nodes strategy=strategy.name collective=strategy.collective bytes=size_bytes"),
        "measured_s": measured.median,
        "interval_s": [measured.low, measured.high] if measured.samples >= FEWEST else None,
        **taken(outcome, "times=measured.samples predicted_s error"),
    }


def _groups(groups: Mapping[str, Errors]) -> dict[str, Any]:
    return {name: _errors(errors) for name, errors in groups.items()}


def _errors(errors: Errors) -> dict[str, Any]:
    return taken(errors, "n median=median_ape p90=p90_ape mean=mean_ape bias")


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
