"""``--framework megatron`` implies what every launch line of Megatron-LM implies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.cli.launch_line import with_launch
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import CommandOptions
from simulator.questions.step import StepQuestion

LINE = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
    "--seq-length 256 --max-position-embeddings 256 --vocab-size 50257 --hidden-dropout 0 --attention-dropout 0 "
    "--untie-embeddings-and-output-weights --bf16 --sequence-parallel --tensor-model-parallel-size 2 "
    "--micro-batch-size 1 --global-batch-size 8 --overlap-grad-reduce --use-distributed-optimizer "
    "--overlap-param-gather"
)
SAID = CommandOptions(
    topology="dgx-a100-80gb",
    workload="gpt",
    global_batch="8",
    micro_batch="1",
    parallel=("tp=2,dp=4,sp,zero=1",),
    framework="megatron",
    seq_len="256",
    sizes=("layers=2", "hidden=512", "heads=8", "inner=2048", "vocabulary=50432", "tied=0", "dropout=0"),
)


def asked(written: CommandOptions) -> StepQuestion:
    (question,) = ask_steps(written)[1]
    return replace(question, sizes=tuple(sorted(question.sizes)))


def test_a_framework_implies_what_its_launch_line_does() -> None:
    launched, _ = with_launch(CommandOptions(topology="dgx-a100-80gb", launch=LINE))
    mine, line = asked(SAID), asked(launched)
    # The line counts the bytes of Megatron-LM's buckets, which the step takes by itself.
    assert replace(mine, bucket_bytes=line.bucket_bytes) == line
    assert mine.options.fused_optimizer
    assert mine.options.precision == "master-bf16"
    assert mine.sums_in_fp32
    assert dict(mine.sizes)["attention"] == "fused-native"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"precision": "bf16"}, ("precision", "bf16")),
        ({"optimizer": "lamb"}, ("fused_optimizer", False)),
        ({"mode": "forward"}, ("fused_optimizer", False)),
        ({"framework": "pytorch"}, ("fused_optimizer", False)),
        ({"framework": "pytorch"}, ("precision", "amp-bf16")),
    ],
)
def test_what_is_said_stays(said: dict[str, str], kept: tuple[str, object]) -> None:
    found = asked(SAID.but(**said))
    assert getattr(found.options, kept[0]) == kept[1]
    assert found.sums_in_fp32 == (not said.keys() & {"precision", "mode", "framework"})


def test_attention_that_is_said_stays() -> None:
    found = asked(SAID.but(sizes=(*SAID.sizes, "attention=fused-softmax")))
    assert dict(found.sizes)["attention"] == "fused-softmax"


@pytest.mark.parametrize(
    ("said", "kernel"),
    [
        ({}, "fused-native"),  # PyTorch takes cuDNN's on data-centre Hopper
        ({"sizes": ("attention=fused",)}, "fused"),
        ({"libraries": "torch-2.9"}, "fused"),  # FlashAttention 2 came first
        ({"topology": "dgx-a100-80gb"}, "fused"),
        ({"workload": "gpt2", "sizes": ("attention=eager",)}, "eager"),
    ],
)
def test_todays_pytorch_takes_cudnns_attention_where_it_prefers_it(said: dict[str, object], kernel: str) -> None:
    written = CommandOptions(topology="dgx-h100", workload="llama3-8b", batch="1")
    (question,) = ask_steps(written.but(**said))[1]
    assert dict(question.sizes)["attention"] == kernel
