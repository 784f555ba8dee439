"""Products of experts: equal and unequal groups, in one kernel, on streams, or one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.devices.predict import cold_device, kernel_cost
from simulator.errors import InputError
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.step.issue import launches_of
from simulator.workload.kernels import Gemm, kernel_class
from simulator.workload.operators import GroupedGemm, GroupedLinear, Linear
from simulator.workload.zoo.registry import build_network
from validate.kinds.operators import read_operator
from validate.tables.names import RowNames

H100 = Session().device(Where("dgx-h100"))
A100 = Session().device(Where("dgx-a100-80gb"))
GROUPINGS = ("kernel", "streams", "loop")


def time_s(kernel: Gemm, device=H100) -> float:
    return kernel_cost(device, kernel).time_s


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("phase", ["fwd", "bwd_data", "bwd_weight"])
def test_groups_have_the_flops_of_their_rows_however_unequal(grouping: str, phase: str) -> None:
    inputs, outputs, experts = 1024, 512, 8
    for rows, busiest in ((8192, 0), (8192, 3992), (8 * 100, 100), (4000, 4000), (5, 0), (5, 3)):
        layer = GroupedLinear(rows, inputs, outputs, False, experts, busiest, grouping)
        layer.check()
        (kernel,) = layer.kernels(phase, "bf16")
        sizes = [busiest, *[-(-(rows - busiest) // max(1, min(7, rows - busiest)))] * min(7, rows - busiest)]
        if not busiest:
            sizes = [-(-rows // min(experts, rows))] * min(experts, rows)
        assert kernel.flop == 2 * inputs * outputs * sum(sizes)
        assert layer.flop == 2 * inputs * outputs * rows <= kernel.flop


@pytest.mark.parametrize("device", [H100, A100], ids=["h100", "a100"])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_one_expert_is_a_linear_layer(grouping: str, device) -> None:
    (alone,) = Linear(4096, 2048, 1024, bias=False).kernels("fwd", "bf16")
    (grouped,) = GroupedLinear(4096, 2048, 1024, False, 1, grouping=grouping).kernels("fwd", "bf16")
    assert time_s(grouped, device) == pytest.approx(time_s(alone, device), rel=0.15)
    assert kernel_class(grouped) == kernel_class(alone) == "gemm"


@pytest.mark.parametrize("device", [H100, A100], ids=["h100", "a100"])
def test_streams_are_between_one_kernel_and_a_loop(device) -> None:
    for rows in (64, 300, 1000, 5000):
        kernel, streams, loop = (
            time_s(GroupedGemm(rows, 3072, 5120, "bf16", 16, "NT", grouping=grouping), device) for grouping in GROUPINGS
        )
        assert kernel <= streams * 1.0001
        assert streams <= loop * 1.0001


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_unequal_groups_take_no_less_than_equal_ones(grouping: str) -> None:
    rows, experts = 16384, 8
    times = []
    for busiest in (0, 4096, 8192, 16384 - 7):
        (kernel,) = GroupedLinear(rows, 4096, 4096, False, experts, busiest, grouping).kernels("fwd", "bf16")
        times.append(time_s(kernel))
    assert times[0] <= 1.02 * min(times[1:])


@pytest.mark.parametrize(("experts", "rows", "measured"), [(8, 4096, 650.574 / 627.903), (16, 2048, 636.927 / 553.945)])
def test_products_on_streams_lose_to_a_grouped_product_what_was_measured(
    experts: int, rows: int, measured: float
) -> None:
    """CUTLASS's grouped product against Transformer Engine's streams (NVIDIA/TransformerEngine#2045, TE 2.7)."""
    streams, kernel = (
        time_s(GroupedGemm(rows, 768, 2048, "bf16", experts, "NT", grouping=g)) for g in ("streams", "kernel")
    )
    assert streams / kernel == pytest.approx(measured, abs=0.08)
    assert kernel == pytest.approx(2 * experts * rows * 768 * 2048 / 650e12, rel=0.05)  # TFLOP/s measured there


def test_results_that_are_added_to_move_twice() -> None:
    plain, adds = (GroupedGemm(3072, 5120, 154, "bf16", 160, "TN", out_bytes=4, adds=a) for a in (False, True))
    assert adds.bytes - plain.bytes == 160 * 3072 * 5120 * 4
    cold = cold_device(H100)
    more_s = kernel_cost(cold, adds).time_s - kernel_cost(cold, plain).time_s
    assert more_s == pytest.approx(160 * 3072 * 5120 * 4 / H100.memory_bandwidth_Bps, rel=0.4)


def test_megatron_adds_gradients_of_weights_to_its_buffer() -> None:
    network = build_network("llama3-8b", batch=1, loss=True, sequence_length=4096, layers=1)
    options = {"precision": "master-bf16", "optimizer": "adam", "fused_optimizer": True, "framework": "megatron"}
    times = {
        how: {
            issue.name: issue.device_s
            for issue in launches_of(H100, network, StepOptions(**options, accumulation=how))
            if issue.part == "backward"
        }
        for how in ("product", "add")
    }
    assert times["product"]["layers.0.gate"] > times["add"]["layers.0.gate"]  # of gate and up, which are one product
    assert times["product"]["layers.0.attention"] == times["add"]["layers.0.attention"]


def read(**cells: str):
    row = {"device": "h100-sxm5-80gb", "dtype": "bf16", "batch": "8", "m": "512", "n": "1024", "k": "2048", **cells}
    return read_operator(lambda column: row.get(column, ""), RowNames()).question


def test_rows_of_tables_are_groups() -> None:
    asked = read(op="grouped_linear", phase="bwd_weight")
    assert asked.operator == GroupedLinear(8 * 512, 2048, 1024, False, 8)
    assert read(op="grouped_linear", rows="612").operator == GroupedLinear(8 * 512 + 100, 2048, 1024, False, 8, 612)
    assert read(op="grouped_linear", variant="loop").operator.grouping == "loop"
    for letters, phase in (("NT", "fwd"), ("NN", "bwd_data"), ("TN", "bwd_weight")):
        te = read(op="bmm", variant=letters, software="transformer_engine 2.11")
        assert (te.phase, te.operator.grouping, te.operator.into_buffer) == (phase, "streams", True)
        assert not isinstance(read(op="bmm", variant=letters).operator, GroupedLinear)


def test_a_busiest_expert_that_cannot_be_is_refused() -> None:
    for words in ("busiest=100", "busiest=9000"):
        with pytest.raises(InputError, match="the busiest of 8 experts has 1024 to 8192 of 8192 rows"):
            parse_question(f"op:grouped_linear,rows=8192,inputs=64,outputs=64,experts=8,{words}", Where("dgx-h100"))


def test_fused_passes_move_what_a_hand_counts() -> None:
    def bytes_of(op: str, phase: str = "fwd", **cells: str) -> list[tuple[int, int]]:
        asked = read(op=op, phase=phase, rows="64", cols="32", batch="4", **cells)
        return [(k.read_bytes, k.written_bytes) for k in asked.operator.kernels(asked.phase, asked.precision)]

    n = 2 * 64 * 32
    assert bytes_of("permute") == bytes_of("permute", "bwd", variant="back") == [(n, 4 * n)]
    assert bytes_of("permute", "bwd") == bytes_of("permute", variant="back") == [(4 * n, n)]
    assert bytes_of("rotary") == bytes_of("rotary", "bwd") == [(n, n)]
    assert (bytes_of("gated"), bytes_of("gated", "bwd")) == ([(2 * n, n)], [(3 * n, 2 * n)])
    plain, in_place = (
        read(op="cross_entropy", rows="64", cols="32"),
        read(op="cross_entropy", rows="64", cols="32", variant="in-place"),
    )
    assert (type(plain.operator).__name__, type(in_place.operator).__name__) == ("CrossEntropy", "InPlaceCrossEntropy")


def test_products_in_32_bits_are_called_one_by_one() -> None:
    """On an H200, 128 products of 256 rows and 1,536 x 2,048 weights take 2.1 to 2.3 ms in tf32, 6.0 to 6.3 in fp32."""
    one = GroupedGemm(256, 2048, 1536, "tf32", 128, "NN")
    loop = replace(one, grouping="loop")
    assert time_s(one) == time_s(loop) == pytest.approx(2.2e-3, rel=0.3)
    assert time_s(replace(one, precision="fp32")) == pytest.approx(6e-3, rel=0.2)
    assert time_s(replace(one, precision="bf16")) < time_s(replace(loop, precision="bf16"))
