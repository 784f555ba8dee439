"""No step reads its parameters faster than the data sheet's bandwidth, unless the last-level cache holds them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.devices.cpu import Cpu
from simulator.devices.gpu import Gpu
from simulator.places import Places
from simulator.questions.options import Mode, Policy, StepOptions
from simulator.workload.network import Layer, Network, Parameter
from simulator.workload.operators import Elementwise, Linear
from simulator.workload.precision import ELEMENT_BYTES
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on

MACHINES = {name: load_machine(name) for name in ("p3.2xlarge", "dgx-a100-80gb", "dgx-h100", "2x-rtx4090-desktop")}
PLACES = [(name, device) for name in MACHINES for device in ("gpu0", "cpu")]
PASSES = {"inference": 1, "forward": 1, "train": 2}  # number of passes that read every weight


def chain(widths: list[int], rows: int) -> Network:
    """Return linear layers from width to width, each followed by a ReLU."""
    layers: list[Layer] = []
    elements = [rows * widths[0]]
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        tensor = len(elements) - 1
        weight = Parameter(f"w{place}", inputs * outputs)
        layers.append(
            Layer(f"linear{place}", Linear(rows, inputs, outputs, bias=False), (tensor,), tensor + 1, (weight,))
        )
        layers.append(Layer(f"relu{place}", Elementwise("relu", rows * outputs), (tensor + 1,), tensor + 2))
        elements += [rows * outputs] * 2
    return Network("chain", tuple(layers), tuple(elements), rows)


def sheet(machine: str, name: str) -> tuple[float, float]:
    """Return the data sheet's memory bandwidth of a device, in B/s, and the size of its last-level cache in bytes."""
    device = Places(MACHINES[machine]).find(name).device
    if isinstance(device, Gpu):
        return device.memory_bandwidth_Bps, device.l2_bytes
    assert isinstance(device, Cpu)
    cache_bytes = sum(c.size_bytes * device.core_count / c.shared_by_cores for c in device.caches[-1:])
    return device.sockets * device.memory_bandwidth_Bps, cache_bytes


@example(("2x-rtx4090-desktop", "gpu0"), [3500, 3500], 20, 1, "inference")
@example(("dgx-h100", "cpu"), [4096, 4096], 20, 1, "inference")
@given(
    st.sampled_from(PLACES),
    st.lists(st.integers(800, 4000), min_size=2, max_size=6),
    st.integers(4, 30),
    st.integers(1, 64),
    st.sampled_from(list(PASSES)),
)
def test_parameters_beyond_the_last_cache_come_from_memory(
    place: tuple[str, str], widths: list[int], times: int, rows: int, mode: Mode
) -> None:
    network = chain(widths * times, rows)
    bandwidth_Bps, cache_bytes = sheet(*place)
    read_bytes = network.parameter_count * ELEMENT_BYTES["fp32"]
    if read_bytes < 3 * cache_bytes:
        return
    options = StepOptions(mode=mode, optimizer="none", cuda_graph=place[1] != "cpu")
    result = alone_on(MACHINES[place[0]], network, options, device=place[1])
    skipped = network.layers[0].parameters[0].elements * ELEMENT_BYTES["fp32"] if mode == "train" else 0
    assert (PASSES[mode] * read_bytes - skipped) / result.step_time_s <= bandwidth_Bps


@pytest.mark.parametrize(
    ("machine", "device", "network", "sizes", "precision"),
    [
        ("dgx-h100", "cpu", "llama-7b", {}, "bf16"),
        ("dgx-h100", "gpu0", "llama-7b", {}, "bf16"),
        ("2x-rtx4090-desktop", "gpu0", "llama-7b", {"layers": 24}, "fp16"),
        ("dgx-a100-80gb", "gpu0", "gpt2", {}, "fp32"),
        ("p3.2xlarge", "gpu0", "bert-large", {}, "fp16"),
        ("p3.2xlarge", "cpu", "bert-large", {}, "fp32"),
    ],
)
def test_one_token_takes_as_long_as_the_weights(
    machine: str, device: str, network: str, sizes: dict[str, int], precision: Policy
) -> None:
    """Generating one token is a pass over all weights except lookup tables."""
    built = build_network(network, batch=1, training=False, sequence_length=1, **sizes)
    read = sum(p.elements for layer in built.layers if isinstance(layer.operator, Linear) for p in layer.parameters)
    options = StepOptions(mode="inference", precision=precision, cuda_graph=device != "cpu")
    result = alone_on(MACHINES[machine], built, options, device=device)
    bandwidth_Bps, _ = sheet(machine, device)
    assert read * ELEMENT_BYTES[precision] / result.step_time_s <= bandwidth_Bps  # type: ignore[index]


def test_a_small_network_stays_in_the_cache() -> None:
    """Parameters are read from the last-level cache if it holds them along with the rest of the step."""
    network = chain([512] * 9, 8)
    machine = "2x-rtx4090-desktop"
    _, cache_bytes = sheet(machine, "gpu0")
    n_bytes = network.parameter_count * ELEMENT_BYTES["fp32"]
    assert n_bytes < cache_bytes / 4
    larger = chain([512] * 200, 8)
    options = StepOptions(mode="inference", cuda_graph=True)
    small, large = (alone_on(MACHINES[machine], each, options) for each in (network, larger))
    assert small.busy_s / len(network.layers) < large.busy_s / len(larger.layers)
