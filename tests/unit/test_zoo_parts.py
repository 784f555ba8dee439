"""Annotations of transformer layers: parts of blocks, division of weights, experts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.workload.kernels import Gemm
from simulator.workload.network import Layer, Network, block_name
from simulator.workload.operators import Attention, Elementwise, GroupedLinear, Linear, MatMul, Softmax
from simulator.workload.split.stages import stages_of
from simulator.workload.zoo.registry import build_network
from tests.active_parameters import active_parameters

SMALL = {"layers": 2, "sequence_length": 64}
BLOCKS = {
    "gpt2": SMALL,
    "opt-125m": SMALL,
    "mpt-125m": SMALL,
    "bloom-560m": SMALL,
    "megatron-1.2b": SMALL,
    "llama3-8b": SMALL,
    "qwen3-8b": SMALL,
    "nemotron4-15b": SMALL,
    "mixtral-8x7b": SMALL,
    "gpt-oss-20b": SMALL,
    "deepseek-v3": {**SMALL, "dense_layers": 1, "mtp_layers": 1},
    "bert-base": SMALL,
    "t5-small": SMALL,
    "vit-b16": {},
}


def sharded(network: Network) -> dict[str, bool]:
    """Return whether ranks divide each layer: from a column-split layer to the next row-split one."""
    divided: set[int] = set()
    found: dict[str, bool] = {}
    for layer in network.layers:
        reads = any(i in divided for i in layer.inputs)
        found[layer.name] = reads or layer.split is not None
        if layer.split == "columns" or (reads and layer.split is None):
            divided.add(layer.output)
    return found


@pytest.mark.parametrize("name", BLOCKS)
def test_each_block_is_columns_then_rows(name: str) -> None:
    network = build_network(name, batch=2, **BLOCKS[name])
    divided = sharded(network)
    writes = {layer.output: layer for layer in network.layers}
    inside = [layer for layer in network.layers if block_name(layer.name)]
    for layer in inside:
        if isinstance(layer.operator, Attention | MatMul):
            assert layer.part == "attention"
            for i in layer.inputs:  # queries, keys and values, all of this rank's heads
                assert divided[writes[i].name], layer.name
        if layer.split is None and layer.part is None:  # norms, sums, routers, dropout of residuals
            assert not divided[layer.name], layer.name
        if layer.split is not None:
            assert layer.part in ("attention", "feed-forward")
    rows = [layer for layer in inside if layer.split == "rows"]
    columns = [layer for layer in inside if layer.split == "columns"]
    assert rows
    assert len(columns) >= len(rows)
    for layer in rows:  # its input is divided
        assert divided[writes[layer.inputs[0]].name]


def of_part(network: Network, part: str) -> list[Layer]:
    return [layer for layer in network.layers if layer.part == part]


def test_experts_are_found_by_their_count() -> None:
    network = build_network("mixtral-8x7b", batch=1, layers=1, sequence_length=512)
    names = [layer.name.rpartition(".")[2] for layer in of_part(network, "experts")]
    assert (names[0], names[-1]) == ("dispatch", "combine")
    products = [layer.operator for layer in network.layers if isinstance(layer.operator, Linear)]
    experts = [operator for operator in products if isinstance(operator, GroupedLinear)]
    assert [(e.rows, e.inputs, e.outputs, e.experts) for e in experts] == [
        (1024, 4096, 2 * 14336, 8),
        (1024, 14336, 4096, 8),
    ]
    assert {e.rows_each for e in experts} == {128}


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [  # as stated by the authors
        ("mixtral-8x7b", 46.7e9, 12.9e9),  # arXiv 2401.04088: 47B, 13B
        ("mixtral-8x22b", 141e9, 39e9),  # mistral.ai, 17 April 2024
        ("qwen3-30b-a3b", 30.5e9, 3.3e9),  # arXiv 2505.09388, table 2; the model card
        ("qwen3-235b-a22b", 235e9, 22e9),
        ("gpt-oss-20b", 20.9e9, 3.61e9 + 0.58e9),  # arXiv 2508.10925, table 1: active ones without the embedding
        ("gpt-oss-120b", 116.83e9, 5.13e9 + 0.58e9),
        ("nemotron-3-nano", 31.6e9, 3.58e9),  # arXiv 2512.20848, table 1: 3.2B, 3.6B with embeddings
        ("nemotron-3-super", 120.6e9, 12.7e9),  # the model card: 120B, 12B
        ("deepseek-v2-lite", 15.7e9, 2.66e9),  # arXiv 2405.04434, appendix B: 15.7B, 2.4B without embeddings
        ("deepseek-v2", 236e9, 21e9),
        ("deepseek-v3", 671e9, 37e9),  # arXiv 2412.19437
        ("kimi-k2", 1.03e12, 32e9),  # arXiv 2507.20534: 1.04T, 32.6B
    ],
)
def test_total_and_active_parameters(name: str, total: float, active: float) -> None:
    network = build_network(name, batch=1)
    assert network.parameter_count == pytest.approx(total, rel=0.02)
    assert active_parameters(network) == pytest.approx(active, rel=0.04)


def test_all_parameters_of_others_are_active() -> None:
    network = build_network("llama3-8b", batch=1)
    assert active_parameters(network) == network.parameter_count


@given(st.integers(1, 4096), st.integers(1, 300), st.sampled_from(["fwd", "bwd_data", "bwd_weight"]))
def test_grouped_products_do_no_less_than_their_rows_need(rows: int, experts: int, phase: str) -> None:
    operator = GroupedLinear(rows, 48, 32, bias=False, experts=experts)
    (kernel,) = operator.kernels(phase, "bf16")  # type: ignore[arg-type]
    assert isinstance(kernel, Gemm)
    assert kernel.batch == min(experts, rows)
    assert operator.flop <= kernel.flop < operator.flop + 2 * 48 * 32 * kernel.batch


def test_latent_attention_counts_heads_of_two_sizes() -> None:
    network = build_network("deepseek-v2-lite", batch=2, layers=1, sequence_length=128)
    attention = next(layer.operator for layer in network.layers if isinstance(layer.operator, Attention))
    assert (attention.head_size, attention.value_size) == (192, 128)
    assert attention.flop == 2 * 2 * 16 * 128 * 128 * (192 + 128)
    assert attention.backward_flop(False, (True,) * 3) == 2 * 2 * 16 * 128 * 128 * (3 * 192 + 2 * 128)
    eager = build_network("deepseek-v2-lite", batch=2, layers=1, sequence_length=128, attention="eager")
    assert eager.flop == network.flop


def test_a_block_that_predicts_a_further_token_shares_embedding_and_last_layer() -> None:
    usual, further = (build_network("deepseek-v3", batch=1, loss=True, mtp_layers=count) for count in (0, 1))
    added = further.parameter_count - usual.parameter_count
    assert added == pytest.approx(11.5e9, rel=0.01)  # deepseek-ai/DeepSeek-V3, README_WEIGHTS.md: unique parameters
    head = next(layer.operator for layer in usual.layers if layer.name == "lm_head")
    block = sum(layer.operator.flop for layer in usual.layers if layer.name.startswith("layers.60."))
    join = 2 * 4096 * 7168 * 2 * 7168
    assert further.flop - usual.flop == pytest.approx(block + head.flop + join, rel=1e-3)
    assert [layer.name for layer in further.layers[-4:]] == ["lm_head", "mtp_head0", "loss", "loss1"]


def test_what_predicts_a_further_token_gets_hidden_states_from_the_stage_before_it() -> None:
    network = build_network("deepseek-v3", batch=1, loss=True, layers=3, mtp_layers=1, sequence_length=64)
    *_, last = stages_of(network, 4)
    assert last.network.layers[0].name == "mtp.0.embed"
    assert last.received_elements == 64 * 7168
    assert last.shared_elements == 129280 * 7168  # the embedding, which the first stage also holds
    with pytest.raises(InputError, match="mtp_layers"):
        build_network("deepseek-v3", batch=1, mtp_layers=65)


def test_sizes_that_do_not_fit_each_other() -> None:
    with pytest.raises(InputError, match="a token cannot go to 9 of 8 experts"):
        build_network("mixtral-8x7b", batch=1, chosen=9)
    with pytest.raises(InputError, match="of 2 layers 3 cannot be dense"):
        build_network("deepseek-v3", batch=1, layers=2)
    with pytest.raises(InputError, match="patches of 16 do not divide an image of 100 x 100"):
        build_network("vit-b16", batch=1, image=100)


def test_megatron_adds_what_it_drops_in_one_kernel_and_its_softmax_knows_the_mask() -> None:
    def functions(**sizes: object) -> Counter[str]:
        network = build_network("gpt", batch=1, layers=1, hidden=64, heads=4, sequence_length=32, **sizes)  # type: ignore[arg-type]
        return Counter(x.operator.function for x in network.layers if isinstance(x.operator, Elementwise))

    assert functions(training=True) == {"dropout": 2, "dropout_add": 2, "gelu": 1, "add": 1}
    assert functions(training=False) == {"gelu": 1, "add": 3}
    network = build_network("gpt", batch=1, layers=1, hidden=64, heads=4, sequence_length=32)
    assert [x.operator.kernel for x in network.layers if isinstance(x.operator, Softmax)] == ["causal"]
    longer = build_network("gpt", batch=1, layers=1, hidden=64, heads=4, sequence_length=32768)
    assert [x.operator.kernel for x in longer.layers if isinstance(x.operator, Softmax)] == [""]


def test_vision_transformers_drop_nothing_unless_told() -> None:
    """As torchvision's, Hugging Face's and timm's, whose rates are 0: PyTorch then returns its input."""

    def dropped(**options: int) -> int:
        network = build_network("vit-b16", batch=1, **options)
        return sum(getattr(layer.operator, "function", "") == "dropout" for layer in network.layers)

    assert dropped() == 0
    assert dropped(dropout=1) == 1 + 12 * 3
