"""Networks that other jobs use, too: bands reach up to the time at the rates that these may leave."""

import json
import math
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Neighbour, SlowLink, Where
from simulator.records import replace
from simulator.results.comparison import ComparisonWidth, ratio_of
from simulator.topology.cluster import Group, compose_cluster
from simulator.topology.load import load_topology
from tests.validate_commands import score_command

BOXES = Where("p3.16xlarge", nodes=4)
SHARED = replace(BOXES, shared_network=0.4)
WORDS = "its upper end is with rates between machines 40 % lower, as other jobs share the network"
_FILE = """schema_version: 1
name: shared-boxes
shared_network: {share}
cluster: {{node: p3.16xlarge, nodes: 4}}
"""


def exchange(where: Where, **asked: object) -> CollectiveQuestion:
    return CollectiveQuestion(where=where, **{"size_bytes": 1e9, "strategy": "nccl", **asked})  # type: ignore[arg-type]


def written(folder: Path, share: str = "40 %") -> str:
    path = folder / "boxes.yaml"
    path.write_text(_FILE.format(share=share))
    return str(path)


def test_an_exchange_at_two_fifths_lower_rates_takes_five_thirds_of_the_time() -> None:
    """Over one GPU a machine, whose links have no latency, all time is on the network: 1 / (1 - 0.4)."""
    where = Where("1gpu-100g", nodes=4, shared_network=0.4)
    shared = Session().shared(exchange(where, strategy="ring", size_bytes=64e9))
    assert shared is not None
    assert shared.lower == 0.4
    assert shared.slowdown == pytest.approx(1 / 0.6, rel=1e-4)


def test_so_does_a_step_that_is_all_exchange() -> None:
    question = StepQuestion(where=Where("p3.2xlarge", 2, "1 Mbit/s", shared_network=0.4), workload="vgg16", batch=1)
    result = Session().step(question)
    free = Session().step(replace(question, where=replace(question.where, shared_network=None)))
    assert result.step_time_s == free.step_time_s
    assert result.band is not None
    assert free.band is not None
    assert result.band.high_s / free.band.high_s == pytest.approx(1 / 0.6, rel=1e-3)
    assert result.band.low_s == pytest.approx(free.band.low_s, rel=1e-9)


def test_the_prediction_is_the_free_networks_and_nccl_chooses_by_it() -> None:
    session = Session()
    free, shared = session.collective(exchange(BOXES)), session.collective(exchange(SHARED))
    assert shared.sync_time_s == free.sync_time_s
    congested = session.collective(exchange(replace(SHARED, congested=True)))
    assert {key: congested.facts[key] for key in free.facts} == free.facts
    assert shared.shared is not None
    assert shared.shared.slowdown == pytest.approx(congested.sync_time_s / free.sync_time_s, rel=1e-12)
    assert shared.band is not None
    assert free.band is not None
    assert shared.band.high_s == pytest.approx(free.band.high_s * shared.shared.slowdown, rel=1e-9)


def test_a_congested_switch_carries_less_too() -> None:
    where, session = Where("oversubscribed"), Session()
    cluster = compose_cluster([Group(load_topology("1gpu-100g"), 4)], oversubscription=4.0)
    assert cluster.shared_network is None
    session.know(where, replace(cluster, shared_network=0.4))
    shared = session.shared(exchange(where, strategy="ring", size_bytes=64e9))
    assert shared is not None
    assert shared.slowdown == pytest.approx(1 / 0.6, rel=1e-4)


def test_what_does_not_cross_the_network_is_as_before(tmp_path: Path) -> None:
    session = Session()
    one = Where(written(tmp_path))
    assert session.shared(exchange(one, gpus=range(8))) is None
    assert session.shared(exchange(one)) is not None
    assert session.shared(StepQuestion(where=one, workload="resnet50", batch=8, device="node0.gpu0")) is None
    machine = tmp_path / "machine.yaml"
    machine.write_text("schema_version: 1\nname: m\nshared_network: 40 %\ndevices: {gpu0: {part: t4}}\n")
    assert session.shared(StepQuestion(where=Where(str(machine)), workload="resnet50", batch=8)) is None


def test_it_is_the_adapters_network_and_no_fabric_in_its_place(tmp_path: Path) -> None:
    zay = "4x-v100-sxm2-32gb-4xopa"
    assert load_topology(zay, n_nodes=2).shared_network == 0.4
    assert load_topology(zay, n_nodes=2, fabric="infiniband-hdr").shared_network is None
    assert load_topology(written(tmp_path), fabric="infiniband-hdr").shared_network is None
    assert load_topology(written(tmp_path)).shared_network == 0.4


def test_with_other_changes_of_the_machine() -> None:
    """Slow links and neighbours stay, and the shared network's rates are lower besides."""
    slow = replace(
        SHARED, slow_links=(SlowLink("node*.nic0-network", 0.5),), neighbours=(Neighbour("node0.gpu0-node0.gpu1", 1e9),)
    )
    shared = Session().shared(exchange(slow))
    assert shared is not None
    assert shared.slowdown == pytest.approx(1 / 0.6, rel=0.01)


def test_neighbours_are_among_the_other_jobs() -> None:
    """They leave what they leave, or what all other jobs leave together, if that is less; and they still fit."""
    zay = Where("4x-v100-sxm2-32gb-4xopa", nodes=4)  # pairs of adapters with 5.4 GB/s, 3.3 GB/s when congested
    session, ring = Session(), {"strategy": "ring", "gpus": (0, 4)}
    of_four = replace(zay, neighbours=(Neighbour("node0.gpu0-node1.gpu0", 4e9),))
    times_s = [session.time_s(exchange(where, **ring)) for where in (zay, replace(zay, congested=True), of_four)]
    assert times_s[0] < times_s[1] < times_s[2]
    assert session.time_s(exchange(replace(of_four, congested=True), **ring)) == pytest.approx(times_s[2], rel=1e-9)


def test_a_link_that_slows_for_a_while_is_slow_and_congested_then() -> None:
    """At half its rate the whole time, whether that is said with a time or without one."""
    for_good = SlowLink("node*.nic0-network", 0.5)
    ring = exchange(replace(Where("1gpu-100g", nodes=4), congested=True, shared_network=0.4), strategy="ring")
    one, other = (
        Session().time_s(replace(ring, where=replace(ring.where, slow_links=(slow,))))
        for slow in (for_good, replace(for_good, until_s=1e6))
    )
    assert other == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ("0.4", '3:17: shared_network: share needs a unit, for example "40 %"; got the bare number 0.4'),
        ("40 percent", "3:17: shared_network: 'percent' is not a unit of share; did you mean %?"),
        ("100 %", "3:17: shared_network: share must be from 0.1 % to 99 %; got '100 %'"),
        ("-5 %", "3:17: shared_network: share must be more than zero; got '-5 %'"),
    ],
)
def test_a_share_is_a_percentage(tmp_path: Path, share: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_topology(written(tmp_path, share))
    assert str(error.value).endswith(said)


def test_the_key_is_found_by_a_misspelt_one(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(_FILE.format(share="40 %").replace("shared_network", "shared_netwrk"))
    with pytest.raises(InputError, match=r"a\.yaml:3:1: unknown key 'shared_netwrk'; did you mean 'shared_network'\?"):
        load_topology(str(path))


def test_the_option_needs_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    said = "--topology p3.16xlarge --workload bytes:1GB --strategy nccl --shared-network 40%"
    assert run(said.split()) == 2
    error = capsys.readouterr().err
    assert "--shared-network: is of the network between machines, and p3.16xlarge is one; add --nodes" in error


STEP = "--workload gpt2 --batch 8 --precision amp-fp16"


@pytest.mark.parametrize(
    "asked",
    [
        f"{{}} {STEP}",
        f"{{}} {STEP} -v",
        "{} --workload bytes:1GB --strategy nccl",
        "best {} --workload gpt2 --global-batch 256 --precision amp-fp16",
        f"run {{}} {STEP} --tokens 1G",
        "sweep {} --workload gpt2 --precision amp-fp16 --over batch=4,8",
    ],
)
def test_each_answer_with_a_band_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str) -> None:
    assert run(asked.format(f"--topology {written(tmp_path)}").split()) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (WORDS.replace("40 % ", "") if "sweep" in asked else WORDS) in shown


def test_json_has_the_share_and_the_slowdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    assert run(f"--topology {file} {STEP} --json".split()) == 0
    document = json.loads(capsys.readouterr().out)
    [result] = document["results"]
    assert document["shared_network"] == result["shared_network"]
    assert result["shared_network"]["lower"] == 0.4
    assert result["shared_network"]["slowdown"] > 1
    assert run(f"--topology p3.16xlarge --nodes 4 {STEP} --json".split()) == 0
    assert "shared_network" not in json.loads(capsys.readouterr().out)


def test_scores_say_how_many_bands_reach_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        "machine,n_nodes,n_gpus,collective,bytes,time_s,trust\n"
        "shared-boxes,4,32,all_reduce,1000000000,1.5,A\nshared-boxes,4,32,all_reduce,1000000000,90,A\n"
    )
    said = {"machine": [f"shared-boxes={written(tmp_path)}"]}
    score_command([str(table)], **said)
    assert f"80 % band of a shared network: {WORDS}; it holds 1 of 2 rows" in " ".join(capsys.readouterr().out.split())
    score_command([str(table)], json=True, **said)
    [found] = json.loads(capsys.readouterr().out)["tables"]
    assert found["shared_networks"] == [{"lower": 0.4, "rows": 2, "in_band": 1}]


def test_the_same_traffic_slows_both_sides_of_a_comparison() -> None:
    """Of two answers over one network, what differs is what the traffic costs one of them more."""
    free, alone, busy = ComparisonWidth(0.1), ComparisonWidth(0.1, network=0.0), ComparisonWidth(0.1, network=0.3)
    assert ratio_of(2.0, 1.0, (busy, busy)).band == ratio_of(2.0, 1.0, (free, free)).band
    half = math.hypot(0.1, 0.1)
    slower, faster = ratio_of(2.0, 1.0, (busy, alone)), ratio_of(2.0, 1.0, (alone, busy))
    assert slower.band == f" (80 % band {2 * math.exp(-half):.3g} to {2 * math.exp(half + 0.3):.3g})"
    assert faster.band == f" (80 % band {2 * math.exp(-half - 0.3):.3g} to {2 * math.exp(half):.3g})"
    assert slower.inverse.band == f" (80 % band {math.exp(-half - 0.3) / 2:.3g} to {math.exp(half) / 2:.3g})"
    assert ratio_of(1.4, 1.0, (alone, alone)).is_clear
    assert not ratio_of(1.4, 1.0, (alone, busy)).is_clear
