"""CPUs compared with published measurements: products on a Xeon Phi, training with 1 to 32 threads."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from simulator.devices.cpu import Cpu, cpu_from_part
from simulator.devices.dispatch import dispatch_time
from simulator.devices.predict import operator_costs
from simulator.questions.single import OperatorQuestion
from simulator.topology.catalogue import load_part
from simulator.topology.parts import CpuPart
from simulator.workload.operators import Phase
from simulator.workload.zoo.registry import build_network
from validate.kinds.operators import read_operator
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

pytestmark = pytest.mark.corpus
NETWORKS = ("fcn-r", "fcn-s", "alexnet-s", "alexnet-r", "resnet50", "resnet56")
MACHINES = {"cpu-i7-3820": ("core-i7-3820", 1), "cpu-2xe5-2630v3": ("xeon-e5-2630-v3", 2)}


def device(name: str, sockets: int = 1, threads: int | None = None, library: str = "onednn") -> Cpu:
    part = load_part(name)
    assert isinstance(part, CpuPart)
    return cpu_from_part(name, part, sockets, threads, library=library)  # type: ignore[arg-type]


def step_s(cpu: Cpu, model: str, batch: int, halves: str = "fwd bwd") -> float:
    """Return the time of the forward and backward pass, or one of them, summed over operators."""
    total_s = 0.0
    for i, layer in enumerate(build_network(model, batch=batch).layers):
        phases: tuple[Phase, ...] = ("fwd", "bwd" if i else "bwd_weight")
        for phase in phases:
            if phase[:3] not in halves:
                continue
            total_s += sum(cost.time_s for cost in operator_costs(cpu, layer.operator, phase, "fp32"))
            total_s += dispatch_time(cpu, layer.operator, phase)
    return total_s


def test_products_on_a_xeon_phi(corpus: Path) -> None:
    phi, names = device("knl-7250-cpu"), RowNames()
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


def test_training_on_cpus_of_2016(corpus: Path) -> None:
    measured = defaultdict(list)
    with (corpus / "training.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["dataset"] == "shi2016_table7" and row["machine"] in MACHINES and row["model"] in NETWORKS:
                threads = int(row["schedule"].removeprefix("cpu threads="))
                key = row["machine"], row["model"], int(row["batch_per_gpu"]), threads
                measured[key].append(float(row["step_time_s"]))
    assert len(measured) > 40
    predicted = {
        (machine, model, batch, threads): step_s(device(*MACHINES[machine], threads, "blas"), model, batch)
        for machine, model, batch, threads in measured
    }
    errors = [abs(predicted[key] / min(times) - 1) for key, times in measured.items()]
    assert median(errors) < 0.35, "against the best framework; the others are up to five times slower"
    for model in NETWORKS:
        times = {k[3]: s for k, s in predicted.items() if k[0] == "cpu-2xe5-2630v3" and k[1] == model}
        assert min(times, key=times.__getitem__) == 16, "as many threads as cores, of 1 to 32"


def test_networks_that_nothing_was_fitted_to(corpus: Path) -> None:
    """VGG and ResNet in Torch7, which uses every hardware thread."""
    errors = []
    with (corpus / "training.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["dataset"] == "cnn_single_gpu" and row["machine"] in MACHINES:
                cpu = device(*MACHINES[row["machine"]], 32, "blas")
                halves = {"train": "fwd bwd"}.get(row["phase"], row["phase"])
                predicted_s = step_s(cpu, row["model"], int(row["batch_per_gpu"]), halves)
                errors.append(abs(predicted_s / float(row["step_time_s"]) - 1))
    assert len(errors) > 15
    assert median(errors) < 0.35
