"""When it happens: executes a plan on a machine."""
