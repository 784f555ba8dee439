"""``python -m simulator.cli``."""

from simulator.cli import main

main()
