"""``validate run``: :mod:`validate.machine.measure` with the machine's topology."""
