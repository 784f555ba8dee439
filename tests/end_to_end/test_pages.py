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

from reports.compare import comparison_page
from reports.sizes import draw_check
from simulator.api import Session
from tests.measured_folders import bandwidths, constant, operators, scattered, steps, timed, write
from tests.nccl_logs import as_log
from validate.check.check import check_log
from validate.check.report import as_document, headline
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.document import comparison_document
from validate.compare.folder import read_folder
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
    document = comparison_document(compared(folder, ComparisonOptions(topology="dgx-h200"), folder))
    return {"comparison": comparison_page(document)}


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("name", ["comparison"])
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


def shown(page: str, width: int, colours: str, tmp_path: Path) -> dict[str, Any]:
    """Return what a browser finds in *page*, having checked that its console stays empty."""
    assert BROWSER is not None
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    around = tmp_path / "around.html"
    around.write_text(AROUND.format(width=width, least=LEAST_PX), encoding="utf-8")
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
