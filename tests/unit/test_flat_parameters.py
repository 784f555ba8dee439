"""FSDP with one flat parameter a unit, and fp8 with scales of earlier steps: less to copy and to read."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import simulate
from simulator.errors import InputError
from simulator.launch.launch import read_launch

LINE = "accelerate launch --num_processes 8 --use_fsdp --fsdp_sharding_strategy FULL_SHARD {more} run_clm.py"
SAID = "--model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --bf16"


def step_s(**asked: Any) -> float:
    usual: dict[str, Any] = {"workload": "llama3-8b", "sizes": ["layers=4"], "batch": 1, "parallel": "fsdp"}
    return simulate("dgx-h100", **{**usual, **asked}).step_time_s


def test_a_flat_parameter_is_not_copied_out() -> None:
    assert step_s(flat_parameters=True) < step_s()
    old = step_s(libraries="torch-2.5")
    assert step_s(libraries="torch-2.5", flat_parameters=True) < old  # which joined gradients


def test_a_compiler_writes_gradients_in_their_place() -> None:
    compiled = step_s(compiled=True, flat_parameters=True)
    assert compiled < step_s(compiled=True)


def test_scales_of_earlier_steps_take_no_pass() -> None:
    assert step_s(precision="master-fp8", delayed_scales=True) < step_s(precision="master-fp8")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"parallel": "dp", "flat_parameters": True}, "is for"),
        ({"delayed_scales": True}, "is of"),
        ({"delayed_scales": True, "precision": "master-fp8", "framework": "megatron"}, "is of"),
    ],
)
def test_where_they_say_nothing(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        step_s(**asked)


@pytest.mark.parametrize(("more", "flat"), [("", None), ("--fsdp_version 1", True), ("--fsdp_version 2", None)])
def test_accelerate_says_which_fsdp(more: str, flat: bool | None) -> None:
    found = read_launch(f"{LINE.format(more=more)} {SAID}", own=8)
    assert found.options.get("flat_parameters") is flat
