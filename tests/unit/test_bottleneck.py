"""The reported bottleneck is binding; NCCL chooses by nominal link speeds and runs at achieved ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.api.context import load_machine as load
from simulator.plan.plan import Perturbation, Plan
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.questions.where import Neighbour, SlowLink, Where
from simulator.results.bottleneck import CapacityGiven, binding, given_of
from simulator.results.result import Result

P3 = "p3.16xlarge"
OVER = "schema_version: 1\nname: over\ncluster:\n  node: dgx-h100\n  nodes: 2\n  oversubscription: 4\n"
DUAL = """
schema_version: 1
name: dual
devices: {"gpu[0-3]": {part: a100-pcie-40gb}, "sw[0-1]": {part: broadcom-pex88000}, "cpu[0-1]": {part: xeon-gold-6230}}
links:
  - {between: ["gpu[0-3]", "sw[0,0,1,1]"], kind: pcie, bandwidth: 16 GB/s}
  - {between: ["sw[0-1]", "cpu[0-1]"], kind: pcie, bandwidth: 16 GB/s}
  - {between: [cpu0, cpu1], kind: socket, bandwidth: 20 GB/s}
"""


def of(strategy: str, *links: SlowLink, topology: str = P3, neighbours: tuple[Neighbour, ...] = ()) -> Result:
    where = Where(topology, slow_links=links, neighbours=neighbours)
    return Session().collective(CollectiveQuestion(where=where, size_bytes=500e6, strategy=strategy))


def test_nccl_keeps_its_rings_on_a_slow_link() -> None:
    whole, slow = of("nccl"), of("nccl", SlowLink("gpu0-gpu3", 0.1))
    for_long = of("nccl", SlowLink("gpu0-gpu3", 0.1, 0.0, 10.0))
    assert slow.rings == whole.rings == for_long.rings
    assert slow.sync_time_s == pytest.approx(for_long.sync_time_s, rel=1e-6)
    assert slow.sync_time_s > 5 * whole.sync_time_s
    assert of("multi-ring", SlowLink("gpu0-gpu3", 0.1)).sync_time_s < slow.sync_time_s / 5
    busy = of("nccl", neighbours=(Neighbour("gpu0-gpu3", 40e9),))
    assert busy.rings == whole.rings
    assert busy.sync_time_s > whole.sync_time_s


def test_nccl_has_no_ring_over_a_link_that_is_not_there() -> None:
    without = of("nccl", SlowLink("gpu0-gpu3", 0.0))
    ways = {frozenset(hop) for ring in without.rings for hop in zip(ring, ring[1:] + ring[:1], strict=True)}
    assert {frozenset((0, 3))} & {frozenset(hop) for ring in of("nccl").rings for hop in pairwise(ring)}
    assert frozenset((0, 3)) not in ways


@pytest.mark.parametrize("times", [(0.0, float("inf")), (0.0, 10.0)])
def test_a_slow_link_is_the_bottleneck_and_its_use_is_of_what_it_gives(times: tuple[float, float]) -> None:
    found = of("nccl", SlowLink("gpu0-gpu3", 0.1, *times)).bottleneck
    assert found is not None
    assert found.name in ("gpu0->gpu3", "gpu3->gpu0")
    assert 0.985 < found.utilisation < 0.99  # less the start, and the filling of a chunk


def test_a_full_link_binds_rather_than_one_that_nccl_keeps_half_empty() -> None:
    found = of("nccl", topology="8x-titanx-maxwell-dual-root").bottleneck
    assert found is not None
    assert (found.name, found.utilisation > 0.9) == ("plx0->cpu0", True)
    found = of("nccl", topology="8x-a100-pcie").bottleneck  # traffic through a CPU, at the most that NCCL reaches there
    assert found is not None
    assert found.name == "plx0->gpu0"


@pytest.mark.slow
def test_a_slow_adapter_costs_a_step_what_it_costs_for_a_while() -> None:
    def step_s(*links: SlowLink) -> float:
        where = Where("dgx-h100", 2, slow_links=links)
        layout = parse_layout("fsdp")
        return Session().time_s(StepQuestion(where=where, workload="gpt2-xl", batch=1, layout=layout))

    ends = "node0.ib0-network"
    for_good, for_long = step_s(SlowLink(ends, 0.1)), step_s(SlowLink(ends, 0.1, 0.0, 100.0))
    assert for_good == pytest.approx(for_long, rel=0.1)
    assert for_good > 1.2 * step_s()


@pytest.mark.slow
def test_the_fabric_binds_a_step_where_it_is_narrower_than_what_adapters_send(tmp_path: Path) -> None:
    path = tmp_path / "over.yaml"
    path.write_text(OVER)
    question = StepQuestion(where=Where(str(path)), workload="gpt2", batch=1, layout=parse_layout("fsdp"))
    found = Session().step(question).bottleneck
    assert found is not None
    assert found.name == "network:fabric"


@pytest.mark.slow
def test_a_pipeline_names_the_link_of_what_it_exchanges_longest() -> None:
    layout = parse_layout("tp=4,pp=2")
    question = StepQuestion(where=Where("dgx-h100"), workload="gpt2", batch=1, micro_batches=4, layout=layout)
    found = Session().step(question).bottleneck
    assert found is not None
    assert "nvswitch" in found.name
    assert found.utilisation > 0.005


def test_what_a_link_gives_is_the_integral_over_the_time() -> None:
    changes = [Perturbation(2.0, "a", 0.5), Perturbation(4.0, "a", 1.0), Perturbation(0.0, "b", 0.1)]
    assert given_of(changes, 10.0) == {"a": CapacityGiven(0.9, 0.9), "b": CapacityGiven(0.1, 0.1)}
    assert given_of([Perturbation(2.0, "a", 0.0), Perturbation(7.0, "a", 0.2)], 10.0) == {
        "a": CapacityGiven(pytest.approx(0.26), pytest.approx(0.52))
    }
    assert given_of([Perturbation(0.0, "a", 0.0)], 1.0) == {}


@pytest.mark.parametrize("strategy", ["ring", "gpu0"])
def test_a_link_that_is_out_of_use_binds_but_is_not_used(strategy: str) -> None:
    whole, link = of(strategy, topology="4gpu-pcie"), "gpu3->switch0" if strategy == "ring" else "gpu0->switch0"
    found = of(strategy, SlowLink(f"{link[:4]}-switch0", 0.0, 1e-3, 51e-3), topology="4gpu-pcie")
    assert found.sync_time_s == pytest.approx(whole.sync_time_s + 50e-3, rel=1e-9)
    assert found.bottleneck is not None
    assert whole.bottleneck is not None
    assert found.bottleneck.name == link
    for use in found.links:  # bytes at full rate, of the whole time
        assert use.utilisation == pytest.approx(use.bytes / 16e9 / found.sync_time_s, rel=1e-9)


def test_a_step_says_how_long_a_link_is_used_that_was_out_of_use() -> None:
    question = StepQuestion(where=Where(P3), workload="alexnet", batch=8)
    whole = Session().step(question)
    link = SlowLink("gpu0-gpu3", 0.0, 0.0, 9 * whole.step_time_s)
    found = Session().step(replace(question, where=Where(P3, slow_links=(link,))))
    assert found.bottleneck is not None
    assert whole.bottleneck is not None
    assert found.bottleneck.name == "gpu0->gpu3"
    assert found.bottleneck.utilisation < whole.bottleneck.utilisation / 5


@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_a_step_names_the_link_that_is_slow_for_a_while_as_for_good(tmp_path: Path, factor: float) -> None:
    path = tmp_path / "dual.yaml"
    path.write_text(DUAL)
    for when in ((), (0.0, 10.0)):
        where = Where(str(path), slow_links=(SlowLink("gpu3-sw1", factor, *when),))
        found = Session().step(StepQuestion(where=where, workload="alexnet", batch=8)).bottleneck
        assert found is not None
        assert found.name == "gpu3->sw1"
        assert found.utilisation > 0.56


def test_the_direction_that_a_neighbour_uses_binds() -> None:
    found = of("ring", topology="4gpu-pcie", neighbours=(Neighbour("gpu2-gpu3", 4e9),))
    assert found.bottleneck is not None
    assert found.bottleneck.name == "gpu2->switch0"
    used = {use.name: use.utilisation for use in found.links}
    assert used["switch0->gpu3"] == used["gpu2->switch0"] == pytest.approx(1.0, rel=1e-9)  # of what it leaves
    assert used["gpu3->switch0"] == used["switch0->gpu2"] == pytest.approx(0.75, rel=1e-9)


def test_what_binds_is_what_is_needed_longest() -> None:
    machine = load("4gpu-pcie")
    link, other = machine.links[0], machine.links[2]
    used = {link.resource: 0.5, other.resource: 0.8}
    assert binding(machine, Plan(()), used, {}) == other.resource
    assert binding(machine, Plan((), facts={"bound_link": link.name, "bound_share": 0.5}), used, {}) == link.resource
    assert binding(machine, Plan((), facts={"bound_link": link.name, "bound_share": 0.9}), used, {}) == other.resource
