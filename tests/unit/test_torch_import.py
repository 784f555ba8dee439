"""Modules on ``meta`` as networks: shapes by hand, counts by torch."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from simulator.workload.operators import (
    Attention,
    BatchNorm,
    Conv2d,
    Copy,
    CrossEntropy,
    Elementwise,
    Embedding,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Pool,
    Recurrent,
    Reduction,
    Softmax,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[torch]'")
nn, F = torch.nn, torch.nn.functional

from tests.oracles import torch_traced  # noqa: E402  needs torch


class Apply(nn.Module):  # type: ignore[misc, name-defined]
    """An 8 by 8 linear layer, and a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.first(x))


def trace(monkeypatch: pytest.MonkeyPatch, made: Any, **sizes: Any) -> torch_traced.TracedNetwork:
    """Trace the module that the factory *made* returns."""
    monkeypatch.setattr(sys.modules[__name__], "made", made, raising=False)
    return torch_traced.traced(f"torch:{__name__}:made", **{"batch": 2, **sizes})


def operators(monkeypatch: pytest.MonkeyPatch, function: Any, *shape: int) -> list[Operator]:
    """Return the operators that *function* of a ``(2, *shape, 8)`` activation runs."""
    found = trace(monkeypatch, lambda: (Apply(function), torch.zeros(2, *shape, 8))).network
    assert found.layers[0].operator == Linear(found.elements[0] // 8, 8, 8)
    for layer in found.layers:
        layer.operator.kernels("fwd", "fp32")
        layer.operator.kernels("bwd", "fp32")
    return [layer.operator for layer in found.layers[1:]]


def test_layers_tensors_and_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(batch: int) -> Any:
        return nn.Sequential(nn.Linear(10, 20), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(20, 3)), torch.zeros(
            batch, 10
        )

    traced = trace(monkeypatch, made, batch=4)
    network = traced.network
    assert [layer.name for layer in network.layers] == ["0", "1", "2", "3"]
    assert [layer.operator for layer in network.layers] == [
        Linear(4, 10, 20),
        Elementwise("relu", 80),
        Elementwise("dropout", 80),
        Linear(4, 20, 3),
    ]
    assert [(layer.inputs, layer.output, layer.in_place) for layer in network.layers] == [
        ((0,), 1, False),
        ((1,), 2, True),
        ((2,), 3, False),
        ((3,), 4, False),
    ]
    assert network.elements == (40, 80, 80, 80, 12)
    assert [p.name for p in network.parameters] == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert (network.samples, network.sample, network.name) == (4, "samples", "made")
    assert traced.flop_forward == network.flop == 2 * 4 * (200 + 60)
    assert traced.flop_backward == 2 * 4 * (200 + 2 * 60)  # the input needs no gradient
    # Saved: the input, the ReLU's output, a byte per element of the mask, the dropout's output.
    assert traced.saved_bytes == 4 * (40 + 80 + 80) + 80
    assert traced.saved_elements == 40 + 80 + 80
    assert set(traced.gradient_order[:2]) == {"3.weight", "3.bias"}
    assert len(traced.gradient_order) == 4


def test_gradients_are_ready_in_the_order_of_use_not_of_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    class Crossed(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.used_last = nn.Linear(4, 4, bias=False)
            self.used_first = nn.Linear(4, 4, bias=False)
            self.never = nn.Linear(4, 4, bias=False)

        def forward(self, x: Any) -> Any:
            return self.used_last(self.used_first(x))

    traced = trace(monkeypatch, lambda: (Crossed(), torch.zeros(2, 4)))
    assert traced.gradient_order == ("used_last.weight", "used_first.weight")
    assert [p.name for p in traced.network.parameters] == ["used_first.weight", "used_last.weight"]


def test_a_shared_parameter_is_one_and_a_frozen_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tied(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 8)
            self.frozen = nn.Linear(8, 8).requires_grad_(False)
            self.head = nn.Linear(8, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Any) -> Any:
            return self.head(self.frozen(self.embed(tokens)))

    traced = trace(monkeypatch, lambda: (Tied(), torch.zeros(2, 5, dtype=torch.int64)))
    assert traced.network.parameter_count == 50 * 8
    assert [len(layer.parameters) for layer in traced.network.layers] == [1, 0, 1]
    assert traced.gradient_order == ("embed.weight",)
    assert traced.network.sample == "sequences"
    assert traced.network.layers[0].operator == Embedding(10, 8, 50)


def test_views_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def views(x: Any) -> Any:
        x = x.transpose(1, 2)[:, 1:, :].reshape(2, 7, 3).permute(0, 2, 1).unsqueeze(0).expand(4, -1, -1, -1)
        return [*x.split(1, 1), x.detach()]

    assert operators(monkeypatch, views, 3) == []


@pytest.mark.parametrize(
    ("function", "shape", "found"),
    [
        (lambda x: x + x.mT, (8,), [Elementwise("add", 128, 2)]),
        (lambda x: 1 - x * 2, (), [Elementwise("mul_scalar", 16), Elementwise("sub_scalar", 16)]),
        (lambda x: x.div_(torch.full([], 3.0)), (), [Elementwise("fill", 1, 0), Elementwise("div_scalar", 16)]),
        (F.gelu, (), [Elementwise("gelu", 16)]),
        (lambda x: F.hardswish(x, inplace=True), (), [Copy(16), Elementwise("hardswish", 16)]),
        (F.glu, (), [Elementwise("glu", 8)]),
        (torch.lgamma, (), [Elementwise("lgamma", 16)]),  # by torch's own tag
        (lambda x: x.to(torch.float16), (), [Copy(16)]),
        (lambda x: torch.cat([x, x]), (), [Copy(32)]),
        (lambda x: x.mT.contiguous(), (3,), [Copy(48, transposed=True)]),
        (lambda x: x.view(2, 3, 2, 4).transpose(1, 2).contiguous(), (3,), [Copy(48)]),
        (lambda x: F.pad(x, (1, 1)), (), [Copy(20)]),
        (lambda x: x.sum(), (), [Reduction(1, 16)]),
        (lambda x: x.mean(-1), (3,), [Reduction(6, 8)]),
        (lambda x: x.max(0)[0], (), [Reduction(8, 2)]),
        (lambda x: x.topk(2)[0], (), [Reduction(2, 8)]),
        (lambda x: x.softmax(1), (3,), [Softmax(16, 3)]),
        (lambda x: x @ x.mT, (3,), [MatMul(3, 3, 8, 2, "NT")]),
        (lambda x: torch.einsum("bij,bik->bjk", x, x), (3,), [MatMul(8, 8, 3, 2, "TN")]),
        (lambda x: x[0] @ x[1].t(), (3,), [MatMul(3, 3, 8, 1, "NT")]),
        (lambda x: F.layer_norm(x, (8,)), (3,), [LayerNorm(6, 8)]),
        (lambda x: F.group_norm(x, 2), (), [LayerNorm(4, 4)]),
        (lambda x: F.rms_norm(x, (8,), torch.ones(8)), (), [Elementwise("fill", 8, 0), LayerNorm(2, 8, "rms_norm")]),
        (lambda x: F.max_pool1d(x, 2), (3,), [Pool("max", 2, 3, 1, 8, 1, 4, 1, 2)]),
        (lambda x: F.avg_pool2d(x, (1, 4)), (3, 5), [Pool("avg", 2, 3, 5, 8, 5, 2, 1, 4)]),
        (lambda x: F.adaptive_avg_pool2d(x, 1), (3, 5), [Pool("avg", 2, 3, 5, 8, 1, 1, 5, 8)]),
        (lambda x: F.adaptive_avg_pool2d(x, 3), (3, 5), [Pool("avg", 2, 3, 5, 8, 3, 3, 2, 3)]),
        (lambda x: F.max_pool3d(x, 2), (1, 4, 4), [Pool("max", 2, 1, 16, 8, 4, 4, 4, 2)]),
        (lambda x: F.mse_loss(x, x), (), [Elementwise("mse_loss", 16, 2), Reduction(1, 16)]),
    ],
)
def test_functions_are_known(
    monkeypatch: pytest.MonkeyPatch, function: Any, shape: tuple[int, ...], found: list[Operator]
) -> None:
    assert operators(monkeypatch, function, *shape) == found


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(6, 4, (3, 5), stride=(1, 2), padding=(0, 1), groups=2, dilation=(2, 1)), (6, 16, 12)),
        (nn.Conv1d(6, 4, 3, stride=2, padding=1), (6, 16)),
        (nn.Conv3d(2, 4, 3, stride=2, padding=1), (2, 8, 8, 10)),
        (nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1), (6, 5, 7)),
        (nn.ConvTranspose1d(6, 4, 3, stride=2), (6, 5)),
    ],
)
def test_convolutions_have_torchs_flop_weights_and_results(
    monkeypatch: pytest.MonkeyPatch, layer: Any, shape: tuple[int, ...]
) -> None:
    traced = trace(monkeypatch, lambda batch: (layer, torch.zeros(batch, *shape)), batch=3)
    (found,) = traced.network.layers
    operator = found.operator
    assert isinstance(operator, Conv2d)
    assert operator.flop == traced.flop_forward > 0
    assert operator.weight_elements == layer.weight.numel()
    assert operator.output_elements == layer(torch.zeros(3, *shape, device="meta")).numel()
    assert operator.bias
    assert sum(getattr(k, "flop", 0) for k in operator.kernels("bwd_weight", "fp32")) == operator.flop


def test_a_transposed_convolution_runs_the_mirror_images_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.ConvTranspose2d(6, 4, 2, stride=2, bias=False)
    traced = trace(monkeypatch, lambda: (layer, torch.zeros(2, 6, 5, 5)))
    operator = traced.network.layers[0].operator
    assert operator == Conv2d(2, 4, 6, 10, 10, 2, 2, 2, 2, transposed=True)
    directions = [operator.kernels(phase, "fp32")[0].direction for phase in ("fwd", "bwd_data")]  # type: ignore
    assert directions == ["bwd_data", "fwd"]


@pytest.mark.parametrize(
    ("kv_heads", "mask", "causal", "parts"),
    [(4, False, True, []), (2, False, False, []), (4, True, False, [Elementwise("where", 25)])],
)
def test_attention_is_one_operator_that_keeps_no_scores(
    monkeypatch: pytest.MonkeyPatch, kv_heads: int, mask: bool, causal: bool, parts: list[Operator]
) -> None:
    class Attends(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 8 * (4 + 2 * kv_heads), bias=False)

        def forward(self, x: Any, allowed: Any) -> Any:
            qkv = self.qkv(x).view(2, 5, 4 + 2 * kv_heads, 8).transpose(1, 2)
            q, k, v = qkv.split((4, kv_heads, kv_heads), 1)
            gqa = kv_heads != 4
            y = F.scaled_dot_product_attention(q, k, v, allowed, is_causal=causal, enable_gqa=gqa)
            return y.transpose(1, 2).reshape(2, 5, 32)  # as the kernel leaves it, without a copy

    allowed = torch.ones(5, 5, dtype=torch.bool) if mask else None
    traced = trace(monkeypatch, lambda: (Attends(), (torch.zeros(2, 5, 8), allowed)))
    found = [layer.operator for layer in traced.network.layers[1:]]
    assert found == [*parts, Attention(2, 4, 5, 5, 8, kv_heads, causal)]
    assert traced.flop_forward == traced.network.flop
    if not parts:
        kept = 2 * 5 * 8 + 2 * 5 * 8 * (4 + 2 * kv_heads) + 2 * 5 * 32 + 2 * 4 * 5  # and a sum for each row
        assert traced.saved_elements == kept


def test_attention_inside_torchs_own_layers_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(batch: int) -> Any:
        return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), torch.zeros(batch, 5, 16)

    found = Counter(type(layer.operator) for layer in trace(monkeypatch, made).network.layers)
    assert (found[Attention], found[Softmax], found[MatMul]) == (1, 0, 0)
    assert found[LayerNorm] == 2
    assert F.has_torch_function is torch.overrides.has_torch_function  # restored


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_have_the_flop_of_their_steps(
    monkeypatch: pytest.MonkeyPatch, cell: str, bidirectional: bool
) -> None:
    with torch.device("meta"):
        layer = getattr(nn, cell)(6, 5, 2, batch_first=True, dropout=0.1, bidirectional=bidirectional)
        x = torch.zeros(3, 7, 6)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        result = layer(x)[0]
        forward_flop = counter.get_total_flops()
        result.sum().backward()
    traced = trace(monkeypatch, lambda: (layer, x), batch=3)
    found = [layer.operator for layer in traced.network.layers if isinstance(layer.operator, Recurrent)]
    kind = cell.lower()
    assert found[0] == Recurrent(kind, 3, 7, 6, 5)  # type: ignore[arg-type]
    assert found[-1] == Recurrent(kind, 3, 7, 10 if bidirectional else 5, 5)  # type: ignore[arg-type]
    assert len(found) == (4 if bidirectional else 2)
    assert traced.network.flop == traced.flop_forward == forward_flop
    assert traced.flop_backward == counter.get_total_flops() - forward_flop
    assert traced.network.parameter_count == sum(p.numel() for p in layer.parameters())
    assert sorted(traced.gradient_order) == sorted(name for name, _ in layer.named_parameters())


def test_batch_norm_counts_its_batches_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(batch: int) -> Any:
        return nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4)), torch.zeros(batch, 3, 5, 6)

    network = trace(monkeypatch, made).network
    assert [layer.operator for layer in network.layers[1:]] == [BatchNorm(2, 4, 5, 6)]
    assert network.layers[1].inputs == (network.layers[0].output,)


def test_a_loss_is_part_of_the_network_in_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(batch: int) -> Any:
        module = nn.Sequential(nn.Linear(4, 10), nn.Dropout(0.5))
        labels = torch.zeros(batch, dtype=torch.int64)
        return module, torch.zeros(batch, 4), lambda scores: F.cross_entropy(scores, labels)

    training = trace(monkeypatch, made)
    assert [layer.operator for layer in training.network.layers[1:]] == [
        Elementwise("dropout", 20),
        CrossEntropy(2, 10),
    ]
    inference = trace(monkeypatch, made, training=False)
    assert [layer.operator for layer in inference.network.layers] == [Linear(2, 4, 10)]
    assert (inference.gradient_order, inference.saved_bytes, inference.flop_backward) == ((), 0, 0)


def test_numbers_that_follow_from_shapes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asks(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            rates = [rate.item() for rate in torch.linspace(0.0, 0.5, 3)]
            self.body = nn.Linear(4, int(8 * rates[-1]))

        def forward(self, x: Any, mask: Any) -> Any:
            places = torch.arange(x.shape[1])
            places[0] += 1
            if (places.diff() == 1).all():  # 1 1 2 3
                raise AssertionError
            x = self.body(x)
            return x if mask.all() else x[torch.arange(4)[places > 1]] * 2

    traced = trace(monkeypatch, lambda: (Asks(), (torch.zeros(2, 4), torch.ones(2, dtype=torch.bool))))
    assert Linear(2, 4, 4) in [layer.operator for layer in traced.network.layers]
    masked = trace(monkeypatch, lambda: (Asks(), (torch.zeros(5, 4), torch.zeros(2, dtype=torch.bool))), batch=5)
    assert [layer.operator for layer in masked.network.layers][-2:] == [Copy(8), Elementwise("mul_scalar", 8)]


def test_checkpointed_modules_run_again_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(x: Any) -> Any:
        inner = nn.functional.scaled_dot_product_attention
        return torch.utils.checkpoint.checkpoint(lambda y: inner(y, y, y).sin(), x, use_reentrant=False)

    traced = trace(monkeypatch, lambda: (Apply(lambda x: run(x.view(2, 1, 4, 8))), torch.zeros(2, 4, 8)))
    kinds = [type(layer.operator) for layer in traced.network.layers]
    assert kinds == [Linear, Attention, Elementwise]
    assert traced.flop_backward > 2.5 * traced.flop_forward - traced.network.layers[0].operator.flop
