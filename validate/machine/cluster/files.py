"""The files of ``--out`` and ``--topology``: the table, the JSON document, and a topology for each rate."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from simulator.console.files import OutputFile
from simulator.errors import InputError, one_line
from simulator.workload import bus_factor
from validate.machine.cluster.commands import LinkShape
from validate.machine.cluster.outcome import CaseOutcome
from validate.machine.cluster.report import cluster_document, limited
from validate.machine.cluster.run import ClusterResults
from validate.machine.cluster.topology import MessageCosts, machine_name, topology_text
from validate.machine.measure.timing import FEWEST


class ClusterFiles:
    """The output files of a run: opened at the start, and moved into place when they are written.

    ``written`` lists the paths in place so far.  When *stack* closes, files that were never written are removed.

    Raises InputError, with the reason, where a file cannot be written.
    """

    def __init__(
        self, stack: ExitStack, out: str | None, topology: str | None, shapes: Sequence[LinkShape], n_nodes: int
    ) -> None:
        self.written: list[str] = []
        self._n_nodes = n_nodes
        self._files: dict[str, OutputFile] = {}
        self._topologies: dict[str, LinkShape] = {}
        if topology is not None:
            self._open(stack, "--topology", topology)
            self._topologies[topology] = shapes[0]
        if out is None:
            return
        try:
            Path(out).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out {one_line(out)}: cannot be made: {error.strerror}") from None
        self._table, self._whole = str(Path(out) / "collectives.csv"), str(Path(out) / "cluster.json")
        self._topologies |= {str(Path(out) / f"{machine_name(shape)}.yaml"): shape for shape in shapes}
        for path in (self._table, self._whole, *self._topologies):
            if path not in self._files:
                self._open(stack, "--out", path)

    def _open(self, stack: ExitStack, option: str, path: str) -> None:
        self._files[path] = stack.enter_context(OutputFile(option, path))

    def write_topologies(
        self,
        payload_Bps: Mapping[LinkShape, float] | None = None,
        costs: Mapping[LinkShape, MessageCosts] | None = None,
    ) -> None:
        """Write the topologies.

        *payload_Bps* replaces the payload rates that follow from the link rates, *costs* the default message costs.
        """
        for path, shape in self._topologies.items():
            rate_Bps, own = (payload_Bps or {}).get(shape), (costs or {}).get(shape)
            self._write(path, topology_text(shape, self._n_nodes, rate_Bps, own))

    def write(
        self,
        outcomes: Sequence[CaseOutcome],
        measured: ClusterResults,
        facts: Mapping[str, object],
        *,
        calibrated: bool,
    ) -> None:
        """Write the table and the JSON document, if ``--out`` asks for them, and the topologies."""
        if len(self._files) > len(self._topologies):
            rows = csv_table(outcomes, measured.versions.get("torch", ""), limited(measured.probes))
            self._write(self._table, rows)
            whole = cluster_document(outcomes, measured.probes, measured.costs, facts, calibrated=calibrated)
            self._write(self._whole, json.dumps(whole, indent=2, allow_nan=False) + "\n")
        self.write_topologies(measured.probes if calibrated else None, measured.costs)

    def _write(self, path: str, content: str) -> None:
        self._files[path].write(content.encode())
        self.written.append(path)


COLUMNS = (
    *("machine", "fabric", "n_nodes", "n_gpus", "gpu_set", "group_size", "n_groups_concurrent", "collective"),
    *("bytes", "dtype", "placement", "strategy", "time_s", "algbw_GBps", "busbw_GBps", "dataset"),
    *("source", "software", "trust", "note"),
)


def csv_table(outcomes: Sequence[CaseOutcome], torch_version: str, limited: Collection[LinkShape] = ()) -> str:
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
