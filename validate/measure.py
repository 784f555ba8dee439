"""``python -m validate.measure``: measure this machine where torch is all there is."""

import sys

from validate.machine.measure.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
