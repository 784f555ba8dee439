"""What attention sees: windows, in all blocks or in some, and documents packed into a sequence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import simulate
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.workload.find import find_network
from simulator.workload.network import Network
from simulator.workload.operators import Attention
from simulator.workload.zoo.registry import build_network

LLAMA = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --swiglu "
    "--seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 8 --bf16 "
    "--vocab-size 32000 "
    "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear --transformer-impl transformer_engine"
)


def windows(network: Network) -> list[int]:
    return [layer.operator.window for layer in network.layers if isinstance(layer.operator, Attention)]


def test_the_last_of_so_many_blocks_sees_all() -> None:
    sizes = {"batch": 1, "layers": 6, "sequence_length": 4096, "window": 512}
    assert windows(build_network("llama3-8b", **sizes)) == [512] * 6
    assert windows(build_network("llama3-8b", **sizes, window_skip=3)) == [512, 512, 0, 512, 512, 0]
    assert windows(build_network("gpt-oss-20b", batch=1, layers=4)) == [128, 0, 128, 0]
    with pytest.raises(InputError, match="window is for networks of Llama's kind"):
        build_network("gpt2", batch=1, window=128)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"sliding_window": 512}, [512] * 4),
        ({"sliding_window": 512, "sliding_window_pattern": 2}, [512, 0, 512, 0]),
        ({"sliding_window": 512, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}, [512, 512, 512, 0]),
        ({"sliding_window": 512, "layer_types": ["full_attention"] * 4}, [0] * 4),
        ({"sliding_window": 512, "layer_types": ["full_attention"] + ["sliding_attention"] * 3}, [0] * 4),
        ({"sliding_window": 9000}, [0] * 4),
        ({"sliding_window": None}, [0] * 4),
    ],
)
def test_a_configuration_says_its_window(tmp_path: Path, said: dict[str, object], expected: list[int]) -> None:
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4}
    sizes |= {"vocab_size": 1000, "intermediate_size": 512, "max_position_embeddings": 4096}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "mistral", **sizes, **said}), encoding="utf-8")
    assert windows(find_network(str(file)).build(1)) == expected


def test_a_launch_line_says_its_window() -> None:
    found = read_launch(f"{LLAMA} --window-size '(511,0)' --window-attn-skip-freq 4", own=8)
    assert (found.sizes["window"], found.sizes["window_skip"]) == (512, 4)
    assert "window" not in read_launch(f"{LLAMA} --window-size 4096,0", own=8).sizes


def test_documents_take_as_long_as_sequences_of_their_length() -> None:
    def asked(batch: int, length: int, *sizes: str) -> Any:
        said = ["layers=2", *sizes]
        return simulate(
            "h100-sxm5-80gb", workload="llama3-8b", batch=batch, seq_len=length, precision="bf16", sizes=said
        )

    packed, apart, whole = asked(1, 4096, "documents=1024"), asked(4, 1024), asked(1, 4096)
    assert packed.step_time_s == pytest.approx(apart.step_time_s, rel=1e-9)
    assert packed.step_time_s < whole.step_time_s


@given(st.lists(st.integers(1, 64), min_size=1, max_size=6), st.integers(1, 4))
def test_scores_are_those_of_the_documents(lengths: list[int], batch: int) -> None:
    """As many pairs of a query and a key as documents have, to the rounding of a length."""
    tokens = 64 * sum(lengths)
    documents = tuple(64 * length for length in lengths)
    kernel = Attention(batch, 1, tokens, tokens, 64, causal=True, documents=documents).in_direction("fwd", "bf16")
    pairs = batch * sum(length * length for length in documents)
    assert kernel.batch * kernel.query_length**2 == pytest.approx(pairs, rel=2 / kernel.query_length)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"documents": "1000"}, "documents of 1000 tokens, 1000 in all, do not fill a sequence of 4096"),
        ({"documents": "4096,0"}, "documents must be a whole number, 1 to 1000000000; got 4096,0"),
    ],
)
def test_documents_fill_a_sequence(more: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        build_network("llama3-8b", batch=1, sequence_length=4096, layers=1, **more)


def test_packed_documents_are_not_divided() -> None:
    with pytest.raises(InputError, match="documents packed into a sequence are not divided"):
        simulate(
            topology="dgx-h100",
            workload="llama3-8b",
            batch=1,
            seq_len=4096,
            parallel="cp=8",
            sizes={"documents": "512"},
        )
