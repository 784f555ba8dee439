"""The NCCL version of a row: as stated, else by its date, else by the age of its GPUs."""

from __future__ import annotations

import pytest

from simulator.questions.where import NCCL_TODAY
from validate.kinds import STEPS
from validate.tables.cells import nccl_of
from validate.tables.names import RowNames


@pytest.mark.parametrize(
    ("software", "version"),
    [
        ("NCCL 2.18.5, aws-ofi-nccl v1.7.3", (2, 18)),
        ("NCCL 2.31, nccl-tests 2.20.0", (2, 31)),
        ("NCCL v2.4.7ms0", (2, 4)),
        ("NCCL (superbench 2021)", (2, 10)),
        ("NCCL 2.x (TF 20.06 container)", (2, 7)),
        ("HPC SDK 23.7", (2, 18)),
        ("PyTorch 1.13.0a0+d0d6b1f CUDA V11.8.89", (2, 12)),
        ("PyTorch 2.5", (2, 22)),
        ("PyTorch 2.7", (2, 26)),
    ],
)
def test_what_the_row_says_counts(software: str, version: tuple[int, int]) -> None:
    assert nccl_of(software, "7.0") == version


@pytest.mark.parametrize(
    ("capability", "version"),
    [("3.7", (2, 6)), ("6.1", (2, 6)), ("7.0", (2, 6)), ("7.5", (2, 6)), ("8.0", (2, 8)), ("9.0", (2, 18))],
)
def test_a_row_that_says_nothing_is_as_old_as_its_gpus(capability: str, version: tuple[int, int]) -> None:
    for software in ("", "NCCL", "NCCL 2.x, k8s", "XLA + NCCL", "CUDA 11.8", "nccl-tests -g 8"):
        assert nccl_of(software, capability) == version


def test_a_version_that_is_not_stated_can_do_what_the_row_did() -> None:
    """The chip, the algorithm and the collective are known to be older than the version; what is stated stands."""
    assert nccl_of("NCCL (2018)", "8.0") == (2, 7)
    assert nccl_of("NCCL (2020)", "7.0", "pat") == (2, 23)
    assert nccl_of("", "7.0", "send-recv", "tree") == (2, 7)
    assert nccl_of("NCCL 2.4", "8.0", "send-recv") == (2, 4)


def test_what_is_of_no_time_is_of_today() -> None:
    assert nccl_of("", None) == NCCL_TODAY
    assert nccl_of("NCCL", "10.0") > (2, 23)


def test_a_step_is_of_its_time_as_a_collective_is() -> None:
    row = dict.fromkeys(STEPS.asked, "") | {
        "machine": "dgx-h100",
        "n_gpus": "8",
        "model": "resnet50",
        "batch_per_gpu": "32",
        "sync": "ddp",
    }
    for software, version in (("", (2, 18)), ("PyTorch 2.7", (2, 26))):
        question = STEPS.read((row | {"software": software}).__getitem__, RowNames()).question
        assert question.software.nccl == version  # type: ignore[union-attr]
