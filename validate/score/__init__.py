"""Scores of predictions against published times: ``validate score``."""
