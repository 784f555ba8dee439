"""The console script ``simulate``, and ``python -m simulator``."""

import os
import sys


def main() -> None:
    """Run ``simulate``; what interrupts it before its command runs, while modules are imported, is said in a line."""
    try:
        from simulator.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("simulate: interrupted\n")
        os._exit(130)  # after sys.exit, Python may still end by the signal


if __name__ == "__main__":
    main()
