"""``config.json`` with sizes that nobody has, wrong types and thousands of keys: one line, at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.errors import divisors
from simulator.workload.described import network_document
from simulator.workload.find import find_network
from simulator.workload.hugging_face import read_config
from simulator.workload.zoo.attention import self_attention
from simulator.workload.zoo.builder import NetworkBuilder, SizeError
from tests.calls import at_most_calls

_LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip
_VIT = {"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 256, "image_size": 224}
_DEEPSEEK = {
    **_LLAMA, "model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    "kv_lora_rank": 64, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
}  # fmt: skip


def _asked(folder: Path, config: object, *more: str) -> list[str]:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return ["--topology", "t4", "--workload", str(folder / "config.json"), "--batch", "1", *more]


def test_heads_that_do_not_divide_are_told(tmp_path: Path, capsys) -> None:
    assert run(_asked(tmp_path, {**_VIT, "num_attention_heads": 65})) == 2
    assert capsys.readouterr().err.endswith("65 heads do not divide a hidden size of 64\n")


@pytest.mark.parametrize(("heads", "kv_heads", "told"), [(5, 5, "5 heads do not"), (4, 3, "3 heads of keys")])
def test_attention_checks_its_heads(heads: int, kv_heads: int, told: str) -> None:
    x = NetworkBuilder("n", training=True).input(2, 8, 64)
    with pytest.raises(SizeError, match=told):
        self_attention((x, x, x), "a", heads=heads, kv_heads=kv_heads, kind="fused", mask="none")


@pytest.mark.slow
def test_a_layer_as_wide_as_a_country_costs_no_more(tmp_path: Path, capsys) -> None:
    """The advice on tensor parallelism lists what would divide a size; it once tried each number up to it."""
    with at_most_calls(15_000_000):
        assert run(_asked(tmp_path, {**_DEEPSEEK, "moe_intermediate_size": 999_999_999}, "-q")) == 1
    assert "out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"inputs": []}, "layer 0: Conv2d needs 1 input; got 0"),
        ({"inputs": None}, "layer 0: inputs must be a list"),
        ({"part": ["attention"]}, "layer 0: part '['attention']'"),
        ({"sizes": {"images": 10**30}}, "layer 0: Conv2d has no 'images'"),
    ],
)
def test_a_network_written_out_is_checked(change: dict[str, object], told: str, tmp_path: Path, capsys) -> None:
    document = network_document(find_network("lenet").build(2))
    document["layers"][0] |= change
    (tmp_path / "a.network.json").write_text(json.dumps(document), encoding="utf-8")
    assert run(["--topology", "t4", "--workload", str(tmp_path / "a.network.json"), "--batch", "2"]) == 2
    assert told in capsys.readouterr().err


def test_divisors() -> None:
    assert divisors(12) == "1, 2, 3, 4, 6, 12"
    assert divisors(999_999_999).startswith("1, 3, 9, 27, 37, 81, ")
    assert divisors(2 * 3 * 5 * 7 * 11 * 13, listed=3) == "1, 2, 3, ..."
    with at_most_calls(1_000):
        assert divisors(10**18 + 9) == "1, 1000000000000000009"


def test_thousands_of_unknown_keys_are_counted(tmp_path: Path) -> None:
    _asked(tmp_path, {**_LLAMA, **{f"hidden_siz{i}": i + 1 for i in range(10_000)}})
    with at_most_calls(3_000_000):
        notes = [str(note) for note in read_config(str(tmp_path))[1]]
    assert len(notes) == 13
    assert "did you mean 'hidden_size'?" in notes[0]
    assert notes[-1].endswith("9,988 more keys from here on are not known and have no effect")


@pytest.mark.parametrize("value", [1, -1, 1.5, True, {"a": 1}, [1], [None], "x"])
def test_architectures_that_are_none_are_noted(value: object, tmp_path: Path) -> None:
    _asked(tmp_path, {"model_type": "bert", "architectures": value})
    assert "is simulated with the head of BertForPreTraining" in str(read_config(str(tmp_path))[1][0])
