"""Groups of layers that a compiler fuses into one kernel."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator.questions.options import StepOptions
from simulator.step.fusion import fused_groups, run_groups
from simulator.workload.find import find_network
from simulator.workload.network import Layer, Network, Parameter, block_name
from simulator.workload.operators import Elementwise, LayerNorm, Linear

N = 4096


def linear(name: str, read: int, written: int) -> Layer:
    return Layer(name, Linear(64, 64, 64), (read,), written, (Parameter(f"{name}.weight", N),))


def pointwise(name: str, function: str, reads: tuple[int, ...], written: int) -> Layer:
    return Layer(name, Elementwise(function, N, len(reads)), reads, written)


def names(network: Network, *, apart: bool = False) -> list[list[str]]:
    return [[layer.name.rpartition(".")[2] for layer in group.layers] for group in fused_groups(network, apart=apart)]


def test_an_activation_waits_for_the_product_that_it_is_multiplied_by() -> None:
    layers = (
        linear("gate", 0, 1),
        pointwise("silu", "silu", (1,), 2),
        linear("up", 0, 3),
        pointwise("mul", "mul", (2, 3), 4),
        linear("down", 4, 5),
    )
    network = Network("swiglu", layers, (N,) * 6, 1)
    assert names(network) == [["gate"], ["up"], ["silu", "mul"], ["down"]]
    fused = fused_groups(network)[2]
    assert (fused.places, fused.reads, fused.writes) == ((1, 3), (1, 3), (4,))


def test_a_result_that_others_read_is_not_waited_for() -> None:
    layers = (
        linear("first", 0, 1),
        pointwise("relu", "relu", (1,), 2),
        linear("second", 2, 3),
        pointwise("sum", "add", (2, 3), 4),
    )
    assert names(Network("residual", layers, (N,) * 5, 1)) == [["first"], ["relu"], ["second"], ["sum"]]


def test_a_rotation_is_one_kernel() -> None:
    network = find_network("llama3-8b", settings={"layers": 1}, sequence_length=64).build(1)
    rotations = [group for group in names(network) if "neg" in group]
    assert rotations == [["neg", "cat", "cos", "sin", "add"]] * 2


@pytest.mark.parametrize("workload", ["llama3-8b", "gpt2", "qwen3-30b-a3b", "deepseek-v3", "resnet50"])
@pytest.mark.parametrize("apart", [False, True])
def test_every_layer_runs_once_after_what_it_reads(workload: str, apart: bool) -> None:
    network = find_network(workload).build(1)
    groups = fused_groups(network, apart=apart)
    assert sorted(place for group in groups for place in group.places) == list(range(len(network.layers)))
    written = set(range(len(network.elements))) - {layer.output for layer in network.layers}
    for group in groups:
        assert written.issuperset(group.reads)
        written.update(group.writes)
        if apart:
            assert len({block_name(layer.name) for layer in group.layers}) == 1
    assert sum(len(group.layers) > 1 for group in groups) > 5


def test_groups_stay_inside_blocks_that_are_recomputed() -> None:
    """Else, one layer of the next block would run again with each block, and gather its parameters with it."""
    layers = []
    for i in range(2):
        norm = LayerNorm(64, 64, "rms_norm")
        layers.append(Layer(f"blocks.{i}.norm", norm, (3 * i,), 3 * i + 1, (Parameter(f"{i}.norm", 64),)))
        layers.append(linear(f"blocks.{i}.linear", 3 * i + 1, 3 * i + 2))
        layers.append(pointwise(f"blocks.{i}.add", "add", (3 * i, 3 * i + 2), 3 * i + 3))
    network = Network("blocks", tuple(layers), (N,) * 7, 1)
    assert ["add", "norm"] in [[layer.name[9:] for layer in group.layers] for group in fused_groups(network)]
    again = run_groups(network, StepOptions(compiled=True, recompute="full"))
    assert all(len(group.layers) == 1 for group in again)
    assert [group.places for group in again] == [(i,) for i in range(6)]
    assert all(b.places > a.places for a, b in pairwise(again))
