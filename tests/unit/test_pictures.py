"""Structure of figures: no text leaves the canvas, and no two texts overlap."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from simulator.api import load_machine
from simulator.api.session import Session
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import Layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import SlowLink, Where
from tests.asked import exchange_on

figure_module = pytest.importorskip("reports.figure")
from matplotlib import rc_context  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402

from reports.colours import ACTIVITIES, BEST, HELD, MARKED_SERIES, OTHER, strategy_series  # noqa: E402
from reports.figure import edge_curve  # noqa: E402
from reports.file import STYLE  # noqa: E402
from reports.kernels import roofline_points, roofs_of  # noqa: E402
from reports.layout import lay_out_view  # noqa: E402
from reports.step import draw_steps  # noqa: E402
from reports.view import make_view  # noqa: E402
from simulator.collectives.registry import strategy_names  # noqa: E402
from simulator.results.held import held_over, not_followed  # noqa: E402
from simulator.workload.operators import CLASSES  # noqa: E402

MACHINES = [
    *(("p3.16xlarge", None, None), ("dgx-h100", None, None), ("dgx-h100", 4, None), ("gb200-nvl72", None, None)),
    *(("dgx-2", None, None), ("dgx-a100-80gb", 2, None), ("8x-rtx-a6000", None, None), ("p2.16xlarge", None, None)),
    *(("p5.48xlarge", None, None), ("8x-mi300x", None, None), ("4x-gtx1080ti", 2, "10Gbit/s")),
    ("10x-a100-pcie-nvlink", None, None),
]
SERVERS = Path(__file__).parents[2] / "simulator" / "scenarios" / "files" / "machines" / "workers-and-servers.yaml"
COMPARED = ("nccl", "ring", "tree", "gpu0")
KINDS: dict[str, Callable] = {
    "one": lambda machine: [[exchange_on(machine, "nccl", 160e6)]],
    "several": lambda machine: [[exchange_on(machine, name, 160e6) for name in COMPARED]],
    "sweep": lambda machine: [[exchange_on(machine, name, size) for name in COMPARED[:2]] for size in (1e3, 1e6, 1e9)],
}
_SLACK = 1.0  # points; text boxes include the space above and below letters


figure_of, figure_of_steps = figure_module.draw.__wrapped__, draw_steps.__wrapped__


@pytest.fixture(autouse=True)
def drawn_in_our_style():
    with rc_context(fname=STYLE):
        yield


def faults(figure: Figure) -> list[str]:
    """Return the faults of the texts in *figure*: outside the canvas, or overlapping."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    renderer = canvas.get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    unseen = hidden(figure)
    found = []
    boxes = []
    for text in figure.findobj(Text):
        words = text.get_text().strip()
        if not words or not text.get_visible() or text in unseen:
            continue
        box = text.get_window_extent(renderer)
        if box.x0 < -_SLACK or box.y0 < -_SLACK or box.x1 > width + _SLACK or box.y1 > height + _SLACK:
            found.append(f"'{words}' leaves the canvas")
        boxes.append((words, box))
    for (a, one), (b, other) in itertools.combinations(boxes, 2):
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        down = min(one.y1, other.y1) - max(one.y0, other.y0)
        if across > _SLACK and down > 0.25 * min(one.height, other.height):
            found.append(f"'{a}' lies on '{b}'")
    return found


def hidden(figure: Figure) -> set[Text]:
    """Return the texts that are not drawn: those of hidden axes, except the axes' own, and hidden tick labels."""
    found: set[Text] = set()
    for axes in figure.axes:
        if not axes.axison:
            found.update(set(axes.findobj(Text)) - set(axes.texts))
        for axis in (axes.xaxis, axes.yaxis):
            drawn = {label for tick in axis._update_ticks() for label in (tick.label1, tick.label2)}
            labels = {label for tick in [*axis.majorTicks, *axis.minorTicks] for label in (tick.label1, tick.label2)}
            found |= labels - drawn
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(m, id=f"{m[0]}x{m[1] or 1}", marks=pytest.mark.slow if i > 1 else ())
        for i, m in enumerate(MACHINES)
    ],
)
def test_texts_of_a_machine_stay_apart(machine: tuple, kind: str):
    name, n_nodes, fabric = machine
    by_size = KINDS[kind](load_machine(name, n_nodes=n_nodes, fabric=fabric))
    assert faults(figure_of(by_size)) == []


def test_a_server_that_binds_is_drawn_beside_a_worker():
    """The bottleneck is at a machine that holds no rank."""
    machine = load_machine(str(SERVERS))
    result = exchange_on(machine, "parameter-server", 100e6)
    view = make_view(result)
    assert view.note == "nodes 0 and 8 of 12 nodes shown"
    assert view.more == "and 7 more nodes like node 0 and 3 more without GPUs"
    assert [edge.is_bottleneck for edge in view.edges].count(True) == 1
    assert faults(figure_of([[result]])) == []


CROSSING = [*MACHINES, ("4x-l40s-2x400g", 2, None), ("dgx-b300", None, None), ("oci-bm.gpu4.8", 2, None)]


@pytest.mark.slow
@pytest.mark.parametrize("machine", CROSSING, ids=lambda machine: f"{machine[0]}x{machine[1] or 1}")
def test_no_line_is_behind_a_device_that_it_does_not_lead_to(machine: tuple):
    name, n_nodes, fabric = machine
    view = make_view(exchange_on(load_machine(name, n_nodes=n_nodes, fabric=fabric), "ring", 1e6))
    layout = lay_out_view(view)
    for edge in view.edges:
        (xa, ya), (xb, yb), (xc, yc), (xd, yd) = edge_curve(view, edge, layout)
        for i in range(101):
            t = i / 100
            parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            x, y = (sum(p * q for p, q in zip(parts, of, strict=True)) for of in ((xa, xb, xc, xd), (ya, yb, yc, yd)))
            for number, (symbol, (px, py)) in enumerate(zip(view.symbols, layout.positions, strict=True)):
                behind = abs(x - px) < 0.35 and abs(y - py) < 0.18
                assert number in (edge.a, edge.b) or not behind, f"{edge} is behind {symbol.label}"


def test_a_text_that_leaves_the_canvas_or_lies_on_another_is_found():
    figure = Figure(figsize=(3, 2))
    figure.text(0.5, 0.5, "middle")
    figure.text(0.52, 0.52, "on it")
    figure.text(0.9, 0.9, "far too long for what is left")
    assert faults(figure) == ["'far too long for what is left' leaves the canvas", "'middle' lies on 'on it'"]


STEPS = {
    "one device": [StepQuestion(where=Where("p3.2xlarge"), workload="resnet50", batch=32)],
    "several devices": [StepQuestion(where=Where("p3.16xlarge"), workload="bert-base", batch=8)],
    "a pipeline": [
        StepQuestion(where=Where("p3.8xlarge"), workload="gpt2", batch=2, micro_batches=4, layout=Layout(pp=4))
    ],
    "ways": [
        StepQuestion(where=Where("p3.16xlarge"), workload="vgg16", batch=16, strategy=name)
        for name in ("nccl", "ring", "gpu0")
    ],
    "machines": [
        StepQuestion(where=Where(name), workload="resnet50", batch=16) for name in ("p3.8xlarge", "dgx-h100", "8x-a40")
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("which", STEPS)
def test_texts_of_a_step_stay_apart(which: str):
    session = Session()
    results = [session.step(question) for question in STEPS[which]]
    assert faults(figure_of_steps(results)) == []


def test_a_step_of_many_classes_whose_host_lacks_memory_says_so_above_its_legend_of_two_lines():
    where = Where("4x-v100-sxm2-16gb-4xopa")
    sizes = (("layers", 100), ("hidden", 4096), ("heads", 32), ("sequence_length", 64), ("attention", "fused"))
    asked = StepQuestion(
        where=where,
        workload="gpt2",
        batch=1,
        gpus=(0,),
        sizes=sizes,
        offload="optimizer+parameters",
        options=StepOptions(framework="deepspeed-zero3"),
    )
    result = Session().step(asked)
    assert result.offload is not None
    assert result.tightest.need.fits
    figure = figure_of_steps([result])
    assert faults(figure) == []
    assert re.match(r"does not fit, [1-9][\d.]* GB too much memory on the host;", figure.texts[1].get_text())


@pytest.mark.parametrize("which", ["one", "ways"])
def test_a_step_says_at_its_foot_what_was_changed(which: str):
    asked = StepQuestion(where=Where("p3.16xlarge"), workload="mlp", batch=64, stragglers=(("gpu3", 1.5),))
    session, results = Session(), []
    for name in ("nccl", "ring")[: 2 if which == "ways" else 1]:
        question = replace(asked, strategy=name)
        result = session.step(question)
        results.append(replace(result, changed=session.changed(question, result.step_time_s)))
    figure = figure_of_steps(results)
    assert faults(figure) == []
    takes = " nccl takes" if which == "ways" else ""
    assert figure.texts[-1].get_text().startswith(f"changed: gpu3 takes 1.5 times as long:{takes} ")


def test_a_link_that_is_down_is_drawn_and_explained():
    where = Where("p3.16xlarge", slow_links=(SlowLink("gpu0-gpu3", 0.0), SlowLink("plx2-gpu5", 0.0)))
    result = Session().collective(CollectiveQuestion(where=where, size_bytes=1e6, strategy="ring"))
    view = make_view(result)
    down = {(view.symbols[e.a].label, view.symbols[e.b].label): e.count for e in view.edges if e.is_down}
    assert {frozenset(ends): count for ends, count in down.items()} == {
        frozenset(("gpu0", "gpu3")): 2,
        frozenset(("gpu5", "plx2")): 1,
    }
    figure = figure_of([[result]])
    assert faults(figure) == []
    assert "down: NVLink, 2 x 25 GB/s = 50 GB/s" in [text.get_text() for text in figure.texts]
    dashed = [patch for axes in figure.axes for patch in axes.patches if patch.get_linestyle() != "solid"]
    assert len(dashed) == 2


@pytest.mark.slow
def test_an_svg_has_a_title_and_a_description():
    machine = load_machine("p3.16xlarge")
    svg = figure_module.draw([[exchange_on(machine, "nccl", 160e6)]], "svg")
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert [child.tag for child in root][:2] == [f"{space}title", f"{space}desc"]
    assert root.findtext(f"{space}title").startswith("p3.16xlarge: all-reduce over 8 GPUs, nccl takes ")
    assert "links under nccl" in root.findtext(f"{space}desc")


def test_the_legend_says_which_parts_and_links_there_are():
    svg = figure_module.draw([[exchange_on(load_machine("p3.16xlarge"), "nccl", 160e6)]], "svg").decode()
    for words in ("gpu0-7: NVIDIA Tesla V100 SXM2 16 GB", "NVLink, 2 x 25 GB/s = 50 GB/s", "NVLink, 25 GB/s", "PCIe, "):
        assert f">{words}" in svg
    widths = {
        edge.count: edge.weight
        for edge in figure_module.make_view(exchange_on(load_machine("p3.16xlarge"), "nccl", 1e6)).edges
        if edge.kind == "nvlink"
    }
    assert widths[1] < widths[2]


def test_one_colour_stands_for_one_thing():
    kernels = [known.colour for known in CLASSES.values() if known.colour]
    colours = [*ACTIVITIES.values(), *kernels, *HELD.values(), BEST, OTHER]
    colours += [colour for colour, _ in MARKED_SERIES]
    assert len(set(colours)) == len(colours)
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    common = ("nccl", "ring", "tree", "gpu0", "bidirectional-ring", "multi-ring", "parameter-server", "hierarchical")
    assert set(common) <= set(strategy_names())
    assert len({strategy_series(name) for name in common}) == len(common)


def test_products_lie_under_the_roofs():
    session = Session()
    step = session.step(StepQuestion(where=Where("p3.2xlarge"), workload="bert-base", batch=8)).step
    roofs = roofs_of(step)
    assert roofs is not None
    peaks, memory_Bps = roofs
    assert peaks == {"fp32": pytest.approx(15.7e12, rel=0.01)}
    points = roofline_points(step)
    assert points
    peak = max(peaks.values())
    assert all(point.rate <= 1.001 * min(peak, point.intensity * memory_Bps) for point in points)
    computing = sum(kind.time_s for kind in step.kinds if kind.flop)
    assert sum(point.time_s for point in points) == pytest.approx(computing, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ("p3.2xlarge", {}),
        ("p3.16xlarge", {}),
        ("p3.16xlarge", {"layout": Layout(zero=3)}),
        ("p3.16xlarge", {"layout": Layout(zero=2)}),
        ("p3.16xlarge", {"layout": Layout(tp=4, sp=True)}),
        ("p3.16xlarge", {"micro_batches": 3}),
        ("p3.2xlarge", {"micro_batches": 2}),
        ("p3.2xlarge", {"options": StepOptions(recompute="full")}),
        ("p3.16xlarge", {"options": StepOptions(precision="amp-fp16", recompute="operators")}),
    ],
)
def test_memory_over_a_step_is_highest_as_the_step_needs(where: str, asked: dict[str, Any]):
    result = Session().step(StepQuestion(where=Where(where), workload="bert-base", batch=8, **asked))
    held = held_over(result)
    assert max(each.total_bytes for each in held) == pytest.approx(result.tightest.need.total_bytes)
    assert [each.at_s for each in held] == sorted(each.at_s for each in held)
    assert held[0].activations_bytes == 0.0
    if "micro_batches" not in asked:
        middle = max(held, key=lambda each: each.activations_bytes)
        assert 0.15 < middle.at_s / result.step_time_s < 0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "count"),
    [
        (Layout(pp=4), 8),
        (Layout(pp=4), 4),
        (Layout(pp=4), 2),
        (Layout(pp=4, schedule="gpipe"), 8),
        (Layout(pp=4, schedule="zero-bubble"), 8),
        (Layout(pp=4, schedule="zero-bubble"), 2),
        (Layout(pp=4, schedule="zb-v"), 8),
        (Layout(pp=4, schedule="dualpipe"), 8),
        (Layout(pp=4, vp=3), 4),
        (Layout(pp=4, vp=3), 8),
        (Layout(pp=2, zero=1), 8),
        (Layout(pp=2, zero=2), 4),
        (Layout(pp=2, tp=2, sp=True), 4),
    ],
)
@pytest.mark.parametrize("batch", [1, 8])
def test_memory_of_the_fullest_stage_is_highest_as_it_needs(layout: Layout, count: int, batch: int):
    result = Session().step(
        StepQuestion(where=Where("p3.16xlarge"), workload="bert-base", batch=batch, layout=layout, micro_batches=count)
    )
    held = held_over(result)
    assert max(each.total_bytes for each in held) == pytest.approx(result.tightest.need.total_bytes)
    assert [each.at_s for each in held] == sorted(each.at_s for each in held)
    assert held[0].activations_bytes == 0.0


@pytest.mark.parametrize(
    ("where", "precision", "layout"),
    [
        ("p3.2xlarge", "amp-fp16", Layout()),
        ("p3.8xlarge", "fp32", Layout()),
        ("p3.8xlarge", "amp-fp16", Layout(zero=2)),
        ("p3.8xlarge", "master-fp16", Layout(pp=2)),
    ],
)
def test_what_is_drawn_on_top_of_one_another_is_what_is_needed(where: str, precision: Any, layout: Layout):
    options = StepOptions(precision=precision, optimizer="adam", fused_optimizer=True)
    question = StepQuestion(where=Where(where), workload="bert-base", batch=8, layout=layout, options=options)
    result = Session().step(replace(question, micro_batches=2))
    (axes,) = [
        each for each in figure_of_steps([result]).axes if each.get_title(loc="left").startswith("memory over the step")
    ]
    top = max(path.vertices[:, 1].max() for drawn in axes.collections for path in drawn.get_paths())
    assert top == pytest.approx(result.tightest.need.total_bytes)


def test_later_micro_batches_run_beside_the_gradients_of_the_first():
    """PyTorch adds to ``grad``: the activations of the second micro-batch coexist with all gradients."""
    once, twice = (
        Session().step(StepQuestion(where=Where("p3.2xlarge"), workload="bert-base", batch=8, micro_batches=count))
        for count in (1, 2)
    )
    gradients = 4 * twice.step.trained_count
    most = max(held_over(twice), key=lambda each: each.activations_bytes + each.gradients_bytes)
    assert most.gradients_bytes == gradients
    assert twice.tightest.need.allocated_bytes > once.tightest.need.allocated_bytes + 0.5 * gradients


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"options": StepOptions(mode="inference")}, "for training steps"),
    ],
)
def test_why_memory_is_not_followed_is_said(asked: dict[str, Any], words: str):
    result = Session().step(StepQuestion(where=Where("p3.8xlarge"), workload="bert-base", batch=8, **asked))
    assert held_over(result) == []
    assert words in not_followed(result)


def test_memory_of_unknown_size_is_drawn_without_its_end():
    question = StepQuestion(where=Where("xeon-gold-6148"), workload="lenet", batch=2)
    texts = [text.get_text() for axes in figure_of_steps([Session().step(question)]).axes for text in axes.texts]
    assert not any(text.endswith(" there") for text in texts)
