"""Plausible inputs that would be answered wrongly get the right answer, or a refusal with the reason."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.cli.app import app as simulate
from simulator.collectives.communicator import Communicator, Request
from simulator.collectives.registry import find_strategy
from simulator.console.run import run_app
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.topology.load import load_topology, topology_from_text

pytestmark = pytest.mark.usefixtures("answered_once")

HEAD = "schema_version: 1\nname: t\n"


def matrix(n: int, cell: str, rows: int | None = None) -> str:
    """Return a matrix of *n* GPUs with *cell* between all pairs, limited to *rows* GPUs."""
    lines = [f"      gpu{a} " + " ".join("X" if a == b else cell for b in range(rows or n)) for a in range(rows or n)]
    return "    matrix: |\n" + "\n".join(lines) + "\n"


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        topology_from_text(text)
    return str(caught.value)


def seconds(machine: Machine, ranks: list[int], strategy: str, size: float = 1e8) -> float:
    plan = find_strategy(strategy).plan(Request(Communicator(machine, ranks), "all-reduce", size))
    return execute(machine, plan).end_s


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bytes:1MB --root 1", "--root: is for --collective broadcast or reduce, not all-reduce"),
        ("bytes:1MB --gpus-per-process 2 --strategy ring", "--gpus-per-process: is NCCL's; --strategy nccl reads it"),
        ("resnet18 --batch 2 --gpus 1 --nccl 2.18", "--nccl: is about an exchange, and one device"),
        ("resnet18 --batch 2 --gpus 1 --no-contention", "--no-contention: is about an exchange, and one device"),
        (
            "resnet18 --batch 2 --recompute-attention",
            "--recompute-attention: applies to attention, and resnet18 has none",
        ),
        ("alexnet --batch 2 --recompute", "--recompute: applies to repeated blocks, and alexnet has none"),
        ("bert-base --batch 2 --channels-last", "--channels-last: applies to convolutions, and bert-base has none"),
        ("resnet18 --batch 2 --cpu-library blas", "--cpu-library: applies to kernels on a CPU, but GPUs compute"),
        ("resnet18 --batch 2 --precision tf32", "--precision tf32: v100-sxm2-16gb has none, and computes in fp32"),
        ("resnet18 --batch 2 --device cpu0 --precision tf32", "has none, and computes in fp32 whatever is allowed"),
        ("resnet18 --batch 2 --device cpu0 --channels-last", "--channels-last: applies to GPUs, but a CPU computes"),
        (
            "resnet18 --batch 2 --device cpu0 --framework megatron",
            "--framework megatron: applies to GPUs, but a CPU computes",
        ),
        ("resnet18 --batch 2 --reduce-fp32", "--reduce-fp32: gradients of --precision torch are of fp32 already"),
        ("resnet18 --batch 2 --precision amp-fp16 --reduce-fp32", "of --precision amp-fp16 are of fp32 already"),
        ("resnet18 --batch 2 --parallel fsdp --gather-fp32", "--gather-fp32: is for autocast; take --precision amp-"),
        (
            "resnet18 --batch 2 --parallel fsdp --precision amp-fp16 --gather-fp32 --reduce-fp32",
            "of --precision amp-fp16 are of fp32 already",
        ),
    ],
)
def test_options_that_could_change_nothing_are_refused(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(simulate, "simulate", ["--topology", "p3.16xlarge", "--workload", *words.split()]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("bytes:1MB --collective broadcast --strategy gpu0 --gpus 0,1,2,3,4", "--root 1"),
        ("bytes:64B --strategy nccl", "--gpus-per-process 8"),
        ("resnet18 --batch 2 --gpus 2", "--no-contention"),
        ("bert-base --batch 2 --gpus 1 --seq-len 128", "--recompute-attention"),
        ("resnet18 --batch 2 --gpus 1", "--recompute"),
        ("resnet18 --batch 2 --gpus 1 --precision amp-fp16", "--channels-last"),
        ("resnet18 --batch 2 --device cpu0", "--cpu-library blas"),
        ("resnet18 --batch 2 --gpus 2 --precision fp16", "--reduce-fp32"),
        ("resnet18 --batch 2 --gpus 2 --precision amp-fp16 --parallel fsdp", "--reduce-fp32"),
        ("resnet18 --batch 2 --gpus 2 --precision amp-fp16 --parallel fsdp", "--gather-fp32"),
    ],
)
def test_options_that_are_read_change_the_answer(words: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = []
    for more in ("", option):
        command = ["--topology", "p3.16xlarge", "--workload", *words.split(), *more.split(), "--json", "--quiet"]
        assert run_app(simulate, "simulate", command) == 0
        found = re.search(r'"(?:sync|step)_time_s": (\S+),', capsys.readouterr().out)
        assert found is not None
        seconds.append(found[1])
    assert seconds[0] != seconds[1]


_CALIBRATION = "schema_version: 1\ndevices:\n  v100-sxm2-16gb: {compute: 0.5, bandwidth: 0.5, dispatch: 3.0}\n"
_PROGRAM = """\
schema_version: 1
name: one product
program:
  - {tensor: a, shape: [64, 64]}
  - {run: "op:mat_mul,m=64,n=64,k=64", reads: a, gives: b}
  - wait: all
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "option", "reads"),
    [
        ("copy:h2d,160MB", "--threads 2", False),
        ("copy:h2h,160MB", "--threads 2", True),
        ("copy:h2d,160MB", "--nodes 2", False),
        ("copy:p2p,160MB,dst=1", "--slow-link gpu0-gpu1:0.1x", True),
        ("copy:p2p,160MB,dst=1", "--slow-link gpu2-gpu3:0.1x", False),
        ("access:stream,64MiB", "--nodes 2", False),
        ("core:mutex", "--calibration {file}", False),
        ("op:linear,rows=512,inputs=512,outputs=512", "--calibration {file}", True),
        ("access:chase,sweep:4KiB-1MiB", "--neighbour gpu0-gpu1:5GB/s", False),
    ],
)
def test_of_an_operation_what_changes_nothing_is_said(
    words: str, option: str, reads: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(_CALIBRATION, encoding="utf-8")
    named = option.format(file=file)
    command = ["--topology", "p3.16xlarge", "--workload", words, *named.split(), "--json"]
    assert run_app(simulate, "simulate", command) == 0
    assert ("changes nothing of this answer" in capsys.readouterr().err) != reads
    assert run_app(simulate, "simulate", [*command, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_calibration_of_what_does_not_compute_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(_CALIBRATION, encoding="utf-8")
    command = ["--topology", "p3.16xlarge", "--workload", "resnet18", "--batch", "2", "--calibration", str(file)]
    assert run_app(simulate, "simulate", [*command, "--device", "cpu0"]) == 2
    assert capsys.readouterr().err == "simulate: --calibration: has nothing of the CPU that computes\n"


def test_threads_of_a_program_without_a_cpu_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loop.yaml"
    file.write_text(_PROGRAM, encoding="utf-8")
    command = ["--topology", "p3.16xlarge", "--workload", str(file), "--threads", "2"]
    assert run_app(simulate, "simulate", command) == 2
    assert "--threads: applies to a CPU;" in capsys.readouterr().err
    assert run_app(simulate, "simulate", [*command, "--device", "cpu0"]) == 0


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan", "1e400"])
def test_an_oversubscription_that_is_no_number_is_refused(number: str) -> None:
    line = refused(f"{HEAD}cluster: {{node: p3.16xlarge, nodes: 2, oversubscription: {number}}}\n")
    assert line.startswith("<text>:3:58: cluster.oversubscription: ")
    assert line.count("\n") == 0


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("bandwidth: 5e-324 B/s", "bandwidth must be from 1 bit/s to 1000 PB/s"),
        ("bandwidth: 1e290 PB/s", "bandwidth must be from 1 bit/s to 1000 PB/s"),
        ("bandwidth: 1 GB/s, latency: 1.7e308 s", "time must be from 0 s to 1e9 s"),
        ("bandwidth: 1 GB/s, efficiency: 1.0e-320", "must be greater than or equal to 0.001"),
        ("bandwidth: 1 GB/s, efficiency: .nan", "must be"),
    ],
)
def test_quantities_that_nothing_has_are_refused_with_what_is_allowed(key: str, words: str) -> None:
    text = f"{HEAD}devices:\n  gpu[0-1]: {{kind: gpu}}\nlinks:\n  - {{between: [gpu0, gpu1], kind: pcie, {key}}}\n"
    assert words in refused(text)


# -- matrices ------------------------------------------------------------------------------


def test_a_pasted_matrix_of_a_machine_with_switches_is_refused() -> None:
    """Eight H100s behind NVSwitches print NV18 for every pair, but have 18 links each, not 126."""
    text = f"{HEAD}devices:\n  gpu[0-7]: {{part: h100-sxm5-80gb}}\nmeshes:\n  - part: nvlink4\n{matrix(8, 'NV18')}"
    lines = refused(text).splitlines()
    assert lines[0] == (
        "<text>:5:1: gpu0 has 126 NVLinks, h100-sxm5-80gb has 18; NVLink switches make every pair look linked: "
        "link each GPU to an nvlink-switch instead"
    )
    assert len(lines) == 8


def test_without_a_part_more_nvlinks_than_any_gpu_has_are_refused() -> None:
    text = f"{HEAD}devices:\n  gpu[0-7]: {{kind: gpu}}\nmeshes:\n  - kind: nvlink\n    bandwidth: 25 GB/s\n"
    assert "gpu0 has 126 NVLinks, no GPU has more than 72" in refused(text + matrix(8, "NV18"))
    assert len(topology_from_text(text + matrix(8, "NV2")).wires) == 28


@pytest.mark.parametrize("as_matrix", [True, False])
def test_more_links_than_ports_are_refused_however_they_are_written(as_matrix: bool) -> None:
    text = f"{HEAD}devices:\n  gpu[0-1]: {{part: v100-sxm2-16gb}}\n"
    text += (
        "meshes:\n  - part: nvlink2\n" + matrix(2, "NV40")
        if as_matrix
        else ("links:\n  - {between: [gpu0, gpu1], part: nvlink2, count: 40}\n")
    )
    assert "gpu0 has 40 NVLinks, v100-sxm2-16gb has 6" in refused(text)


def test_a_matrix_that_leaves_out_gpus_is_refused() -> None:
    text = (
        f"{HEAD}devices:\n  gpu[0-3]: {{kind: gpu}}\n  sw: {{kind: pcie-switch}}\n"
        "links:\n  - {between: ['gpu[0-3]', sw], kind: pcie, bandwidth: 16 GB/s}\n"
        "meshes:\n  - kind: nvlink\n    bandwidth: 25 GB/s\n"
    )
    assert refused(text + matrix(4, "NV1", rows=2)) == (
        "<text>:11:13: no matrix has a row for gpu2, gpu3; write SYS where there is no link, or use links for a few"
    )
    assert len(topology_from_text(text + matrix(4, "NV1")).wires) == 10


# -- equal ways ----------------------------------------------------------------------------


def fat_tree(kind: str, link: str, n_spines: int) -> Machine:
    """Return two leaf switches of two GPUs each, joined by *n_spines* spines."""
    return compile_machine(
        topology_from_text(
            f"{HEAD}devices:\n  gpu[0-3]: {{kind: gpu}}\n  leaf[0-1]: {{kind: {kind}}}\n"
            f"  spine[0-{n_spines - 1}]: {{kind: {kind}}}\n"
            f"links:\n  - {{between: ['gpu[0-3]', 'leaf[0,0,1,1]'], kind: {link}, bandwidth: 10 GB/s}}\n"
            f"  - {{between: ['spine[0-{n_spines - 1}]', leaf0], kind: {link}, bandwidth: 5 GB/s}}\n"
            f"  - {{between: ['spine[0-{n_spines - 1}]', leaf1], kind: {link}, bandwidth: 5 GB/s}}\n"
        )
    )


@pytest.mark.parametrize(("kind", "link"), [("pcie-switch", "pcie"), ("nvlink-switch", "nvlink")])
@pytest.mark.parametrize("n_spines", [1, 2, 4])
def test_equal_ways_through_a_fat_tree_share_the_bytes(kind: str, link: str, n_spines: int) -> None:
    machine = fat_tree(kind, link, n_spines)
    route = Router(machine).route(machine.gpus[0], machine.gpus[2])
    assert route.bandwidth_Bps == pytest.approx(min(10e9, n_spines * 5e9))
    shares = {machine.links[i].name: share for i, share in route.links}
    spread = {name: share for name, share in shares.items() if "spine" in name}
    assert len(spread) == 2 * n_spines
    assert all(share == pytest.approx(1 / n_spines) for share in spread.values())


@pytest.mark.parametrize("n_spines", [1, 2, 4])
def test_hosts_that_hang_at_switches_of_a_network_use_all_spines(n_spines: int) -> None:
    """No transport rule applies to a GPU at a network switch, but its bytes still spread over equal paths."""
    machine = fat_tree("network-switch", "ethernet", n_spines)
    assert seconds(machine, machine.gpus, "sharded") == pytest.approx(
        seconds(fat_tree("nvlink-switch", "nvlink", n_spines), machine.gpus, "sharded")
    )


def test_of_equal_ways_only_the_widest_are_taken() -> None:
    """A spine with a tenth of the rate carries nothing: it would delay the rest."""
    machine = compile_machine(
        topology_from_text(
            f"{HEAD}devices:\n  gpu[0-1]: {{kind: gpu}}\n  s[0-1]: {{kind: pcie-switch}}\n"
            "links:\n  - {between: ['gpu[0-1]', s0], kind: pcie, bandwidth: 10 GB/s}\n"
            "  - {between: ['gpu[0-1]', s1], kind: pcie, bandwidth: 1 GB/s}\n"
        )
    )
    route = Router(machine).route(*machine.gpus)
    assert route.bandwidth_Bps == pytest.approx(10e9)
    assert len(route.links) == 2


# -- the order of ranks --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_nodes"), [("p3.16xlarge", None), ("8gpu-pcie-dual-root", None), ("p3.16xlarge", 2), ("dgx-h100", 2)]
)
@pytest.mark.parametrize("strategy", ["ring", "bidirectional-ring", "single-ring"])
def test_a_ring_takes_as_long_in_whatever_order_gpus_are_named(name: str, n_nodes: int | None, strategy: str) -> None:
    machine = compile_machine(load_topology(name, n_nodes=n_nodes, fabric="infiniband-edr" if n_nodes else None))
    ranks = list(machine.gpus)
    least = seconds(machine, ranks, strategy)
    for seed in range(4):
        mixed = random.Random(seed).sample(ranks, len(ranks))
        assert seconds(machine, mixed, strategy) == pytest.approx(least, rel=1e-9)


def test_a_ring_of_named_gpus_goes_over_links_that_are_there() -> None:
    machine = compile_machine(load_topology("p3.16xlarge"))
    mixed = [machine.gpus[i] for i in (5, 0, 3, 6, 1, 7, 2, 4)]
    plan = find_strategy("ring").plan(Request(Communicator(machine, mixed), "all-reduce", 1e8))
    direct = {(link.src, link.dst) for link in machine.links if link.kind == "nvlink"}
    for ring in plan.rings:
        assert sorted(ring) == sorted(mixed)
        assert all(hop in direct for hop in pairwise([*ring, ring[0]]))
