"""How much a search may do: steps, not seconds, so that the same input has the same answer everywhere."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Budget", "say_ended"]


class Budget:
    """A number of steps.  ``ended`` says whether they did not do; a search then gives the best that it has."""

    def __init__(self, steps: int, whole: Budget | None = None) -> None:
        self._left = steps
        self._whole = whole
        self.ended = False

    def part(self, steps: int) -> Budget:
        """Return a budget of *steps*, for one of several searches that share this one; ends when either ends."""
        return Budget(steps, self)

    def spend(self, steps: int = 1) -> bool:
        """Take *steps*; False where there are none left."""
        self._left -= steps
        if self._left < 0 or (self._whole is not None and not self._whole.spend(steps)):
            self.ended = True
        return not self.ended


def say_ended(notes: list[str], whole: Sequence[bool]) -> None:
    """Add to *notes*, once, that the best so far was taken, where not all of *whole* searches came to their end."""
    said = "the search for rings ended at its budget of steps: these are the best found, others may be faster"
    if not all(whole) and said not in notes:
        notes.append(said)
