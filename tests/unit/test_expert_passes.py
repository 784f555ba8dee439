"""The passes of an expert layer in Megatron-Core, by hand count: dispatch, padding, activation, biases, flex."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import pytest

from simulator.api import Session
from simulator.devices.dispatch import dispatch_time, host_costs
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.megatron_passes import CHOOSING, COUNTING, ExpertExtras, expert_passes
from simulator.training import divided
from simulator.workload.network import Network
from simulator.workload.operators import Copy
from simulator.workload.zoo.registry import build_network

TOKENS, EXPERTS, CHOSEN, HIDDEN, INNER, RANKS = 4096, 128, 8, 2048, 768, 8
ROWS = CHOSEN * TOKENS
ROW, TOKEN = ROWS * HIDDEN, TOKENS * HIDDEN
QWEN = build_network("qwen3-30b-a3b", batch=1, loss=True, sequence_length=TOKENS, layers=1)
GPT_OSS = build_network("gpt-oss-120b", batch=1, loss=True, sequence_length=TOKENS, layers=1)
MEGATRON = StepOptions(precision="master-fp8", optimizer="adam", fused_optimizer=True, framework="megatron")


def part(network: Network, words: str) -> Network:
    return divided(network, parse_layout(words).on(RANKS))


def extras(network: Network, words: str, *, narrow: bool = True) -> dict[tuple[str, str], ExpertExtras]:
    found = expert_passes(part(network, words), 2, narrow=narrow)
    return {(name.removeprefix("layers.0."), way): extra for (name, way), extra in found.items()}


def moved(extra: ExpertExtras) -> int:
    return sum(kernel.bytes for kernel in (*(extra.own or ()), *extra.before, *extra.after))


def besides_products(found: dict[tuple[str, str], ExpertExtras], way: str) -> int:
    return sum(moved(extra) for (name, each), extra in found.items() if each == way and name != "topk")


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(
    ("words", "narrow", "copies"), [("ep=8", True, 4), ("ep=8", False, 2), ("dp", True, 2), ("dp", False, 0)]
)
def test_rows_are_permuted_sorted_padded_and_back(way: str, words: str, narrow: bool, copies: int) -> None:
    found = extras(QWEN, words, narrow=narrow)
    laid = 2 * 2 * (TOKEN + ROW)  # permuted and unpermuted
    active = ROWS * INNER * (2 + 1) * 2 + 4 * ROWS if way == "forward" else ROWS * INNER * (3 + 2) * 2 + 8 * ROWS
    assert besides_products(found, way) == laid + copies * 4 * ROW + active
    assert found["weigh", way].own == found["experts_silu", way].own == ()
    assert moved(found["experts_up", way]) == moved(found["experts_down", way]) == copies * 2 * ROW


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_flex_copies_what_arrives_once_a_rank(way: str) -> None:
    found = extras(QWEN, "ep=8,flex")
    here = EXPERTS // RANKS
    arriving = round(TOKENS * RANKS * (1 - comb(EXPERTS - here, CHOSEN) / comb(EXPERTS, CHOSEN)))
    assert TOKENS < arriving < ROWS
    for name in ("experts_up", "experts_down"):
        assert moved(found[name, way]) == 2 * HIDDEN * (arriving + ROWS)
    assert found["dispatch", way].own == found["combine", way].own == ()


def test_biases_of_experts_are_added_expert_by_expert_in_fp32() -> None:
    plain, biased = (extras(network, "ep=8", narrow=False) for network in (QWEN, GPT_OSS))
    assert plain["experts_down", "forward"].calls == 0
    row = 4 * TOKENS * 2880
    assert moved(biased["experts_down", "forward"]) == row * (4 + 10 + 8 + 6) + 16 * TOKENS + 4 * row
    assert moved(biased["experts_down", "backward"]) == row * (6 + 6 + 4 + 2 * (8 + 4)) + 4 * row
    assert [biased["experts_down", way].calls for way in ("forward", "backward")] == [2 * 16 + 2, 6 * 16 + 2]


def test_clamped_gates_are_joined_by_plain_passes_and_the_host_waits() -> None:
    found, plain = (extras(network, "ep=8", narrow=False) for network in (GPT_OSS, QWEN))
    assert not any(extra.waits for extra in plain.values())
    waiting = {key: extra for key, extra in found.items() if extra.waits}
    ((name, way),) = waiting
    assert way == "forward"
    half = 4 * TOKENS * 2880 * 2  # bytes of either half
    assert sum(kernel.bytes for kernel in found[name, "forward"].before) == 2 * 2 * half + 2 * 2 * half
    # One bound: a mask of a byte and a choice; two: two masks, joined.  Then both halves are joined.
    a_mask, joined, chosen = 3 * half // 2, 3 * half // 2, 5 * half // 2
    gradients = (a_mask + chosen) + (2 * a_mask + joined + chosen)
    assert sum(kernel.bytes for kernel in found[name, "backward"].after) == gradients + 2 * 2 * half
    options = replace(MEGATRON, precision="master-bf16")
    issued = launches_of(Session().device(Where("dgx-b200")), part(GPT_OSS, "ep=8"), options)
    assert [i.name for i in issued if i.waits and i.layer == f"layers.0.{name}"] == [f"layers.0.{name}"]


def test_the_router_chooses_and_the_dispatcher_counts() -> None:
    for words, counting in (("ep=8", COUNTING), ("dp", 0)):
        found = extras(QWEN, words)
        assert moved(found["topk", "forward"]) == CHOOSING["forward"] * 8 * TOKENS * EXPERTS
        assert found["topk", "forward"].calls == CHOOSING["forward"] - 1 + counting
        assert found["topk", "backward"].calls == CHOOSING["backward"] - 1


def test_megatron_alone_issues_them_and_plain_calls_are_not_slowed() -> None:
    device = Session().device(Where("dgx-b200"))
    network = part(GPT_OSS, "ep=8")
    options = replace(MEGATRON, precision="master-bf16")
    issued = {(i.name, i.part): i for i in launches_of(device, network, options)}
    passes, each = issued["layers.0.experts_down (passes)", "backward"], dispatch_time(device, Copy(1), "bwd_data")
    first, last = (issued["layers.0.experts_down (passes)", way].host_s for way in ("forward", "backward"))
    assert 0 < first < last
    before = [i for i in launches_of(device, network, options) if i.name == passes.name and i.part == "backward"]
    calls, kernels = 6 * 16 + 2, 1 + 7
    assert sum(i.host_s for i in before) == pytest.approx(each * (calls + kernels * host_costs(device).megatron))
    dropped = {"layers.0.weigh", "layers.0.experts_sigmoid", "layers.0.experts_glu"}
    assert not any(i.work.costs or i.host_s for (name, _), i in issued.items() if name in dropped)
    plain = {i.name for i in launches_of(device, network, replace(options, framework="pytorch"))}
    assert "layers.0.weigh" in plain
    assert not any(name.endswith("(passes)") for name in plain)


def test_networks_without_experts_have_none() -> None:
    assert expert_passes(build_network("llama3-8b", batch=1, layers=1), 2, narrow=True) == {}
