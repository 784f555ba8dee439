"""``python -m validate.measure``: measure a machine on which only torch is installed."""

import sys

from validate.machine.measure.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
