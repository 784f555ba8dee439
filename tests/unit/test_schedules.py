"""Every schedule, for 2 to 33 ranks: it performs its collective, in known numbers of rounds and bytes per rank."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import log2

import pytest

from simulator.collectives.schedules import (
    ChunkEdge,
    Local,
    Round,
    Schedule,
    Send,
    direct_schedule,
    halving_doubling_schedule,
    in_order_tree,
    neighbour_pairs,
    pairwise_all_to_all,
    pipelined,
    push_pull,
    ring_schedule,
    send_recv,
    star_schedule,
    tree_schedule,
    two_trees,
)
from tests.schedule_check import WrongScheduleError, check, n_steps, sent_chunks

tree_all_reduce, tree_broadcast, tree_reduce = (
    partial(tree_schedule, op) for op in ("all-reduce", "broadcast", "reduce")
)
double_tree_all_reduce, double_tree_broadcast, double_tree_reduce = (
    partial(tree_schedule, op, double=True) for op in ("all-reduce", "broadcast", "reduce")
)

FIVE = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce")
ring_all_reduce, ring_reduce_scatter, ring_all_gather, chain_broadcast, chain_reduce = (
    partial(ring_schedule, op) for op in FIVE
)
naive_ring_all_reduce = partial(ring_schedule, "all-reduce", naive=True)
star_all_reduce, star_reduce_scatter, star_all_gather, star_broadcast, star_reduce = (
    partial(star_schedule, op) for op in FIVE
)
direct_all_reduce, direct_reduce_scatter, direct_all_gather, direct_broadcast, direct_reduce, direct_all_to_all = (
    partial(direct_schedule, op)
    for op in ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")
)
(
    halving_doubling_all_reduce,
    halving_doubling_reduce_scatter,
    halving_doubling_all_gather,
    halving_doubling_broadcast,
    halving_doubling_reduce,
) = (partial(halving_doubling_schedule, op) for op in FIVE)
recursive_doubling_all_reduce = partial(halving_doubling_schedule, "all-reduce", whole=True)

SIZES = (*range(2, 10), 12, 15, 16, 17, 31, 32, 33)  # about powers of two, where trees and halves differ

UNROOTED = {
    "ring_all_reduce": (ring_all_reduce, "all-reduce"),
    "ring_reduce_scatter": (ring_reduce_scatter, "reduce-scatter"),
    "ring_all_gather": (ring_all_gather, "all-gather"),
    "naive_ring_all_reduce": (naive_ring_all_reduce, "all-reduce"),
    "direct_all_reduce": (direct_all_reduce, "all-reduce"),
    "direct_reduce_scatter": (direct_reduce_scatter, "reduce-scatter"),
    "direct_all_gather": (direct_all_gather, "all-gather"),
    "direct_all_to_all": (direct_all_to_all, "all-to-all"),
    "pairwise_all_to_all": (pairwise_all_to_all, "all-to-all"),
    "tree_all_reduce": (lambda n: tree_all_reduce(n, 5), "all-reduce"),
    "double_tree_all_reduce": (lambda n: double_tree_all_reduce(n, 5), "all-reduce"),
    "halving_doubling_all_reduce": (halving_doubling_all_reduce, "all-reduce"),
    "halving_doubling_reduce_scatter": (halving_doubling_reduce_scatter, "reduce-scatter"),
    "halving_doubling_all_gather": (halving_doubling_all_gather, "all-gather"),
    "recursive_doubling_all_reduce": (recursive_doubling_all_reduce, "all-reduce"),
    "tree_broadcast": (lambda n: tree_broadcast(n, 5), "broadcast"),  # from or to rank 0, as of those below
    "tree_reduce": (lambda n: tree_reduce(n, 5), "reduce"),
    "double_tree_broadcast": (lambda n: double_tree_broadcast(n, 5), "broadcast"),
    "double_tree_reduce": (lambda n: double_tree_reduce(n, 5), "reduce"),
    "halving_doubling_broadcast": (halving_doubling_broadcast, "broadcast"),
    "halving_doubling_reduce": (halving_doubling_reduce, "reduce"),
    "star_all_reduce": (lambda n: star_all_reduce(n, 0), "all-reduce"),
    "star_all_reduce on a helper": (lambda n: star_all_reduce(n, n), "all-reduce"),
    "star_reduce_scatter": (lambda n: star_reduce_scatter(n, n - 1), "reduce-scatter"),
    "star_reduce_scatter on a helper": (lambda n: star_reduce_scatter(n, n), "reduce-scatter"),
    "star_all_gather": (lambda n: star_all_gather(n, 1), "all-gather"),
    "star_all_gather on a helper": (lambda n: star_all_gather(n, n), "all-gather"),
    "push_pull, one server": (lambda n: push_pull(n, [n]), "all-reduce"),
    "push_pull, three servers": (lambda n: push_pull(n, [n, n + 1, n + 2]), "all-reduce"),
    "push_pull, co-located": (lambda n: push_pull(n, range(n)), "all-reduce"),
}
ROOTED = {
    "chain_broadcast": (lambda n, root: chain_broadcast(n, 5, root), "broadcast"),
    "chain_reduce": (lambda n, root: chain_reduce(n, 5, root), "reduce"),
    "direct_broadcast": (direct_broadcast, "broadcast"),
    "direct_reduce": (direct_reduce, "reduce"),
    "star_broadcast": (lambda n, root: star_broadcast(n, 0, root), "broadcast"),
    "star_broadcast over a helper": (lambda n, root: star_broadcast(n, n, root), "broadcast"),
    "star_reduce": (lambda n, root: star_reduce(n, 0, root), "reduce"),
    "star_reduce over a helper": (lambda n, root: star_reduce(n, n, root), "reduce"),
}


@pytest.mark.parametrize("name", UNROOTED)
@pytest.mark.parametrize("n", SIZES)
def test_is_its_collective(name, n):
    make, collective = UNROOTED[name]
    check(make(n), collective)


@pytest.mark.parametrize("name", ROOTED)
@pytest.mark.parametrize("n", SIZES)
def test_is_its_collective_from_every_kind_of_root(name, n):
    make, collective = ROOTED[name]
    for root in {0, 1, n // 2, n - 1}:
        check(make(n, root), collective, root=root)


@pytest.mark.parametrize("pairs", [((0, 1),), ((0, 3), (3, 0)), ((0, 1), (0, 2), (0, 3)), neighbour_pairs(4)])
def test_send_recv(pairs):
    check(send_recv(4, pairs), "send-recv", pairs=pairs)


def test_neighbour_pairs():
    assert neighbour_pairs(3) == ((0, 1), (1, 2), (2, 0))
    assert neighbour_pairs(1) == ()


# -- the checker finds faults ------------------------------------------------------


def _changed(schedule: Schedule, round_: int, send: int, **change: object) -> Schedule:
    rounds = list(schedule.rounds)
    sends = list(rounds[round_].sends)
    sends[send] = replace(sends[send], **change)
    rounds[round_] = replace(rounds[round_], sends=tuple(sends))
    return replace(schedule, rounds=tuple(rounds))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reduce": False}, "ends with|counts twice"),
        ({"first": 1}, "ends with|counts twice"),
        ({"dst": 2}, "ends with|counts twice"),
        ({"dst": 0}, "sends to itself"),
        ({"width": 9}, "9 of 4 chunks"),
        ({"step": 0}, "ends with|counts twice"),
    ],
)
def test_a_fault_in_a_ring_is_found(change, words):
    with pytest.raises(WrongScheduleError, match=words):
        check(_changed(ring_all_reduce(4), 0, 0, **change), "all-reduce")


def test_a_round_too_few_or_too_many_is_found():
    ring = ring_all_reduce(4)
    for repeat in (2, 4):
        rounds = (replace(ring.rounds[0], repeat=repeat), ring.rounds[1])
        with pytest.raises(WrongScheduleError):
            check(replace(ring, rounds=rounds), "all-reduce")


def test_a_contribution_that_counts_twice_is_found():
    twice = Schedule(2, 1, (Round((Send(0, 1, 0, reduce=True),), repeat=2),))
    with pytest.raises(WrongScheduleError, match="counts twice at rank 1"):
        check(twice, "reduce", root=1)


def test_sending_what_one_does_not_hold_is_found():
    with pytest.raises(WrongScheduleError, match="rank 1 sends chunk 0, which it does not hold"):
        check(Schedule(3, 1, (Round((Send(1, 2, 0),)),)), "broadcast")


def test_two_writers_of_one_chunk_are_found():
    with pytest.raises(WrongScheduleError, match="two sends write chunk 0 of rank 2"):
        check(Schedule(3, 1, (Round((Send(0, 2, 0), Send(1, 2, 0))),)), "reduce", root=2)


def test_sends_of_a_round_are_simultaneous():
    # If rank 1 forwarded data that it receives in the same round, rank 2 would have them.
    with pytest.raises(WrongScheduleError, match="does not hold"):
        check(Schedule(3, 1, (Round((Send(0, 1, 0), Send(1, 2, 0))),)), "broadcast")


# -- rounds and bytes: closed forms, exact -----------------------------------------

_BYTES = {  # sent by each rank, in buffers
    "ring_all_reduce": lambda n: 2 * (n - 1) / n,
    "ring_reduce_scatter": lambda n: (n - 1) / n,
    "ring_all_gather": lambda n: (n - 1) / n,
    "direct_all_reduce": lambda n: 2 * (n - 1) / n,
    "direct_reduce_scatter": lambda n: (n - 1) / n,
    "direct_all_gather": lambda n: (n - 1) / n,
    "push_pull, co-located": lambda n: 2 * (n - 1) / n,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _BYTES)
@pytest.mark.parametrize("n", SIZES)
def test_bytes_sent_by_each_rank(name, n):
    schedule = UNROOTED[name][0](n)
    wanted = _BYTES[name](n)
    for rank, chunks in sent_chunks(schedule).items():
        assert chunks / schedule.n_chunks == pytest.approx(wanted, rel=1e-12), rank


@pytest.mark.parametrize("n", SIZES)
def test_bytes_sent_in_all(n):
    def total(schedule: Schedule) -> float:
        return sum(sent_chunks(schedule).values()) / schedule.n_chunks

    # Whatever the tree or chain: n - 1 edges, each of which carries the buffer once, or up and down.
    assert total(naive_ring_all_reduce(n)) == 2 * (n - 1)
    assert total(chain_broadcast(n, 7)) == n - 1
    assert total(chain_reduce(n, 7)) == n - 1
    assert total(tree_all_reduce(n, 7)) == 2 * (n - 1)
    assert total(tree_broadcast(n, 7)) == n - 1
    assert total(double_tree_all_reduce(n, 7)) == 2 * (n - 1)
    assert total(double_tree_broadcast(n, 7)) == n - 1
    assert total(double_tree_reduce(n, 7)) == n - 1
    assert total(star_all_reduce(n, 0)) == 2 * (n - 1)
    assert total(star_all_reduce(n, n)) == 2 * n
    assert total(push_pull(n, [n, n + 1])) == 2 * n
    # All-to-all: n (n-1) of the n^2 blocks.
    assert total(direct_all_to_all(n)) == pytest.approx((n - 1) / n)
    assert total(pairwise_all_to_all(n)) == pytest.approx((n - 1) / n)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_halving_doubling_of_a_power_of_two(n):
    schedule = halving_doubling_all_reduce(n)
    assert n_steps(schedule) == 2 * log2(n)
    assert all(c / schedule.n_chunks == 2 * (n - 1) / n for c in sent_chunks(schedule).values())
    assert n_steps(halving_doubling_reduce_scatter(n)) == n_steps(halving_doubling_all_gather(n)) == log2(n)
    assert n_steps(halving_doubling_broadcast(n)) == n_steps(halving_doubling_reduce(n)) == 2 * log2(n)
    assert n_steps(recursive_doubling_all_reduce(n)) == log2(n)
    assert set(sent_chunks(recursive_doubling_all_reduce(n)).values()) == {log2(n)}


@pytest.mark.parametrize("n", [3, 5, 6, 7, 9, 12, 31, 33])
def test_halving_doubling_of_other_numbers(n):
    p = 1 << (n.bit_length() - 1)
    schedule = halving_doubling_all_reduce(n)
    assert n_steps(schedule) == 2 * log2(p) + 2
    sent = sorted({c / schedule.n_chunks for c in sent_chunks(schedule).values()})
    # Folded ranks send everything once; their partners send the share of p ranks, and everything back.
    most = 2 * (p - 1) / p
    expected = {1.0, most + 1} | ({most} if 2 * (n - p) < n else set())
    assert sent == pytest.approx(sorted(expected))


def test_halving_goes_near_with_the_largest_pieces():
    first, second = halving_doubling_all_reduce(8).rounds[:2]
    assert {abs(s.src - s.dst) for s in first.sends} == {1}
    assert {s.width for s in first.sends} == {4}
    assert {abs(s.src - s.dst) for s in second.sends} == {2}


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_rounds(n):
    depth = n.bit_length() - 1
    assert n_steps(ring_all_reduce(n)) == 2 * (n - 1)
    assert n_steps(naive_ring_all_reduce(n)) == 2 * (n - 1)
    assert n_steps(pairwise_all_to_all(n)) == n - 1
    for m in (1, 2, 9, 40):
        assert n_steps(chain_broadcast(n, m)) == n_steps(chain_reduce(n, m)) == m + n - 2
        assert n_steps(tree_all_reduce(n, m)) == m + 2 * depth - 1
        assert n_steps(double_tree_all_reduce(n, m)) == m + 2 * depth - 1
        assert n_steps(tree_broadcast(n, m)) == n_steps(tree_reduce(n, m)) == m + depth - 1
        outer = (n - 1).bit_length() - 1
        assert n_steps(double_tree_broadcast(n, m)) == n_steps(double_tree_reduce(n, m)) == m + outer


def test_the_number_of_rounds_listed_does_not_grow_with_the_chunks():
    for make in (tree_all_reduce, double_tree_all_reduce, chain_broadcast):
        assert len(make(16, 1000).rounds) == len(make(16, 100).rounds)
    assert len(tree_all_reduce(16, 1000).rounds) == 2 * (2 * 4 - 1) + 1


# -- trees -------------------------------------------------------------------------


def test_in_order_trees_are_binary_and_shallow():
    for n in range(1, 200):
        tree = in_order_tree(n)
        children = [tree.parent.count(r) for r in range(n)]
        assert max(children) <= 2, n
        assert tree.depth == n.bit_length() - 1
        assert tree.parent.count(-1) == 1, n
        assert all(tree.level[r] == tree.level[p] + 1 for r, p in enumerate(tree.parent) if p >= 0), n
        assert all(children[r] == 0 for r in range(0, n, 2)), n


def test_no_rank_is_inner_in_both_trees():
    for n in range(1, 200):
        first, second = two_trees(n)
        assert not {p for p in first.parent if p >= 0} & {p for p in second.parent if p >= 0}, n
        assert max(second.parent.count(r) for r in range(n)) <= 2, n


def test_the_tree_of_seven():
    tree = in_order_tree(7)
    assert tree.parent == (1, 3, 1, -1, 5, 3, 5)
    assert tree.level == (2, 1, 2, 0, 2, 1, 2)
    assert tree.root == 3


# -- pipelines, work in memory -----------------------------------------------------


def test_a_pipeline_repeats_its_steady_state():
    stages = [[ChunkEdge(0, 1)], [ChunkEdge(1, 2)]]
    schedule = pipelined(3, stages, 4)
    assert [r.repeat for r in schedule.rounds] == [1, 3, 1]
    assert schedule.rounds[1].sends == (Send(0, 1, 1, step=1), Send(1, 2, 0, step=1))
    assert [r.repeat for r in pipelined(3, stages, 1).rounds] == [1, 1]
    with pytest.raises(ValueError, match="a pipeline needs a chunk at least; got 0"):
        pipelined(3, stages, 0)


def test_sums_that_are_not_made_on_arrival_pass_through_memory():
    # One pass over n buffers, one sum written.
    assert star_all_reduce(4, 4).rounds[0].local == (Local(4, 5),)
    assert star_reduce_scatter(4, 4).rounds[0].local == (Local(4, 20),)
    assert direct_all_reduce(4).rounds[0].local == tuple(Local(r, 5) for r in range(4))
    assert push_pull(3, [0, 0, 1]).rounds[0].local == (Local(0, 8), Local(1, 4))
    for n in (4, 6):
        for make in (ring_all_reduce, tree_all_reduce, double_tree_all_reduce, halving_doubling_all_reduce):
            assert not any(r.local for r in make(n).rounds)


def test_sharded_is_a_server_beside_each_worker():
    direct, servers = direct_all_reduce(5), push_pull(5, range(5))
    assert [set(r.sends) for r in direct.rounds] == [set(r.sends) for r in servers.rounds]
