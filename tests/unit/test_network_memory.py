"""Activation memory and the order of gradients, for networks small enough to count by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator.questions.options import Recompute, StepOptions
from simulator.step.memory import held_in
from simulator.workload.backward import (
    backward_steps,
    needs_gradient,
    one_format,
    peak_forward_bytes,
    read_elements,
    saved_tensors,
    storages,
    training_flop,
)
from simulator.workload.network import Network
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.registry import build_network


def images(b: NetworkBuilder) -> Network:
    """Return conv, norm, in-place ReLU, pool and linear over 4 images of 3 x 8 x 8."""
    x = b.input(4, 3, 8, 8).conv("conv", 5, 3, pad=1)
    x = x.batch_norm("norm").relu("relu")
    x = x.pool("pool", 2)
    x = x.flatten().linear("fc", 10)
    x.cross_entropy()
    return b.build(4)


def test_what_each_layer_keeps() -> None:
    network = images(NetworkBuilder("images"))
    kept = saved_tensors(network, one_format(network, 4))
    fed, conv, relu, pool = 4 * 3 * 64, 4 * 5 * 64, 4 * 5 * 64, 4 * 5 * 16
    assert kept.by_tensor == {0: 4 * fed, 1: 4 * conv, 2: 4 * relu, 4: 4 * pool, 6: 8 * 4}
    #                 conv, norm's mean and deviation, relu, indices, fc, log-probabilities
    assert kept.by_layer == (0, 2 * 5 * 4, 0, 8 * pool, 0, 4 * 10 * 4)
    assert kept.total_bytes == sum(kept.by_tensor.values()) + 40 + 8 * pool + 160


def test_half_precision_halves_tensors_and_not_indices() -> None:
    network = images(NetworkBuilder("images"))
    full, half = saved_tensors(network, one_format(network, 4)), saved_tensors(network, one_format(network, 2))
    assert {k: v // 2 if k != 6 else v for k, v in full.by_tensor.items()} == half.by_tensor
    assert half.by_layer == (0, 40, 0, full.by_layer[3], 0, 80)


@pytest.mark.parametrize(
    ("function", "inputs", "kept"),
    [
        ("relu", 1, {1: 400}),
        ("gelu", 1, {0: 400}),
        ("silu", 1, {0: 400}),
        ("pow_scalar", 1, {0: 400}),
        ("mul_scalar", 1, {}),
        ("where", 1, {}),
        ("add", 2, {}),
        ("mul", 2, {0: 400}),  # the other factor needs no gradient
        ("maximum", 1, {0: 400}),
    ],
)
def test_what_elementwise_functions_keep(function: str, inputs: int, kept: dict[int, int]) -> None:
    b = NetworkBuilder("one")
    fed = b.input(10, 10)
    x = fed.linear("linear", 10)  # tensor 1, so that a gradient flows
    x.apply("it", function, *(fed,)[: inputs - 1])
    network = b.build(1)
    found = saved_tensors(network, one_format(network, 4)).by_tensor
    # Tensor 0 is saved by the linear layer; higher numbers belong to the function itself.
    names = {0: 1, 1: 2} if inputs == 1 else {0: 0}
    assert found == {0: 400} | {names[k]: v for k, v in kept.items()}


def test_dropout_keeps_a_byte_an_element_and_nothing_in_inference() -> None:
    trained, used = (build_network("alexnet", batch=2, training=t) for t in (True, False))
    difference = (
        saved_tensors(trained, one_format(trained, 4)).total_bytes
        - saved_tensors(used, one_format(used, 4)).total_bytes
    )
    # Masks of 9216 and 4096; also the ReLU's output, which the second linear layer reads.
    assert difference == 2 * (9216 + 4096) + 4 * 2 * 4096


def test_fused_attention_keeps_no_scores() -> None:
    built = {way: build_network("gpt2", batch=1, layers=1, attention=way) for way in ("eager", "fused")}
    ways = {way: saved_tensors(network, one_format(network, 4)) for way, network in built.items()}
    scores = 12 * 1024 * 1024
    saved = ways["eager"].total_bytes - ways["fused"].total_bytes
    # The results of softmax and dropout and the mask, against the result and one number per row.
    assert saved == scores * (4 + 4 + 1) - 12 * 1024 * 4
    assert ways["fused"].by_layer.count(12 * 1024 * 4) == 1


def _forward_peak(network: Network) -> int:
    return peak_forward_bytes(network, one_format(network, 4))


def test_forward_memory_is_that_of_the_widest_place() -> None:
    b = NetworkBuilder("chain", training=False)
    x = b.input(1, 100)
    for i, width in enumerate((200, 300, 50)):
        x = x.linear(str(i), width)
    # The input stays; 200 and 300 are alive at the same time.
    assert _forward_peak(b.build(1)) == 4 * (100 + 200 + 300)


def test_a_residual_keeps_its_input_alive_and_a_sum_in_place_takes_none() -> None:
    def chain(in_place: bool) -> int:
        b = NetworkBuilder("residual", training=False)
        x = b.input(1, 10).linear("0", 100)
        y = x.linear("1", 100).linear("2", 100)
        y.add(x, "add", in_place=in_place).linear("3", 1)
        return _forward_peak(b.build(1))

    assert chain(in_place=True) == 4 * (10 + 3 * 100)  # x, and the input and output of the last linear layer
    assert chain(in_place=False) == 4 * (10 + 3 * 100)
    b = NetworkBuilder("wide", training=False)
    x = b.input(1, 10).linear("0", 100)
    x.relu("relu").linear("1", 1)
    assert storages(b.build(1)) == [0, 1, 1, 3]
    assert _forward_peak(b.build(1)) == 4 * (10 + 100 + 1)


def test_the_first_layer_needs_no_gradient_of_its_images() -> None:
    network = images(NetworkBuilder("images"))
    assert needs_gradient(network) == [False, True, True, True, True, True, False, True]
    order = [(step.layer.name, step.phase) for step in backward_steps(network)]
    assert order == [
        ("loss", "bwd_data"),
        ("fc", "bwd"),
        ("pool", "bwd_data"),
        ("relu", "bwd_data"),
        ("norm", "bwd"),
        ("conv", "bwd_weight"),
    ]
    conv, fc = (network.layers[i].operator.flop for i in (0, 4))
    assert training_flop(network) == 2 * conv + 3 * fc


def test_gradients_are_ready_from_the_last_layer_to_the_first_and_tied_ones_last() -> None:
    network = build_network("gpt2", batch=1, layers=2, loss=True)
    ready = [p.name for step in backward_steps(network) for p in step.ready]
    assert ready[:4] == ["norm.weight", "norm.bias", "layers.1.down.weight", "layers.1.down.bias"]
    assert ready[-1] == "embed.weight"  # its last use comes first in the backward pass
    assert sorted(ready) == sorted(p.name for p in network.parameters)


def test_a_product_of_what_is_fed_in_has_one_gradient() -> None:
    b = NetworkBuilder("product")
    fed = b.input(2, 3, 4)
    fed.linear("linear", 4).matmul(fed.view(2, 4, 3), "product")
    network = b.build(1)
    linear, product = (layer.operator.flop for layer in network.layers)
    assert training_flop(network) == 2 * linear + 2 * product


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("attention", ["eager", "fused-softmax", "fused"])
def test_queries_keys_and_values_read_a_third_each_of_what_holds_them(batch: int, attention: str) -> None:
    network = build_network("gpt2", batch=batch, layers=1, attention=attention)
    joint = next(layer.output for layer in network.layers if layer.name == "layers.0.qkv")
    reads = [
        read_elements(network, layer, position)
        for layer in network.layers
        for position, tensor in enumerate(layer.inputs)
        if tensor == joint
    ]
    assert reads == [network.elements[joint] // 3] * 3


def saved_by_place(network: Network, recompute: Recompute) -> dict[int, int]:
    """Return the most activations in the backward pass of each layer, in order; -1: after the forward pass."""
    end, _, *backward = held_in(network, StepOptions(recompute=recompute)).moments
    found = {end.place: end.activations_bytes}
    for moment in backward:
        found[moment.place] = max(found.get(moment.place, 0), moment.activations_bytes)
    return found


@pytest.mark.parametrize("workload", ["llama3-8b", "gpt2", "mixtral-8x7b"])
def test_recomputation_never_needs_more_and_block_inputs_fall_as_the_pass_goes_on(workload: str) -> None:
    network = build_network(workload, batch=1, loss=True, layers=4)
    plain, again = (saved_by_place(network, how) for how in ("none", "full"))
    assert list(plain) == list(again)
    assert all(again[place] <= plain[place] for place in plain)
    assert again[-1] < 0.7 * plain[-1]
    assert again[0] == plain[0]  # what the first layer alone saves
    # Of four block inputs and one full block, three inputs are freed when the first block's backward pass begins.
    peaks = [here for before, here in pairwise(again.values()) if here > before]
    assert len(peaks) == 4
    assert all(later < earlier for earlier, later in pairwise(peaks))


def test_attention_is_there_in_full_while_its_block_passes_back() -> None:
    network = build_network("gpt2", batch=1, layers=4, attention="eager", loss=True)
    plain, again = (saved_by_place(network, how) for how in ("none", "selective"))
    scores = 12 * 1024 * 1024 * (4 + 4 + 1)  # results of softmax and dropout, and the mask
    assert plain[-1] - again[-1] == 4 * scores
    assert [here - before for before, here in pairwise(again.values()) if here > before] == [scores] * 4
    assert again[0] == plain[0]
