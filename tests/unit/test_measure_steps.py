"""Steps that are measured: which, in which order, what a step does, and how its time is taken."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

import torch.distributed as dist  # noqa: E402  torch is there

from validate.measure import step_ranks, stepping, steps  # noqa: E402  they import torch
from validate.measure.bench import Bench, open_bench  # noqa: E402
from validate.measure.case import Unavailable  # noqa: E402
from validate.measure.faults import Fatal  # noqa: E402
from validate.measure.networks.catalogue import ENTRIES, Sizes  # noqa: E402
from validate.measure.run import DONE, Settings, run  # noqa: E402
from validate.measure.statistics import FEWEST  # noqa: E402
from validate.measure.steady import CpuClock, Patience, Step, agreed_samples, steady_interval  # noqa: E402
from validate.measure.step_shapes import CPU_STEPS, StepShape, gpu_steps, parallel_steps  # noqa: E402
from validate.measure.stepping import Stepper, make_step  # noqa: E402
from validate.measure.table import COLUMNS, RowFile  # noqa: E402

CPU = torch.device("cpu")
HOPPER = ("fp32", "fp16", "amp-fp16", "bf16", "amp-bf16", "tf32")
LENET = StepShape("lenet", 2)
TINY = Sizes(8, 16, 2, 1, 50)


@pytest.fixture(autouse=True)
def _settings_as_before() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False


# -- which steps, and in which order ---------------------------------------------------


@pytest.mark.parametrize("shapes", [list(gpu_steps(HOPPER)), list(CPU_STEPS), list(parallel_steps(8, HOPPER))])
def test_no_two_rows_say_the_same_and_all_columns_are_known(shapes: list[StepShape]) -> None:
    threads = 2 if shapes[0].policy == "fp32" and shapes[0].model == "lenet" else 0
    cells = [tuple(shape.cells(threads).items()) for shape in shapes]
    assert len(set(cells)) == len(shapes)
    assert len({shape.row_id("m", threads) for shape in shapes}) == len(shapes)
    assert {name for row in cells for name, _ in row} < set(COLUMNS["training.csv"])


def test_a_row_id_says_the_step_and_the_machine_and_nothing_else() -> None:
    assert LENET.row_id("m") == StepShape("lenet", 2).row_id("m")
    assert len({LENET.row_id("m"), LENET.row_id("n"), StepShape("lenet", 3).row_id("m")}) == 3
    assert LENET.row_id("m") == "step-1b88b2d41cbc"  # tables of years ago are compared by it


@pytest.mark.parametrize("count", [10, 20, 40, 80, 160])
def test_any_beginning_is_a_sample_of_all(count: int) -> None:
    first = list(itertools.islice(gpu_steps(HOPPER), count))
    models = Counter(shape.model for shape in first)
    assert len(models) >= min(count, len(ENTRIES)) - 2
    assert max(models.values()) <= 2 * (count // len(ENTRIES) + 1)  # two networks are there in two sizes
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
    shape = StepShape("gpt2", 4, "amp-bf16", optimizer="adam", fused=True, each=True, sizes=Sizes(64, layers=2))
    cells = shape.cells()
    assert (cells["dtype"], cells["optimizer"], cells["issue"], cells["sync"]) == (
        *("amp-bf16", "adam", "eager"),
        "each step",
    )
    assert (cells["seq_len"], cells["layers"], "hidden" in cells) == (64, 2, False)
    assert cells["schedule"] == "cross-entropy; fused optimizer"
    assert StepShape("lenet", 4, phase="inference").cells(2)["schedule"] == "cpu threads=2"
    assert StepShape("lenet", 4, phase="bwd").cells()["optimizer"] == "none"
    many = StepShape("resnet50", 4, channels_last=True, n_gpus=8).cells()
    assert (many["n_gpus"], many["global_batch"], many["sync"]) == (8, 32, "ddp")
    assert many["schedule"] == "cross-entropy; channels last"


# -- what a step does ------------------------------------------------------------------


def parameters(stepper: Stepper) -> list[Any]:
    return [p.detach().clone() for p in stepper.example.module.parameters()]


def changed(stepper: Stepper, run: Callable[[], object]) -> bool:
    before = parameters(stepper)
    run()
    return any(not torch.equal(a, b) for a, b in zip(before, parameters(stepper), strict=True))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("policy", ["fp32", "tf32", "bf16", "amp-bf16", "amp-fp16"])
def test_a_training_step_changes_parameters(policy: Any, optimizer: Any) -> None:
    stepper = Stepper(StepShape("lenet", 2, policy, optimizer=optimizer), CPU)
    for group in stepper.optimizer.param_groups:
        group["lr"] = 0.1  # more than what bf16 rounds away
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
    stepper.train()  # with the same parameters: nothing may be added to what was there
    for before, p in zip(gradients, stepper.example.module.parameters(), strict=True):
        torch.testing.assert_close(p.grad, before)
    stepper.clear()
    assert all(p.grad is None for p in stepper.example.module.parameters())


def test_parts_of_a_step_change_no_parameters() -> None:
    stepper = Stepper(StepShape("lenet", 2, phase="bwd"), CPU)
    assert not changed(stepper, stepper.prepare)
    assert all(p.grad is None for p in stepper.example.module.parameters())
    assert not changed(stepper, stepper.backward)
    assert all(p.grad is not None for p in stepper.example.module.parameters())
    assert Stepper(StepShape("lenet", 2, phase="fwd"), CPU).forward().requires_grad


def test_inference_keeps_nothing_and_drops_nothing() -> None:
    stepper = Stepper(StepShape("alexnet", 1, "bf16", "inference"), CPU)
    seen = []
    stepper.example.module.register_forward_hook(lambda m, _, y: seen.append((m.training, y.requires_grad, y.dtype)))
    stepper.infer()
    assert seen == [(False, False, torch.bfloat16)]


@pytest.mark.parametrize(("policy", "dtype"), [("amp-bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_autocast_computes_products_in_half_precision(policy: Any, dtype: Any) -> None:
    stepper = Stepper(StepShape("gpt2", 2, policy, optimizer="adam", sizes=TINY), CPU)
    seen = set()
    stepper.example.module.layers[0].up.register_forward_hook(lambda m, x, y: seen.add(y.dtype))
    stepper.train()
    assert seen == {dtype}


def test_images_lie_pixel_by_pixel_where_asked() -> None:
    stepper = Stepper(StepShape("resnet18-28x28", 2, channels_last=True), CPU)
    weights = [p for p in stepper.example.module.parameters() if p.dim() == 4 and p.shape[2] > 1 and p.shape[1] > 1]
    assert all(w.is_contiguous(memory_format=torch.channels_last) for w in weights)
    seen = set()
    block = stepper.example.module[4]
    block.register_forward_hook(lambda m, x, y: seen.add(y.is_contiguous(memory_format=torch.channels_last)))
    stepper.train()
    assert seen == {True}


@pytest.mark.parametrize(("shape", "fused"), [(LENET, None), (StepShape("lenet", 2, fused=True), True)])
def test_the_optimiser_is_torchs_default_or_fused(shape: StepShape, fused: bool | None) -> None:
    stepper = Stepper(shape, CPU)
    assert (stepper.optimizer.defaults["fused"], stepper.optimizer.defaults["foreach"]) == (fused, None)
    assert stepper.optimizer.defaults["momentum"] == 0.9


def test_tf32_is_on_where_asked_and_off_again_after() -> None:
    make_step(StepShape("lenet", 1, "tf32"), CPU)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
    make_step(LENET, CPU)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)


def test_the_loss_is_read_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[float] = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda self: read.append(1) or item(self))
    Stepper(LENET, CPU).train()
    assert not read
    Stepper(StepShape("lenet", 2, each=True), CPU).train()
    assert len(read) == 1


# -- capture, with a device that only writes down what it is told ----------------------


class _Recorder:
    """Stands for ``torch.cuda``."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def Stream(self) -> Any:  # noqa: N802  torch's name
        return _Stream(self)

    def current_stream(self) -> Any:
        return _Stream(self)

    def synchronize(self) -> None:
        self.told.append("synchronize")

    def CUDAGraph(self) -> Any:  # noqa: N802
        return _Stream(self)

    def stream(self, stream: Any) -> Any:
        return _Scope(self, "side stream")

    def graph(self, graph: Any) -> Any:
        return _Scope(self, "capture")


class _Stream:
    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder

    def wait_stream(self, other: Any) -> None:
        self.recorder.told.append("wait")

    def replay(self) -> None:
        self.recorder.told.append("replay")


class _Scope:
    def __init__(self, recorder: _Recorder, name: str) -> None:
        self.recorder, self.name = recorder, name

    def __enter__(self) -> None:
        self.recorder.told.append(f"begin {self.name}")

    def __exit__(self, *_: object) -> None:
        self.recorder.told.append(f"end {self.name}")


def test_a_capture_has_one_step_after_some_on_another_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _Recorder()
    stepper = Stepper(StepShape("lenet", 2, issue="graph"), CPU)
    for name in ("Stream", "current_stream", "synchronize", "CUDAGraph", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(recorder, name))
    monkeypatch.setattr(stepper, "device", type("Device", (), {"type": "cuda"})())
    monkeypatch.setattr(stepper, "train", lambda: recorder.told.append("step"))
    clear = stepper.clear
    monkeypatch.setattr(stepper, "clear", lambda: (recorder.told.append("clear"), clear()))
    stepper.captured()()
    assert recorder.told == [
        *("wait", "begin side stream", "step", "step", "step", "end side stream", "wait"),
        *("clear", "synchronize", "begin capture", "step", "end capture", "replay"),
    ]


def test_adam_is_capturable_in_a_graph_alone() -> None:
    assert Stepper(StepShape("lenet", 2, issue="graph", optimizer="adam"), CPU).optimizer.defaults["capturable"]
    assert not Stepper(StepShape("lenet", 2, optimizer="adam"), CPU).optimizer.defaults["capturable"]


@pytest.mark.parametrize(
    "shape",
    [
        StepShape("lenet", 2, issue="graph"),
        StepShape("lenet", 2, "amp-fp16", issue="graph"),
        StepShape("lenet", 2, issue="graph", each=True),
    ],
)
def test_what_cannot_be_captured_is_told(shape: StepShape) -> None:
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
    def fail(shape: StepShape, device: Any) -> Step:
        raise error

    monkeypatch.setattr(steps, "make_step", fail)
    here = bench(tmp_path)
    case = next(steps._alone(iter([StepShape("lenet", 2, issue="graph")]), "m", 0))
    with pytest.raises(expected):
        case.build(here)


# -- how the time is taken -------------------------------------------------------------


class _Device:
    """A device beside a host: each step takes the host ``host_s`` to issue and the device ``device_s``."""

    def __init__(self, host_s: float, device_s: float, transient: int = 2) -> None:
        self.host_s, self.device_s, self.transient = host_s, device_s, transient
        self.now_s = self.free_s = 0.0
        self.settled = self.runs = 0

    def run(self) -> None:
        self.now_s += self.host_s
        self.free_s = max(self.free_s, self.now_s) + self.device_s
        self.runs += 1

    def mark(self) -> float:
        return max(self.free_s, 0.0) or self.now_s

    def between_s(self, earlier: float, later: float) -> float:
        return later - earlier

    def settle(self) -> None:
        self.now_s = max(self.now_s, self.free_s)
        self.settled += 1

    def look(self) -> None:
        pass


@pytest.mark.parametrize(("host_s", "device_s"), [(0.001, 0.010), (0.010, 0.001), (0.003, 0.003)])
def test_a_steady_step_takes_the_longer_of_host_and_device(host_s: float, device_s: float) -> None:
    device = _Device(host_s, device_s)
    found = steady_interval(device, Step(device.run), Patience(warmup_s=0.0))
    assert found.median == pytest.approx(max(host_s, device_s))
    assert found.relative == pytest.approx(0, abs=1e-9)
    assert found.samples >= FEWEST


def test_what_is_prepared_is_not_timed() -> None:
    device = _Device(0.0, 0.002, transient=0)

    def prepare() -> None:
        device.free_s += 5.0

    assert steady_interval(device, Step(device.run, prepare), Patience(warmup_s=0.0)).median == pytest.approx(0.002)


def test_a_step_of_many_seconds_is_run_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device(0.0, 60.0)
    monkeypatch.setattr("validate.measure.steady.time.perf_counter", lambda: device.free_s)
    found = steady_interval(device, Step(device.run), Patience())
    assert found.median == 60.0
    assert device.runs <= 2 + 3 + device.transient


def test_ranks_run_as_many_steps_whatever_each_of_them_takes() -> None:
    counts = []
    for device_s in (0.001, 0.5):
        device = _Device(0.0, device_s)
        counts.append(len(agreed_samples(device, Step(device.run), Patience(), lambda _: 0.1)))
        assert device.runs == 3 + counts[-1] + device.transient
    assert counts[0] == counts[1] >= FEWEST


def test_a_cpu_is_timed_by_its_clock() -> None:
    clock = CpuClock()
    assert clock.between_s(clock.mark(), clock.mark()) >= 0
    found = steady_interval(clock, Step(lambda: sum(range(10000))), Patience(longest_s=0.05, warmup_s=0.0))
    assert 0 < found.low <= found.median <= found.high


# -- several ranks ---------------------------------------------------------------------


def test_a_parallel_step_is_as_long_as_on_the_slowest_rank() -> None:
    assert step_ranks.slowest([[1.0, 5.0, 1.0], [2.0, 2.0, 2.0]]).median == 2.0


def test_a_rank_measures_a_step_of_a_wrapped_module(tmp_path: Path) -> None:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        samples, peak = step_ranks.rank_step(0, 1, StepShape("lenet", 2, n_gpus=2), False)
    finally:
        dist.destroy_process_group()
    assert len(samples) >= FEWEST
    assert min(samples) > 0
    assert peak is None


def test_ranks_are_started_when_asked_and_ended_with_the_last_case(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Fake:
        def __init__(self, count: int, *, cuda: bool) -> None:
            told.append(("start", count, cuda))
            self.alive = True

        def run(self, function: Any, *arguments: Any, **_: Any) -> list[Any]:
            told.append(("run", arguments[0].model))
            return [([0.1, 0.3, 0.2], 5), ([0.2, 0.1, 0.2], 7)]

        def close(self) -> None:
            told.append("close")

    monkeypatch.setattr(step_ranks, "Ranks", Fake)
    shapes = tuple(parallel_steps(2, HOPPER))[:2]
    cases = step_ranks.parallel_cases(shapes, "m")
    first = next(cases)
    assert not told
    work = first.build(bench(Path()))
    assert work.own is not None
    assert work.figures is not None
    found = work.own()
    assert (found.median, work.figures(found)["peak_bytes"]) == (0.2, 7)
    assert work.figures(found)["throughput"] == pytest.approx(2 * shapes[0].batch / 0.2)
    assert len(list(cases)) == 1
    assert told == [("start", 2, True), ("run", "resnet50"), "close"]


# -- as a group ------------------------------------------------------------------------


def test_the_group_writes_rows_and_names_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (LENET, StepShape("mlp", 4, issue="graph"), StepShape("mlp", 4, phase="inference"))
    monkeypatch.setattr(steps, "CPU_STEPS", shapes)
    monkeypatch.setattr(steps, "_ON_CPU", Patience(longest_s=0.02, warmup_s=0.0))
    said: list[str] = []
    assert run(Settings(tmp_path, ("steps",), "cpu", machine="here"), said.append) == DONE
    table = RowFile(tmp_path / "training.csv", COLUMNS["training.csv"])
    assert len(table) == 2
    threads = torch.get_num_threads()
    assert table.holds({"machine": "here", "row_id": LENET.row_id("here", threads), "throughput_unit": "images/s"})
    assert any("graphs are captured on GPUs alone" in line for line in said)
    assert stepping.step_figures(LENET, median_of(0.5), None)["throughput"] == 4.0


def median_of(seconds: float) -> Any:
    from validate.measure.statistics import median_interval

    return median_interval([seconds])
