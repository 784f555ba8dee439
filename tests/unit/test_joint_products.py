"""Linear layers of one input are one product in Megatron-LM: closed forms of sizes, counts and bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.launch import Launch
from simulator.step.lowering import Lowering
from simulator.step.megatron_passes import joint_products, split_passes
from simulator.workload.kernels import Gemm
from simulator.workload.network import Network
from simulator.workload.operators import Linear
from simulator.workload.split.tensor import tensor_split
from simulator.workload.zoo.registry import build_network

LENGTH, HIDDEN, INNER, KEYS = 512, 4096, 14336, 1024
LLAMA = build_network("llama3-8b", batch=1, sequence_length=LENGTH, layers=1, loss=True)
H100, A100 = (Session().device(Where(name)) for name in ("dgx-h100", "dgx-a100-80gb"))
MEGATRON = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, framework="megatron")


def issues(options: StepOptions, network: Network = LLAMA, device: object = H100) -> list[Launch]:
    return [issue for issue in launches_of(device, network, options) if issue.part != "update"]  # type: ignore[arg-type]


def products(options: StepOptions) -> dict[str, list[tuple[int, int, int]]]:
    lowering = Lowering(H100, LLAMA, options)
    found: dict[str, list[tuple[int, int, int]]] = {}
    for layer in LLAMA.layers:
        operator = lowering.computed(layer, "bwd")
        for phase in ("fwd", "bwd") if operator is not None and layer.name.startswith("layers.0.") else ():
            runs = lowering.layer(operator, phase, lowering.mix(layer), has_parameters=True)  # type: ignore[arg-type]
            sizes = [(k.m, k.n, k.k) for k in (run.kernel for run in runs) if isinstance(k, Gemm)]
            found.setdefault(layer.name.removeprefix("layers.0."), []).extend(sizes)
    return {name: sizes for name, sizes in found.items() if sizes}


def test_queries_keys_and_values_are_one_product_and_so_are_both_halves_of_a_gate() -> None:
    found = products(MEGATRON)
    assert set(found) == {"q", "out", "gate", "down"}
    for name, outputs in (("q", HIDDEN + 2 * KEYS), ("gate", 2 * INNER)):
        forward, *backward = found[name]
        assert forward == (LENGTH, outputs, HIDDEN)
        assert sorted(backward) == sorted([(LENGTH, HIDDEN, outputs), (outputs, HIDDEN, LENGTH)])


def test_other_frameworks_compute_each() -> None:
    found = products(replace(MEGATRON, framework="pytorch"))
    assert {"q", "k", "v", "gate", "up"} <= set(found)


def test_both_do_the_same_arithmetic() -> None:
    flop = {
        framework: sum(
            cost.flop
            for issue in issues(replace(MEGATRON, framework=framework))  # type: ignore[arg-type]
            for cost, kind in zip(issue.work.costs, issue.work.kinds, strict=True)
            if kind == "gemm"
        )
        for framework in ("pytorch", "megatron")
    }
    assert flop["pytorch"] == flop["megatron"] > 0


def test_gradients_of_one_input_are_not_added_up() -> None:
    """What is left are the sums of both paths around attention and around the feed-forward part."""
    added = [issue.name for issue in issues(MEGATRON) if issue.name.endswith("(gradients added)")]
    assert sorted(added) == [f"layers.0.norm{n} (gradients added)" for n in (1, 2)]


def test_the_input_is_cast_to_fp8_once() -> None:
    eight = issues(replace(MEGATRON, precision="master-fp8"))
    casts = [issue.name for issue in eight if issue.part == "forward" and issue.name.endswith("(cast)")]
    assert [name for name in casts if name.startswith("layers.0.")] == [
        f"layers.0.{name} (cast)" for name in ("q", "out", "gate", "down")
    ]


def test_the_first_gradient_to_an_input_that_others_read_is_added_once() -> None:
    """A shared expert's gate reads what the router reads, so one of the joined product's gradients is added."""
    mixture = build_network("deepseek-v3", batch=1, sequence_length=LENGTH, layers=4, loss=True)
    joined = joint_products(mixture)["layers.3.shared.gate"]
    assert (joined.operator is not None, joined.adds_as) == (True, "layers.3.shared.up")
    assert "layers.3.shared.up" in joint_products(mixture)


@pytest.mark.parametrize(("ranks", "copies"), [(1, True), (8, False)])
def test_queries_of_several_groups_are_copied(ranks: int, copies: bool) -> None:
    found = split_passes(tensor_split(LLAMA, ranks), 2)
    whole, queries = 2 * LENGTH * (HIDDEN + 2 * KEYS) // ranks, 2 * LENGTH * HIDDEN // ranks
    (laid,) = found["layers.0.q", "backward"].before
    assert (laid.read_bytes, laid.written_bytes) == (whole, whole)
    assert (("layers.0.q", "forward") in found) == copies
    if copies:
        (copied,) = found["layers.0.q", "forward"].after
        assert (copied.read_bytes, copied.written_bytes) == (queries, queries)


def test_adapters_of_a_joined_product_are_one() -> None:
    rank = 16
    adapted = build_network("llama3-8b", batch=1, sequence_length=LENGTH, layers=1, loss=True, lora=rank)
    found = joint_products(adapted)
    joint = HIDDEN + 2 * KEYS
    into, out, scale, total = (found[f"layers.0.q.lora_{name}"].operator for name in ("a", "b", "scale", "add"))
    assert isinstance(into, Linear)
    assert (into.inputs, into.outputs) == (HIDDEN, rank)
    assert isinstance(out, Linear)
    assert (out.inputs, out.outputs) == (rank, joint)
    assert [each.output_elements for each in (scale, total) if each] == [LENGTH * joint] * 2
    assert all(found[f"layers.0.{name}.lora_{each}"].operator is None for name in "kv" for each in ("a", "b", "add"))
    launched = {issue.layer for issue in issues(MEGATRON, adapted)}
    assert "layers.0.out.lora_a" in launched
    assert "layers.0.k.lora_a" not in launched


def test_routers_and_adapters_stay_in_16_bits() -> None:
    for name, layer in (("qwen3-30b-a3b", "router"), ("llama3-8b", "q.lora_a")):
        sizes = {"lora": 16} if "lora" in layer else {}
        network = build_network(name, batch=1, sequence_length=LENGTH, layers=1, loss=True, **sizes)
        eight = [i.name for i in issues(replace(MEGATRON, precision="master-fp8"), network) if "(cast)" in i.name]
        assert f"layers.0.{layer} (cast)" not in eight
        assert "layers.0.q (cast)" in eight


def sent(device: object, framework: str, *, by_rows: bool = True) -> list[tuple[str, str, bool]]:
    divided = tensor_split(LLAMA, 8, by_rows)
    found = issues(replace(MEGATRON, framework=framework), divided, device)  # type: ignore[arg-type]
    of_block = [(issue, issue.sent) for issue in found if issue.sent and issue.layer.startswith("layers.0.")]
    return [(issue.part, each.op, each.spare) for issue, each in of_block]


def test_rows_of_a_sequence_are_gathered_again_for_gradients_of_weights() -> None:
    """Korthikanti et al.: forward two of each; backward two of each, and two gathers more."""
    found = sent(H100, "megatron")
    assert found.count(("forward", "all-gather", False)) == found.count(("forward", "reduce-scatter", False)) == 2
    assert found.count(("backward", "all-gather", False)) == found.count(("backward", "reduce-scatter", False)) == 2
    assert found.count(("backward", "all-gather", True)) == 2
    assert len(found) == 10


@pytest.mark.parametrize(
    ("device", "framework", "by_rows"), [(A100, "megatron", True), (H100, "pytorch", True), (H100, "megatron", False)]
)
def test_else_nothing_is_gathered_again(device: object, framework: str, by_rows: bool) -> None:
    assert not any(spare for _, _, spare in sent(device, framework, by_rows=by_rows))


def test_overlapped_exchanges_hide_the_second_gather() -> None:
    """With overlap, each reduce-scatter goes in two pieces, and the second gathers vanish behind products."""
    question = {"workload": "llama3-8b", "batch": 1, "framework": "megatron", "precision": "master-bf16"}
    question |= {"sizes": {"layers": 4}}
    blocks, outside = 4, 6  # the embedding's, the output layer's and the loss's exchanges
    for way, each in (("sp", 4 + 6), ("sp,tp_overlap", 4 + 4 + 4)):
        result = simulate("dgx-h100", parallel=f"tp=8,{way}", strategy="nccl", **question)  # type: ignore[call-overload]
        assert result.exchanges == blocks * each + outside
