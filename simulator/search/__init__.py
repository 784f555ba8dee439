"""Which layout of a step is best on a machine, and how a step scales with it."""
