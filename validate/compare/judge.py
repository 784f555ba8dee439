"""What a calibration is worth: fitted on one part of a folder, judged on what it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

from validate.compare.classes import ClassErrors

__all__ = ["Judged"]


@dataclass(frozen=True, slots=True)
class Judged:
    """Errors before and after a calibration of rows that it was not fitted to.

    ``fitted`` says what it was fitted to, ``judged`` what these rows are; ``points`` how many it was fitted to.
    """

    fitted: str
    judged: str
    points: int
    before: ClassErrors
    after: ClassErrors
