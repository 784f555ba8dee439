"""``simulate sweep`` and its door in Python: every combination, each as if asked alone; resumed without loss."""

from __future__ import annotations

import csv
import json
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import simulator
from simulator import InputError
from simulator.cli import run
from simulator.topology.catalogue import builtin_topologies

STEP = ["--topology", "p3.2xlarge", "--workload", "resnet18"]


def swept(capsys, *words: str) -> list[dict[str, Any]]:
    assert run(["sweep", *words, "--jobs", "1", "--json", "-q"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["sweep"]
    return rows


def test_each_combination_is_answered_as_alone(capsys) -> None:
    rows = swept(capsys, *STEP, "--over", "batch=4,8", "--over", "precision=fp32,amp-fp16")
    assert [(r["batch"], r["precision"]) for r in rows] == list(product(("4", "8"), ("fp32", "amp-fp16")))
    for row in rows:
        assert run([*shlex.split(row["question"])[1:], "--json", "-q"]) == 0
        alone = json.loads(capsys.readouterr().out)["results"][0]
        assert row["time_s"] == alone["step_time_s"]
        assert row["fits"]
        assert row["low_s"] < row["time_s"] < row["high_s"]


def test_an_exchange_is_nccls_and_is_swept_over_machines_and_switches(capsys) -> None:
    rows = swept(
        capsys, "--workload", "bytes:100MB", "--over", "topology=dgx-h100,dgx-a100-80gb", "--over", "nvls=yes,no"
    )
    assert all(row["busbw_Bps"] > 1e11 for row in rows)
    assert rows[0]["time_s"] < rows[1]["time_s"], "NVLS is faster on an H100"
    assert rows[2]["time_s"] == rows[3]["time_s"], "an A100 has none"


def test_a_strategy_on_bare_links_is_not_named_the_best(capsys) -> None:
    line = ["--topology", "p3.16xlarge", "--workload", "vgg16", "--batch", "8", "--over", "strategy=nccl,multi-ring"]
    rows = swept(capsys, *line)
    assert [row["counts_software"] for row in rows] == [True, False]
    assert rows[1]["samples_per_s"] > rows[0]["samples_per_s"]
    assert run(["sweep", *line, "--jobs", "1", "-q"]) == 0
    assert "only strategy=nccl can be compared" in capsys.readouterr().out


def test_values_with_commas_and_refused_combinations(capsys) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "resnet18", "--batch", "8"]
    rows = swept(capsys, *words, "--over", "parallel=dp;tp=2,dp=4;pp=3")
    assert [row["error"] is None for row in rows] == [True, True, False]
    assert rows[2]["error"].startswith("--parallel: pp=3 takes 3 ranks")
    assert rows[2]["time_s"] is None


def test_machines_are_ranked_in_the_field_s_units(tmp_path: Path, capsys) -> None:
    priced = tmp_path / "rented.yaml"
    text = builtin_topologies()["dgx-h100"].read_text(encoding="utf-8")
    priced.write_text(text.replace("name: dgx-h100\n", "name: rented\nprice_per_hour: 20 USD\n"), encoding="utf-8")
    over = f"topology=8x-l40s,{priced},dgx-a100-80gb"
    step = ["--workload", "gpt2", "--batch", "8", "--over", over]
    rows = swept(capsys, *step, "--sort", "tokens_per_s")
    assert [row["topology"] for row in rows] == [str(priced), "dgx-a100-80gb", "8x-l40s"]
    best = rows[0]
    assert best["tokens_per_s"] == pytest.approx(8 * 8 * 1024 / best["time_s"])
    assert best["tokens_per_s_per_device"] == pytest.approx(best["tokens_per_s"] / 8)
    assert best["price_per_million_tokens"] == pytest.approx(20 / 3600 / best["tokens_per_s"] * 1e6)
    assert best["price_currency"] == "USD"
    assert [row["price_per_million_tokens"] for row in rows[1:]] == [None, None]
    assert [row["mfu"] for row in swept(capsys, *step, "--sort", "mfu")] == sorted(
        (r["mfu"] for r in rows), reverse=True
    )


def test_csv_has_a_row_for_each(tmp_path: Path, capsys) -> None:
    file = tmp_path / "out.csv"
    rows = swept(capsys, *STEP, "--over", "batch=2,4", "--csv", str(file))
    read = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    assert [row["batch"] for row in read] == ["2", "4"]
    assert [float(row["time_s"]) for row in read] == [row["time_s"] for row in rows]


def test_what_was_found_before_a_kill_is_not_asked_again(tmp_path: Path, capsys, monkeypatch) -> None:
    from simulator.cli import sweep_command

    file = tmp_path / "progress"
    words = [*STEP, "--over", "batch=1,2,3,4,5,6,7,8,9,10", "--resume", str(file)]
    whole = swept(capsys, *words)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 1 + len(whole)
    file.write_text("".join(lines[:9]) + lines[9][:20], encoding="utf-8")  # killed within the ninth
    asked: list[str] = []
    row_of = sweep_command._row
    monkeypatch.setattr(sweep_command, "_row", lambda point, door: (asked.append(point.batch), row_of(point, door))[1])
    assert swept(capsys, *words) == whole
    assert asked == ["9", "10"]
    assert file.read_text(encoding="utf-8") == "".join(lines)


def test_several_processes_give_the_same(capsys) -> None:
    words = ["sweep", *STEP, "--over", "batch=1,2,3,4,5,6,7,8,9", "--json", "-q", "--jobs"]
    found = []
    for jobs in ("1", "2"):
        assert run([*words, jobs]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ([], "--over is needed, once for each option that varies, for example --over batch=1,2,4"),
        (["bach=1,2"], "--over bach=1,2: names no option that varies; did you mean 'batch'?"),
        (["batch"], "--over batch: names no option that varies; write for example batch=1,2,4"),
        (["batch=1,,2"], "--over batch=1,,2: a value is missing"),
        (["batch=1,1"], "--over batch=1,1: a value is named twice"),
        (["parallel=tp=4,pp=2"], "--over parallel=tp=4,pp=2: a layout holds commas, so ; separates layouts"),
        (["recompute=maybe"], "--over recompute: is a switch: yes or no; got maybe"),
        (["json=yes,no"], "--over json=yes,no: names no option that varies; "),
        (["batch=0"], "--batch 0: "),
        (["batch=1,x"], "--batch x: must be a whole number"),
        (["batch=1", "precision=fp32,fp33"], "--precision fp33: no such choice; "),
        (["batch=1", "micro-batches=1,x"], "--micro-batches x: must be a whole number"),
        (["batch=1", "accumulate=add,some"], "--accumulate some: "),
        (["batch=1", "parallel=dp;xp=2"], "--parallel"),
        (["batch=1", "image=224,x"], "--image x: must be a whole number"),
        (["batch=1", "set=classes=10,classes=x"], "--workload: resnet18: classes must be a whole number"),
        (["batch=1", "batch=2"], "--over batch: is there twice; name all its values in one, for example batch=1,2,4"),
        (["workload=vgg16,resnet18"], "--workload: --over workload says its values, too; leave one of the two out"),
    ],
)
def test_mistakes_are_one_line(over: list[str], said: str, capsys) -> None:
    assert run(["sweep", *STEP, *(word for each in over for word in ("--over", each)), "--jobs", "1", "-q"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"simulate: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "asked",
    ["--topology dgx-h100,dgx-a100-80gb --parallel dp", "--topology dgx-h100 --parallel dp --parallel fsdp"],
)
def test_a_row_is_not_one_of_several_answers(capsys, asked: str) -> None:
    words = f"sweep {asked} --workload lenet --over batch=1,2 --jobs 1"
    assert run(words.split()) == 2
    assert capsys.readouterr().err.startswith("simulate: a row has one answer; name one machine, layout,")


def test_why_a_combination_is_refused_is_there_on_each_screen(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["--topology", "p3.16xlarge", "--workload", "resnet18", "--batch", "8", "--over", "parallel=dp;pp=3;pp=5"]
    assert run(["sweep", *words, "--over", "compile=no,yes", "--jobs", "1", "-q"]) == 0
    out = capsys.readouterr().out
    assert "not answered" in out
    for way in ("pp=3", "pp=5"):
        named = f"parallel={way} compile=no, parallel={way} compile=yes: --parallel: {way} takes"
        assert named in " ".join(out.split())
    assert "of the 2 that fit" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_python_sweeps_lists(capsys) -> None:
    rows = simulator.sweep("p3.2xlarge", workload="resnet18", batch=[2, 4], compiled=[False, True])
    assert [(row["batch"], row["compiled"]) for row in rows] == list(product((2, 4), (False, True)))
    same = swept(capsys, *STEP, "--over", "batch=2,4", "--over", "compile=no,yes")
    assert [row["time_s"] for row in rows] == [row["time_s"] for row in same]
    alone = simulator.simulate("p3.2xlarge", workload="resnet18", batch=4, compiled=True)
    assert rows[-1]["time_s"] == alone.step_time_s  # type: ignore[union-attr]


def test_python_refuses_in_its_own_words() -> None:
    with pytest.raises(InputError, match="sweep needs an option with several values"):
        simulator.sweep("p3.2xlarge", batch=2)
    with pytest.raises(InputError, match=r"bach: no such option; did you mean 'batch'\?"):
        simulator.sweep("p3.2xlarge", bach=[1, 2])
    with pytest.raises(InputError, match="batch=0: "):
        simulator.sweep("p3.2xlarge", workload="resnet18", batch=[0, -1])


def test_where_nothing_fits_the_sweep_fails_and_says_what_would(capsys) -> None:
    words = ["sweep", "--topology", "p3.2xlarge", "--workload", "gpt2", "--jobs", "1", "-q"]
    assert run([*words, "--over", "batch=512,256"]) == 1
    out, err = capsys.readouterr()
    assert "none fits into the memory of its devices; batch=256 needs the least" in out
    assert "gpt2 at batch 256 needs" in err
    assert "; what would fit: --batch " in err
    assert run([*words, "--over", "batch=512,1"]) == 0
    assert "none fits" not in capsys.readouterr().out
