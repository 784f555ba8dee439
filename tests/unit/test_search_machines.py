"""The best layout on each of several machines: the ranking, prices, machines without any, and kept results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli import run

ASKED = "--workload gpt3-125m --global-batch 16 --parallel tp=1,vp=1,zero=0,pp=1 --recompute none --jobs 1 --quiet"


@pytest.fixture
def priced(tmp_path: Path) -> list[str]:
    """Return files of two machines, the faster of which costs ten times as much."""
    files = []
    for name, price in (("dgx-h100", "90 USD"), ("dgx-a100-80gb", "9 USD")):
        file = tmp_path / f"{name}.yaml"
        text = f"schema_version: 1\nname: my-{name}\ncluster: {{node: {name}, nodes: 1}}\nprice_per_hour: {price}\n"
        file.write_text(text, encoding="utf-8")
        files.append(str(file))
    return files


def asked(topology: str, more: str = "", sizes: str = "--set layers=2") -> list[str]:
    return ["best", "--topology", topology, *ASKED.split(), *sizes.split(), *more.split()]


def test_each_machine_has_its_best(priced: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As the machine asked alone: the same layouts, times and commands; fastest first."""
    assert run(asked(",".join(reversed(priced)), "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    searches = found["searches"]
    assert found["unfit"] == {}
    assert [each["topology"] for each in searches] == ["my-dgx-h100", "my-dgx-a100-80gb"]
    for each, file in zip(searches, priced, strict=True):
        assert run(asked(file, "--json")) == 0
        assert json.loads(capsys.readouterr().out) == each
        assert f"--topology {file} " in each["ranking"][0]["command"]


@pytest.mark.slow
def test_the_answer_names_the_fastest_and_the_cheapest(priced: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(asked(",".join(priced))) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "my-dgx-h100 is fastest, with " in said
    assert "times as fast as my-dgx-a100-80gb (80 % band" in said
    assert "my-dgx-a100-80gb is cheapest, " in said
    assert "USD for a million tokens" in said
    assert "the estimates of those simulated were " in said


@pytest.mark.slow
def test_without_prices_it_says_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(asked("dgx-h100,dgx-a100-80gb")) == 0
    assert "a machine's file gives its price (price_per_hour), by" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["best --global-batch 16", "--batch 2", ""])
def test_machines_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Rows and columns are told apart by it."""
    for number in (1, 2):
        text = f"schema_version: 1\nname: mine\ncluster: {{node: dgx-h100, nodes: {number}}}\n"
        (tmp_path / f"{number}.yaml").write_text(text, encoding="utf-8")
    files = [str(tmp_path / f"{number}.yaml") for number in (1, 2)]
    network = ["--workload", "gpt3-125m" if command else "bytes:1MB"]
    assert run([*command.split(), "--topology", ",".join(files), *network]) == 2
    assert "2.yaml are both named mine; answers tell machines apart by name" in capsys.readouterr().err


@pytest.mark.slow
def test_a_machine_without_a_layout_is_named(priced: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--set layers=24 --set hidden=2048 --set heads=16"
    assert run(asked("dgx-h100,8x-p100-pcie-dual-root", sizes=sizes)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "8x-p100-pcie-dual-root: no way to do the step is feasible" in said
    assert run(asked("8x-p100-pcie-dual-root,8x-m40-dual-root", sizes=sizes)) == 2
    assert capsys.readouterr().err.count("no way to do the step is feasible") == 2


@pytest.mark.slow
def test_kept_results_are_of_each_machine(
    priced: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.jsonl"
    assert run(asked(",".join(priced), f"--json --resume {file}")) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr("simulator.search.run.simulate_way", None)
    assert run(asked(",".join(priced), f"--json --resume {file}")) == 0
    assert capsys.readouterr().out == first
