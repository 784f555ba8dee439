"""Several machines compared: ranked by time, by samples per second, and by price where their files state one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from simulator.api.session import Session
from simulator.cli import run
from simulator.questions.where import Where

pytestmark = pytest.mark.usefixtures("answered_once")

STEP = ["--workload", "resnet50", "--batch", "64"]


def priced(folder: Path, name: str, node: str, price: str, nodes: int = 1) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"schema_version: 1\nname: {name}\nprice_per_hour: {price}\ncluster: {{node: {node}, nodes: {nodes}}}\n"
    )
    return str(path)


def shown(arguments: list[str], capsys) -> str:
    assert run(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_the_price_of_a_million_samples_is_that_of_the_hours_they_take(tmp_path: Path, capsys):
    mine = priced(tmp_path, "mine", "p3.2xlarge", "3.06 USD")
    document = json.loads(shown(["--topology", mine, *STEP, "--json"], capsys))
    (result,) = document["results"]
    hours = 1e6 / result["throughput_per_s"] / 3600
    assert result["price_per_hour"] == {"amount": 3.06, "currency": "USD"}
    assert result["price_per_million_samples"]["amount"] == pytest.approx(3.06 * hours)
    none = json.loads(shown(["--topology", "p3.2xlarge", *STEP, "--json"], capsys))["results"][0]
    assert none["price_per_hour"] is None
    assert none["price_per_million_samples"] is None


@pytest.mark.slow
def test_the_cheapest_machine_that_fits_is_named(tmp_path: Path, capsys):
    slow = priced(tmp_path, "slow", "p3.2xlarge", "1 USD")
    fast = priced(tmp_path, "fast", "dgx-h100", "100 USD")
    out = shown(["--topology", f"{fast},{slow},p3.8xlarge", *STEP], capsys)
    assert "the cheapest machine that fits: slow, " in out
    assert re.search(r"slow, \S+ USD for a million images; then fast, \S+ USD$", out, re.MULTILINE)
    assert "time of a step" not in out
    free = shown(["--topology", "p3.2xlarge,p3.8xlarge", *STEP], capsys)
    assert "\nranked by" not in free
    assert "price" not in free
    assert "million" not in free


@pytest.mark.slow
def test_what_does_not_fit_is_not_the_cheapest(tmp_path: Path, capsys):
    small = priced(tmp_path, "small", "p3.16xlarge", "0.01 USD")
    large = priced(tmp_path, "large", "dgx-h100", "100 USD")
    larger = priced(tmp_path, "larger", "dgx-a100-80gb", "100 USD")
    question = ["--topology", f"{small},{large},{larger}", "--workload", "bert-large", "--batch", "16"]
    assert run(question) == 0  # the others fit
    out, err = capsys.readouterr()
    assert "the cheapest machine that fits: large, " in out
    (row,) = [line for line in out.splitlines() if line.startswith("small  ")]
    assert re.search(r" -  20\.2 GB over +-$", row)  # no price for what cannot run
    lack = "small does not fit: needs 37.1 GB, 20.2 GB more than a GPU has, 15.8 GiB (16.9 GB)"
    assert lack in " ".join(out.split())
    assert err == ""
    alone = ["--topology", small, "--workload", "bert-large", "--batch", "16"]
    assert run(alone) == 1


def test_prices_in_two_currencies_are_not_compared(tmp_path: Path, capsys):
    one = priced(tmp_path, "one", "p3.2xlarge", "3 USD")
    other = priced(tmp_path, "other", "p3.8xlarge", "3 EUR")
    out = shown(["--topology", f"{one},{other}", *STEP], capsys)
    assert "prices in EUR and USD are not compared" in out
    assert "cheapest" not in out


def test_more_nodes_cost_more(tmp_path: Path):
    mine = priced(tmp_path, "mine", "p3.16xlarge", "48", nodes=2)
    session = Session()
    of = [session.machine(Where(mine, nodes)).price_per_hour for nodes in (None, 1, 4)]
    assert [price and price.amount for price in of] == [48, 24, 96]
    groups = tmp_path / "groups.yaml"
    groups.write_text(
        "schema_version: 1\nname: groups\ncluster:\n  groups:\n"
        "    - {node: p3.16xlarge, nodes: 1}\n    - {node: p3.8xlarge, nodes: 1}\n"
    )
    assert session.machine(Where(str(groups))).price_per_hour is None


@pytest.mark.parametrize("price", ["-3", "0", "free", "3 USD EUR", "true", "1e400", "[3]"])
def test_a_price_that_cannot_be_read_is_refused_with_its_place(price: str, tmp_path: Path, capsys):
    mine = priced(tmp_path, "mine", "p3.2xlarge", price)
    assert run(["--topology", mine, *STEP]) == 2
    err = capsys.readouterr().err
    assert f"{mine}:3:17: price_per_hour: " in err
    assert "for example 31.22 USD" in err


def test_exchanges_are_ranked_by_the_price_of_a_million(tmp_path: Path, capsys):
    slow = priced(tmp_path, "slow", "p3.16xlarge", "1 USD")
    fast = priced(tmp_path, "fast", "dgx-h100", "100 USD")
    exchange = ["--strategy", "nccl", "--workload", "bytes:1GB"]
    out = shown(["--topology", f"{slow},{fast},p3.8xlarge", *exchange], capsys)
    assert re.search(r"slow, \S+ USD for a million exchanges; then fast, \S+ USD$", out, re.MULTILINE)
    (result,) = json.loads(shown(["--topology", slow, *exchange, "--json"], capsys))["results"]
    assert result["price_per_million_exchanges"]["amount"] == pytest.approx(1e6 * result["sync_time_s"] / 3600)
    assert f"the cheapest machine: slow, {result['price_per_million_exchanges']['amount']:.4g} USD" in out
    free = shown(["--topology", "p3.16xlarge,p3.8xlarge", *exchange], capsys)
    assert "ranked by" not in free
    assert "million" not in free


def test_a_price_that_no_machine_has_takes_no_column(tmp_path: Path, capsys, monkeypatch):
    """At 80 columns, where the only machine with a price cannot run the step, the band stays."""
    monkeypatch.setenv("COLUMNS", "80")
    small = priced(tmp_path, "small", "p3.16xlarge", "0.01 USD")
    machines = f"{small},dgx-h100,dgx-a100-80gb"
    assert run(["--topology", machines, "--workload", "resnet50", "--batch", "512", "--strategy", "nccl", "-q"]) == 0
    out = capsys.readouterr().out
    assert "a million" not in out
    assert "80 % band" in out.partition("not shown")[0]
