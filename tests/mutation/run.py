"""Break modules in one place at a time, and see whether their tests fail: ``python -m tests.mutation.run units``.

Without a name all modules are broken, in all places; ``--sample 40`` takes so many of each, evenly over its lines, the
same each time.  What survives is listed with its line.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.mutation.mutants import mutants

_ROOT = Path(__file__).resolve().parents[2]
_COLLECTIVES = "simulator/collectives"
_RINGS = ("tests/unit/test_ring_search.py", "tests/property/test_ring_search.py", "tests/unit/test_silent_answers.py")
_ENGINE = (
    *("tests/unit/test_activities.py", "tests/unit/test_kernel_and_events.py", "tests/property/test_engine.py"),
    *("tests/unit/test_circumstances.py", "tests/unit/test_strategies.py", "tests/unit/test_schedules.py"),
)
# By what is asked for: the module, and the tests that are to notice.
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "units": ("simulator/units.py", ("tests/unit/test_units.py", "tests/property/test_units.py")),
    "fairshare": ("simulator/network/fairshare.py", ("tests/property/test_fairshare.py",)),
    "routing": (
        "simulator/network/routing.py",
        (
            *("tests/unit/test_routing.py", "tests/unit/test_silent_answers.py", "tests/unit/test_cluster.py"),
            *("tests/unit/test_equal_nodes.py", "tests/unit/test_unlike_nodes.py"),
        ),
    ),
    "rings": (f"{_COLLECTIVES}/search/rings.py", (*_RINGS, "tests/unit/test_hostile_inputs.py")),
    "packing": (f"{_COLLECTIVES}/search/packing.py", _RINGS),
    "nccl-cost": (f"{_COLLECTIVES}/nccl/cost.py", ("tests/unit/test_nccl_kernels.py",)),
    "nccl-search": (f"{_COLLECTIVES}/nccl/search.py", ("tests/unit/test_nccl_graph.py",)),
    "flows": ("simulator/engine/flows.py", _ENGINE),
    "rounds": ("simulator/engine/rounds.py", _ENGINE),
    "executor": ("simulator/engine/executor.py", _ENGINE),
    "kernel": ("simulator/engine/kernel.py", _ENGINE),
}


def _fails(path: str, index: int, tests: tuple[str, ...]) -> bool:
    """Whether a test notices the change number *index*; one that never ends is noticed too."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider"]
    command += ["-p", "tests.mutation.plugin", *tests]
    environment = {**os.environ, "MUTANT": f"{_ROOT / path}:{index}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    """Run what the command line asks for; 1 where fewer than 90 % of the changes are noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run", description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(MODULES)}; all if none is named")
    parser.add_argument("--sample", type=int, help="so many changes of each module")
    given = parser.parse_args()
    noticed = made = 0
    for name in given.modules or MODULES:
        path, tests = MODULES[name]
        every = mutants((_ROOT / path).read_text(encoding="utf-8"))
        n = min(given.sample or len(every), len(every))
        chosen = [every[i * len(every) // n] for i in range(n)]
        left = [mutant for mutant in chosen if not _fails(path, mutant.index, tests)]
        noticed, made = noticed + n - len(left), made + n
        print(f"{name}: {n - len(left)} of {n} noticed (of {len(every)} changes)", flush=True)  # noqa: T201  its purpose
        for mutant in left:
            print(f"  {path}:{mutant.line}: {mutant.what}", flush=True)  # noqa: T201  likewise
    print(f"all: {noticed} of {made} noticed, {100 * noticed / max(made, 1):.0f} %")  # noqa: T201  likewise
    return int(noticed < 0.9 * made)


if __name__ == "__main__":
    sys.exit(main())
