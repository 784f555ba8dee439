"""A link that runs at a part of its rate costs what a link of that rate costs, for good or for a while."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.api.variants import applied
from simulator.collectives.nccl.strategy import KEPT
from simulator.engine.executor import execute
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Fragment, Perturbation, PlanBuilder
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import parse_layout
from simulator.questions.single import MessageQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Neighbour, SlowLink, Where
from simulator.topology.load import load_topology
from simulator.workload import Collective
from tests.machines import crossbar
from validate.check.causes import causes_of

SESSION = Session()
_WIDE = """
schema_version: 1
name: dual
devices: {"gpu[0-3]": {part: a100-pcie-40gb}, "sw[0-1]": {part: broadcom-pex88000}, "cpu[0-1]": {part: xeon-gold-6230}}
links:
  - {between: ["gpu[0-2]", "sw[0,0,1]"], kind: pcie, bandwidth: 16 GB/s}
  - {between: [gpu3, sw1], kind: pcie, bandwidth: 16 GB/s}
  - {between: ["sw[0-1]", "cpu[0-1]"], kind: pcie, bandwidth: 16 GB/s}
  - {between: [cpu0, cpu1], kind: socket, bandwidth: 20 GB/s}
"""
_CARD = "[gpu3, sw1], kind: pcie, bandwidth: 16 GB/s"
_STEPS = [
    (Where("p3.16xlarge"), "gpu0-gpu3"),
    (Where("p3.16xlarge", 2), "node0.nic0-network"),
]
_FACTORS = [0.25, 0.5, 0.6, 0.9]


def asked(where: Where, collective: str = "all-reduce", **more: object) -> CollectiveQuestion:
    return CollectiveQuestion(
        where=where,
        collective=collective,
        size_bytes=160e6,
        **{"strategy": "nccl", "algorithm": None if collective == "send-recv" else "ring", **more},
    )


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machines") / "dual.yaml"
    path.write_text(_WIDE, encoding="utf-8")
    return path


def narrow(wide: Path, factor: float) -> Where:
    path = wide.with_name(f"narrow-{factor}.yaml")
    path.write_text(_WIDE.replace(_CARD, _CARD.replace("16", str(16 * factor))), encoding="utf-8")
    return Where(str(path))


@pytest.mark.parametrize("collective", ["all-reduce", "send-recv"])
@pytest.mark.parametrize("factor", _FACTORS)
def test_a_slow_card_costs_what_a_narrow_one_costs(wide: Path, factor: float, collective: str) -> None:
    edited_s = SESSION.time_s(asked(narrow(wide, factor), collective))
    for when in ((), (0.0, 10.0)):
        where = Where(str(wide), slow_links=(SlowLink("gpu3-sw1", factor, *when),))
        assert SESSION.time_s(asked(where, collective)) == pytest.approx(edited_s, rel=1e-4)


def test_a_window_at_another_rate_replaces_the_share_of_the_lasting_one(wide: Path) -> None:
    links = (SlowLink("gpu3-sw1", 0.5), SlowLink("gpu3-sw1", 1.0, 0.0, 10.0))
    whole_s = SESSION.time_s(asked(Where(str(wide))))
    assert SESSION.time_s(asked(Where(str(wide), slow_links=links))) == pytest.approx(whole_s, rel=1e-6)


def test_half_the_time_at_half_the_rate_moves_three_quarters(wide: Path) -> None:
    """One flow over 16 GB/s reaches 9.6 GB/s, and 4.8 GB/s at half of the rate."""
    where = Where(str(wide), slow_links=(SlowLink("gpu3-sw1", 0.5, 0.0, 0.01),))
    whole_s = SESSION.time_s(asked(Where(str(wide)), "send-recv"))
    assert SESSION.time_s(asked(where, "send-recv")) == pytest.approx(whole_s + 0.005, rel=2e-3)


@pytest.mark.parametrize("when", [(), (0.0, 10.0)])
def test_a_neighbour_takes_nothing_of_the_share_while_there_is_room(wide: Path, when: tuple[float, ...]) -> None:
    """4.8 GB/s, 60 % of 8 GB/s, are left where another job takes 3 GB/s."""
    slow = (SlowLink("gpu3-sw1", 0.5, *when),)
    alone = Where(str(wide), slow_links=slow)
    beside = replace(alone, neighbours=(Neighbour("gpu3-cpu1", 3e9),))
    assert SESSION.time_s(asked(beside, "send-recv")) == pytest.approx(SESSION.time_s(asked(alone, "send-recv")))


@pytest.mark.parametrize("topology", ["dgx-h100", "p3.16xlarge"])
@pytest.mark.parametrize("nodes", [None, 2])
def test_for_good_and_for_long_cost_the_same(topology: str, nodes: int | None) -> None:
    where = Where(topology, nodes)
    machine = SESSION.machine(where)
    links = [link for link in machine.outgoing[machine.gpus[0]] if link.kind == "nvlink"][:1]
    if nodes and topology == "p3.16xlarge":
        links += [link for link in machine.links if link.kind == "ethernet"][:1]
    for link in links:
        ends = link.name.replace("->", "-")
        found = []
        for when in ((), (0.0, 1000.0)):
            there = replace(where, slow_links=(SlowLink(ends, 0.5, *when),))
            found.append(SESSION.time_s(replace(asked(there), algorithm=None)))
        assert found[1] == pytest.approx(found[0], rel=1e-9), ends


def test_an_exchange_within_a_step_follows_the_link_too(wide: Path) -> None:
    session = Session()
    question = asked(Where(str(wide)))
    timeline = session.collective(question).timeline
    machine = timeline.machine
    builder = PlanBuilder()
    builder.add("exchange", (Fragment(timeline.plan),), stream="exchange")
    slow = (Perturbation(0.0, "gpu3->sw1", 0.5), Perturbation(0.0, "sw1->gpu3", 0.5))
    plan = replace(builder.build(), perturbations=slow)
    whole_s = session.time_s(asked(narrow(wide, 0.5)))
    for fold in (True, False):
        assert execute(machine, plan, fold=fold).end_s == pytest.approx(whole_s, rel=1e-3)


_SECOND = 10e9  # bytes that a link of the crossbar carries in a second
_CORES = "gpu0:multiprocessors"


def exchange_and_kernel(slowed: int, factor: float, until_s: float, kernel_s: float) -> list[float]:
    """Return the ends of an exchange and of a kernel beside it while the output of GPU *slowed* gives *factor*.

    The exchange sends for a second from gpu0, then for one from gpu2, and holds half of gpu0's multiprocessors; the
    kernel uses them all.
    """
    machine = crossbar(4, bandwidth="10 GB/s")
    router, gpus = Router(machine), machine.gpus
    inner, builder = PlanBuilder(), PlanBuilder()
    for src in (0, 2):
        inner.transfer("send", [Flow(router.route(gpus[src], gpus[src + 1]), _SECOND)])
    builder.add("exchange", (Fragment(inner.build(), ((_CORES, 0.5),)),), stream="a")
    builder.work("kernel", "gpu0", kernel_s, stream="b", loads=((_CORES, 1.0),))
    link = machine.resource_names[router.route(gpus[slowed], gpus[slowed + 1]).loads[0][0]]
    changes = (Perturbation(0.0, link, factor), Perturbation(until_s, link))
    folded, stepped = (execute(machine, replace(builder.build(), perturbations=changes), fold=f) for f in (True, False))
    assert [span.end_s for span in folded.spans] == pytest.approx([span.end_s for span in stepped.spans], rel=1e-9)
    return [span.end_s for span in folded.spans]


@pytest.mark.parametrize("slowed", [0, 2])
def test_an_exchange_takes_as_long_as_the_slowed_link_of_one_of_its_rounds(slowed: int) -> None:
    """The link is in use for half of the exchange: at half of its rate, which is no less than the average, 3 s."""
    assert exchange_and_kernel(slowed, 0.5, 100.0, 0.0) == pytest.approx([3.0, 0.0])


def test_an_exchange_goes_on_with_what_is_left_of_it() -> None:
    """A third has passed after 1 of 3 s; at the full rate, the other two thirds take 4/3 s."""
    assert exchange_and_kernel(0, 0.5, 1.0, 0.0) == pytest.approx([1.0 + 4 / 3, 0.0])


def test_a_slowed_exchange_holds_multiprocessors_for_longer() -> None:
    """Half of them throughout: kernel and exchange run at 2/3 of their pace beside each other, as fast as that is.

    The kernel of 2 s takes 3 s, in which 2 of the exchange's 3 s pass; the last one passes alone.  With the full rate
    from 1.5 s on, when 1/3 of the exchange and 1 s of the kernel have passed, the latter still ends at 3 s: the rest
    of the exchange, 4/3 s alone, is left with 1/3 s.
    """
    assert exchange_and_kernel(0, 0.5, 100.0, 2.0) == pytest.approx([4.0, 3.0])
    assert exchange_and_kernel(0, 0.5, 1.5, 2.0) == pytest.approx([3.0 + 1 / 3, 3.0])


def test_an_exchange_waits_for_a_link_that_gives_nothing() -> None:
    """It moves no byte for a second, and the kernel has all multiprocessors; then both run at 2/3 of their pace."""
    assert exchange_and_kernel(0, 0.0, 1.0, 2.0) == pytest.approx([1.0 + 1.5 + 1.0, 2.5])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["dp", "fsdp"])
@pytest.mark.parametrize(("where", "ends"), _STEPS)
def test_a_step_beside_a_link_slow_throughout(where: Where, ends: str, layout: str) -> None:
    """Slow for the whole run is slow for good; a part of it costs something between nothing and that.

    A little less than between, where the memory that a slower exchange leaves to kernels beside it is worth more than
    that of later kernels.
    """
    question = StepQuestion(where=where, workload="vgg16", batch=16, strategy="nccl", layout=parse_layout(layout))

    def slow_s(factor: float, *when: float) -> float:
        return SESSION.time_s(replace(question, where=replace(where, slow_links=(SlowLink(ends, factor, *when),))))

    usual_s = SESSION.time_s(question)
    for factor, less in ((0.9, 1e-3), (0.1, 0.0)):
        lasting_s = slow_s(factor)
        assert slow_s(factor, 0.0, 100.0) == pytest.approx(lasting_s, rel=1e-9)
        assert usual_s < slow_s(factor, 0.0, 0.6 * usual_s) < lasting_s * (1 + less)


def test_the_narrow_card_is_the_bottleneck(wide: Path) -> None:
    slow = SlowLink("gpu3-sw1", 0.5)
    for where in (narrow(wide, 0.5), Where(str(wide), slow_links=(slow,))):
        found = SESSION.collective(asked(where))
        assert found.bottleneck is not None
        assert found.bottleneck.name == found.facts["bound_link"] == "gpu3->sw1"
        assert found.bottleneck.utilisation == max(use.utilisation for use in found.links) == pytest.approx(0.6, 0.01)
        assert "NCCL moves at most 4.8 GB/s over gpu3->sw1, 60% of its 8 GB/s per direction" in found.notes


def test_the_slowed_link_is_the_bottleneck_for_a_while_too(wide: Path) -> None:
    for factor in _FACTORS:
        where = Where(str(wide), slow_links=(SlowLink("gpu3-sw1", factor, 0.0, 10.0),))
        found = SESSION.collective(asked(where))
        assert found.bottleneck is not None
        assert found.bottleneck.name == "gpu3->sw1"


def test_one_narrow_card_explains_the_times_of_a_machine_with_one(wide: Path) -> None:
    """On all-to-all all links at half of their rate are slower than one of a GPU."""
    there = Where(str(wide))
    both: tuple[Collective, ...] = ("all-reduce", "all-to-all")
    for collective in both:
        question = CollectiveQuestion(where=there, collective=collective, size_bytes=1e6)
        there_is = applied({}, load_topology(str(wide)), question)
        causes = {each.words: each.question for each in causes_of(SESSION, there_is, ())}
        narrow_s = SESSION.time_s(replace(question, where=narrow(wide, 0.5)))
        one, every = (
            causes["one GPU's link at half of its rate, as gpu0-sw0"],
            SESSION.time_s(next(asked for words, asked in causes.items() if words.startswith("PCIe links at half"))),
        )
        assert SESSION.time_s(one) == pytest.approx(narrow_s, rel=1e-6)
        assert (every > 1.1 * narrow_s) == (collective == "all-to-all")


@pytest.mark.parametrize("algorithm", ["nvls_tree", "tree", "ring"])
@pytest.mark.parametrize("size_bytes", [1e6, 1e9])
def test_between_machines_every_algorithm_follows_an_adapter_that_is_slow_for_a_while(
    algorithm: str, size_bytes: float
) -> None:
    found = []
    for when in ((), (0.0, 1000.0)):
        there = Where("dgx-h100", 2, slow_links=(SlowLink("node0.ib0-network", 0.1, *when),))
        found.append(SESSION.time_s(replace(asked(there), algorithm=algorithm, size_bytes=size_bytes)))
    assert found[1] == pytest.approx(found[0], rel=1e-9)


@pytest.mark.parametrize(("fabric", "ends"), [("ethernet-10g", "nic0"), ("infiniband-edr", "nic0")])
def test_a_message_over_a_slow_cable_takes_as_long_as_over_a_narrow_one(fabric: str, ends: str) -> None:
    where = Where("linux-host", 2, fabric)
    cable = next(
        link.name.replace("->", "-") for link in SESSION.machine(where).links if link.kind in ("ethernet", "infiniband")
    )
    whole_s = SESSION.time_s(MessageQuestion(where=where, size_bytes=1e9))
    half = replace(where, slow_links=(SlowLink(cable, 0.5),))
    assert SESSION.time_s(MessageQuestion(where=half, size_bytes=1e9)) == pytest.approx(2 * whole_s, rel=1e-3)
    assert SESSION.bound_s(MessageQuestion(where=half, size_bytes=1e9)) == pytest.approx(
        2 * SESSION.bound_s(MessageQuestion(where=where, size_bytes=1e9))
    )


def test_an_answer_says_that_nccl_keeps_a_choice_that_the_rate_would_change() -> None:
    """NCCL's tables know PCIe by its rate, and NVLink by its generation."""
    for ends, factor, is_kept in (("gpu0-plx0", 0.1, True), ("gpu0-plx0", 1.0, False), ("gpu0-gpu3", 0.1, False)):
        topology = "8x-h100-pcie" if ends == "gpu0-plx0" else "p3.16xlarge"
        where = Where(topology, slow_links=(SlowLink(ends, factor),))
        assert (KEPT in SESSION.collective(replace(asked(where), algorithm=None)).notes) == is_kept
        assert (KEPT in SESSION.step(StepQuestion(where=where, workload="alexnet", batch=8)).notes) == is_kept
    assert KEPT.startswith("NCCL still chooses by the nominal rate")
