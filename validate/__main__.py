"""The console script ``validate``, and ``python -m validate``."""

import os
import sys


def main() -> None:
    """Run ``validate``; a missing library, and what interrupts before its command runs, are said in a line."""
    try:
        from validate.cli import main as run

        run()
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "validate":
            raise
        sys.stderr.write(
            f"validate: {missing.name} is needed; pip install -e . in the clone."
            " Where torch is all there is: python3 -m validate.measure --out measured\n"
        )
        sys.exit(4)
    except KeyboardInterrupt:
        sys.stderr.write("validate: interrupted\n")
        os._exit(130)  # after sys.exit, Python may still end by the signal


if __name__ == "__main__":
    main()
