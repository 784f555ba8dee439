"""Batch norms of the samples of all ranks: what they exchange, what waits for it, and what cannot have them."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Software, Where
from simulator.results.step_confidence import step_confidence
from simulator.results.training import TrainingResult
from simulator.step.conversions import laid_out
from simulator.workload.network import Network
from simulator.workload.operators import BatchNorm, Exchange
from simulator.workload.operators.moves import RanksFound
from simulator.workload.operators.reduction import LocalStatistics, SyncedNorm
from simulator.workload.split.statistics import synchronised
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu

SESSION = Session()


def step(words: str = "sync_bn", *, nodes: int = 1, topology: str = "dgx-h100", **more: Any) -> TrainingResult:
    said: dict[str, Any] = {"workload": "resnet18", "batch": 4, "options": StepOptions(precision="amp-fp16")} | more
    question = StepQuestion(where=Where(topology=topology, nodes=nodes), layout=parse_layout(words), **said)
    found = SESSION.step(question)
    assert isinstance(found, TrainingResult)
    return found


def norms_of(network: Network) -> list[BatchNorm]:
    return [layer.operator for layer in network.layers if isinstance(layer.operator, BatchNorm)]


def test_each_gathers_what_torch_gathers() -> None:
    """Numbers in fp32: 2 C + 1 of each rank forward, 2 C summed backward (torch/nn/modules/_functions.py)."""
    plain = build_network("resnet18", batch=1)
    network, channels = synchronised(plain, 8, captured=False), [norm.channels for norm in norms_of(plain)]
    sent = [layer.operator for layer in network.layers if isinstance(layer.operator, Exchange)]
    assert [each.elements for each in sent if each.forward == "all-gather"] == [8 * (2 * c + 1) for c in channels]
    assert [each.elements for each in sent if each.backward == "all-reduce"] == [2 * c for c in channels]
    assert len(sent) == 2 * len(channels)
    assert all(each.wide and each.axis == "dp" for each in sent)
    assert network.parameters == plain.parameters


def test_kernels_move_what_each_half_reads_and_writes() -> None:
    norm = SyncedNorm(batch=4, channels=64, height=56, width=56, ranks=8, waits=True)
    n, local = norm.output_elements, LocalStatistics(batch=4, channels=64, height=56, width=56)
    assert local.kernels("fwd", "fp16")[0].bytes == 2 * n
    assert norm.kernels("fwd", "fp16")[-1].bytes == 2 * 2 * n
    assert norm.kernels("bwd", "fp16")[0].bytes == 2 * 2 * n
    assert local.kernels("bwd", "fp16")[0].bytes == 3 * 2 * n
    assert norm.host_reads("fwd")  # what the last look-up found
    assert not norm.host_reads("bwd")


# Of an A100 in fp32, in us: statistics, result, sums and gradient plane by plane, then pixel by pixel
# (xwang233/code-snippet@02d2416e, syncbn-channels-last/a100; PyTorch 1.8, whose kernels are today's), by batch,
# channels and side.  None took part in any constant.
_ON_A100: dict[tuple[int, int, int], tuple[float, ...]] = {
    (128, 1024, 16): (179.8, 193.6, 229.2, 282.7, 192.3, 189.8, 223.9, 288.0),
    (128, 128, 16): (58.1, 18.4, 56.0, 32.0, 34.2, 12.5, 41.9, 33.1),
    (128, 128, 32): (199.5, 96.0, 186.7, 140.9, 84.8, 91.8, 119.2, 147.6),
    (128, 128, 56): (625.9, 315.2, 544.1, 451.6, 216.2, 309.2, 314.6, 464.1),
    (128, 16, 112): (2041.4, 158.8, 1837.0, 228.4, 140.1, 161.8, 194.0, 249.7),
    (128, 16, 16): (27.1, 4.1, 16.8, 4.4, 9.3, 3.8, 6.5, 5.6),
    (128, 16, 32): (153.6, 8.8, 147.0, 10.7, 18.2, 7.8, 17.3, 11.5),
    (128, 16, 56): (575.2, 35.1, 476.0, 53.4, 44.9, 34.7, 61.4, 60.4),
    (128, 2048, 16): (313.1, 391.7, 424.4, 581.6, 340.9, 381.4, 417.3, 583.1),
    (128, 256, 16): (66.9, 45.2, 71.9, 67.5, 55.9, 38.3, 75.2, 69.7),
    (128, 256, 32): (215.5, 196.7, 250.6, 288.3, 159.5, 191.6, 223.8, 291.9),
}


@pytest.mark.parametrize(("place", "most"), [*enumerate((0.26, 0.1, 0.28, 0.06, 0.22, 0.1, 0.15, 0.09))])
def test_its_kernels_take_what_they_took_on_an_a100(place: int, most: float) -> None:
    """In the mean of the absolute errors; tests of single kernels would pin what nothing explains (docs/decisions)."""
    gpu, errors = find_gpu("a100-sxm4-40gb"), []
    for (batch, channels, side), measured_us in _ON_A100.items():
        sizes = {"batch": batch, "channels": channels, "height": side, "width": side}
        first, second = LocalStatistics(**sizes), SyncedNorm(**sizes, ranks=2, waits=True)
        kernels = [first.kernels("fwd", "fp32")[0], second.kernels("fwd", "fp32")[-1]]
        kernels += [second.kernels("bwd", "fp32")[0], first.kernels("bwd", "fp32")[-1]]
        (kernel,) = laid_out(gpu, [kernels[place % 4]], channels_last=place > 3)
        errors.append(abs(1e6 * kernel_cost(gpu, kernel).time_s / measured_us[place] - 1.0))
    assert fmean(errors) < most


def test_one_rank_is_plain() -> None:
    network = build_network("resnet18", batch=1)
    assert synchronised(network, 1, captured=False) is network


def test_the_host_waits_for_three_look_ups_unless_captured() -> None:
    """``count_all[mask]``, ``mean_all[mask]`` and ``invstd_all[mask]``, where no stream captures a graph."""
    plain = build_network("resnet18", batch=1)
    count = len(norms_of(plain))
    for captured in (False, True):
        operators = [layer.operator for layer in synchronised(plain, 8, captured=captured).layers]
        assert sum(isinstance(each, RanksFound) for each in operators) == (0 if captured else 3 * count)
        assert sum(each.host_reads("fwd") for each in operators) == (0 if captured else 3 * count)
        assert not any(each.host_reads("bwd") for each in operators)


def test_only_what_asks_has_turns() -> None:
    """Of all other layouts, no activity takes or gives a slot: their plans are what they were."""
    assert step().timeline.plan.queues
    for words in ("dp", "zero=1", "fsdp"):
        plan = step(words).timeline.plan
        assert not plan.queues
        assert not any(task.takes or task.gives for task in plan.tasks)


def test_slower_links_take_longer_by_their_latency() -> None:
    near, far = (step(topology=name) for name in ("8x-h100-pcie", "dgx-h100"))
    plain = [step("dp", topology=name) for name in ("8x-h100-pcie", "dgx-h100")]
    assert near.step_time_s - plain[0].step_time_s > far.step_time_s - plain[1].step_time_s


def test_nobody_measured_it() -> None:
    assert step_confidence(step()).band is None
    assert step_confidence(step("dp")).band is not None


def test_a_step_waits_for_every_exchange() -> None:
    """Without launches, tiny images leave the exchanges' latency, once forward and once backward for each norm."""
    options = StepOptions(precision="amp-fp16", cuda_graph=True)
    more: dict[str, Any] = {"batch": 1, "sizes": (("image", 32),), "options": options}
    synced, waited_s = step(**more), 0.0

    def alone_s(op: Any, size_bytes: int) -> float:
        asked = CollectiveQuestion(where=Where(topology="dgx-h100"), collective=op, size_bytes=size_bytes)
        return SESSION.time_s(asked)

    for norm in norms_of(build_network("resnet18", batch=1)):
        waited_s += alone_s("all-gather", 8 * (2 * norm.channels + 1) * 4) + alone_s(
            "all-reduce", 2 * norm.channels * 4
        )
    gradients_s = 2.0 * alone_s("all-reduce", 4 * synced.step.trained_count)  # in two buckets, whose turn it may be
    assert waited_s <= synced.exposed_s <= waited_s + gradients_s
    assert synced.step_time_s - step("dp", **more).step_time_s > 0.9 * waited_s


@pytest.mark.parametrize("words", ["sync_bn", "zero=1,sync_bn", "zero=2,sync_bn", "fsdp,sync_bn"])
def test_more_ranks_are_never_faster(words: str) -> None:
    times = [step(words, nodes=nodes).step_time_s for nodes in (1, 2, 4)]
    assert times == sorted(times)
    assert times[0] > step(words.removesuffix(",sync_bn") if "," in words else "dp").step_time_s


def test_statistics_and_gradients_take_turns() -> None:
    """They are of one communicator, whose buffers count once."""
    assert step().tightest.need.communication_bytes == step("dp").tightest.need.communication_bytes


@pytest.mark.parametrize(
    ("words", "more", "told"),
    [
        ("sync_bn", {"workload": "vit-b-16"}, "sync_bn: vit-b-16 has no batch norm"),
        ("sync_bn", {"options": StepOptions(compiled=True)}, "not compiled"),
        ("sync_bn", {"options": StepOptions(mode="forward")}, "PyTorch over NCCL"),
        ("sync_bn", {"options": StepOptions(framework="tensorflow")}, "with PyTorch over NCCL"),
        ("sync_bn", {"strategy": "ring"}, "over NCCL"),
        ("sync_bn", {"divided": True}, "trains equal parts"),
        ("sync_bn", {"software": Software(libraries=(2021, 3))}, "as since PyTorch 1.12"),
        ("tp=2,sync_bn", {}, "sync_bn is for dp, zero and fsdp"),
        ("pp=2,sync_bn", {}, "sync_bn is for dp, zero and fsdp"),
    ],
)
def test_what_has_none_is_refused(words: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        step(words, **more)


def test_its_words_are_read_back() -> None:
    for words in ("sync_bn", "sync_bn,fsdp", "zero=1,sync_bn"):
        layout = parse_layout(words)
        assert layout.sync_bn
        assert parse_layout(layout.words) == layout
    assert Layout(zero=3, sync_bn=True).words == "fsdp,sync_bn"
    assert step("zero=1,sync_bn").called == "SyncBN, ZeRO-1"


def test_it_belongs_to_the_layout_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--topology", "dgx-h100", "--gpus", "2", "--workload", "resnet18", "--batch", "2"]
    assert run([*asked, "--parallel", "dp,fsdp,sync_bn"]) == 0
    rows = {line.partition("  ")[0] for line in capsys.readouterr().out.splitlines()}
    assert rows >= {"DDP", "SyncBN, FSDP"}
