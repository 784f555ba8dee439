"""``python -m validate.measure``: measure this machine where torch is all there is."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["duration_s", "main"]

_UNITS = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}


def duration_s(text: str) -> float:
    """Return the seconds that *text* says: ``120``, ``120s``, ``2min``; raises ValueError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise ValueError(f"a time such as 120s or 2min is needed; got '{text[:60]}'")
    return float(found[1]) * _UNITS[found[2]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m validate.measure", description="Measure this machine; as validate run, with torch alone."
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where the tables go")
    parser.add_argument("--only", default="", metavar="GROUP,...", help="groups to measure; all if not said")
    parser.add_argument("--device", default="", metavar="NAME", help="cuda:0 or cpu; the first GPU if not said")
    parser.add_argument("--budget", default="", metavar="TIME", help="begin no case after this time, such as 120s")
    parser.add_argument("--machine", default="", metavar="NAME", help="the name of the machine in the tables")
    given = parser.parse_args(arguments)
    try:
        budget_s = duration_s(given.budget) if given.budget else None
    except ValueError as error:
        parser.error(f"--budget: {error}")
    try:
        from validate.measure.run import Settings, run
    except ImportError as error:
        sys.stderr.write(f"torch is needed: {error}\n")
        return 4
    groups = tuple(name.strip() for name in given.only.split(",") if name.strip())
    try:
        return run(Settings(Path(given.out), groups, given.device, budget_s, given.machine))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ValueError) else 1


if __name__ == "__main__":
    sys.exit(main())
