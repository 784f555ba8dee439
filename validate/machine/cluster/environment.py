"""The environment of a measurement: machine, kernel and tools."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from validate.machine.cluster.shell import CommandFailed, run


def environment() -> dict[str, str | int | float]:
    """Return facts about this machine that a reader of the results needs."""
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": _cpu(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "iproute2": _iproute2(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _iproute2() -> str:
    try:
        return run(("ip", "-V")).strip().removeprefix("ip utility, ")
    except CommandFailed:
        return ""
