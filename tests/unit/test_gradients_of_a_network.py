"""A network as the size of an exchange: its gradients in the type asked for, and options that need its step."""

from __future__ import annotations

import pytest

from simulator import simulate
from simulator.cli import run
from simulator.workload.parse import parse_workload


@pytest.mark.parametrize(("dtype", "width"), [("fp32", 4), ("tf32", 4), ("bf16", 2), ("fp64", 8), ("fp8", 1)])
def test_gradients_are_elements_of_the_type(dtype: str, width: int) -> None:
    payload = parse_workload("resnet50").in_type(dtype)
    assert payload.sizes == (25_557_032 * width,)
    assert payload.description == f"25,557,032 gradients in {dtype}"
    assert parse_workload("bytes:1MB").in_type(dtype).sizes == (1_000_000,)


def test_python_exchanges_the_type_asked_for() -> None:
    sizes = [
        simulate("p3.16xlarge", workload="resnet50", strategy="ring", dtype=dtype).size_bytes
        for dtype in ("fp32", "bf16")
    ]
    assert sizes == [102_228_128, 51_114_064]


@pytest.mark.parametrize("option", [("--precision", "fp16"), ("--straggler", "gpu0:2x"), ("--mtbf", "3h")])
def test_options_of_a_step_beside_a_size_advise_a_network(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--topology", "p3.16xlarge", "--workload", "bytes:1GB", *option]) == 2
    told = capsys.readouterr().err
    assert "name a network" in told
    assert "add --batch" not in told
