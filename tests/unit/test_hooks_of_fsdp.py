"""Host time of FSDP's hooks around each unit, in each pass, and of DistributedDataParallel's copies of gradients."""

from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.constants import DEFAULT
from simulator.devices.dispatch import bucket_copy_time, unit_time
from simulator.places import Places
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.step.issue import launches_of
from simulator.workload.network import Network
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-h100")
COSTS = DEFAULT["dispatch"]
PLAIN = StepOptions(precision="bf16", optimizer="adam", fused_optimizer=True)
IN_BLOCK, OUTSIDE = 7 + 2, 3  # q, k, v, out, gate, up, down and two norms; words, the last norm, the head


def llama(layers: int, **sizes: int) -> Network:
    return build_network("llama2-7b", batch=1, sequence_length=64, layers=layers, loss=True, **sizes)


def besides_s(network: Network, words: str, options: StepOptions = PLAIN, micro_batches: int = 1) -> float:
    """Return the host time of a step that is not that of its operators."""
    result = step_on(MACHINE, network, options, layout=parse_layout(words), micro_batches=micro_batches)
    issues = launches_of(Places(MACHINE).find().device, network, options)
    update_s = sum(issue.host_s for issue in issues if issue.part == "update")
    passes_s = sum(issue.host_s for issue in issues if issue.part != "update" and not issue.adds)
    adding_s = sum(issue.host_s for issue in issues if issue.adds)
    return result.step.host_s - update_s - micro_batches * passes_s - (micro_batches - 1) * adding_s


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_each_unit_is_hooked_in_each_pass(layers: int, micro_batches: int) -> None:
    passes = 2 * micro_batches
    units, tensors = layers + 1, layers * IN_BLOCK + OUTSIDE
    expected_s = passes * (units * COSTS.unit_s + tensors * COSTS.shard_s)
    assert besides_s(llama(layers), "fsdp", micro_batches=micro_batches) == pytest.approx(expected_s, rel=1e-6)


def test_recomputing_hooks_nothing_again() -> None:
    """A unit's recomputation runs inside its backward pass."""
    again = replace(PLAIN, recompute="full")
    assert besides_s(llama(2), "fsdp", again) == pytest.approx(besides_s(llama(2), "fsdp"), rel=1e-6)


def test_each_matrix_of_an_adapter_is_a_unit_of_its_own() -> None:
    """As PEFT's fsdp_auto_wrap_policy wraps them: of four layers with adapters in a block, two matrices each."""
    layers, adapters = 2, 8
    adapted = llama(layers, lora=8)
    whole_s = 2 * layers * (COSTS.unit_s + (IN_BLOCK + adapters) * COSTS.shard_s)
    whole_s += COSTS.unit_s + OUTSIDE * COSTS.shard_s  # forward alone: nothing outside of blocks is trained
    own_s = layers * adapters * (COSTS.unit_s + COSTS.shard_s)
    assert besides_s(adapted, "fsdp") == pytest.approx(whole_s + 2 * own_s, rel=1e-6)
    again = besides_s(adapted, "fsdp", replace(PLAIN, recompute="full"))
    assert again == pytest.approx(whole_s + 3 * own_s, rel=1e-6)


def test_a_device_waits_for_the_hooks_of_adapters() -> None:
    def step_s(words: str) -> float:
        network = build_network("llama2-7b", batch=2, sequence_length=4096, layers=2, loss=True, lora=8)
        return step_on(MACHINE, network, PLAIN, layout=parse_layout(words)).step_time_s

    assert step_s("fsdp") - step_s("dp") > 0.8 * 2 * 2 * 8 * COSTS.unit_s


def test_zero3_has_its_own_hooks_alone() -> None:
    assert besides_s(llama(2), "fsdp", replace(PLAIN, framework="deepspeed-zero3")) == pytest.approx(0.0, abs=1e-9)


def test_a_gradient_is_copied_twice_at_half_a_call_each() -> None:
    found = besides_s(llama(2), "dp") / (COSTS.bucket_copy * COSTS.backward_s)
    assert found == pytest.approx(2 * (2 * IN_BLOCK + OUTSIDE), rel=1e-6)


def test_shards_take_the_host_longer_than_replicas() -> None:
    network = build_network("resnet50", batch=8, loss=True)
    options = StepOptions(precision="tf32", optimizer="momentum")
    took = [step_on(MACHINE, network, options, layout=parse_layout(words)) for words in ("dp", "fsdp")]
    assert all(step.step_time_s == pytest.approx(step.step.host_s, rel=0.1) for step in took)
    assert took[0].step_time_s < took[1].step_time_s


def test_a_cpu_has_none() -> None:
    cpu = Places(MACHINE).find("cpu0").device
    assert unit_time(cpu, 9) == 0.0
    assert bucket_copy_time(cpu) > 0.0  # nothing is issued ahead: the call adds to the copy
