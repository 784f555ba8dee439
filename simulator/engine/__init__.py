"""The engine: executes a plan on a machine, and records when each activity happens."""
