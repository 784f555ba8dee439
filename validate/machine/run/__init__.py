"""``validate run``: :mod:`validate.machine.measure` guided by the machine's topology."""
