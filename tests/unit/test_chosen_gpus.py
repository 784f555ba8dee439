"""``--gpus best:5`` finds the fastest five GPUs, and ``--gpus 5`` points out faster ones."""

from __future__ import annotations

import json
from itertools import combinations

import networkx
import pytest

from simulator.api.context import load_machine
from simulator.api.session import Session
from simulator.api.subsets import Symmetry, fastest_gpus
from simulator.cli import run
from simulator.network.machine import Machine
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where

CUBE = ["--topology", "p3.16xlarge", "--workload", "bytes:100MB"]


def marked(machine: Machine, chosen: tuple[int, ...]) -> networkx.DiGraph:
    graph = networkx.DiGraph()
    ranks = {machine.gpus[gpu] for gpu in chosen}
    for node in machine.nodes:
        graph.add_node(node.index, is_a=(node.kind, node.part_name, node.index in ranks))
    for link in machine.links:
        graph.add_edge(link.src, link.dst, is_a=(link.kind, link.bandwidth_Bps, link.latency_s, link.count))
    return graph


def same(a: dict, b: dict) -> bool:
    return a["is_a"] == b["is_a"]


@pytest.mark.parametrize(("name", "count"), [("8gpu-pcie-dual-root", 3), ("4x-v100-sxm2-pcie", 2), ("p3.16xlarge", 2)])
def test_one_set_of_each_kind_that_isomorphism_tells_apart(name: str, count: int):
    machine = load_machine(name)
    kinds, is_whole = Symmetry(machine).kinds(count, 1000, lambda _: 0.0)
    others: list[networkx.DiGraph] = []
    for chosen in combinations(range(len(machine.gpus)), count):
        graph = marked(machine, chosen)
        if not any(networkx.is_isomorphic(graph, other, same, same) for other in others):
            others.append(graph)
    assert is_whole
    assert len(kinds) == len(others)
    assert kinds[0] == tuple(range(count))


def test_no_set_at_all_is_faster_than_the_one_found():
    session, where = Session(), Where("p3.16xlarge")
    question = CollectiveQuestion(where=where, size_bytes=1e8, strategy="ring")
    times = {
        chosen: session.collective(CollectiveQuestion(where=where, size_bytes=1e8, strategy="ring", gpus=chosen))
        for chosen in combinations(range(8), 3)
    }
    choice = fastest_gpus(session, question, 3)
    least = min(result.sync_time_s for result in times.values())
    assert times[choice.gpus].sync_time_s == pytest.approx(least, rel=1e-6)
    assert times[0, 1, 2].sync_time_s <= max(result.sync_time_s for result in times.values())


def test_a_search_that_is_cut_says_so_and_keeps_the_best_that_it_saw():
    machine = load_machine("p3.16xlarge")
    kinds, is_whole = Symmetry(machine).kinds(5, 3, lambda chosen: float(sum(chosen)))
    assert not is_whole
    assert len(kinds) == 3
    assert kinds[0] == (0, 1, 2, 3, 4)


@pytest.mark.slow
def test_the_first_five_are_said_to_be_slower(capsys):
    assert run([*CUBE, "--strategy", "nccl", "--gpus", "5"]) == 0
    out = capsys.readouterr().out
    assert "other 5 GPUs are faster: 0-2,4-5 take" in out
    assert run([*CUBE, "--strategy", "nccl", "--gpus", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["faster_gpus"]["gpus"] == [0, 1, 2, 4, 5]
    assert found["faster_gpus"]["sync_time_s"] < found["results"][0]["sync_time_s"]


@pytest.mark.slow
def test_the_fastest_five_are_those_that_were_named(capsys):
    assert run([*CUBE, "--strategy", "nccl", "--gpus", "best:5", "--json"]) == 0
    first = capsys.readouterr()
    assert json.loads(first.out)["results"][0]["gpus"] == [0, 1, 2, 4, 5]
    assert "the fastest 5 of 8 GPUs of p3.16xlarge by nccl: 0-2,4-5" in first.err
    assert run([*CUBE, "--strategy", "nccl", "--gpus", "best:5", "--json"]) == 0
    assert capsys.readouterr().out == first.out


@pytest.mark.parametrize("which", ["0-4", "4"])
def test_nothing_is_said_where_all_are_alike_or_were_named(which: str, capsys):
    topology = "p3.16xlarge" if "-" in which else "dgx-h100"
    assert run(["--topology", topology, "--workload", "bytes:100MB", "--strategy", "nccl", "--gpus", which]) == 0
    assert "faster" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_step_takes_the_gpus_whose_exchange_is_fastest(capsys):
    step = ["--topology", "p3.16xlarge", "--workload", "vgg16", "--batch", "1", "--json"]
    times = {}
    for which in ("best:5", "0-4"):
        assert run([*step, "--gpus", which]) == 0
        times[which] = json.loads(capsys.readouterr().out)["results"][0]["step_time_s"]
    assert times["best:5"] < times["0-4"]


def test_who_cannot_choose_says_so(capsys):
    line = ["best", "--topology", "p3.16xlarge", "--workload", "vgg16", "--global-batch", "8", "--gpus", "best:4"]
    assert run(line) == 2
    assert capsys.readouterr().err == "simulate: --gpus best:4: is simulate's; name the GPUs here\n"
