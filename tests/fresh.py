"""Draw new hypothesis examples for some minutes, file by file: ``python -m tests.fresh --minutes 10``.

CI draws the same examples in every run, and few of them.  This takes other ones each time, prints each failure with
the example and with the command that asks again, and ends with status 1 where a test failed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SEEDS = 2**31
_PASSED, _NO_TESTS = 0, 5  # pytest's statuses that are no failure


def files() -> list[Path]:
    """Return the files of tests that draw examples."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in tests if "from hypothesis import" in path.read_text(encoding="utf-8")]


def command_of(file: Path, seed: int) -> list[str]:
    """Return the command that draws the examples of *seed* for the tests of *file*."""
    options = ["-q", "--no-header", "-n", "0", "-p", "no:cacheprovider"]
    options += ["-m", "hypothesis", f"--hypothesis-seed={seed}"]
    return [sys.executable, "-m", "pytest", *options, str(file.relative_to(ROOT))]


def draw(file: Path, seed: int, longest_s: float) -> str:
    """Return what pytest prints unless the tests pass with the examples of *seed*; nothing if they do.

    Raises ``subprocess.TimeoutExpired`` after *longest_s*.
    """
    done = subprocess.run(
        command_of(file, seed),
        cwd=ROOT,
        env={**os.environ, "HYPOTHESIS_PROFILE": "fresh"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=longest_s,
        check=False,
    )
    if done.returncode in (_PASSED, _NO_TESTS):
        return ""
    return f"{done.stdout}\npytest ended with status {done.returncode}"


def main(arguments: list[str] | None = None) -> int:
    """Draw until the time is over; return 1 where a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fresh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first file; by default another one each time")
    parser.add_argument("files", nargs="*", type=Path, help="by default all that draw examples")
    given = parser.parse_args(arguments)
    ends_s = time.monotonic() + 60 * given.minutes
    chance = random.Random()
    seed = chance.randrange(_SEEDS) if given.seed is None else given.seed
    drawn, failed, left = 0, 0, list[Path]()
    while (rest_s := ends_s - time.monotonic()) > 0:
        if not left:
            left = [path.resolve() for path in given.files] or files()
            chance.shuffle(left)
        file = left.pop()
        try:
            said = draw(file, seed, rest_s)
        except subprocess.TimeoutExpired:
            print(f"the time was over in {file.name}")  # noqa: T201
            break
        if said:
            failed += 1
            again = " ".join(command_of(file, seed)[1:])
            print(f"{said}\nagain: HYPOTHESIS_PROFILE=fresh python {again}\n", flush=True)  # noqa: T201
        drawn, seed = drawn + 1, (seed + 1) % _SEEDS
    print(f"new examples for {drawn} files, {failed} with a failure")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
