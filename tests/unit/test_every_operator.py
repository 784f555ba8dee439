"""Every operator and every class of kernels stands in every table, and what stands in none is refused in one line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, get_args

import pytest

from reports.colours import kernel_colour
from simulator.api import Session
from simulator.cli import run
from simulator.devices import KernelCost
from simulator.devices.dispatch import dispatch_time
from simulator.devices.gpu import Gpu
from simulator.devices.neighbours import kernel_axes, variety_of
from simulator.devices.predict import kernel_cost, roofline_s
from simulator.errors import InputError
from simulator.questions.options import Framework, Policy, StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.questions.words import parse_question, question_words
from simulator.results.step_view import kernel_words
from simulator.step.conversions import casts_of, wide_tensors
from simulator.step.fusion import fused_groups
from simulator.step.issue import launches_of
from simulator.step.precision import precision_of
from simulator.workload import operators as ops
from simulator.workload.backward import backward_steps, one_format, peak_forward_bytes, saved_tensors, training_flop
from simulator.workload.described import network_document, network_of
from simulator.workload.kernels import Gemm, Kernel, Rowwise, Streaming, kernel_class
from simulator.workload.network import Layer, Network, Parameter
from simulator.workload.operator import Rows
from simulator.workload.operators import (
    CLASSES,
    Convolution,
    FusedAttention,
    Gather,
    Operator,
    Phase,
    Pooling,
    Recurrence,
    known_operators,
    moves,
    reduction,
    softmax,
)
from simulator.workload.precision import Precision
from simulator.workload.split.context import context_split
from simulator.workload.split.tensor import tensor_split
from simulator.workload.zoo.registry import build_network
from validate.importing.kineto import class_of_prediction

OPERATORS: tuple[Operator, ...] = (
    ops.Linear(64, 32, 32),
    ops.Nf4Linear(64, 32, 32, nested=True),
    ops.GroupedLinear(64, 32, 32, experts=4, busiest=40, grouping="streams"),
    ops.ScatteredLinear(64, 32, 32, experts=4, chosen=2),
    moves.Permute(64, 32, 4),
    moves.Weighed(16, 32, 4),
    moves.Rotary(64 * 32),
    moves.Gated(64 * 32),
    ops.MatMul(16, 16, 16, 8),
    ops.Conv2d(4, 8, 8, 8, 8, 3, 3, pad_h=1, pad_w=1),
    ops.Elementwise("relu", 2048),
    ops.Softmax(64, 32),
    ops.Reduction(64, 32),
    ops.LayerNorm(64, 32),
    ops.BatchNorm(4, 8, 8, 8),
    reduction.LocalStatistics(4, 8, 8, 8),
    reduction.SyncedNorm(4, 8, 8, 8, ranks=8, waits=True),
    moves.RanksFound(8, 8, 8, 2048, waits=True),
    ops.Pool("max", 4, 8, 8, 8, 4, 4, 2, 2),
    ops.Embedding(64, 32, 128),
    ops.Recurrent("lstm", 4, 8, 64, 64),
    ops.Attention(4, 4, 16, 16, 8),
    ops.ChunkScan(4, 16, 4, 8, 2, 4, 8),
    ops.CrossEntropy(64, 32),
    softmax.HalfCrossEntropy(64, 32),
    ops.InPlaceCrossEntropy(64, 32),
    ops.LinearCrossEntropy(64, 32, 32),
    ops.Copy(2048),
    moves.RowsFound(128, 64),
    moves.RowsTaken(128, 64, 32),
    moves.RowsAdded(64, 64, 32, first=True),
)
KERNELS: tuple[Kernel, ...] = (
    Gemm(64, 32, 32, "fp32"),
    Convolution(ops.Conv2d(4, 8, 8, 8, 8, 3, 3), "fwd", "fp32"),
    Streaming("relu", 2048, 8192, 8192),
    Rowwise("softmax", 64, 32, "fp32"),
    Pooling("max", "fwd", 2048, 512, 4, "fp32"),
    Gather("fwd", 64, 32, 128, "fp32"),
    Recurrence("lstm", 4, 8, 64, 64, "fwd", "fp32"),
    FusedAttention("fwd", 4, 4, 4, 16, 16, 8, False, "fp32"),
)
PHASES: tuple[Phase, ...] = get_args(Phase)


def named(thing: object) -> str:
    return type(thing).__name__


def of_one(operator: Operator) -> Network:
    """Return a network of *operator* after a trained product, so that a gradient flows through it."""
    n_inputs = {ops.MatMul: 2, ops.Attention: 3}.get(type(operator), operator.least_inputs)
    before = Layer("first", ops.Linear(64, 32, 32), (0,), 1, (Parameter("first.weight", 1024),))
    inputs = tuple(range(1, n_inputs + 1))
    layer = Layer("asked", operator, inputs, n_inputs + 1, (Parameter("asked.weight", 64),))
    return Network("one", (before, layer), (2048,) * (n_inputs + 1) + (operator.output_elements,), 4)


def test_the_samples_are_all_classes() -> None:
    assert {*map(type, OPERATORS), ops.Exchange} == set(known_operators().values())
    assert set(map(type, KERNELS)) == set(CLASSES.values())


@pytest.mark.parametrize("operator", OPERATORS, ids=named)
@pytest.mark.parametrize("place", ["p3.2xlarge", "cpu"])
def test_every_operator_has_kernels_with_a_cost_in_every_phase(operator: Operator, place: str) -> None:
    session = Session()
    device = session.device(Where("p3.2xlarge"), "gpu0" if place != "cpu" else "cpu")
    classes = set()
    for phase in PHASES:
        assert dispatch_time(device, operator, phase) > 0.0
        for kernel in operator.kernels(phase, "fp32"):
            assert kernel_cost(device, kernel).time_s > 0.0
            classes.add(kernel_class(kernel))
    assert classes
    assert classes <= set(CLASSES)


@pytest.mark.parametrize("operator", OPERATORS, ids=named)
def test_every_operator_stands_in_the_tables_of_networks(operator: Operator) -> None:
    network = of_one(operator)
    assert saved_tensors(network, one_format(network, 4)).total_bytes >= 0
    assert peak_forward_bytes(network, one_format(network, 4)) > 0
    assert training_flop(network) >= network.flop
    assert network_of(json.loads(json.dumps(network_document(network)))).layers == network.layers
    assert [step.layer.name for step in backward_steps(network)][-1] == "first"
    assert fused_groups(network)
    if isinstance(operator, ops.LinearCrossEntropy | ops.Nf4Linear):
        with pytest.raises(InputError, match="tp=2 divides"):
            tensor_split(network, 2)
    else:
        assert tensor_split(network, 2).layers
    wide = wide_tensors(network)
    assert all(list(casts_of(layer, wide)) is not None for layer in network.layers)
    assert all(operator.kernels("fwd", "fp32", framework) for framework in get_args(Framework))
    gpu = Session().device(Where("dgx-b200"), "gpu0")
    assert all(precision_of(policy, operator, gpu) for policy in get_args(Policy))


@pytest.mark.parametrize("operator", OPERATORS, ids=named)
def test_every_operator_is_divided_with_sequences_or_refused_in_one_line(operator: Operator) -> None:
    attends = Layer("attends", ops.Attention(4, 4, 16, 16, 8), (1, 1, 1), 1)
    network = replace(of_one(operator), layers=(attends, *of_one(operator).layers))
    if isinstance(operator, ops.MatMul | ops.ChunkScan):
        with pytest.raises(InputError, match=r"cp=2 cannot divide asked, a .* of whole sequences$"):
            context_split(network, 2)
    else:
        assert context_split(network, 2).layers


@pytest.mark.parametrize("operator", OPERATORS, ids=named)
@pytest.mark.parametrize("device", ["gpu0", "cpu"])
def test_every_operator_runs_in_a_step(operator: Operator, device: str) -> None:
    session = Session()
    place = session.places(Where("p3.2xlarge")).find(device)
    for options in (StepOptions(precision="fp32"), StepOptions(precision="fp32", compiled=True)):
        issues = launches_of(place.device, of_one(operator), options)
        assert sum(issue.device_s for issue in issues) > 0.0


@pytest.mark.parametrize("operator", OPERATORS, ids=named)
def test_every_operator_is_asked_in_words(operator: Operator) -> None:
    question = OperatorQuestion(where=Where("p3.2xlarge"), operator=operator)
    assert parse_question(question_words(question), question.where) == question


@pytest.mark.torch
def test_every_operator_is_measured() -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    from validate.machine.measure.built.operators import OperatorMaker

    made = {name.removeprefix("_make_").replace("_", "") for name in dir(OperatorMaker) if name.startswith("_make_")}
    missing = {name for name in map(named, OPERATORS) if name.lower() not in made}
    losses = {"HalfCrossEntropy", "InPlaceCrossEntropy", "LinearCrossEntropy"}
    fused = {"Gated", "Permute", "Rotary", "ScatteredLinear", "Weighed"}
    looped = {"RowsAdded", "RowsFound", "RowsTaken"}
    halves = {"LocalStatistics", "RanksFound", "SyncedNorm"}  # of a module that needs ranks
    assert missing == {"ChunkScan", "Nf4Linear", *losses, *fused, *looped, *halves}  # plain torch has none of them


@pytest.mark.parametrize("kernel", KERNELS, ids=named)
def test_every_class_of_kernels_stands_in_every_table(kernel: Kernel) -> None:
    name = kernel_class(kernel)
    session = Session()
    for device in (session.device(Where("p3.2xlarge"), place) for place in ("gpu0", "cpu")):
        assert kernel_cost(device, kernel).time_s > 0.0
        assert roofline_s(device, kernel) > 0.0
    assert len(kernel_axes(kernel)) == len(kernel.axes) > 0
    assert {*kernel.axis_words} == {
        a for a, b in zip(kernel.axes, kernel_axes(kernel), strict=True) if isinstance(b, str)
    }
    assert variety_of(kernel).split()[0] == name
    assert set(variety_of(kernel).split()[2:]) <= set(kernel.variety_words) or name == "rowwise"
    assert kernel.old_bytes(forward=False, has_parameters=False) >= 0.0
    assert class_of_prediction({"class": name, "bound by": "memory"}) != "other"
    assert kernel_words(name) == kernel.word != ""
    assert kernel_colour(name) == kernel.colour


# -- an operator that nobody measured ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Butterflies(Kernel):
    """The passes of a Fourier transform; only GPUs have a cost of them."""

    gpu_cost: ClassVar[str] = f"{__name__}:butterflies_cost"

    elements: int

    @property
    def bytes(self) -> int:
        return 8 * self.elements


def butterflies_cost(gpu: Gpu, kernel: Butterflies) -> KernelCost:
    return KernelCost(kernel.bytes / gpu.memory_bandwidth_Bps, "memory", 0.0, kernel.bytes)


@dataclass(frozen=True, slots=True)
class Fourier(Rows):
    """A Fourier transform of each of ``rows`` rows of ``cols`` elements."""

    saved = ()

    def forward_kernels(self, precision: Precision) -> tuple[Kernel, ...]:
        return (Butterflies(self.output_elements),)

    def input_gradients(self, precision: Precision) -> tuple[Kernel, ...]:
        return self.forward_kernels(precision)


def test_an_operator_says_what_is_asked_of_all() -> None:
    @dataclass(frozen=True, slots=True)
    class Forgetful(Rows):
        def forward_kernels(self, precision: Precision) -> tuple[Kernel, ...]:
            return ()

    with pytest.raises(TypeError, match="input_gradients"):
        Forgetful(64, 32)  # type: ignore[abstract]
    assert not hasattr(Operator, "result"), "an operator that says no size would count as one number"


def network_of_transforms() -> Network:
    product = Layer("in", ops.Linear(64, 32, 32), (0,), 1, (Parameter("in.weight", 1024),))
    return Network("transforms", (product, Layer("fft", Fourier(64, 32), (1,), 2)), (2048,) * 3, 4)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let networks have the operator."""
    monkeypatch.setattr(Session, "network", lambda self, question: network_of_transforms())


def step(device: str, mode: str = "inference") -> StepQuestion:
    options = StepOptions(mode=mode, precision="fp32")  # type: ignore[arg-type]
    return StepQuestion(where=Where("p3.2xlarge"), workload="mine", batch=4, device=device, options=options)


@pytest.mark.usefixtures("added")
def test_an_operator_that_nobody_measured_has_no_band() -> None:
    session = Session()
    alone = OperatorQuestion(where=Where("p3.2xlarge"), operator=Fourier(64, 32))
    of_tables = session.confidence(step("gpu0"))
    of_step = session.step(step("gpu0")).confidence
    for sure in (session.confidence(alone), of_tables, of_step):
        assert sure.band is None
        assert sure.words == "not measured"
        assert "no measured butterflies kernels" in sure.outside
        assert sure.to_dict()["band"] is None
        assert sure.why == ""
    assert session.step(step("gpu0")).trust is None


@pytest.mark.usefixtures("added")
def test_text_and_json_say_that_it_was_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "p3.2xlarge", "--workload", "mlp", "--batch", "4", "--mode", "inference"]
    assert run([*words, "--plot", str(tmp_path / "step.svg")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "not validated: no measured butterflies kernels" in text
    assert "80 % band not measured" in text
    assert "trust" not in text
    assert run([*words, "--verbose"]) == 0
    assert "past errors no such step has been measured" in " ".join(capsys.readouterr().out.split())
    assert "butterflies" in (tmp_path / "step.svg").read_text(encoding="utf-8")
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["band"], document["trust"]) == (None, None)
    assert "no measured butterflies kernels" in document["outside"]
    with pytest.raises(InputError, match="measured butterflies kernels correct no others"):
        variety_of(Butterflies(8))


@pytest.mark.usefixtures("added")
def test_what_has_no_cost_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="the cost of butterflies kernels on a CPU is not modelled") as refused:
        Session().step(step("cpu"))
    assert "\n" not in str(refused.value)


def test_kernels_without_rows_of_their_class_are_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "op:pool,kind=max,batch=32,channels=64,h-in=112,w-in=112,h-out=56,w-out=56,kernel-h=3,kernel-w=3"
    assert run(["--topology", "p3.2xlarge", "--workload", asked]) == 0
    text = capsys.readouterr().out
    assert "not validated: no measured pooling kernels" in text
    assert "not measured" in text
    assert "rows on" not in text
    network = Session().confidence(StepQuestion(where=Where("p3.2xlarge"), workload="resnet50", batch=32))
    assert network.band is not None  # whole steps of such networks were measured, pooling and all


@pytest.mark.parametrize(
    ("size", "value", "said"),
    [
        ("stride_h", 0, "layer 0: stride_h must be whole numbers from 1; got '0'"),
        ("batch", 0, "layer 0: batch must be whole numbers from 1; got '0'"),
        ("groups", 4, "layer 0: groups=4 must divide c-in=1 and c-out=6"),
        ("h_in", 1, "layer 0: its output has no elements: the window is larger than what it moves over"),
    ],
)
def test_sizes_without_a_result_are_refused_where_a_file_describes_them(size: str, value: int, said: str) -> None:
    found = network_document(build_network("lenet", batch=2, loss=True))
    network_of(found)
    found["layers"][0]["sizes"] |= {"pad_h": 0, size: value}
    with pytest.raises(ValueError, match=re.escape(said)):
        network_of(found)
