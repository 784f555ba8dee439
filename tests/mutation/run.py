"""Break modules in one place at a time, and check that their tests fail: ``python -m tests.mutation.run units``.

Without names, all modules are broken in all places.  ``--sample 40`` takes 40 changes of each, spread evenly over its
lines and the same each time.  A change is tried on the tests that run its lines, fastest first, until one fails or
``--seconds`` have passed.  Surviving changes are listed with their lines; those known to change nothing, or nothing
that a test should check, are listed with reasons in ``survivors.md``, beside the scores.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.mutation.mutants import mutants
from tests.mutation.workers import Ran, prepare, ran, survives

_ROOT = Path(__file__).resolve().parents[2]
_COLLECTIVES = "simulator/collectives"
_ENGINE = (*("unit/test_engine", "unit/test_activities", "unit/test_kernel_and_events", "unit/test_circumstances"),)
# By name: the module, and the tests that should notice changes.
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "units": ("simulator/units.py", ("unit/test_units", "property/test_units")),
    "fairshare": ("simulator/network/fairshare.py", ("unit/test_fairshare", "property/test_fairshare")),
    "routing": (
        "simulator/network/routing.py",
        (
            *("unit/test_routing", "unit/test_silent_answers", "unit/test_cluster"),
            *("unit/test_equal_nodes", "unit/test_unlike_nodes"),
        ),
    ),
    "rings": (f"{_COLLECTIVES}/search/rings.py", ("unit/test_ring_search", "property/test_ring_search")),
    "packing": (f"{_COLLECTIVES}/search/packing.py", ("unit/test_packing", "property/test_ring_search")),
    "nccl-cost": (f"{_COLLECTIVES}/nccl/cost.py", ("unit/test_nccl_kernels",)),
    "nccl-search": (f"{_COLLECTIVES}/nccl/search.py", ("unit/test_nccl_search", "unit/test_nccl_graph")),
    "flows": ("simulator/engine/flows.py", _ENGINE),
    "rounds": ("simulator/engine/rounds.py", _ENGINE),
    "executor": ("simulator/engine/executor.py", _ENGINE),
    "kernel": ("simulator/engine/kernel.py", _ENGINE),
}


def _parts(lines: str) -> list[tuple[str, str, str]]:
    return [text.partition("-") for text in lines.split(",")]


def main() -> int:
    """Run the command line; return 1 where tests notice fewer than 90 % of the changes."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run", description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(MODULES)}; all if none is named")
    parser.add_argument("--sample", type=int, help="so many changes of each module")
    parser.add_argument("--from", type=int, default=0, dest="first", help="begin the sample so many changes later")
    parser.add_argument("--lines", help="changes of these lines alone, such as 40-60,75")
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests for each change")
    given = parser.parse_args()
    noticed = made = 0
    names: list[str] = given.modules or list(MODULES)
    sources = {name: (_ROOT / MODULES[name][0]).read_text(encoding="utf-8") for name in names}
    known: dict[tuple[str, ...], Ran] = {}
    for name in names:
        path = _ROOT / MODULES[name][0]
        files = tuple(f"tests/{test}.py" for test in MODULES[name][1])
        every = mutants(sources[name])
        if given.lines:
            ranges = [(int(first), int(last or first)) for first, _, last in _parts(given.lines)]
            every = [m for m in every if any(first <= m.line <= last for first, last in ranges)]
        n = min(given.sample or len(every), len(every))
        chosen = [every[(given.first + i * len(every) // n) % len(every)] for i in range(n)]
        if files not in known:
            prepare(files)
            known[files] = ran([_ROOT / MODULES[other][0] for other in names], files)
        tests = known[files]
        n_left = 0
        for mutant in chosen:
            if survives(path, sources[name], mutant, tests, given.seconds):
                n_left += 1
                print(f"  {path.relative_to(_ROOT)}:{mutant.line}: {mutant.what}", flush=True)  # noqa: T201  output
        noticed, made = noticed + n - n_left, made + n
        print(f"{name}: {n - n_left} of {n} noticed (of {len(every)} changes)", flush=True)  # noqa: T201  likewise
    print(f"all: {noticed} of {made} noticed, {100 * noticed / max(made, 1):.0f} %")  # noqa: T201  likewise
    return int(noticed < 0.9 * made)


if __name__ == "__main__":
    sys.exit(main())
