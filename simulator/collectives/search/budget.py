"""Search budgets, counted in steps instead of seconds so that equal inputs give equal results everywhere."""

from __future__ import annotations

from collections.abc import Sequence


class Budget:
    """A number of steps.  ``ended`` tells whether they ran out; a search then returns its best result so far."""

    def __init__(self, steps: int, whole: Budget | None = None) -> None:
        self._left = steps
        self._whole = whole
        self.ended = False

    def part(self, steps: int) -> Budget:
        """Return a budget of *steps* for one of several searches that share this budget; it ends when either ends."""
        return Budget(steps, self)

    def spend(self, steps: int = 1) -> bool:
        """Take *steps*; return False if none are left."""
        self._left -= steps
        if self._left < 0 or (self._whole is not None and not self._whole.spend(steps)):
            self.ended = True
        return not self.ended


def say_ended(notes: list[str], whole: Sequence[bool]) -> None:
    """Add a note, once, if any of the searches ended at its budget; *whole* tells for each whether it was complete."""
    said = "the search for rings ended at its budget of steps: these are the best found, others may be faster"
    if not all(whole) and said not in notes:
        notes.append(said)
