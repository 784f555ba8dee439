"""Measure collectives on an emulated network on one Linux machine and compare them with the simulator."""
