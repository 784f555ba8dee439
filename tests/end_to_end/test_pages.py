"""HTML pages in a browser: an empty console, nothing wider than the window, no text too small to read."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reports.curves import draw_check
from simulator.api import Session
from simulator.cli import run
from simulator.units import parse_quantity
from tests.measured_folders import bandwidths, constant, operators, scattered, steps, timed, write
from tests.nccl_logs import as_log
from validate.check.check import check_log
from validate.check.report import as_document, headline
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_page
from validate.importing.nccl_tests import read_nccl_tests

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")]

LEAST_PX = 11.0
# A frame of the wanted width, since headless windows have a minimum width.  The title receives the findings.
AROUND = """<!DOCTYPE html><html><head><title>nothing yet</title></head><body style="margin:0">
<iframe id="page" src="page.html" style="border:0;width:{width}px;height:3000px"></iframe>
<script>
addEventListener("load", () => {{
  const inner = document.getElementById("page").contentDocument, view = inner.defaultView;
  const small = {{}}, walker = inner.createTreeWalker(inner.body, NodeFilter.SHOW_TEXT);
  let least = 1e9;
  while (walker.nextNode()) {{
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("style,script,title,desc,defs")) continue;
    if (!element.getClientRects().length) continue;
    let size = parseFloat(view.getComputedStyle(element).fontSize);
    const svg = element.closest("svg");
    if (svg) size *= svg.getScreenCTM().a;
    least = Math.min(least, size);
    if (size < {least}) small[walker.currentNode.data.trim().slice(0, 40)] = size;
  }}
  document.title = JSON.stringify({{
    scrolls: inner.documentElement.scrollWidth - view.innerWidth,
    least, small: Object.entries(small).slice(0, 5),
    page: view.getComputedStyle(inner.body).backgroundColor,
  }});
}});
</script></body></html>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, str]:
    tables = {
        "ops.csv": timed("ops.csv", operators(24), scattered(0.1)),
        "training.csv": timed("training.csv", steps(("resnet18", "alexnet")), constant(1.1)),
        "memory.csv": bandwidths(),
    }
    folder = read_folder(str(write(tmp_path_factory.mktemp("measured"), tables)))
    found = compared(folder, ComparisonOptions(topology="dgx-h200"), folder)
    file = tmp_path_factory.mktemp("page") / "step.html"
    assert (
        run(["--topology", "p3.16xlarge", "--workload", "resnet18", "--batch", "8", "-q", "--report", str(file)]) == 0
    )
    return {"comparison": comparison_page(found, "again"), "step": file.read_text(encoding="utf-8")}


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("name", ["comparison", "step"])
def test_a_page_can_be_read(pages, name: str, width: int, colours: str, tmp_path: Path):
    seen = shown(pages[name], width, colours, tmp_path)
    assert seen["scrolls"] <= 0
    assert seen["small"] == [], f"text below {LEAST_PX:g} px"
    assert sum(map(int, re.findall(r"\d+", seen["page"])[:3])) < 200 if colours == "dark" else "255" in seen["page"]


def test_the_picture_of_a_checked_log_can_be_read(tmp_path: Path):
    """The figure, the only file that ``validate check`` writes, is legible at its own size."""
    log = read_nccl_tests(as_log([(1 << 20, 1e-4), (1 << 24, 4e-4), (1 << 28, 9e-3)]), "a.log")
    checked = check_log(Session(), log, "dgx-h100")
    picture = draw_check(as_document(checked), headline(checked), "svg").decode()
    seen = shown(f'<!DOCTYPE html><body style="margin:0">{picture[picture.index("<svg") :]}', 800, "light", tmp_path)
    assert seen["scrolls"] <= 0
    assert seen["least"] < 100.0, "the picture has no text"
    assert seen["small"] == [], f"text below {LEAST_PX:g} px"


# What a reader does with the timeline and a table, after which the title has what they show.
USED = """<!DOCTYPE html><html><head><title>nothing yet</title></head><body>
<iframe id="page" src="page.html" style="border:0;width:1200px;height:3000px"></iframe>
<script>
const soon = () => new Promise(done => setTimeout(done, 50));
addEventListener("load", async () => {
  const inner = document.getElementById("page").contentDocument, view = inner.defaultView;
  const canvas = inner.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const key = name => canvas.dispatchEvent(new view.KeyboardEvent("keydown", {key: name, bubbles: true}));
  const mouse = (kind, x, y, more = {}) => canvas.dispatchEvent(
    new view[kind === "wheel" ? "WheelEvent" : "PointerEvent"](kind,
      {clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, ...more}));
  const end = +canvas.dataset.end, seen = {end, whole: canvas.view().slice(0, 2)};
  key("+"); key("+"); key("ArrowRight");
  seen.keys = canvas.view().slice(0, 2);
  key("0");
  mouse("wheel", 600, 40, {deltaY: -500, ctrlKey: true});
  seen.wheel = canvas.view().slice(0, 2);
  mouse("wheel", 600, 40, {deltaY: -500});
  seen.scrolled = canvas.view().slice(0, 2);
  inner.querySelector("[data-do=fit]").click();
  const search = inner.querySelector("[type=search]");
  search.value = "fc";
  search.dispatchEvent(new view.Event("input"));
  seen.found = inner.querySelector("[data-do=found]").textContent;
  search.dispatchEvent(new view.KeyboardEvent("keydown", {key: "Enter"}));
  seen.next = inner.querySelector("[data-do=said]").textContent;
  inner.querySelector("[data-do=critical]").click();
  await soon();
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  seen.colours = new Set(new Uint32Array(pixels.buffer)).size;
  const table = [...inner.querySelectorAll("table.sorts")].find(t => t.textContent.startsWith("slowest layers"));
  const column = n => [...table.tBodies[0].rows].map(row => row.cells[n].textContent);
  table.querySelectorAll("th")[0].click();
  seen.byName = column(0);
  table.querySelectorAll("th")[1].click();
  table.querySelectorAll("th")[1].click();
  seen.byTime = column(1);
  document.title = JSON.stringify(seen);
});
</script></body></html>"""


def test_a_timeline_zooms_by_keys_and_pointer_and_tables_sort(pages, tmp_path: Path):
    seen = found_in(pages["step"], USED, "light", tmp_path)
    end = seen["end"]
    assert seen["whole"] == [0, end]
    assert seen["keys"] == pytest.approx([end * 0.425, end * 0.675], rel=1e-6)
    assert seen["wheel"][1] - seen["wheel"][0] < 0.5 * end
    assert seen["scrolled"] == seen["wheel"], "the wheel alone scrolls the page"
    assert re.fullmatch(r"\d+ found, [\d.]+ [mu]s in all; Enter: the next", seen["found"])
    assert seen["next"].startswith("fc, forward (")
    assert seen["colours"] > 10
    assert seen["byName"] == sorted(seen["byName"], key=str.lower)
    times_s = [parse_quantity(text, "time") for text in seen["byTime"]]
    assert times_s == sorted(times_s)


def shown(page: str, width: int, colours: str, tmp_path: Path) -> dict[str, Any]:
    """Return what a browser finds in *page*, having checked that its console stays empty."""
    return found_in(page, AROUND.format(width=width, least=LEAST_PX), colours, tmp_path)


def found_in(page: str, frame: str, colours: str, tmp_path: Path) -> dict[str, Any]:
    """Return what the script of *frame*, a page around *page*, leaves as its title; the console must stay empty."""
    assert BROWSER is not None
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    around = tmp_path / "around.html"
    around.write_text(frame, encoding="utf-8")
    command = [
        *(BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--allow-file-access-from-files", "--enable-logging=stderr", "--window-size=1700,3200"),
        f"--blink-settings=preferredColorScheme={0 if colours == 'dark' else 1}",
        *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000", "--dump-dom", around.as_uri()),
    ]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    assert said == []
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    return found
