"""``validate run``: :mod:`validate.measure` with the topology of the machine beside what was measured."""
