"""Comparisons are ranked by what the user buys, and only among what users can select."""

from __future__ import annotations

import json
import re

import pytest

from simulator.cli import run

pytestmark = pytest.mark.usefixtures("answered_once")

STEP = ["--topology", "p3.16xlarge", "--workload", "alexnet", "--batch", "4"]
BARE = "on the bare links: launches and protocols add to these times"
BOUNDS = "lower bound of each schedule: bare links, without launches and protocols"


def shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run(words) == 0
    return capsys.readouterr().out.splitlines()


def table_of(lines: list[str], first: str) -> list[str]:
    """Return the rows of the table that starts with the heading *first*."""
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{first} "))
    return lines[start + 1 : lines.index("", start)]


@pytest.mark.slow
@pytest.mark.parametrize("question", [STEP, ["--topology", "p3.16xlarge"]])
def test_what_users_can_select_stands_above_the_bounds(question: list[str], capsys) -> None:
    lines = shown([*question, "--strategy", "all"], capsys)
    rows = table_of(lines, "strategy")
    bare, bounds = rows.index(BARE), rows.index(BOUNDS)
    names = [row.split()[0] for row in rows]
    assert names[:bare] == ["nccl"]
    assert set(names[bare + 1 : bounds]) == {"parameter-server", "gpu0", "cpu"}
    assert {"ring", "tree", "sharded", "halving-doubling"} < set(names[bounds + 1 :])
    assert not any(re.search(r"\d to \d", row) for row in rows[bounds:])  # an ideal schedule has no band


@pytest.mark.slow
def test_the_verdict_recommends_what_can_be_selected(capsys) -> None:
    """Over two nodes NCCL is faster than servers, which users can run too."""
    question = ["--topology", "p3.16xlarge", "--nodes", "2", "--workload", "alexnet", "--batch", "4"]
    lines = shown([*question, "--strategy", "nccl,parameter-server,ring"], capsys)
    (verdict,) = [line for line in lines if line.startswith("nccl is faster")]
    assert "as fast as parameter-server" in verdict
    assert "ring" not in verdict


@pytest.mark.slow
def test_steps_through_servers_are_no_bounds(capsys) -> None:
    assert run([*STEP, "--strategy", "parameter-server,ring,gpu0", "--json"]) == 0
    found = {each["strategy"]: each for each in json.loads(capsys.readouterr().out)["results"]}
    kinds = {name: (each["is_bound"], each["counts_software"]) for name, each in found.items()}
    assert kinds == {"parameter-server": (False, False), "ring": (True, False), "gpu0": (False, False)}
    assert found["parameter-server"]["band"] is None  # too few steps through servers were measured
    lines = shown([*STEP, "--strategy", "parameter-server"], capsys)
    assert not any("ideal schedule" in line for line in lines)


def test_bounds_never_win_a_sweep(capsys, monkeypatch) -> None:
    """A ring of 13 us on the bare links beside 30 us of NCCL: only NCCL can be run."""
    words = ["--topology", "p3.16xlarge", "--workload", "sweep:1kB-1MB:10", "--strategy"]
    said = "fastest, from 1 kB to 1 MB: nccl; lower bounds do not count, as nobody can select an ideal schedule"
    assert f"# {said}" in shown([*words, "nccl,ring"], capsys)
    monkeypatch.setenv("COLUMNS", "100")
    lines = shown([*words, "nccl,ring"], capsys)
    assert " ".join(lines).count(said) == 1
    assert lines.index(BOUNDS) > lines.index("  size     nccl")  # in a table of their own
    assert "lowest bound, from 1 kB to 1 MB: ring" in shown([*words, "ring"], capsys)
    lines = shown([*words, "nccl,gpu0"], capsys)
    assert "fastest, launches and protocols included, from 1 kB to 1 MB: nccl" in lines
    assert f"gpu0 is {BARE}" in lines


def test_unlike_work_is_ranked_by_its_rate(capsys) -> None:
    """Half of the GPUs' work in TP 2: its step takes less time, and so does nothing for the user."""
    lines = shown([*STEP, "--parallel", "dp", "--parallel", "tp=2"], capsys)
    assert ", batch 4 per replica, fp32, momentum, ranked by images/s" in lines[0]
    rows = [row.split("  ") for row in table_of(lines, "strategy")]
    found = {row[0].strip(): [each.strip() for each in row[1:] if each.strip()] for row in rows}
    assert [found[name][0] for name in ("DDP", "TP=2")] == ["32", "16"]  # images a step
    assert list(found) == ["DDP", "TP=2"]
    (verdict,) = [line for line in lines if line.startswith("DDP is faster, 1.")]
    assert "as fast as TP=2 (" in verdict


@pytest.mark.parametrize(
    ("words", "batch"),
    [
        (["--parallel", "dp,fsdp"], "batch 4 per device"),
        (["--global-batch", "32", "--parallel", "dp", "--parallel", "tp=2"], "32 images per step"),
        (["--topology", "p3.8xlarge,p3.16xlarge", "--global-batch", "32"], "32 images per step"),
    ],
)
def test_the_heading_says_whose_batch_it_is(words: list[str], batch: str, capsys) -> None:
    question = STEP[:4] if "--global-batch" in words else STEP
    question = question[2:] if "--topology" in words else question
    assert f", {batch}, " in shown([*question, *words], capsys)[0]


def test_machines_have_one_order(capsys) -> None:
    lines = shown(["--topology", "p3.8xlarge,p3.16xlarge", *STEP[2:]], capsys)
    assert [row.split()[0] for row in table_of(lines, "machine")] == ["p3.16xlarge", "p3.8xlarge"]
    assert any(line.startswith("p3.16xlarge is faster, ") for line in lines)
    assert "ranked by" not in lines  # the table is


@pytest.mark.slow
def test_what_does_not_fit_is_said_at_any_width_and_one_that_fits_is_an_answer(capsys, monkeypatch) -> None:
    question = ["--topology", "p3.8xlarge,dgx-h100", "--workload", "gpt2-xl", "--batch", "2", "--parallel", "fsdp"]
    question += ["--precision", "fp32", "--quiet"]
    alone = {}
    for machine in ("p3.8xlarge", "dgx-h100"):
        alone[machine] = run(["--topology", machine, *question[2:]])
        capsys.readouterr()
    assert alone == {"p3.8xlarge": 1, "dgx-h100": 0}
    for width in ("60", "120"):
        monkeypatch.setenv("COLUMNS", width)
        assert run(question) == 0
        out, err = capsys.readouterr()
        assert re.search(r"\d % over", out)
        assert "p3.8xlarge does not fit: needs " in " ".join(out.split())
        assert err == ""
    none = [word if word != "2" else "16" for word in question[2:]]
    assert run(["--topology", "p3.2xlarge,p3.8xlarge", *none]) == 1
    assert capsys.readouterr().err.startswith("simulate: out of memory: FSDP on p3.8xlarge needs ")


@pytest.mark.slow
def test_a_curve_says_what_does_not_fit(capsys) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "gpt2-xl", "--batch", "1", "--parallel", "fsdp", "--quiet"]
    assert run(["scale", "--gpus", "1,8", *words]) == 0  # on 8 it fits
    out, err = capsys.readouterr()
    assert "does not fit into the memory of the devices: on 1 GPU\n" in out
    assert re.search(r"^ +1 .* GB over", out, re.MULTILINE)
    assert re.search(r"^ +8 .* GB", out, re.MULTILINE)
    assert "memory of 15.8 GiB (16.9 GB)" in out
    assert err == ""
    assert run(["scale", "--gpus", "1,2", *words]) == 1
    assert capsys.readouterr().err.startswith("simulate: out of memory: --gpus 1 needs ")
