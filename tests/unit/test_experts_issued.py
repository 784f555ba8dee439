"""Megatron-LM's host work for experts, its savings by graphs of blocks, and normalisation of short rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session, load_machine
from simulator.devices.dispatch import host_costs
from simulator.devices.predict import kernel_cost
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.launch import Launch
from simulator.training import divided
from simulator.workload.kernels import Rowwise
from simulator.workload.network import Network, block_name
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

DEVICE = Session().device(Where("dgx-b200"))
EXPERTS, LAYERS = 128, 2
QWEN = build_network("qwen3-30b-a3b", batch=1, loss=True, sequence_length=4096, layers=LAYERS)
LLAMA = build_network("llama3-8b", batch=1, loss=True, sequence_length=4096, layers=LAYERS)
MEGATRON = StepOptions(precision="master-fp8", optimizer="adam", fused_optimizer=True, framework="megatron")
PYTORCH = replace(MEGATRON, framework="pytorch")


def issued(network: Network, options: StepOptions = MEGATRON, words: str = "dp") -> tuple[Launch, ...]:
    return launches_of(DEVICE, divided(network, parse_layout(words).on(8)), options)


@pytest.mark.parametrize("ep", [1, 8])
def test_each_expert_is_a_product_and_a_cast_of_its_own_to_the_host(ep: int) -> None:
    costs = host_costs(DEVICE)
    more = EXPERTS // ep - 1
    for part, calls in (("forward", 1), ("backward", 2)):
        host_s = {
            options.framework: {
                issue.name: issue.host_s for issue in issued(QWEN, options, f"ep={ep}") if issue.part == part
            }
            for options in (MEGATRON, PYTORCH)
        }
        for name in ("layers.0.experts_up", "layers.1.experts_down"):
            more_s = host_s["megatron"][name] / costs.megatron - host_s["pytorch"][name]
            own_s = more * costs.gradient_s if part == "backward" else 0.0  # each expert's weight is a parameter
            assert more_s == pytest.approx(calls * more * costs.product_s + own_s)
            cast = f"{name} (cast)"
            more_s = host_s["megatron"][cast] / costs.megatron - host_s["pytorch"][cast]
            assert more_s == pytest.approx(more * 6e-6)
        assert host_s["megatron"]["layers.0.q"] == pytest.approx(costs.megatron * host_s["pytorch"]["layers.0.q"])


def test_modules_of_transformer_engine_take_the_host_longer_but_not_their_calls_in_c() -> None:
    """The kernels of experts are launched in C++; all else of a module is Python's."""
    costs = host_costs(DEVICE)
    native = build_network(
        "qwen3-30b-a3b", batch=1, loss=True, sequence_length=4096, layers=1, attention="fused-native"
    )
    found = {
        network: {issue.name: issue.host_s for issue in issued(network, words="ep=8") if issue.part == "forward"}
        for network in (QWEN, native)
    }
    of_torch = costs.forward_s + costs.product_s
    for network, scale in ((QWEN, costs.megatron), (native, costs.engine)):
        host_s = found[network]
        assert host_s["layers.0.out"] == pytest.approx(scale * of_torch)
        products_s = (EXPERTS // 8 - 1) * costs.megatron * costs.product_s
        assert host_s["layers.0.experts_up"] == pytest.approx(scale * of_torch + products_s)


def test_the_update_waits_for_the_norm_and_calls_for_each_parameter() -> None:
    costs = host_costs(DEVICE)
    found = issued(QWEN, replace(MEGATRON, precision="master-bf16"), "ep=8")
    zeroed, checked, averaged, norm, adam, back = (issue for issue in found if issue.part == "update")
    assert [each.waits for each in (norm, adam, back)] == [False, True, False]
    n = divided(QWEN, parse_layout("ep=8").on(8)).trained_count
    assert [(each.over, each.work.costs[0].bytes) for each in (zeroed, averaged)] == [("all", 4 * n), ("summed", 8 * n)]
    assert (checked.over, checked.work.costs[0].bytes) == ("all", 4 * n)
    assert (norm.work.costs[0].bytes, back.work.costs[0].bytes) == (4 * n, 6 * n)
    own = sum(len(layer.trained) for layer in QWEN.layers) + LAYERS * 2 * (EXPERTS // 8 - 1)
    besides_s = own * (costs.update_s + 6 * costs.bare_launch_s)
    assert adam.host_s == pytest.approx(besides_s + costs.forward_s, rel=0.05)


def test_the_all_to_all_dispatcher_sends_probabilities_there_and_their_gradients_back() -> None:
    for options, words, passes in ((MEGATRON, "ep=8", 2), (MEGATRON, "ep=8,flex", 0), (PYTORCH, "ep=8", 0)):
        sent = [issue for issue in issued(QWEN, options, words) if "(probabilities)" in issue.name]
        assert len(sent) == passes * LAYERS
        assert all(issue.sent is not None and issue.sent.size_bytes == 4 * 4096 * 8 for issue in sent)


@pytest.mark.parametrize("name", ["layers.0.experts_up", "layers.1.experts_down"])
def test_experts_are_products_of_their_own_on_several_streams(name: str) -> None:
    megatron, pytorch = (
        {(i.name, i.part): i for i in issued(QWEN, options, "ep=8")}[name, "forward"] for options in (MEGATRON, PYTORCH)
    )
    assert len(megatron.work.costs) == len(pytorch.work.costs) == 1
    assert megatron.work.costs[0].flop == pytorch.work.costs[0].flop
    assert pytorch.device_s < megatron.device_s < 2 * pytorch.device_s


def test_the_host_looks_once_a_layer_at_how_many_tokens_experts_get() -> None:
    def waits(options: StepOptions, words: str) -> list[str]:
        return [issue.name for issue in issued(QWEN, options, words) if issue.waits and issue.part != "update"]

    assert waits(MEGATRON, "ep=8") == [f"layers.{n}.experts_up.dispatch" for n in range(LAYERS)]
    assert waits(MEGATRON, "dp") == [f"layers.{n}.experts_up" for n in range(LAYERS)]
    assert waits(PYTORCH, "ep=8") == []
    again = [issue for issue in issued(QWEN, replace(MEGATRON, recompute="full"), "ep=8") if issue.waits]
    assert [issue.again for issue in again if issue.part == "backward"] == [True] * LAYERS


def test_while_it_looks_nothing_is_issued() -> None:
    result = step_on(load_machine("dgx-b200"), QWEN, MEGATRON, layout=parse_layout("ep=8"))
    plan, spans = result.timeline.plan, result.timeline.spans
    looked = 0
    for number, task in enumerate(plan.tasks):
        if task.label.endswith("experts_up.dispatch") and task.stream.endswith("host") and spans[number] is not None:
            before = [n for n in task.after if plan.tasks[n].stream.endswith("compute")]
            if before:
                looked += 1
                assert spans[number].start_s >= max(spans[n].end_s for n in before)
    assert looked == LAYERS


def test_graphs_of_blocks_are_a_launch_on_either_side_of_the_experts() -> None:
    graphs = replace(MEGATRON, cuda_graph_blocks=True)
    launch_s = host_costs(DEVICE).graph_launch_s * host_costs(DEVICE).megatron
    apart = {layer.name for layer in divided(QWEN, parse_layout("ep=8").on(8)).layers if layer.part == "experts"}
    plain, captured = (issued(QWEN, options, "ep=8") for options in (MEGATRON, graphs))
    for part, count in (("forward", 2), ("backward", 1)):  # the sum after the experts runs nothing backward
        for block in range(LAYERS):
            mine = [
                issue
                for issue in captured
                if issue.part == part and block_name(issue.layer) == f"layers.{block}" and issue.layer not in apart
            ]
            launches = [issue.host_s for issue in mine if issue.host_s]
            assert launches == [pytest.approx(launch_s)] * count
    for before, after in zip(plain, captured, strict=True):
        if before.layer in apart or not block_name(before.layer):
            # Products take the power that the other kernels of the step leave, which is a little less beside graphs.
            assert before.device_s == pytest.approx(after.device_s, rel=0.02)
            assert replace(before, work=after.work) == after
        else:
            assert after.device_s < before.device_s or not before.work.costs
    dense = [issue.host_s for issue in issued(LLAMA, graphs) if block_name(issue.layer) and issue.host_s]
    assert len(dense) == 2 * LAYERS


def test_short_rows_of_megatron_normalise_in_warps() -> None:
    fused = build_network("qwen3-30b-a3b", batch=1, loss=True, sequence_length=4096, layers=1, norms="fused")

    def norm_s(options: StepOptions, name: str) -> float:
        return sum(issue.device_s for issue in issued(fused, options) if issue.name == name and issue.part == "forward")

    assert norm_s(PYTORCH, "layers.0.norm_q") > 5 * norm_s(MEGATRON, "layers.0.norm_q")
    assert norm_s(PYTORCH, "layers.0.norm1") == norm_s(MEGATRON, "layers.0.norm1")  # 2,048 columns
    for kind in ("rms_norm", "layer_norm_bwd"):
        kernel = Rowwise(kind, 4096 * 32, 128, "bf16", in_warps=True)
        cost = kernel_cost(DEVICE, kernel)
        assert kernel.bytes / DEVICE.memory_bandwidth_Bps < cost.time_s < 3 * kernel.bytes / DEVICE.memory_bandwidth_Bps
