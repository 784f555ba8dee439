"""``collectives.csv``: one row per case, in the columns that ``validate score`` reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence

from simulator.workload.collective import bus_factor
from validate.machine.cluster.commands import Shape
from validate.machine.cluster.outcome import Outcome
from validate.machine.cluster.topology import machine_name
from validate.machine.measure.statistics import FEWEST

COLUMNS = (
    *("machine", "fabric", "n_nodes", "n_gpus", "gpu_set", "group_size", "n_groups_concurrent", "collective"),
    *("bytes", "dtype", "placement", "strategy", "time_s", "algbw_GBps", "busbw_GBps", "dataset"),
    *("source", "software", "trust", "note"),
)


def table(outcomes: Sequence[Outcome], torch_version: str, limited: Collection[Shape] = ()) -> str:
    """Return the rows as CSV text; rows at *limited* links, where the machine is the bottleneck, have grade C."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for outcome in outcomes:
        case, measured = outcome.case, outcome.measured
        algbw = case.size_bytes / measured.median / 1e9
        known = f", 95 % interval +-{measured.relative:.1%}" if measured.samples >= FEWEST else ""
        writer.writerow(
            {
                "machine": machine_name(case.shape),
                "fabric": f"veth, tbf {case.shape.rate_Bps * 8 / 1e6:g} Mbit/s",
                "n_nodes": case.n_nodes,
                "n_gpus": case.n_nodes,
                "group_size": case.n_nodes,
                "n_groups_concurrent": 1,
                "collective": case.strategy.collective.replace("-", "_"),
                "bytes": case.size_bytes,
                "dtype": "fp32",
                "placement": "in-place",
                "strategy": case.strategy.predictor,
                "time_s": f"{measured.median:.6g}",
                "algbw_GBps": f"{algbw:.6g}",
                "busbw_GBps": f"{algbw * bus_factor(case.strategy.collective, case.n_nodes):.6g}",
                "dataset": "validate_cluster",
                "source": "validate cluster",
                "software": f"torch {torch_version}, gloo",
                "trust": "C" if case.shape in limited else "A",
                "note": f"{case.strategy.name}; median of {measured.samples}{known}",
            }
        )
    return text.getvalue()
