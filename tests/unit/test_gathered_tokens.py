"""Experts whose ranks gather all tokens (``ep_comm=all_gather``, Megatron-Core's MoEAllGatherTokenDispatcher)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session, load_machine
from simulator.collectives.communicator import Communicator
from simulator.errors import InputError
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.search.space import parse_fixed
from simulator.step.issue import launches_of
from simulator.step.launch import Launch
from simulator.step.megatron import token_buffer
from simulator.step.megatron_passes import expert_passes
from simulator.step.memory import held_in
from simulator.training import divided
from simulator.training.memory import bucket_bytes_of
from simulator.training.placement import Placement
from simulator.workload.network import Network
from simulator.workload.operators import Elements, Exchange, GroupedLinear, Reduction
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

TOKENS, EXPERTS, CHOSEN, HIDDEN, INNER = 4096, 128, 8, 2048, 768
QWEN = build_network("qwen3-30b-a3b", batch=1, loss=True, sequence_length=TOKENS, layers=1)
MEGATRON = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, framework="megatron")
WHERE = Where("dgx-h100")
MACHINE = load_machine("dgx-h100")
GATHERS = "ep=8,ep_comm=all_gather"


def part(words: str, network: Network = QWEN, ranks: int = 8) -> Network:
    return divided(network, parse_layout(words).on(ranks))


def sent(network: Network) -> list[Exchange]:
    found = (layer.operator for layer in network.layers)
    return [operator for operator in found if isinstance(operator, Exchange) and operator.axis in ("ep", "etp")]


def issued(words: str, options: StepOptions = MEGATRON) -> list[Launch]:
    return list(launches_of(Session().device(WHERE), part(words), options))


@pytest.mark.parametrize(
    ("words", "own", "group"), [(GATHERS, TOKENS, 8), ("tp=4,sp,ep=2,ep_comm=all_gather", 1024, 8)]
)
def test_all_tokens_are_gathered_and_sums_scattered(words: str, own: int, group: int) -> None:
    there, back = sent(part(words))
    assert (there.forward, there.backward, back.forward, back.backward) == (
        *("all-gather", "reduce-scatter"),
        *("reduce-scatter", "all-gather"),
    )
    assert there.elements == back.elements == there.output_elements == own * group * HIDDEN
    assert back.output_elements == own * HIDDEN


@pytest.mark.parametrize("words", ["ep=8", "tp=2,sp,ep=4", "tp=8,sp", "tp=4,sp,ep=8,etp=1"])
def test_experts_compute_what_they_do_behind_an_all_to_all(words: str) -> None:
    gathers, sends = part(f"{words},ep_comm=all_gather"), part(words)
    of_experts = [[x for x in each.layers if isinstance(x.operator, GroupedLinear)] for each in (gathers, sends)]
    assert [x.operator for x in of_experts[0]] == [x.operator for x in of_experts[1]]
    assert [x.parameters for x in of_experts[0]] == [x.parameters for x in of_experts[1]]
    assert gathers.elements[of_experts[0][1].output] == of_experts[0][1].operator.output_elements
    (total,) = (x for x in gathers.layers if isinstance(x.operator, Reduction) and x.part == "experts")
    assert isinstance(total.operator, Reduction)
    assert total.operator.added == gathers.elements[total.inputs[0]] == of_experts[0][1].operator.output_elements
    for layer in gathers.layers:
        if isinstance(layer.operator, Elements):
            assert layer.operator.output_elements == gathers.elements[layer.output]


def test_it_spreads_rows_unevenly_where_routing_does() -> None:
    network = build_network("qwen3-30b-a3b", batch=1, loss=True, sequence_length=512, layers=1, imbalance=50)
    (gathers, sends) = (part(f"ep=8{more}", network) for more in (",ep_comm=all_gather", ""))
    rows = [
        [x.operator.rows for x in each.layers if isinstance(x.operator, GroupedLinear)] for each in (gathers, sends)
    ]
    assert rows[0] == rows[1]
    assert sent(gathers)[0].elements == 8 * 512 * HIDDEN < 8 * sent(sends)[0].elements


def test_ranks_of_tp_and_ep_are_one_group() -> None:
    machine = Session().machine(WHERE)
    layout = parse_layout("tp=2,sp,ep=4,ep_comm=all_gather").on(8)
    groups = Placement(Communicator(machine, machine.gpus), layout).within_layers()
    assert "etp" not in groups
    assert [len(group.ranks) for bundle in groups["ep"] for group in bundle.groups] == [8]


def test_routing_goes_along_and_its_gradients_back() -> None:
    found = issued(GATHERS)
    along = [(x.part, x.sent.op, x.sent.size_bytes) for x in found if "(routing)" in x.name and x.sent is not None]
    n = 8 * TOKENS * EXPERTS
    assert along == [
        ("forward", "all-gather", n),
        ("forward", "all-gather", 2 * n),
        ("backward", "reduce-scatter", 2 * n),
    ]
    assert not any("(probabilities)" in x.name for x in found)


def test_the_host_waits_for_what_was_gathered_before_rows_are_taken() -> None:
    found = issued(GATHERS)
    assert [x.name for x in found if x.waits and x.part != "update"] == ["layers.0.dispatch"]
    place = next(n for n, x in enumerate(found) if x.waits)
    counted = found[place - 1]
    assert counted.name == "layers.0.dispatch (passes)"
    assert counted.needs == ("layers.0.experts_up.gather",)


def test_rows_are_taken_out_of_all_tokens_and_not_sorted() -> None:
    passes = {key: each for key, each in expert_passes(part(GATHERS), 2, narrow=False).items() if "topk" not in key[0]}
    moved = {key: sum(kernel.bytes for kernel in each.own or ()) for key, each in passes.items()}
    tokens, rows = 8 * TOKENS * HIDDEN * 2, CHOSEN * TOKENS * HIDDEN * 2
    for name in ("layers.0.dispatch", "layers.0.combine"):
        assert moved[name, "forward"] == moved[name, "backward"] == tokens + rows
    for name in ("layers.0.experts_up", "layers.0.experts_down"):
        assert not passes[name, "forward"].before
        assert not passes[name, "forward"].after


def test_gathered_tokens_are_in_a_buffer_of_megatrons_and_in_no_other() -> None:
    gathers, sends = part(GATHERS), part("ep=8")
    assert token_buffer(gathers) == 8 * TOKENS * HIDDEN
    assert token_buffer(sends) == 0
    asked = StepQuestion(where=WHERE, workload="qwen3-30b-a3b", batch=1, options=MEGATRON, layout=parse_layout(GATHERS))
    layout = asked.layout.on(8)
    held = [held_in(each, MEGATRON) for each in (gathers, sends)]
    more = bucket_bytes_of(held[0], asked, layout) - bucket_bytes_of(held[1], asked, layout)
    assert more == 8 * TOKENS * HIDDEN * 2
    saved = [each.moments[0].activations_bytes for each in held]
    assert saved[0] == saved[1]  # rows of experts, and not what they were taken out of
    plain = replace(MEGATRON, framework="pytorch")
    assert held_in(gathers, plain).token_buffer == 0


def test_with_one_expert_for_each_token_it_costs_more_than_an_all_to_all() -> None:
    network = build_network("mixtral-8x7b", batch=1, loss=True, sequence_length=TOKENS, layers=1)
    times = [step_on(MACHINE, network, MEGATRON, layout=parse_layout(w)).step_time_s for w in (GATHERS, "ep=8")]
    assert times[0] > times[1]  # 8 ranks' tokens to each, where 2 copies would do


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("ep_comm=all_gather", "add ep=2 or more"),
        ("ep=2,flex,ep_comm=all_gather", "do not go together"),
        ("ep=2,ep_overlap,ep_comm=all_gather", "do not go together"),
        ("ep=2,shared_overlap,ep_comm=all_gather", "do not go together"),
        ("tp=2,ep=2,ep_comm=all_gather", "add sp"),
        ("ep=2,ep_comm=gather", "all_gather"),
    ],
)
def test_what_does_not_go_together_is_refused(words: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_layout(words)


def test_a_network_without_experts_has_no_tokens_to_gather() -> None:
    with pytest.raises(InputError, match="ep_comm=all_gather: llama3-8b has no experts"):
        part("tp=2,sp,ep_comm=all_gather", build_network("llama3-8b", batch=1, layers=1, sequence_length=128))


def test_a_step_has_no_band_as_none_was_measured() -> None:
    words = StepQuestion(where=WHERE, workload="qwen3-30b-a3b", batch=1, options=MEGATRON, sizes=(("layers", 2),))
    (gathers, sends) = (Session().step(replace(words, layout=parse_layout(each))) for each in (GATHERS, "ep=8"))
    assert sends.confidence.band is not None
    assert gathers.confidence.band is None
    assert gathers.confidence.outside == ("no measured step whose ranks gather the tokens of experts",)


def test_a_search_may_fix_how_tokens_and_keys_go() -> None:
    assert parse_fixed("ep_comm=all_gather,cp_comm=a2a") == (("ep_comm", "all_gather"), ("cp_comm", "a2a"))
