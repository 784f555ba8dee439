"""The band of memory: quantiles in closed form, and the mark of what fits only inside its band."""

from __future__ import annotations

import json
from math import exp
from pathlib import Path
from statistics import median

import pytest

from docs.make_memory_band import by_framework, inside_left_out, margin_of, share_quantile, spread_of, stated_memory
from simulator.api import Session
from simulator.bands.composition import memory_spreads
from simulator.cli import run
from simulator.cli.app import app as simulate
from simulator.cli.search_command import best_lines
from simulator.console import Style
from simulator.console.run import run_app
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.records import replace
from simulator.results.rates import rates_of
from simulator.results.step_confidence import UNSURE, all_fit_by_band, memory_band, memory_band_words
from simulator.results.training import TrainingResult, steps_document
from simulator.search.run import RankedLayout, Ranking, best_document
from simulator.search.space import Candidate, Space

SESSION = Session()


def step(workload: str = "gpt2", **options) -> TrainingResult:
    question = StepQuestion(where=Where("p3.2xlarge"), workload=workload, batch=1, options=StepOptions(**options))
    return SESSION.step(question)


def with_available(result: TrainingResult, available_bytes: float) -> TrainingResult:
    (device,) = result.memory
    return replace(result, memory=(replace(device, need=replace(device.need, available_bytes=available_bytes)),))


def test_a_quantile_is_the_least_value_with_that_share_of_the_weight() -> None:
    tenths = [(float(value), 1.0) for value in range(10)]
    assert share_quantile(tenths, 0.9) == 8.0
    assert share_quantile(tenths, 0.91) == 9.0
    assert share_quantile([(1.0, 9.0), (2.0, 1.0)], 0.9) == 1.0


def test_sources_weigh_the_same_however_many_rows_they_have() -> None:
    errors = {"many": [0.0] * 98 + [0.5, -0.5], "one": [0.2]}
    assert spread_of(errors) == (0.0, 0.2)


def test_the_margin_brings_rows_into_the_bands_of_other_sources() -> None:
    errors = {"a": [0.0] * 10, "b": [0.1] * 10, "c": [0.3] * 10}  # beyond the others by 0, 0, 0.2
    assert inside_left_out(errors, 0.0) == pytest.approx(2 / 3)
    assert margin_of(errors) == pytest.approx(0.2)
    assert inside_left_out(errors, margin_of(errors)) == 1.0


def test_the_bands_in_use_hold_rows_of_sources_left_out() -> None:
    assert memory_spreads()
    for spread in memory_spreads().values():
        assert spread.low <= 0.0 <= spread.high
        assert len(spread.sources) >= 3
        assert spread.inside[1] >= 0.8


STAGES = "--topology p3.16xlarge --gpus 2 --workload vgg16 --batch 8 --micro-batches 2 --parallel pp=2"


@pytest.mark.slow
def test_the_figure_that_counts_most_makes_the_band_and_a_stage_is_compared_with_itself(tmp_path: Path) -> None:
    table = tmp_path / "memory.csv"
    table.write_text(
        "arguments,stage,max_allocated_gib,max_reserved_gib,smi_gib,source\n"
        f"{STAGES},1,1,,2,a/one: log\n{STAGES},0,1,,2,a/two: log\n",
        encoding="utf-8",
    )
    rows = list(stated_memory(table))
    assert [(row.figure, row.counts_most) for row in rows] == [("allocated", False), ("smi", True)] * 2
    assert [row.measured_bytes for row in rows] == [2**30, 2**31] * 2
    result = SESSION.step(
        StepQuestion(
            where=Where("p3.16xlarge"), workload="vgg16", batch=8, micro_batches=2, gpus=(0, 1),
            layout=parse_layout("pp=2"),
        )
    )  # fmt: skip
    first, second = (device.need for device in result.memory)
    assert [row.predicted_bytes for row in rows] == [
        second.allocated_bytes, second.process_bytes, first.allocated_bytes, first.process_bytes,
    ]  # fmt: skip
    assert first.process_bytes != second.process_bytes
    assert by_framework(rows) == {"PyTorch": {"a/one": [rows[1].error], "a/two": [rows[3].error]}}


@pytest.mark.slow
def test_published_memory_is_what_was_first_predicted() -> None:
    rows = list(stated_memory(Path("validate/measurements/published-steps/memory.csv").resolve()))
    errors = [abs(row.predicted_bytes / row.measured_bytes - 1.0) for row in rows if row.figure == "allocated"]
    assert (len(rows), len(errors)) == (62, 33)
    assert median(errors) < 0.06
    assert max(errors) < 0.32


@pytest.mark.parametrize(("framework", "of"), [("pytorch", "PyTorch"), ("megatron", "Megatron")])
def test_the_mark_appears_exactly_between_the_prediction_and_the_high_end(framework: str, of: str) -> None:
    result = step(framework=framework)
    total, spread = result.tightest.need.total_bytes, memory_spreads()[of]
    high = total * exp(spread.high)
    assert memory_band(result, result.tightest.need.total_bytes) == (total * exp(spread.low), high)
    for available, fits, by_band in (
        (0.999 * total, False, False),
        (total, True, False),
        (0.999 * high, True, False),
        (high, True, True),
    ):
        found = with_available(result, available)
        entry = steps_document([found], {})["results"][0]["memory"][0]
        assert (entry["fits"], entry["fits_by_band"], all_fit_by_band(found)) == (fits, by_band, by_band)
        assert entry["band_bytes"] == [total * exp(spread.low), high]
        assert (UNSURE in memory_band_words(found, found.tightest.need)) == (fits and not by_band)
        assert (UNSURE in found._repr_html_()) == (fits and not by_band)


def test_all_devices_must_fit_by_their_band() -> None:
    tight, roomy = (with_available(step(), share * step().tightest.need.total_bytes).memory[0] for share in (1.0, 2.0))
    assert all_fit_by_band(replace(step(), memory=(roomy, roomy))) is True
    assert all_fit_by_band(replace(step(), memory=(roomy, tight))) is False


@pytest.mark.parametrize(
    ("workload", "options", "words"),
    [
        ("resnet50", {}, "80 % band not measured"),
        ("gpt2", {"framework": "tensorflow"}, "80 % band not measured"),
        ("gpt2", {"mode": "inference"}, ""),
    ],
)
def test_what_nobody_measured_has_no_band(workload: str, options: dict[str, str], words: str) -> None:
    result = step(workload, **options)
    need = result.tightest.need
    entry = steps_document([result], {})["memory"]
    assert entry["band_bytes"] is None
    assert entry["fits_by_band"] is None
    assert memory_band_words(result, need) == words


@pytest.mark.parametrize(("by_band", "mark"), [(False, " *"), (True, ""), (None, "")])
def test_the_ranking_marks_layouts_that_fit_only_inside_their_band(by_band: bool | None, mark: str) -> None:
    question = StepQuestion(where=Where("dgx-a100-80gb"), workload="gpt2", batch=1)
    space = Space(question, 8, 8, 8)
    way = Candidate(parse_layout("fsdp").on(8), 1, 1, "none")
    rates = rates_of(step())
    best = Ranking((RankedLayout(way, 1.0, 70e9, {}, None, (), by_band, rates, None, 85e9),), 1, {}, 1)
    lines = best_lines(space, "dgx-a100-80gb", SESSION.network(question), best, Style())
    (row,) = [line for line in lines if "70 GB" in line]
    assert ("70 GB *" in row) == bool(mark)
    assert (f"* {UNSURE}" in lines) == bool(mark)
    assert best_document(space, "dgx-a100-80gb", best)["ranking"][0]["fits_by_band"] is by_band


@pytest.mark.slow
def test_nothing_is_ranked_whose_band_exceeds_the_memory_without_a_mark(capsys: pytest.CaptureFixture[str]) -> None:
    """Of ten layouts on GPUs of 17 GB some fit by their band, and some only inside it."""
    words = "best --topology p3.16xlarge --workload gpt2-xl --set layers=24 --global-batch 32 --jobs 1 --json --quiet"
    run(words.split())
    ranking = json.loads(capsys.readouterr().out)["ranking"]
    available = SESSION.device(Where("p3.16xlarge")).memory_bytes
    high = exp(memory_spreads()["PyTorch"].high)
    assert {entry["fits_by_band"] for entry in ranking} == {True, False}
    for entry in ranking:
        assert entry["memory_bytes"] <= available
        assert entry["fits_by_band"] == (entry["memory_bytes"] * high <= available), entry


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "--topology dgx-h100 --workload gpt2 --batch 2 --parallel fsdp",
        "--topology dgx-h100 --workload gpt2 --batch 2 --gpus 1 --offload optimizer --precision master-bf16",
        "--topology dgx-h100 --workload gpt2 --batch 2 --parallel pp=4,tp=2 --micro-batches 4",
        "--topology dgx-h100 --gpus 1 --workload gpt2 --batch 2 --mode inference",
        "--topology dgx-h100 --device cpu0 --workload gpt2 --batch 2",
        "--topology 2x-gtx1080-desktop --workload alexnet --batch 8 --strategy parameter-server --servers workers",
    ],
)
def test_every_entry_of_memory_has_three_figures_that_add_up(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(simulate, "simulate", [*words.split(), "--json", "--quiet"]) == 0
    entries = [each for result in json.loads(capsys.readouterr().out)["results"] for each in result["memory"]]
    assert entries
    for each in entries:
        uses = ("parameters", "gradients", "optimizer", "activations", "working", "workspace")
        assert each["allocated_bytes"] == pytest.approx(sum(each[f"{use}_bytes"] for use in uses))
        assert each["reserved_bytes"] == pytest.approx(each["allocated_bytes"] + each["cached_bytes"])
        besides = each["communication_bytes"] + each["context_bytes"]
        assert each["process_bytes"] == each["total_bytes"] == pytest.approx(each["reserved_bytes"] + besides)
        assert each["fits"] == (each["total_bytes"] <= each["available_bytes"])
