"""Uncertainty of answers: bands from the errors of measured rows on left-out devices and machines.

``bands.json`` in this folder has the quantiles of log(measured / predicted) for each class; ``validate bands --write``
makes it from tables of measurements.  Predictions do not read it.  See docs/decisions/bands.md.
"""
