"""What stands below the title of an answer: what was changed, and what no measurement covers."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.console.style import Style
from simulator.results.changed import Changed
from simulator.results.confidence import Confidence


def changed_lines(changed: Changed | None, style: Style, of: str = "") -> list[str]:
    """Return what was changed, and the time without; *of* names what takes it where several answers stand below."""
    return style.wrap(changed.said(of), hang=2) if changed is not None else []


def outside_lines(found: Sequence[Confidence], style: Style) -> list[str]:
    """Return a line for each aspect outside all measured rows, without repetitions; they go below a title."""
    return outside_words([text for confidence in found for text in confidence.outside], style)


def outside_words(texts: Sequence[str], style: Style) -> list[str]:
    """Return the same lines for *texts*."""
    return [line for text in dict.fromkeys(texts) for line in style.wrap(f"outside: {text}", "red", hang=2)]
