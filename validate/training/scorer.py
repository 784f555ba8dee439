"""Tables of measured steps: networks of the zoo on the first GPU of a topology."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from simulator.devices.calibration import Calibration
from simulator.topology.parts import CpuPart
from validate.score.kind import Cell
from validate.score.machines import MachineBook
from validate.score.query import NotScored, number
from validate.score.table import Table
from validate.training.kind import TRAINING
from validate.training.predict import StepPredictor, is_image_network
from validate.training.query import TrainingQuery, is_early, read_query

__all__ = ["TrainingScorer"]

_OTHER = re.compile(r"fcn|lstm|mlp", re.IGNORECASE)  # neither convolutions nor attention
_CONFIGURATION = ("machine", "model", "phase", "dtype", "batch_per_gpu", "image", "seq_len", "schedule", "dataset")
_SAMPLES = re.compile(r"(?:images|sequences|samples)/s")


class TrainingScorer:
    """Predicts steps on the machines of *book*, with *calibrations* by part.

    *published* holds what others predict, by ``row_id`` and name.
    """

    def __init__(
        self,
        book: MachineBook,
        calibrations: Mapping[str, Calibration] | None = None,
        published: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self._book = book
        self._predictor = StepPredictor(book, calibrations or {})
        self._published = published or {}
        self._best: dict[tuple[str, ...], float] = {}
        self.method = "data sheet and shared constants"
        if calibrations:
            self.method = f"calibration of {', '.join(sorted(calibrations))}"
        self.kind = TRAINING
        if not book.needs_names:
            self.kind = replace(TRAINING, needed=tuple(c for c in TRAINING.needed if c != "machine"))

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse names of machines that no row has."""
        self._book.check_used({table.cell(row, "machine") for table in tables for row in table.rows})

    def prepare(self, table: Table, trust: Sequence[str]) -> Mapping[int, str]:
        """Find the fastest framework of each configuration, a label that no prediction sees."""
        del trust
        self._best = {}
        for record in table.rows:

            def cell(column: str, record=record) -> str:  # type: ignore[no-untyped-def]
                return table.cell(record, column)

            try:
                time_s = self.measured_s(cell)
            except NotScored:
                continue
            key = _configuration(cell)
            self._best[key] = min(time_s, self._best.get(key, time_s))
        return {}

    def labels(self, cell: Cell) -> dict[str, str]:
        """Return family, era, framework_rank, device and processor; of several GPUs how many in their place."""
        device, processor = self._device(cell("machine"))
        if cell("n_gpus") not in ("", "0", "1"):
            return {"device": device, "processor": processor, "gpus": cell("n_gpus"), "ranks": "several"}
        labels = {"family": _family(cell("model")), "device": device, "processor": processor}
        if cell("software"):
            labels["era"] = "before 2019" if is_early(cell("software")) else "since 2019"
        try:
            is_best = self.measured_s(cell) <= self._best.get(_configuration(cell), 0.0)
            labels["framework_rank"] = "best" if is_best else "other"
        except NotScored:
            pass
        return labels

    def read(self, cell: Cell) -> TrainingQuery:
        """Return what a row asks."""
        return read_query(cell)

    def predict_s(self, query: TrainingQuery) -> float:
        """Return the simulated time of the step."""
        return self._predictor.predict_s(query)

    def baseline_s(self, query: TrainingQuery) -> float:
        """Return the sum of the rooflines of all kernels."""
        return self._predictor.roofline_s(query)

    def measured_s(self, cell: Cell) -> float:
        """Return ``step_time_s``, or samples over throughput where that is what was published."""
        if cell("step_time_s"):
            return number("step_time_s", cell("step_time_s"))
        if not cell("throughput"):
            raise NotScored("step_time_s missing")
        if not _SAMPLES.fullmatch(cell("throughput_unit")):
            raise NotScored("step_time_s missing, and throughput is of something else than samples")
        return _samples_of_step(cell) / number("throughput", cell("throughput"))

    def published_s(self, cell: Cell) -> Mapping[str, float]:
        """Return what others predict of the row."""
        return self._published.get(cell("row_id"), {})

    def _device(self, machine: str) -> tuple[str, str]:
        try:
            return _device_of(self._book, machine)
        except NotScored:
            return "", ""


def _samples_of_step(cell: Cell) -> float:
    """Return the samples of all GPUs and micro-batches of a step, which ``throughput`` counts."""
    each = cell("micro_batch") or cell("batch_per_gpu")
    if cell("global_batch") or not each:
        return number("global_batch", cell("global_batch"))
    samples = number("batch_per_gpu", each)
    for column in ("n_gpus", "grad_accum"):
        if cell(column) not in ("", "0"):  # no GPU: a CPU
            samples *= number(column, cell(column))
    return samples


@lru_cache(maxsize=1024)
def _device_of(book: MachineBook, name: str) -> tuple[str, str]:
    """Return the part that computes a step on the machine *name*, and whether it is a GPU or a CPU."""
    machine = book.get(name, 1).machine
    if machine.gpus:
        return machine.nodes[machine.gpus[0]].part_name, "GPU"
    cpus = [node.part_name for node in machine.nodes if isinstance(node.part, CpuPart)]
    return (cpus[0], "CPU") if cpus else ("", "")


def _configuration(cell: Cell) -> tuple[str, ...]:
    return (cell("n_gpus") or "1", *(cell(column) for column in _CONFIGURATION))


def _family(model: str) -> str:
    if _OTHER.match(model):
        return "other"
    found = is_image_network(model)
    return "" if found is None else "CNN" if found else "transformer"
