"""Parts of a pipeline with unlike numbers of blocks: what each holds, takes and is called; launch lines with them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.launch.stages import layout_text, titan_blocks
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.results.training import TrainingResult
from simulator.workload.network import block_name
from simulator.workload.split.stages import NetworkStage, stages_of
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on
from validate.kinds.steps import _blocks
from validate.tables.cells import NotScored

MACHINE = load_machine("dgx-a100-40gb")
MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 1024 --num-attention-heads 8 "
    "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 32 --bf16 "
    "--vocab-size 32000 --transformer-impl transformer_engine --pipeline-model-parallel-size 4"
)

BOTH_ENDS = "--num-layers 30 --account-for-loss-in-pipeline-split --account-for-embedding-in-pipeline-split"


def counted(part: NetworkStage) -> int:
    return len({name for layer in part.network.layers if (name := block_name(layer.name))})


def step(layout: str) -> TrainingResult:
    options = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
    network = build_network("gpt3-125m", batch=8)
    return step_on(MACHINE, network, options, gpus=MACHINE.gpus[:4], micro_batches=8, layout=parse_layout(layout))


@pytest.mark.parametrize("blocks", [(3, 4, 4, 1), (1, 9, 1, 1), (0, 6, 6, 0), (5, 7)])
def test_parts_have_the_blocks_that_are_said(blocks: tuple[int, ...]) -> None:
    network = build_network("gpt3-125m", batch=1)
    parts = stages_of(network, len(blocks), blocks)
    assert tuple(map(counted, parts)) == blocks
    assert [layer for part in parts for layer in part.network.layers] == list(network.layers)


def test_even_blocks_are_the_default() -> None:
    network = build_network("gpt3-125m", batch=1)
    for mine, usual in zip(stages_of(network, 4, (3, 3, 3, 3)), stages_of(network, 4), strict=True):
        assert (mine.network.layers, mine.received_elements) == (usual.network.layers, usual.received_elements)


def test_the_fullest_stage_sets_the_pace_and_needs_the_most() -> None:
    even, heavy = step("pp=4"), step("pp=4,blocks=2-6-2-2")
    assert heavy.step_time_s > even.step_time_s
    assert heavy.tightest.need.total_bytes > even.tightest.need.total_bytes
    relieved = step("pp=4,blocks=3-4-4-1")  # the last one has the logits of 50,257 words
    assert relieved.step_time_s < even.step_time_s


def test_a_stage_without_blocks_does_not_tell_of_the_step() -> None:
    """The logits alone take longest here, but attention and the errors of such steps are those of the network."""
    apart = step("pp=4,blocks=4-4-4-0")
    assert apart.step.family == step("pp=4").step.family == "transformer"
    assert any(block_name(layer.name) for layer in apart.step.network.layers)


def test_the_layout_says_its_blocks() -> None:
    assert parse_layout("pp=2,vp=2,blocks=3-3-4-2").words == "pp=2,vp=2,blocks=3-3-4-2"
    assert Layout(pp=2, blocks=(7, 5)) == parse_layout("pp=2,blocks=7-5")
    assert "blocks 7-5" in step("pp=2,blocks=7-5").called


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("pp=4,blocks=6-6", "blocks=6-6 is 2 parts, and the pipeline has 4: pp x vp"),
        ("pp=2,blocks=6-7", "blocks=6-7 is 13 in all, and gpt3-125m has 12 blocks"),
        ("pp=4,blocks=6-0-3-3", "blocks=6-0-3-3: part 2 would have no layers"),
        ("blocks=12", "add pp=2 or more"),
        ("pp=2,blocks=6-x", "for example blocks=8-10-10-4"),
        ("pp=2,blocks", "for example blocks=8-10-10-4"),
    ],
)
def test_what_blocks_cannot_be(layout: str, why: str) -> None:
    with pytest.raises(InputError) as raised:
        step(layout)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("more", "layout"),
    [
        ("--pipeline-model-parallel-layout 'Et*9|t*9|t*9|t*5L'", "pp=4,dp=2,blocks=9-9-9-5"),
        ("--pipeline-model-parallel-layout 'Et*4|(t*4|)*6t*4L'", "pp=4,dp=2,vp=2"),
        ("--pipeline-model-parallel-layout 'E|(t*5,|)*6t*2L'", "pp=4,dp=2,vp=2,blocks=0-5-5-5-5-5-5-2"),
        ("--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 5", "pp=4,dp=2,blocks=7-10-10-5"),
        ("--decoder-last-pipeline-num-layers 8 --num-virtual-stages-per-pipeline-rank 2", "pp=4,dp=2,vp=2"),
        ("--decoder-last-pipeline-num-layers 2", "pp=4,dp=2,blocks=10-10-10-2"),
        ("--num-layers 31 --account-for-loss-in-pipeline-split", "pp=4,dp=2,blocks=8-8-8-7"),
        (f"{BOTH_ENDS} --num-layers-per-virtual-pipeline-stage 4", "pp=4,dp=2,vp=2,blocks=3-4-4-4-4-4-4-3"),
    ],
)
def test_megatrons_parts(more: str, layout: str) -> None:
    assert read_launch(f"{MEGATRON} {more}", own=8).options["parallel"].startswith(layout)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("--pipeline-model-parallel-layout 'Et*9|t*9|t*9|t*6L'", "33 transformer layers (t), and the network has 32"),
        ("--pipeline-model-parallel-layout 'Et*16|t*8|t*8L'", "3 parts are no multiple of 4 stages"),
        ("--pipeline-model-parallel-layout 't*16|t*16'", "is no layout of parts; for example Et*3|(tt|)*29,m|L"),
        ("--pipeline-model-parallel-layout 'Et*16||t*8|t*8L'", "part 2 has no layers"),
        ("--decoder-last-pipeline-num-layers 6", "3 other stages do not share 26 of 32 layers"),
        ("--account-for-loss-in-pipeline-split", "33 layers do not fill 4 parts alike"),
    ],
)
def test_what_megatron_refuses(more: str, why: str) -> None:
    with pytest.raises(InputError) as raised:
        read_launch(f"{MEGATRON} {more}", own=8)
    assert why in str(raised.value)


def test_the_block_that_predicts_further_tokens_is_in_the_last_part() -> None:
    experts = "--num-experts 8 --moe-grouped-gemm --moe-ffn-hidden-size 512 --mtp-num-layers 1 --moe-router-topk 2"
    experts += " --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --multi-latent-attention"
    found = read_launch(f"{MEGATRON} {experts}", own=8)
    assert "blocks=8-8-8-9" in str(found.options["parallel"])
    laid_out = read_launch(f"{MEGATRON} {experts} --pipeline-model-parallel-layout 'Et*9|t*10|t*10|t*3,mL'", own=8)
    assert "blocks=9-10-10-4" in str(laid_out.options["parallel"])


@given(st.lists(st.integers(1, 12), min_size=4, max_size=4), st.integers(0, 1))
@settings(max_examples=30, deadline=None)
def test_a_layout_that_is_written_reads_back(blocks: list[int], further: int) -> None:
    text, layers = layout_text(blocks, 0), sum(blocks)
    line = f"{MEGATRON.replace('--num-layers 32', f'--num-layers {layers}')} --pipeline-model-parallel-layout '{text}'"
    said = str(read_launch(line, own=8).options["parallel"])
    assert ("blocks=" + "-".join(map(str, blocks)) in said) == (len(set(blocks)) > 1)
    assert layout_text(blocks, further).count("m") == further


def test_torchtitan_counts_the_ends_as_layers() -> None:
    assert titan_blocks(32, 4, 1, 1) == [8, 9, 8, 7]
    assert titan_blocks(126, 8, 1, 1) == [15, *[16] * 6, 15]
    assert sum(titan_blocks(61, 7, 2, 3)) == 61


@pytest.mark.parametrize(("text", "blocks"), [("", ()), ("8-10-10-4", (8, 10, 10, 4)), ("0-6-6", (0, 6, 6))])
def test_a_table_says_the_blocks(text: str, blocks: tuple[int, ...]) -> None:
    assert _blocks(text) == blocks
    with pytest.raises(NotScored, match="as 8-10-10-4"):
        _blocks("8-ten")
