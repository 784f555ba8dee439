"""The documentation site builds in strict mode, so that broken links fail, and lists every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import simulator

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")
pytest.importorskip("furo")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-c",
        "docs/site",
        "-d",
        str(target / "trees"),
    ]
    done = subprocess.run([*command, ".", str(target / "html")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    return target / "html"


def test_every_page_is_in_it_and_links_lead_somewhere(site: Path):
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "site" not in path.parts]
    assert [path for path in pages if not (site / path.relative_to(ROOT)).with_suffix(".html").exists()] == []
    missing = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#]+?)(?:#[^"]*)?"', page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:|//", link) and not (page.parent / link.split("?")[0]).exists():
                missing.append((page.name, link))
    assert missing == []


def test_the_names_of_python_are_explained(site: Path):
    page = (site / "docs" / "site" / "api.html").read_text(encoding="utf-8")
    for name in simulator.__all__:
        found = getattr(simulator, name)
        assert f'id="{found.__module__}.{found.__qualname__}"' in page
    assert "The exchange strategy; NCCL by default." in page
