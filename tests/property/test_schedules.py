"""Schedules for any number of ranks, chunks and any root perform their collectives; so do two levels of rings."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from simulator.collectives.levels import PHASES
from simulator.collectives.schedules import (
    Schedule,
    direct_schedule,
    halving_doubling_schedule,
    push_pull,
    ring_schedule,
    star_schedule,
    tree_schedule,
)
from tests.schedule_check import State, check, expect, initial, n_steps, play, sent_chunks

tree_all_reduce, tree_broadcast, tree_reduce = (
    partial(tree_schedule, op) for op in ("all-reduce", "broadcast", "reduce")
)
double_tree_all_reduce, double_tree_broadcast, double_tree_reduce = (
    partial(tree_schedule, op, double=True) for op in ("all-reduce", "broadcast", "reduce")
)

ring_all_reduce, ring_reduce_scatter, ring_all_gather, chain_broadcast, chain_reduce = (
    partial(ring_schedule, op) for op in ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce")
)
halving_doubling_broadcast, halving_doubling_reduce = (
    partial(halving_doubling_schedule, op) for op in ("broadcast", "reduce")
)
star_all_reduce, star_broadcast, star_reduce = (
    partial(star_schedule, op) for op in ("all-reduce", "broadcast", "reduce")
)

ranks = st.integers(2, 33)
chunks = st.integers(1, 24)


@st.composite
def rooted(draw):
    n = draw(ranks)
    return n, draw(st.integers(0, n - 1)), draw(chunks)


@given(ranks, chunks)
def test_pipelined_all_reduce(n, m):
    for make in (tree_all_reduce, double_tree_all_reduce):
        check(make(n, m), "all-reduce")


@given(rooted())
def test_pipelined_broadcast_and_reduce(case):
    n, root, m = case
    for made, at in ((chain_broadcast(n, m, root), root), (tree_broadcast(n, m), 0), (double_tree_broadcast(n, m), 0)):
        check(made, "broadcast", root=at)
        assert sent_chunks(made)[at] <= 2 * m
    for made, at in ((chain_reduce(n, m, root), root), (tree_reduce(n, m), 0), (double_tree_reduce(n, m), 0)):
        check(made, "reduce", root=at)
        assert sent_chunks(made)[at] == 0


@given(ranks)
def test_halving_doubling_from_the_first_rank(n):
    check(halving_doubling_broadcast(n), "broadcast")
    check(halving_doubling_reduce(n), "reduce")


@given(rooted(), st.integers(0, 33))
def test_star_around_any_centre(case, centre):
    n, root, _ = case
    centre = min(centre, n)
    check(star_all_reduce(n, centre), "all-reduce")
    check(star_broadcast(n, centre, root), "broadcast", root=root)
    check(star_reduce(n, centre, root), "reduce", root=root)


@given(ranks, st.data())
def test_any_choice_of_servers(n, data):
    owners = data.draw(st.lists(st.integers(0, n + 5), min_size=1, max_size=12))
    check(push_pull(n, owners), "all-reduce")


@given(ranks, chunks)
def test_a_double_tree_sends_at_most_two_buffers_from_a_rank(n, m):
    assert max(sent_chunks(double_tree_all_reduce(n, m)).values()) <= 4 * m  # of 2m chunks
    assert n_steps(double_tree_all_reduce(n, m)) == n_steps(tree_all_reduce(n, m))


# -- two levels --------------------------------------------------------------------


def _schedule(what: str, n: int, m: int, root: int) -> Schedule:
    return {
        "all-reduce": lambda: ring_all_reduce(n),
        "reduce-scatter": lambda: ring_reduce_scatter(n),
        "all-gather": lambda: ring_all_gather(n),
        "broadcast": lambda: chain_broadcast(n, m, root),
        "reduce": lambda: chain_reduce(n, m, root),
        "scatter": lambda: Schedule(n, n, direct_schedule("broadcast", n, root).rounds[:1]),
        "gather": lambda: Schedule(n, n, direct_schedule("reduce", n, root).rounds[-1:]),
    }[what]()


def _play_inside(state: State, what: str, nodes: int, local: int, root: int) -> None:
    """Run the phase within all nodes at once; block l of the buffer belongs to local rank l."""
    width = len(state[0]) // local
    for node in range(nodes):
        if what == "" or local == 1 or (what in ("scatter", "gather") and node != root // local):
            continue
        members = [node * local + i for i in range(local)]
        at = root % local
        play(_schedule(what, local, 1, at), state, members, lambda c: range(c * width, (c + 1) * width))


def _play_between(state: State, what: str, nodes: int, local: int, root: int) -> None:
    """Run the phase among the nodes, for each local rank's block."""
    for i in range(local):
        members = [node * local + i for node in range(nodes)]
        play(_schedule(what, nodes, nodes, root // local), state, members, lambda c, i=i: [i * nodes + c])


@given(st.integers(2, 6), st.integers(1, 6), st.data())
def test_the_phases_of_hierarchical_make_up_its_collective(nodes, local, data):
    n = nodes * local
    root = data.draw(st.integers(0, n - 1))
    collective = data.draw(st.sampled_from(sorted(PHASES)))
    first, middle, last = PHASES[collective]
    state = initial(Schedule(n, n, ()), collective, root)
    if collective == "all-gather":  # block l, node by node: chunk l * nodes + node belongs to rank node * local + l
        state = [[(1 << r) * (c == r % local * nodes + r // local) for c in range(n)] for r in range(n)]
    _play_inside(state, first, nodes, local, root)
    _play_between(state, middle, nodes, local, root)
    _play_inside(state, last, nodes, local, root)
    if collective in ("reduce-scatter", "all-gather"):
        everyone = (1 << n) - 1
        for rank in range(n):
            own = rank % local * nodes + rank // local
            if collective == "reduce-scatter":
                assert state[rank][own] == everyone
            else:
                assert state[rank] == [1 << (c % nodes * local + c // nodes) for c in range(n)]
    else:
        expect(state, collective, n, n, root)
