"""Bandwidth of one core from its caches and from memory, compared with published figures for the same design.

The figures are from Kerncraft 0.8.18's machine files (RRZE-HPC): likwid-bench on one core at a fixed clock, the median
of load, copy and triad, in GB/s.
"""

from statistics import median

import pytest

from simulator.devices.cpu import cpu_from_part
from simulator.devices.cpu.memory import bandwidth, own_share
from simulator.topology.catalogue import load_part
from simulator.topology.parts import CpuPart

# By machine: a built-in part of its design; GHz; load, copy and triad from the second level, the third, and memory.
PUBLISHED = {
    "E5-2680": ("xeon-e5-2670", 2.7, (31.5, 36.7, 37.8), (23.5, 21.9, 24.7), (12.3, 11.1, 12.4)),
    "E5-2690 v2": ("xeon-e5-2697-v2", 3.0, (35.1, 40.9, 42.4), (27.0, 24.9, 27.5), (15.7, 12.1, 12.2)),
    "E5-2695 v3": ("xeon-e5-2698-v3", 2.3, (59.4, 36.7, 48.8), (27.9, 21.5, 25.7), (12.8, 10.3, 11.9)),
    "E5-2697 v4": ("xeon-e5-2699-v4", 2.3, (58.2, 34.7, 48.7), (28.8, 20.3, 24.4), (11.2, 9.0, 10.1)),
    "Gold 6148": ("xeon-gold-6148", 2.4, (110.9, 70.3, 85.8), (24.4, 24.3, 24.5), (14.3, 13.1, 13.9)),
    "Gold 6248": ("xeon-gold-6248", 2.5, (111.0, 68.9, 90.0), (23.9, 23.6, 23.7), (13.0, 14.6, 15.2)),
    "EPYC 7452": ("epyc-7502", 2.35, (74.6, 74.7, 73.1), (54.1, 56.5, 58.3), (21.8, 17.9, 22.1)),
}


def rates(name: str, clock_Hz: float) -> tuple[float, float, float]:
    """Return the bandwidth of one core, at this clock, from the second level, the third level and memory."""
    part = load_part(name)
    assert isinstance(part, CpuPart)
    part = part.model_copy(update={"clock": clock_Hz, "turbo_clock": None, "vector_clock": None})
    cpu = cpu_from_part(name, part, threads=1)
    _, second, third = (level.size for level in part.caches.values())
    return bandwidth(cpu, second / 2, 1), bandwidth(cpu, third / 2, 1), bandwidth(cpu, 8e9, 1)


@pytest.mark.parametrize("machine", PUBLISHED)
def test_one_core_draws_from_each_level_what_was_published(machine) -> None:
    name, GHz, *levels = PUBLISHED[machine]
    found = rates(name, GHz * 1e9)
    for rate_Bps, published, within in zip(found, levels, (0.1, 0.15, 0.4), strict=True):
        assert rate_Bps == pytest.approx(median(published) * 1e9, rel=within)


def test_the_middle_of_the_errors_is_small() -> None:
    errors = [
        abs(rate_Bps / median(published) / 1e9 - 1)
        for name, GHz, *levels in PUBLISHED.values()
        for rate_Bps, published in zip(rates(name, GHz * 1e9), levels, strict=True)
    ]
    assert median(errors) < 0.05


def test_cores_of_a_chiplet_share_its_way_to_memory() -> None:
    part = load_part("epyc-9654")
    assert isinstance(part, CpuPart)
    way_Bps = part.caches["l3"].memory_bandwidth
    assert way_Bps is not None
    one, eight, sixteen = (bandwidth(cpu_from_part("cpu", part, threads=n), 8e9, n) for n in (1, 8, 16))
    assert one < eight == pytest.approx(way_Bps)
    assert sixteen == pytest.approx(2 * way_Bps)


def test_who_reads_more_through_a_cache_has_more_of_it() -> None:
    assert own_share(0.0, 5e9) == 1.0
    assert own_share(5e9, 5e9) == 0.5
    assert own_share(5e9, 45e9) == 0.9


def test_a_stream_beside_neighbours_keeps_less_of_the_cache_and_of_the_way_to_memory() -> None:
    part = load_part("epyc-9654")
    assert isinstance(part, CpuPart)
    last = part.caches["l3"].model_copy(update={"neighbours": 20e9})
    shared = part.model_copy(update={"caches": {**part.caches, "l3": last}})
    alone, beside = (cpu_from_part("cpu", each, threads=8) for each in (part, shared))
    for size in (2e6, 28e6):
        assert bandwidth(beside, size, 8) <= bandwidth(alone, size, 8)
    assert bandwidth(beside, 28e6, 1) < 0.9 * bandwidth(alone, 28e6, 1)
    way_Bps = last.memory_bandwidth
    assert way_Bps is not None
    assert bandwidth(beside, 8e9, 8) == pytest.approx(way_Bps - 20e9)
    greedy = shared.model_copy(update={"caches": {**part.caches, "l3": last.model_copy(update={"neighbours": 1e12})}})
    assert bandwidth(cpu_from_part("cpu", greedy, threads=8), 8e9, 8) == pytest.approx(way_Bps / 2)
