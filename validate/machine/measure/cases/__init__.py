"""The measurements: for each group a file with ``cases(bench, machine)``, and shared building blocks."""
