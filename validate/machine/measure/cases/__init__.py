"""The measurements: for each group a file with ``cases(bench)``, and shared building blocks."""
