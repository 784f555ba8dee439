"""The fit of products: rows made with known constants give them back, and what is left out stays as assumed."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from simulator.devices.gpu.gemm_tiles import GEMM
from simulator.workload.operators import Linear, MatMul
from simulator.workload.precision import Precision
from validate.fit.operators.gemm import fit_gemm, predicted_gemm, spread_rows
from validate.fit.operators.rows import Measured, read_measured
from validate.operators.devices import find_gpu
from validate.operators.query import OperatorQuery

pytest.importorskip("scipy")


def row(device: str, operator: Linear | MatMul, precision: Precision = "fp32") -> Measured:
    gpu = find_gpu(device)
    assert gpu is not None
    op = "linear" if isinstance(operator, Linear) else "matmul"
    return Measured(OperatorQuery(device, op, operator, "fwd", precision, False), gpu, 1.0, "made")


def test_a_fit_finds_the_constant_that_rows_were_made_with() -> None:
    truth = replace(GEMM, walks_early=2.0 * GEMM.walks_early)
    shapes = [Linear(m, k, n) for m in (1024, 4096) for n in (1024, 3072) for k in (16384, 32768, 65536)]
    shapes += [Linear(m, k, 2048) for m in (512, 2048, 8192) for k in (512, 1024, 2048)]
    rows = [row(device, shape) for device in ("p100-pcie-16gb", "titan-xp") for shape in shapes]
    rows = [replace(r, time_s=predicted_gemm(r, truth)) for r in rows]
    assert max(abs(predicted_gemm(r) / r.time_s - 1.0) for r in rows) > 0.3
    found = fit_gemm(rows, max_evaluations=12).constants
    assert max(abs(predicted_gemm(r, found) / r.time_s - 1.0) for r in rows) < 0.1
    assert found.walks_early == pytest.approx(truth.walks_early, rel=0.2)


def test_each_device_and_operator_counts_alike() -> None:
    rows = [row("t4", Linear(64, 64, 64 + i)) for i in range(500)] + [row("p4", Linear(64, 64, 64))] * 3
    chosen = spread_rows(rows, 50)
    assert len(chosen) == 53
    assert [r.query.operator for r in chosen[:2]] == [Linear(64, 64, 64), Linear(64, 64, 74)]


def test_products_on_tensor_cores_since_ampere_are_those_of_another_fit() -> None:
    shape = Linear(512, 512, 512)
    before, since = row("t4", shape, "fp16"), row("a100-sxm4-80gb", shape, "fp16")
    both, one = (fit_gemm(rows, max_evaluations=2) for rows in ([since, before], [before]))
    assert both.spread == one.spread
    assert asdict(both.constants) == asdict(one.constants)


def test_a_table_is_read_by_grade_and_operator(tmp_path: object) -> None:
    table = tmp_path / "ops.csv"  # type: ignore[operator]
    table.write_text(
        "device,op,variant,dtype,m,n,k,rows,cols,time_s,trust,dataset\n"
        "t4,linear,,fp32,64,32,16,,,1e-3,A,x\n"
        "t4,linear,,fp32,64,32,16,,,1e-3,C,x\n"
        "t4,softmax,,fp32,,,,8,8,1e-3,A,x\n"
        "nothing,linear,,fp32,64,32,16,,,1e-3,A,x\n"
        "t4,matmul,TN,fp32,64,32,16,,,2e-3,A,x\n"
    )
    linear, blas = read_measured(table, ops=("linear", "matmul"))
    assert (linear.gpu.name, linear.time_s, linear.query.operator) == ("t4", 1e-3, Linear(64, 16, 32))
    # BLAS counts columns first: C^T = B^T A^T in row-major order, both operands along k.
    assert blas.query.operator == MatMul(32, 64, 16, 1, "NT")
