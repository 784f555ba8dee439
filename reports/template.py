"""Pages and drawings from the templates in ``html``: :func:`rendered`, and figures within them: :func:`inline_svg`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simulator.results import html_text


def rendered(template: str, /, **values: Any) -> str:
    """Return *template* with *values*, all text of which is escaped; equal values give equal text."""
    return _environment().get_template(template).render(values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("reports", "html"),
        autoescape=True,
        finalize=_escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )


def _escaped(value: object) -> object:
    """Return *value* for HTML, its characters that would be obeyed or hidden escaped."""
    return value if hasattr(value, "__html__") else Markup(html_text(str(value)))


def inline_svg(svg: bytes, name: str = "", label: str = "", larger: float = 1.0) -> Markup:
    """Return *svg* without what stands before its root, *larger* times as large on a screen.

    A *name* makes its identifiers unique on a page of several figures, which its caption, the *label*, describes.
    """
    root, end, rest = svg.decode().partition("<svg ")[2].partition(">")

    def scaled(match: re.Match[str]) -> str:
        return f' {match[1]}="{float(match[2]) * larger:.0f}pt"'

    if larger != 1.0:
        root = re.sub(r' (width|height)="([\d.]+)pt"', scaled, f" {root}").strip()
    text = f"<svg {root}{end}{rest}"
    if name:
        text = re.sub(r"<(metadata|title|desc)>.*?</\1>", "", text, flags=re.DOTALL)
        text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", text)
        text = text.replace('role="img" ', "", 1).replace(
            "<svg ", f'<svg role="img" aria-label="{html_text(label)}" ', 1
        )
    return Markup(text.rstrip() if name else text)
