"""bitsandbytes' Adam: moments of 8 bits, or in managed memory."""

from __future__ import annotations

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.api.advice import faster_options
from simulator.devices.optimizer import state_tensors
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.options import Optimizer, StepOptions
from simulator.questions.step import CheckpointQuestion, StepQuestion
from simulator.questions.where import Where
from simulator.search.parts import RankWork
from simulator.step.issue import launches_of
from simulator.step.memory import memory_need, state_bytes
from simulator.workload.network import Network
from simulator.workload.zoo.builder import NetworkBuilder

RULES: tuple[Optimizer, ...] = ("adam-8bit", "paged-adam", "paged-adam-8bit")
OPTIONS = {name: StepOptions(precision="fp32", optimizer=name) for name in RULES}
WIDE, LESS = 512 * 512, 512 * 8  # a matrix that is paged, and the smallest that is kept in 8 bits


@pytest.fixture(scope="module")
def device() -> Device:
    return Session().device(Where("dgx-h100"))


def network() -> Network:
    """Return a network with two matrices, and a vector of 512 elements."""
    b = NetworkBuilder("two")
    b.input(4, 512).linear("wide", 512).linear("less", 8, bias=False)
    return b.build(4)


@pytest.mark.parametrize(
    ("name", "elements", "found"),
    [
        ("adam", WIDE, (4 * WIDE, 4 * WIDE)),
        ("adam-8bit", WIDE, (WIDE, WIDE, WIDE // 64, WIDE // 64)),  # four bytes for each 256
        ("adam-8bit", 4097, (4097, 4097, 68, 68)),
        ("adam-8bit", 4095, (4 * 4095, 4 * 4095)),
        ("paged-adam", WIDE, ()),
        ("paged-adam", 99_999, (4 * 99_999, 4 * 99_999)),
        ("paged-adam-8bit", WIDE, (WIDE // 64, WIDE // 64)),
    ],
)
def test_moments_are_in_8_bits_from_4096_elements_on_and_paged_from_100000(
    name: Optimizer, elements: int, found: tuple[int, ...]
) -> None:
    assert state_tensors(name, elements, 4) == found


def test_moments_that_are_not_in_8_bits_are_in_fp32() -> None:
    assert state_tensors("adam", 1000, 2) == (2000, 2000)
    assert state_tensors("adam-8bit", 1000, 2) == state_tensors("paged-adam", 1000, 2) == (4000, 4000)


def test_the_state_of_a_network_is_that_of_its_tensors(device: Device) -> None:
    of_wide, of_less, of_bias = 2 * WIDE + WIDE // 32, 2 * LESS + LESS // 32, 2 * 4 * 512
    need = memory_need(network(), OPTIONS["adam-8bit"], device)
    assert need.optimizer_bytes == of_wide + of_less + of_bias
    paged = memory_need(network(), OPTIONS["paged-adam-8bit"], device)
    assert paged.optimizer_bytes == WIDE // 32 + of_less + of_bias
    assert state_bytes(network(), OPTIONS["paged-adam-8bit"], paged=True) == need.optimizer_bytes  # of a checkpoint
    assert need.allocated_bytes - paged.allocated_bytes == 2 * WIDE


def test_the_allocator_holds_no_managed_memory(device: Device) -> None:
    b = NetworkBuilder("large")
    b.input(1, 4096).linear("one", 4096, bias=False).linear("two", 4096, bias=False)
    large = b.build(1)
    needs = [memory_need(large, options, device) for options in OPTIONS.values()]
    in_8_bits, paged, both = (need.reserved_bytes for need in needs)
    assert in_8_bits - both == pytest.approx(2 * 2 * 4096**2, rel=0.01)
    assert paged <= both  # the largest of each 256 are in the device


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("name", "moments", "largest"), [("adam-8bit", 1, 4 / 256), ("paged-adam-8bit", 1, 4 / 256), ("paged-adam", 4, 0)]
)
def test_an_update_reads_and_writes_moments_as_they_are_kept(
    name: Optimizer, moments: int, largest: float, precision: str, device: Device
) -> None:
    options = StepOptions(precision=precision, optimizer=name)  # type: ignore[arg-type]
    updates = [each for each in launches_of(device, network(), options) if each.part == "update"]
    size = 4 if precision == "fp32" else 2
    moved = {each.name: sum(cost.bytes for cost in each.work.costs) for each in updates if each.work}
    assert moved[f"{name} step of wide.weight"] == WIDE * (3 * size + 2 * 2 * (moments + largest))
    assert all(each.waits for each in updates)  # for each tensor
    assert len(updates) == 3


def test_an_update_in_8_bits_is_sooner_than_in_32(device: Device) -> None:
    b = NetworkBuilder("large")
    b.input(1, 16384).linear("one", 16384, bias=False)
    large = b.build(1)
    updates = {
        name: sum(each.device_s for each in launches_of(device, large, OPTIONS[name]) if each.part == "update")
        for name in ("adam-8bit", "paged-adam")
    }
    assert updates["adam-8bit"] / updates["paged-adam"] == pytest.approx((12 + 4 * (1 + 4 / 256)) / 28, rel=0.02)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"framework": "megatron"}, "is of bitsandbytes, for PyTorch"),
        ({"precision": "fp64"}, "updates parameters of 32 and 16 bits"),
        ({"cuda_graph": True}, "waits for each tensor"),
        ({"fused_optimizer": True}, "goes from tensor to tensor"),
        ({"device": "cpu0"}, "applies to GPUs, but a CPU computes"),
        ({"strategy": "parameter-server"}, "updates on GPUs, and parameter servers are CPUs"),
    ],
)
def test_what_bitsandbytes_does_not_update_is_refused(asked: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        simulate("dgx-h100", workload="mlp", batch=2, optimizer="adam-8bit", **asked)  # type: ignore[arg-type]


def test_neither_a_graph_nor_one_kernel_is_advised(device: Device) -> None:
    asked = StepQuestion(where=Where("dgx-h100"), workload="mlp", batch=2, options=OPTIONS["adam-8bit"], gpus=(0,))
    changes = {name for change, _ in faster_options(asked, device) for name in change.options}
    assert "compiled" in changes
    assert changes.isdisjoint({"cuda_graph", "fused_optimizer"})


def asked(optimizer: Optimizer, layers: int = 8, **more: CheckpointQuestion) -> StepQuestion:
    """Return a step of a small Llama."""
    sizes = (("layers", layers), ("hidden", 512), ("heads", 8), ("sequence_length", 64))
    options = StepOptions(precision="amp-bf16", optimizer=optimizer)
    return StepQuestion(
        where=Where("dgx-a100-80gb"), workload="llama2-7b", batch=1, sizes=sizes, options=options, **more
    )


@pytest.mark.parametrize("name", RULES)
def test_a_search_adds_up_the_state_of_blocks(name: Optimizer) -> None:
    session, question = Session(), asked(name)
    part = RankWork(session, question, session.group(question.where, None))
    assert part.short.left_out
    found = part.held(range(part.short.unit_count))
    assert found.state_bytes == state_bytes(session.network(question), question.options)


def test_checkpoints_hold_what_is_paged() -> None:
    session, failing = Session(), CheckpointQuestion(mtbf_s=86400.0)
    paged, plain = (session.step(asked(name, 1, checkpoints=failing)).checkpoints for name in ("paged-adam", "adam"))
    assert paged is not None
    assert plain is not None
    assert paged.write_s == plain.write_s
