"""Rings on random meshes: valid, within the available links, and as many as brute force finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, permutations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.collectives.communicator import Communicator
from simulator.collectives.search import Budget, pack
from simulator.collectives.search.rings import FoundRing, find_rings
from tests.examples import few
from tests.machines import meshed

Counts = dict[tuple[int, int], int]
_UNIT_BPS = 20e9
_PLENTY = 1_000_000  # search steps


@st.composite
def meshes(draw: st.DrawFn, max_gpus: int) -> tuple[int, Counts]:
    """Draw a number of GPUs, and the number of links between each pair."""
    n = draw(st.integers(2, max_gpus))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    counts = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3]), min_size=len(pairs), max_size=len(pairs)))
    return n, {pair: count for pair, count in zip(pairs, counts, strict=True) if count}


def search(n: int, counts: Counts, *, both: bool) -> list[FoundRing]:
    """Return the rings over GPUs with these links and slow PCIe."""
    links = "".join(
        f"  - {{between: [gpu{a}, gpu{b}], kind: nvlink, bandwidth: 20 GB/s, count: {count}}}\n"
        for (a, b), count in counts.items()
    )
    machine = meshed(n, links)
    return find_rings(Communicator(machine, machine.gpus), both_directions=both)


def hamiltonian(n: int, counts: Counts) -> list[Counts]:
    """Return all undirected Hamiltonian cycles as the links they use, by trying every order."""
    found = []
    for rest in permutations(range(1, n)):
        if n > 2 and rest[0] > rest[-1]:
            continue
        hops = [(min(a, b), max(a, b)) for a, b in pairwise((0, *rest, 0))]
        taken = Counter(hops[:1] if n == 2 else hops)
        if all(taken[hop] <= counts.get(hop, 0) for hop in taken):
            found.append(dict(taken))
    return found


def most(cycles: list[Counts], counts: Counts) -> int:
    """Return how many of *cycles*, possibly repeated, fit into *counts* at once, by trying all."""

    def visit(start: int, left: Counts) -> Iterator[int]:
        yield 0
        for i in range(start, len(cycles)):
            if all(left[hop] >= need for hop, need in cycles[i].items()):
                rest = {hop: count - cycles[i].get(hop, 0) for hop, count in left.items()}
                yield from (1 + more for more in visit(i, rest))

    return max(visit(0, dict(counts)))


def check_valid(n: int, counts: Counts, rings: list[FoundRing], *, both: bool) -> None:
    """Check that each ring visits all ranks and that together they use no more links each way than there are."""
    graph = nx.MultiDiGraph()
    for (a, b), count in counts.items():
        for _ in range(count):
            graph.add_edge(a, b)
            graph.add_edge(b, a)
    for ring in rings:
        assert sorted(ring.order) == list(range(n))
        assert ring.kind == "nvlink"
        assert ring.bandwidth_Bps == _UNIT_BPS
        for a, b in pairwise((*ring.order, ring.order[0])):
            graph.remove_edge(a, b)  # raises if none is left
    if both and n > 2:
        hops = Counter(frozenset(pairwise((*ring.order, ring.order[0]))) for ring in rings)
        assert hops == Counter({frozenset((b, a) for a, b in ring): times for ring, times in hops.items()})


@settings(max_examples=few(150))
@given(meshes(max_gpus=5), st.booleans())
def test_as_many_rings_as_brute_force_finds(mesh: tuple[int, Counts], both: bool) -> None:
    n, counts = mesh
    best = most(hamiltonian(n, counts), counts)
    rings = search(n, counts, both=both)
    if best == 0:
        assert all(ring.kind in ("mixed", "nvlink-relay") for ring in rings)
        assert rings
        return
    if any(ring.kind != "nvlink" for ring in rings):
        # Detours through a neighbour are used only if they give more rings than straight hops alone.
        assert len(rings) > best * (2 if both and n > 2 else 1)
        return
    check_valid(n, counts, rings, both=both)
    assert len(rings) == best * (2 if both and n > 2 else 1)


@settings(max_examples=few(60))
@given(meshes(max_gpus=8))
def test_rings_of_larger_meshes_fit(mesh: tuple[int, Counts]) -> None:
    n, counts = mesh
    rings = search(n, counts, both=True)
    straight = [ring for ring in rings if ring.kind == "nvlink"]
    if len(straight) == len(rings):
        check_valid(n, counts, straight, both=True)
    graph = nx.Graph(list(counts))
    if straight:
        assert nx.is_biconnected(graph) or n == 2


@given(
    st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 2), min_size=1, max_size=3), max_size=5),
    st.lists(st.integers(0, 4), min_size=5, max_size=5),
)
def test_packing_is_the_best_there_is(candidates: list[dict[int, int]], units: list[int]) -> None:
    free = dict(enumerate(units))
    bound = sum(units)
    taken = pack(candidates, free, bound, Budget(_PLENTY))
    used = Counter[int]()
    for index in taken:
        used.update(candidates[index])
    assert all(used[edge] <= free[edge] for edge in used)
    as_counts = [{(edge, edge): need for edge, need in candidate.items()} for candidate in candidates]
    assert len(taken) == most(as_counts, {(edge, edge): count for edge, count in free.items()})


def test_packing_stops_at_its_bound() -> None:
    assert pack([{0: 1}], {0: 9}, 4, Budget(_PLENTY)) == [0] * 4
    assert pack([], {0: 1}, 3, Budget(_PLENTY)) == []


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 8])
def test_a_complete_mesh_has_as_many_cycles_as_fit(n: int) -> None:
    """K_n decomposes into (n-1)/2 Hamiltonian cycles for odd n, and (n-2)/2 and a perfect matching for even n."""
    counts = {(a, b): 1 for a in range(n) for b in range(a + 1, n)}
    rings = search(n, counts, both=False)
    straight = [ring for ring in rings if ring.kind == "nvlink"]
    assert len(straight) == (n - 1) // 2
