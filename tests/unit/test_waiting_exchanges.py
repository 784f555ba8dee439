"""Gradients that are exchanged without overlap: in each micro-batch, computing waits for the exchange."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.api import load_machine
from simulator.launch.launch import read_launch
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import BUCKET_BYTES
from simulator.results.training import TrainingResult
from simulator.workload.zoo.registry import build_network
from tests.asked import step_on

MACHINE = load_machine("dgx-a100-80gb")
LLAMA = build_network("llama-7b", batch=1, loss=True, sequence_length=1024, layers=2)
HALF = StepOptions(precision="master-fp16", optimizer="adam", fused_optimizer=True)


def step(words: str, micro_batches: int, bucket_bytes: float = 0.0, **asked: bool) -> TrainingResult:
    layout = parse_layout(words)
    return step_on(MACHINE, LLAMA, HALF, layout=layout, micro_batches=micro_batches, bucket_bytes=bucket_bytes, **asked)


def exchanged_s(result: TrainingResult) -> float:
    """Return the time of a reduce-scatter of all gradients of a rank, in seconds."""
    timed = zip(result.timeline.plan.tasks, result.timeline.spans, strict=True)
    return next(span.end_s - span.start_s for task, span in timed if getattr(task.about, "op", "") == "reduce-scatter")


@pytest.mark.parametrize("words", ["zero=2", "tp=2,zero=2", "zero=2,shards=4"])
def test_each_micro_batch_takes_its_computing_and_its_exchange(words: str) -> None:
    sums_last, sums_each = words.replace("zero=2", "zero=1"), words
    for fold in (True, False):
        computing_s = step(sums_last, 5, fold=fold).step_time_s - step(sums_last, 4, fold=fold).step_time_s
        four, five = step(sums_each, 4, fold=fold), step(sums_each, 5, fold=fold)
        micro_batch_s = five.step_time_s - four.step_time_s
        assert micro_batch_s == pytest.approx(computing_s + exchanged_s(five), rel=1e-6)


@pytest.mark.parametrize("micro_batches", [1, 2, 7, 40])
@pytest.mark.parametrize("words", ["zero=2", "tp=2,zero=2", "zero=1", "dp"])
def test_waiting_is_never_faster_than_overlapping(words: str, micro_batches: int) -> None:
    waiting, overlapping = (step(words, micro_batches, n_bytes) for n_bytes in (0.0, BUCKET_BYTES))
    assert waiting.step_time_s >= overlapping.step_time_s
    assert waiting.exposed_s >= overlapping.exposed_s


def test_skipped_micro_batches_wait_as_those_that_are_simulated() -> None:
    folded, whole = (step("zero=2", 24, fold=fold) for fold in (True, False))
    assert folded.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)


@pytest.mark.parametrize("words", ["zero=1", "zero=2", "tp=2,zero=2", "zero=2,shards=4"])
def test_summed_whole_gradients_take_an_all_reduce_for_each_scatter(words: str) -> None:
    scattered, whole = (step(words, 3, sums_whole=whole) for whole in (False, True))
    sent = []
    for result in (scattered, whole):
        timed = zip(result.timeline.plan.tasks, result.timeline.spans, strict=True)
        labels = [(task.about, span.end_s - span.start_s) for task, span in timed if hasattr(task.about, "op")]
        of_data = [(each.op, each.size_bytes, spent_s) for each, spent_s in labels if each.op != "all-gather"]
        sent.append([each for each in of_data if each[1] > 1e8])
    by_op = [
        sum(op == name for op, *_ in found) for found, name in zip(sent, ("reduce-scatter", "all-reduce"), strict=True)
    ]
    assert by_op[0] == (1 if words == "zero=1" else 3)
    assert by_op[1] >= by_op[0]
    more_s = sum(each[2] for each in sent[1]) - sum(each[2] for each in sent[0])
    assert whole.step_time_s - scattered.step_time_s == pytest.approx(more_s, rel=1e-6)


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ("", True),
        (', "reduce_scatter": false', True),
        (', "use_multi_rank_bucket_allreduce": true', True),
        (', "use_multi_rank_bucket_allreduce": false', False),
        (', "use_multi_rank_bucket_allreduce": false, "reduce_scatter": false', True),
    ],
)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeeds_stages_below_3_all_reduce(stage: int, said: str, whole: bool, tmp_path: Path) -> None:
    zero = f'{{"stage": {stage}{said}}}'
    assert deepspeed(zero, tmp_path).get("reduce_whole", False) == (whole and stage < 3)


@pytest.mark.parametrize(
    ("zero", "waits"),
    [
        ('{"stage": 2, "overlap_comm": false}', True),
        ('{"stage": 2}', True),
        ('{"stage": 2, "overlap_comm": true}', False),
    ],
)
def test_deepspeeds_stages_wait_without_overlap_comm(zero: str, waits: bool, tmp_path: Path) -> None:
    assert (deepspeed(zero, tmp_path).get("overlap") == "none") == waits


def deepspeed(zero: str, folder: Path) -> dict[str, str | bool]:
    """Return the options of a launch line whose file says *zero*."""
    (folder / "ds.json").write_text(f'{{"zero_optimization": {zero}, "bf16": {{"enabled": true}}}}')
    line = f"deepspeed --num_gpus 8 train.py --deepspeed {folder}/ds.json --model_name_or_path meta-llama/Llama-2-7b-hf"
    return read_launch(f"{line} --per_device_train_batch_size 1 --gradient_accumulation_steps 4").options
