"""CPUs compared with published measurements: products on a Xeon Phi, training with 1 to 32 threads."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache, partial
from pathlib import Path
from statistics import median

import pytest

from simulator.api.session import Session
from simulator.devices.cpu import cpu_from_part
from simulator.devices.predict import operator_costs
from simulator.questions.single import OperatorQuestion
from simulator.topology.catalogue import load_part
from simulator.topology.parts import CpuPart
from validate.kinds.operators import read_operator
from validate.kinds.steps import STEPS
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.table import PUBLISHED, Table, made_complete, read_conventions, read_table

pytestmark = pytest.mark.corpus
MACHINES = ("cpu-i7-3820", "cpu-2xe5-2630v3")
_READ = (STEPS.needed, STEPS.columns, STEPS.name)


def test_products_on_a_xeon_phi(corpus: Path) -> None:
    part, names = load_part("knl-7250-cpu"), RowNames()
    assert isinstance(part, CpuPart)
    phi = cpu_from_part("knl-7250-cpu", part)
    errors = defaultdict(list)
    with (corpus / "ops.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["device"] == "knl-7250" and row["trust"] == "A":
                try:
                    asked = read_operator(lambda column, row=row: row.get(column, ""), names).question
                except NotScored:
                    continue
                assert isinstance(asked, OperatorQuestion)
                predicted_s = sum(c.time_s for c in operator_costs(phi, asked.operator, asked.phase, asked.precision))
                errors[row["op"], asked.phase].append(abs(predicted_s / float(row["time_s"]) - 1))
    assert len(errors["matmul", "fwd"]) > 100
    assert median(errors["matmul", "fwd"]) < 0.10
    assert median(errors["conv2d", "fwd"]) < 0.20
    assert median(errors["conv2d", "bwd_data"]) < 0.40
    assert median(errors["conv2d", "bwd_weight"]) < 0.30


@cache
def completed(table: Path) -> Table:
    raw, _ = made_complete(read_table(table.read_bytes(), str(table), *_READ), read_conventions(PUBLISHED))
    return read_table(raw, str(table), *_READ)


def scored(table: Path, dataset: str) -> dict[tuple[str, str], list[float]]:
    """Return the errors of the rows of *dataset* on CPUs by machine and framework, the table completed as published."""
    rows, session, names = completed(table), Session(), RowNames()
    errors = defaultdict(list)
    for row in rows.rows:
        cell = partial(rows.cell, row)
        if cell("machine") in MACHINES and rows.written(row, "dataset") == dataset:
            predicted_s = STEPS.read(cell, names).time_s(session)
            errors[cell("machine"), cell("framework")].append(predicted_s / float(cell("step_time_s")) - 1)
    return errors


@pytest.mark.slow
def test_training_on_cpus_in_five_frameworks_of_2016(corpus: Path) -> None:
    errors = scored(corpus / "training.csv", "shi2016_table7")
    assert len(errors) == 10
    for (machine, framework), found in errors.items():
        assert median(map(abs, found)) < 0.22, (machine, framework)
    for machine in MACHINES:
        found = [each for key, several in errors.items() if key[0] == machine for each in several]
        assert len(found) > 60
        assert median(map(abs, found)) < 0.16
        assert abs(median(found)) < 0.06


def test_networks_of_another_source(corpus: Path) -> None:
    """VGG and ResNet in Torch7, another source, with which two constants were chosen."""
    ((_, errors),) = scored(corpus / "training.csv", "cnn_single_gpu").items()
    assert len(errors) > 15
    assert median(map(abs, errors)) < 0.15
