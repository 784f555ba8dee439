"""Passes of a step that are no layers are measured as what they say they are, and read so from a table."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from simulator.api.calibrations import longest_kernel
from simulator.questions.single import OperatorQuestion
from simulator.workload.kernels import Rowwise, Streaming
from tests.unit.test_chosen_operators import CHOSEN
from validate.kinds.operators import read_operator
from validate.machine.measure import bench as benches
from validate.machine.measure.bench import recorded
from validate.machine.measure.cases.operators import _Operator
from validate.machine.measure.cases.shapes import sized
from validate.machine.measure.cases.stepping import _mend_compiler
from validate.machine.measure.table import COLUMNS
from validate.tables.names import RowNames

Cells = dict[str, str | int]


def run(**cells: str | int) -> Any:
    operator = _Operator({"phase": "fwd", "dtype": "fp32", "rows": 6, "cols": 8, **cells}, torch.device("cpu"))
    with torch.no_grad():
        call: Callable[[], Any] = operator.made()
    return call()


def test_a_cast_writes_its_format() -> None:
    assert run(op="cast", variant="fp32", dtype="bf16").dtype == torch.float32
    assert run(op="cast", variant="bf16").dtype == torch.bfloat16
    for variant in ("add_mixed", "mul_mixed"):
        assert run(op="elementwise", variant=variant, dtype="bf16").dtype == torch.float32


def test_an_operand_is_broadcast_over_rows() -> None:
    assert tuple(run(op="elementwise", variant="add_broadcast", rows=1, cols=3072).shape) == (3, 1024)
    assert run(op="elementwise", variant="mul_broadcast", dtype="bf16").dtype == torch.bfloat16


def test_a_transposed_copy_is_contiguous() -> None:
    found = run(op="copy", variant="transposed")
    assert (tuple(found.shape), found.is_contiguous()) == ((8, 6), True)
    assert tuple(run(op="copy", variant="strided", rows=1, cols=3072).shape) == (16, 3, 64)


def test_a_sum_is_of_columns() -> None:
    assert tuple(run(op="sum", rows=5, cols=7).shape) == (5,)


@pytest.mark.parametrize("variant", ["relu", "tanh", "gelu", "silu", "dropout"])
def test_the_gradient_of_a_function_is_one_kernel(variant: str) -> None:
    assert tuple(run(op="elementwise", variant=variant, phase="bwd").shape) == (6, 8)


@pytest.mark.parametrize("variant", ["where", "div_scalar", "pow_scalar", "silu"])
def test_functions_keep_the_size(variant: str) -> None:
    for rows in (1, 6):
        assert run(op="elementwise", variant=variant, rows=rows).numel() == 8 * rows


@pytest.mark.parametrize("rule", ["momentum", "momentum-fused"])
def test_an_update_changes_all_its_parameters(rule: str) -> None:
    cells: Cells = {"op": "update", "variant": rule, "phase": "fwd", "dtype": "fp32", "rows": 2, "cols": 8}
    step: Any = _Operator(cells, torch.device("cpu")).made()
    before = [each.detach().clone() for group in step.__self__.param_groups for each in group["params"]]
    step()
    after = [each for group in step.__self__.param_groups for each in group["params"]]
    assert len(before) == 2
    assert not any(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("phase", ["fwd", "bwd"])
@pytest.mark.parametrize("op", ["max_pool", "batch_norm"])
def test_images_lie_by_pixels_where_they_say_so(op: str, phase: str) -> None:
    sizes: Cells = {"batch": 2, "c_in": 4, "h_in": 6, "w_in": 6, "kernel_h": 2, "stride": 2, "pad": 0}
    found = run(op=op, variant="channels_last", phase=phase, **sizes)
    found = found if phase == "fwd" else found[0]
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_every_chosen_operator_has_a_case_and_columns() -> None:
    for cells in CHOSEN:
        assert hasattr(_Operator, cells["op"])
        assert {*cells} <= {*COLUMNS["ops.csv"]}
        assert sized(cells).bytes > 0


def kernel(**cells: str | int) -> Any:
    told = {"phase": "fwd", "rows": "1", "cols": "1000", "device": "h200-sxm"} | {n: str(v) for n, v in cells.items()}
    asked = read_operator(lambda column: told.get(column, ""), RowNames()).question
    assert isinstance(asked, OperatorQuestion)
    return longest_kernel(RowNames().session, asked).kernel


def test_a_row_of_a_pass_asks_for_its_bytes() -> None:
    for dtype, to, read, written in (("bf16", "fp32", 2, 4), ("fp32", "bf16", 4, 2)):
        found = kernel(op="cast", variant=to, dtype=dtype)
        assert isinstance(found, Streaming)
        assert (found.read_bytes, found.written_bytes) == (1000 * read, 1000 * written)
        assert found.form == ("casts" if to == "fp32" else "")
    assert kernel(op="update", variant="adam-fused", dtype="fp32").read_bytes == 16_000  # with gradient and moments
    assert kernel(op="elementwise", variant="add_mixed", dtype="bf16").read_bytes == 6_000
    assert kernel(op="elementwise", variant="mul_widened", dtype="bf16").read_bytes == 2_000
    found = kernel(op="elementwise", variant="mul_broadcast", dtype="bf16")
    assert (found.bytes, found.form) == (4_000, "strided")
    summed = kernel(op="sum", variant="channels_last", rows=64, dtype="bf16")
    assert isinstance(summed, Rowwise)
    assert (summed.kind, summed.channels_last) == ("sum", True)


def test_a_graph_of_nothing_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch only warns of it, and its replays would take no time."""
    import warnings

    class Capture:
        def __init__(self, graph: Any, pool: Any = None) -> None:
            del graph, pool

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            warnings.warn("The CUDA Graph is empty. This usually means", UserWarning, stacklevel=1)

    cuda = SimpleNamespace(graph=Capture, graph_pool_handle=lambda: 0)
    monkeypatch.setattr(benches, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(benches, "_recover", lambda _: None)
    with pytest.raises(RuntimeError, match="nothing was captured"), recorded(object()):
        pass
    with pytest.raises(ValueError, match="its own"), recorded(object()):
        raise ValueError("its own")


def test_a_compiler_that_raises_without_arguments_tries_another_way() -> None:
    simd = pytest.importorskip("torch._inductor.codegen.simd")
    _mend_compiler()
    assert isinstance(simd.CantSplit(), simd.CantSplit)
