"""Ranks that work together, and what happens when one fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

torch = pytest.importorskip("torch")
ranks = pytest.importorskip("validate.machine.measure.ranks")
pytestmark = [pytest.mark.torch, pytest.mark.slow]


def _sum(rank: int, count: int, more: float) -> float:
    value = torch.full((3,), float(rank))
    torch.distributed.all_reduce(value)
    return float(value[0]) + more + count


def _raise(rank: int, count: int) -> None:
    if rank == 1:
        raise ValueError("a reason to stop")
    torch.distributed.all_reduce(torch.ones(1))


def _die(rank: int, count: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    torch.distributed.all_reduce(torch.ones(1))


def _hang(rank: int, count: int) -> None:
    if rank == 1:
        time.sleep(1000)
    torch.distributed.all_reduce(torch.ones(1))


@pytest.fixture
def two() -> Iterator[Any]:
    with closing(ranks.RankProcesses(2, cuda=False)) as group:
        yield group


def test_results_come_back_in_the_order_of_ranks_and_a_group_is_used_again(two: Any) -> None:
    looks: list[int] = []
    assert two.run(_sum, 0.5) == [3.5, 3.5]
    assert two.run(_sum, 1.5, look=lambda: looks.append(1)) == [4.5, 4.5]
    assert looks


@pytest.mark.parametrize(
    ("function", "timeout_s", "words"),
    [
        (_raise, 60.0, "rank 1 raised ValueError: a reason to stop"),
        (_die, 60.0, "rank 1 died of signal 9"),
        (_hang, 1.0, "no answer of rank 0, 1 within 1 s"),
    ],
)
def test_a_rank_that_fails_is_named_and_ends_the_group_soon(
    two: Any, function: Any, timeout_s: float, words: str
) -> None:
    processes = [process for process, _ in two._members]
    with pytest.raises(ranks.RanksFailed) as failed:
        two.run(function, timeout_s=timeout_s)
    assert words in str(failed.value)
    assert not two.alive
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(ranks.RanksFailed, match="ended already"):
        two.run(_sum, 0.0)


def test_an_interrupt_while_they_start_is_for_the_one_who_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends SIGINT to all processes; ranks still importing torch would each print a traceback."""
    collect = ranks.RankProcesses._collect

    def interrupted(self: Any, what: str, timeout_s: float, look: Any) -> Any:
        if what == "start":
            for _ in range(20):  # from before their interpreters start until torch is being imported
                for process, _ in self._members:
                    os.kill(process.pid, signal.SIGINT)
                time.sleep(0.03)
        return collect(self, what, timeout_s, look)

    monkeypatch.setattr(ranks.RankProcesses, "_collect", interrupted)
    with closing(ranks.RankProcesses(2, cuda=False)) as group:
        processes = [process for process, _ in group._members]
        assert group.run(_sum, 0.0) == [3.0, 3.0]
        os.kill(processes[0].pid, signal.SIGINT)  # nor later
        assert group.run(_sum, 0.0) == [3.0, 3.0]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_all_leave_when_it_is_closed() -> None:
    group = ranks.RankProcesses(2, cuda=False)
    processes = [process for process, _ in group._members]
    group.close()
    assert [process.exitcode for process in processes] == [0, 0]  # by themselves, not killed
