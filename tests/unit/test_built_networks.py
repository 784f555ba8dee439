"""Networks built from descriptions for measuring: parameters, FLOPs and saved activations match the simulator's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from simulator.workload.backward import (  # noqa: E402
    one_format,
    saved_tensors,
    training_flop,
)
from simulator.workload.described import network_document  # noqa: E402
from simulator.workload.find import find_network  # noqa: E402
from simulator.workload.network import Network  # noqa: E402
from simulator.workload.operators import Attention, Conv2d, Embedding, Linear, MatMul, Recurrent  # noqa: E402
from simulator.workload.zoo.registry import find_entry  # noqa: E402
from tests.cover import one_of_each_code  # noqa: E402
from tests.kept import kept_bytes, masks_of_bytes  # noqa: E402
from validate.kinds.operators import read_operator  # noqa: E402
from validate.machine.measure.built.description import Description, operator_parts, read_description  # noqa: E402
from validate.machine.measure.built.module import BuiltModule, build_module  # noqa: E402
from validate.machine.measure.built.shapes import reshaped_part  # noqa: E402
from validate.machine.measure.case import Unavailable  # noqa: E402
from validate.tables.names import DeviceNames, RowNames  # noqa: E402

TINY: dict[str, int | str] = {"layers": 2, "sequence_length": 32}
NETWORKS: dict[str, dict[str, int | str]] = {
    **{name: {} for name in ("lenet", "mlp", "resnet18-28x28", "resnet20", "lstm-shi2016", "ncf")},
    **{name: {} for name in ("resnet50", "vgg11", "inception3", "densenet121", "googlenet", "unet", "vit-b32")},
    **dict.fromkeys(("gpt2", "bert-base", "opt-125m", "mpt-125m", "t5-small"), TINY),
    "llama-7b": {**TINY, "hidden": 64, "heads": 4, "inner": 100, "vocabulary": 96},
    "bloom-560m": {**TINY, "attention": "fused", "vocabulary": 96},
    "gpt": {**TINY, "attention": "eager", "dropout": 0},
}
_QUICK = ("lenet", "mlp", "resnet20", "gpt2", "llama-7b", "bloom-560m", "gpt")
_ALL = [pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow) for name in NETWORKS]
# cuDNN saves its own data; torch's RMSNorm is one kernel on a GPU and several elsewhere.
KEPT_OTHERWISE = ("lstm-shi2016", "llama-7b", "t5-small")
LAYERS = """
schema_version: 1
name: all-kinds
input: {image: [4, 12, 12]}
layers:
  - {kind: conv, channels: 8, kernel: 3, pad: 1, bias: true, name: stem}
  - {kind: batch-norm}
  - {kind: relu, in_place: true, name: left}
  - {kind: conv, channels: 8, kernel: 3, pad: 1, groups: 4, inputs: [left], name: right}
  - {kind: add, inputs: [left, right], name: sum}
  - {kind: concat, inputs: [sum, stem]}
  - {kind: max-pool, kernel: 3, stride: 2, pad: 1}
  - {kind: avg-pool, kernel: 2}
  - {kind: flatten}
  - {kind: linear, outputs: 32}
  - {kind: gelu}
  - {kind: layer-norm}
  - {kind: dropout}
  - {kind: linear, outputs: 5, bias: false}
"""
WORDS = """
schema_version: 1
name: words
input: {tokens: 16}
layers:
  - {kind: embedding, vocabulary: 50, size: 32, name: embed}
  - {kind: positions}
  - name: blocks
    repeat: 2
    layers:
      - {kind: rms-norm, name: norm}
      - {kind: self-attention, heads: 4, kv_heads: 2, causal: true, attention: ATTENTION}
      - {kind: silu}
  - {kind: linear, tied: embed}
"""

MODULE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(1, 8, affine=False)
        self.scale, self.out = nn.Parameter(torch.ones(8, 1, 1)), nn.Linear(8 * 16, 10)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        y = self.norm(y) * self.scale
        return self.out(y.flatten(1))


def build(batch=2):
    labels = torch.zeros(batch, dtype=torch.long)
    return Net(), torch.randn(batch, 3, 8, 8), lambda y: nn.functional.cross_entropy(y, labels)
"""


def written_out(network: Network, folder: Path) -> Description:
    path = folder / "x.network.json"
    path.write_text(json.dumps(network_document(network)), encoding="utf-8")
    read_description.cache_clear()
    return read_description(str(path))


def network_of(name: str, training: bool = True, batch: int = 2) -> Network:
    sizes = dict(NETWORKS[name])
    length = sizes.pop("sequence_length", None)
    assert length is None or isinstance(length, int)
    return find_network(name, training=training, sequence_length=length, settings=sizes).build(batch)


def from_text(text: str, folder: Path, training: bool = True) -> Network:
    (folder / "net.yaml").write_text(text, encoding="utf-8")
    return find_network(str(folder / "net.yaml"), training=training).build(2)


@pytest.fixture
def _bytes_for_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    masks_of_bytes(monkeypatch)


def flops(built: BuiltModule, training: bool) -> tuple[int, int]:
    """Return the FLOPs of the forward pass, and of the whole step."""
    with FlopCounterMode(display=False) as counter:
        if not training:
            with torch.no_grad():
                built.forward()
            return counter.get_total_flops(), counter.get_total_flops()
        loss = built.loss()
        forward = counter.get_total_flops()
        loss.backward()
    return forward, counter.get_total_flops()


def again(network: Network) -> int:
    """Return the FLOPs of attention scores that fused attention recomputes; on meta it is not fused."""
    operators = [layer.operator for layer in network.layers if isinstance(layer.operator, Attention)]
    return sum(operator.backward_flop(True, (True,) * 3) - 2 * operator.flop for operator in operators)


@pytest.mark.parametrize("name", _ALL)
def test_parameters_and_flop_are_those_that_the_simulator_reads(name: str, tmp_path: Path) -> None:
    for training in (True, False) if name in ("lenet", "gpt2") else (True,):
        network = network_of(name, training)
        built = build_module(written_out(network, tmp_path), torch.device("meta"))
        named = dict(built.module.named_parameters())  # shared parameters appear once
        assert sum(p.numel() for p in named.values()) == network.parameter_count
        forward, everything = flops(built, training)
        if name != "lstm-shi2016":  # the counter ignores recurrent layers
            assert forward == network.flop
            assert not training or everything == training_flop(network) - again(network)


@pytest.mark.usefixtures("_bytes_for_masks")
@pytest.mark.parametrize("name", [each for each in _ALL if each.values[0] not in KEPT_OTHERWISE])
def test_what_is_kept_for_the_backward_pass_is_what_the_simulator_counts(name: str, tmp_path: Path) -> None:
    network = network_of(name)
    fused = any(isinstance(layer.operator, Attention) for layer in network.layers)
    place = "cpu" if fused else "meta"  # attention is one operator there too
    kept = kept_bytes(build_module(written_out(network, tmp_path), torch.device(place)))
    assert kept == pytest.approx(saved_tensors(network, one_format(network, 4)).total_bytes, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_a_file_of_layers_and_a_torch_module_are_built_with_their_sizes(
    attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in (LAYERS, WORDS.replace("ATTENTION", attention)):
        network = from_text(text, tmp_path)
        built = build_module(written_out(network, tmp_path), torch.device("meta"))
        assert sum(p.numel() for p in built.module.parameters()) == network.parameter_count
        assert flops(built, True)[0] == network.flop
    (tmp_path / "mine_written.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    network = find_network("torch:mine_written:build", training=True).build(2)
    built = build_module(written_out(network, tmp_path), torch.device("meta"))
    assert sum(p.numel() for p in built.module.parameters()) == network.parameter_count
    assert flops(built, True) == (network.flop, training_flop(network))


@pytest.mark.parametrize("recompute", ["full", "selective", "operators"])
def test_what_is_not_kept_runs_again_and_gradients_stay_the_same(recompute: str, tmp_path: Path) -> None:
    text = WORDS.replace("ATTENTION", "eager")
    found = {}
    for way in ("", recompute):
        torch.manual_seed(3)
        network = from_text(text, tmp_path)
        built = build_module(written_out(network, tmp_path), torch.device("cpu"), recompute=way)  # type: ignore[arg-type]
        kept = kept_bytes(built)
        forward, everything = flops(built, True)
        gradients = [p.grad.clone() for p in built.module.parameters()]
        found[way] = kept, forward, everything, gradients
    plain, again_ = found[""], found[recompute]
    assert again_[0] < plain[0]
    assert again_[1] == plain[1]
    blocks = sum(
        layer.operator.flop
        for layer in network.layers
        if layer.name.startswith("blocks.") and (recompute != "selective" or type(layer.operator).__name__ == "MatMul")
    )
    # A span's last product saves nothing, so checkpointing stops before it if nothing follows.
    assert 0 < again_[2] - plain[2] <= blocks
    for a, b in zip(plain[3], again_[3], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("gpt2", {"attention": "fused-softmax"}, "Megatron-LM"),
        ("gpt2", {"attention": "fused-first"}, "FlashAttention 1"),
    ],
)
def test_what_torch_does_not_have_is_refused_with_the_reason(
    name: str, settings: dict[str, int | str], why: str, tmp_path: Path
) -> None:
    length = 16 if name == "gpt2" else None
    network = find_network(name, sequence_length=length, settings=settings).build(1)
    with pytest.raises(Unavailable, match=why):
        build_module(written_out(network, tmp_path), torch.device("meta"))


# -- every network ---------------------------------------------------------------------

NOT_BUILT = {
    "unet3d": "convolutions of three dimensions",
    "tacotron2": "the fused cell|torch's fused cell",
    "waveglow": "what norms its weights",
    **dict.fromkeys(("iresnet100", "mobilefacenet"), "prelu with 1 parameters is not built"),
    "vnet": "is not spread over",  # the one channel of the input, over those of the first block
    **dict.fromkeys(("gpt-oss-20b", "gpt-oss-120b"), "neither windows nor learned sinks"),
    **dict.fromkeys(("nemotron-3-nano", "nemotron-3-super", "nemotron-h-56b"), "no kernels of Mamba-2"),
}
MEGATRON = "Megatron-LM's kernel"  # of attention as its models have it; attention=fused and dropout=0 are torch's


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*one_of_each_code(), *NOT_BUILT}))
def test_a_network_of_each_code_of_the_zoo_is_built_and_runs_or_says_why_not(name: str, tmp_path: Path) -> None:
    own = find_entry(name).defaults
    layers = 5 if "dense_layers" in own else 2
    settings: dict[str, int | str] = {"layers": layers} if "layers" in own else {}
    reason = NOT_BUILT.get(name)
    if own.get("attention") == "fused-softmax":
        network = find_network(name, training=True, settings=settings).build(1)
        with pytest.raises(Unavailable, match=MEGATRON):
            build_module(written_out(network, tmp_path), torch.device("meta"))
        settings |= {"attention": "fused", "dropout": 0}
    network = find_network(name, training=True, settings=settings).build(2)
    if reason is not None:
        with pytest.raises(Unavailable, match=reason):
            build_module(written_out(network, tmp_path), torch.device("meta"))
        return
    built = build_module(written_out(network, tmp_path), torch.device("meta"), dtype=torch.bfloat16)
    built.loss().backward()
    assert all(p.grad is not None for p in built.module.parameters() if p.requires_grad)


def test_rows_go_to_experts_and_come_back_weighed_as_they_are_written(tmp_path: Path) -> None:
    sizes: dict[str, int | str] = {
        "layers": 1,
        "hidden": 32,
        "heads": 4,
        "kv_heads": 2,
        "expert_inner": 24,
        "vocabulary": 40,
    }
    network = find_network("mixtral-8x7b", training=True, sequence_length=16, settings=sizes).build(2)
    built = build_module(written_out(network, tmp_path), torch.device("cpu"))
    assert sum(p.numel() for p in built.module.parameters()) == network.parameter_count
    built.loss().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in built.module.parameters())
    (up, _) = [module for module in built.module.modules() if getattr(module, "names", ()) and module.weight.dim() == 3]
    rows = torch.randn(2 * 16 * 2, up.weight.shape[2])  # each of two samples of 16 tokens goes to two experts
    by_hand = torch.cat([part @ weight.T for part, weight in zip(rows.chunk(8), up.weight, strict=True)])
    torch.testing.assert_close(up(rows), by_hand)
    assert {str(each.device) for each in built.module.to("meta").buffers()} == {"meta"}, "the ends of groups move, too"


# -- images that are cropped -----------------------------------------------------------


@pytest.mark.slow
def test_what_a_join_crops_of_images_is_sliced_and_keeps_the_layout(tmp_path: Path) -> None:
    network = find_network("unet", training=True, settings={"image": 188}).build(1)
    built = build_module(written_out(network, tmp_path), "cpu")
    orders = []

    def note(_module: Any, fed: tuple[Any, ...]) -> None:
        if fed[0].dim() == 4:
            orders.append(fed[0].is_contiguous(memory_format=torch.channels_last))

    module = built.module.to(memory_format=torch.channels_last)
    for each in module.modules():
        if isinstance(each, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            each.register_forward_pre_hook(note)
    with torch.no_grad():
        module(*(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in built.inputs))
    assert len(orders) == 23
    assert all(orders), "a user's slices keep pixels together"


def test_gradients_of_cropped_images_are_those_of_the_slice() -> None:
    images = torch.randn(2, 8, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    view, shape, _ = reshaped_part((2, 8, 8, 8), 2 * 8 * 4 * 4, 0, 0, (4, 4))
    assert shape == (2, 8, 4, 4)
    (found,) = torch.autograd.grad(view(images).square().sum(), images)
    (by_hand,) = torch.autograd.grad(images[:, :, 2:6, 2:6].square().sum(), images)
    torch.testing.assert_close(found, by_hand)
    assert reshaped_part((2, 8, 8, 8), 2 * 2 * 8 * 8, 0, 0, (8, 8))[1] == (2, 2, 8, 8), "channels of whole images"


# -- operators by themselves -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "bert-base", "mpt-125m", "lstm-shi2016"])
def test_parts_ask_for_the_operators_of_the_network_and_no_other(name: str, tmp_path: Path) -> None:
    network = network_of(name)
    names = RowNames(devices=DeviceNames(["x=h200-sxm"]))
    asked, left = set(), set()
    for part in operator_parts(written_out(network, tmp_path), "amp-bf16", "train"):
        if part.reason:
            left.add(part.layer)
            continue
        row = {"device": "x", "software": "torch 2.11", **part.cells}
        question: Any = read_operator(lambda column, row=row: str(row.get(column, "")), names).question  # type: ignore[misc]
        asked.add(question.operator)
        products = isinstance(question.operator, Linear | MatMul | Conv2d | Attention | Recurrent)
        assert question.precision == "bf16" if products else question.precision in ("bf16", "fp32")
    mine = {layer.operator for layer in network.layers}
    plain = {replace(op, vocabulary=0) if isinstance(op, Embedding) else op for op in mine}
    # A linear row includes a bias only if it is fused; a convolution's bias is a separate kernel.
    assert {_bare(op) for op in asked} <= {_bare(op) for op in plain}
    by_name = {layer.name: layer.operator for layer in network.layers}
    missing = {_bare(op) for op in plain} - {_bare(op) for op in asked}
    assert {_kind(op) for op in missing} <= {_kind(by_name[layer]) for layer in left}


def _kind(operator: Any) -> tuple[str, str, int]:
    function, inputs = getattr(operator, "function", ""), getattr(operator, "inputs", 0)
    return type(operator).__name__, function, inputs if function else 0


def _bare(operator: Any) -> Any:
    if isinstance(operator, Attention):
        heads = operator.batch * operator.heads
        return replace(operator, library="flash2", kv_heads=0, batch=heads, heads=1)
    return replace(operator, bias=False) if isinstance(operator, Linear | Conv2d) else operator
