"""Errors of predictions by class, for the bands of answers: ``validate bands``."""
