"""Searching layouts: the candidates, their estimated costs, and the ranking."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from simulator.api.advice import better_machines, what_if
from simulator.api.session import Session
from simulator.cli import run
from simulator.cli.scale_command import parse_counts
from simulator.errors import InputError
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results import WORDS
from simulator.results.step_view import SHARE_WORDS, time_shares
from simulator.search.parts import shortened
from simulator.search.price import MEMORY, Pricer
from simulator.search.run import KeptResults, find_best
from simulator.search.space import Space, parse_fixed
from simulator.topology.load import load_topology

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("answered_once")]

SESSION = Session()
BEST = ["best", "--topology", "dgx-a100-80gb", "--workload", "gpt3-125m", "--global-batch", "16", "--set", "layers=4"]
BEST += ["--jobs", "1", "-q"]


def question(workload: str = "gpt3-125m", nodes: int | None = None, **more) -> StepQuestion:
    return StepQuestion(
        where=Where("dgx-a100-80gb", nodes),
        workload=workload,
        batch=1,
        sizes=(("attention", "fused"), *more.pop("sizes", ())),
        options=StepOptions(precision="amp-bf16", optimizer="adam"),
        gpus=tuple(range(8 * (nodes or 1))),
        **more,
    )


def space(workload: str = "gpt3-125m", nodes: int | None = None, batch: int = 16, **more) -> Space:
    sizes = more.pop("sizes", ())
    return Space(question(workload, nodes, sizes=sizes), batch, 8 * (nodes or 1), 8, **more)


def priced(of: Space):
    pricer = Pricer(of, SESSION)
    found = []
    for division in of.divisions(SESSION.network(replace(of.question, batch=1))):
        found += pricer.outcome(division)[0]
    return found


def test_micro_batches_are_powers_of_two_and_halves_of_what_a_replica_has() -> None:
    assert space(batch=16).micro_sizes() == [1, 2, 4, 8, 16]
    assert space(batch=96).micro_sizes() == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
    assert space(batch=96, fixed=(("dp", 8),)).micro_sizes() == [1, 2, 3, 4, 6, 8, 12, 16, 32, 64]
    assert space(batch=100, fixed=(("dp", 8),)).micro_sizes() == [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize(
    ("layers", "batch", "fixed", "recompute"),
    [
        (4, 16, (("tp", 2), ("sp", False), ("cp", 1)), "none"),
        (4, 8, (("tp", 1), ("cp", 1)), None),
    ],
)
def test_the_first_is_within_a_percent_of_the_best_of_all(layers: int, batch: int, fixed, recompute) -> None:
    of = space(sizes=(("layers", layers),), batch=batch, fixed=fixed, recompute=recompute)
    times = []
    for way, _, _ in priced(of):
        result = SESSION.step(of.asked(way))
        times += [result.step_time_s] if result.fits else []
    assert len(times) > 25
    best = find_best(of, SESSION, 5)
    assert best.ranking[0].step_time_s <= 1.01 * min(times)
    assert best.feasible_count == len(times)
    assert [entry.step_time_s for entry in best.ranking] == sorted(entry.step_time_s for entry in best.ranking)


@pytest.mark.parametrize(("workload", "nodes"), [("gpt3-18b", 8), ("mixtral-8x7b", 8)])
def test_what_a_way_needs_and_takes_is_near_its_simulation(workload: str, nodes: int) -> None:
    fixed = (
        (("tp", 2), ("sp", True), ("cp", 1))
        if workload == "gpt3-18b"
        else (("tp", 2), ("sp", False), ("cp", 1), ("ep", 8))
    )
    of = space(workload, nodes, 128, fixed=fixed, recompute="none")
    found = priced(of)
    for way, time_s, n_bytes in random.Random(1).sample(found, 4):
        result = SESSION.step(of.asked(way))
        need = result.tightest.need  # a price leaves out the allocator's gaps
        assert n_bytes == pytest.approx(need.total_bytes - need.cached_bytes, rel=0.02), way.words
        assert time_s == pytest.approx(result.step_time_s, rel=0.2), way.words


def test_a_network_is_shortened_to_blocks_that_stand_for_all() -> None:
    network = SESSION.network(question(sizes=(("layers", 12),)))
    short = shortened(network)
    assert (short.unit_count, short.left_out) == (12, 7)
    assert [short.like(unit) for unit in (0, 1, 6, 10, 11)] == [0, 2, 2, 2, 4]
    whole = SESSION.network(question(sizes=(("layers", 5),)))
    assert [layer.operator for layer in short.network.layers] == [layer.operator for layer in whole.layers]
    assert short.network.parameter_count == whole.parameter_count


def test_what_does_not_fit_is_counted() -> None:
    of = space("gpt3-18b", batch=8, fixed=(("tp", 1), ("cp", 1), ("pp", 1), ("zero", 0)), recompute="none")
    with pytest.raises(InputError, match="memory"):
        find_best(of, SESSION, 3)
    _, infeasible, _ = Pricer(of, SESSION).outcome(of.divisions(SESSION.network(of.question))[0])
    assert infeasible == {MEMORY: 1}


def test_causes_of_a_knee_are_told_of_parts_of_a_step() -> None:
    assert WORDS["knees"].keys() <= {*SHARE_WORDS, "few samples"}


def test_what_is_kept_is_not_found_again(monkeypatch) -> None:
    of = space(fixed=(("tp", 2), ("pp", 1), ("cp", 1)), sizes=(("layers", 4),))
    kept = KeptResults()
    first = find_best(of, SESSION, 3, kept=kept)
    monkeypatch.setattr("simulator.search.run.price", None)
    monkeypatch.setattr("simulator.search.run.simulate_way", None)
    assert find_best(of, SESSION, 3, kept=KeptResults(json.loads(json.dumps(kept.found)))) == first


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, ()), ("tp=8,sp", (("tp", 8), ("sp", True))), ("fsdp", (("zero", 3),)), ("vp=2", (("vp", 2),))],
)
def test_degrees_that_are_fixed(text, found) -> None:
    assert parse_fixed(text) == found


# -- commands ------------------------------------------------------------------------


def document(capsys, *arguments: str):
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_best_in_json_and_again_from_its_file(capsys, tmp_path) -> None:
    file = tmp_path / "kept.jsonl"
    fixed = ["--parallel", "tp=2,cp=1", "--recompute", "none", "--top", "3", "--resume", str(file)]
    first = document(capsys, *BEST, *fixed)
    assert first["feasible_count"] > 10
    entry = first["ranking"][0]
    assert entry["parallel"]["tp"] == 2
    assert entry["memory_bytes"] > 0
    assert sum(entry["account_s"].values()) == pytest.approx(entry["step_time_s"])
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:-1], lines[-1][:30]]), encoding="utf-8")  # cut off in the middle of a line
    assert document(capsys, *BEST, *fixed) == first
    assert file.read_text(encoding="utf-8").splitlines() == lines
    assert run([*BEST, *fixed, "--micro-batch", "2"]) == 2
    assert "another search" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_find_what_one_finds(capsys) -> None:
    fixed = ["--parallel", "pp=1,tp=2,cp=1", "--top", "3"]
    assert document(capsys, *BEST, *fixed) == document(capsys, *("2" if word == "1" else word for word in BEST), *fixed)


@pytest.mark.slow
def test_a_dask_cluster_finds_what_one_process_finds(capsys) -> None:
    distributed = pytest.importorskip("distributed")
    fixed = ["--parallel", "tp=2,pp=1", "--top", "3"]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        found = document(capsys, *BEST, *fixed, "--dask", cluster.scheduler_address)
    assert found == document(capsys, *BEST, *fixed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["best", "--topology", "dgx-h100"], "--global-batch is needed"),
        ([*BEST, "--parallel", "tpp=2"], "did you mean 'tp'"),
        ([*BEST, "--recompute", "ful"], "did you mean 'full'"),
        ([*BEST, "--top", "0"], "--top 0: from 1"),
        (["best", "--topology", "v100-sxm2-16gb", "--global-batch", "8"], "several GPUs"),
        ([*BEST, "--parallel", "tp=5"], "tp=5 does not divide 8 GPUs; 1, 2, 4, 8 would do"),
        ([*BEST, "--parallel", "pp=2,blocks=9-9"], "blocks=9-9 is 18 in all, and gpt3-125m has 4 blocks"),
        (["scale", "--topology", "dgx-h100", "--batch", "2"], "--nodes or --gpus"),
        (["scale", "--topology", "dgx-h100", "--gpus", "4..1", "--batch", "2"], "goes nowhere"),
        (["scale", "--topology", "dgx-h100", "--gpus", "2", "--nodes", "2", "--batch", "2"], "one of the two"),
        (["scale", "--topology", "dgx-h100", "--gpus", "2"], "--batch"),
        (["scale", "--topology", "dgx-h100", "--gpus", "1,3", "--global-batch", "8"], "--gpus 3: --global-batch"),
        (
            ["scale", "--topology", "dgx-h100", "--gpus", "1,3", "--batch", "8", "--set", "layer=3"],
            "simulate: --workload: resnet50: ",  # of every point
        ),
        ([*BEST, "--gradient-as-bucket-view", "--parallel", "zero=1"], "--gradient-as-bucket-view: is for replicas"),
        ([*BEST, "--gradient-as-bucket-view", "--parallel", "tp=2"], "--gradient-as-bucket-view: is for replicas"),
    ],
)
def test_what_cannot_be_searched_is_said_in_a_line(arguments, said, capsys) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_searches_and_curves_take_what_steps_take_of_memory(capsys) -> None:
    switches = ["--gradient-as-bucket-view", "--expandable-segments"]
    searched = [*BEST, "--parallel", "tp=1,zero=0", "--micro-batch", "2", "--recompute", "none", "--top", "1"]
    step = ["--topology", "dgx-a100-80gb", "--workload", "gpt3-125m", "--batch", "2", "--set", "layers=4"]
    for more in ([], switches):
        (asked,) = document(capsys, *step, *more, "-q")["results"]
        (drawn,) = document(capsys, "scale", *step, "--gpus", "8", *more, "-q")["points"]
        (best,) = document(capsys, *searched, *more)["ranking"]
        assert drawn["memory_bytes"] == asked["memory"][0]["total_bytes"]
        assert [each["step_time_s"] for each in (drawn, best)] == [asked["step_time_s"]] * 2
    few = [*BEST, "--micro-batch", "2", "--recompute", "none", "--top", "1"]
    halves = [*few, "--parallel", "tp=2,pp=1"]
    assert document(capsys, *halves, switches[1])["ranking"] != document(capsys, *halves)["ranking"]
    assert document(capsys, *few, switches[0])["ranking"]  # most layouts have no such buckets


def test_ranges_of_counts() -> None:
    assert parse_counts("--nodes", "1,2,4..32") == [1, 2, 4, 8, 16, 32]
    assert parse_counts("--nodes", "8..40+8") == [8, 16, 24, 32, 40]
    assert parse_counts("--nodes", "3,1..2") == [1, 2, 3]


@pytest.mark.parametrize(("text", "last"), [("1..3", 2), ("64,1..3", 2), ("8..41+8", 40), ("3..5", 3)])
def test_a_range_that_misses_its_end_is_refused(text: str, last: int) -> None:
    with pytest.raises(InputError, match=f"misses .* and {last} is the last"):
        parse_counts("--nodes", text)


def test_strong_scaling_bends(capsys, tmp_path) -> None:
    asked = ["scale", "--topology", "dgx-a100-80gb", "--gpus", "1,2,4,8", "--workload", "resnet50", "-q"]
    found = document(capsys, *asked, "--global-batch", "32", "--plot", str(tmp_path / "curve.svg"))
    assert found["scaling"] == "strong"
    points = found["points"]
    assert [point["device_count"] for point in points] == [1, 2, 4, 8]
    rates = [32 / point["step_time_s"] / point["device_count"] for point in points]
    assert [p["scaling_efficiency"] for p in points] == pytest.approx([rate / rates[0] for rate in rates])
    assert "too few samples" in found["knee"]["cause"]
    assert "simulated" in (tmp_path / "curve.svg").read_text(encoding="utf-8")


# -- composition of a step, remedies ---------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("tp=2", {"tensor"}),
        ("tp=2,cp=2,pp=2", {"tensor", "fill"}),
        ("pp=4,dp=2", {"fill"}),
        ("fsdp", set()),
        ("dp", set()),
    ],
)
def test_parts_of_a_step_add_up(layout: str, names: set[str]) -> None:
    asked = replace(question(), layout=parse_layout(layout), micro_batches=4)
    result = SESSION.step(asked)
    shares = time_shares(result)
    assert sum(shares.values()) == pytest.approx(result.step_time_s, rel=1e-9)
    assert names <= {name for name, seconds in shares.items() if seconds > 0.001 * result.step_time_s}
    assert all(seconds >= 0 for seconds in shares.values())


def test_a_machine_with_other_figures() -> None:
    topology = load_topology("dgx-a100-80gb", n_nodes=2)
    better = better_machines(topology)
    fast, short = (
        better[what] for what in ("InfiniBand links twice as fast", "latencies of links, adapters and switches halved")
    )
    for before, after, later in zip(topology.wires, fast.wires, short.wires, strict=True):
        assert after.part.bandwidth == (2 if before.part.of == "infiniband" else 1) * before.part.bandwidth
        assert later.part.latency == before.part.latency / 2
    assert better["NVLink links twice as fast"] != topology


def test_what_if(capsys) -> None:
    asked = ["--topology", "dgx-a100-80gb", "--nodes", "2", "--workload", "gpt3-1.3b", "--set", "layers=2"]
    found = document(capsys, *asked, "--batch", "8", "--parallel", "tp=16", "--what-if", "-q")
    gains = {entry["change"]: entry["gain"] for entry in found["what_if"]}
    assert gains["InfiniBand links twice as fast"] > gains.get("NVLink links twice as fast", 1.0)
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    assert all(gain > 1 for gain in gains.values())
    assert run(["--topology", "dgx-h100", "--what-if"]) == 2


def test_exchanges_beside_products_are_priced_where_they_are_fixed() -> None:
    fixed = space(fixed=parse_fixed("tp_overlap"))
    network = SESSION.network(fixed.question)
    divisions = fixed.divisions(network)
    assert {division.sp for division in divisions if division.tp > 1} == {True}
    layouts = [layout for division in divisions for layout in fixed.layouts(division, 12)]
    assert all(layout.tp_overlap == (layout.tp > 1) for layout in layouts)
    with pytest.raises(InputError, match="tp_overlap overlaps what sp gathers"):
        parse_fixed("tp=2,sp=0,tp_overlap")
    assert not any(
        layout.tp_overlap for division in space().divisions(network) for layout in space().layouts(division, 12)
    )


def test_what_would_help_is_the_same_for_all_gpus_named_or_not() -> None:
    asked = StepQuestion(where=Where("p3.8xlarge"), workload="resnet18", batch=8)
    found, named = (
        what_if(SESSION, each, SESSION.step(each).step_time_s) for each in (asked, replace(asked, gpus=(0, 1, 2, 3)))
    )
    assert any("links" in each.change for each in found)
    assert found == named


def test_a_network_without_blocks_is_searched_without_tensor_parallelism(capsys) -> None:
    words = ["--topology", "p3.16xlarge", "--gpus", "2", "--workload", "alexnet", "--global-batch", "8", "--jobs", "1"]
    assert run(["best", *words, "--quiet"]) == 0
    assert "--parallel: alexnet has no repeated blocks: only dp and pp are searched" in capsys.readouterr().out


def test_a_curve_from_one_gpu_takes_what_is_said_of_the_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scale", "--topology", "p3.16xlarge", "--gpus", "1,2", "--workload", "lenet", "--batch", "8", "--json"]
    assert run([*words, "--strategy", "nccl", "--overlap", "none"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert run([*words[:-1], "--strategy", "ring", "--json"]) == 0
    assert len(said["points"]) == len(json.loads(capsys.readouterr().out)["points"]) == 2
