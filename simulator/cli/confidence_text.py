"""What of an answer lies outside what was measured, as text for a reader."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.console.style import Style
from simulator.results.confidence import Confidence

__all__ = ["outside_lines", "outside_words"]


def outside_lines(found: Sequence[Confidence], style: Style) -> list[str]:
    """Return a line for each thing that no measured row covers, none twice; it stands below a title."""
    return outside_words([text for confidence in found for text in confidence.outside], style)


def outside_words(texts: Sequence[str], style: Style) -> list[str]:
    """Return the same of the *texts* themselves."""
    return [line for text in dict.fromkeys(texts) for line in style.wrap(f"outside: {text}", "red", hang=2)]
