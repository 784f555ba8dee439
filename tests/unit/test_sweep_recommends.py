"""What ``simulate sweep`` recommends: only among values that do the same, of equals the least, with all warnings."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import simulator
from simulator import InputError
from simulator.cli import run
from simulator.cli.step_questions import check_network
from simulator.cli.sweep_text import Contest, ranking_of, sweep_lines
from simulator.cli.written import CommandOptions
from simulator.console import Style

GPT2 = ["--topology", "1x-rtx-3090", "--workload", "gpt2", "--batch", "2"]
PLAIN = Style(None, colour=False)


def said(capsys, *words: str) -> str:
    assert run(["sweep", *words, "--jobs", "1", "-q"]) == 0
    return " ".join(capsys.readouterr().out.split())


def row(samples_per_s: float, **more: Any) -> dict[str, Any]:
    names = "low_s high_s tokens_per_s tokens_per_s_per_device mfu price_per_million_tokens busbw_Bps ways_error"
    figures = dict.fromkeys(f"{names} machines_error own_error own_class error bound_by fits_by_band".split())
    known = {"samples_per_s": samples_per_s, "time_s": 8 / samples_per_s, "memory_bytes": 1e9, "available_bytes": 2e9}
    rest = {"counts_software": True, "fits": True, "outside": [], "warnings": [], "question": "simulate"}
    return {**figures, **known, **rest, **more}


def test_tokens_are_compared_where_the_length_of_a_sample_varies(capsys) -> None:
    text = said(capsys, *GPT2[:4], "--over", "seq-len=128,512", "--over", "batch=1,4")
    assert "its tokens/s are " in text or "more tokens/s" in text
    assert "samples/s are" not in text
    assert " --seq-len 512" in text.rpartition("next: ")[2]


def test_images_of_unlike_size_are_not_ranked_for_use(capsys) -> None:
    text = said(capsys, "--topology", "p3.2xlarge", "--workload", "resnet18", "--batch", "8", "--over", "image=64,224")
    assert "values of image do not do the same work, so none is recommended" in text
    assert "next: use" not in text


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ("mode=train,inference", "values of mode do not do the same work"),
        ("optimizer=adam,sgd,none", "values of optimizer do not do the same work"),
        ("set=lora=0,lora=16", "values of set do not do the same work"),
        ("precision=amp-fp16,fp16", "values of precision do not compute alike"),
    ],
)
def test_values_that_do_other_work_are_not_recommended(over: str, why: str, capsys) -> None:
    text = said(capsys, *GPT2, "--over", over)
    option, _, values = over.partition("=")
    assert f"{why}, so none is recommended" in text
    assert f"next: which options would make {option}={values.split(',')[0]} faster: " in text
    assert "next: use" not in text
    assert ("fp16 and bf16 keep no master weights" in text) == (option == "precision")


def test_mixed_precision_is_recommended_in_place_of_fp32(capsys) -> None:
    assert "next: use precision=amp-fp16" in said(capsys, *GPT2, "--over", "precision=fp32,amp-fp16")


def test_ways_to_compute_the_same_are_recommended(capsys) -> None:
    text = said(capsys, *GPT2, "--over", "set=attention=eager,attention=fused")
    assert "none is recommended" not in text
    assert "next: use set=attention=" in text


def test_of_equals_the_least_that_costs_is_recommended() -> None:
    rates = {"10Gbit/s": 100.0, "50Gbit/s": 199.0, "200Gbit/s": 199.5, "400Gbit/s": 200.0}
    rows = [row(rate, fabric=fabric) for fabric, rate in rates.items()]
    for given in (rows, rows[::-1]):
        first, words = ranking_of(["fabric"], given).advice()
        assert first["fabric"] == "50Gbit/s"
        assert words.startswith("use fabric=50Gbit/s, the least that is equal to the best")


def test_warnings_of_the_questions_are_said_once(capsys) -> None:
    words = ["--topology", "dgx-a100-80gb", "--nodes", "2", "--workload", "bytes:1MB", "--jobs", "1"]
    over = ["--over", "fabric=50Gbit/s,400Gbit/s", "--over", "nvls=no,yes"]
    assert run(["sweep", *words, *over]) == 0
    assert capsys.readouterr().err.count("warning: ") == 1
    assert run(["sweep", *words, *over, "--json", "-q"]) == 0
    rows = json.loads(capsys.readouterr().out)["sweep"]
    assert [len(each["warnings"]) for each in rows] == [0, 0, 1, 1]
    with pytest.warns(UserWarning, match="50 GB/s") as caught:
        simulator.sweep("dgx-a100-80gb", nodes=2, workload="bytes:1MB", fabric=["50Gbit/s", "400Gbit/s"])
    assert len(caught) == 1


def test_a_bound_is_told_in_the_words_of_the_question_alone(capsys) -> None:
    words = ["--topology", "2x-h100-pcie", "--workload", "bert-large", "--batch", "4", "--precision", "amp-bf16"]
    assert run([*words, "-q"]) == 0
    alone = re.search(r"^bound by +(.*)$", capsys.readouterr().out, re.MULTILINE)
    assert alone is not None
    assert run(["sweep", *words, "--over", "parallel=dp;tp=2", "--jobs", "1", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["sweep"][0]["bound_by"] == alone[1]


def test_without_a_band_there_are_no_brackets_and_what_is_not_validated_is_said() -> None:
    rows = [row(100.0, batch="1", outside=["the H900"]), row(200.0, batch="2"), row(400.0, batch="4")]
    text = "\n".join(sweep_lines(["batch"], rows, PLAIN))
    assert "()" not in text
    assert "not validated (batch=1): the H900" in text
    assert "()" not in Contest(["batch"], rows[:2], "sample", rows[:2]).verdict()
    assert "not validated: the H900" in "\n".join(sweep_lines(["batch"], rows[:1], PLAIN))


def test_what_is_refused_is_not_said_not_to_fit(capsys) -> None:
    text = said(capsys, "--topology", "4x-rtx4090", "--workload", "gpt2", "--batch", "1", "--over", "parallel=dp;tp=5")
    assert "only parallel=dp can be compared" in text
    assert "the one answered is bound by" in text
    assert "both are" not in text


@pytest.mark.parametrize("batch", [None, "4"])
def test_no_code_of_users_runs_to_check_a_value(batch: str | None) -> None:
    check_network(CommandOptions(workload="torch:no.such.module:network", batch=batch))
    with pytest.raises(InputError, match="gpt9"):
        check_network(CommandOptions(workload="gpt9", batch=batch))


def test_python_refuses_what_cannot_be_read_before_it_runs() -> None:
    with pytest.raises(InputError, match=r"^batch='x': must be a whole number$"):
        simulator.sweep("p3.2xlarge", workload="resnet18", batch=[1, "x"])
    with pytest.raises(InputError, match=r"dropout is 0 \(without\) or 1 \(with\); got 0.1"):
        simulator.sweep("p3.2xlarge", workload="gpt2", batch=1, sizes=[{"dropout": 0}, {"dropout": 0.1}])
