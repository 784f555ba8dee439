"""What is measured: a file with ``cases(bench, machine)`` for each group, and what they are made of."""
