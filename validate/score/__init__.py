"""Predicted against published times: ``validate score``."""
