"""Measured and predicted times as text, as one JSON document with the environment (errors: fractions), and files."""

import json
import os
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from simulator.cli.table import table_of
from simulator.console import PLAIN, Style
from simulator.console.files import OutputFile
from simulator.errors import InputError, one_line
from simulator.results import duration_column, percent, taken
from simulator.units import format_duration, format_size
from simulator.workload import bus_factor
from validate.machine.cluster import cases
from validate.machine.cluster.cases import ClusterResults
from validate.machine.cluster.network import CommandFailed, LinkShape, run_shell
from validate.machine.measure.host import cpu_facts, usable_threads
from validate.machine.measure.timing import FEWEST
from validate.tables.cells import csv_bytes
from validate.tables.statistics import Errors, percent_text, summarise

Outcomes = Sequence[cases.CaseOutcome]
Row = dict[str, Any]
_LEAST = 0.9  # probed fraction of a link's payload rate below which the machine, not the rate, is the bottleneck


def shown_rate(shape: LinkShape) -> str:
    """Return the rate of a link, and its delay if it has one, as text."""
    bits = shape.rate_Bps * 8
    text = f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"
    return f"{text} + {format_duration(shape.delay_s)}" if shape.delay_s else text


def limited(probes: Mapping[LinkShape, float]) -> list[LinkShape]:
    """Return the links on which plain TCP reaches less than 90 % of the payload rate."""
    return [shape for shape, probe_Bps in probes.items() if probe_Bps < _LEAST * shape.rate_Bps * cases.EFFICIENCY]


def limited_words(shape: LinkShape, probe_Bps: float) -> str:
    """Return a warning that the machine limits link *shape*, where the probe reached *probe_Bps*."""
    reached = f"{probe_Bps / (shape.rate_Bps * cases.EFFICIENCY):.0%} of what the links carry"
    limits = f"at {shown_rate(shape)} this machine, and not the rate, is the limit: plain TCP reaches {reached}"
    return f"{limits}; take a lower --rate or fewer --nodes"


def cluster_report(outcomes: Outcomes, measured: ClusterResults, style: Style = PLAIN) -> str:
    """Return the probes, one line per case, the order of strategies and the error statistics, as text."""
    legend = (
        "measured: median of the times from a common start to the last host; +-: half its 95 % interval,\n"
        f"- of fewer than {FEWEST} times, which give none\n"
        "error = (simulated - measured) / measured; median, p90 and mean of its absolute value; bias: its mean"
    )
    probed, ordered, explained = (
        "\n".join(part for line in text.splitlines() for part in style.wrap(line, hang=2))
        for text in (_probes(measured), _orders(outcomes), legend)
    )
    blocks = [probed, _case_lines(outcomes, style), ordered, _medians(outcomes, style), explained]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _probes(measured: ClusterResults) -> str:
    lines = []
    for shape, probe_Bps in measured.probes.items():
        cost, reached = measured.costs[shape], probe_Bps / (shape.rate_Bps * cases.EFFICIENCY)
        lines.append(
            f"probe at {shown_rate(shape)}: plain TCP to the next host, all hosts at once, reaches "
            f"{probe_Bps * 8 / 1e6:.1f} Mbit/s of payload, {reached:.1%} of what the link carries\n"
            f"short messages: {format_duration(cost.message_s)} of a host's processor each, "
            f"{format_duration(cost.round_s)} a round, on {cost.processors} processors that all hosts share"
        )
    return "\n".join(lines)


def _case_lines(outcomes: Outcomes, style: Style) -> str:
    rows = [["nodes", "rate", "strategy", "size", "measured", "+-", "times", "predicted", "error"]]
    times = duration_column([t for o in outcomes for t in (o.measured.median, o.predicted_s)])
    for i, o in enumerate(outcomes):
        error, known = percent_text(o.error, "+"), percent(o.measured.relative) if o.measured.samples >= FEWEST else "-"
        asked = [str(o.case.n_nodes), shown_rate(o.case.shape), o.case.strategy.name, format_size(o.case.size_bytes)]
        rows.append([*asked, times[2 * i], known, str(o.measured.samples), times[2 * i + 1], error])
    return "\n".join(table_of(rows, [True, True, False, True, True, True, True, True, True], style, spare=(6, 5)))


def _orders(outcomes: Outcomes) -> str:
    found = cases.orders(outcomes)
    if not found:
        return ""
    wrong = [order for order in found if order.wrong]
    lines = [f"order of the strategies: as predicted in {len(found) - len(wrong)} of {len(found)}"]
    for order in wrong:
        case = order.case
        where = f"{case.n_nodes} nodes, {shown_rate(case.shape)}, {format_size(case.size_bytes)}"
        lines.append(f"  {where}: measured {' < '.join(order.measured)}; predicted {' < '.join(order.predicted)}")
    return "\n".join(lines)


_GROUPS: Sequence[tuple[str, str, Callable[[cases.CaseOutcome], str]]] = (  # by what, in texts and in documents
    ("by nodes", "nodes", lambda o: str(o.case.n_nodes)),
    ("by rate", "machine", lambda o: shown_rate(o.case.shape)),
    ("by strategy", "strategy", lambda o: o.case.strategy.name),
    ("by size", "bytes", lambda o: format_size(o.case.size_bytes)),
)


def _medians(outcomes: Outcomes, style: Style) -> str:
    rows = [["error", "cases", "median", "p90", "mean", "bias"]]
    marks: dict[int, str] = {}
    for title, _, key in (("", "", lambda _: "all"), *_GROUPS):
        found = cases.by(outcomes, key)
        if title and len(found) < 2:
            continue
        marks |= {len(rows) - 1: title} if title else {}
        for name, errors in found.items():
            cells = map(percent_text, (errors.median_ape, errors.p90_ape, errors.mean_ape))
            rows.append([f"  {name}" if title else name, str(errors.n), *cells, percent_text(errors.bias, "+")])
    return "\n".join(table_of(rows, [False, True, True, True, True, True], style, spare=(4, 3), marks=marks))


def cluster_document(outcomes: Outcomes, measured: ClusterResults, facts: Row, *, calibrated: bool) -> Row:
    """Return environment *facts*, links with probes (B/s), cases, orders of strategies and error statistics."""
    links, rows = [], []
    for shape, probe_Bps in measured.probes.items():
        link = {"machine": cases.machine_name(shape), **taken(shape, "rate_Bps delay_s")}
        link |= {"payload_Bps": shape.rate_Bps * cases.EFFICIENCY, "probe_Bps": probe_Bps}
        links.append({**link, "messages": taken(measured.costs[shape], "message_s round_s processors")})
    for o in outcomes:
        asked = taken(o.case, "nodes=n_nodes strategy=strategy.name collective=strategy.collective bytes=size_bytes")
        ends = [o.measured.low, o.measured.high] if o.measured.samples >= FEWEST else None
        row = {"machine": cases.machine_name(o.case.shape), **asked, "measured_s": o.measured.median}
        rows.append({**row, "interval_s": ends, **taken(o, "times=measured.samples predicted_s error")})
    how = "nodes=case.n_nodes bytes=case.size_bytes measured predicted wrong_pairs=wrong"
    orders = [{"machine": cases.machine_name(each.case.shape), **taken(each, how)} for each in cases.orders(outcomes)]
    errors: dict[str, Any] = {"all": _errors(summarise([o.error for o in outcomes]))}
    keys = {"machine": lambda o: cases.machine_name(o.case.shape), "bytes": lambda o: str(o.case.size_bytes)}
    for _, name, key in _GROUPS:
        errors[name] = {group: _errors(each) for group, each in cases.by(outcomes, keys.get(name, key)).items()}
    head = {"format": 1, "environment": dict(facts), "calibrated": calibrated}
    return {**head, "links": links, "cases": rows, "orders": orders, "errors": errors}


def _errors(errors: Errors) -> Row:
    return taken(errors, "n median=median_ape p90=p90_ape mean=mean_ape bias")


def cluster_environment() -> dict[str, str | int | float]:
    """Return facts about this machine that a reader of the results needs."""
    version = ""
    with suppress(CommandFailed):
        version = run_shell(("ip", "-V"))
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": cpu_facts()[0].get("model name", ""),
        "cpu_count": usable_threads(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "iproute2": version.strip().removeprefix("ip utility, "),
    }


class ClusterFiles:
    """A run's output files, moved into place when ``written``, else removed by *stack*; raises InputError."""

    def __init__(
        self, stack: ExitStack, out: str | None, topology: str | None, shapes: Sequence[LinkShape], n_nodes: int
    ) -> None:
        self.written: list[str] = []
        self._n_nodes = n_nodes
        self._topologies = {} if topology is None else {topology: shapes[0]}
        self._results: tuple[str, ...] = ()  # the table and the document
        if out is not None:
            try:
                Path(out).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"--out {one_line(out)}: cannot be made: {error.strerror}") from None
            self._results = str(Path(out) / "collectives.csv"), str(Path(out) / "cluster.json")
            self._topologies |= {str(Path(out) / f"{cases.machine_name(shape)}.yaml"): shape for shape in shapes}
        self._files = {
            path: stack.enter_context(OutputFile("--topology" if path == topology else "--out", path))
            for path in (*self._topologies, *self._results)
        }

    def write_topologies(self, payload_Bps: cases.PayloadRates, costs: cases.CostsByLink) -> None:
        """Write the topologies, with the payload rates *payload_Bps* and message *costs* that were measured."""
        for path, shape in self._topologies.items():
            self._write(path, cases.topology_text(shape, self._n_nodes, payload_Bps.get(shape), costs.get(shape)))

    def write(self, outcomes: Outcomes, measured: ClusterResults, facts: Row, *, calibrated: bool) -> None:
        """Write the table and the JSON document, if ``--out`` asks for them, and the topologies."""
        if self._results:
            whole = cluster_document(outcomes, measured, facts, calibrated=calibrated)
            table, document = self._results
            self._write(table, csv_table(outcomes, measured.versions.get("torch", ""), limited(measured.probes)))
            self._write(document, json.dumps(whole, indent=2, allow_nan=False) + "\n")
        self.write_topologies(measured.probes if calibrated else {}, measured.costs)

    def _write(self, path: str, content: str) -> None:
        self._files[path].write(content.encode())
        self.written.append(path)


def csv_table(outcomes: Outcomes, torch_version: str, limited: Collection[LinkShape] = ()) -> str:
    """Return the rows as CSV text; rows at *limited* links, where the machine is the bottleneck, have grade C."""
    rows: list[Row] = []
    for outcome in outcomes:
        case, measured = outcome.case, outcome.measured
        algbw = case.size_bytes / measured.median / 1e9
        known = f", 95 % interval +-{measured.relative:.1%}" if measured.samples >= FEWEST else ""
        fabric, collective = f"veth, tbf {case.shape.rate_Bps * 8 / 1e6:g} Mbit/s", case.strategy.collective
        row = Row(machine=cases.machine_name(case.shape), fabric=fabric, n_nodes=case.n_nodes, n_gpus=case.n_nodes)
        row |= Row(gpu_set="", group_size=case.n_nodes, n_groups_concurrent=1, collective=collective.replace("-", "_"))
        row |= Row(bytes=case.size_bytes, dtype="fp32", placement="in-place", strategy=case.strategy.predictor)
        row |= Row(time_s=f"{measured.median:.6g}", algbw_GBps=f"{algbw:.6g}")
        row["busbw_GBps"] = f"{algbw * bus_factor(collective, case.n_nodes):.6g}"
        row |= Row(dataset="validate_cluster", source="validate cluster", software=f"torch {torch_version}, gloo")
        row["trust"] = "C" if case.shape in limited else "A"
        row["note"] = f"{case.strategy.name}; median of {measured.samples}{known}"
        rows.append(row)
    return csv_bytes([list(rows[0]), *(list(row.values()) for row in rows)]).decode()
