"""Exchanges of experts that pass while another micro-batch, or the shared expert, computes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session, load_machine
from simulator.collectives.communicator import Communicator, ConcurrentGroups
from simulator.collectives.nccl.strategy import Nccl
from simulator.errors import InputError
from simulator.places import Places
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from simulator.step.issue import gradient_work, launches_of
from simulator.step.launch import NOTHING, Launch, LayerCollective, Part
from simulator.training import divided
from simulator.training.micro_batches import in_turns, put_off, turns_of
from simulator.training.worker import ChunkRun
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

NODES = load_machine("dgx-h100", n_nodes=2)
SIZES = {"layers": 4, "dense_layers": 0, "sequence_length": 4096}
MIXTURE = build_network("deepseek-v2-lite", batch=4, loss=True, **SIZES)
MEGATRON = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, framework="megatron")


def step(words: str, micro_batches: int, **more: object) -> TrainingResult:
    return step_on(NODES, MIXTURE, MEGATRON, layout=parse_layout(words), micro_batches=micro_batches, **more)


def launch(name: str, part: Part = "forward", *, sent: bool = False) -> Launch:
    exchange = LayerCollective("ep", "all-to-all", 1) if sent else None
    return Launch(name, part, 0.0, NOTHING, layer=name, sent=exchange)


def test_passes_take_turns_up_to_their_exchanges() -> None:
    forward = [
        launch("attend"),
        launch("there", sent=True),
        launch("experts"),
        launch("back", sent=True),
        launch("add"),
    ]
    backward = [launch("add'"), launch("back'", sent=True), launch("experts'")]
    found = [each.name for each in in_turns(backward, forward, lambda each: each)]
    assert found == ["add'", "back'", "attend", "there", "experts'", "experts", "back", "add"]


def test_the_first_forward_pass_and_the_last_backward_pass_run_alone() -> None:
    passes = [launch("a"), launch("b", "backward")]
    apart = [[(0, 0), (0, 1)], [(1, 0), (1, 1)], [(2, 0), (2, 1)]]
    assert list(turns_of(passes, range(3), overlaps=False)) == apart
    turns = [[(0, 0)], [(0, 1), (1, 0)], [(1, 1), (2, 0)], [(2, 1)]]
    assert list(turns_of(passes, range(3), overlaps=True)) == turns
    assert list(turns_of(passes[:1], range(2), overlaps=True)) == [[(0, 0)], [(1, 0)]]


def exchanging_s(result: TrainingResult) -> float:
    return result.streams["ep communication"].busy_s


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 8, 24])
def test_a_step_is_between_the_longest_and_the_sum(count: int) -> None:
    """Computing and exchanges of equal micro-batches: at least as long as each, at most as one after the other."""
    apart, hidden = (step(f"ep=16,zero=1{more}", count, contention=False) for more in ("", ",ep_overlap"))
    assert exchanging_s(hidden) == pytest.approx(exchanging_s(apart))
    least = max(exchanging_s(hidden), hidden.step.busy_s)
    assert least <= hidden.step_time_s < apart.step_time_s
    hides = apart.step_time_s - hidden.step_time_s
    assert hides <= (count - 1) / count * exchanging_s(apart) * (1 + 1e-9)


@pytest.mark.parametrize("words", ["ep=16,zero=1", "ep=8,pp=2,vp=2,zero=1"])
def test_gradients_that_are_put_off_let_exchanges_start_earlier(words: str) -> None:
    hidden, late = (step(f"{words},ep_overlap{more}", 8, contention=False) for more in ("", ",delay_wgrad"))
    assert late.step.busy_s == pytest.approx(hidden.step.busy_s, rel=1e-2 if "pp" in words else 1e-9)
    assert late.step_time_s < hidden.step_time_s
    assert late.exposed_s <= hidden.exposed_s  # with stages other micro-batches hide as much


def test_what_is_put_off_computes_all_gradients_of_parameters_after_an_exchange() -> None:
    part = divided(MIXTURE, parse_layout("ep=16").on(16))
    device = Places(NODES).place(NODES.gpus[0]).device
    passes = [(each,) for each in launches_of(device, part, MEGATRON) if each.part != "update"]
    weights = gradient_work(device, part, MEGATRON)
    found = [each for (each,) in put_off(passes, [weights])]
    for times in ("device_s", "host_s"):
        whole_s = sum(getattr(each, times) for (each,) in passes)
        assert sum(getattr(each, times) for each in found) == pytest.approx(whole_s)
    late = [each.layer for each in found if each.late]
    assert set(late) == set(weights)
    for layer in late:
        first, last = (
            place
            for place, each in enumerate(found)
            if each.layer == layer
            and each.name.startswith(layer)
            and each.part == "backward"
            and each.name in (layer, f"{layer} (weights)")
        )
        sent = [each for each in found[first:last] if each.sent is not None and each.sent.axis == "ep"]
        assert sent or not any(each.sent for each in found[last:])


def test_with_one_micro_batch_nothing_is_hidden() -> None:
    apart, hidden = (step(f"ep=16,zero=1{more}", 1) for more in ("", ",ep_overlap"))
    assert hidden.step_time_s == pytest.approx(apart.step_time_s)


@pytest.mark.slow
def test_micro_batches_that_pass_at_once_take_what_they_take_one_by_one() -> None:
    folded, whole = (step("ep=16,zero=1,ep_overlap", 16, fold=fold) for fold in (True, False))
    assert folded.step_time_s == pytest.approx(whole.step_time_s)


def test_two_micro_batches_hold_one_block_more_than_one_does() -> None:
    """A block is saved forward before the last one left is freed backward (TransformerLayerSchedulePlan.run)."""
    alone, both = (step(f"ep=16,zero=1{more}", 8).tightest.need for more in ("", ",ep_overlap"))
    assert both.activations_bytes == pytest.approx((1 + 1 / SIZES["layers"]) * alone.activations_bytes)


@pytest.mark.parametrize(("n_nodes", "channels"), [(1, 32), (2, 16)])
def test_an_all_to_all_takes_a_multiprocessor_for_each_channel(n_nodes: int, channels: int) -> None:
    """Those of the rings, 24 and 16, up to the next power of two (ncclTopoComputeP2pChannels)."""
    machine = load_machine("dgx-h100", n_nodes=n_nodes)
    bundle = ConcurrentGroups([Communicator(machine, machine.gpus)])
    taken, _ = bundle.collective("all-to-all", 2.0**27, Nccl()).gpu_loads.on(machine.gpus[0])
    assert taken == pytest.approx(channels / 132)


def test_what_would_fit_is_no_layout_with_which_the_overlap_does_not_go() -> None:
    question = StepQuestion(where=Where("dgx-h100"), workload="deepseek-v2-lite", batch=64, options=MEGATRON)
    asked = replace(question, layout=parse_layout("ep=8,ep_overlap"), micro_batches=2)
    remedies = [each.change for each in Session().advised(asked).remedies]
    assert remedies
    assert not any("fsdp" in change for change in remedies)


@pytest.mark.parametrize("words", ["ep=8,pp=2,vp=2,zero=1", "ep=8,pp=2,schedule=dualpipe,zero=1"])
def test_joined_passes_of_a_stage_are_shorter_than_their_sum(words: str) -> None:
    apart, hidden = (step(words + more, 8) for more in ("", ",ep_overlap"))
    assert hidden.step_time_s < apart.step_time_s
    for result in (apart, hidden):
        ran = [task.about for task, _ in result.timeline.ran(ChunkRun) if task.stream == "stage 0/compute"]
        assert sum(each.share for each in ran if each.part == "forward") == pytest.approx(
            8 * 2 / (1 + ("dual" in words))
        )
    assert hidden.exposed_s < apart.exposed_s


def test_the_shared_expert_runs_between_sending_and_waiting() -> None:
    """In both passes: half of it after tokens are sent to experts, the rest after their results are."""
    whole = divided(MIXTURE, parse_layout("ep=16,shared_overlap").on(16))
    issues = launches_of(Places(NODES).place(NODES.gpus[0]).device, whole, MEGATRON)
    for part, first, second in (("forward", "gate", "down"), ("backward", "down", "gate")):
        block = [each for each in issues if each.part == part and each.layer.startswith("layers.2.")]
        names = [each.layer.removeprefix("layers.2.") for each in block]
        sends = [place for place, each in enumerate(block) if each.sent is not None]
        products = [place for place, name in enumerate(names) if name in ("experts_up", "experts_down")]
        assert sends[0] < names.index(f"shared.{first}") < products[0] < products[-1] < sends[-1]
        assert sends[-1] < names.index(f"shared.{second}") < len(names) - 1


def test_the_shared_expert_hides_exchanges_for_as_long_as_it_computes() -> None:
    apart, hidden = (step(f"ep=16,zero=1{more}", 4, contention=False) for more in ("", ",shared_overlap"))
    shared_s = sum(each.time_s for each in apart.step.layers if ".shared." in each.name)
    assert exchanging_s(hidden) == pytest.approx(exchanging_s(apart), rel=0.01)  # beside sums of other gradients
    assert hidden.step.busy_s == pytest.approx(apart.step.busy_s)
    assert 0.0 < apart.step_time_s - hidden.step_time_s <= min(shared_s, exchanging_s(apart)) * (1 + 1e-9)
    with pytest.raises(InputError, match="qwen3-30b-a3b has no expert that all tokens pass"):
        divided(build_network("qwen3-30b-a3b", batch=1, layers=1), parse_layout("ep=2,shared_overlap").on(2))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("shared_overlap", "add ep=2 or more"),
        ("ep=2,delay_wgrad", "add ep_overlap"),
        ("ep=2,shared_overlap,ep_overlap", "give one of the two"),
        ("ep_overlap", "add ep=2 or more"),
        ("ep=2,fsdp,ep_overlap", "goes with zero=0 and zero=1, not 3"),
        ("ep=2,pp=2,ep_overlap", "add vp=2 or more, or schedule=dualpipe"),
    ],
)
def test_what_hides_nothing_is_refused(words: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_layout(words)
