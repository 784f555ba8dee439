"""Measurements: a file with ``cases(bench, machine)`` for each group, and their building blocks."""
