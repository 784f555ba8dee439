"""The aspects of an answer that no measurement covers, as text."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.console.style import Style
from simulator.results.confidence import Confidence

__all__ = ["outside_lines", "outside_words"]


def outside_lines(found: Sequence[Confidence], style: Style) -> list[str]:
    """Return a line for each aspect outside all measured rows, without repetitions; they go below a title."""
    return outside_words([text for confidence in found for text in confidence.outside], style)


def outside_words(texts: Sequence[str], style: Style) -> list[str]:
    """Return the same lines for *texts*."""
    return [line for text in dict.fromkeys(texts) for line in style.wrap(f"outside: {text}", "red", hang=2)]
