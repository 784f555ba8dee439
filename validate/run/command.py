"""What ``validate run`` does, from its options to its exit status."""

from __future__ import annotations

import sys
from pathlib import Path

from simulator.errors import InputError, MissingDependency, nearest, one_line
from validate.measure.duration import duration_s, fraction

__all__ = ["TOPOLOGY", "run_command"]

TOPOLOGY = "topology.yaml"
"""The file in a folder of measurements that says what was measured."""


def run_command(
    *,
    out: str,
    topology: str | None,
    only: str | None,
    device: str | None,
    budget: str | None,
    machine: str | None,
    within: str | None,
    quiet: bool,
) -> int:
    """Measure this machine into the folder *out* and return the exit status.

    Raises
    ------
    InputError
        Where an option cannot be used here; before anything is measured.
    MissingDependency
        Where torch is not installed.

    """
    if not out:
        raise InputError("--out needs the name of a folder")
    try:
        budget_s = None if budget is None else duration_s(budget)
    except ValueError as error:
        raise InputError(f"--budget: {one_line(error)}") from None
    try:
        interval = 0.01 if within is None else fraction(within)
    except ValueError as error:
        raise InputError(f"--within: {one_line(error)}") from None
    source = None if topology is None else _topology(topology)
    try:
        from validate.measure.groups import GROUPS
        from validate.measure.run import Settings, run
        from validate.measure.timing import Effort
    except ImportError as error:
        raise MissingDependency(
            f"torch is needed to measure ({one_line(error)}); pip install 'toposim[torch]'"
        ) from None
    groups = tuple(name.strip() for name in (only or "").split(",") if name.strip())
    for name in groups:
        if name not in GROUPS:
            raise InputError(f"--only: no group '{one_line(name, 40)}'; {nearest(name, GROUPS)}")
    name = machine or ("" if source is None else source[0])
    settings = Settings(Path(out), groups, device or "", budget_s, name, Effort(interval=interval))
    try:
        status = run(settings, _nothing if quiet else None)
    except ValueError as error:
        raise InputError(one_line(error, 300)) from None
    except OSError as error:
        raise InputError(f"--out {one_line(out)}: {error.strerror}") from None
    if source is not None:
        (Path(out) / TOPOLOGY).write_text(source[1], encoding="utf-8")
    if not quiet and sys.stderr is not None:
        sys.stderr.write(f"wrote {one_line(out)}; next: validate compare {one_line(out)}\n")
    return status


def _topology(name: str) -> tuple[str, str]:
    """Return the name and the text of the topology *name*, which must be a good one."""
    from simulator.topology.catalogue import find_topology
    from simulator.topology.load import load_topology

    found = load_topology(name)
    path, _ = find_topology(name)
    return found.name, path.read_text(encoding="utf-8")


def _nothing(text: str) -> None:
    del text
