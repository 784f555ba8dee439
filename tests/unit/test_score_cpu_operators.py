"""Operators on CPUs and with cold caches, and operators that only our own tables contain."""

import json
from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.constants import DEFAULT
from simulator.devices.cpu import Cpu, cpu_from_part
from simulator.devices.dispatch import dispatch_time
from simulator.devices.gpu import Gpu
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.questions.single import OperatorQuestion
from simulator.step.operator import operator_kernels
from simulator.topology.catalogue import load_part
from simulator.topology.parts import CpuPart
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.operators import Attention, Convolution, Recurrent
from tests.validate_commands import score_command
from validate.kinds import OPERATORS
from validate.kinds.kind import RowQuestion
from validate.tables.cells import NotScored
from validate.tables.names import DeviceNames, RowNames

NAMES = RowNames()
GRAPH_SAVES_S = DEFAULT["issuing"].graph_saves_s

XEON = "xeon-e5-2630-v3"
LINEAR = {"device": XEON, "op": "linear", "phase": "fwd", "dtype": "fp32", "m": "512", "n": "1024", "k": "2048"}
TOPOLOGY = """
schema_version: 1
name: two sockets
parts:
  my-cpu: {kind: cpu, aliases: [my-make-of-cpu], core_count: 4, clock: 2 GHz, flop_per_cycle: {fp32: 32},
           memory_bandwidth: 20 GB/s}
devices:
  cpu[0-1]: {part: my-cpu}
links:
  - {between: [cpu0, cpu1], part: qpi-8.0}
"""


def asked(names: RowNames = NAMES, **cells: str) -> RowQuestion:
    row = {**LINEAR, **cells}
    return OPERATORS.read(lambda column: row.get(column, ""), names)


def query(**cells: str) -> OperatorQuestion:
    found = asked(**cells).question
    assert isinstance(found, OperatorQuestion)
    return found


def predicted_s(names: RowNames = NAMES, **cells: str) -> float:
    return asked(names, **cells).time_s(names.session)


def test_a_row_of_a_cpu_is_what_its_kernel_costs_and_the_framework_before_it() -> None:
    part = load_part(XEON)
    assert isinstance(part, CpuPart)
    kernel = Gemm(512, 1024, 2048, "fp32", layout="NT", epilogue_elements=1024)
    alone_s = kernel_cost(cpu_from_part(XEON, part), kernel).time_s
    assert predicted_s() == alone_s
    assert predicted_s(includes_dispatch="1") == pytest.approx(alone_s + DEFAULT["cpu_calls"].call_s)


def test_threads_come_from_either_column() -> None:
    one_s = predicted_s(threads="1")
    assert one_s == predicted_s(schedule="cpu threads=1") > 3 * predicted_s(threads="8")
    assert predicted_s(threads="8") == predicted_s()  # one per core
    with pytest.raises(NotScored, match="threads is not a whole number"):
        query(threads="1.5")


def test_two_sockets_are_two_of_a_part() -> None:
    names = RowNames(devices=DeviceNames([f"box=2 x {XEON}", f"one={XEON}"]))
    two, one = names.device("box"), names.device("one")
    assert isinstance(two, Cpu)
    assert isinstance(one, Cpu)
    assert (two.sockets, two.threads, one.sockets, one.threads) == (2, 16, 1, 8)
    with pytest.raises(InputError, match="several of a part are sockets of a CPU"):
        DeviceNames(["box=2 x t4"])


def test_a_topology_has_parts_and_sockets_of_its_own(tmp_path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TOPOLOGY)
    names = RowNames(devices=DeviceNames(topology=str(file)), session=Session({"my-cpu": Calibration(compute=0.5)}))
    for name in ("my-cpu", "my-make-of-cpu"):
        found = names.device(name)
        assert isinstance(found, Cpu)
        assert (found.name, found.sockets, found.core_count, found.calibration.compute) == ("my-cpu", 2, 8, 0.5)
    assert isinstance(names.device("t4"), Gpu)  # built-in devices stay
    assert names.device("my-cpu") is names.device("my-make-of-cpu")


def test_the_xeon_phi_is_the_cpu_of_its_name() -> None:
    assert NAMES.devices.part("knl-7250") == "knl-7250-cpu"
    assert isinstance(NAMES.device("knl-7250"), Cpu)


def test_a_cpu_that_lacks_the_precision_is_not_scored() -> None:
    with pytest.raises(NotScored, match="this CPU does not compute in fp8"):
        predicted_s(dtype="fp8")


def test_the_roofline_of_a_cpu_is_that_of_all_its_sockets() -> None:
    cells = {"op": "elementwise", "variant": "add", "rows": "1024", "cols": "4096"}
    one, two = (
        asked(names, **cells).bound_s(names.session)
        for names in (RowNames(devices=DeviceNames([part])) for part in (XEON, f"2 x {XEON}"))
    )
    part = load_part(XEON)
    assert isinstance(part, CpuPart)
    assert one == pytest.approx(3 * 4 * 1024 * 4096 / part.memory_bandwidth)
    assert two == pytest.approx(one / 2)


@pytest.mark.parametrize("device", ["a100-sxm4-40gb", XEON])
def test_what_would_fit_a_cache_comes_from_memory_where_caches_are_cold(device) -> None:
    found = NAMES.device(device)
    small = Streaming("add", 1 << 16, 1 << 19, 1 << 18)
    warm, cold = kernel_cost(found, small), kernel_cost(found, small, 1.0)
    half = kernel_cost(found, small, 0.5)
    assert cold.time_s > warm.time_s
    assert half.time_s == pytest.approx((warm.time_s + cold.time_s) / 2)
    large = Streaming("add", 1 << 28, 1 << 31, 1 << 30)  # too large to have been cached
    assert kernel_cost(found, large, 1.0).time_s == pytest.approx(kernel_cost(found, large).time_s, rel=1e-6)


def test_cold_passes_take_what_memory_delivers() -> None:
    found = NAMES.device(XEON)
    assert isinstance(found, Cpu)
    n = 1 << 20
    moved = 16 * n  # the result's lines are fetched before they are written
    cold_s = kernel_cost(found, Streaming("add", n, 8 * n, 4 * n), 1.0).time_s
    assert cold_s == pytest.approx(moved / found.memory_bandwidth_Bps, rel=0.2)


def test_cold_rows_are_told_by_their_column() -> None:
    cells = {"op": "elementwise", "variant": "add", "rows": "256", "cols": "1024", "device": "a100-sxm4-40gb"}
    assert predicted_s(**cells, cache="cold") > predicted_s(**cells, cache="warm") == predicted_s(**cells)
    with pytest.raises(NotScored, match="no such cache: tepid; warm or cold"):
        query(cache="tepid")


def test_attention_is_read_as_so_many_heads() -> None:
    cells = {"op": "attention", "batch": "96", "m": "512", "n": "1024", "k": "64"}
    assert query(**cells).operator == Attention(96, 1, 512, 1024, 64)
    assert query(**cells, variant="causal").operator == Attention(96, 1, 512, 1024, 64, causal=True)
    assert predicted_s(**cells) > 0


@pytest.mark.parametrize(("software", "inputs"), [("torch 2.13.0", 256), ("CUDA 8.0;cuDNN 6", 0), ("", 0)])
def test_a_layer_of_torch_multiplies_its_input(software, inputs) -> None:
    cells = {"op": "lstm", "batch": "16", "timesteps": "25", "hidden": "256", "software": software}
    assert query(**cells).operator == Recurrent("lstm", 16, 25, inputs, 256)


def test_images_by_pixels_are_a_variant_of_convolutions() -> None:
    cells = {"op": "conv2d", "batch": "8", "c_in": "64", "c_out": "64", "h_in": "28", "w_in": "28", "kernel_h": "3",
             "kernel_w": "3", "pad": "1"}  # fmt: skip
    plain, by_pixels = query(**cells), query(**cells, variant="channels_last")
    (kernel,) = operator_kernels(plain)
    assert isinstance(kernel, Convolution)
    assert list(operator_kernels(by_pixels)) == [replace(kernel, channels_last=True)]


def test_a_table_of_a_cpu_is_scored_with_its_topology(tmp_path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TOPOLOGY)
    table = tmp_path / "ops.csv"
    row = {**LINEAR, "device": "my-make-of-cpu", "time_s": "0.01", "threads": "4"}
    table.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    score_command([str(table)], json=True, topology=str(file))
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    names = RowNames(devices=DeviceNames(topology=str(file)))
    expected_s = predicted_s(names, device="my-cpu", threads="4")
    assert scored["overall"]["bias"] == pytest.approx(expected_s / 0.01 - 1)


def test_rows_of_validate_run_come_from_graphs() -> None:
    cells = {"op": "elementwise", "variant": "relu", "rows": "64", "cols": "64", "device": "a100-sxm4-40gb"}
    ours = {"software": "torch 2.11.0", "cache": "warm", "includes_dispatch": "0", "issue": "graph"}
    assert predicted_s(**cells) - predicted_s(**cells, **ours) == pytest.approx(GRAPH_SAVES_S)
    assert predicted_s(**cells, **{**ours, "issue": "queued"}) == predicted_s(**cells)
    assert predicted_s(**cells, **{**ours, "includes_dispatch": "1"}) == predicted_s(**cells, includes_dispatch="1")
    assert predicted_s(**{**cells, "device": XEON}, **ours) == predicted_s(**{**cells, "device": XEON})


def test_what_is_issued_call_by_call_waits_for_its_host() -> None:
    cells = {"op": "lstm", "batch": "1", "timesteps": "2", "hidden": "16", "device": "a100-sxm4-40gb"}
    ours = {"software": "torch 2.11.0", "cache": "warm", "issue": "stream"}
    host_s = dispatch_time(NAMES.device(cells["device"]), query(**cells, **ours).operator, "fwd")
    assert predicted_s(**cells, **ours) == max(host_s, predicted_s(**cells, software="torch 2.11.0")) >= host_s


@pytest.mark.corpus
def test_errors_on_the_xeon_phi(corpus, tmp_path, capsys) -> None:
    lines = (corpus / "ops.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "phi.csv").write_text("".join([lines[0], *(line for line in lines if "knl-7250" in line)]))
    score_command([str(tmp_path / "phi.csv")], json=True)
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert scored["rows"] == scored["scored"] == 326
    assert scored["overall"]["median_ape"] < 0.15 < scored["baselines"]["roofline"]["median_ape"]
