"""Memory that the allocator holds: the replay of a step's tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.devices.predict import Device
from simulator.questions.layout import FSDP, Layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.step.memory import Shares, held_in, memory_need, moments_of, need_of, with_gaps
from simulator.step.moments import tape_of
from simulator.step.reserved import RankState, reserved_and_allocated
from simulator.training.memory import gathered_elements
from simulator.workload.network import Network
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.registry import build_network

PLAIN = StepOptions(precision="fp32", optimizer="adam", fused_optimizer=True)
MIB = 2**20
NOTHING = RankState((4.0,), 4.0, 1.0, 0.0, 0, 0.0, 1.0, 1.0, False)


@pytest.fixture(scope="module")
def device() -> Device:
    return Session().device(Where("dgx-h100"))


def chain(*widths: int) -> Network:
    """Return linear layers over 1,024 rows, from 1,024 numbers through *widths*."""
    b = NetworkBuilder("chain")
    x = b.input(1024, 1024)
    for i, width in enumerate(widths):
        x = x.linear(str(i), width, bias=False)
    return b.build(1)


@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "master-bf16"])
@pytest.mark.parametrize("workload", ["gpt2", "llama2-7b", "resnet50"])
def test_every_tensor_that_comes_goes(workload: str, precision: str, recompute: str) -> None:
    sizes = {} if workload == "resnet50" else {"sequence_length": 64, "layers": 3}
    network = build_network(workload, batch=1, loss=True, **sizes)
    options = StepOptions(precision=precision, recompute=recompute)  # type: ignore[arg-type]
    tape = tape_of(network, options, 4)
    live: dict[int, int] = {}
    for number, use, n_bytes, _ in (*tape.forward, *tape.backward):
        if n_bytes:
            assert number not in live
            live[number] = n_bytes
        else:
            del live[number]
        assert use != "graded" or n_bytes  # gradients of parameters stay until the update
    left = set(live) - {taken.number for taken in tape.backward if taken.use == "graded"}
    assert not left


@pytest.mark.parametrize("options", [PLAIN, replace(PLAIN, precision="amp-bf16"), replace(PLAIN, recompute="full")])
@pytest.mark.parametrize("workload", ["gpt2", "resnet50"])
def test_a_replay_needs_what_the_moments_say(workload: str, options: StepOptions, device: Device) -> None:
    """Up to the rounding of blocks: to 512 bytes, or up to 1 MiB more where a block is not split."""
    network = build_network(workload, batch=4, loss=True)
    need = memory_need(network, options, device)
    _, allocated = reserved_and_allocated(network, options, 4, NOTHING)
    tensors = need.allocated_bytes - need.workspace_bytes
    assert tensors <= allocated * (1 + 1e-9)
    assert allocated == pytest.approx(tensors, rel=0.03)


def test_a_chain_by_hand() -> None:
    """Four layers of 4 MiB each; blocks of 20 MiB serve requests below 10 MiB.

    In a backward pass there are four weights, eight moments, the input, and six more: three activations, a layer's two
    gradients and its weight's, one more of which takes the place of an activation as the pass goes on.
    """
    network = chain(1024, 1024, 1024, 1024)
    reserved, allocated = reserved_and_allocated(network, PLAIN, 4, NOTHING)
    assert allocated == (4 + 8 + 1 + 6) * 4 * MIB
    assert reserved == 80 * MIB


def of_memory(device: Device, n_bytes: float) -> Device:
    """Return *device* with a memory of *n_bytes*."""
    return replace(device, memory_bytes=n_bytes)  # type: ignore[type-var]


@pytest.mark.parametrize(("workload", "batch"), [("vgg16", 32), ("resnet50", 256)])
def test_where_memory_is_scarce_gaps_go_back_to_the_driver(workload: str, batch: int, device: Device) -> None:
    """The same step fits into less than it would hold, down to a least memory below which a request is refused."""
    network = build_network(workload, batch=batch, loss=True)
    plenty = memory_need(network, PLAIN, device)
    assert plenty.total_bytes == plenty.allocated_bytes + plenty.cached_bytes + plenty.context_bytes
    least, most = plenty.allocated_bytes + plenty.context_bytes, plenty.total_bytes
    assert memory_need(network, PLAIN, of_memory(device, most)) == replace(plenty, available_bytes=most)
    tight = memory_need(network, PLAIN, of_memory(device, most - plenty.cached_bytes / 3))
    assert tight.fits
    assert tight.cached_bytes < plenty.cached_bytes
    sizes = [least + plenty.cached_bytes * part / 20 for part in range(20)]
    needs = [memory_need(network, PLAIN, of_memory(device, size)) for size in sizes]
    assert not needs[0].fits
    assert [need.fits for need in needs] == sorted(need.fits for need in needs)
    assert all(need.allocated_bytes == plenty.allocated_bytes for need in needs)
    assert all(need.total_bytes > size for need, size in zip(needs, sizes, strict=True) if not need.fits)


def test_tensors_that_are_too_much_have_no_gaps(device: Device) -> None:
    network = build_network("gpt2", batch=4, loss=True)
    plenty = memory_need(network, PLAIN, device)
    small = memory_need(network, PLAIN, of_memory(device, plenty.allocated_bytes))
    assert not small.fits
    assert small.total_bytes == plenty.total_bytes - plenty.cached_bytes


def test_cpus_and_inference_have_none(device: Device) -> None:
    network = build_network("gpt2", batch=1, loss=True)
    inference = replace(PLAIN, mode="inference", fused_optimizer=False)
    assert memory_need(network, PLAIN, device).cached_bytes
    assert memory_need(network, PLAIN, Session().device(Where("xeon-gold-6148"))).cached_bytes == 0.0
    assert memory_need(network, inference, device).cached_bytes == 0.0
    assert memory_need(network, replace(PLAIN, framework="tensorflow"), device).cached_bytes == 0.0


def test_micro_batches_in_flight_hold_their_activations(device: Device) -> None:
    network = build_network("gpt2", batch=1, loss=True, layers=4)
    one, three = (memory_need(network, PLAIN, device, Shares(in_flight=n)) for n in (1.0, 3.0))
    saved = held_in(network, PLAIN).moments[0].activations_bytes
    assert three.activations_bytes - one.activations_bytes == 2 * saved
    assert three.cached_bytes < saved


def test_a_rank_that_gathers_units_holds_gaps_too() -> None:
    question = StepQuestion(where=Where("dgx-h100"), workload="llama2-7b", batch=1, layout=Layout(zero=3))
    need = Session().step(replace(question, options=replace(question.options, recompute="full"))).tightest.need
    assert 0 < need.cached_bytes < need.allocated_bytes


def test_the_peak_is_where_most_is_held(device: Device) -> None:
    """After a wide layer at the end in its backward pass; with one layer and much state in the update; else named."""
    said = [
        memory_need(chain(*widths), options, device).peak
        for widths, options in (
            ((64, 64, 8192), PLAIN),
            ((8192,) * 2, replace(PLAIN, fused_optimizer=False)),
        )
    ]
    assert said == ["in the backward pass of 2", "in the update"]
    assert memory_need(chain(64), replace(PLAIN, mode="inference", fused_optimizer=False), device).peak == ""


def test_flat_buffers_of_gathered_units_have_segments_of_their_own(device: Device) -> None:
    """A block and the next, or what is outside of blocks; Adam's state and the rest are those of a shard."""
    options = StepOptions(precision="amp-bf16", optimizer="adam", framework="pytorch")
    other = replace(options, framework="deepspeed-zero3")  # which computes with views of them
    shares = Shares(kept=1 / 8, gathered=7 / 8, gradients=1.0, kept_gradients=1 / 8, updated=1 / 8)
    for sizes, elements in (((8, 300), 2 * (4 * 64**2 + 3 * 64 * 176 + 2 * 64)), ((8, 32000), 2 * 32000 * 64 + 64)):
        layers, words = sizes
        more = {"hidden": 64, "heads": 4, "inner": 176, "vocabulary": words, "layers": layers, "sequence_length": 32}
        network = build_network("llama2-7b", batch=1, loss=True, **more)
        flat, views = (memory_need(network, each, device, shares).cached_bytes for each in (options, other))
        assert flat - views == 2 * elements


def test_segments_that_grow_leave_few_gaps(device: Device) -> None:
    network = build_network("gpt2", batch=4, loss=True)
    plain, grown = (memory_need(network, replace(PLAIN, expandable_segments=grows), device) for grows in (False, True))
    assert grown.allocated_bytes == plain.allocated_bytes
    assert 0 < grown.cached_bytes < plain.cached_bytes / 2


def test_fsdp_in_mixed_precision_keeps_shards_in_fp32_alone(device: Device) -> None:
    """4 bytes of a parameter, 4 of its gradient, 8 of moments; DeepSpeed has 2 + 4, 2 + 4 and 8 in the update."""
    network = build_network("llama2-7b", batch=1, loss=True, sequence_length=32, layers=4)
    n = network.trained_count
    shares = Shares(kept=1 / 8, gathered=0.1, gradients=0.1 + 1 / 8, kept_gradients=1 / 8, updated=1 / 8)
    found = {}
    for framework in ("pytorch", "deepspeed-zero3"):
        options = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, framework=framework)  # type: ignore[arg-type]
        held = held_in(network, options)
        need, update = need_of(held, options, device, shares), moments_of(held, options, shares)[-1]
        gathered = 2 * 0.1 * n
        found[framework] = (need.parameters_bytes - gathered + update.gradients_bytes + need.optimizer_bytes) * 8 / n
    assert found == pytest.approx({"pytorch": 16.0, "deepspeed-zero3": 20.0})


@pytest.mark.slow
@pytest.mark.parametrize("way", ["alone", "shards", "in flight"])
@pytest.mark.parametrize("workload", ["alexnet", "vgg16", "densenet121", "unet", "gpt2", "t5-base"])
def test_what_leaves_as_much_room_as_its_tensors_take_fits_with_gaps(workload: str, way: str, device: Device) -> None:
    """As :func:`simulator.api.outcome.step_fits` takes for granted: what is wholly free goes back to the driver."""
    for batch, precision, optimizer in ((1, "fp32", "momentum"), (1, "amp-bf16", "adam"), (8, "bf16", "adam")):
        network = build_network(workload, batch=batch, loss=True)
        options = StepOptions(precision=precision, optimizer=optimizer)  # type: ignore[arg-type]
        shares = Shares(in_flight=3.0) if way == "in flight" else Shares()
        if way == "shards":
            there = min(1.0, gathered_elements(network, FSDP) / network.parameter_count + 1 / 8)
            shares = Shares(1 / 8, there - 1 / 8, there, 1 / 8, 1 / 8)
        need = need_of(held_in(network, options), options, device, shares)
        need = replace(need, available_bytes=need.total_bytes + need.allocated_bytes)
        assert with_gaps(need, network, options, device, shares).fits, (batch, precision)
