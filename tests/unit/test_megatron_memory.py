"""What Megatron-LM keeps in memory, against the published formulas and by hand."""

from __future__ import annotations

import pytest

from simulator.api import load_machine
from simulator.devices.predict import Device
from simulator.places import Places
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.step.megatron import shared_gradients
from simulator.step.memory import Shares, held_in, memory_need, moments_of
from simulator.training import divided
from simulator.workload.find import find_network
from simulator.workload.zoo.registry import build_network

MEGATRON = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, framework="megatron")
SIZES = {"gpt3-175b": (12288, 96), "gpt3-6.7b": (4096, 32)}
LENGTH = 2048
LLAMA = build_network("llama3-8b", batch=1, loss=True, sequence_length=64, layers=4)
N = LLAMA.trained_count


def saved_by_a_block(name: str, words: str, *, again: bool) -> int:
    options = StepOptions(precision="master-bf16", framework="megatron", recompute="selective" if again else "none")

    def saved(layers: int) -> int:
        network = find_network(name, settings={"layers": layers, "attention": "eager"}, sequence_length=LENGTH).build(1)
        return held_in(divided(network, parse_layout(words).on(8)), options).moments[0].activations_bytes

    return saved(3) - saved(2)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("words", ["tp=1", "tp=8", "tp=8,sp"])
@pytest.mark.parametrize("name", SIZES)
def test_activations_of_a_block_are_those_of_the_published_formulas(name: str, words: str, again: bool) -> None:
    """Korthikanti et al., "Reducing Activation Recomputation", arXiv 2205.05198, equations 1, 2, 4 and 6."""
    h, a = SIZES[name]
    t = 8 if "8" in words else 1
    scores = 0.0 if again else 5 * a * LENGTH / h
    each = 34 / t + scores / t if words != "tp=8" else 10 + 24 / t + scores / t
    assert saved_by_a_block(name, words, again=again) == pytest.approx(LENGTH * h * each, rel=5e-4)


def test_gradients_lie_in_one_buffer_from_the_first_moment_to_the_update() -> None:
    held = held_in(LLAMA, MEGATRON)
    for shares in (Shares(), Shares(updated=1 / 8), Shares(in_flight=3, accumulates=True)):
        whole = {moment.gradients_bytes for moment in moments_of(held, MEGATRON, shares)}
        assert whole == {4 * N + 2 * held.unread_gradients}


def test_18_bytes_a_parameter_and_6_and_12_over_the_ranks_with_a_distributed_optimizer(device: Device) -> None:
    """2 for the parameter, 4 for its gradient; 4, 4 and 4 for its copy and its moments (Megatron-LM's docs)."""
    for ranks in (1, 8):
        need = memory_need(LLAMA, MEGATRON, device, Shares(updated=1 / ranks))
        state = need.parameters_bytes + need.gradients_bytes + need.optimizer_bytes
        assert state == pytest.approx((6 + 12 / ranks) * N + 2 * shared_gradients(LLAMA))


def test_gradients_that_nobody_reads_are_one_for_each_shape_of_a_weight() -> None:
    qkv, out, gate_and_up, down = 4096 * (4096 + 2 * 1024), 4096 * 4096, 4096 * 2 * 14336, 14336 * 4096
    assert shared_gradients(LLAMA) == qkv + out + gate_and_up + down
    experts = build_network("mixtral-8x7b", batch=1, loss=True, sequence_length=64, layers=2)
    router, one = 4096 * 8, 14336 * 4096
    assert shared_gradients(experts) == qkv + out + router + 2 * one + one
    plain = StepOptions(precision="bf16", optimizer="adam")
    assert held_in(LLAMA, plain).unread_gradients == 0


@pytest.mark.parametrize(("framework", "each"), [("megatron", 4 + 2), ("pytorch", 4 + 4 + 4)])
def test_bytes_of_a_score_at_the_loss(framework: str, each: int) -> None:
    """Softmax and, over it, its gradient cast to bf16; or log-softmax, its gradient, and that of the fp32 scores."""
    options = StepOptions(precision="master-bf16", framework=framework)  # type: ignore[arg-type]

    def at_loss(words: int) -> int:
        network = build_network("llama3-8b", batch=1, loss=True, sequence_length=64, layers=1, vocabulary=words)
        last = len(network.layers) - 1
        moments = held_in(network, options).moments
        return max(moment.activations_bytes + moment.working_bytes for moment in moments if moment.place == last)

    assert at_loss(200_000) - at_loss(100_000) == each * 64 * 100_000


@pytest.fixture(scope="module")
def device() -> Device:
    return Places(load_machine("dgx-b200")).find().device
