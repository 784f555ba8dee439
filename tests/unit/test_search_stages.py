"""Blocks of stages that take about as long: against brute force, in the search, and over two generations of GPUs."""

from __future__ import annotations

import json
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.search.parts import RankWork, balanced
from simulator.search.price import Pricer
from simulator.search.space import Candidate, Space, parse_fixed

TWO_GENERATIONS = """
schema_version: 1
name: two-generations
cluster:
  groups:
    - {node: dgx-h100, nodes: 1}
    - {node: dgx-a100-80gb, nodes: 1}
"""
_S = st.floats(0.0, 5.0)


def slowest_s(blocks: tuple[int, ...], ends_s: tuple[float, float], paces: list[float]) -> float:
    besides = [ends_s[0], *[0.0] * (len(blocks) - 2), ends_s[1]]
    return max(pace * (more + count) for pace, more, count in zip(paces, besides, blocks, strict=True))


@given(st.integers(3, 9), st.tuples(_S, _S), st.lists(st.floats(0.5, 3.0), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_other_division_is_faster(count: int, ends_s: tuple[float, float], paces: list[float]) -> None:
    even = tuple(count // 3 + (part < count % 3) for part in range(3))
    found = balanced(Layout(pp=3), even, 1.0, ends_s, paces) or even
    ways = [way for way in product(range(1, count + 1), repeat=3) if sum(way) == count]
    least_s = min(slowest_s(way, ends_s, paces) for way in ways)
    assert slowest_s(found, ends_s, paces) <= max(least_s, 0.99 * slowest_s(even, ends_s, paces)) * 1.0101


def test_even_stages_stay_even() -> None:
    assert balanced(Layout(pp=4), [8] * 4, 1.0, (0.0, 0.0), [1.0] * 4) == ()
    assert balanced(parse_layout("pp=4,schedule=dualpipe"), [4] * 8, 1.0, (0.0, 9.0), [1.0] * 4) == ()


@pytest.mark.parametrize("layout", ["pp=4,vp=2", "pp=4,schedule=zb-v"])
def test_chunks_of_a_stage_share_its_blocks(layout: str) -> None:
    """In a V the first stage has the logits, too."""
    blocks = balanced(parse_layout(layout), [4] * 8, 1.0, (0.0, 3.0), [1.0] * 4)
    assert (sum(blocks), len(blocks)) == (32, 8)
    places = [0, 1, 2, 3, 0, 1, 2, 3] if "vp" in layout else [0, 1, 2, 3, 3, 2, 1, 0]
    stages = [sum(n for n, place in zip(blocks, places, strict=True) if place == stage) for stage in range(4)]
    last = places[-1]
    assert max(count + 3 * (stage == last) for stage, count in enumerate(stages)) == 9  # 35 in 4 stages
    assert (
        max(abs(a - b) for a, b in combinations((n for n, at in zip(blocks, places, strict=True) if at == 0), 2)) <= 1
    )


def test_the_fullest_of_unlike_stages_must_fit() -> None:
    where = Where("dgx-a100-80gb")
    question = StepQuestion(
        where=where, workload="gpt3-2.7b", batch=1, options=StepOptions("train", "master-bf16", "adam")
    )
    space = Space(question, 8, 4, 8, (("pp", 4), ("dp", 1)), 1, "none")
    pricer = Pricer(space, Session())
    part = RankWork(pricer.session, question, pricer.group)

    def needed(layout: str) -> float:
        return pricer._memory_bytes(part, Candidate(parse_layout(layout).on(4), 1, 8, "none"))

    assert needed("pp=4,blocks=8-4-16-4") > 1.1 * needed("pp=4")


def test_zero_blocks_are_not_searched() -> None:
    with pytest.raises(InputError, match="each part has one"):
        parse_fixed("pp=4,blocks=0-4-4-4")


@pytest.mark.slow
def test_the_faster_generation_has_more_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO_GENERATIONS, encoding="utf-8")
    words = f"best --topology {file} --workload gpt3-1.3b --global-batch 32 --micro-batch 1 --recompute none --json"
    assert run([*words.split(), "--parallel", "tp=1,pp=2,vp=1,zero=1,cp=1", "--jobs", "1", "--quiet"]) == 0
    first, *others = json.loads(capsys.readouterr().out)["ranking"]
    new, old = map(int, first["words"].partition("blocks=")[2].partition(",")[0].split("-"))
    assert new + old == 24
    assert new > 1.5 * old
    even = [each for each in others if "blocks" not in each["words"]]
    assert first["step_time_s"] < 0.85 * min(each["step_time_s"] for each in even)
    assert run([*first["command"].split()[1:], "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["step_time_s"] == first["step_time_s"]


@pytest.mark.slow
def test_unlike_replicas_have_samples_by_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO_GENERATIONS, encoding="utf-8")
    words = f"best --topology {file} --workload gpt2 --global-batch 512 --precision bf16 --recompute none --json"
    assert run([*words.split(), "--parallel", "tp=1,pp=1,cp=1,zero=0", "--jobs", "1", "--quiet"]) == 0
    first, *others = json.loads(capsys.readouterr().out)["ranking"]
    assert first["divided"]
    assert "--divide best" in first["command"]
    assert first["step_time_s"] < min(each["step_time_s"] for each in others)
    assert run([*first["command"].split()[1:], "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["step_time_s"] == first["step_time_s"]
