"""Launch lines that choose GPUs: variables, Accelerate's --gpu_ids, DeepSpeed's filters, Lightning's devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.cli import run
from simulator.cli.launch_line import with_launch
from simulator.cli.written import CommandOptions
from simulator.errors import InputError
from simulator.launch.launch import read_launch

PROGRAM = "train.py --per_device_train_batch_size 32"
FOUR = "0,2,5,7"


def asked(line: str, program: str = PROGRAM) -> tuple[str | None, str | None, list[str]]:
    """Return the machines, the GPUs and the notes of *line* on machines of eight GPUs."""
    said = CommandOptions(topology="p3.16xlarge", workload="vgg16", seq_len="1", launch=f"{line} {program}")
    found, notes = with_launch(said)
    return found.nodes, found.gpus, list(notes)


@pytest.mark.parametrize(
    ("line", "nodes", "gpus"),
    [
        (f"CUDA_VISIBLE_DEVICES={FOUR} torchrun --nproc-per-node 4", None, FOUR),
        (f"CUDA_VISIBLE_DEVICES={FOUR} torchrun --nproc-per-node gpu", None, FOUR),
        (f"CUDA_VISIBLE_DEVICES={FOUR} torchrun --nproc-per-node 2", None, "0,2"),
        (f"export CUDA_VISIBLE_DEVICES={FOUR}\ntorchrun --nproc-per-node 4", None, FOUR),
        (f"env CUDA_VISIBLE_DEVICES={FOUR} python", None, FOUR),
        (f"HIP_VISIBLE_DEVICES={FOUR} python", None, FOUR),
        (f"ROCR_VISIBLE_DEVICES={FOUR} HIP_VISIBLE_DEVICES=1,2 torchrun --nproc-per-node 2", None, "2,5"),
        (f"mpirun -np 4 -x CUDA_VISIBLE_DEVICES={FOUR} python", None, FOUR),
        (f"mpiexec -n 4 -genv CUDA_VISIBLE_DEVICES {FOUR} python", None, FOUR),
        ("srun --export=ALL,CUDA_VISIBLE_DEVICES=3 -n 1 python", None, "3-3"),
        (f"accelerate launch --gpu_ids {FOUR} --num_processes 4", None, FOUR),
        (f"accelerate launch --gpu_ids {FOUR}", None, FOUR),
        (f"deepspeed --include localhost:{FOUR}", None, FOUR),
        (f"CUDA_VISIBLE_DEVICES={FOUR} deepspeed", None, FOUR),
        ("deepspeed --exclude localhost:1,3,4,6", None, FOUR),
        ("deepspeed -i localhost:4,5", None, "4,5"),
        ("deepspeed -e localhost:0,1,2,3", None, "4,5,6,7"),
        ("deepspeed --include a:0,2@b:1,3", "2", "0,2,9,11"),
        ("deepspeed --include a:0,2@b", "2", "0,2,8-15"),
        ("deepspeed --include a@b", "2", None),
        (f"CUDA_VISIBLE_DEVICES={FOUR} torchrun --nnodes 2 --nproc-per-node 4", "2", f"{FOUR},8,10,13,15"),
        (f"mpirun -np 8 -H a:4,b:4 -x CUDA_VISIBLE_DEVICES={FOUR} python", "2", f"{FOUR},8,10,13,15"),
        ("CUDA_VISIBLE_DEVICES=0,1 python other.py; torchrun --nproc-per-node 4", None, "4"),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc-per-node 4", None, "4"),
    ],
)
def test_the_gpus_that_a_line_names_are_those_of_the_question(line: str, nodes: str | None, gpus: str | None) -> None:
    assert asked(line) == (nodes, gpus, [])


def test_lists_of_lightning_count_among_the_visible_gpus() -> None:
    assert asked("python train.py --batch-size 8 --devices 0,2,5,7", "")[1] == FOUR
    assert asked("CUDA_VISIBLE_DEVICES=1,3,5,7 python train.py --batch-size 8 --devices 0,2", "")[1] == "1,5"
    assert asked("CUDA_VISIBLE_DEVICES=1,3,5,7 python train.py --batch-size 8 --devices 2", "")[1] == "1,3"


def test_one_visible_gpu_has_one_process() -> None:
    assert asked("CUDA_VISIBLE_DEVICES=5 python train.py --batch-size 8", "") == (None, "5-5", [])


def test_gpus_of_accelerates_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"gpu_ids: {FOUR}\nnum_processes: 4\n", encoding="utf-8")
    assert asked(f"accelerate launch --config_file {path}")[1] == FOUR


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 4",
            "nproc-per-node: 4 on a machine, and CUDA.*=0,1 shows 2",
        ),
        ("mpirun -np 8 -x CUDA_VISIBLE_DEVICES=0,2,5,7 python", "8 processes on 1 machine, which shows 4 GPUs"),
        (
            "accelerate launch --gpu_ids 0,1 --num_processes 4",
            "num-processes: 4 on a machine, and --gpu_ids 0,1 shows 2",
        ),
        ("deepspeed --num_gpus 4 --include localhost:0,1", "--include: excludes --num_gpus"),
        ("deepspeed --exclude localhost:2 --include localhost:0,1", "--include: excludes --exclude"),
        ("deepspeed --exclude localhost:0,1,2,3,4,5,6,7", "no GPU is left"),
        ("deepspeed --exclude b", "write --include"),
        ("deepspeed --include localhost:0-3", "write hosts with numbers"),
        ("CUDA_VISIBLE_DEVICES=-1 python", "trains on the CPU"),
        ("CUDA_VISIBLE_DEVICES=0,0 python", "named twice"),
        ("CUDA_VISIBLE_DEVICES=0,1 HIP_VISIBLE_DEVICES=0,2 python", "HIP.*contradicts CUDA"),
        ("ROCR_VISIBLE_DEVICES=0,1 HIP_VISIBLE_DEVICES=0,2 python", "counts among the 2 of ROCR"),
        ("CUDA_VISIBLE_DEVICES=0,9 torchrun --nnodes 2 --nproc-per-node 2", "8 GPUs, 0 to 7"),
    ],
)
def test_gpus_that_contradict_the_rest_are_refused(line: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        asked(line)


@pytest.mark.parametrize(
    ("line", "gpus", "told"),
    [
        ("CUDA_VISIBLE_DEVICES=4,5 deepspeed --num_gpus 4", "4", "DeepSpeed passes over it"),
        ("CUDA_VISIBLE_DEVICES=4,5 accelerate launch --gpu_ids 0,2", "0,2", "replaces it"),
        ("CUDA_VISIBLE_DEVICES=GPU-a,GPU-b torchrun --nproc-per-node 2", "2", "not by number"),
        ("CUDA_VISIBLE_DEVICES=$1 torchrun --nproc-per-node 2", "2", "only at run time"),
    ],
)
def test_what_is_passed_over_is_told(line: str, gpus: str, told: str) -> None:
    _, found, notes = asked(line)
    assert found == gpus
    assert any(told in note for note in notes)


def test_a_fault_of_a_script_has_the_place_of_the_variable(tmp_path: Path) -> None:
    path = tmp_path / "t.sh"
    path.write_text(f"set -e\nexport CUDA_VISIBLE_DEVICES=1,1\npython {PROGRAM}\n", encoding="utf-8")
    with pytest.raises(InputError) as raised:
        read_launch(f"@{path}")
    first = raised.value.faults[0]
    assert (first.line, first.column) == (2, 8)


def test_the_time_is_that_of_the_gpus_named(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"CUDA_VISIBLE_DEVICES={FOUR} torchrun --nproc-per-node 4 {PROGRAM}"
    common = ["--topology", "p3.16xlarge", "--workload", "vgg16"]
    times = []
    for options in (
        ["--launch", line],
        ["--batch", "32", "--precision", "fp32", "--optimizer", "adam", "--gpus", FOUR],
    ):
        assert run([*common, *options]) == 0
        times.append([text for text in capsys.readouterr().out.splitlines() if text.startswith("step ")])
    assert times[0] == times[1]
