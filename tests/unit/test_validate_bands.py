"""``validate bands``: error classes from rows, judged by leaving places out."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.bands import evidence, evidence_from
from simulator.console.run import run_app
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from validate.bands.make import LEFT_OUT, BandRow, bands_document, coverage, make_evidence, thinned
from validate.cli import app
from validate.constants.fit import constants_text

ROOT = Path(__file__).resolve().parents[2]


def rows(places: int, each: int, *, between: float, within: float, source: str = "") -> list[BandRow]:
    """Return rows of *places* machines with a common and an individual error; each has its own source by default."""
    draw = random.Random(1)
    question = CollectiveQuestion(where=Where("dgx-h100"), collective="all-reduce", size_bytes=1e8, strategy="nccl")
    composition = Session().composed(question)
    found = []
    for number in range(places):
        shared = draw.gauss(0.0, between)
        facts = replace(composition.facts, place=f"machine {number}")
        of_place = BandRow(
            composition.chain,
            0.0,
            facts.place,
            source or facts.place,
            "hopper",
            "all",
            question,
            replace(composition, facts=facts),
        )
        found += [replace(of_place, error=shared + draw.gauss(0.0, within)) for _ in range(each)]
    return found


@pytest.mark.slow
def test_quantiles_and_the_shared_part_are_those_of_what_was_drawn() -> None:
    own = make_evidence(rows(40, 40, between=0.0, within=0.1)).spreads["collective full node nvlink"]
    assert (own.low, own.high) == pytest.approx((-0.128, 0.128), rel=0.1)
    assert own.shared < 0.05
    assert own.unseen < 1.05
    common = make_evidence(rows(40, 40, between=0.1, within=0.01)).spreads["collective full node nvlink"]
    assert common.shared > 0.9


def test_few_places_that_differ_make_the_band_of_another_wider() -> None:
    found = make_evidence(rows(4, 40, between=0.2, within=0.02)).spreads["collective full node nvlink"]
    assert 1.2 < found.unseen <= 4.0


def test_too_few_rows_or_places_make_no_class() -> None:
    assert make_evidence(rows(2, 14, between=0.1, within=0.1)).spreads == {}
    assert make_evidence(rows(1, 40, between=0.1, within=0.1)).spreads == {}
    assert "collective full node nvlink all-reduce" in make_evidence(rows(2, 15, between=0.1, within=0.1)).spreads


def widths(measured: list[BandRow]) -> tuple[float, float]:
    spreads = make_evidence(measured).spreads
    return tuple(spreads[name].high - spreads[name].low for name in ("collective full node nvlink", "collective"))  # type: ignore[return-value]


@pytest.mark.slow
def test_a_class_that_few_sources_know_is_partly_what_the_wider_one_is() -> None:
    def of(chain_from: int, *, number: int, half: float) -> list[BandRow]:
        own = rows(number, 40, between=0.0, within=half)
        return [replace(row, chain=row.chain[chain_from:]) for row in own]

    wide = of(2, number=40, half=0.5)
    few, alone = widths([*of(1, number=2, half=0.05), *wide])[0], widths(of(1, number=2, half=0.05))[0]
    many = widths([*of(1, number=30, half=0.05), *wide])[0]
    assert few > 2.0 * alone  # one part in three is of the wider class
    assert many < 1.2 * alone  # one in 31


def test_machines_of_one_source_are_not_as_many_witnesses() -> None:
    apart = rows(4, 40, between=0.0, within=0.5)
    narrow = rows(16, 40, between=0.0, within=0.05)
    several, one = widths([*apart, *narrow]), widths([*apart, *[replace(row, source="one") for row in narrow]])
    assert several[0] < 0.5 * one[0]


def test_sources_that_differ_make_the_band_of_another_one_wider_on_the_same_place() -> None:
    shift = [-0.3, -0.1, 0.1, 0.3]
    by_source = [
        replace(row, source=f"source {number % 4}", error=row.error + shift[number % 4])
        for number, row in enumerate(rows(8, 40, between=0.0, within=0.02))
    ]
    unlike = make_evidence([replace(row, place=row.source) for row in by_source]).spreads["collective full node nvlink"]
    assert 1.05 < unlike.seen <= unlike.unseen
    assert make_evidence(rows(8, 40, between=0.0, within=0.1, source="one")).spreads["collective"].seen == 1.0


def test_more_rows_of_a_place_than_tell_something_are_left_out() -> None:
    question = CollectiveQuestion(where=Where("dgx-h100"), collective="all-reduce", size_bytes=1e8, strategy="nccl")
    many = [
        replace(row, question=replace(question, size_bytes=1e8 + number))
        for number, row in enumerate(rows(2, 150, between=0.1, within=0.1))
    ]
    kept = thinned(many)
    assert Counter(row.place for row in kept) == {"machine 0": 100, "machine 1": 100}
    assert thinned(many[::-1]) == kept


@pytest.mark.slow
def test_bands_hold_what_they_say_of_places_left_out() -> None:
    (found,) = coverage(rows(24, 40, between=0.1, within=0.1))
    assert found.rows == 24 * 40
    assert found.held == pytest.approx(0.8, abs=0.06)


def test_places_sources_and_generations_are_left_out_each_by_its_own_key() -> None:
    row = replace(rows(1, 1, between=0.1, within=0.1)[0], place="p", source="s", generation="g")
    assert {what: by(row) for what, by in LEFT_OUT.items()} == {"place": "p", "source": "s", "generation": "g"}


def test_what_is_written_is_what_is_read() -> None:
    made = make_evidence(rows(5, 40, between=0.1, within=0.1))
    assert evidence_from(json.loads(constants_text(bands_document(made, ["t.csv"]), "classes"))) == made
    assert evidence().seen.machines


@pytest.mark.slow
def test_rows_become_classes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = sorted(map(str, (ROOT / "validate" / "measurements" / "published-nvidia").glob("*/collectives.csv")))
    scored = str(tmp_path / "scored.csv")
    assert run_app(app, "validate", ["score", *tables, "--out", scored, "--quiet"]) == 0
    capsys.readouterr()
    assert run_app(app, "validate", ["bands", scored, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"collective", "collective small", "collective large node"} <= {c["name"] for c in document["classes"]}
    assert run_app(app, "validate", ["bands", *tables, "--judge", "--json", "--quiet"]) == 0
    judged = json.loads(capsys.readouterr().out)
    for group in judged:
        assert 0.7 < group["held"] < 0.9
        assert 0.5 < group["held_without_generation"] <= 1.0
        assert group["held_without_source"] is None or 0.5 < group["held_without_source"] <= 1.0
        assert math.isfinite(group["half_width"])
    assert run_app(app, "validate", ["bands", scored, "--judge", "--quiet"]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["left", "out", "rows", "places", "place", "source", "generation", "half-width"]
    assert first.startswith(judged[0]["group"])
    assert run_app(app, "validate", ["bands", scored, "--judge", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out) == judged
    lines = Path(scored).read_text(encoding="utf-8").splitlines(keepends=True)
    at = lines[0].strip().split(",").index("predicted_s")
    twice = [lines[0]]
    for line in lines[1:]:
        cells = line.rstrip("\n").split(",")
        cells[at] = str(100 * float(cells[at])) if cells[at] else ""
        twice.append(",".join(cells) + "\n")
    Path(scored).write_text("".join(twice), encoding="utf-8")
    assert run_app(app, "validate", ["bands", scored, "--json", "--quiet"]) == 0
    classes = json.loads(capsys.readouterr().out)["classes"]
    assert all(each["middle"] < -3.0 for each in classes)  # the table's predictions are used, without simulating again


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "tables are needed, for example: validate bands ops.csv collectives.csv training.csv"),
        (["-"], "-: a file is needed"),
        (["a.csv", "--judge", "--write"], "--judge leaves places out and writes nothing; one of the two"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, "validate", ["bands", *words]) == 2
    assert said in capsys.readouterr().err
