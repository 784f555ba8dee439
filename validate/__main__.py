"""``python -m validate``."""

import sys

try:
    from validate.cli import main
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] == "validate":
        raise
    sys.stderr.write(
        f"validate: {missing.name} is needed; pip install -e . in the clone."
        " Where torch is all there is: python3 -m validate.measure --out measured\n"
    )
    sys.exit(4)

if __name__ == "__main__":
    main()
