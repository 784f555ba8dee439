"""gpt-oss: windows in every other block, sinks, experts with biases; how ranks divide them, and what has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.workload.find import find_network
from simulator.workload.hugging_face import OtherNetworkError, read_config
from simulator.workload.network import Network
from simulator.workload.operators import Attention, GroupedLinear
from simulator.workload.split.context import context_split
from simulator.workload.split.experts import expert_split
from simulator.workload.split.tensor import tensor_split
from simulator.workload.zoo.registry import build_network
from tests.active_parameters import active_parameters

SMALL = {"layers": 4, "sequence_length": 512}


def attentions(network: Network) -> list[Attention]:
    return [layer.operator for layer in network.layers if isinstance(layer.operator, Attention)]


@pytest.mark.parametrize(("name", "layers", "experts"), [("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128)])
def test_parameters_by_arithmetic(name: str, layers: int, experts: int) -> None:
    hidden, words, queries, keys = 2880, 201088, 64 * 64, 8 * 64
    attention = (hidden + 1) * (queries + 2 * keys) + (queries + 1) * hidden + 64  # projections, sinks
    expert = (hidden + 1) * 2 * hidden + (hidden + 1) * hidden
    block = attention + (hidden + 1) * experts + experts * expert + 2 * hidden
    assert build_network(name, batch=1).parameter_count == layers * block + 2 * words * hidden + hidden
    active = layers * (block - (experts - 4) * expert) + 2 * words * hidden + hidden
    assert active_parameters(build_network(name, batch=1)) == active


def test_every_other_block_has_a_window() -> None:
    network = build_network("gpt-oss-20b", batch=1, **SMALL)
    assert [operator.window for operator in attentions(network)] == [128, 0, 128, 0]
    short = build_network("gpt-oss-20b", batch=1, layers=2, sequence_length=128)
    assert [operator.window for operator in attentions(short)] == [0, 0]  # as long as the sequence


def test_ranks_divide_sinks_with_their_heads_and_biases_with_their_experts() -> None:
    network = build_network("gpt-oss-20b", batch=1, **SMALL)
    part = expert_split(tensor_split(network, 4, by_rows=True), 8)
    layers = {layer.name: layer for layer in part.layers}
    attention = layers["layers.0.attention"]
    assert [p.elements for p in attention.parameters] == [16]
    assert isinstance(attention.operator, Attention)
    assert (attention.operator.heads, attention.operator.kv_heads, attention.operator.window) == (16, 2, 128)
    up = layers["layers.0.experts_up"]
    assert isinstance(up.operator, GroupedLinear)
    assert (up.operator.experts, [p.elements for p in up.parameters]) == (4, [4 * 2880 * 5760, 4 * 5760])


def test_context_parallelism_says_that_it_has_windows() -> None:
    with pytest.raises(InputError, match=r"cp=2 does not divide layers\.0\.attention: keys do not circulate"):
        context_split(build_network("gpt-oss-20b", batch=1, **SMALL), 2)


@pytest.mark.parametrize("kind", ["fused-first", "fused-softmax"])
def test_kernels_without_windows_and_sinks_are_refused(kind: str) -> None:
    with pytest.raises(InputError, match=f"attention={kind} has neither windows nor sinks"):
        build_network("gpt-oss-20b", batch=1, attention=kind, **SMALL)


def test_a_config_of_hugging_face_is_the_same_network(tmp_path: Path) -> None:
    keys = {"model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8}
    keys |= {"num_hidden_layers": 24, "vocab_size": 201088, "head_dim": 64, "intermediate_size": 2880}
    keys |= {"num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": True}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(keys), encoding="utf-8")
    found, same = (find_network(text, sequence_length=4096).build(1) for text in (str(config), "gpt-oss-20b"))
    assert found.layers == same.layers
    keys["layer_types"] = ["full_attention"] * 24
    config.write_text(json.dumps(keys), encoding="utf-8")
    with pytest.raises(OtherNetworkError, match="layer_types: must alternate"):  # as transformers builds it
        read_config(str(config))
