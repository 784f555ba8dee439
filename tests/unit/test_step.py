"""A step on one device: order of launches, the clock compared with a recurrence, gradients, fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import load_machine
from simulator.api.fitting import largest_fitting
from simulator.constants import DEFAULT
from simulator.devices import KernelCost
from simulator.devices.dispatch import dispatch_time, host_time
from simulator.devices.optimizer import tensor_passes
from simulator.devices.predict import kernel_cost
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.places import Places
from simulator.questions.options import Optimizer, StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.step.fusion import fused_groups
from simulator.step.issue import launches_of
from simulator.step.launch import DeviceWork, Launch
from simulator.step.memory import MemoryNeed, memory_need
from simulator.training.micro_batches import Batches
from simulator.training.plan import plan_alone
from simulator.training.roles import Role
from simulator.workload.backward import backward_steps, gradient_order, training_flop
from simulator.workload.kernels import Rowwise
from simulator.workload.network import Layer, Network, Parameter, block_name
from simulator.workload.operators import BatchNorm, Elementwise, LayerNorm, Linear, MatMul, Operator, Softmax
from tests.asked import alone_on

MACHINE = load_machine("p3.2xlarge")
PLACES = Places(MACHINE)


def perceptron(rows: int = 64, width: int = 1000) -> Network:
    """Return two linear layers with a ReLU between, and a residual sum around the second."""
    n = rows * width
    weight = width * width + width
    return Network(
        "perceptron",
        (
            Layer("first", Linear(rows, width, width), (0,), 1, (Parameter("first.weight", weight),)),
            Layer("relu", Elementwise("relu", n), (1,), 2),
            Layer("second", Linear(rows, width, width), (2,), 3, (Parameter("second.weight", weight),)),
            Layer("sum", Elementwise("add", n, 2), (2, 3), 4),
        ),
        (n,) * 5,
        rows,
    )


def issue(host_s: float, device_s: float, waits: bool = False) -> Launch:
    work = DeviceWork(("gemm",), (KernelCost(device_s, "compute", 0.0, 0.0),), device_s)
    return Launch("x", "forward", host_s, work, waits)


def recurrence(issues: list[Launch]) -> float:
    """Return the end of the last kernel: each starts once it is launched and the previous one has ended."""
    host_s = end_s = 0.0
    for each in issues:
        host_s = max(host_s, end_s if each.waits else 0.0) + each.host_s
        end_s = max(end_s, host_s) + each.device_s
    return end_s


def end_s(issues: list[Launch], device: str, *, cuda_graph: bool = False) -> float:
    """Return the end of the last of *issues*, as computed by the engine."""
    role = Role(PLACES.find(device), -1, 1, tuple(issues))
    options = StepOptions(cuda_graph=cuda_graph)
    question = StepQuestion(where=Where(MACHINE.name), workload="any", batch=1, options=options)
    return execute(MACHINE, plan_alone(MACHINE, role, question, Batches(1))).end_s


@given(st.lists(st.tuples(st.floats(0, 1e-3), st.floats(0, 1e-3), st.booleans()), min_size=1, max_size=30))
def test_the_device_runs_what_the_host_has_issued(times: list[tuple[float, float, bool]]) -> None:
    issues = [issue(host_s, device_s, waits) for host_s, device_s, waits in times]
    assert end_s(issues, "gpu0") == pytest.approx(recurrence(issues), rel=1e-9)
    graph_s = DEFAULT["dispatch"].graph_launch_s + sum(device_s for _, device_s, _ in times)
    assert end_s(issues, "gpu0", cuda_graph=True) == pytest.approx(graph_s, rel=1e-9)
    alone_s = sum(host_s + device_s for host_s, device_s, _ in times)
    assert end_s(issues, "cpu0") == pytest.approx(alone_s, rel=1e-9, abs=1e-15)


def test_gradients_are_ready_from_the_last_layer_to_the_first() -> None:
    assert gradient_order(perceptron()) == ["second.weight", "first.weight"]


def test_the_first_layer_needs_no_gradient_of_its_input() -> None:
    phases = {step.layer.name: step.phase for step in backward_steps(perceptron())}
    assert phases == {"sum": "bwd_data", "second": "bwd", "relu": "bwd_data", "first": "bwd_weight"}
    network = perceptron()
    assert training_flop(network) == network.flop // 2 * 5


def test_gradients_of_a_fork_are_added_once() -> None:
    added = {step.layer.name: step.added_elements for step in backward_steps(perceptron())}
    assert added == {"sum": (), "second": (64_000,), "relu": (), "first": ()}


def test_a_shared_parameter_is_ready_after_its_first_use_and_its_gradients_are_added() -> None:
    table = Parameter("table", 50)
    network = Network(
        "tied",
        (
            Layer("in", Linear(2, 5, 10), (0,), 1, (table,)),
            Layer("mix", Elementwise("relu", 20), (1,), 2),
            Layer("out", Linear(2, 10, 5), (2,), 3, (table,)),
        ),
        (10, 20, 20, 10),
        2,
    )
    steps = {step.layer.name: step for step in backward_steps(network)}
    assert steps["out"].ready == ()
    assert steps["in"].ready == (table,)
    assert steps["in"].added_elements == (50,)
    assert network.parameter_count == 50


def test_a_layer_without_parameters_before_it_has_no_backward_pass() -> None:
    network = Network(
        "frozen input",
        (
            Layer("scale", Elementwise("mul_scalar", 10), (0,), 1),
            Layer("linear", Linear(1, 10, 10), (1,), 2, (Parameter("w", 100),)),
        ),
        (10, 10, 10),
        1,
    )
    assert [step.layer.name for step in backward_steps(network)] == ["linear"]


def test_both_factors_of_a_product_of_activations_get_gradients() -> None:
    network = Network(
        "scores",
        (
            Layer("q", Linear(4, 8, 8), (0,), 1, (Parameter("q", 64),)),
            Layer("qq", MatMul(4, 4, 8, layout="NT"), (1, 1), 2),
        ),
        (32, 32, 16),
        1,
    )
    assert training_flop(network) - network.flop == 2 * (2 * 4 * 4 * 8) + 2 * 4 * 8 * 8


def test_parts_add_up_to_the_step_and_kinds_to_what_the_device_computes() -> None:
    result = alone_on(MACHINE, perceptron(4096, 4096))
    assert sum(result.parts_s.values()) == pytest.approx(result.step_time_s, rel=1e-12)
    assert sum(kind.time_s for kind in result.kinds) == pytest.approx(result.busy_s, rel=1e-12)
    assert sum(layer.time_s for layer in result.layers) == pytest.approx(result.busy_s, rel=1e-12)
    assert list(result.parts_s) == ["forward", "backward", "update"]
    assert result.bound == "compute"
    assert result.waiting_s < 0.1 * result.step_time_s


def test_a_small_network_is_bound_by_the_host_and_a_graph_helps() -> None:
    eager = alone_on(MACHINE, perceptron(1, 16))
    graph = alone_on(MACHINE, perceptron(1, 16), StepOptions(cuda_graph=True))
    assert eager.bound == "host"
    assert graph.step_time_s < 0.5 * eager.step_time_s


def test_modes_are_parts_of_a_training_step() -> None:
    def busy_s(mode: str) -> float:
        return alone_on(MACHINE, perceptron(2048, 2048), StepOptions(mode=mode)).busy_s  # type: ignore[arg-type]

    assert busy_s("inference") == pytest.approx(busy_s("forward"), rel=1e-3)
    assert busy_s("train") > busy_s("forward") + busy_s("backward")


def test_optimizers_move_more_bytes_the_more_they_remember() -> None:
    def update_s(optimizer: str) -> float:
        options = StepOptions(optimizer=optimizer)  # type: ignore[arg-type]
        return alone_on(MACHINE, perceptron(2048, 4096), options).parts_s.get("update", 0.0)

    assert 0.0 == update_s("none") < update_s("sgd") < update_s("momentum") < update_s("adam")


def test_a_fused_optimiser_needs_no_copy_of_the_parameters() -> None:
    device = PLACES.find().device
    network = perceptron(1, 8000)  # so that little else is in memory

    def need_bytes(**options: bool) -> float:
        return memory_need(network, StepOptions(optimizer="adam", **options), device).total_bytes

    plain = need_bytes()
    assert need_bytes(compiled=True) == pytest.approx(plain, rel=1e-3)
    assert plain - need_bytes(fused_optimizer=True) == pytest.approx(4 * network.parameter_count, rel=0.01)


def test_fusion_leaves_products_alone_and_joins_what_reads_one_another() -> None:
    n = 64
    network = Network(
        "block",
        (
            Layer("linear", Linear(8, 8, 8), (0,), 1, (Parameter("w", 64),)),
            Layer("gelu", Elementwise("gelu", n), (1,), 2),
            Layer("drop", Elementwise("dropout", n), (2,), 3),
            Layer("norm", LayerNorm(8, 8), (3,), 4),
            Layer("norm2", LayerNorm(8, 8), (4,), 5),
            Layer("other", Elementwise("add", n, 2), (0, 0), 6),
        ),
        (n,) * 7,
        8,
    )
    groups = list(fused_groups(network))
    assert [[layer.name for layer in group.layers] for group in groups] == [
        ["linear"],
        ["gelu", "drop", "norm"],
        ["norm2"],
        ["other"],
    ]
    assert groups[1].reads == (1,)
    assert groups[1].writes == (4,)


def test_compiled_is_faster_where_memory_bounds_it() -> None:
    n = 1 << 24
    layers = tuple(Layer(f"relu{i}", Elementwise("relu", n), (i,), i + 1, (Parameter(f"p{i}", 1),)) for i in range(8))
    network = Network("chain", layers, (n,) * 9, 1)
    eager = alone_on(MACHINE, network, StepOptions(mode="forward"))
    compiled = alone_on(MACHINE, network, StepOptions(mode="forward", compiled=True))
    assert compiled.busy_s == pytest.approx(eager.busy_s / 8, rel=0.02)


def grouped(operator: Operator, *parameters: Parameter) -> Network:
    """Return a linear layer, then a GELU and *operator*, which compilers fuse into one kernel."""
    n = operator.output_elements  # type: ignore[attr-defined]
    return Network(
        "grouped",
        (
            Layer("linear", Linear(n // 512, 512, 512), (0,), 1, (Parameter("w", 512 * 512),)),
            Layer("gelu", Elementwise("gelu", n), (1,), 2),
            Layer("last", operator, (2,), 3, parameters),
        ),
        (n,) * 4,
        1,
    )


def compiled_backward(network: Network) -> DeviceWork:
    """Return the backward work of the fused group of *network*."""
    issues = launches_of(PLACES.find().device, network, StepOptions(compiled=True, mode="backward"))
    (issue,) = [each for each in issues if each.name.startswith("last")]
    return issue.work


def test_a_fused_softmax_reduces_over_rows_backward() -> None:
    """PyTorch's earlier multiplication is pointwise and joins the kernel; the reduction remains."""
    rows, cols = 8192, 4096  # rows that blocks process one by one, slower than a stream
    work = compiled_backward(grouped(Softmax(rows, cols)))
    assert work.kinds == ("rowwise",)
    device = PLACES.find().device
    assert work.time_s >= kernel_cost(device, Rowwise("softmax_bwd", rows, cols, "fp32")).time_s


def test_a_fused_normalisation_sums_the_gradients_of_its_weights() -> None:
    rows, cols = 8192, 512
    plain = compiled_backward(grouped(LayerNorm(rows, cols)))
    trained = compiled_backward(grouped(LayerNorm(rows, cols), Parameter("norm.weight", 2 * cols)))
    assert plain.kinds == ("rowwise",)
    assert trained.kinds == ("rowwise", "rowwise")
    assert trained.time_s > 1.3 * plain.time_s


def test_running_statistics_are_pointwise_in_a_group() -> None:
    network = grouped(BatchNorm(16, 32, 32, 32), Parameter("norm.weight", 64))
    device = PLACES.find().device
    options = StepOptions(compiled=True, mode="inference")
    (issue,) = [each for each in launches_of(device, network, options) if each.name.startswith("last")]
    assert issue.work.kinds == ("streaming",)
    assert issue.work.costs[0].bytes == 2 * 4 * 16 * 32 * 32 * 32


def test_recompute_runs_each_block_forward_again() -> None:
    layers = [
        Layer(f"blocks.{i}.linear", Linear(64, 64, 64), (i,), i + 1, (Parameter(f"w{i}", 4096),)) for i in range(4)
    ]
    network = Network("blocks", tuple(layers), (4096,) * 5, 1)
    device = PLACES.find().device
    plain = launches_of(device, network, StepOptions())
    again = launches_of(device, network, StepOptions(recompute="full"))
    assert [i.name for i in again if i.name.endswith("(again)")] == [f"blocks.{i}.linear (again)" for i in (3, 2, 1, 0)]
    assert len(again) == len(plain) + 4


@pytest.mark.parametrize(
    ("layer", "block"),
    [("blocks.3.mlp.up", "blocks.3"), ("layer1.0.conv1", "layer1.0"), ("features.0", ""), ("conv1", "")],
)
def test_blocks_by_the_names_of_layers(layer: str, block: str) -> None:
    assert block_name(layer) == block


def test_devices_that_are_not_there() -> None:
    with pytest.raises(InputError, match=r"device='gpu1': p3.2xlarge has no GPU or CPU of that name; did you mean"):
        alone_on(MACHINE, perceptron(), device="gpu1")


def test_a_precision_without_a_figure() -> None:
    with pytest.raises(InputError, match=r"no peak rate for bf16; the part has"):
        alone_on(MACHINE, perceptron(), StepOptions(precision="bf16"))


@given(st.floats(1e9, 60e9), st.sampled_from([range(1, 10**7), [2**n for n in range(22)]]))
def test_the_largest_batch_that_fits(available_bytes: float, sizes: Sequence[int]) -> None:
    device = replace(PLACES.find().device, memory_bytes=available_bytes)
    options = StepOptions()

    def need(batch: int) -> MemoryNeed:
        return memory_need(perceptron(batch, 1000), options, device)

    found = largest_fitting(sizes, need)
    assert found == 0 or need(found).fits
    larger = next((size for size in sizes if size > found), None)
    assert larger is None or not need(larger).fits


def test_the_host_keeps_gradients_and_gathers_parameters_for_the_update() -> None:
    device = PLACES.find().device
    network = perceptron()
    issues = launches_of(device, network, StepOptions(optimizer="momentum"))
    (update,) = [each for each in issues if each.name == "momentum step"][:1]
    plain_s = dispatch_time(device, Elementwise("momentum_step", network.parameter_count), "bwd_data")
    assert update.host_s == pytest.approx(plain_s + host_time(device, "update_s", 2))
    (second,) = [each for each in issues if each.name == "second" and each.part == "backward"]
    (layer,) = [layer for layer in network.layers if layer.name == "second"]
    plain_s = dispatch_time(device, layer.operator, "bwd")
    assert second.host_s == pytest.approx(plain_s + host_time(device, "gradient_s", 1))


def test_scaled_gradients_are_looked_at_before_the_update() -> None:
    device = PLACES.find().device
    for precision, looked_at in (("amp-fp16", ["momentum step"]), ("fp16", []), ("fp32", [])):
        issues = launches_of(device, perceptron(), StepOptions(precision=precision))  # type: ignore[arg-type]
        assert [each.name for each in issues if each.waits] == looked_at


def test_an_optimiser_from_tensor_to_tensor_asks_the_host_for_each() -> None:
    device = PLACES.find().device
    network = perceptron(8, 64)
    by_tensor = [i for i in launches_of(device, network, StepOptions(optimizer="bert-adam")) if i.part == "update"]
    assert [i.name for i in by_tensor] == ["bert-adam step of first.weight", "bert-adam step of second.weight"]
    assert all(i.waits for i in by_tensor)  # the host reads each gradient's norm
    calls = len(tensor_passes("bert-adam"))
    for each in by_tensor:  # a small tensor waits for the host
        assert each.host_s + each.device_s > host_time(device, "update_s", calls)
        assert each.host_s < host_time(device, "update_s", calls)  # but calls overlap with the device's previous one
    together = sum(i.host_s + i.device_s for i in by_tensor)
    at_once = [i for i in launches_of(device, network, StepOptions(optimizer="adam")) if i.part == "update"]
    assert together > 0.5 * sum(i.host_s + i.device_s for i in at_once)


def test_from_tensor_to_tensor_large_ones_take_their_passes() -> None:
    device = PLACES.find().device
    network = perceptron(1, 16000)  # a tensor of 1 GB
    (first, _) = [i for i in launches_of(device, network, StepOptions(optimizer="bert-adam")) if i.part == "update"]
    moved = sum(each.reads + each.writes for each in tensor_passes("bert-adam")) * 4.0 * (16000**2 + 16000)
    assert sum(cost.bytes for cost in first.work.costs) == pytest.approx(moved, rel=1e-3)
    adam = [i for i in launches_of(device, network, StepOptions(optimizer="adam")) if i.part == "update"]
    ratio = 2 * first.device_s / sum(i.device_s for i in adam)  # of two tensors
    assert ratio == pytest.approx(moved / (18 * 4.0 * (16000**2 + 16000)), rel=0.05)


def test_adam_in_a_loop_calls_eight_kernels_for_each_tensor_and_never_waits() -> None:
    device = PLACES.find().device
    network = perceptron(8, 64)
    looped = [i for i in launches_of(device, network, StepOptions(optimizer="adam-loop")) if i.part == "update"]
    assert [i.name for i in looped] == ["adam-loop step of first.weight", "adam-loop step of second.weight"]
    assert not any(i.waits for i in looped)
    assert all(i.work is not None and len(i.work.costs) == 8 for i in looped)
    # means and squares each scaled and added to; root, correction, epsilon; step
    assert sum(each.reads for each in tensor_passes("adam-loop")) == (1 + 2) + (1 + 2) + 3 + 3
    assert sum(each.first for each in tensor_passes("adam-loop")) == 4  # gradient, both moments, parameter
    looped_need, at_once = (memory_need(network, StepOptions(optimizer=o), device) for o in ("adam-loop", "adam"))
    assert looped_need.optimizer_bytes == at_once.optimizer_bytes


def test_lamb_takes_norms_besides_adam_and_remembers_as_much() -> None:
    device = PLACES.find().device
    network = perceptron(1, 8000)

    def moved(optimizer: Optimizer, **options: bool) -> float:
        issues = launches_of(device, network, StepOptions(optimizer=optimizer, **options))
        return sum(cost.bytes for i in issues if i.part == "update" for cost in i.work.costs)

    n = 4.0 * network.parameter_count
    # Norms of gradients, parameters and steps; the step is written, and read again with the parameter.
    assert moved("lamb") - moved("adam", fused_optimizer=True) == pytest.approx((3 + 3) * n)
    kept = [memory_need(network, StepOptions(optimizer=o), device).optimizer_bytes for o in ("lamb", "adam")]
    assert kept[0] == kept[1]


def test_gradients_of_what_a_sum_reads_again_and_again_are_sums() -> None:
    whole, small = Elementwise("add", 1 << 20, 2), Elementwise("add", 1 << 20, summed=2)
    assert whole.kernels("bwd_data", "fp32") == ()
    assert small.kernels("fwd", "fp32") == replace(small, summed=0).kernels("fwd", "fp32")
    gradients = small.kernels("bwd", "fp32")
    assert [kernel.bytes for kernel in gradients] == [4 << 20, 4 << 20]


def test_the_gradient_of_a_slice_is_put_among_zeros() -> None:
    part = Elementwise("tanh", 1 << 20, part_of=1 << 21)
    plain = replace(part, part_of=0)
    assert part.kernels("fwd", "fp32") == plain.kernels("fwd", "fp32")
    more = part.kernels("bwd", "fp32")[len(plain.kernels("bwd", "fp32")) :]
    assert [kernel.bytes for kernel in more] == [4 << 21, 8 << 20]
