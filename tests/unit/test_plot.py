"""Figures: which parts of a machine they show and where; equal results give equal files."""

from __future__ import annotations

import itertools

import pytest

from simulator.api import load_machine
from tests.asked import exchange_on

reports_figure = pytest.importorskip("reports.figure")
from reports.layout import lay_out_view  # noqa: E402
from reports.view import make_view  # noqa: E402

SHOWN = ["p3.16xlarge", "4gpu-pcie", "dgx-2", "dgx-a100-80gb", "p5.48xlarge", "gb200-nvl72", "8x-mi300x"]


def result_of(topology: str, strategy: str = "ring", n_nodes: int | None = None, fabric: str | None = None):
    return exchange_on(load_machine(topology, n_nodes=n_nodes, fabric=fabric), strategy, 160e6)


@pytest.mark.parametrize("topology", SHOWN)
def test_no_two_symbols_overlap(topology: str) -> None:
    view = make_view(result_of(topology))
    places = lay_out_view(view).positions
    assert len(view.symbols) <= 60
    for (xa, ya), (xb, yb) in itertools.combinations(places, 2):
        assert abs(xa - xb) >= 0.94 or abs(ya - yb) >= 0.5


def test_the_bottleneck_is_marked_once() -> None:
    view = make_view(result_of("p3.16xlarge"))
    assert sum(edge.is_bottleneck for edge in view.edges) == 1
    assert view.busiest.startswith("gpu0->gpu1, ")
    assert view.note == ""


def test_a_large_cluster_is_one_node() -> None:
    view = make_view(result_of("p3.16xlarge", n_nodes=8))
    assert view.note == "node 0 of 8 nodes shown"
    assert sum(symbol.kind == "gpu" for symbol in view.symbols) == 8
    assert [symbol.label for symbol in view.symbols if symbol.kind == "gpu"][:2] == ["gpu0", "gpu1"]
    assert sum(edge.is_bottleneck for edge in view.edges) == 1


def test_two_small_nodes_are_both_shown() -> None:
    view = make_view(result_of("4gpu-pcie", n_nodes=2, fabric="ethernet-10g"))
    assert {symbol.host for symbol in view.symbols} == {-1, 0, 1}
    assert view.note == ""


def test_many_gpus_are_cut_and_said() -> None:
    view = make_view(result_of("gb200-nvl72"))
    assert view.note == "16 of 72 GPUs shown"
    assert sum(symbol.kind == "gpu" for symbol in view.symbols) == 16


def test_many_nics_share_a_symbol() -> None:
    labels = [s.label for s in make_view(result_of("p5.48xlarge")).symbols if s.kind == "nic"]
    assert labels[0] == "efa0-3"
    assert len(labels) == 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_the_same_results_give_the_same_file(kind: str) -> None:
    found = [[result_of("p3.16xlarge"), result_of("p3.16xlarge", "tree")]]
    first = reports_figure.draw(found, kind)
    assert first == reports_figure.draw(found, kind)
    assert first.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[kind])


def test_a_picture_names_strategies_devices_and_the_bottleneck() -> None:
    text = reports_figure.draw([[result_of("p3.16xlarge"), result_of("p3.16xlarge", "gpu0")]], "svg").decode()
    for words in ("ring", "gpu7", "plx3", "cpu1", "gpu0 needs at least", "that of ring, is"):
        assert words in text


@pytest.mark.slow
@pytest.mark.parametrize("strategies", [["ring"], ["ring", "tree"]])
def test_sweeps_and_single_strategies_are_drawn(strategies: list[str]) -> None:
    machine = load_machine("4gpu-pcie")
    by_size = [[exchange_on(machine, name, size) for name in strategies] for size in (8, 8e3, 8e6)]
    assert "bus bandwidth over size" in reports_figure.draw(by_size, "svg").decode()
    assert reports_figure.draw(by_size[-1:], "svg")


def test_a_sweep_has_ticks_in_a_narrow_range_and_its_whole_heading() -> None:
    machine = load_machine("4gpu-pcie")
    flat = [[exchange_on(machine, name, size) for name in ("gpu0", "ring")] for size in (1e3, 1e6, 1e9)]
    figure = reports_figure.draw.__wrapped__(flat)
    figure.canvas.draw()
    panel = figure.axes[0]
    assert panel.get_yscale() == "linear"
    assert panel.get_ylim()[0] == 0
    assert sum(bool(label.get_text()) for label in panel.get_yticklabels()) > 4
    words = [text.get_text().replace("\n", " ") for text in figure.texts]
    assert any(text.endswith("nobody can select an ideal schedule") for text in words)
    heading = next(text for text in figure.texts if "nobody" in text.get_text())
    assert panel.get_window_extent().y1 <= heading.get_window_extent().y0
    assert "devices" not in words  # none has a part
    rising = reports_figure.draw.__wrapped__(
        [[exchange_on(load_machine("p3.16xlarge"), "nccl", size)] for size in (1e3, 1e9)]
    )
    assert rising.axes[0].get_yscale() == "log"
    assert "devices" in [text.get_text() for text in rising.texts]
