"""Recurrent layers: steps add up, each step reads the weights, and times agree with measurements."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from simulator.constants import DEFAULT
from simulator.devices.gpu.recurrence import recurrence_cost
from simulator.errors import InputError
from simulator.questions.single import OperatorQuestion
from simulator.workload.operators import Recurrence
from tests.devices import find_gpu
from validate.constants.families import FAMILIES, read_rows
from validate.constants.fit import fit_errors, rows_of
from validate.kinds.operators import read_operator
from validate.tables.names import RowNames

RECURRENCE = DEFAULT["recurrence"]

LAYER = Recurrence("lstm", 64, 50, 0, 1024, "fwd", "fp32")


def cost_s(device: str, kernel: Recurrence) -> float:
    return recurrence_cost(find_gpu(device), kernel).time_s


@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
def test_each_step_costs_the_same(direction: Literal["fwd", "bwd_data"]) -> None:
    times = [cost_s("v100-sxm2-16gb", replace(LAYER, direction=direction, timesteps=t)) for t in (10, 20, 40)]
    assert times[2] - times[1] == pytest.approx(2 * (times[1] - times[0]))
    assert times[0] > 10 * RECURRENCE.step_s


def test_one_sequence_waits_for_the_weights_to_be_read() -> None:
    alone = replace(LAYER, batch=1, hidden=4096)
    step_s = (cost_s("titan-xp", alone) - RECURRENCE.call_s) / alone.timesteps
    weight_bytes = 4 * 4 * 4096 * 4096
    assert weight_bytes / find_gpu("titan-xp").memory_bandwidth_Bps < step_s < 2.5 * weight_bytes / 547e9
    assert recurrence_cost(find_gpu("titan-xp"), alone).bound == "memory"


def test_small_layers_wait_for_launches() -> None:
    assert recurrence_cost(find_gpu("v100-sxm2-16gb"), replace(LAYER, hidden=64, batch=1)).bound == "latency"


def test_gates_count() -> None:
    large = replace(LAYER, hidden=2048, batch=128)
    times = {cell: cost_s("m40", replace(large, cell=cell)) for cell in ("rnn", "gru", "lstm")}
    assert times["rnn"] < times["gru"] < times["lstm"]


def test_gradients_of_weights_are_one_product_near_the_peak() -> None:
    weights = replace(LAYER, direction="bwd_weight", hidden=2048, timesteps=200)
    rate = weights.flop / cost_s("m40", weights)
    assert 0.5 * find_gpu("m40").peak("fp32") < rate < find_gpu("m40").peak("fp32")


def test_a_product_with_the_input_comes_on_top_once_for_all_steps() -> None:
    wider = replace(LAYER, inputs=1024)
    added_s = cost_s("v100-sxm2-16gb", wider) - cost_s("v100-sxm2-16gb", LAYER)
    flop = wider.flop - LAYER.flop
    assert flop / find_gpu("v100-sxm2-16gb").peak("fp32") < added_s < 0.5 * cost_s("v100-sxm2-16gb", LAYER)


def test_half_precision_is_faster_on_matrix_units_alone() -> None:
    large = replace(LAYER, hidden=2048)
    half = replace(large, precision="fp16")
    assert cost_s("v100-sxm2-16gb", half) < 0.8 * cost_s("v100-sxm2-16gb", large)
    with pytest.raises(InputError, match="no peak rate for bf16"):
        cost_s("v100-sxm2-16gb", replace(large, precision="bf16"))


def test_a_measured_layer_takes_no_product_with_its_input() -> None:
    row = {
        "device": "m40",
        "op": "gru",
        "phase": "fwd",
        "dtype": "fp32",
        "batch": "32",
        "timesteps": "5",
        "hidden": "9",
    }
    asked = read_operator(lambda column: row.get(column, ""), RowNames()).question
    assert isinstance(asked, OperatorQuestion)
    assert asked.operator.flop == 2 * 5 * 32 * 3 * 9 * 9


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_weight"])
def test_no_batch_beats_the_peak(direction: Literal["fwd", "bwd_data"], precision: Literal["fp32", "fp16"]) -> None:
    wide = replace(LAYER, direction=direction, precision=precision, batch=4096, hidden=4096)
    assert wide.flop / cost_s("v100-sxm2-16gb", wide) < find_gpu("v100-sxm2-16gb").peak(precision)


@pytest.mark.slow
@pytest.mark.corpus
def test_errors_against_measurements(corpus: Path) -> None:
    names = RowNames()
    (family,) = [family for family in FAMILIES if family.name == "recurrence"]
    rows = rows_of(family, read_rows([str(corpus / "ops.csv")], names, {"operators"}))
    errors = [abs(error) for error in fit_errors(rows, names.session, DEFAULT) if error is not None]
    assert len(errors) > 900
    assert statistics.mean(errors) < 0.25
    assert statistics.median(errors) < 0.16


PERSISTENT = Recurrence("lstm", 32, 50, 256, 256, "fwd", "fp16")


def test_a_persistent_kernel_passes_the_batch_in_groups() -> None:
    """On an H200, 50 steps of 256 numbers took 83 us with 16 sequences and 147 us with 32 (torch 2.11, cuDNN 9.19)."""
    half, whole = (cost_s("h200-sxm", replace(PERSISTENT, batch=n)) for n in (16, 32))
    assert half == pytest.approx(82.9e-6, rel=0.15)
    assert whole == pytest.approx(146.8e-6, rel=0.15)
    clocks = 50 * (RECURRENCE.group_clocks + 256 * RECURRENCE.k_clocks)
    assert whole - half == pytest.approx(clocks / find_gpu("h200-sxm").light_clock_Hz, rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [{"precision": "bf16"}, {"cell": "gru"}, {"hidden": 2048}, {"hidden": 320}, {"batch": 12}, {"batch": 136}],
)
def test_pytorch_asks_for_it_where_it_is_known_to_be_faster(changes: dict[str, Any]) -> None:
    device = find_gpu("h200-sxm")
    assert recurrence_cost(device, PERSISTENT).detail == "persistent"
    assert recurrence_cost(device, replace(PERSISTENT, **changes)).detail == "step by step"


def test_small_chips_and_old_ones_go_step_by_step() -> None:
    for device in ("v100-sxm2-16gb", "rtx-3090", "l4"):
        assert recurrence_cost(find_gpu(device), PERSISTENT).detail == "step by step"
