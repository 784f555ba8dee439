"""``simulate`` with a single operation: its reason in text and JSON, over sizes, and drawn."""

from __future__ import annotations

import json

import pytest

from simulator.cli import run

SERVER = ["--topology", "cpu-2xe5-2690v4"]


def shown(words: list[str], capsys) -> str:
    assert run(words) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_an_answer_says_why_in_words_and_in_figures(capsys) -> None:
    words = [*SERVER, "--workload", "access:chase,256MiB,node=remote"]
    text = shown(words, capsys)
    assert "latency of memory beyond socket link" in text
    assert "  the other socket's memory is one hop of 40 ns further away" in text
    (result,) = json.loads(shown([*words, "--json"], capsys))["results"]
    assert result["bound"] == "latency of memory beyond socket link"
    assert result["time_s"] == pytest.approx(result["figures"]["data_s"] + result["figures"]["translation_s"])
    assert f"  {result['why'][0]}" in text


def test_a_sweep_is_one_answer_a_size_and_machine_and_each_is_that_of_the_size_alone(capsys) -> None:
    both = "cpu-2xe5-2690v4,generic-desktop-cpu"
    words = ["--topology", both, "--workload", "access:chase,sweep:4KiB-1MiB:16", "--json"]
    results = json.loads(shown(words, capsys))["results"]
    assert sorted({r["size_bytes"] for r in results}) == [4096, 65536, 1048576]
    assert len(results) == 6
    for result in results:
        alone = ["--topology", result["topology"], "--workload", f"access:chase,{result['size_bytes']}B", "--json"]
        assert json.loads(shown(alone, capsys))["results"][0]["time_s"] == result["time_s"]
    lines = shown(words[:-1], capsys).splitlines()
    assert len([line for line in lines if " a load " in line and "latency of " in line]) == 6


@pytest.mark.parametrize("workload", ["disk:read_random,sweep:4KiB-1MiB:16", "copy:h2d,sweep:4KiB-1MiB:16"])
def test_whatever_has_a_size_is_swept(workload, capsys) -> None:
    results = json.loads(shown(["--topology", "dgx-2", "--workload", workload, "--json"], capsys))["results"]
    assert [r["size_bytes"] for r in results] == [4096, 65536, 1048576]
    assert results[0]["time_s"] <= results[1]["time_s"] <= results[2]["time_s"]


def test_a_sweep_is_drawn_the_same_every_time(tmp_path, capsys) -> None:
    drawn = []
    for name in ("a.svg", "b.svg"):
        words = [*SERVER, "--workload", "access:chase,sweep:4KiB-64MiB:4", "--plot", str(tmp_path / name)]
        shown(words, capsys)
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1]
    assert b"time of a load" in drawn[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["access:chase,sweep:1MiB-4KiB"], "the smaller size comes first; did you mean sweep:4KiB-1MiB?"),
        (["access:chase,sweep:4KiB"], "a sweep goes from one size to another"),
        (["access:chase,sweep:4KiB-1MiB,sweep:4KiB-1MiB"], "one size is swept; got 2 sweeps"),
        (["access:chase,4KiB", "--plot", "x.svg"], "--plot: a single operation is drawn over sizes"),
        (["access:chaise,4KiB"], "there is no 'chaise'; did you mean 'chase'?"),
        (["access:chase,4KiB,nodes=remote"], "there is no 'nodes'; did you mean 'node'?"),
        (["disk:read_random,4KiB,hits=90"], "there is no 'hits'"),
        (["message:4KiB,tpc"], "there is no 'tpc'; did you mean 'tcp'?"),
        (["core:mutx"], "there is no 'mutx'; did you mean 'mutex'?"),
    ],
)
def test_mistakes_get_one_line(words, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*SERVER, "--workload", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
