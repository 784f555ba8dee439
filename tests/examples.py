"""How many examples of hypothesis a test draws: :func:`few` in CI, where they are the same in every run."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")


def few(most: int) -> int:
    """Return a third of *most*: it catches what breaks; ``python -m tests.fresh`` looks for more, and draws all."""
    return max(6, most // 3) if PROFILE == "ci" else most
