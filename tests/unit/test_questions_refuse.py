"""What a command refuses, a question refuses when it is made: by Session, Python, a row of a table, a scenario."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from simulator import Session, compare, simulate
from simulator.cli import run
from simulator.cli.scenario_command import answer_scenario
from simulator.errors import InputError
from simulator.questions.checks import changed
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.input import InputQuestion
from simulator.questions.layout import FSDP, Layout
from simulator.questions.options import StepOptions
from simulator.questions.single import AccessQuestion, CopyQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import SlowLink, Software, Where
from simulator.scenarios.file import find_scenario
from tests.unit.test_both_doors import as_arguments
from validate.kinds import STEPS
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

P3 = Where("p3.16xlarge")


def step(**fields: Any) -> StepQuestion:
    return StepQuestion(**{"where": P3, "workload": "resnet18", "batch": 8, **fields})


def exchange(**fields: Any) -> CollectiveQuestion:
    return CollectiveQuestion(**{"where": P3, "size_bytes": 1e6, **fields})


STEP = "--workload resnet18 --batch 8"
EXCHANGE = "--workload bytes:1MB --strategy nccl"
# What a command says, and how the same is asked without it.
REFUSED: dict[str, Callable[[], object]] = {
    f"{STEP} --micro-batches 0": lambda: step(micro_batches=0),
    "--workload resnet18 --batch 0": lambda: step(batch=0),
    f"{STEP} --threads 0 --device cpu0": lambda: step(threads=0, device="cpu0"),
    f"{STEP} --programs 65 --gpus 1": lambda: step(programs=65, gpus=(0,)),
    f"{STEP} --programs 2": lambda: Session().step(step(programs=2)),
    f"{STEP} --threads 4 --gpus 0,1": lambda: step(threads=4, gpus=(0, 1)),
    f"{STEP} --gpus 0,0": lambda: step(gpus=(0, 0)),
    f"{STEP} --staleness 3": lambda: step(staleness=3),
    f"{STEP} --strategy parameter-server --staleness -1": lambda: step(strategy="parameter-server", staleness=-1),
    f"{STEP} --strategy parameter-server --parallel fsdp --staleness 1": lambda: step(
        strategy="parameter-server", layout=FSDP, staleness=1
    ),
    f"{STEP} --mode forward --strategy parameter-server --staleness 1": lambda: step(
        options=StepOptions(mode="forward"), strategy="parameter-server", staleness=1
    ),
    f"{STEP} --servers own": lambda: step(servers=("own",)),
    f"{STEP} --strategy parameter-server --servers own,cpu0": lambda: step(
        strategy="parameter-server", servers=("own", "cpu0")
    ),
    f"{STEP} --lose cpu0@10ms": lambda: step(lost=("cpu0", 0.01)),
    f"{STEP} --strategy parameter-server --lose cpu0@0s": lambda: step(strategy="parameter-server", lost=("cpu0", 0.0)),
    f"{STEP} --divide best --parallel fsdp": lambda: step(divided=True, layout=FSDP),
    f"{STEP} --strategy parameter-server --overlap bucket:1MB": lambda: step(
        strategy="parameter-server", bucket_bytes=1e6
    ),
    f"{STEP} --parallel fsdp --overlap none": lambda: step(layout=FSDP, bucket_bytes=0.0),
    f"{STEP} --parallel dataparallel --reduce-fp32": lambda: step(
        layout=Layout(process="dataparallel"), sums_in_fp32=True
    ),
    f"{STEP} --parallel zero=2 --gather-fp32": lambda: step(layout=Layout(zero=2), gathers_in_fp32=True),
    f"{STEP} --parallel fsdp --reduce-whole": lambda: step(layout=FSDP, sums_whole=True),
    f"{STEP} --parallel zero=2 --flat-parameters": lambda: step(layout=Layout(zero=2), flat_parameters=True),
    f"{STEP} --parallel fsdp --gather-again": lambda: step(layout=FSDP, gathers_again=True),
    f"{STEP} --parallel loop --no-contention": lambda: step(layout=Layout(process="loop"), contention=False),
    f"{STEP} --no-prefetch": lambda: step(prefetches=False),
    f"{STEP} --device gpu0 --strategy ring": lambda: step(device="gpu0", strategy="ring"),
    f"{STEP} --device gpu0 --no-contention": lambda: step(device="gpu0", contention=False),
    f"{STEP} --mode inference --overlap none": lambda: step(options=StepOptions(mode="inference"), bucket_bytes=0.0),
    f"{STEP} --straggler gpu3:0.5x": lambda: step(stragglers=(("gpu3", 0.5),)),
    f"{STEP} --expandable-segments --mode inference": lambda: StepOptions(expandable_segments=True, mode="inference"),
    f"{STEP} --expandable-segments --framework caffe": lambda: StepOptions(expandable_segments=True, framework="caffe"),
    f"{STEP} --gradient-as-bucket-view --parallel fsdp": lambda: step(layout=FSDP, bucket_views=True),
    f"{STEP} --gradient-as-bucket-view --overlap none": lambda: step(bucket_views=True, bucket_bytes=0.0),
    f"{STEP} --launch-blocking --cuda-graph": lambda: StepOptions(launch_blocking=True, cuda_graph=True),
    f"{STEP} --fused-optimizer --optimizer lamb": lambda: StepOptions(fused_optimizer=True, optimizer="lamb"),
    f"{STEP} --fused-optimizer --mode forward": lambda: StepOptions(fused_optimizer=True, mode="forward"),
    f"{STEP} --precision int8": lambda: StepOptions(precision="int8"),
    f"{STEP} --recompute --mode inference": lambda: StepOptions(recompute="full", mode="inference"),
    f"{STEP} --recompute-blocks 2": lambda: StepOptions(recompute_blocks=2),
    f"{STEP} --recompute --recompute-blocks 0": lambda: StepOptions(recompute="full", recompute_blocks=0),
    f"{STEP} --recompute-parts moe,moe_act": lambda: StepOptions(
        recompute="selective", recompute_parts=("moe", "moe_act")
    ),
    f"{STEP} --slow-link gpu0-gpu1:2x": lambda: SlowLink("gpu0-gpu1", 2.0),
    f"{STEP} --slow-link gpu0-gpu1:0x@1ms": lambda: SlowLink("gpu0-gpu1", 0.0, 1e-3),
    f"{STEP} --nccl 1.9": lambda: Software(nccl=(1, 9)),
    f"{EXCHANGE} --redop max --collective all-gather": lambda: exchange(reduction="max", collective="all-gather"),
    f"{EXCHANGE} --root 3": lambda: exchange(root=3),
    f"{EXCHANGE} --root 9 --collective broadcast": lambda: Session().time_s(exchange(root=9, collective="broadcast")),
    f"{EXCHANGE} --root 2 --collective broadcast --gpus 0,1": lambda: exchange(
        root=2, collective="broadcast", gpus=(0, 1)
    ),
    f"{EXCHANGE} --pairs 0>1": lambda: exchange(pairs=((0, 1),)),
    f"{EXCHANGE} --pairs 0>0 --collective send-recv --gpus 0,1": lambda: exchange(
        pairs=((0, 0),), collective="send-recv", gpus=(0, 1)
    ),
    f"{EXCHANGE} --gpus-per-process 0": lambda: exchange(gpus_per_process=0),
    f"{EXCHANGE} --gpus-per-process 9": lambda: Session().time_s(exchange(gpus_per_process=9)),
    f"{EXCHANGE} --group-size 3": lambda: Session().time_s(exchange(group_size=3)),
    f"{EXCHANGE} --algorithm tree --collective all-to-all": lambda: exchange(algorithm="tree", collective="all-to-all"),
    "--workload bytes:1MB --strategy ring --no-nvls": lambda: exchange(strategy="ring", nvls=False),
    f"{STEP} --gpus 0,1 --strategy ring --protocol LL": lambda: step(gpus=(0, 1), strategy="ring", protocol="LL"),
    f"{STEP} --gpus 0-0 --algorithm ring": lambda: step(gpus=(0,), algorithm="ring"),
    "--workload bytes:1MB --strategy ring --algorithm tree": lambda: exchange(strategy="ring", algorithm="tree"),
    "--workload bytes:1MB --strategy ring --gpus-per-process 2": lambda: exchange(strategy="ring", gpus_per_process=2),
    f"{EXCHANGE} --servers own": lambda: exchange(servers=("own",)),
    f"{STEP} --accumulate fp32": lambda: step(options=StepOptions(accumulation="fp32")),
    f"{STEP} --recompute --recompute-blocks 99": lambda: Session().step(
        step(options=StepOptions(recompute="full", recompute_blocks=99))
    ),
    f"{STEP} --recompute-attention": lambda: Session().step(step(options=StepOptions(recompute="selective"))),
    f"{STEP} --recompute-parts mlp": lambda: Session().step(
        step(options=StepOptions(recompute="selective", recompute_parts=("mlp",)))
    ),
    "--workload gpt2 --batch 1 --precision fp32 --channels-last": lambda: Session().step(
        step(workload="gpt2", batch=1, options=StepOptions(precision="fp32", channels_last=True))
    ),
    f"{STEP} --framework deepspeed-zero3": lambda: Session().step(
        step(options=StepOptions(framework="deepspeed-zero3"))
    ),
    f"{STEP} --reduce-fp32": lambda: Session().step(step(sums_in_fp32=True)),
    f"{STEP} --cpu-library blas": lambda: Session().step(step(software=Software(cpu_library="blas"))),
    f"{STEP} --libraries 2010-01": lambda: Session().step(step(software=Software(libraries=(2010, 1)))),
    f"{STEP} --device cpu0 --libraries 2020-01": lambda: Session().step(
        step(device="cpu0", software=Software(libraries=(2020, 1)))
    ),
    f"{STEP} --device cpu0 --channels-last": lambda: Session().step(
        step(device="cpu0", options=StepOptions(channels_last=True))
    ),
    f"{STEP} --device cpu0 --framework megatron": lambda: Session().step(
        step(device="cpu0", options=StepOptions(framework="megatron"))
    ),
    f"{STEP} --precision tf32": lambda: Session().step(step(options=StepOptions(precision="tf32"))),
}
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a bucket": (lambda: step(bucket_bytes=-5), "bucket_bytes=-5: must be at least 0"),
    "no whole number": (lambda: step(batch=2.5), "batch=2.5: must be a whole number"),
    "a mode": (lambda: StepOptions(mode="trane"), "mode='trane': no such choice; did you mean 'train'?"),  # type: ignore[arg-type]
    "a degree": (lambda: Layout(tp=0), "tp=0: from 1 to 1000000"),
    "a layout": (lambda: Layout(sp=True), "layout: sp splits what tp leaves whole; add tp=2 or more"),
    "one process": (lambda: Layout(process="loop", tp=2), "layout: loop is one process for all, and stands alone"),
    "helpers": (lambda: step(helpers=("cpu0",)), "helpers='cpu0': a CPU gets a part of what is divided best"),
    "a size": (lambda: exchange(size_bytes=-1.0), "size_bytes=-1.0: must be at least zero and finite"),
    "a collective": (lambda: exchange(collective="gather"), "collective='gather': no such choice"),
    "a copy": (lambda: CopyQuestion(where=P3, kind="h2d", size_bytes=0.0), "size_bytes=0.0: must be more than 0"),
    "an access": (lambda: AccessQuestion(where=P3, kind="streem", size_bytes=1e6), "kind='streem': no such"),  # type: ignore[arg-type]
    "an input": (lambda: InputQuestion(name="", sample_bytes=1e5, workers=65), "workers=65: from 0 to 64"),
}


def said(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run([*shlex.split(f"--topology p3.16xlarge {line}"), "--quiet"]) == 2
    return capsys.readouterr().err.strip().removeprefix("simulate: ")


@pytest.mark.parametrize("line", REFUSED)
def test_a_question_refuses_what_the_command_refuses(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError) as caught:
        REFUSED[line]()
    assert caught.value.spelt("command").splitlines()[0] == said(line, capsys).splitlines()[0]
    with pytest.raises(InputError) as of_python:
        simulate(**as_arguments(shlex.split(f"--topology p3.16xlarge {line}")))
    assert str(of_python.value).splitlines()[0] == caught.value.spelt("python").splitlines()[0]
    assert "--" not in str(of_python.value)


@pytest.mark.parametrize("what", WRONG)
def test_values_that_only_python_can_give_are_refused_by_their_field(what: str) -> None:
    make, told = WRONG[what]
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(pp=2), Layout(ep=2), Layout(dp=2), FSDP], ids=str)
def test_a_layout_of_several_devices_is_refused_where_the_machine_has_one(layout: Layout) -> None:
    """It is known from the machine alone; a question that names one GPU is refused when it is made."""
    asked = step(where=Where("p3.2xlarge"), layout=layout)
    for answer in (Session().step, Session().memory, Session().time_s):
        with pytest.raises(InputError, match="needs several devices; this step runs on one"):
            answer(asked)


def test_a_row_of_a_table_is_refused_in_the_same_words() -> None:
    row = {"machine": "p3.16xlarge", "n_gpus": "1", "model": "resnet18", "batch_per_gpu": "8", "phase": "inference"}
    assert STEPS.question(lambda column: row.get(column, ""), RowNames()).question
    with pytest.raises(NotScored, match="recompute: is for the backward pass, and mode='inference' has none"):
        STEPS.question(lambda column: {**row, "recompute": "full"}.get(column, ""), RowNames())


def test_a_scenario_is_refused_in_the_same_words(tmp_path) -> None:
    line = f"simulate --topology p3.16xlarge {STEP} --micro-batches 0"
    file = tmp_path / "mine.yaml"
    file.write_text(
        "schema_version: 1\nchapter: Mine\ntitle: Mine\nabout: What?\n"
        f'runs: {{a: {line}}}\nanswers:\n  - {{name: t, value: "a.results[0].step_time_s", unit: s}}\n'
    )
    with pytest.raises(InputError, match="--micro-batches 0: from 1 to"):
        answer_scenario(find_scenario(str(file)))


def test_a_changed_question_drops_what_it_no_longer_reads() -> None:
    served = step(strategy="parameter-server", staleness=2, servers=("own",))
    assert changed(served, strategy="ring") == step(strategy="ring")
    assert changed(step(bucket_bytes=0.0, contention=False), layout=FSDP) == step(layout=FSDP, contention=False)


def test_a_way_leaves_out_what_its_own_device_lacks_and_another_reads() -> None:
    found = compare("p3.2xlarge,dgx-a100-40gb", workload="resnet18", batch=8, gpus=1, precision="tf32")
    assert {result.machine: result.step.options.precision for result in found} == {
        "p3.2xlarge": "fp32",
        "dgx-a100-40gb": "tf32",
    }


def test_a_row_of_a_table_tells_what_its_framework_sets_for_all_devices() -> None:
    row = {"machine": "p3.16xlarge", "n_gpus": "1", "model": "resnet18", "batch_per_gpu": "8", "policy": "tf32"}
    asked = STEPS.question(lambda column: row.get(column, ""), RowNames())
    assert asked.time_s(Session()) > 0.0
