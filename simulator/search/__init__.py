"""The search for the best layout of a step on a machine, and how a step scales with the number of devices."""
