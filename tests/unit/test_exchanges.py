"""Every strategy as each rank's sends and adds: the sum is exact in whatever order the ranks advance."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from functools import partial
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.api import Session
from simulator.api.exchanges import exchange_of
from simulator.collectives.registry import strategy_names
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from validate.machine.measure import exchange as over  # noqa: E402  it imports torch
from validate.machine.measure.exchange import (  # noqa: E402  it imports torch
    OverRanks,
    processes_of,
    read_exchange,
    stand_parts,
)

SESSION = Session()
STRATEGIES = [*[n for n in strategy_names() if n != "nccl"], "gpu2", "gloo", "parameter-server-2"]
STRATEGIES += ["parameter-server-colocated"]
N_ELEMENTS = 1009  # not a multiple of any number of ranks
HOSTS = Where("linux-host", fabric="ethernet-10g")


def question(where: Where, strategy: str, collective: str = "all-reduce", **more: Any) -> CollectiveQuestion:
    return CollectiveQuestion(where=where, size_bytes=4 * N_ELEMENTS, strategy=strategy, collective=collective, **more)


def exchange(*args: Any, **more: Any) -> SimpleNamespace | None:
    """Return the exchange; None where the strategy does not fit."""
    try:
        return SimpleNamespace(**exchange_of(SESSION, question(*args, **more)))
    except InputError as error:
        if "does not fit" not in str(error):
            raise
        return None


class Post:
    """Messages between threads that stand for processes: gloo matches them by tag, NCCL by order."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[object, ...], Queue[torch.Tensor]] = {}
        self._here = threading.local()

    def become(self, process: int) -> None:
        self._here.process = process
        self._here.posted = Counter[tuple[int, int]]()

    def isend(self, tensor: torch.Tensor, dst: int, tag: object) -> Any:
        self._box(self._here.process, dst, tag).put(tensor.clone())
        return _Work(lambda: None)

    def irecv(self, tensor: torch.Tensor, src: int, tag: object) -> Any:
        return _Work(partial(_arrive, tensor, self._box(src, self._here.process, tag)))

    def _box(self, *key: object) -> Queue[torch.Tensor]:
        return self._boxes.setdefault(key, Queue())  # created by whichever end comes first

    def P2POp(self, act: Any, tensor: torch.Tensor, peer: int) -> Any:  # noqa: N802  torch's name
        return act, tensor, peer

    def batch_isend_irecv(self, posted: list[Any]) -> list[Any]:
        works = []
        for act, tensor, peer in posted:
            ends = (self._here.process, peer) if act == self.isend else (peer, self._here.process)
            self._here.posted[ends] += 1
            works.append(act(tensor, peer, f"number {self._here.posted[ends]}"))
        random.shuffle(works)
        return works


def _arrive(tensor: torch.Tensor, box: Queue[torch.Tensor]) -> None:
    found = box.get(timeout=120)
    assert found.numel() == tensor.numel()
    tensor.copy_(found)


class _Work:
    def __init__(self, done: Any) -> None:
        self.wait = done


def run(
    found: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    brought: Any = None,
    *,
    grouped: bool = False,
) -> list[OverRanks]:
    """Run *found* with one thread per process and return the ranks; *brought* replaces the default inputs.

    *grouped*: post a round as one group, as with NCCL.
    """
    post = Post()
    monkeypatch.setattr(over, "dist", post)
    read = read_exchange(json.loads(json.dumps(vars(found))))
    ranks = [OverRanks(read, process) for process in range(len(processes_of(read)))]
    for rank in ranks:
        rank._grouped = grouped
    faults: list[BaseException] = []

    def work(process: int) -> None:
        post.become(process)
        try:
            ranks[process].run()
        except BaseException as fault:
            faults.append(fault)

    for process, rank in enumerate(ranks):
        rank.fill()
        if brought is not None and process in rank.buffers:
            rank.buffers[process].copy_(brought[process])
    threads = [threading.Thread(target=work, args=(process,), daemon=True) for process in range(len(ranks))]
    random.Random(len(ranks)).shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert not faults
    return ranks


@pytest.mark.parametrize("n", [2, 3, 5, 8])  # test_every_plan.py replays the plans themselves
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_leaves_the_exact_sum_with_every_rank(monkeypatch, strategy, n):
    box = exchange(Where("dgx-1-v100-16gb"), strategy, gpus=tuple(range(n)))
    hosts = exchange(Where("linux-host", nodes=n, fabric="ethernet-10g"), strategy)
    assert box or hosts or (strategy == "gpu2" and n == 2)
    for found in filter(None, (box, hosts)):
        assert found.n_ranks == n
        assert all(rank.is_right() for rank in run(found, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_so_do_they_where_a_round_is_a_group_whose_messages_have_no_tags(monkeypatch, strategy):
    for where, gpus in ((Where("dgx-1-v100-16gb", nodes=2), None), (Where("dgx-1-v100-16gb"), (0, 1, 2, 5, 7))):
        found = exchange(where, strategy, gpus=gpus)
        if found is not None:
            assert all(rank.is_right() for rank in run(found, monkeypatch, grouped=True))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["hierarchical", "parameter-server", "ring", "cpu", "halving-doubling"])
@pytest.mark.parametrize("gpus", [None, (0, 2, 3, 5, 8, 9, 13), (1, 8, 9, 10)])
def test_so_do_they_over_machines_with_many_ranks_each_alike_or_not(monkeypatch, strategy, gpus):
    found = exchange(Where("dgx-1-v100-16gb", nodes=2), strategy, gpus=gpus)
    assert found is not None
    assert all(rank.is_right() for rank in run(found, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["reduce-scatter", "all-gather", "broadcast", "reduce"])
@pytest.mark.parametrize("strategy", ["ring", "sharded", "halving-doubling", "hierarchical", "double-tree", "gpu0"])
def test_each_collective_leaves_what_it_must(monkeypatch, strategy, collective):
    for where, gpus in ((Where("dgx-1-v100-16gb"), tuple(range(7))), (Where("dgx-1-v100-16gb", nodes=2), None)):
        found = exchange(where, strategy, collective, gpus=gpus)
        if found is not None:
            assert all(rank.is_right() for rank in run(found, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("strategy", ["ring", "sharded", "halving-doubling", "hierarchical", "tree", "cpu"])
def test_a_root_may_be_any_rank(monkeypatch, strategy, collective):
    for where, gpus in ((Where("dgx-1-v100-16gb"), tuple(range(5))), (Where("dgx-1-v100-16gb", nodes=2), None)):
        found = exchange(where, strategy, collective, gpus=gpus, root=3)
        if found is not None:
            assert found.root == 3
            assert all(rank.is_right() for rank in run(found, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sums_of_floats_are_right_within_rounding(monkeypatch, strategy):
    found = exchange(Where("dgx-1-v100-16gb", nodes=2), strategy)
    assert found is not None
    made = torch.Generator().manual_seed(3)
    brought = [torch.randn(N_ELEMENTS, generator=made) for _ in range(16)]
    exact = torch.stack(brought).double().sum(0)
    bound = 16 * torch.finfo(torch.float32).eps * torch.stack(brought).double().abs().sum(0)
    for process, rank in enumerate(run(found, monkeypatch, brought)[:16]):
        assert bool(((rank.buffers[process].double() - exact).abs() <= bound).all())


def test_a_move_too_few_is_noticed(monkeypatch):
    found = exchange(Where("linux-host", nodes=3, fabric="ethernet-10g"), "sharded")
    assert found is not None
    for index in range(len(found.rounds[0])):
        rounds = (found.rounds[0][:index] + found.rounds[0][index + 1 :], *found.rounds[1:])
        short = SimpleNamespace(**{**vars(found), "rounds": rounds})
        assert not all(rank.is_right() for rank in run(short, monkeypatch))


def test_what_is_read_in_a_round_is_staged_before_it_is_overwritten():
    data = {
        "strategy": "swap", "collective": "broadcast", "n_ranks": 2, "root": 0, "n_elements": 8,
        "stands": [{"name": f"gpu{i}", "kind": "gpu", "host": 0, "index": i} for i in range(2)],
        "rounds": [[[0, 1, 0, 4, 0], [1, 0, 3, 4, 0], [1, 0, 7, 1, 0]]],
    }  # fmt: skip
    part = stand_parts(read_exchange(data), 0)[0]
    assert [receive.staged for receive in part.receives] == [0, None]


@pytest.mark.parametrize("move", [[0, 0, 0, 1, 0], [0, 2, 0, 1, 0], [0, 1, 8, 1, 0], [0, 1, -1, 2, 0], [0, 1, 3, 0, 0]])
def test_moves_that_cannot_be_are_refused(move):
    stands = [{"name": f"gpu{i}", "kind": "gpu", "host": 0, "index": i} for i in range(2)]
    data = {"strategy": "x", "collective": "all-reduce", "n_ranks": 2, "root": 0, "n_elements": 8, "stands": stands}
    with pytest.raises(ValueError, match="round 0: no move between stands"):
        read_exchange(data | {"rounds": [[move]]})


def test_what_is_no_schedule_is_refused_in_words():
    with pytest.raises(InputError, match="nccl is predicted, not run rank by rank"):
        exchange_of(SESSION, question(Where("dgx-1-v100-16gb"), "nccl"))
    with pytest.raises(InputError, match="several groups at once"):
        exchange_of(SESSION, question(Where("dgx-1-v100-16gb"), "ring", group_size=4))


def test_helpers_live_with_the_ranks_of_their_machine():
    found = exchange(Where("linux-host", nodes=3, fabric="ethernet-10g"), "parameter-server")
    assert found is not None
    assert processes_of(read_exchange(vars(found))) == [(0, 3), (1, 4), (2, 5)]
