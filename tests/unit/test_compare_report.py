"""The page of a comparison is self-contained and reproducible, and escapes all text of tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from reports.compare import errors_figure, staircases
from simulator.console.run import run_app
from tests.measured_folders import ENVIRONMENT, bandwidths, constant, operators, scattered, steps, timed, write
from validate.cli import app
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_document, comparison_page

pytestmark = pytest.mark.slow

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Reader(HTMLParser):
    """Records open tags, IDs, and external resources."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.fetched, self.tags, self.text = [], [], [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href") and not value.startswith("#"):
                self.fetched.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    rows = timed("ops.csv", operators(40), scattered(0.1))
    rows[0] |= {"note": "captured graph"}
    tables = {
        "ops.csv": rows,
        "training.csv": timed("training.csv", steps(("resnet18", "alexnet")), constant(1.1)),
        "memory.csv": bandwidths(),
    }
    first = write(
        tmp_path_factory.mktemp("first"),
        tables,
        machine="<b>mine</b> & co",
        left=[{"group": "collectives", "case": "", "reason": "<script>one GPU</script>"}],
    )
    later = [{**row, "time_s": row["time_s"] * 1.05} for row in rows]
    second = write(tmp_path_factory.mktemp("second"), {"ops.csv": later}, environment={**ENVIRONMENT, "driver": "575"})
    return first, second


@pytest.fixture(scope="module")
def comparison(folders):
    first, second = (read_folder(str(folder)) for folder in folders)
    return compared(first, ComparisonOptions(topology="dgx-h200"), second)


@pytest.fixture(scope="module")
def found(comparison):
    return comparison_document(comparison)


@pytest.fixture(scope="module")
def page(comparison):
    return comparison_page(comparison, "validate compare measured/")


def test_the_page_is_whole_and_needs_nothing_else(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.fetched == []
    assert reader.tags.isdisjoint({"iframe", "object", "link"})
    assert len(reader.ids) == len(set(reader.ids))
    assert not re.search(r"url\((?!#)", page)
    assert "@import" not in page


def test_every_reference_inside_leads_somewhere(page):
    reader = Reader()
    reader.feed(page)
    wanted = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
    assert wanted
    assert wanted <= set(reader.ids)


def test_text_of_tables_is_no_markup(page):
    assert "<b>mine</b>" not in page
    assert "machine &lt;b&gt;mine&lt;/b&gt; &amp; co;" in page
    assert "&lt;script&gt;one GPU&lt;/script&gt;" in page


def test_text_of_tables_is_not_obeyed(tmp_path):
    evil = "\x1b[31m\u202e\x07"
    left = [{"group": f"ops{evil}", "case": evil, "reason": f"one{evil}"}]
    tables = {"ops.csv": [{**row, "software": evil} for row in timed("ops.csv", operators(40), constant(1.1))]}
    folder = write(tmp_path, tables, machine=f"mine{evil}", left=left)
    drawn = comparison_page(compared(read_folder(str(folder)), ComparisonOptions()), "again")
    assert all(c.isprintable() or c in "\n\t" for c in drawn)
    assert "mine\\x1b[31m\\u202e\\x07" in drawn


def test_it_holds_what_was_found(page, found):
    reader = Reader()
    reader.feed(page)
    text = " ".join(reader.text)
    for title in ("Predicted against measured", "Error by class", "Staircases", "the worst", "drift against",
                  "not measured, and why", "Environment", "Ask again"):  # fmt: skip
        assert title in text
    for item in found["worst"]:
        assert item["name"] in text
        assert item["explanation"] in text
    assert "575" in text
    assert page.count("<figure>") == page.count("</svg>") >= 2 + 2 + 2 + 1


def test_bands_are_told_and_drawn(page, found):
    banded = [row for row in found["rows"] if "error" in row and "low_s" in row]
    assert banded
    assert all(0 < row["low_s"] < row["high_s"] for row in banded)
    within = [row["low_s"] <= row["measured_s"] <= row["high_s"] for row in banded]
    assert f"in the 80 % band of their prediction: {sum(within)} of {len(banded)} rows" in page
    ops = [row for row, inside in zip(banded, within, strict=True) if row["table"] == "ops.csv" and inside]
    (whole,) = [item for item in found["classes"] if item["table"] == "ops.csv" and not item["by"]]
    assert whole["in_band"] == pytest.approx(len(ops) / sum(row["table"] == "ops.csv" for row in banded))


def test_the_same_comparison_gives_the_same_bytes(page, comparison):
    assert comparison_page(comparison, "validate compare measured/") == page


def test_colours_are_the_page_s_own(page):
    assert "currentColor" in page
    assert "var(--grid)" in page
    assert "#010203" not in page
    assert "prefers-color-scheme: dark" in page


def test_a_document_of_nothing_scored_has_a_page_too(tmp_path):
    rows = [{**row, "device": "no-such-thing"} for row in timed("ops.csv", operators(3), constant(1.0))]
    folder = write(tmp_path, {"ops.csv": rows}, environment={"device": "no-such-thing"}, machine="x")
    found = compared(read_folder(str(folder)), ComparisonOptions())
    assert comparison_document(found)["rows_scored"] == 0
    reader = Reader()
    reader.feed(comparison_page(found, "again"))
    assert reader.open == []
    assert "no part of device" in " ".join(reader.text)


def test_staircases_hold_what_was_measured_in_rising_size(found):
    plots = staircases(found["rows"])
    assert set(plots) == {"memory, bandwidth", "memory, latency"}
    series = plots["memory, bandwidth"]
    assert len(series) == 2
    for members in series.values():
        sizes = [row["size_bytes"] for row in members]
        assert sizes == sorted(sizes)
        assert len(sizes) == 17


def test_of_a_machine_that_nobody_knows_the_measured_staircases_are_drawn(tmp_path):
    strange = [{**row, "device": "strange-9000"} for row in bandwidths()]
    collectives = [
        {"machine": "strange", "n_nodes": 1, "n_gpus": 8, "collective": "all-reduce", "bytes": 2**k, "dtype": "fp32",
         "time_s": 2.0**k / 1e11, "algbw_GBps": 100.0, "busbw_GBps": 175.0, "trust": "A"}
        for k in range(20, 30)
    ]  # fmt: skip
    tables = {"memory.csv": strange, "collectives.csv": collectives}
    folder = write(tmp_path, tables, environment={"device": "strange-9000"}, machine="strange")
    found = compared(read_folder(str(folder)), ComparisonOptions())
    document = comparison_document(found)
    assert document["rows_scored"] == 0
    assert set(staircases(document["rows"])) == {"memory, bandwidth", "memory, latency", "collectives, bandwidth"}
    reader = Reader()
    reader.feed(comparison_page(found, "again"))
    assert sum("by size: measured" in text for text in reader.text) >= 3


def test_the_option_writes_it_beside_the_text(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "r.html"
    arguments = ["compare", str(folders[0]), "--with", str(folders[1]), "--report", str(file)]
    assert run_app(app, "validate", arguments) == 0
    out, err = capsys.readouterr()
    assert file.read_text().startswith("<!DOCTYPE html>")
    assert err == f"wrote {file}\n"
    assert "times of the second over the first" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "60")
    assert run_app(app, "validate", ["compare", str(folders[0]), "--with", str(folders[1])]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_one_document_without_numbers_that_json_has_not(folders, capsys):
    assert run_app(app, "validate", ["compare", str(folders[0]), "--json", "-q"]) == 0
    out = capsys.readouterr().out
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["schema_version"] == 1
    assert len(document["rows"]) == document["rows_total"]
    assert document["rows"][0]["measured"]["time_s"] > 0


def test_one_class_far_off_does_not_squeeze_the_others_and_notes_stand_above_figures(comparison):
    def item(median: float, p90: float) -> dict:
        return {"by": "", "label": f"{median}", "median": median, "p90": p90, "median_low": None, "median_high": None,
                "spread": None}  # fmt: skip

    figure = errors_figure([item(0.05, 0.1), item(0.06, 0.12), item(9.0, 25.0)])
    assert figure.axes[0].get_xlim()[1] < 0.5
    assert [text.get_text() for text in figure.axes[0].texts] == ["median 900 %, to 2,500 %"]
    page = comparison_page(replace(comparison, notes=("the machine did other work",)), "again")
    assert page.index("the machine did other work") < page.index("error by class") < page.index("<figure>")
