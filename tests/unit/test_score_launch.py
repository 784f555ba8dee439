"""Tables of launches, by mode of issue and by kind of call; tables of disks."""

import json

import pytest

from simulator.constants import DEFAULT
from simulator.devices.dispatch import dispatch_time, host_time
from simulator.devices.predict import kernel_cost, operator_costs
from simulator.errors import InputError
from simulator.host.disks import block_time
from simulator.questions.single import DiskQuestion
from simulator.topology.parts import StoragePart
from simulator.workload.operators import Elementwise, LayerNorm, Linear
from tests.validate_commands import score_command
from validate.kinds import LAUNCH, STORAGE
from validate.kinds.timing import TimingCosts
from validate.tables.cells import NotScored
from validate.tables.names import MachineNames, RowNames

NAMES = RowNames()
CALLS, DISPATCH, TIMING = DEFAULT["cpu_calls"], DEFAULT["dispatch"], DEFAULT(TimingCosts)
GRAPH_SAVES_S = DEFAULT["issuing"].graph_saves_s
GPU, CPU = "a100-sxm4-40gb", "xeon-e5-2630-v3"
RELU = "time of one relu in place of 64 numbers"
DISK = StoragePart(
    kind="storage",
    read_bandwidth="2 GB/s",
    write_bandwidth="1 GB/s",
    read_latency="100 us",
    write_latency="30 us",
    operation_rate="50 kIOP/s",
)


def seconds(metric: str, mode: str = "torch eager", device: str = GPU) -> float:
    cells = {"device": device, "metric": metric, "mode": mode}
    return LAUNCH.read(lambda column: cells.get(column, ""), NAMES).time_s(NAMES.session)


def kernels_s(operator, phase="fwd", device: str = GPU) -> float:
    return sum(cost.time_s for cost in operator_costs(NAMES.device(device), operator, phase, "fp32"))


def test_ways_of_issuing_one_operator() -> None:
    gpu, relu = NAMES.device(GPU), Elementwise("relu", 64)
    (kernel,) = relu.kernels("fwd", "fp32")
    kernel_s = kernel_cost(gpu, kernel).time_s
    isolated_s = TIMING.isolated_elementwise_s + max(kernel_s, TIMING.isolated_end_s)
    assert seconds(RELU, "torch eager, one after the other") == dispatch_time(gpu, relu, "fwd", is_taped=False)
    assert seconds(RELU, "torch eager, alone, waiting for it") == pytest.approx(isolated_s)
    assert seconds(RELU, "torch eager, from a captured graph") == pytest.approx(kernel_s - GRAPH_SAVES_S)
    assert seconds("host time of one relu in place") == dispatch_time(gpu, relu, "fwd", is_taped=False)


def test_what_the_host_pays_for_layers() -> None:
    gpu, norm = NAMES.device(GPU), LayerNorm(4, 16)
    forward_s = seconds("host time of layer_norm, forward, recorded")
    assert forward_s == dispatch_time(gpu, norm, "fwd")
    backward_s = seconds("host time of layer_norm, forward and backward") - forward_s
    assert backward_s == pytest.approx(dispatch_time(gpu, norm, "bwd") + host_time(gpu, "gradient_s", 2))
    assert seconds("host time of a step of Adam, foreach") == pytest.approx(64 * DISPATCH.update_s)


def test_on_a_cpu_kernels_are_in_it() -> None:
    relu, linear = Elementwise("relu", 64), Linear(4, 16, 16)
    call_s = CALLS.call_s + kernels_s(relu, device=CPU)
    assert seconds(RELU, "torch eager, one after the other", CPU) == pytest.approx(call_s)
    whole_s = CALLS.forward_s + CALLS.backward_s + kernels_s(linear, device=CPU) + kernels_s(linear, "bwd", CPU)
    assert seconds("host time of linear, forward and backward", device=CPU) == pytest.approx(whole_s)


def test_graphs_of_kernels() -> None:
    ten, hundred = (seconds(f"time of a graph of {n} kernels", "captured graph, replay alone") for n in (10, 100))
    assert hundred - ten == pytest.approx(90 * (ten - seconds("time of a graph of 9 kernels", "replay alone")))
    assert seconds("host time of a graph of 100 kernels", "captured graph, replay") == DISPATCH.graph_launch_s
    one_s = seconds("time of a graph of 1 kernel", "captured graph, replays one after the other")
    assert one_s == DISPATCH.graph_launch_s  # the host is slower than an empty kernel


def test_floors_of_small_kernels() -> None:
    metric = "per-kernel time floor, 64 KiB SCALE kernel"
    stream_s, graph_s = seconds(metric, "stream launches (back to back)"), seconds(metric, "CUDA graph replay")
    assert stream_s - graph_s == pytest.approx(GRAPH_SAVES_S)


@pytest.mark.parametrize(
    ("metric", "mode", "device", "reason"),
    [
        ("host time of one dance, no kernel", "", GPU, "no model of host time of one dance, no kernel"),
        ("host time of recording an event", "", CPU, "a CPU has no streams"),
        ("", "", GPU, "no model of a launch without a name"),
        (RELU, "by pigeon", GPU, "no model of launches by by pigeon"),
        ("host time of quux, forward, recorded", "", GPU, "no model of host time of quux, forward, recorded"),
        ("time of a graph of 2 kernels", "replay alone", CPU, "a CPU has no graphs"),
        ("host time of a step of Adam, foreach", "", CPU, "the host's part of an update, of a CPU"),
        (RELU, "alone", "abacus", "no part of device 'abacus'"),
    ],
)
def test_what_has_no_model(metric, mode, device, reason) -> None:
    with pytest.raises(NotScored, match=reason):
        seconds(metric, mode, device)


def test_calls_that_run_no_operator() -> None:
    costs, copies, launch_s = DEFAULT["front_ends"], DEFAULT["copying"], DEFAULT["dispatch"].bare_launch_s
    assert seconds("host time of one view, no kernel") == costs.call_s
    assert seconds("host time of recording an event", "CUDA") == costs.call_s
    assert seconds("host time of synchronising with an idle device", "CUDA") == costs.wait_s
    read_s = launch_s + copies.engine_s + costs.wait_s
    assert seconds("host time of reading one number back") == pytest.approx(read_s)
    assert seconds("kernel-launch/wall_overhead") == pytest.approx(launch_s + costs.wait_s)
    assert seconds("host time of reading one number back", device=CPU) == CALLS.call_s


def test_a_kernel_that_stays_pays_a_barrier_and_no_start() -> None:
    floor = "per-kernel time floor, 64 KiB SCALE kernel"
    staying_s = seconds(floor, "persistent threads + atomic barrier")
    gpu, issuing = NAMES.device(GPU), DEFAULT["issuing"]
    barrier_s = (issuing.sync_cycles + gpu.sm_count * issuing.sync_block_cycles) / gpu.boost_clock_Hz
    assert barrier_s < staying_s < seconds(floor, "stream launches (back to back)")


def test_a_table_of_launches_is_known_by_its_columns(tmp_path, capsys) -> None:
    table = tmp_path / "launch.csv"
    table.write_text(f"device,metric,mode,time_s\n{GPU},{RELU},from a captured graph,1.5e-6\n")
    score_command([str(table)], json=True)
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert (scored["kind"], scored["scored"]) == ("launch", 1)
    assert {"issue": "graph"} in [group["by"] for group in scored["groups"]]


def test_a_name_may_be_in_one_of_several_tables(tmp_path, capsys) -> None:
    launches, operators = tmp_path / "launch.csv", tmp_path / "ops.csv"
    launches.write_text(f"device,metric,mode,time_s\nmine,{RELU},from a captured graph,1.5e-6\n")
    operators.write_text("device,op,dtype,time_s,m,n,k\nt4,linear,fp32,1e-3,512,512,512\n")
    score_command([str(launches), str(operators)], json=True, device=["mine=t4"])
    assert [table["scored"] for table in json.loads(capsys.readouterr().out)["tables"]] == [1, 1]


# -- disks -------------------------------------------------------------------------------------------------------------


def block(**cells) -> DiskQuestion:
    row = {"machine": "box", "kind": "read_random", "block_bytes": "4096", "threads": "1", "cache": "direct", **cells}
    found = STORAGE.read(lambda column: row.get(column, ""), RowNames(machines=MachineNames("cpu-i7-3820"))).question
    assert isinstance(found, DiskQuestion)
    return found


def test_small_reads_wait_for_the_disk_and_large_ones_for_their_bytes() -> None:
    assert block_time(DISK, block()) == DISK.read_latency
    assert block_time(DISK, block(threads="2")) == 50e-6
    assert block_time(DISK, block(threads="100")) == 1 / 5e4  # as many as it serves at once
    assert block_time(DISK, block(kind="read_sequential", block_bytes="4000000")) == pytest.approx(2e-3)
    assert block_time(DISK, block(kind="write_sequential", block_bytes="4000000")) == pytest.approx(4e-3)
    with pytest.raises(InputError, match="the disk has no write_latency"):
        block_time(StoragePart(kind="storage"), block(kind="write_sequential"))


def test_a_table_of_disks(tmp_path, capsys) -> None:
    table = tmp_path / "storage.csv"
    rows = [
        "box,read_sequential,4194304,1,direct,0.0014",
        "box,read_random,4096,1,direct,0.00012",
        "box,read_sequential,4194304,1,page cache,0.0007",
        "box,read_random,4096,1,tape,0.00012",
        "box,seek,4096,1,direct,0.00012",
    ]
    table.write_text("\n".join(["machine,kind,block_bytes,threads,cache,time_s", *rows]) + "\n")
    machine = tmp_path / "box.yaml"
    machine.write_text(
        "schema_version: 1\nname: box\ndevices:\n  cpu0: {part: generic-desktop-cpu}\n  ssd0: {part: nvme-gen3}\n"
        "links: [{between: [ssd0, cpu0], part: pcie3-x4}]\n"
    )
    score_command([str(table)], json=True, topology=str(machine))
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert (scored["kind"], scored["scored"], scored["rows"]) == ("storage", 3, 5)
    assert set(scored["skipped"]) == {
        "cache is tape; it may be direct, dropped, page cache",
        "no model of accesses of kind seek",
    }
    score_command([str(table)], json=True, topology="cpu-i7-3820")
    skipped = json.loads(capsys.readouterr().out)["tables"][0]["skipped"]
    assert "the machine has no disk; devices needs for example ssd0: {part: nvme-gen4}" in skipped


@pytest.mark.corpus
def test_errors_of_published_launches(corpus, capsys) -> None:
    score_command([str(corpus / "launch.csv")], json=True)
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert scored["scored"] == 53
    assert scored["overall"]["median_ape"] < 0.15 < scored["baselines"]["kernel"]["median_ape"]
