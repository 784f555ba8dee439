"""What the backward pass computes again, for each way of recomputing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from simulator.api.context import load_machine
from simulator.cli import run
from simulator.places import Places
from simulator.questions.options import RECOMPUTED_PARTS, Recompute, RecomputedPart, StepOptions
from simulator.step.issue import launches_of
from simulator.step.memory import held_in, memory_need
from simulator.step.moments import tape_of
from simulator.step.recompute import reruns_of
from simulator.workload.find import find_network
from simulator.workload.network import Network, block_name

DEVICE = Places(load_machine("dgx-h100")).find().device
HALF = StepOptions(precision="master-bf16", optimizer="adam")


def network(workload: str, layers: int = 4) -> Network:
    return find_network(workload, settings={"layers": layers}, sequence_length=1024).build(1)


LLAMA, MLA = network("llama3-8b"), network("deepseek-v3", 5)


def again(of: Network, options: StepOptions) -> list[str]:
    """Return the layers of the last block that run again, in order."""
    found = [issue.layer for issue in launches_of(DEVICE, of, options) if issue.again]
    block = block_name(found[0])
    return [name.removeprefix(f"{block}.") for name in found if block_name(name) == block]


def parts(*named: RecomputedPart) -> StepOptions:
    return replace(HALF, recompute="selective", recompute_parts=named)


def test_by_operator_attention_and_every_second_product_are_kept() -> None:
    names = again(LLAMA, replace(HALF, recompute="operators"))
    products = [name for name in names if name in ("q", "k", "v", "out", "gate", "up", "down")]
    assert products == ["k", "out", "up"]
    assert "attention" not in names
    assert names[0] == "norm1"
    assert "add2" not in names  # nothing inside the block reads its result


@pytest.mark.parametrize(
    ("part", "of", "names"),
    [
        ("core_attn", LLAMA, ["attention"]),
        ("layernorm", LLAMA, ["norm1", "norm2"]),
        ("mlp", LLAMA, ["gate", "silu", "up", "mul", "down"]),
        ("moe_act", MLA, ["experts_silu", "experts_mul"]),
        ("shared_experts", MLA, [f"shared.{name}" for name in ("gate", "silu", "up", "mul", "down")]),
    ],
)
def test_parts_by_megatrons_names(part: RecomputedPart, of: Network, names: list[str]) -> None:
    assert sorted(again(of, parts(part))) == sorted(names)


def test_latent_vectors_are_kept_and_projected_again() -> None:
    names = again(MLA, parts("mla_up_proj"))
    assert {"q", "kv", "join_k"} <= set(names)
    assert not {"q_latent", "kv_latent", "q_norm", "kv_norm", "attention"} & set(names)


def test_experts_run_again_with_router_and_shared_expert() -> None:
    names = again(MLA, parts("moe"))
    assert names[0] == "router"
    assert {"dispatch", "experts_up", "combine", "shared.down"} <= set(names)
    assert not {"norm2", "attention"} & set(names)


def by_megatron(*named: RecomputedPart) -> StepOptions:
    return replace(parts(*named), framework="megatron")


def seconds(of: Network, options: StepOptions, *, again: bool) -> dict[str, float]:
    """Return the time of each layer's forward pass, in the forward pass or again."""
    found: dict[str, float] = {}
    for issue in launches_of(DEVICE, of, options):
        if issue.again == again and (again or issue.part == "forward"):
            found[issue.layer] = found.get(issue.layer, 0.0) + issue.device_s
    return found


def test_the_fused_activation_of_experts_runs_again_once() -> None:
    """8 copies of 1,024 tokens: reads gate and up of 2,048 numbers and a probability in fp32, writes 2,048, in bf16."""
    options = by_megatron("moe_act")
    assert again(MLA, options) == ["experts_mul"]
    spent = seconds(MLA, options, again=True)
    assert len(spent) == 2
    rows = 8 * 1024
    moved = rows * (3 * 2048 * 2 + 4)
    for layer, time in spent.items():
        assert time == seconds(MLA, options, again=False)[layer]
        assert 0.5 * 3.35e12 < moved / time < 3.35e12  # bytes/s of an H100's memory


def test_experts_run_again_with_the_passes_around_their_products() -> None:
    options = by_megatron("moe")
    spent, forward = seconds(MLA, options, again=True), seconds(MLA, options, again=False)
    plain = seconds(MLA, parts("moe"), again=True)
    assert {layer: forward[layer] for layer in spent} == pytest.approx(spent)
    for layer in ("layers.4.dispatch", "layers.4.combine", "layers.4.experts_mul", "layers.4.topk"):
        assert spent[layer] > 0
    assert spent["layers.4.topk"] > plain["layers.4.topk"]


@pytest.mark.parametrize("part", RECOMPUTED_PARTS)
def test_each_part_saves_memory_and_takes_time(part: RecomputedPart) -> None:
    if part == "core_attn":
        of = find_network("gpt2", settings={"attention": "eager"}, sequence_length=512).build(1)
    else:
        of = LLAMA if part == "mlp" else MLA
    plain, other = held_in(of, HALF).moments[0].activations_bytes, held_in(of, parts(part)).moments[0].activations_bytes
    assert other < plain
    spent = [sum(i.device_s for i in launches_of(DEVICE, of, options)) for options in (HALF, parts(part))]
    assert spent[0] < spent[1]


@pytest.mark.parametrize("how", ["full", "operators"])
def test_the_first_blocks_alone(how: Recompute) -> None:
    """Time and memory go from none to all in equal steps, as the blocks are equal."""
    times, kept = [], []
    for count in range(5):
        options = replace(HALF, recompute=how if count else "none", recompute_blocks=count or None)
        times.append(sum(i.device_s for i in launches_of(DEVICE, LLAMA, options)))
        kept.append(held_in(LLAMA, options).moments[0].activations_bytes)
    assert times[4] == pytest.approx(
        sum(i.device_s for i in launches_of(DEVICE, LLAMA, replace(HALF, recompute=how))), rel=1e-12
    )
    steps = [b - a for a, b in pairwise(times)]
    assert steps == pytest.approx([steps[0]] * 4, rel=1e-6)
    saved = [a - b for a, b in pairwise(kept)]
    assert saved == [saved[0]] * 4
    assert saved[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("how", ["selective", "operators", "full"])
@pytest.mark.parametrize("workload", ["llama3-8b", "gpt2", "qwen3-30b-a3b", "resnet50"])
def test_all_that_is_dropped_exists_again_before_it_is_read(workload: str, how: Recompute, compiled: bool) -> None:
    of = find_network(workload).build(1)
    options = StepOptions(recompute=how, compiled=compiled)
    if workload == "resnet50" and how == "selective":
        assert reruns_of(of, options) == ()
        return
    for rerun in reruns_of(of, options):
        assert max(rerun.layers) <= rerun.before or how == "selective"
        writers = {of.layers[place].output for place in rerun.layers}
        assert rerun.tensors <= writers | {layer.inputs[0] for layer in of.layers if layer.in_place}
    plain, less = (memory_need(of, each, DEVICE) for each in (replace(options, recompute="none"), options))
    assert less.allocated_bytes <= plain.allocated_bytes
    moments = held_in(of, options).moments
    assert all(moment.activations_bytes >= 0 for moment in moments)
    assert (
        moments[-1].activations_bytes <= held_in(of, replace(options, recompute="none")).moments[-1].activations_bytes
    )


def test_as_many_blocks_as_there_are_is_all_of_them() -> None:
    """Searches for the fewest blocks ask of stages with fewer: their tensors are found once."""
    every, more, some = (replace(HALF, recompute="full", recompute_blocks=n) for n in (None, 9, 2))
    assert tape_of(LLAMA, more, 2) is tape_of(LLAMA, every, 2) is not tape_of(LLAMA, some, 2)
    assert memory_need(LLAMA, more, DEVICE) == memory_need(LLAMA, every, DEVICE)


def test_each_attention_of_a_block_runs_again_by_itself() -> None:
    of = find_network("t5-small").build(1)
    names = again(of, parts("core_attn"))
    assert "cross.scores" in names
    assert not {"out", "cross.q", "cross.k", "cross.norm"} & set(names)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--recompute --recompute-blocks 0", "--recompute-blocks 0: must be at least 1"),
        ("--recompute --recompute-blocks 13", "--recompute-blocks 13: gpt2 has 12 blocks"),
        ("--recompute --recompute-blocks 4 --parallel pp=4", "a stage's chunk of gpt2 has at most 3 blocks"),
        ("--recompute-parts moe", "--recompute-parts moe: applies to blocks with such a part, and gpt2 has none"),
        ("--recompute-parts moe,moe_act", "--recompute-parts moe_act: moe runs it again already"),
        ("--recompute-parts mlpp", "no such choice; did you mean 'mlp'"),
        ("--recompute --recompute-operators", "--recompute-operators: --recompute says already what is recomputed"),
        ("--recompute-blocks 3", "--recompute-blocks: is about what is recomputed; add --recompute"),
        ("--framework deepspeed-zero3", "--framework deepspeed-zero3: is ZeRO-3 in training; add --parallel fsdp"),
    ],
)
def test_what_has_no_effect_is_refused(words: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "dgx-h100", "--workload", "gpt2", "--batch", "1", *words.split()]) == 2
    assert found in capsys.readouterr().err


def test_blocks_without_a_part_recompute_nothing_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "--topology dgx-h100 --gpus 1 --workload deepseek-v3 --set layers=5 --batch 1"
    assert run([*asked.split(), "--recompute-parts", "moe", "--recompute-blocks", "3"]) == 2
    assert "--recompute-blocks 3: none of the first 3 blocks of deepseek-v3 has moe" in capsys.readouterr().err
