"""Copies: their kinds, how bytes are counted, and the pairs of devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.clocked_cuda import clocked_bench  # noqa: E402
from validate.machine.measure.bench import Bench  # noqa: E402
from validate.machine.measure.case import (  # noqa: E402
    ladder,
    random_bytes,
    spread,
)
from validate.machine.measure.cases import copies  # noqa: E402
from validate.machine.measure.host import host_bytes  # noqa: E402
from validate.machine.measure.timing import median_interval  # noqa: E402

pytestmark = pytest.mark.torch


def _keys(cases: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(case.columns.items()) for case in cases]


def test_a_cpu_copies_within_the_host(tmp_path: Path) -> None:
    bench = Bench(torch.device("cpu"), "cpu", 64 << 20, 1 << 20, tmp_path)
    cases = list(copies.cases(bench))
    assert len(set(_keys(cases))) == len(cases)
    assert {case.columns["kind"] for case in cases} == {"h2h"}
    assert max(int(case.columns["bytes"]) for case in cases) <= 8 << 20
    work = cases[-1].build(bench)
    assert work.watch is not None
    assert work.watch.sample(work.call, 2) > 0


def test_every_kind_of_copy_runs_and_pairs_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = clocked_bench(monkeypatch, tmp_path, count=3)
    monkeypatch.setattr(copies, "_MOST", 64 << 10)
    monkeypatch.setattr(copies, "_PAIRS_MOST", 64 << 10)
    cases = list(copies.cases(bench))
    assert len(set(_keys(cases))) == len(cases)
    for case in cases:
        work = case.build(bench)
        assert work.watch is not None
        assert work.watch.sample(work.call, 1) > 0
    largest = [case.columns for case in cases if case.columns["bytes"] == 64 << 10]
    ways = {(c["src"], c["dst"]) for c in largest if c["kind"] == "p2p"}
    assert ways == {(f"cuda:{a}", f"cuda:{b}") for a in range(3) for b in range(3) if a != b}
    assert sum(c["kind"] == "p2p_bidir" for c in largest) == 3
    kinds = {(c["kind"], c["pinned"]) for c in largest}
    assert kinds >= {("h2d", 1), ("h2d", 0), ("d2h", 1), ("d2h", 0), ("d2d", ""), ("bidir", 1)}


def test_a_gpu_that_was_named_is_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = replace(clocked_bench(monkeypatch, tmp_path, count=3), alone=True)
    kinds = {case.columns["kind"] for case in copies.cases(bench)}
    assert kinds == {"h2d", "d2h", "d2d", "bidir", "h2h"}


def test_buffers_fit_the_host_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "host_bytes", lambda: 64 << 20)
    cases = list(copies.cases(clocked_bench(monkeypatch, tmp_path, count=2)))
    most = {str(case.columns["kind"]): int(case.columns["bytes"]) for case in cases[::-1]}
    assert max(size for kind, size in most.items() if "p2p" not in kind) == 4 << 20
    assert most["p2p"] == 256 << 20


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 4 << 30),
        ({"proc/meminfo": "MemTotal: 99 kB\nMemAvailable:   2048 kB\n"}, 2 << 20),
        ({"proc/meminfo": "MemAvailable: 2048 kB\n", "2/memory.max": "max\n", "2/memory.current": "5\n"}, 2 << 20),
        ({"proc/meminfo": "MemAvailable: 2048 kB\n", "2/memory.max": "900\n", "2/memory.current": "500\n"}, 400),
        ({"2/memory.max": "900\n", "2/memory.current": "1000\n"}, 0),
        ({"2/memory/memory.limit_in_bytes": "900\n", "2/memory/memory.usage_in_bytes": "1\n"}, 899),
    ],
)
def test_the_host_gives_what_its_system_and_the_container_leave(
    files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / name.replace("2/", "sys/fs/cgroup/", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert host_bytes(tmp_path) == expected


@pytest.mark.parametrize("size", [1, 4096, 5 << 20])
def test_what_is_copied_is_chance(size: int) -> None:
    found = random_bytes(size, "cpu")
    assert len(found) == size
    shares = torch.bincount(found.int(), minlength=256) / size
    assert size == 1 or (shares.min() > 0 and shares.max() < 0.02)


@pytest.mark.parametrize(
    ("kind", "src", "dst", "pinned"),
    [
        *(("d2h", "cuda:0", "host", 1), ("d2d", "cuda:0", "cuda:0", "")),
        *(("h2h", "host", "host", ""), ("p2p", "cuda:0", "cuda:1", "")),
    ],
)
def test_what_is_timed_is_a_copy_of_the_bytes(
    kind: str, src: str, dst: str, pinned: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = clocked_bench(monkeypatch, tmp_path, count=2)
    made: list[Any] = []

    def fresh(size: int, device: Any, *, pinned: bool = False) -> Any:
        made.append(torch.full((size,), len(made) + 1, dtype=torch.uint8))
        return made[-1]

    monkeypatch.setattr(copies, "random_bytes", fresh)
    work = copies._case(kind, src, dst, 4096, pinned).build(bench)
    work.call(0)
    assert [int(x[0]) for x in made] == [1, 1]
    assert all(len(x) == 4096 and bool((x == x[0]).all()) for x in made)


def test_rates_count_each_byte_once_and_both_ways_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = clocked_bench(monkeypatch, tmp_path)
    took = median_interval([1e-3] * 6)
    ends = ("d2d", "cuda:0", "cuda:0"), ("bidir", "cuda:0", "host")
    one, both = (copies._case(*each, 1 << 20).build(bench) for each in ends)
    assert one.figures is not None
    assert both.figures is not None
    assert one.figures(took)["GBps"] == pytest.approx(1.048576)
    assert both.figures(took)["GBps"] == pytest.approx(2 * 1.048576)
    assert one.figures(took)["latency_s"] is None
    least = copies._case(*ends[0], 4096).build(bench)
    assert least.figures is not None
    assert least.figures(took)["latency_s"] == 1e-3


def test_a_ladder_s_order_shows_its_ends_first_and_leaves_nothing_out() -> None:
    for last in (4, 100, 1 << 14, 1 << 22):
        sizes = ladder(4, last)
        order = spread(sizes)
        assert sorted(order) == sizes
        assert order[:2] == ([sizes[-1], sizes[0]] if len(sizes) > 1 else sizes)
    assert spread(list(range(5))) == [4, 0, 2, 1, 3]
    assert spread([]) == []
