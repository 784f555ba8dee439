"""What stands around a launch line: containers, wrappers, host files, and files that its script writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simulator.cli.launch_line import with_launch
from simulator.cli.written import CommandOptions
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.launch.ranks import LaunchLine

PROGRAM = "train.py --per_device_train_batch_size 32"


def placed(line: str, program: str = PROGRAM) -> tuple[str | None, str | None]:
    """Return the machines and the GPUs of *line* on machines of eight GPUs."""
    found, _ = with_launch(CommandOptions(topology="p3.16xlarge", workload="vgg16", launch=f"{line} {program}"))
    return found.nodes, found.gpus


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("docker run --rm --gpus '\"device=0,1\"' nvcr.io/nvidia/pytorch:24.01-py3 torchrun --nproc-per-node 2", "2"),
        ("docker run --gpus device=3 image python", "3-3"),
        ("docker run --gpus=2 -v $PWD/train.py:/train.py image torchrun --nproc-per-node gpu", "2"),
        ("docker run --gpus '\"device=2,5,7\",capabilities=compute' image deepspeed", "2,5,7"),
        ("docker run --gpus device=2,5 -e CUDA_VISIBLE_DEVICES=1 image python", "5-5"),
        ("docker run -e NVIDIA_VISIBLE_DEVICES=4,6 image torchrun --nproc-per-node 2", "4,6"),
        ("docker run --gpus all image torchrun --nproc-per-node 4", "4"),
        ("NVIDIA_VISIBLE_DEVICES=4,6 torchrun --nproc-per-node 2", "2"),
        ("srun -N 1 docker run --gpus device=2,5 image numactl -N 0 torchrun --nproc-per-node gpu", "2,5"),
    ],
)
def test_a_container_has_the_gpus_that_it_is_shown(line: str, gpus: str) -> None:
    """Outside a container NVIDIA_VISIBLE_DEVICES hides nothing."""
    assert placed(line) == (None, gpus)


def test_a_quoted_command_runs_in_its_container_too() -> None:
    line = f'docker run --gpus "device=2,5" image bash -c "torchrun --nproc-per-node 2 {PROGRAM}"'
    assert placed(line, "") == (None, "2,5")


def test_more_processes_than_a_container_has_gpus_are_refused() -> None:
    with pytest.raises(InputError, match="4 on a machine, and NVIDIA_VISIBLE_DEVICES=0,1 shows 2 GPUs"):
        placed("docker run --gpus device=0,1 image torchrun --nproc-per-node 4")


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("numactl -N 0 -m 0 torchrun --nproc-per-node 4", "4"),
        ("numactl --cpunodebind=1 --membind=1 torchrun --nproc-per-node 4", "4"),
        ("numactl -N 0 -m 0 python -m torch.distributed.run --nproc-per-node 4", "4"),
        ("nice -n 5 torchrun --nproc-per-node 4", "4"),
        ("nohup timeout -k 5 3h nsys profile -n 3 -o out torchrun --nproc-per-node 4", "4"),
        ("mpirun -np 4 numactl -N 1 python", "4"),
        ("env CUDA_VISIBLE_DEVICES=1,2 numactl -N 0 torchrun --nproc-per-node 2", "1,2"),
    ],
)
def test_the_options_of_wrappers_are_no_launchers(line: str, gpus: str) -> None:
    assert placed(line) == (None, gpus)


def test_what_is_called_like_a_wrapper_in_a_programs_arguments_stays() -> None:
    found = read_launch(f"torchrun --nproc-per-node 2 {PROGRAM} --profiler nsys --model resnet50")
    assert found.options["workload"] == "resnet50"


HOSTS = "# two machines\nworker-1 slots=8\n\nworker-2 slots=8  # the second\nworker-3 slots=4\n"


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    path = tmp_path / "hosts"
    path.write_text(HOSTS, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("line", "nodes", "gpus"),
    [
        ("deepspeed --hostfile {hosts} --num_nodes 2", "2", None),
        ("deepspeed -H {hosts} --num_nodes 2", "2", None),
        ("deepspeed --hostfile {hosts}", "3", "0-7,8-15,16-19"),
        ("deepspeed --hostfile {hosts} --num_nodes 2 --num_gpus 4", "2", "0-3,8-11"),
        ("deepspeed --hostfile {hosts} --include worker-3", None, "4"),
        ("deepspeed --hostfile {hosts} --include worker-1:0,1@worker-3", "2", "0-1,8-11"),
        ("deepspeed --hostfile {hosts} --exclude worker-3@worker-1:0", "2", "1,2,3,4,5,6,7,8-15"),
        ("mpirun --hostfile {hosts} -np 16 python", "2", None),
        ("mpirun --hostfile {hosts} -np 8 python", None, "8"),
        ("mpirun --hostfile {hosts} -np 12 python", "2", "0-7,8-11"),
        ("mpirun --hostfile {hosts} python", "3", "0-7,8-15,16-19"),
    ],
)
def test_a_host_file_says_how_many_machines_and_gpus_there_are(
    hosts: str, line: str, nodes: str | None, gpus: str | None
) -> None:
    assert placed(line.format(hosts=hosts)) == (nodes, gpus)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a slots=8\nb slots=x\n", ":2:1: 'b slots=x' is no host; write for example worker-1 slots=8"),
        ("a slots=8\na slots=8\n", ":2:1: a is there twice"),
        ("a slots=0\n", ":1:1: 'a slots=0' is no host; write for example worker-1 slots=8"),
        ("# none\n", ":1:1: names no host; write for example worker-1 slots=8"),
    ],
)
def test_a_host_file_with_a_fault_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        placed(f"deepspeed --hostfile {path}")
    assert str(raised.value) == f"{path}{told}"


def test_a_host_file_is_read_as_other_files_are(tmp_path: Path, hosts: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is a named pipe; a host file is needed"):
        placed(f"deepspeed --hostfile {pipe}")
    (tmp_path / "large").write_bytes(b"a" * 1_000_001)
    with pytest.raises(InputError, match="is larger than 1 MB"):
        placed(f"deepspeed --hostfile {tmp_path / 'large'}")
    with pytest.raises(InputError, match="the host file has no host 'worker-9'; did you mean 'worker-"):
        placed(f"deepspeed --hostfile {hosts} --include worker-9")
    with pytest.raises(InputError, match="-np: 24 processes, and the host file has 20 slots"):
        placed(f"mpirun --hostfile {hosts} -np 24 python")
    with pytest.raises(InputError, match="worker-3:4: the host file has 4 GPUs"):
        placed(f"deepspeed --hostfile {hosts} --include worker-3:4")
    _, notes = with_launch(
        CommandOptions(topology="p3.16xlarge", workload="vgg16", launch=f"deepspeed --hostfile no {PROGRAM}")
    )
    assert "--hostfile no: is not here; the machines are those that the line tells" in notes


@pytest.mark.parametrize("own", ["", "CUDA_VISIBLE_DEVICES=0,1 ", "docker run --gpus device=0,1 image "])
def test_a_program_that_no_launcher_starts_is_one_process(own: str) -> None:
    """nanoGPT's and llm.c's programs take the first GPU of those that they see."""
    for program in ("python train.py --n_layer=2 --n_head=2 --n_embd=128", "./train_gpt2cu -b 4 -t 1024 -d 4096"):
        found = read_launch(own + program)
        assert (found.options["gpus"], found.options.get("parallel")) == ("1", None)
    both = read_launch(
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 2 train.py --n_layer=2 --n_head=2 --n_embd=8"
    )
    assert both.options["parallel"] == "dp=2"


WRITES = """
MICRO=4
cat > {target} <<EOF
{{
  "train_micro_batch_size_per_gpu": ${{MICRO}},
  "bf16": {{"enabled": true}},
  "zero_optimization": {{"stage": {stage}}}
}}
EOF
deepspeed --num_gpus 4 train.py --model resnet50 --deepspeed_config {named}
"""


def script(tmp_path: Path, text: str) -> LaunchLine:
    path = tmp_path / "run.sh"
    path.write_text(text, encoding="utf-8")
    return read_launch(f"@{path}")


@pytest.mark.parametrize(
    ("target", "named"),
    [("ds.json", "ds.json"), ("./conf/ds.json", "conf/ds.json"), ('"$DIR/ds.json"', "$DIR/ds.json")],
)
def test_a_file_that_the_script_writes_is_read(tmp_path: Path, target: str, named: str) -> None:
    text = "DIR=/nowhere\n" + WRITES.format(target=target, named=named, stage=2)
    for found in (script(tmp_path, text), read_launch(text)):
        assert found.options["micro_batch"] == "4"
        assert found.options["precision"] == "master-bf16"
        assert "zero=2" in str(found.options["parallel"])


@pytest.mark.parametrize(
    "line", ["cat <<'EOF' > ds.json", "tee ds.json <<EOF", "cat <<-EOF | tee ds.json >/dev/null", "cat << EOF >ds.json"]
)
def test_here_documents_reach_their_file_by_any_way(tmp_path: Path, line: str) -> None:
    text = f'{line}\n{{"train_micro_batch_size_per_gpu": 4}}\nEOF\n'
    found = script(tmp_path, f"{text}deepspeed --num_gpus 2 train.py --model resnet50 --deepspeed ds.json")
    assert found.options["micro_batch"] == "4"


def test_a_fault_in_a_written_file_has_its_place_in_the_script(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        script(tmp_path, WRITES.format(target="ds.json", named="ds.json", stage=7))
    fault = raised.value.faults[0]
    assert (fault.file, fault.line) == (str(tmp_path / "run.sh"), 7)
    assert "stage: must be a whole number, 0 to 3; got 7" in fault.message


def test_other_files_that_a_script_writes_are_read_too(tmp_path: Path) -> None:
    accelerate = "cat > a.yaml <<EOF\nnum_processes: 4\nmixed_precision: bf16\nEOF\n"
    found = script(tmp_path, f"{accelerate}accelerate launch --config_file a.yaml {PROGRAM}")
    assert (found.options["gpus"], found.options["precision"]) == ("4", "amp-bf16")
    listed = "cat > hosts <<EOF\na slots=2\nb slots=2\nEOF\n"
    assert script(tmp_path, f"{listed}deepspeed --hostfile hosts {PROGRAM}").options["nodes"] == "2"
    config = "cat > config.py <<EOF\nbatch_size = 3\nEOF\n"
    assert script(tmp_path, f"{config}python train.py config.py --n_layer=2").options["micro_batch"] == "3"


@pytest.mark.parametrize(
    ("line", "optimizer"),
    [
        ("torchrun --nproc-per-node 2 train.py --per_device_train_batch_size 4 --model resnet50", "adam"),
        ("torchrun --nproc-per-node 2 train.py --per_device_train_batch_size 4 --model resnet50 --optim sgd", "sgd"),
        ("torchrun --nproc-per-node 2 train.py -b 4 --model resnet50", None),
        ("accelerate launch --num_processes 2 --mixed_precision bf16 train.py -b 4 --model resnet50", None),
    ],
)
def test_the_trainers_own_optimiser_is_adamw_for_images_too(line: str, optimizer: str | None) -> None:
    assert read_launch(line).options.get("optimizer") == optimizer


@pytest.mark.parametrize(
    "line",
    [
        "python main.py -a resnet50 -b 64 --device cpu",
        "accelerate launch --cpu main.py -a resnet50 -b 64",
        "python train.py --n_layer=2 --batch_size=4 --device=cpu",
        "python train.py --model resnet50 -b 64 --accelerator cpu",
        "docker run --gpus 0 image python main.py -a resnet50 -b 64",
        "docker run -e NVIDIA_VISIBLE_DEVICES=none image python main.py -a resnet50 -b 64",
    ],
)
def test_a_line_that_trains_on_the_cpu_is_refused(line: str) -> None:
    with pytest.raises(InputError, match="trains on the CPU; leave it out, and name a CPU with --device"):
        read_launch(line)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("docker run --rm image", True),
        ("sudo podman run -v $PWD:/work image", True),
        ("singularity exec image.sif", True),
        ("docker run --gpus all image", False),
        ("docker run --runtime=nvidia image", False),
        ("docker run --device=/dev/kfd image", False),
        ("docker run --env=NVIDIA_VISIBLE_DEVICES=0,1 image", False),
        ("docker exec image", False),
        ("nvidia-docker run image", False),
        ("apptainer exec --nv image.sif", False),
        ("srun --container-image image", False),
    ],
)
def test_a_container_that_is_shown_no_gpu_is_told(line: str, told: bool) -> None:
    notes = read_launch(f"{line} torchrun --nproc-per-node 2 main.py -a resnet50 -b 64").notes
    assert any("shows its container no GPU" in note for note in notes) is told


def test_a_gpu_as_the_device_is_read() -> None:
    line = "torchrun --nproc-per-node 2 main.py -a resnet50 -b 64 --device cuda:0"
    assert not any("--device" in note for note in read_launch(line).notes)
