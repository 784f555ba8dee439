"""The fit of products on tensor cores: rows made with known constants give them back; it takes what it knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.devices.gpu.tensor_product import TENSOR_PRODUCTS, TensorProducts
from simulator.workload.operators import Linear
from simulator.workload.precision import Precision
from validate.fit.operators.rows import Measured
from validate.fit.operators.tensor_product import fit_tensor_product, is_held_out, predicted_s, usable
from validate.importing.tables import DATASET
from validate.operators.devices import find_gpu
from validate.operators.query import OperatorQuery

pytest.importorskip("scipy")


def row(device: str, operator: Linear, precision: Precision = "bf16", *, cold: bool = True) -> Measured:
    gpu = find_gpu(device)
    assert gpu is not None
    query = OperatorQuery(device, "linear", operator, "fwd", precision, False, is_cold=cold, issued="graph")
    return Measured(query, gpu, 1.0, "made")


def made(rows: list[Measured], truth: TensorProducts) -> list[Measured]:
    return [replace(row, time_s=predicted_s(row, truth)) for row in rows]


def test_a_fit_finds_the_constants_that_rows_were_made_with() -> None:
    costs = TENSOR_PRODUCTS.warps
    truth = replace(
        TENSOR_PRODUCTS,
        warps=replace(costs, start_clocks=1.6 * costs.start_clocks, latency_s=2.0 * costs.latency_s),
    )
    shapes = [Linear(m, k, n, bias=False) for m in (1, 64, 512) for n in (64, 1024, 8192) for k in (64, 1024, 8192)]
    rows = made([row("h200-sxm", shape, cold=cold) for shape in shapes for cold in (False, True)], truth)
    assert max(abs(predicted_s(r) / r.time_s - 1.0) for r in rows) > 0.3
    found = fit_tensor_product(rows, max_evaluations=12).constants
    assert max(abs(predicted_s(r, found) / r.time_s - 1.0) for r in rows) < 0.1
    assert found.warps.start_clocks == pytest.approx(truth.warps.start_clocks, rel=0.1)
    assert found.copies is TENSOR_PRODUCTS.copies


def test_rows_of_other_hardware_do_not_count() -> None:
    shape = Linear(256, 256, 256, bias=False)
    assert usable(row("a100-sxm4-80gb", shape))
    assert not usable(row("a100-sxm4-80gb", shape, "fp32"))
    assert not usable(row("t4", shape, "fp16"))
    assert fit_tensor_product([row("t4", shape, "fp16")]).constants is TENSOR_PRODUCTS


def test_a_row_is_cold_and_comes_from_a_graph_as_it_says() -> None:
    shape = Linear(64, 1024, 8192, bias=False)
    cold, warm = (row("l40s", shape, cold=is_cold) for is_cold in (True, False))
    assert predicted_s(cold) > 1.5 * predicted_s(warm)
    called = replace(warm, query=replace(warm.query, issued=""))
    assert predicted_s(called) == pytest.approx(predicted_s(warm) + 0.8e-6)


def test_published_shapes_held_out_do_not_count() -> None:
    shapes = [Linear(m, k, 4096, bias=False) for m in (16, 32, 64, 96, 128) for k in (256, 512, 768, 1024, 2048)]
    rows = [replace(row("h200-sxm", shape), dataset=DATASET) for shape in shapes]
    held_out = [r for r in rows if is_held_out(r)]
    assert 0 < len(held_out) < len(rows) / 4
    assert fit_tensor_product(held_out).constants is TENSOR_PRODUCTS
    assert not any(is_held_out(replace(r, dataset="ours")) for r in rows)
