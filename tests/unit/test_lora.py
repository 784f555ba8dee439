"""Low-rank adapters: what they add, and what frozen weights save."""

from __future__ import annotations

import json

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.options import Policy, StepOptions
from simulator.questions.where import Where
from simulator.step.lowering import Lowering
from simulator.workload.backward import backward_steps, gradient_order, one_format, saved_tensors, training_flop
from simulator.workload.kernels import Streaming
from simulator.workload.network import Network
from simulator.workload.operators import Linear, Phase
from simulator.workload.variants import with_lora
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.registry import build_network

RANK = 4


def two_layers() -> Network:
    """Return a network with a linear layer before a block, one after it, and two within."""
    b = NetworkBuilder("two")
    x = b.input(6, 16).linear("embed", 16)
    with b.part("attention"):
        x = x.linear("layers.0.q", 32, split="columns").relu("layers.0.relu")
        x = x.linear("layers.0.out", 16, split="rows")
    x.linear("head", 8)
    return b.build(6)


def test_only_adapters_are_trained() -> None:
    network = with_lora(two_layers(), RANK)
    assert network.trained_count == 2 * RANK * (16 + 32)
    assert network.parameter_count == two_layers().parameter_count + network.trained_count
    assert all(".lora_" in name for name in gradient_order(network))
    splits = {layer.name: layer.split for layer in network.layers if isinstance(layer.operator, Linear)}
    assert splits["layers.0.q.lora_a"] is splits["layers.0.out.lora_b"] is None
    assert splits["layers.0.q.lora_b"] == "columns"
    assert splits["layers.0.out.lora_a"] == "rows"


def test_what_stands_before_the_first_adapter_has_no_backward_pass() -> None:
    network = with_lora(two_layers(), RANK)
    phases = {step.layer.name: step.phase for step in backward_steps(network)}
    assert "embed" not in phases
    assert "layers.0.q" not in phases  # nothing before it is trained
    assert phases["layers.0.out"] == "bwd_data"
    assert phases["layers.0.q.lora_a"] == "bwd_weight"
    kept = saved_tensors(network, one_format(network, 4)).by_tensor
    assert sum(kept.values()) == 4 * 6 * (16 + RANK + 32 + RANK)  # inputs of A and of B; the ReLU's output is A's input


@pytest.mark.torch
@pytest.mark.slow
def test_flop_are_those_that_torch_counts() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    from torch.utils.flop_counter import FlopCounterMode

    shapes = (16, 16), (16, 32), (32, 16), (16, 8)
    frozen = [torch.nn.Linear(*sizes).requires_grad_(False) for sizes in shapes]
    pairs = [
        (torch.nn.Linear(n, RANK, bias=False), torch.nn.Linear(RANK, m, bias=False)) for n, m in ((16, 32), (32, 16))
    ]
    x = frozen[0](torch.ones(6, 16))
    with FlopCounterMode(display=False) as counter:
        x = frozen[0](torch.ones(6, 16))
        for i, ((a, b), layer) in enumerate(zip(pairs, frozen[1:3], strict=True)):
            x = layer(x) + 2 * b(a(x))
            x = x if i else torch.relu(x)
        frozen[3](x).sum().backward()
    assert training_flop(with_lora(two_layers(), RANK)) == counter.get_total_flops()


def test_a_language_model_has_as_many_trained_parameters_as_peft_says() -> None:
    # 13,631,488: PEFT's print_trainable_parameters for Llama 3 8B, rank 16, q_proj, k_proj, v_proj and o_proj;
    # 41,943,040: with gate_proj, up_proj and down_proj as well.
    assert build_network("llama3-8b", batch=1, lora=16).trained_count == 13_631_488
    assert build_network("llama3-8b", batch=1, lora=16, lora_layers="all").trained_count == 41_943_040
    assert build_network("llama3-8b", batch=1).trained_count == build_network("llama3-8b", batch=1).parameter_count


def test_experts_have_no_adapters() -> None:
    network = build_network("mixtral-8x7b", batch=1, layers=1, lora=8, lora_layers="all")
    assert not any(".lora_" in layer.name for layer in network.layers if layer.part == "experts")


def test_memory_and_update_are_those_of_what_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--batch", "1", "--seq-len", "128", "--set", "layers=2", "--set", "lora=8", "--json", "--quiet"]
    assert run(["--topology", "dgx-h100", "--device", "gpu0", "--workload", "llama3-8b", *sizes]) == 0
    document = json.loads(capsys.readouterr().out)
    trained, frozen = document["trained_count"], document["parameter_count"] - document["trained_count"]
    memory = document["memory"]
    assert memory["optimizer_bytes"] == 2 * 4 * trained
    kept = 4 * trained + 2 * frozen
    assert kept <= memory["parameters_bytes"] <= kept + 2 * trained  # the casts of adapters that the peak still needs
    assert run(["--topology", "dgx-h100", "--gpus", "2", "--workload", "llama3-8b", *sizes]) == 0
    copied = json.loads(capsys.readouterr().out)["memory"]["working_bytes"] - memory["working_bytes"]
    assert 0 <= copied <= 4 * trained  # buckets only hold gradients


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["dp", "fsdp"])
def test_gradients_of_adapters_alone_are_exchanged(parallel: str, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--topology", "p3.16xlarge", "--workload", "gpt2", "--batch", "1", "--seq-len", "64", "--json", "--quiet"]

    def exchanged_s(*more: str) -> float:
        assert run([*common, "--parallel", parallel, *more]) == 0
        return float(json.loads(capsys.readouterr().out)["results"][0]["communication_s"])

    assert exchanged_s("--set", "lora=4") < (0.2 if parallel == "dp" else 0.9) * exchanged_s()


def test_no_such_layers() -> None:
    with pytest.raises(InputError, match="lora_layers 'atention'; did you mean 'attention'"):
        build_network("gpt2", batch=1, lora=4, lora_layers="atention")
    with pytest.raises(InputError, match="lora does not apply"):
        build_network("resnet18", batch=1, lora=4)


def lowered(network: Network, precision: Policy, *, forward: bool) -> list[tuple[str, str, int]]:
    """Return layer, function or format of products, and bytes of each kernel of adapters and of what they add to."""
    lowering = Lowering(
        Session().device(Where("dgx-a100-80gb")), network, StepOptions(precision=precision, optimizer="sgd")
    )
    found = []
    for layer in (each for each in network.layers if each.name.startswith("layers.0.out.lora_")):
        phase: Phase = "fwd" if forward else "bwd"
        runs = [*lowering.layer(layer.operator, phase, lowering.mix(layer), has_parameters=bool(layer.parameters))]
        for kernel in (each.kernel for each in (*runs, *lowering.casts(layer, forward=forward))):
            what = kernel.function if isinstance(kernel, Streaming) else getattr(kernel, "precision", "")
            found.append((layer.name.rpartition("_")[2], what, kernel.bytes))
    return found


def test_adapters_on_plain_half_precision_are_in_fp32_as_peft_keeps_them() -> None:
    """x.to(fp32), A, B and the scale in fp32, their sum with the frozen result in fp32, and back to half precision."""
    rows, inputs, outputs = 6, 32, 16
    network = with_lora(two_layers(), RANK)
    products = {
        name: what for name, what, _ in lowered(network, "bf16", forward=True) if name in "ab" and what != "copy"
    }
    assert products == {"a": "fp32", "b": "fp32"}
    passes = [each for each in lowered(network, "bf16", forward=True) if not each[1].startswith("fp")]
    assert passes == [
        ("a", "copy", rows * inputs * (2 + 4)),
        ("scale", "mul_scalar", rows * outputs * (4 + 4)),
        ("add", "add", rows * outputs * (2 + 4 + 4)),
        ("add", "copy", rows * outputs * (4 + 2)),
    ]
    back = [each for each in lowered(network, "bf16", forward=False) if each[1] == "copy"]
    assert back == [
        ("a", "copy", rows * inputs * (4 + 2)),
        ("add", "copy", rows * outputs * (2 + 4)),
        ("add", "copy", rows * outputs * (4 + 2)),
    ]


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "master-bf16"])
def test_elsewhere_nothing_is_cast_around_the_sum(precision: Policy) -> None:
    """DeepSpeed and FSDP's MixedPrecision cast adapters with all weights, and autocast casts for products."""
    found = lowered(with_lora(two_layers(), RANK), precision, forward=True)
    assert not [each for each in found if each[:2] == ("add", "copy")]
