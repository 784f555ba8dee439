"""Strategies from one process over several GPUs: right in any order that streams allow, and wrong without a wait."""

from __future__ import annotations

import pytest

from simulator.api import Session
from simulator.api.exchanges import exchange_of
from simulator.collectives.registry import strategy_names
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from tests.clocked_cuda import Clock, clocked_gpus  # noqa: E402  it imports torch
from validate.machine.measure.exchange import BufferExchange, OverDevices, read_exchange  # noqa: E402  it imports torch  # noqa: E402  it imports torch

SESSION = Session()
STRATEGIES = [*[name for name in strategy_names() if name not in ("nccl", "hierarchical")], "gpu1"]
SEEDS = range(4)


def exchange(strategy: str, n: int, collective: str = "all-reduce") -> BufferExchange:
    question = CollectiveQuestion(
        where=Where("dgx-1-v100-16gb"),
        size_bytes=4 * 997,
        strategy=strategy,
        collective=collective,
        gpus=tuple(range(n)),
    )
    return read_exchange(exchange_of(SESSION, question))


def over(found: BufferExchange) -> OverDevices:
    return OverDevices(found, [stand.index if stand.kind == "gpu" else None for stand in found.stands])


def is_right(
    found: BufferExchange, monkeypatch: pytest.MonkeyPatch, seed: int, ignored: frozenset[int] = frozenset()
) -> bool:
    """Return whether the sum is exact on GPUs of uneven speed, with the waits on *ignored* lines disabled."""
    with monkeypatch.context() as patch:
        clock = clocked_gpus(patch, found.n_ranks, issue_s=1e-9, uneven=seed)
        running = over(found)
        running.fill()
        clock.ignored = set(ignored)
        running.run()
        clock.ignored = set()
        clock.wait(torch.cuda.current_stream(0).free_s)  # work after this must find everything done
        clock.happen()
        patch.setattr(running, "_settle", lambda: None)
        return running.is_right()


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 8])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_leaves_the_exact_sum(monkeypatch, strategy, n):
    assert is_right(exchange(strategy, n), monkeypatch, n)


@pytest.mark.parametrize("collective", ["reduce-scatter", "all-gather", "broadcast", "reduce"])
@pytest.mark.parametrize("strategy", ["ring", "sharded", "halving-doubling", "double-tree", "gpu0", "cpu"])
def test_so_do_other_collectives(monkeypatch, strategy, collective):
    try:
        found = exchange(strategy, 5, collective)
    except InputError:
        pytest.skip("the strategy has no such form")
    assert is_right(found, monkeypatch, 1)


def test_each_wait_is_needed(monkeypatch):
    exchanges = [
        exchange(name, 4) for name in ("ring", "cpu", "sharded", "tree", "halving-doubling", "parameter-server")
    ]
    with monkeypatch.context() as patch:
        clock = clocked_gpus(patch, 4)
        for found in exchanges:
            over(found).run()
        lines = clock.waits
    assert len(lines) >= 6
    needless = [
        line
        for line in sorted(lines)
        if all(is_right(found, monkeypatch, seed, frozenset({line})) for found in exchanges for seed in SEEDS)
    ]
    assert needless == []


def test_copies_of_a_round_run_beside_each_other(monkeypatch):
    clock: Clock = clocked_gpus(monkeypatch, 4, issue_s=1e-9)
    clock.lasts_s = lambda tensor: 1e-3  # type: ignore[method-assign]
    running = over(exchange("single-ring", 4))
    start, end = torch.cuda.Event(), torch.cuda.Event()
    start.record()
    running.run()
    end.record()
    end.synchronize()
    # Three rounds of a copy and an add, then three of a copy: not four times that.
    assert start.elapsed_time(end) == pytest.approx(9, abs=0.5)


def test_who_waits_for_the_current_stream_waits_for_all(monkeypatch):
    clock = clocked_gpus(monkeypatch, 4, uneven=2)
    running = over(exchange("sharded", 4))
    running.fill()
    running.run()
    clock.wait(torch.cuda.current_stream(0).free_s)
    assert not clock._under_way


def test_where_the_host_adds_it_does_not_run_ahead(monkeypatch):
    clock = clocked_gpus(monkeypatch, 3)
    running = over(exchange("cpu", 3))
    assert running.needs_host
    clock.lasts_s = lambda tensor: 1e-3  # type: ignore[method-assign]
    before_s = clock.now_s
    running.run()
    assert clock.now_s - before_s >= 1e-3
    assert not over(exchange("ring", 3)).needs_host
