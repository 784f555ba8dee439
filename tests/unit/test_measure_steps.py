"""Measured steps: their choice and order, what a step does, and how it is timed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from simulator.api import Session  # noqa: E402
from simulator.questions.options import StepOptions  # noqa: E402
from simulator.questions.step import StepQuestion  # noqa: E402
from validate.kinds import STEPS  # noqa: E402
from validate.machine.measure.bench import Bench, open_bench  # noqa: E402
from validate.machine.measure.built.description import Sizes, builtin_facts, names  # noqa: E402
from validate.machine.measure.case import Fatal, TimedRun, Unavailable  # noqa: E402
from validate.machine.measure.cases import stepping, steps  # noqa: E402  they import torch
from validate.machine.measure.cases.step_shapes import CPU_STEPS, MeasuredStep, gpu_steps, parallel_steps  # noqa: E402
from validate.machine.measure.cases.stepping import Stepper, make_step  # noqa: E402
from validate.machine.measure.cases.steps import Patience  # noqa: E402
from validate.machine.measure.run import DONE, Settings, measure  # noqa: E402
from validate.machine.measure.table import COLUMNS, RowFile, cell_text  # noqa: E402
from validate.tables.cells import csv_bytes, read_records  # noqa: E402
from validate.tables.names import MachineNames, RowNames  # noqa: E402
from validate.tables.table import tabulate  # noqa: E402

CPU = torch.device("cpu")
HOPPER = ("fp32", "fp16", "amp-fp16", "bf16", "amp-bf16", "tf32")
LENET = MeasuredStep("lenet", 2)
TINY = Sizes(64, 256, 4, 2, 5000)


@pytest.fixture(autouse=True)
def _settings_as_before() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False


# -- choice and order of steps ---------------------------------------------------------


@pytest.mark.parametrize("shapes", [list(gpu_steps(HOPPER)), list(CPU_STEPS), list(parallel_steps(8, HOPPER))])
def test_no_two_rows_say_the_same_and_all_columns_are_known(shapes: list[MeasuredStep]) -> None:
    threads = 2 if shapes[0].policy == "fp32" and shapes[0].model == "lenet" else 0
    cells = [tuple(shape.cells(threads).items()) for shape in shapes]
    assert len(set(cells)) == len(shapes)
    assert len({shape.row_id("m", threads) for shape in shapes}) == len(shapes)
    assert {name for row in cells for name, _ in row} < set(COLUMNS["training.csv"])


def test_a_row_id_says_the_step_and_the_machine_and_nothing_else() -> None:
    assert LENET.row_id("m") == MeasuredStep("lenet", 2).row_id("m")
    assert len({LENET.row_id("m"), LENET.row_id("n"), MeasuredStep("lenet", 3).row_id("m")}) == 3
    assert LENET.row_id("m") == "step-1b88b2d41cbc"  # fixed, since old tables are compared by it


@pytest.mark.parametrize("count", [10, 20, 40, 80, 160])
def test_any_beginning_is_a_sample_of_all(count: int) -> None:
    every = {shape.model for shape in gpu_steps(HOPPER)}  # a certificate has networks of its own
    assert every < set(names())
    first = list(itertools.islice(gpu_steps(HOPPER), count))
    models = Counter(shape.model for shape in first)
    assert len(models) >= min(count, len(every)) - 2
    assert max(models.values()) <= 2 * (count // len(every) + 1)  # two networks occur in two sizes
    policies = Counter(shape.policy.removeprefix("amp-") for shape in first)
    assert set(policies) >= {"fp32", "tf32", "bf16"}
    assert max(policies.values()) <= 0.7 * count
    trained = [shape for shape in first if shape.phase == "train"]
    assert 0.5 * count < len(trained)
    assert len({shape.issue for shape in first}) >= 2


def test_each_network_is_run_each_way() -> None:
    shapes = [shape for shape in gpu_steps(HOPPER) if shape.model == "resnet50"]
    assert {shape.batch for shape in shapes} == {8, 32, 128}
    assert {shape.policy for shape in shapes} == set(HOPPER) - {"fp16"}
    assert {shape.phase for shape in shapes} == {"train", "inference", "fwd", "bwd"}
    assert {shape.issue for shape in shapes} == {"eager", "graph", "compile"}
    assert {shape.optimizer for shape in shapes} == {"momentum", "sgd"}
    for flag in ("fused", "channels_last", "each"):
        assert {getattr(shape, flag) for shape in shapes} == {True, False}


def test_formats_that_a_device_has_not_are_left_out() -> None:
    assert {shape.policy for shape in gpu_steps(("fp32", "fp16", "amp-fp16"))} == {"fp32", "amp-fp16"}


def test_the_table_tells_what_is_measured() -> None:
    shape = MeasuredStep("gpt2", 4, "amp-bf16", optimizer="adam", fused=True, each=True, sizes=Sizes(64, layers=2))
    cells = shape.cells()
    assert (cells["dtype"], cells["optimizer"], cells["issue"], cells["sync"]) == (
        *("amp-bf16", "adam", "eager"),
        "each step",
    )
    assert (cells["seq_len"], cells["layers"], "hidden" in cells) == (64, 2, False)
    assert cells["schedule"] == "cross-entropy; fused optimizer"
    assert MeasuredStep("lenet", 4, phase="inference").cells(2)["schedule"] == "cpu threads=2"
    assert MeasuredStep("lenet", 4, phase="bwd").cells()["optimizer"] == "none"
    many = MeasuredStep("resnet50", 4, channels_last=True, n_gpus=8).cells()
    assert (many["n_gpus"], many["global_batch"], many["sync"]) == (8, 32, "ddp")
    assert many["schedule"] == "cross-entropy; channels last"


# -- agreement with the prediction -----------------------------------------------------


GPUS, CPUS = (RowNames(machines=MachineNames(named={"m": name})) for name in ("dgx-h100", "cpu-i7-3820"))


def read(shape: MeasuredStep, threads: int = 0) -> StepQuestion:
    cells = {name: cell_text(value) for name, value in shape.cells(threads).items()}
    cells |= {"machine": "m", "software": "torch 2.11.0+cu128", "dataset": "topocast_measure", "step_time_s": "1"}
    records = read_records(csv_bytes([tuple(cells), tuple(cells.values())]), "t.csv")
    table = tabulate(records, "training.csv", STEPS.needed, STEPS.columns, STEPS.name)
    asked = {column: table.cell(table.rows[0], column) for column in STEPS.asked}
    found = STEPS.read(asked.__getitem__, CPUS if threads else GPUS).question
    assert isinstance(found, StepQuestion)
    return found


_MODES = {"train": "train", "inference": "inference", "fwd": "forward", "bwd": "backward"}


@pytest.mark.parametrize(("shapes", "threads"), [(list(gpu_steps(HOPPER)), 0), (list(CPU_STEPS), 2)])
def test_a_prediction_is_asked_for_what_was_measured(shapes: list[MeasuredStep], threads: int) -> None:
    for shape in shapes:
        query = read(shape, threads)
        assert query.options == StepOptions(
            mode=_MODES[shape.phase],
            precision=shape.policy,
            optimizer=shape.optimizer if shape.phase == "train" else "none",
            compiled=shape.issue == "compile",
            cuda_graph=shape.issue == "graph",
            channels_last=shape.channels_last,
            fused_optimizer=shape.fused,
        )
        assert (query.workload, query.batch, query.micro_batches) == (shape.model, shape.batch, 1)
        assert query.gpus == (None if threads else (0,))
        assert query.threads == (threads or None)
        sizes = dict(query.sizes)
        assert sizes["loss"] == (shape.phase != "inference")
        assert sizes.get("sequence_length") == (shape.sizes.length or builtin_facts(shape.model).length or None)
        assert [sizes.get(name) for name in ("hidden", "heads", "layers", "vocabulary")] == [
            size or None for size in (shape.sizes.hidden, shape.sizes.heads, shape.sizes.layers, shape.sizes.vocabulary)
        ]


@pytest.mark.parametrize("shape", [shape for shape in CPU_STEPS if shape.model in ("gpt2", "lenet", "bert-base")])
def test_the_network_of_a_row_is_the_one_that_ran(shape: MeasuredStep) -> None:
    network = Session().network(replace(read(shape, 2), batch=1))
    module = Stepper(shape, torch.device("meta")).example.module
    assert sum(p.numel() for p in module.parameters()) == network.parameter_count


def test_the_loss_takes_time_where_a_row_says_that_it_was_timed() -> None:
    plain = MeasuredStep("gpt2", 4, "tf32", optimizer="adam")
    query = read(plain)
    with_loss, without = (
        GPUS.session.time_s(replace(query, sizes=tuple({**dict(query.sizes), "loss": loss}.items()))) for loss in (1, 0)
    )
    assert 1.02 < with_loss / without < 1.2  # logits of 50257 words, read and written several times in fp32
    assert GPUS.session.time_s(query) == with_loss > GPUS.session.time_s(read(replace(plain, fused=True)))


# -- execution of a step ---------------------------------------------------------------


def parameters(stepper: Stepper) -> list[Any]:
    return [p.detach().clone() for p in stepper.example.module.parameters()]


def changed(stepper: Stepper, measure: Callable[[], object]) -> bool:
    before = parameters(stepper)
    measure()
    return any(not torch.equal(a, b) for a, b in zip(before, parameters(stepper), strict=True))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("policy", ["fp32", "tf32", "bf16", "amp-bf16", "amp-fp16"])
def test_a_training_step_changes_parameters(policy: Any, optimizer: Any) -> None:
    stepper = Stepper(MeasuredStep("lenet", 2, policy, optimizer=optimizer), CPU)
    for group in stepper.optimizer.param_groups:
        group["lr"] = 0.1  # more than bf16 rounds away
    assert changed(stepper, stepper.train)
    assert {p.dtype for p in stepper.example.module.parameters()} == {
        torch.bfloat16 if policy == "bf16" else torch.float32
    }
    assert (stepper.scaler is not None) == (policy == "amp-fp16")


def test_gradients_are_those_of_one_step() -> None:
    stepper = Stepper(LENET, CPU)
    stepper.optimizer.param_groups[0]["lr"] = 0.0
    stepper.train()
    gradients = [p.grad.clone() for p in stepper.example.module.parameters()]
    stepper.train()  # with the same parameters: gradients must not accumulate
    for before, p in zip(gradients, stepper.example.module.parameters(), strict=True):
        torch.testing.assert_close(p.grad, before)
    stepper.clear()
    assert all(p.grad is None for p in stepper.example.module.parameters())


def test_parts_of_a_step_change_no_parameters() -> None:
    stepper = Stepper(MeasuredStep("lenet", 2, phase="bwd"), CPU)
    assert not changed(stepper, stepper.prepare)
    assert all(p.grad is None for p in stepper.example.module.parameters())
    assert not changed(stepper, stepper.backward)
    assert all(p.grad is not None for p in stepper.example.module.parameters())
    assert Stepper(MeasuredStep("lenet", 2, phase="fwd"), CPU).forward().requires_grad


def test_inference_keeps_nothing_and_drops_nothing() -> None:
    stepper = Stepper(MeasuredStep("alexnet", 1, "bf16", "inference"), CPU)
    seen = []
    stepper.example.module.register_forward_hook(
        lambda m, _, y: seen.append((m.training, y[0].requires_grad, y[0].dtype))
    )
    stepper.infer()
    assert seen == [(False, False, torch.bfloat16)]


@pytest.mark.parametrize(("policy", "dtype"), [("amp-bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_autocast_computes_products_in_half_precision(policy: Any, dtype: Any) -> None:
    stepper = Stepper(MeasuredStep("gpt2", 2, policy, optimizer="adam", sizes=TINY), CPU)
    seen = set()
    linear = next(m for m in stepper.example.module.modules() if isinstance(m, torch.nn.Linear))
    linear.register_forward_hook(lambda m, x, y: seen.add(y.dtype))
    stepper.train()
    assert seen == {dtype}


def test_images_lie_pixel_by_pixel_where_asked() -> None:
    stepper = Stepper(MeasuredStep("resnet18-28x28", 2, channels_last=True), CPU)
    weights = [p for p in stepper.example.module.parameters() if p.dim() == 4 and p.shape[2] > 1 and p.shape[1] > 1]
    assert all(w.is_contiguous(memory_format=torch.channels_last) for w in weights)
    seen = set()
    convolutions = [m for m in stepper.example.module.modules() if isinstance(m, torch.nn.Conv2d)]
    convolutions[3].register_forward_hook(lambda m, x, y: seen.add(y.is_contiguous(memory_format=torch.channels_last)))
    stepper.train()
    assert seen == {True}


@pytest.mark.parametrize(("shape", "fused"), [(LENET, None), (MeasuredStep("lenet", 2, fused=True), True)])
def test_the_optimiser_is_torchs_default_or_fused(shape: MeasuredStep, fused: bool | None) -> None:
    stepper = Stepper(shape, CPU)
    assert (stepper.optimizer.defaults["fused"], stepper.optimizer.defaults["foreach"]) == (fused, None)
    assert stepper.optimizer.defaults["momentum"] == 0.9


def test_tf32_is_on_where_asked_and_off_again_after() -> None:
    make_step(MeasuredStep("lenet", 1, "tf32"), CPU)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
    make_step(LENET, CPU)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)


def test_the_loss_is_read_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[float] = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda self: read.append(1) or item(self))
    Stepper(LENET, CPU).train()
    assert not read
    Stepper(MeasuredStep("lenet", 2, each=True), CPU).train()
    assert len(read) == 1


# -- capture -------------------------------------------------------------------------


def test_adam_is_capturable_in_a_graph_alone() -> None:
    assert Stepper(MeasuredStep("lenet", 2, issue="graph", optimizer="adam"), CPU).optimizer.defaults["capturable"]
    assert not Stepper(MeasuredStep("lenet", 2, optimizer="adam"), CPU).optimizer.defaults["capturable"]


@pytest.mark.parametrize(
    "shape",
    [
        MeasuredStep("lenet", 2, issue="graph"),
        MeasuredStep("lenet", 2, "amp-fp16", issue="graph"),
        MeasuredStep("lenet", 2, issue="graph", each=True),
    ],
)
def test_what_cannot_be_captured_is_told(shape: MeasuredStep) -> None:
    with pytest.raises(Unavailable, match="captured"):
        make_step(shape, CPU)


def bench(folder: Path) -> Bench:
    return open_bench("cpu", folder)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), Unavailable),
        (RuntimeError("the compiler does not work"), Unavailable),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), Fatal),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), torch.OutOfMemoryError),
    ],
)
def test_a_failed_capture_is_one_cases_fault_and_a_lost_device_is_not(
    error: Exception, expected: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(shape: MeasuredStep, device: Any) -> TimedRun:
        raise error

    monkeypatch.setattr(steps, "make_step", fail)
    here = bench(tmp_path)
    case = next(steps.on_one_device(iter([MeasuredStep("lenet", 2, issue="graph")]), here))
    with pytest.raises(expected):
        case.build(here)


# -- as a group ------------------------------------------------------------------------


def test_the_group_writes_rows_and_names_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (LENET, MeasuredStep("mlp", 4, issue="graph"), MeasuredStep("mlp", 4, phase="inference"))
    monkeypatch.setattr(steps.step_shapes, "CPU_STEPS", shapes)
    monkeypatch.setattr(steps, "_ON_CPU", Patience(longest_s=0.02, warmup_s=0.0))
    said: list[str] = []
    assert measure(Settings(tmp_path, ("steps",), "cpu", machine="here"), said.append) == DONE
    table = RowFile(tmp_path / "training.csv", COLUMNS["training.csv"])
    assert len(table) == 2
    threads = torch.get_num_threads()
    assert table.find({"machine": "here", "row_id": LENET.row_id("here", threads), "throughput_unit": "images/s"})
    assert any("graphs are captured on GPUs alone" in line for line in said)
    assert stepping.step_figures(LENET, median_of(0.5), [{}])["throughput"] == 4.0


def median_of(seconds: float) -> Any:
    from validate.machine.measure.timing import median_interval

    return median_interval([seconds])
