"""Layouts of images in compiled networks: Inductor's own rules are the oracle, versions decide which of them hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.api import Session
from simulator.cli import run as simulate
from simulator.devices.gpu import Gpu
from simulator.questions.options import Mode, StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Month, Software, Where, month_of
from simulator.step.conversions import NODES_PER_LAYER, lays_out_channels_last
from simulator.step.issue import launches_of
from simulator.step.lowering import Lowering
from simulator.workload.kernels import Streaming
from simulator.workload.network import Layer, Network
from simulator.workload.operators import Conv2d, Convolution, Elementwise
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu
from tests.examples import few
from validate.kinds import STEPS
from validate.tables.names import RowNames
from validate.tables.table import read_table

COMPILED = StepOptions(compiled=True, precision="amp-fp16")
SERVED = replace(COMPILED, mode="inference")
DEVICE = find_gpu("rtx-4090")
convolutions = st.builds(
    lambda c_in, c_out, side, kernel, groups: Conv2d(
        4, c_in * groups, c_out * groups, side, side, kernel, kernel, 1, 1, kernel // 2, kernel // 2, groups
    ),
    st.sampled_from((1, 2, 16, 64, 128, 256)),
    st.sampled_from((1, 2, 16, 32, 64, 128, 256)),
    st.sampled_from((7, 14, 56)),
    st.sampled_from((1, 3)),
    st.sampled_from((1, 1, 1, 2, 16)),
)


def of(month: Month | None, name: str = "rtx-4090") -> Gpu:
    found = Session().device(Where(name), software=Software(libraries=month))
    assert isinstance(found, Gpu)
    return found


def network_of(shapes: list[Conv2d], others: int = 0) -> Network:
    operators = [*shapes, *[Elementwise("relu", 8)] * others]
    layers = tuple(Layer(str(i), each, (2 * i,), 2 * i + 1) for i, each in enumerate(operators))
    return Network("convolutions", layers, (8,) * (2 * len(layers)), 4)


@pytest.mark.slow
@example([Conv2d(4, 1, 128, 7, 7, 1, 1), Conv2d(4, 2, 1, 7, 7, 3, 3, 1, 1, 1, 1)], False)
@settings(max_examples=few(60), deadline=None)
@given(st.lists(convolutions, min_size=1, max_size=4), st.booleans())
def test_the_rules_are_those_of_inductor(shapes: list[Conv2d], is_inference: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    from torch._inductor.graph import GraphLowering
    from torch._subclasses.fake_tensor import FakeTensorMode

    graph = torch.fx.Graph()
    with FakeTensorMode():
        for i, each in enumerate(shapes):
            image, filters = graph.placeholder(f"x{i}"), graph.placeholder(f"w{i}")
            image.meta["val"] = torch.empty(each.batch, each.c_in, each.h_in, each.w_in, device="cuda")
            sides = each.c_out, each.c_in // each.groups, each.kernel_h, each.kernel_w
            filters.meta["val"] = torch.empty(*sides, device="cuda")
            pads = [each.pad_h, each.pad_w]
            found = graph.call_function(
                torch.ops.aten.convolution.default,
                (image, filters, None, [1, 1], pads, [1, 1], False, [0, 0], each.groups),
            )
            found.meta["val"] = torch.empty(each.batch, each.c_out, each.h_out, each.w_out, device="cuda")
    graph.output(found)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    mode: Mode = "inference" if is_inference else "train"
    assert lays_out_channels_last(
        DEVICE, network_of(shapes), replace(COMPILED, mode=mode)
    ) == GraphLowering.decide_layout_opt(module, is_inference=is_inference)


@pytest.mark.parametrize(
    ("network", "trained", "served_first", "served"),
    [
        ("resnet50", True, True, True),
        ("vgg16", True, True, True),
        ("densenet121", False, False, True),  # 128 to 32 channels, of nine taps
        ("resnext101-32x4d", False, False, True),  # a few of its FLOPs are in groups
        ("vit-b16", False, False, False),  # one convolution in a large graph
    ],
)
def test_which_networks_are_turned_by_version(network: str, trained: bool, served_first: bool, served: bool) -> None:
    built = build_network(network, batch=2)
    asked = [((2023, 3), COMPILED), ((2023, 3), SERVED), ((2023, 10), COMPILED), ((2023, 10), SERVED)]
    asked += [((2024, 1), SERVED), (None, COMPILED), (None, SERVED)]
    found = [lays_out_channels_last(of(month), built, options) for month, options in asked]
    assert found == [False, False, trained, served_first, served, trained, served]


def test_nothing_else_turns_images() -> None:
    built = build_network("resnet18", batch=2)
    for options in (replace(COMPILED, compiled=False), replace(COMPILED, framework="tensorflow")):
        assert not lays_out_channels_last(DEVICE, built, options)
    assert not lays_out_channels_last(find_gpu("mi300x"), built, COMPILED)
    few = 300 // NODES_PER_LAYER
    assert lays_out_channels_last(DEVICE, network_of([Conv2d(4, 64, 256, 14, 14, 3, 3)], few - 2), COMPILED)
    assert not lays_out_channels_last(DEVICE, network_of([Conv2d(4, 64, 256, 14, 14, 3, 3)], few - 1), COMPILED)


def test_a_turned_step_is_one_by_pixels_and_its_input_is_turned_once() -> None:
    built = build_network("resnet18", batch=64)
    turned, before = (launches_of(of(month), built, SERVED) for month in (None, (2023, 3)))
    by_pixels = launches_of(of(None), built, replace(SERVED, channels_last=True))

    def seconds(launches: object, kind: str) -> float:
        return sum(launch.work.time_s for launch in launches if launch.work.kinds[0] == kind)  # type: ignore[attr-defined]

    assert seconds(turned, "convolution") == pytest.approx(seconds(by_pixels, "convolution"))
    assert seconds(turned, "convolution") < seconds(before, "convolution")
    lowering = Lowering(DEVICE, built, replace(SERVED, precision="fp16"))
    read = built.elements[built.layers[0].inputs[0]]
    assert [run.kernel for run in lowering.casts(built.layers[0], forward=True)] == [
        Streaming("copy", read, 2 * read, 2 * read)
    ]
    assert not any(list(lowering.casts(layer, forward=True)) for layer in built.layers[1:])


def test_compilers_add_a_bias_where_the_result_is_read() -> None:
    built = build_network("vgg16", batch=2)
    compiled, eager = (Lowering(DEVICE, built, replace(SERVED, compiled=c)) for c in (True, False))
    for layer in built.layers:
        if isinstance(layer.operator, Conv2d):
            runs = [
                each.layer(each.computed(layer, "fwd"), "fwd", each.mix(layer), has_parameters=True)
                for each in (compiled, eager)
            ]
            passes = [sum(not isinstance(run.kernel, Convolution) for run in found) for found in runs]
            assert passes == [0, 1], layer.name
    pooled = network_of([Conv2d(4, 64, 256, 14, 14, 3, 3, bias=True)])  # nothing reads it
    assert Lowering(DEVICE, pooled, SERVED).computed(pooled.layers[0], "fwd") == pooled.layers[0].operator


@pytest.mark.parametrize(
    ("text", "month"),
    [
        ("torch-2.1", (2023, 10)),
        ("PyTorch 1.13.1", (2022, 10)),
        ("2020-10", (2020, 10)),
        ("torch-9.1", None),
        ("2.1", None),
    ],
)
def test_versions_of_pytorch_are_months(text: str, month: Month | None) -> None:
    assert month_of(text) == month


def test_the_version_of_the_compiler_is_said_with_the_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "rtx-4090", "--workload", "resnet50", "--batch", "64", "--mode", "inference"]
    words += ["--compile", "--precision", "amp-fp16"]
    for said in ([], ["--libraries", "torch-2.0"]):
        assert simulate([*words, *said]) == 0
    first, second = (
        float(line.split()[1]) for line in capsys.readouterr().out.splitlines() if line.startswith("step ")
    )
    assert second > 1.05 * first
    assert simulate([*words, "--libraries", "torch-9.9"]) == 2
    assert (
        "--libraries torch-9.9: a month is needed, such as 2020-10, or a version of PyTorch" in capsys.readouterr().err
    )


def test_a_pytorch_that_compiles_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "a100-pcie-80gb", "--workload", "resnet50", "--batch", "8", "--compile"]
    assert simulate([*words, "--libraries", "torch-1.13"]) == 2
    said = "--compile: torch.compile came with PyTorch 2.0; --libraries torch-2.0 or later is allowed, "
    assert f"{said}not --libraries torch-1.13" in capsys.readouterr().err
    for allowed in ("--libraries torch-2.0", "--libraries 2022-10 --framework tensorflow"):  # XLA is older
        assert simulate([*words, *allowed.split()]) == 0


def test_rows_that_xla_compiled_keep_the_layout_of_xla() -> None:
    text = "machine,model,framework,software,phase,dtype,batch_per_gpu,step_time_s\n"
    for software, framework in (("TensorFlow 1.15; XLA", "tensorflow"), ("torch 2.4; torch.compile", "pytorch")):
        raw = f"{text}p3.2xlarge,resnet50,{framework},{software},train,fp32,64,0.2\n".encode()
        table = read_table(raw, "steps.csv", STEPS.needed, STEPS.columns, STEPS.name)
        (row,) = table.rows
        question = STEPS.read(lambda column, table=table, row=row: table.cell(row, column), RowNames()).question  # type: ignore[misc]
        assert isinstance(question, StepQuestion)
        assert (question.options.compiled, question.options.framework) == (True, framework)
