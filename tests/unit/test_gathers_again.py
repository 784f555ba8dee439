"""Reentrant checkpoints around FSDP's units: their parameters are gathered for what runs again, and once more."""

import pytest

from simulator.api import load_machine
from simulator.launch.launch import read_launch
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on
from tests.unit.test_hooks_of_fsdp import COSTS, IN_BLOCK

MACHINE = load_machine("dgx-h100")
AGAIN = StepOptions(precision="bf16", optimizer="adam", fused_optimizer=True, recompute="full")
TRAINER = (
    "torchrun --nproc-per-node 2 run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --block_size 64 "
    "--fsdp full_shard"
)
FACTORY = (
    "torchrun --nproc-per-node 2 src/train.py --stage sft --do_train --model_name_or_path gpt2 --cutoff_len 64 "
    "--per_device_train_batch_size 1 --finetuning_type full --fsdp full_shard"
)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_each_block_gathers_once_more(micro_batches: int) -> None:
    layers = 3
    network = build_network("llama2-7b", batch=1, sequence_length=64, layers=layers, loss=True)
    once, more = (
        step_on(
            MACHINE,
            network,
            AGAIN,
            layout=parse_layout("fsdp"),
            micro_batches=micro_batches,
            gathers_again=again,
            contention=False,
        )
        for again in (False, True)
    )
    block = sum(p.elements for p in network.parameters if p.name.startswith("layers.0."))
    assert more.step.host_s - once.step.host_s == pytest.approx(
        micro_batches * layers * (COSTS.unit_s + IN_BLOCK * COSTS.shard_s), rel=1e-6
    )
    sent_bytes = more.exchanged_bytes - once.exchanged_bytes
    assert sent_bytes == pytest.approx(micro_batches * layers * 2 * block, rel=1e-6)
    assert more.exchanges - once.exchanges == micro_batches * layers
    assert more.step_time_s > once.step_time_s


AXOLOTL = """cat > c.yaml <<'EOF'
base_model: gpt2
micro_batch_size: 1
sequence_len: 64
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: %s}
fsdp_config: {state_dict_type: FULL}
EOF
accelerate launch --num_processes 2 -m axolotl.cli.train c.yaml"""


@pytest.mark.parametrize(
    ("line", "again"),
    [
        (f"{TRAINER} --gradient_checkpointing", None),  # transformers 5 does not
        (f"{TRAINER} --gradient_checkpointing --gradient_checkpointing_kwargs '{{\"use_reentrant\": true}}'", True),
        (f"{TRAINER} --gradient_checkpointing_kwargs '{{\"use_reentrant\": true}}'", None),
        (AXOLOTL % "true", True),
        (AXOLOTL % "false", None),
        (FACTORY, True),  # its default
        (f"{FACTORY} --use_reentrant_gc false", None),
        (f"{FACTORY} --disable_gradient_checkpointing", None),
    ],
)
def test_launch_lines_say_so(line: str, again: bool | None) -> None:
    assert read_launch(line).options.get("gather_again") is again
