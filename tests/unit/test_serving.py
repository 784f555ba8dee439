"""What frameworks for inference run around attention."""

from __future__ import annotations

import pytest

from simulator.devices.kernels import Streaming
from simulator.devices.predict import kernel_cost
from simulator.workload.operators import Attention
from validate.calibrate.rows import countable, device_rows
from validate.operators.devices import DeviceBook, find_gpu
from validate.operators.predict import as_issued, operator_kernels, predict_operator
from validate.operators.query import OperatorQuery, read_query
from validate.operators.scorer import OPERATORS
from validate.operators.serving import REPLAY_S, attention_library, kernels_besides
from validate.score.query import NotScored
from validate.score.table import read_table

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
        ("sglang 0.5.9", "native"),
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
    found = kernels_besides(SHAPE, "bf16", software)
    assert sum(kernel.read_bytes for kernel in found if isinstance(kernel, Streaming)) == read_bytes


def test_a_row_is_predicted_with_what_runs_besides() -> None:
    cells = {"device": "h200-sxm", "op": "attention", "variant": "causal", "dtype": "bf16", "batch": "256"}
    cells |= {"m": "1024", "n": "1024", "k": "128", "heads": "32", "kv_heads": "8", "issue": "graph"}

    def query(software: str) -> OperatorQuery:
        return read_query(lambda column: cells.get(column, software if column == "software" else ""))

    gpu = find_gpu("h200-sxm")
    assert gpu is not None
    native, serving = query("cudnn"), query("sglang 0.5.9")
    assert native.operator == serving.operator
    assert len(operator_kernels(serving)) == 1 + len(operator_kernels(native))
    besides_s = predict_operator(gpu, serving) - predict_operator(gpu, native)
    copied_s = as_issued(gpu, kernel_cost(gpu, operator_kernels(serving)[0]).time_s, serving)
    assert besides_s == pytest.approx(REPLAY_S + copied_s)
    assert predict_operator(gpu, query("torch 2.8")) > 1.3 * predict_operator(gpu, native)


def test_one_query_a_sequence_is_not_scored() -> None:
    cells = {"device": "h200-sxm", "op": "attention", "dtype": "bf16", "batch": "32", "m": "1", "n": "4096", "k": "128"}
    with pytest.raises(NotScored, match="decode"):
        read_query(lambda column: cells.get(column, ""))
    assert read_query(lambda column: {**cells, "n": "1"}.get(column, "")).operator.flop > 0


def test_attention_for_serving_calibrates_nothing() -> None:
    """What runs along, and whose kernel it is, would be taken for the device, and carried into steps of training."""
    head = "device,op,variant,dtype,batch,m,n,k,time_s,trust,software\n"
    row = "h200-sxm,attention,causal,bf16,256,1024,1024,128,1e-3,A,{}\n"
    text = head + "".join(row.format(software) for software in ("vllm 0.19.0", "torch 2.10.0", "sglang 0.5.9"))
    table = read_table(text.encode(), "made.csv", OPERATORS.needed, OPERATORS.read, OPERATORS.name)
    book, skipped = DeviceBook(), []
    (rows,) = device_rows(table, book).values()
    gpu = find_gpu("h200-sxm")
    assert gpu is not None
    kept = countable(table, rows, gpu, ("A",), lambda record, reason: skipped.append(reason))
    assert [found.query.software for found in kept] == ["torch 2.10.0"]
    assert len(skipped) == 2
    assert all("serving" in reason for reason in skipped)
