"""NCCL's search on small machines written as NCCL sees them: speeds, channels, trees and heads by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulator.collectives.nccl.paths import DevicePath, SeenMachine, rank_of
from simulator.collectives.nccl.search import ChannelSolution, RingOrders, Search, doubled, solution
from simulator.collectives.search import Budget

_NVL, _NVB, _PIX, _PXB, _PXN, _PHB, _SYS = (rank_of[k] for k in ("nvl", "nvb", "pix", "pxb", "pxn", "phb", "sys"))


def crossbar(gpus: int, wide: int, adapters: Sequence[int] = (), kind: int = _PIX) -> SeenMachine:
    """Return GPUs with *wide* MB/s on a switch; *adapters* are the MB/s of each GPU's own adapter."""
    capacity = [wide] * (2 * gpus)  # up and down
    paths = {
        (a, b): DevicePath(_NVL, wide, (a, gpus + b), ((a, 1.0), (gpus + b, 1.0)))
        for a in range(gpus)
        for b in range(gpus)
        if a != b
    }
    nets = tuple(range(100, 100 + len(adapters)))
    for number, (net, width) in enumerate(zip(nets, adapters, strict=True)):
        out, into = len(capacity), len(capacity) + 1
        capacity += [width, width]
        for gpu in range(gpus):
            if gpu == number:
                paths[gpu, net] = DevicePath(kind, width, (out,), ((out, 1.0),))
                paths[net, gpu] = DevicePath(kind, width, (into,), ((into, 1.0),))
            elif number < gpus:
                over = (gpu, gpus + number, out)
                paths[gpu, net] = DevicePath(_PXN, min(wide, width), over, tuple((link, 1.0) for link in over))
                back = (into, number, gpus + gpu)
                paths[net, gpu] = DevicePath(_SYS, min(wide, width), back, tuple((link, 1.0) for link in back))
    return SeenMachine(tuple(range(gpus)), nets, tuple(capacity), paths, dict.fromkeys(range(gpus), wide), True)


def mesh(gpus: int, wide: dict[tuple[int, int], int], total: int) -> SeenMachine:
    """Return GPUs joined by links of these MB/s each way; each GPU has *total* MB/s."""
    ways = [(a, b) for pair in wide for a, b in (pair, pair[::-1])]
    capacity = tuple(wide.get(way, wide.get(way[::-1], 0)) for way in ways)
    paths = {way: DevicePath(_NVL, capacity[i], (i,), ((i, 1.0),)) for i, way in enumerate(ways)}
    return SeenMachine(tuple(range(gpus)), (), capacity, paths, dict.fromkeys(range(gpus), total), False)


def tree_of_pcie(gpus: int, wide: int, kind: int = _PHB) -> SeenMachine:
    """Return GPUs below one root, each on a link of *wide* MB/s."""
    seen = crossbar(gpus, wide)
    paths = {way: DevicePath(kind, path.bandwidth, path.hops, path.loads) for way, path in seen.paths.items()}
    return SeenMachine(seen.gpus, (), seen.capacity, paths, seen.total, False)


def alone(seen: SeenMachine, capability: int = 80) -> ChannelSolution:
    return Search(seen, capability, False).found()


def among_several(seen: SeenMachine, capability: int = 80) -> ChannelSolution:
    return Search(seen, capability, True).found()


def shape(found: ChannelSolution) -> tuple[int, float]:
    return found.n_channels, found.speed


# -- inside one machine ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("wide", "channels", "speed"),
    [
        (240_000, 12, 20.0),  # 6 x 40, doubled
        (40_000, 2, 20.0),
        (39_999, 2, 18.0),  # 36, where 1 x 30 is less and 3 x 12 is not more
        (24_000, 2, 12.0),
        (25_000, 2, 12.0),  # 1 x 20 is less
        (20_000, 1, 20.0),  # below 25 nothing is doubled
        (18_000, 1, 18.0),
        (3_000, 1, 3.0),
        (27_000, 3, 9.0),  # 1 x 20, then 2 x 12, then all of it
        (22_000, 1, 20.0),  # 3 x 7 would be more, at less than half the speed
    ],
)
def test_channels_of_a_switch(wide: int, channels: int, speed: float) -> None:
    found = alone(crossbar(4, wide))
    assert shape(found) == (channels, speed)
    assert found.same
    assert found.kind_intra == _NVL
    assert found.tree_intra == found.speed


def test_no_more_channels_than_half_of_what_nccl_has() -> None:
    assert shape(alone(crossbar(2, 40 * 40_000))) == (32, 40.0)
    assert shape(alone(crossbar(2, 20 * 40_000))) == (32, 20.0)  # 20 doubled would be 40
    wide = crossbar(2, 40 * 20_000)
    paths = {way: DevicePath(path.kind, 20_000, path.hops, path.loads) for way, path in wide.paths.items()}
    many = SeenMachine(wide.gpus, (), wide.capacity, paths, wide.total, True)
    assert shape(alone(many)) == (32, 20.0)  # of 40 that fit


def test_nothing_fits_below_the_slowest_speed() -> None:
    found = alone(crossbar(4, 2_999))
    assert found == ChannelSolution(1, 0.1, _SYS, _SYS, True, orders=((0, 1, 2, 3),), tree_intra=0.1)
    assert found.total == pytest.approx(0.1)


def test_hopper_tries_other_speeds_and_doubles_fast_ones_alone() -> None:
    assert shape(alone(crossbar(4, 120_000), 90)) == (4, 30.0)  # 2 x 60
    assert shape(alone(crossbar(4, 50_000), 90)) == (2, 25.0)  # 1 x 50
    assert shape(alone(crossbar(4, 200_000), 90)) == (8, 25.0)  # 4 x 50: 3 x 60 leave 20
    assert shape(alone(crossbar(4, 240_000), 90)) == (8, 30.0)  # 4 x 60
    assert shape(alone(crossbar(4, 360_000), 90)) == (12, 30.0)  # 6 x 60: above 50, though above four


def test_many_middling_channels_of_hopper_stay() -> None:
    """Six of 40: not doubled on Hopper, beyond four channels below 50 GB/s; doubled on Ampere."""
    for capability, n, speed, expected in (
        (90, 6, 40.0, (6, 40.0)),
        (90, 5, 40.0, (5, 40.0)),
        (90, 4, 40.0, (8, 20.0)),
        (90, 6, 50.0, (12, 25.0)),
        (80, 6, 40.0, (12, 20.0)),
        (80, 6, 25.0, (12, 12.5)),
        (80, 6, 24.0, (6, 24.0)),
        (80, 20, 40.0, (32, 20.0)),
    ):
        assert shape(doubled(ChannelSolution(n, speed, _NVL, _PIX, True), capability)) == expected


def test_a_ring_of_links_takes_both_ways() -> None:
    found = alone(mesh(4, {(0, 1): 20_000, (1, 2): 20_000, (2, 3): 20_000, (0, 3): 20_000}, 40_000))
    assert shape(found) == (2, 20.0)  # one each way
    assert not found.same  # two orders, each the other's reverse


def test_links_of_unequal_width_are_packed() -> None:
    """Three GPUs: 40 between two pairs, 20 between the third: two rings of 20, one each way, and no more."""
    found = alone(mesh(3, {(0, 1): 40_000, (1, 2): 40_000, (0, 2): 20_000}, 80_000))
    assert shape(found) == (2, 20.0)


def test_all_linked_directly() -> None:
    pairs = {(a, b): 20_000 for a in range(4) for b in range(a + 1, 4)}
    found = alone(mesh(4, pairs, 60_000))
    assert shape(found) == (6, 10.0)  # of 20 there are only two: four GPUs do not have three link-disjoint cycles
    assert not found.same


def test_looser_classes_are_tried_where_stricter_ones_do_not_span() -> None:
    """Two NVLink pairs, joined through the CPU: two channels, as a tree over a slow link between them requires."""
    seen = tree_of_pcie(4, 12_000)
    paths = dict(seen.paths)
    for a, b in ((0, 1), (1, 0), (2, 3), (3, 2)):
        paths[a, b] = DevicePath(_NVL, 40_000, (8 + a,), ((8 + a, 1.0),))
    islands = SeenMachine(seen.gpus, (), (*seen.capacity, *[40_000] * 4), paths, dict.fromkeys(range(4), 40_000), False)
    found = alone(islands)
    assert shape(found) == (2, 12.0)  # one in each direction
    assert found.kind_intra == _PHB
    whole = SeenMachine(seen.gpus, (), seen.capacity, seen.paths, seen.total, False)
    assert shape(alone(whole)) == (1, 12.0)


def test_one_island_is_no_slow_middle() -> None:
    seen = tree_of_pcie(4, 12_000)
    paths = dict(seen.paths)
    paths[0, 1], paths[1, 0] = DevicePath(_NVL, 40_000, (8,), ((8, 1.0),)), DevicePath(_NVL, 40_000, (9,), ((9, 1.0),))
    one = SeenMachine(seen.gpus, (), (*seen.capacity, 40_000, 40_000), paths, dict.fromkeys(range(4), 40_000), False)
    assert shape(alone(one)) == (1, 12.0)


def test_a_single_gpu_has_the_fastest_channel() -> None:
    found = alone(crossbar(1, 240_000))
    assert (shape(found), found.tree_intra, found.same) == ((1, 40), 40, True)


# -- through the network ---------------------------------------------------------------


def test_one_channel_for_each_adapter() -> None:
    found = among_several(crossbar(4, 240_000, [24_000] * 4))
    assert shape(found) == (4, 24.0)
    assert (found.kind_intra, found.kind_inter) == (_NVL, _PXN)  # the chain leaves over the GPU beside its adapter
    assert not found.same  # each begins at another GPU


@pytest.mark.parametrize(
    ("adapters", "channels", "speed"),
    [([12_000], 1, 12.0), ([3_125], 1, 3.0), ([100], 1, 0.1), ([120], 1, 0.12), ([48_000], 2, 24.0)],
)
def test_one_adapter(adapters: Sequence[int], channels: int, speed: float) -> None:
    assert shape(among_several(crossbar(4, 240_000, adapters))) == (channels, speed)


def test_trees_go_faster_inside_than_to_the_network_up_to_twice() -> None:
    """One channel of 12: inside 15, 18, 20, then 28, which is more than twice and the last."""
    found = among_several(crossbar(4, 240_000, [12_000]))
    assert (found.speed, found.tree_intra) == (12.0, 24.0)
    narrow = among_several(crossbar(4, 16_000, [12_000]))
    assert (narrow.speed, narrow.tree_intra) == (12.0, 15.0)  # 18 does not fit
    single = among_several(crossbar(1, 240_000, [12_000]))
    assert (single.speed, single.tree_intra) == (12.0, 12.0)


# -- sums in the switch ----------------------------------------------------------------


def test_heads_take_what_the_gpus_have() -> None:
    """Of 360 GB/s with 8 heads: 9 x 40 leave through a GPU, of 8 x 40 in all."""
    assert alone(crossbar(8, 360_000), 90).nvls == (8, 40, 60)
    assert alone(crossbar(8, 359_000), 90).nvls == (8, 30, 60)
    assert alone(crossbar(4, 360_000), 90).nvls == (4, 60, 60)
    assert alone(crossbar(8, 20_000), 90).nvls == (0, 0.0, 0.0)


def test_heads_are_as_fast_as_the_widest_path_and_no_faster() -> None:
    """600 GB/s pass through a GPU, of which 60 or 59 lead to any other."""
    for wide, speed in ((60_000, 60), (59_000, 50)):
        seen = crossbar(8, wide)
        seen = SeenMachine(seen.gpus, (), seen.capacity, seen.paths, dict.fromkeys(range(8), 600_000), True)
        assert alone(seen, 90).nvls[:2] == (8, speed)


def test_who_has_no_heads() -> None:
    assert alone(crossbar(8, 360_000), 80).nvls == (0, 0.0, 0.0)  # before Hopper
    assert alone(crossbar(2, 360_000), 90).nvls == (0, 0.0, 0.0)
    assert alone(crossbar(3, 360_000), 90).nvls[0] == 3
    pairs = {(a, b): 20_000 for a in range(4) for b in range(a + 1, 4)}
    assert alone(mesh(4, pairs, 60_000), 90).nvls == (0, 0.0, 0.0)  # no switch


def test_no_more_heads_than_there_are_groups() -> None:
    assert alone(crossbar(36, 900_000), 100).nvls[0] == 32


def test_heads_with_an_adapter_each() -> None:
    found = among_several(crossbar(8, 360_000, [48_000] * 8), 90)
    assert found.nvls == (8, 40, 48)
    slow = among_several(crossbar(8, 360_000, [12_000] * 8), 90)
    assert slow.nvls == (8, 12, 12)
    far = among_several(crossbar(8, 360_000, [48_000] * 8, kind=_PHB), 90)
    assert far.nvls == (0, 0.0, 0.0)  # no adapter is close enough
    shared = among_several(crossbar(8, 200_000, [100_000] * 8), 90)
    assert shared.nvls == (8, 22, 45)  # 9 x 22 of 200; to the network 24, 30, 40, 42 and 45, the first above twice
    few = among_several(crossbar(8, 360_000, [48_000] * 2), 90)
    assert few.nvls == (2, 48, 48)


def test_fewer_fast_heads_or_more_slow_ones() -> None:
    """Two adapters of 48 and six of 24: 2 x 48 are 96; 8 x 24 are 192, at half the speed, the lowest that is tried."""
    assert among_several(crossbar(8, 360_000, [48_000] * 2 + [24_000] * 6), 90).nvls == (8, 24, 24)
    assert among_several(crossbar(8, 360_000, [48_000] * 2 + [22_000] * 6), 90).nvls == (2, 48, 48)


def test_machines_that_are_seen_alike_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    class Counted(Search):
        def __init__(self, seen: SeenMachine, *more: object) -> None:
            searched.append(seen)
            super().__init__(seen, *more)

    monkeypatch.setattr("simulator.collectives.nccl.search.Search", Counted)
    wide = {(0, 1): 21_001, (1, 2): 21_002, (2, 0): 21_003}  # no other test's
    slow = {**wide, (0, 1): 11_001}
    for each, times in ((wide, 1), (wide, 1), (slow, 2), (wide, 2)):
        assert solution(mesh(3, each, 42_000), 70, several=False) == alone(mesh(3, each, 42_000), 70)
        assert len(searched) == times
    solution(mesh(3, wide, 42_000), 90, several=False)
    assert len(searched) == 3


def test_orders_that_are_known_spend_what_they_cost() -> None:
    """The first order of four takes 6 steps, 3 of them over GPUs that are in it; all six take 40."""
    seen = mesh(4, {(a, b): 50_000 for a in range(4) for b in range(a + 1, 4)}, 150_000)
    capacity = dict(enumerate(seen.capacity))

    def found(steps: int) -> tuple[int, bool, bool]:
        budget = Budget(steps)
        rings = len(list(RingOrders(seen, 20.0, _NVL, capacity, budget).closed()))
        return rings, budget.ended, budget.spend()

    assert [found(steps) for steps in (0, 5, 6, 10, 11)] == [(n, True, False) for n in (0, 0, 1, 1, 2)]
    assert [found(steps) for steps in (39, 40, 41)] == [(6, True, False), (6, False, False), (6, False, True)]
