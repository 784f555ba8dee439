"""``--report``: a page with the answer, its timeline and its sources, that no name in it can leave."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from reports.page import Page, page_of
from simulator.api import Session
from simulator.cli import run
from simulator.results import PlainTable

pytestmark = pytest.mark.usefixtures("answered_once")

TWO = ("--set", "layers=2")
RUN_STEP = Session._step
STEP = ["--topology", "p3.16xlarge", "--workload", "resnet18", "--batch", "16", "-q"]


def page(tmp_path: Path, *words: str) -> str:
    file = tmp_path / "answer.html"
    assert run([*words, "--report", str(file)]) == 0
    return file.read_text(encoding="utf-8")


def timeline(text: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="timeline">(.*)</script>', text)
    read: dict[str, Any] = json.loads(found)
    return read


def test_a_step_has_its_answer_its_machine_its_timeline_and_its_sources(tmp_path: Path, capsys) -> None:
    text = page(tmp_path, *STEP)
    shown = capsys.readouterr().out
    assert unescape(re.findall("<h1>(.*?)</h1>", text)[0]) == shown.splitlines()[0]
    time = re.findall(r"^step\s+(\S+ \w+)", shown, re.MULTILINE)[0]
    assert f"<td class=''>step</td><td class='n'>{time}</td>" in text
    assert "slowest layers" in text, "the page tells all, as -v does"
    assert "slowest layers" not in shown
    assert text.count('<g class="device gpu') == 8
    assert re.search(
        r"<title>gpu0 - gpu3: NVLink, 2 x 25 GB/s = 50 GB/s, each direction, [\d.]+ % in use</title>", text
    )
    assert "<td class=''>v100-sxm2-16gb</td><td class=''>memory_bandwidth</td>" in text
    assert "<pre>simulate --topology p3.16xlarge --workload resnet18 --batch 16</pre>" in text
    assert len(text) < 2_000_000
    outside = r"(?:src|href)=(?!.#)|https?://(?!www\.w3\.org|purl\.org|creativecommons)"
    assert not re.search(outside, re.sub("<td.*?</td>", "", text)), "nothing is fetched"


def test_the_timeline_is_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    found = timeline(page(tmp_path, *STEP, "--trace", str(trace)))
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    drawn = [(s[0], s[1], found["texts"][s[2]], s[5]) for track in found["tracks"] for s in track["slices"]]
    wanted = [
        (round(e["ts"] * 1e3), round(e["dur"] * 1e3), e["name"], int(e["args"].get("critical", False))) for e in slices
    ]
    assert sorted(drawn) == sorted(wanted)
    assert found["left_out"] == 0
    assert 0 < sum(item[3] for item in drawn) < len(drawn), "some of them are on the critical path"
    (memory,) = [counter for counter in found["counters"] if counter["name"] == "memory in use GB"]
    assert max(memory["points"][1::2]) > 0.5


def test_the_critical_path_has_no_gap(tmp_path: Path) -> None:
    found = timeline(page(tmp_path, *STEP))
    spans = sorted((s[0], s[0] + s[1]) for track in found["tracks"] for s in track["slices"] if s[5])
    reach = 0
    for start, end in spans:
        assert start <= reach + 2_000, f"nothing on the path from {reach} to {start} ns"
        reach = max(reach, end)
    last = max(s[0] + s[1] for track in found["tracks"] for s in track["slices"])
    assert reach >= last - 2_000, f"the path ends at {reach}, the step at {last} ns"


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (
            ["--topology", "p3.16xlarge", "--strategy", "ring,nccl"],
            "simulate --topology p3.16xlarge --strategy ring,nccl",
        ),
        (
            ["--topology", "dgx-h100", "--workload", "launch:stream,op=elementwise,function=relu,elements=64"],
            "simulate ",
        ),
        (["scale", *STEP[:4], "--batch", "8", "--gpus", "1,2"], "simulate scale --topology p3.16xlarge "),
        (["scenario", "one-process-eight-gpus"], "simulate scenario one-process-eight-gpus"),
    ],
)
def test_every_kind_of_answer_has_a_page_that_says_how_to_ask_again(tmp_path: Path, words, again: str) -> None:
    text = page(tmp_path, *words, "-q")
    said = unescape(re.findall("<h2>Ask again</h2>\n<pre>(.*?)</pre>", text)[0])
    assert said.startswith(again)
    answer = text.partition("<h2>")[0].partition("</h1>")[2]
    assert "<table" in answer or "<pre>" in answer


def test_names_are_text(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b"
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": evil,
        "pid": 0,
        "tid": 1,
        "ts": 0.0,
        "dur": 1.0,
        "args": {"class": evil},
    }
    names = [
        {"ph": "M", "name": kind, "pid": 0, "tid": 1, "ts": 0, "args": {"name": evil}}
        for kind in ("process_name", "thread_name")
    ]
    table = PlainTable((evil, evil), [(evil, evil)] * 2, (False, True), {0: evil}, evil)
    text = page_of(Page([evil, evil, table], evil, trace=json.dumps({"traceEvents": [*names, event]})))
    assert evil[:20] not in text
    assert "<img" not in text
    assert "\x1b" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert evil in timeline(text)["texts"]


def test_many_slices_keep_the_longest(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "ts": 0, "args": {"name": "compute"}}
    ]
    events += [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 1, "ts": i, "dur": 0.5 + i % 2 / 4, "args": {}}
        for i in range(60_000)
    ]
    found = timeline(page_of(Page(["title"], "again", trace=json.dumps({"traceEvents": events}))))
    assert found["left_out"] == 10_000
    assert sum(s[1] == 750 for s in found["tracks"][0]["slices"]) == 30_000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("answer.pdf", "is a page; name a file that ends with .html"),
        ("missing/answer.html", "there is no folder"),
    ],
)
def test_a_file_that_is_no_page_is_refused_before_the_work(tmp_path: Path, name: str, said: str, capsys) -> None:
    assert run([*STEP, "--report", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


def test_the_same_question_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["--topology", "p3.16xlarge", "--workload", "lenet", "--batch", "17", "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_step", RUN_STEP)  # that runs each time
        assert page(tmp_path, *asked) == page(tmp_path, *asked)


@pytest.mark.parametrize("words", [[], ["--parallel", "pp=2"], ["--slow-link", "gpu0-gpu3:0.5x"]])
def test_a_link_is_as_much_in_use_on_the_page_as_in_the_answer(words: list[str], tmp_path: Path, capsys) -> None:
    text = page(tmp_path, "--topology", "p3.16xlarge", "--workload", "gpt2", "--batch", "4", *TWO, *words, "-q")
    said = re.findall(
        r"^slowest link\s+NVLink \((\w+)->(\w+)\), ([\d.]+) % in use", capsys.readouterr().out, re.MULTILINE
    )
    drawn = re.findall(r"<title>(\w+) - (\w+): NVLink, [^<]*, ([\d.]+) % in use</title>", text)
    assert {(*sorted(ends), use) for *ends, use in said} <= {(*sorted(ends), use) for *ends, use in drawn}
    assert said
