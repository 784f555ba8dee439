"""Memory: the bandwidth of long streams, the effect of a cache, and its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.constants import DEFAULT
from simulator.devices.gpu.memory import achieved_bandwidth, l2_bandwidth, memory_time, resident_share
from simulator.questions.calibration import Calibration
from tests.devices import find_gpu

MEMORY = DEFAULT["memory"]


def test_reading_and_writing_together_is_slower_than_either_alone_and_slowest_half_and_half() -> None:
    a100 = find_gpu("a100-pcie-40gb")
    alone, mixed, half = (achieved_bandwidth(a100, share) for share in (1.0, 0.75, 0.5))
    assert alone == achieved_bandwidth(a100, 0.0)
    assert alone > mixed > half
    assert alone / half == pytest.approx(1.0 + MEMORY.turnaround)


@pytest.mark.parametrize(
    ("name", "published_GBps"),
    [  # scale and copy kernels: UoB-HPC/BabelStream and te42kyfo/gpu-benches; none of these was fitted to
        ("gtx-980", 169.3),
        ("titan-x-maxwell", 263.0),
        ("titan-xp", 432.7),
        ("a40", 658.0),
        ("mi210", 1399.0),
    ],
)
def test_long_streams_reach_what_others_measured(name: str, published_GBps: float) -> None:
    assert achieved_bandwidth(find_gpu(name)) / 1e9 == pytest.approx(published_GBps, rel=0.08)


def test_a_calibration_multiplies_bandwidth() -> None:
    t4 = find_gpu("t4")
    faster = replace(t4, calibration=Calibration(bandwidth=1.25))
    assert achieved_bandwidth(faster) == pytest.approx(1.25 * achieved_bandwidth(t4))
    assert memory_time(faster, 1e9, 1e9) == pytest.approx(memory_time(t4, 1e9, 1e9) / 1.25)


def test_a_working_set_is_found_in_the_cache_until_it_outgrows_it() -> None:
    l40 = find_gpu("l40")
    assert resident_share(l40, 0.0) == 1.0
    assert resident_share(l40, 0.5 * l40.l2_bytes) > 0.95
    assert resident_share(l40, MEMORY.l2_share * l40.l2_bytes) == pytest.approx(0.5)
    assert resident_share(l40, 3.0 * l40.l2_bytes) < 0.01
    assert resident_share(replace(l40, l2_bytes=0.0), 1.0) == 0.0


def test_one_pass_takes_its_bytes_at_the_rate_of_cache_or_memory() -> None:
    a100 = find_gpu("a100-pcie-40gb")
    assert memory_time(a100, 0.0, 0.0) == 0.0
    assert memory_time(a100, 4e9, 4e9) == pytest.approx(8e9 / achieved_bandwidth(a100), rel=1e-6)
    assert memory_time(a100, 1e6, 1e6) == pytest.approx(2e6 / l2_bandwidth(a100), rel=1e-6)


def test_what_is_read_and_written_in_place_has_to_fit_once() -> None:
    a100 = find_gpu("a100-pcie-40gb")
    n_bytes = 0.6 * a100.l2_bytes
    assert memory_time(a100, n_bytes, n_bytes, working_set_bytes=n_bytes) < 0.8 * memory_time(a100, n_bytes, n_bytes)


def test_a_cache_is_never_slower_than_the_memory_behind_it() -> None:
    slow = replace(find_gpu("mi210"), boost_clock_Hz=1e6)
    assert l2_bandwidth(slow) == achieved_bandwidth(slow)
