"""Ranks started by a launcher: a fault in one ends only its task, and each finds a GPU on its node."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from validate.machine.measure import ranks  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[2]
# One of two ranks: the second raises in a task where the first waits for it; later tasks run in a new group.
RANK = """
import sys
import torch
import torch.distributed as dist
from datetime import timedelta
from validate.machine.measure import ranks
from tests.unit.test_measure_launched import fails_on_the_second, sum_of_ranks
from validate.machine.measure.ranks import RanksFailed

ranks._JOIN_S = 5.0
here = ranks.launch()
if here.rank:
    here.serve()
    sys.exit()
said = [here.run(2, False, sum_of_ranks, (), timeout_s=120.0)]
try:
    here.run(2, False, fails_on_the_second, (), timeout_s=20.0)
except RanksFailed as error:
    said.append("rank 1 raised RuntimeError: out of luck" in str(error))
said.append(here.run(2, False, sum_of_ranks, (), timeout_s=20.0))
here.end()
print(said)
"""


def sum_of_ranks(rank: int, count: int) -> float:
    one = torch.tensor([float(rank + 1)])
    torch.distributed.all_reduce(one)
    return float(one)


def fails_on_the_second(rank: int, count: int) -> float:
    if rank == 1:
        raise RuntimeError("out of luck")
    return sum_of_ranks(rank, count)


def environment(rank: int, port: int) -> dict[str, str]:
    said = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return os.environ | said | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.slow
def test_a_group_in_which_a_rank_has_failed_is_not_used_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env=environment(rank, port),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=120) for rank in processes]
    finally:
        for rank in processes:
            rank.kill()
    assert said[0][0].strip() == "[[3.0, 3.0], True, [3.0, 3.0]]", said


@pytest.mark.parametrize(
    ("local", "rank", "there", "device"),
    [
        ("3", 3, 8, 3),  # torchrun: all processes of a node see all its GPUs
        ("3", 3, 1, 0),  # a launcher that shows each process one GPU (srun --gpus-per-task 1)
        (None, 11, 8, 3),  # the local rank is not given
    ],
)
def test_each_rank_has_a_gpu_of_its_node(
    monkeypatch: pytest.MonkeyPatch, local: str | None, rank: int, there: int, device: int
) -> None:
    chosen: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(ranks.dist, "TCPStore", lambda *_, **__: None)
    monkeypatch.setattr(ranks.dist, "PrefixStore", lambda *_: None)
    for name, value in {"RANK": str(rank), "WORLD_SIZE": "16", "MASTER_ADDR": "x", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local is not None:
        monkeypatch.setenv("LOCAL_RANK", local)
    here = ranks.launch.__wrapped__()
    assert here is not None
    assert chosen == [device]
    assert here.device == device
