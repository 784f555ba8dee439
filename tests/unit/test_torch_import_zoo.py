"""Zoo networks as torch modules: the importer finds what the zoo defines, and memory is what autograd saves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simulator.workload.backward import one_format, saved_tensors, training_flop
from simulator.workload.network import Network
from simulator.workload.operators import (
    BatchNorm,
    Conv2d,
    Elementwise,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Pool,
    Recurrent,
    Softmax,
)
from simulator.workload.zoo.registry import build_network

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[torch]'")
nn = torch.nn

from tests.oracles import torch_traced  # noqa: E402  needs torch
from tests.oracles.torch_images import resnet50, vgg16  # noqa: E402, F401  traced by their names here


def bert(batch: int) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(attn_implementation="eager")
    return transformers.BertForPreTraining(config), torch.zeros(batch, 512, dtype=torch.int64)


def gpt2(batch: int) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.GPT2Config(attn_implementation="eager", use_cache=False)
    return transformers.GPT2LMHeadModel(config), torch.zeros(batch, 1024, dtype=torch.int64)


def words(batch: int) -> Any:
    class Words(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(10000, 256), nn.Linear(256, 10000)
            self.lstm = nn.LSTM(256, 256, 2, batch_first=True)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.lstm(self.embed(tokens))[0])

    return Words(), torch.zeros(batch, 32, dtype=torch.int64)


# Operators that depend on the version of transformers: scaling, masks, and their construction.
_WAYS = {
    "fill",
    "where",
    "add_scalar",
    "sub_scalar",
    "mul_scalar",
    "div_scalar",
    "add",
    "ne_scalar",
    "eq_scalar",
    "le",
    "cumsum",
    "sub",
}
_ZOO = {"resnet50": 0.0, "vgg16": 0.0, "bert-base": 1e-4, "gpt2": 1e-4, "lstm-shi2016": 0.03}
_MADE = {"resnet50": "resnet50", "vgg16": "vgg16", "bert-base": "bert", "gpt2": "gpt2", "lstm-shi2016": "words"}


def _counted(network: Network, *, all_of_them: bool) -> Counter[Operator]:
    kept = (Linear, Conv2d, BatchNorm, LayerNorm, MatMul, Softmax, Pool, Recurrent)
    return Counter(
        layer.operator
        for layer in network.layers
        if all_of_them
        or isinstance(layer.operator, kept)
        or (isinstance(layer.operator, Elementwise) and layer.operator.function not in _WAYS)
    )


@pytest.mark.parametrize("name", _ZOO)
def test_networks_of_the_zoo_are_found_again(name: str) -> None:
    if name in ("bert-base", "gpt2"):
        pytest.importorskip("transformers", reason="transformers is not installed")
    traced = torch_traced.traced(f"torch:{__name__}:{_MADE[name]}", batch=2)
    network, ours = traced.network, build_network(name, batch=2, loss=False)
    whole = name in ("resnet50", "vgg16")
    assert _counted(network, all_of_them=whole) == _counted(ours, all_of_them=whole)
    assert network.flop == ours.flop == traced.flop_forward
    assert network.parameter_count == ours.parameter_count
    assert training_flop(network) == training_flop(ours) == traced.flop_forward + traced.flop_backward
    for found in (ours, network):
        saved = saved_tensors(found, one_format(found, 4)).total_bytes
        assert saved == pytest.approx(traced.saved_bytes, rel=_ZOO[name], abs=1e5)
