"""The fit of attention: rows made with known constants give them back; it takes what it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from simulator.workload.operators import Attention
from validate.fit.operators.attention import Constants, fit_attention, is_fitted, is_held_out, predicted_s
from validate.fit.operators.rows import Measured
from validate.operators.devices import find_gpu
from validate.operators.query import OperatorQuery

pytest.importorskip("scipy")


def row(
    batch: int, heads: int, length: int, head: int = 128, kv_heads: int = 0, *, device: str = "h200-sxm", by: str = ""
) -> Measured:
    gpu = find_gpu(device)
    assert gpu is not None
    shape = Attention(batch, heads, length, length, head, kv_heads, True, "native")
    query = OperatorQuery(device, "attention", shape, "fwd", "bf16", False, by or "sglang 0.5.9", issued="graph")
    return Measured(query, gpu, 1.0, "made")


def test_a_fit_finds_the_constants_that_rows_were_made_with() -> None:
    truth = replace(Constants(), products=0.45, block_clocks=9000.0)
    shapes = [row(b, h, n, d) for b, h, n, d in product((4, 32), (8, 32), (128, 256, 1024, 8192), (64, 128))]
    rows = [replace(shape, time_s=predicted_s(shape, truth)) for shape in shapes]
    assert max(abs(predicted_s(r) / r.time_s - 1.0) for r in rows) > 0.3
    found = fit_attention(rows).constants  # softly held to what is assumed, and rows are few
    assert max(abs(predicted_s(r, found) / r.time_s - 1.0) for r in rows) < 0.12
    assert found.products == pytest.approx(truth.products, rel=0.12)
    assert found.block_clocks > 1.4 * Constants().block_clocks


def test_which_rows_count() -> None:
    assert is_fitted(row(8, 32, 1024))
    assert not is_fitted(row(8, 32, 1024, by="vllm 0.14.0"))
    assert not is_fitted(row(8, 32, 64))
    assert not is_fitted(row(1, 1, 8192))  # its keys are divided
    assert is_fitted(row(1, 1, 128))
    assert is_fitted(row(8, 32, 1024, kv_heads=8))
    assert not is_fitted(row(8, 32, 1024, kv_heads=8, device="a100-sxm4-80gb"))


def test_a_shape_of_sixteen_is_held_out() -> None:
    rows = [row(b, h, n) for b, h, n in product((1, 2, 4, 8), (1, 2, 4, 8, 16), range(128, 2048, 64))]
    held = sum(is_held_out(r) for r in rows)
    assert 0.04 < held / len(rows) < 0.09
    assert not any(is_fitted(r) for r in rows if is_held_out(r))
