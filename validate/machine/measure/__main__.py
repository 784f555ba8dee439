"""``python -m validate.measure``: measure this machine where torch is all there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from validate.machine.measure.duration import duration_s, fraction

__all__ = ["main"]


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
    parser.add_argument("--within", default="1%", metavar="PART", help="how well medians are to be known; 1%%")
    given = parser.parse_args(arguments)
    try:
        budget_s = duration_s(given.budget) if given.budget else None
    except ValueError as error:
        parser.error(f"--budget: {error}")
    try:
        interval = fraction(given.within)
    except ValueError as error:
        parser.error(f"--within: {error}")
    if sys.version_info < (3, 11):  # noqa: UP036  where it is copied to, nothing has checked it
        sys.stderr.write(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}\n")
        return 2
    try:
        from validate.machine.measure.run import Settings, run
        from validate.machine.measure.timing import Effort
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        sys.stderr.write(f"torch is needed: {error}\n")
        return 4
    status = 2
    groups = tuple(name.strip() for name in given.only.split(",") if name.strip())
    try:
        settings = Settings(Path(given.out), groups, given.device, budget_s, given.machine, Effort(interval=interval))
        status = run(settings)
        sys.stderr.write(f"wrote {given.out}; elsewhere: validate compare {given.out} --topology FILE\n")
    except (ValueError, OSError) as error:
        sys.stderr.write(f"--out {given.out}: {error.strerror}\n" if isinstance(error, OSError) else f"{error}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
