"""Estimates of the search without simulation: costs of shards, equally expensive layouts, missing terms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api.outcome import least_step_s
from simulator.api.session import Session
from simulator.cli import run
from simulator.engine.timeline import Span
from simulator.questions.layout import REPLICAS, parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.search.parts import RankWork, UnitCost, units_apart
from simulator.search.price import Pricer, _update_s
from simulator.search.run import _chosen, find_best
from simulator.search.space import Space
from simulator.training.worker import ChunkRun, LaunchLabel
from simulator.workload.network import Network

SESSION = Session()
BEST = ["best", "--topology", "dgx-h100", "--global-batch", "16", "--jobs", "1", "-q"]


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_shards_of_parameters_are_priced_as_simulated_where_exchanges_dominate(micro_batches: int) -> None:
    question = StepQuestion(
        where=Where("dgx-h100", 2, fabric="ethernet-25g"),
        workload="llama2-7b",
        batch=1,
        sizes=(("attention", "fused"), ("layers", 3)),
        options=StepOptions(precision="amp-bf16", optimizer="adam"),
        gpus=tuple(range(16)),
    )
    fixed = tuple({"tp": 1, "cp": 1, "pp": 1, "zero": 3, "shards": 16}.items())
    space = Space(question, 16 * micro_batches, 16, 8, fixed, micro_batch=1)
    priced = Pricer(space, SESSION).outcome(REPLICAS)[0]
    assert {way.recompute for way, _, _ in priced} == {"none", "full"}
    for way, time_s, _ in priced:
        assert time_s == pytest.approx(SESSION.step(space.asked(way)).step_time_s, rel=0.06)


def test_of_ways_that_cost_the_same_one_order_alone_is_left_out() -> None:
    orders = ("dp=8,pp=2 micro-batch=1 recompute=none", "dp=8,pp=2,order=dp-pp-tp-cp micro-batch=1 recompute=none")
    ways = [*orders, "dp=16,fsdp micro-batch=1 recompute=none", "dp=16,fsdp micro-batch=1 recompute=full"]
    chosen = _chosen([[words, 1.0, 1e9] for words in ways], 16)
    assert [words for words, _, _ in chosen] == [orders[0], *ways[2:]]


def test_what_does_not_fit_says_how_near_the_nearest_was(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ["--workload", "llama3-70b", "--parallel", "tp=8,sp=1,pp=1,cp=1", "--micro-batch", "1"]
    assert run([*BEST, *fixed, "--recompute", "full"]) == 2
    error = capsys.readouterr().err
    assert "the nearest, tp=8,dp=1,sp" in error or "the nearest, tp=8,sp" in error
    assert "a device, which has 85.52 GB" in error


def test_a_degree_that_does_not_divide_the_devices_says_which_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BEST, "--workload", "llama2-7b", "--parallel", "tp=3"]) == 2
    assert "--parallel: tp=3 does not divide 8 GPUs; 1, 2, 4, 8 would do" in capsys.readouterr().err
    assert run([*BEST, "--workload", "llama2-7b", "--parallel", "tp=4,pp=4"]) == 2
    found = "pp=4 does not divide 8 GPUs, of which the degrees before it leave 2; 1, 2 would do"
    assert found in capsys.readouterr().err


def test_blocks_that_do_the_same_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[list[str]] = []
    find = RankWork._seconds

    def counted(part: RankWork, network: Network) -> tuple[float, ...]:
        computed.append([layer.name for layer in network.layers])
        return find(part, network)

    monkeypatch.setattr(RankWork, "_seconds", counted)
    question = StepQuestion(
        where=Where("dgx-a100-80gb"), workload="gpt3-125m", batch=2, options=StepOptions(precision="amp-bf16")
    )
    part = RankWork(SESSION, question, SESSION.group(question.where, None))
    first, *between, last = part.costs
    assert len(between) == 10
    assert len(set(between)) == 1
    assert first.forward_s > between[0].forward_s < last.forward_s
    assert [layers[0].partition(".")[0] for layers in computed] == ["embed", "layers", "norm"]
    whole_s = SESSION.step(question).step_time_s
    assert sum(cost.forward_s + cost.backward_s + cost.update_s for cost in part.costs) == pytest.approx(
        whole_s, rel=0.05
    )


SMALL = StepQuestion(
    where=Where("dgx-a100-80gb", 2),
    workload="llama2-7b",
    batch=1,
    sizes=(("attention", "fused"), ("layers", 3)),
    options=StepOptions(precision="amp-bf16", optimizer="adam"),
    gpus=tuple(range(16)),
)


@pytest.mark.parametrize("words", ["dp=8", "dp=8,zero=1", "tp=8", "tp=2,dp=4,zero=1", "pp=2,dp=4,zero=1", "pp=2,tp=4"])
def test_an_update_of_megatron_is_priced_as_simulated(words: str) -> None:
    question = StepQuestion(
        where=Where("dgx-h100"),
        workload="llama3-70b",
        batch=1,
        sizes=(("attention", "fused"), ("layers", 4)),
        options=StepOptions(precision="master-bf16", optimizer="adam", framework="megatron"),
        gpus=tuple(range(8)),
        layout=parse_layout(words).on(8),
    )
    layout = question.layout
    spans: dict[str, list[Span]] = {}  # by stage
    for task, span in SESSION.step(question).timeline.ran(ChunkRun, LaunchLabel):
        of = task.about
        if of.part == "update" if isinstance(of, ChunkRun) else of.issue.part == "update" and not of.on_host:
            spans.setdefault(task.stream, []).append(span)
    costs = RankWork(SESSION, question, SESSION.group(question.where, None)).costs
    stages = [costs[part.start : part.stop] for part in units_apart(SESSION.network(question), layout.pp)]
    found = [_update_s(layout, UnitCost(*map(sum, zip(*stage, strict=True)))) for stage in stages]
    assert len(found) == len(spans)
    took_s = max(each[-1].end_s - each[0].start_s for each in spans.values())
    assert max(found) == pytest.approx(took_s, rel=0.07)  # a price shares the calls of the host, too


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "micro_batches", "tight"),
    [
        ("dp", 1, 0.7),
        ("zero=2", 5, 0.9),
        ("fsdp", 4, 0.3),
        ("fsdp=8", 2, 0.3),
        ("tp=2,sp", 2, 0.7),
        ("cp=2,dp=8,zero=1", 2, 0.7),
        ("pp=2", 4, 0.0),
    ],
)
def test_no_step_takes_less_than_its_kernels(layout: str, micro_batches: int, tight: float) -> None:
    question = replace(SMALL, layout=parse_layout(layout), micro_batches=micro_batches, batch=4)
    least, simulated_s = least_step_s(SESSION, question), SESSION.step(question).step_time_s
    assert tight * simulated_s <= least <= simulated_s


@pytest.mark.slow
def test_what_is_left_out_would_not_have_been_among_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = tuple({"cp": 1, "pp": 1, "sp": False}.items())
    space = Space(SMALL, 64, 16, 8, fixed, micro_batch=1)
    short = find_best(space, SESSION, 2)
    monkeypatch.setattr("simulator.search.run.least_step_s", lambda *_: 0.0)
    whole = find_best(space, SESSION, 2)
    assert (short.ranking, short.feasible_count) == (whole.ranking, whole.feasible_count)
    assert short.simulated_count < whole.simulated_count == 16
    monkeypatch.setattr("simulator.search.run.least_step_s", lambda *_: 1e9)
    assert find_best(space, SESSION, 2).simulated_count == 2
