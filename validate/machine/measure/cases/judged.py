"""The six steps that judge a calibration, which nothing is fitted to."""

from validate.machine.measure.cases.steps import judged_cases as cases

__all__ = ["cases"]
