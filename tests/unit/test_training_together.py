"""Costs of data parallelism besides the links: copies into buckets, the slowest rank, slowed kernels."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from statistics import NormalDist
from typing import Any

import pytest

from simulator.api import load_machine
from simulator.api.session import Session
from simulator.collectives.communicator import Request
from simulator.constants import DEFAULT, Constants
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.places import Places
from simulator.plan.plan import Plan, PlanBuilder
from simulator.questions.layout import FSDP
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from simulator.training.data_parallel import bucket_copy
from simulator.training.roles import slowest_of
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on, step_on
from tests.devices import find_gpu

pytestmark = pytest.mark.slow

MACHINE = load_machine("p3.16xlarge")
RESNET = build_network("resnet18", batch=16)
EVEN = Constants({"fleet.device_spread": 0.0})


class Instant:
    """A strategy that takes no time."""

    name = "instant"
    summary = "for tests"

    def plan(self, request: Request) -> Plan:
        builder = PlanBuilder()
        builder.work("nothing", "host", 0.0)
        return builder.build()


def step(**asked: Any) -> TrainingResult:
    return step_on(MACHINE, RESNET, StepOptions(), **asked)


# -- the slowest -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 8, 64, 1024])
def test_the_slowest_of_many_is_the_expected_greatest_deviate(count: int) -> None:
    """Compared with the integral of x d(F(x)^n)."""
    normal = NormalDist()
    steps = [-8.0 + 16.0 * i / 40_000 for i in range(40_001)]
    powers = [normal.cdf(x) ** count for x in steps]
    expected = sum((b + a) / 2 * (q - p) for a, b, p, q in zip(steps, steps[1:], powers, powers[1:], strict=False))
    spread = DEFAULT["fleet"].device_spread
    assert (slowest_of(count, DEFAULT) - 1.0) / spread == pytest.approx(expected, rel=0.05)


def test_one_device_waits_for_nobody() -> None:
    assert slowest_of(1, DEFAULT) == 1.0


def test_where_exchange_is_instant_a_step_takes_what_the_slowest_takes_and_the_copies() -> None:
    alone_s = alone_on(MACHINE, RESNET).step_time_s
    device = Places(MACHINE).find().device
    gradients = tuple(p.elements for p in RESNET.parameters)
    copies_s = sum(copy(device, gradients, 4) for copy in (_in, copy_out_s))
    together = step(strategy=Instant())
    assert together.step_time_s == pytest.approx(slowest_of(8, DEFAULT) * (alone_s + copies_s), rel=1e-3)
    assert together.alone_s == pytest.approx(alone_s, rel=1e-9)


def _in(device: Any, gradients: tuple[int, ...], element_bytes: int) -> float:
    return bucket_copy(device, gradients, element_bytes, "layer").device_s


def copy_out_s(device: Any, gradients: tuple[int, ...], element_bytes: int) -> float:
    return bucket_copy(device, gradients, element_bytes).device_s


def test_the_more_take_part_the_longer_all_wait() -> None:
    times = [step(strategy=Instant(), gpus=range(n)).step_time_s for n in (2, 4, 8)]
    assert times == sorted(times)
    assert times[0] < times[2]


def test_a_fleet_of_equals_waits_for_none() -> None:
    question = StepQuestion(where=Where("p3.16xlarge"), workload="resnet18", batch=16)
    slower, even = (Session(constants=known).time_s(question) for known in (DEFAULT, EVEN))
    assert 1.0 < slower / even <= slowest_of(8, DEFAULT)


# -- buckets ---------------------------------------------------------------------------


def test_large_gradients_are_copied_at_the_rate_of_memory() -> None:
    gpu = find_gpu("v100-sxm2-16gb")
    n = 100_000_000
    for copied in (bucket_copy(gpu, (n,), 4, "fc"), bucket_copy(gpu, (n,), 4)):
        assert copied.device_s == pytest.approx(2 * 4 * n / achieved_bandwidth(gpu), rel=0.05)
    assert bucket_copy(gpu, (n, n), 2, "fc").device_s == pytest.approx(
        bucket_copy(gpu, (n,), 4, "fc").device_s, rel=0.05
    )


def test_each_gradient_is_a_kernel_and_a_call() -> None:
    gpu = find_gpu("v100-sxm2-16gb")
    one, ten = bucket_copy(gpu, (1000,), 4, "fc"), bucket_copy(gpu, (1000,) * 10, 4, "fc")
    assert (len(one.work.costs), len(ten.work.costs)) == (1, 10)
    assert ten.host_s == pytest.approx(10 * one.host_s)
    assert ten.part == "backward"


# -- contention ------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{}, {"bucket_bytes": 0.0}, {"layout": FSDP}, {"micro_batches": 6}])
@pytest.mark.parametrize("strategy", ["nccl", "ring", "sharded"])
def test_ranks_that_do_the_same_are_simulated_once(strategy: str, asked: dict[str, Any]) -> None:
    folded, whole = (step(strategy=strategy, fold=fold, **asked) for fold in (True, False))
    assert folded.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert folded.exposed_s == pytest.approx(whole.exposed_s, rel=1e-6, abs=1e-9)


def test_what_communicates_slows_what_computes_and_never_the_other_way_round_in_sum() -> None:
    """The step takes longer than each alone, and less than both in sequence."""
    for name in ("resnet50", "vgg16"):
        network = build_network(name, batch=32)
        free, real = (step_on(MACHINE, network, contention=on) for on in (False, True))
        whole = step_on(MACHINE, network, contention=True, bucket_bytes=0.0)
        assert free.step_time_s < real.step_time_s
        assert real.step_time_s < whole.step_time_s * 1.001


def test_a_step_on_one_gpu_is_what_it_was() -> None:
    """Without exchanges there are neither copies nor waits."""
    question = StepQuestion(where=Where("p3.2xlarge"), workload="resnet18", batch=16)
    session = Session()
    assert session.time_s(question) == session.time_s(replace(question, contention=False))
    step_s = alone_on(load_machine("p3.2xlarge"), session.network(question)).step_time_s
    assert session.time_s(question) == step_s


# -- shards ----------------------------------------------------------------------------

GPT_SMALL = build_network("gpt2", batch=1, sequence_length=64).parameter_count
GPT = build_network("gpt2", batch=4, sequence_length=256, layers=6)
SHARDS = StepOptions(precision="master-fp16", optimizer="adam")


def sharded(**asked: Any) -> TrainingResult:
    return step_on(MACHINE, GPT, SHARDS, layout=FSDP, **asked)


def test_a_unit_is_gathered_while_the_one_before_computes_its_backward_pass() -> None:
    ahead, behind = sharded(), sharded(prefetches=False)
    assert ahead.exchanging_s == pytest.approx(behind.exchanging_s, rel=0.2)
    assert ahead.exposed_s < behind.exposed_s
    assert ahead.step_time_s < behind.step_time_s


def beside_s(found: TrainingResult) -> float:
    """Return the seconds in which a kernel and an exchange of one rank's streams run at once."""
    spans = {name: [] for name in ("compute", "communication")}  # type: dict[str, list[tuple[float, float]]]
    for span in found.timeline.spans:
        if (stream := found.timeline.plan.tasks[span.task].stream) in spans:
            spans[stream].append((span.start_s, span.end_s))
    both = product(spans["compute"], spans["communication"])
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in both)


@pytest.mark.parametrize("micro_batches", [1, 12])
def test_zero_3_that_does_not_prefetch_exchanges_while_nothing_computes(micro_batches: int) -> None:
    """A fetch of DeepSpeed until 0.5.9 waits for the device: no kernel runs beside an exchange, as the host may."""
    hooked = StepOptions(precision="master-fp16", optimizer="adam", framework="deepspeed-zero3")
    asked = {"layout": FSDP, "micro_batches": micro_batches, "contention": False}
    apart = step_on(MACHINE, GPT, hooked, prefetches=False, **asked)
    ahead = step_on(MACHINE, GPT, hooked, **asked)
    assert ahead.exposed_s < apart.exposed_s / 2
    if micro_batches == 1:  # spans of several stand for rounds
        assert beside_s(apart) == 0.0 < beside_s(ahead)
    own = step_on(MACHINE, GPT, SHARDS, prefetches=False, **asked)  # of PyTorch, whose forward pass looks ahead
    assert own.exposed_s < own.exchanging_s


def test_where_nothing_goes_backward_nothing_is_scattered() -> None:
    options = replace(SHARDS, mode="forward")
    result = step_on(MACHINE, GPT, options, layout=FSDP)
    assert {task.label for task in result.timeline.plan.tasks if task.stream == "communication"} == {"all-gather"}


def test_micro_batches_that_passed_at_once_are_in_every_figure() -> None:
    folded, whole = (sharded(micro_batches=12, fold=fold) for fold in (True, False))
    for name in ("step_time_s", "exposed_s", "exchanging_s"):
        assert getattr(folded, name) == pytest.approx(getattr(whole, name), rel=1e-6), name
    assert folded.bottleneck is not None
    assert whole.bottleneck is not None
    assert folded.bottleneck.bytes == pytest.approx(whole.bottleneck.bytes, rel=1e-6)


def test_each_device_holds_activations_whole_and_all_else_in_shards() -> None:
    """At any batch, the peak counts what one device holds, not what all devices hold together."""
    needs = []
    for batch in (1, 2, 4, 8):
        network = build_network("gpt2", batch=batch, sequence_length=1024)
        needs.append(step_on(MACHINE, network, SHARDS, layout=FSDP).tightest.need)
    each = [need.activations_bytes / batch for need, batch in zip(needs, (1, 2, 4, 8), strict=True)]
    assert each == pytest.approx([each[0]] * 4, rel=1e-4)
    assert needs[0].optimizer_bytes == pytest.approx(2 * 4 * GPT_SMALL / 8, rel=1e-9)


def test_who_infers_waits_for_nobody() -> None:
    alone_s = alone_on(MACHINE, RESNET, StepOptions(mode="inference")).step_time_s
    result = step_on(MACHINE, RESNET, StepOptions(mode="inference"))
    assert result.step_time_s == pytest.approx(alone_s, rel=1e-9)
