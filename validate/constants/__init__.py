"""Fitting constants to measurements: one device's (``validate calibrate``) and the shared ones (``validate fit``)."""
