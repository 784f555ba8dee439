"""``validate run``: :mod:`validate.machine.measure` with the topology of the machine beside what was measured."""
