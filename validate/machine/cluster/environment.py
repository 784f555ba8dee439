"""The environment of a measurement: machine, kernel and tools."""

from __future__ import annotations

import os
import platform

from validate.machine.cluster.shell import CommandFailed, run
from validate.machine.measure.host import cpu_facts, usable_threads


def environment() -> dict[str, str | int | float]:
    """Return facts about this machine that a reader of the results needs."""
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": cpu_facts().get("model name", ""),
        "cpu_count": usable_threads(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "iproute2": _iproute2(),
    }


def _iproute2() -> str:
    try:
        return run(("ip", "-V")).strip().removeprefix("ip utility, ")
    except CommandFailed:
        return ""
