"""Variables of launch lines that change times: mapped to an option, or told; and what a line says of its update."""

from __future__ import annotations

import pytest

from simulator.cli.launch_line import with_launch
from simulator.cli.written import CommandOptions
from simulator.errors import InputError
from simulator.launch.launch import read_launch

PROGRAM = "train.py --per_device_train_batch_size 4"
MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length "
    "1024 --max-position-embeddings 1024 --vocab-size 1000 --micro-batch-size 1 --global-batch-size 8"
)


def notes_of(line: str) -> list[str]:
    said = CommandOptions(topology="dgx-a100-80gb", workload="gpt2", seq_len="1024", launch=f"{line} {PROGRAM}")
    return [note for note in with_launch(said)[1] if "one process" not in note]


@pytest.mark.parametrize(
    "line",
    [
        "CUDA_LAUNCH_BLOCKING=1 torchrun --nproc-per-node 2",
        "export HIP_LAUNCH_BLOCKING=1\ntorchrun --nproc-per-node 2",
        "mpirun -np 2 -x CUDA_LAUNCH_BLOCKING=1 python",
    ],
)
def test_launches_that_block_are_an_option(line: str) -> None:
    assert read_launch(f"{line} {PROGRAM}").options["launch_blocking"] is True


def test_launches_do_not_block_where_the_variable_is_off_or_of_another_command() -> None:
    for line in ("CUDA_LAUNCH_BLOCKING=0 torchrun", "CUDA_LAUNCH_BLOCKING=1 python a.py\ntorchrun"):
        assert "launch_blocking" not in read_launch(f"{line} {PROGRAM}").options


@pytest.mark.parametrize(
    ("value", "grows"),
    [
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", True),
        ("PYTORCH_ALLOC_CONF=max_split_size_mb:64,expandable_segments:true", True),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", False),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64", False),
    ],
)
def test_segments_that_grow_are_an_option(value: str, grows: bool) -> None:
    assert ("expandable_segments" in read_launch(f"{value} torchrun {PROGRAM}").options) == grows


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("NCCL_ALGO=^Ring torchrun --nproc-per-node 2", "NCCL_ALGO=^Ring"),
        ("NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2", "NCCL_P2P_DISABLE=1"),
        ("mpirun -np 2 -x NCCL_PROTO=LL,Simple python", "NCCL_PROTO=LL,Simple"),
        ("srun --export=ALL,NCCL_MAX_NCHANNELS=4 -n 2 python", "NCCL_MAX_NCHANNELS=4"),
        ("NCCL_IB_DISABLE=1 torchrun --nnodes 2 --nproc-per-node 8", "NCCL_IB_DISABLE=1"),
        ("NCCL_NET_GDR_LEVEL=LOC torchrun --nnodes 2 --nproc-per-node 8", "NCCL_NET_GDR_LEVEL=LOC"),
        ("NVTE_FLASH_ATTN=0 torchrun --nproc-per-node 2", "NVTE_FLASH_ATTN=0"),
        ("RCCL_MSCCL_ENABLE=1 torchrun --nproc-per-node 2", "RCCL_MSCCL_ENABLE=1"),
        ("ACCELERATE_MIXED_PRECISION=bf16 torchrun --nproc-per-node 2", "ACCELERATE_MIXED_PRECISION=bf16"),
        ("TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node 2", "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
    ],
)
def test_settings_that_change_times_and_are_not_modelled_are_told(line: str, told: str) -> None:
    (note,) = notes_of(line)
    assert told in note
    assert "not modelled" in note


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_DEBUG=INFO NCCL_P2P_DISABLE=0 NCCL_NVLS_ENABLE=1 torchrun --nproc-per-node 2",
        "NCCL_ALGO=Ring NCCL_PROTO=LL NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2",  # options of the step
        "NCCL_IB_DISABLE=1 NCCL_IB_HCA=mlx5_0 torchrun --nproc-per-node 8",  # one machine has no use for adapters
        "NCCL_SOCKET_IFNAME=eth0 NCCL_IB_TIMEOUT=22 torchrun --nnodes 2 --nproc-per-node 8",
        "NVTE_FLASH_ATTN=1 TORCH_DISTRIBUTED_DEBUG=INFO torchrun --nproc-per-node 2",
    ],
)
def test_settings_that_change_no_times_are_not_told(line: str) -> None:
    assert notes_of(line) == []


@pytest.mark.parametrize(
    ("said", "options", "told"),
    [
        ("sgd", {"optimizer": "sgd"}, False),
        ("adamw_torch", {"optimizer": "adam"}, False),
        ("adamw_torch_fused", {"optimizer": "adam", "fused_optimizer": True}, False),
        ("adamw_8bit", {"optimizer": "adam-8bit"}, False),
        ("adamw_bnb_8bit", {"optimizer": "adam-8bit"}, False),
        ("paged_adamw_8bit", {"optimizer": "paged-adam-8bit"}, False),
        ("paged_adamw_32bit", {"optimizer": "paged-adam"}, False),
        ("paged_adamw", {"optimizer": "paged-adam"}, False),
        ("adafactor", {"optimizer": "adam"}, True),
        ("lion_32bit", {"optimizer": "adam"}, True),
    ],
)
def test_optimisers_of_the_trainer(said: str, options: dict[str, object], told: bool) -> None:
    found = read_launch(f"torchrun --nproc-per-node 2 run_clm.py --per_device_train_batch_size 4 --optim {said}")
    assert {name: found.options[name] for name in ("optimizer", "fused_optimizer") if name in found.options} == options
    assert any("--optim" in note and "not modelled" in note for note in found.notes) is told


def test_layout_of_images() -> None:
    for said in ("--channels-last", "--memory-format nhwc"):
        found = read_launch(f"torchrun --nproc-per-node 2 train.py --model resnet50 -b 32 {said}")
        assert found.options["channels_last"] is True
        assert not any("not known" in note for note in found.notes)


@pytest.mark.parametrize("line", [MEGATRON, f"torchrun --nproc-per-node 2 {PROGRAM}"])
def test_two_formats_exclude_each_other(line: str) -> None:
    with pytest.raises(InputError, match="--bf16 and --fp16 exclude each other"):
        read_launch(f"{line} --bf16 --fp16", 8)
