"""Kernels that inference frameworks run around attention."""

from __future__ import annotations

import pytest

from simulator.api import Session
from simulator.constants import DEFAULT
from simulator.devices.dispatch import in_graph
from simulator.devices.predict import kernel_cost
from simulator.questions.single import OperatorQuestion
from simulator.step.operator import operator_kernels
from simulator.workload.kernels import Streaming
from simulator.workload.operators import Attention, Copy
from validate.constants.families import countable, device_rows
from validate.kinds.kind import RowQuestion
from validate.kinds.operators import OPERATORS, read_operator
from validate.kinds.timing import TimingCosts, attention_library, cache_warps, copied_besides
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.table import read_table

SHAPE = Attention(8, 32, 1024, 1024, 128, 8, True)
CACHE_BYTES = 2 * 8 * 8 * 1024 * 128 * 2  # keys and values of 8 heads, 16 bit


@pytest.mark.parametrize(
    ("software", "library"),
    [
        ("", "flash2"),
        ("torch 2.10.0+cu128", "flash2"),
        ("torch 2.11.0", "native"),
        ("PyTorch 2.5.0a0+e000cf0ad9", "flash2"),
        ("llm-foundry/Composer, PyTorch FSDP, FlashAttention", "flash2"),
        ("vllm 0.14.0", "native"),
        ("cudnn 1.21.1 backend 92200.000", "flash4"),
        ("cudnn 1.14.0 backend 91300", "native"),
        ("cuDNN 9.14.0", "flash4"),
        ("cudnn 8.9.7", "native"),
        ("FlashAttention-4", "flash4"),
        ("sglang 0.5.9", "native"),
        ("trtllm 1.2.0rc5", "fmha2"),
        ("NeMo / Megatron dgxc v25.04", "native"),
    ],
)
def test_software_says_whose_kernels_run(software: str, library: str) -> None:
    assert attention_library(software) == library


@pytest.mark.parametrize(
    ("software", "read_bytes"),
    [
        ("sglang 0.5.9", CACHE_BYTES),
        ("vllm 0.14.1", CACHE_BYTES),
        ("vllm 0.19.0", 0),
        ("trtllm 1.2.0rc5", 3 * CACHE_BYTES),  # and queries of 32 heads
        ("torch 2.10", 0),
    ],
)
def test_the_cache_is_written_too(software: str, read_bytes: int) -> None:
    kernels = Copy(copied_besides(SHAPE, software)).kernels("fwd", "bf16")
    assert sum(kernel.read_bytes for kernel in kernels if isinstance(kernel, Streaming)) == read_bytes


def test_blocks_that_write_a_token_each_take_their_time() -> None:
    """Of 8 heads, 512 threads for each token: 16 warps, of which an SM has 4 blocks at a time."""
    assert cache_warps(SHAPE, "vllm 0.14.0") == 16 * 8 * 1024
    assert cache_warps(SHAPE, "vllm 0.19.0") == cache_warps(SHAPE, "sglang 0.5.9") == 0
    cells = {"device": "h200-sxm", "op": "attention", "variant": "causal", "dtype": "bf16", "batch": "512"}
    cells |= {"m": "128", "n": "128", "k": "128", "heads": "4", "kv_heads": "4", "issue": "graph"}
    names = RowNames()
    times = [
        read_operator(lambda column, of=software: {**cells, "software": of}.get(column, ""), names).time_s(
            names.session
        )
        for software in ("vllm 0.12.0", "sglang 0.5.10")
    ]
    assert times[0] - times[1] == pytest.approx(105e-6, rel=0.2)  # 157 and 52 us (docs/published.md)


def test_a_row_is_predicted_with_what_runs_besides() -> None:
    cells = {"device": "h200-sxm", "op": "attention", "variant": "causal", "dtype": "bf16", "batch": "256"}
    cells |= {"m": "1024", "n": "1024", "k": "128", "heads": "32", "kv_heads": "8", "issue": "graph"}
    names = RowNames()

    def asked(software: str) -> RowQuestion:
        return read_operator(lambda column: {**cells, "software": software}.get(column, ""), names)

    native, serving = asked("cudnn"), asked("sglang 0.5.9")
    assert native.question == serving.question
    assert native.besides == ()
    (besides,) = serving.besides
    assert isinstance(besides, OperatorQuestion)
    (kernel,) = operator_kernels(besides)
    gpu = names.device("h200-sxm")
    copied_s = in_graph(gpu, kernel_cost(gpu, kernel).time_s)
    besides_s = serving.time_s(names.session) - native.time_s(names.session)
    assert besides_s == pytest.approx(DEFAULT(TimingCosts).replay_s + copied_s)
    assert asked("torch 2.8").time_s(names.session) > 1.3 * native.time_s(names.session)


def test_one_query_a_sequence_is_not_scored() -> None:
    cells = {"device": "h200-sxm", "op": "attention", "dtype": "bf16", "batch": "32", "m": "1", "n": "4096", "k": "128"}
    with pytest.raises(NotScored, match="decode"):
        read_operator(lambda column: cells.get(column, ""), RowNames())
    found = read_operator(lambda column: {**cells, "n": "1"}.get(column, ""), RowNames()).question
    assert isinstance(found, OperatorQuestion)
    assert found.operator.flop > 0


def test_attention_for_serving_calibrates_nothing() -> None:
    """The framework's own kernels would be taken for the device's speed, and distort predictions of training steps."""
    head = "device,op,variant,dtype,batch,m,n,k,time_s,trust,software\n"
    row = "h200-sxm,attention,causal,bf16,256,1024,1024,128,1e-3,A,{}\n"
    text = head + "".join(row.format(software) for software in ("vllm 0.19.0", "torch 2.10.0", "sglang 0.5.9"))
    table = read_table(text.encode(), "made.csv", OPERATORS.needed, OPERATORS.columns, OPERATORS.name)
    names = RowNames()
    (rows,) = device_rows(table, names).values()
    kept = countable(rows, names.session, ("A",))
    assert [found.cells["software"] for found in kept] == ["torch 2.10.0"]
    assert ["serving" in row.skipped for row in rows] == [True, False, True]


def test_transformer_engines_attention_spans_what_its_host_launches_before() -> None:
    row = {
        "device": "b200",
        "op": "attention",
        "dtype": "bf16",
        "batch": "8",
        "heads": "8",
        "m": "4096",
        "n": "4096",
        "k": "128",
    }
    plain, engine = (
        OPERATORS.read(lambda column, row={**row, "software": software}: row.get(column, ""), RowNames())
        for software in ("cudnn 8.9.7", "transformer_engine 2.11")
    )
    session = Session()
    assert engine.time_s(session) - plain.time_s(session) == pytest.approx(DEFAULT(TimingCosts).te_attention_s)
