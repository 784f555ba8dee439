"""Configuration of the documentation site: ``sphinx-build -W -c docs/site . site``.

The pages are the repository's own, unchanged, so they read the same in both places.  Broken links are errors.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from simulator import __version__

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from docs.make_modules import tables

project = "Topocast"
copyright = "the authors of Topocast"  # noqa: A001  as Sphinx calls it
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "docs/site/index"
include_patterns = [
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"),
    *("tests/mutation/survivors.md", "validate/measurements/*/README.md"),
]
exclude_patterns = ["docs/site/conf.py"]

myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]  # headings may skip a level or start below level 1
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = False

html_theme = "furo"
html_title = f"Topocast {__version__}"
html_show_sourcelink = False


def _with_modules(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the tables of all modules to their page."""
    if page == "docs/modules":
        source[0] += f"\n{tables()}"


def setup(app: Sphinx) -> None:
    """Show CSV blocks as plain text, because Pygments has no lexer for them, and all modules on their page."""
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", _with_modules)
