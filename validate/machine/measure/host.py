"""What the system and the driver report of the host: processor, caches, usable threads and memory; without torch."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

_UNKNOWN_BYTES = 4 << 30
_CACHE_BYTES = 64 << 20  # size of a CPU's caches where the system does not report it
_SCALES = {"K": 1 << 10, "M": 1 << 20}
DRIVER: Mapping[str, Any] = json.loads(Path(__file__).with_name("driver.json").read_text(encoding="utf-8"))
"""What drivers and libraries call things: NVML's bits of what ``throttles`` a clock (nvmlClocksEventReasons) and its
functions for ``limits``; errors after which a device is ``lost`` to the process (CUDA Runtime API, cudaError_t); how
variables of ``libraries`` begin, and what ``private`` ones hold; files of limit and usage of ``control groups`` of the
system, versions 2 and 1.
"""
_AVAILABLE = re.compile(r"^MemAvailable:\s*(\d+)", re.MULTILINE | re.ASCII)
_WAIT_S = 30


def slug(name: str) -> str:
    """Return *name*, as a driver or the system reports it, in lower case with single hyphens, as tables have it."""
    plain = name.lower().replace("(r)", "").replace("(tm)", "")
    return "-".join("".join(c if c.isalnum() else " " for c in plain).split())


def usable_threads() -> int:
    """Return how many threads this process may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_facts(root: Path = Path("/")) -> list[dict[str, str]]:
    """Return each processor's lines of ``/proc/cpuinfo`` by key; of one without lines where there is no such file."""
    blocks = text_of(root / "proc/cpuinfo").split("\n\n")
    lines = ([line.partition(":") for line in block.splitlines()] for block in blocks)
    return [{key.strip(): value.strip() for key, _, value in of_one} for of_one in lines]


def caches() -> list[dict[str, Any]]:
    """Return the first processor's data caches: level, size as the system writes it, and the processors sharing it."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size, shared = (text_of(folder / name) for name in ("level", "type", "size", "shared_cpu_list"))
        if level.isdecimal() and kind != "Instruction":
            found.append({"level": int(level), "size": size, "shared_by": shared})
    return found


def largest_cache_bytes() -> int:
    """Return the size of the largest cache; 64 MiB where the system does not report it."""
    sizes = [re.fullmatch(r"(\d+)([KM])", cache["size"], re.ASCII) for cache in caches()]
    return max((int(size[1]) * _SCALES[size[2]] for size in sizes if size), default=0) or _CACHE_BYTES


def host_bytes(root: Path = Path("/")) -> int:
    """Return bytes available to this process, by the system and its control group; 4 GiB where it does not report."""
    known = [int(found[1]) * 1024] if (found := _AVAILABLE.search(text_of(root / "proc/meminfo"))) else []
    for limit, used in DRIVER["control groups"]:
        most, taken = (text_of(root / "sys/fs/cgroup" / name) for name in (limit, used))
        if most.isdecimal() and taken.isdecimal():  # "max" means no limit
            known.append(max(0, int(most) - int(taken)))
    return min(known, default=_UNKNOWN_BYTES)


def text_of(path: Path) -> str:
    """Return the text of the file *path*, stripped; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@contextmanager
def signals_handled(names: Sequence[str], handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Have *handler* take those of the signals *names* that are here, then restore them; in the main thread alone."""
    before: dict[int, Any] = {}
    try:
        with suppress(ValueError):  # not in the main thread
            for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def removed_on_signals(names: Sequence[str] = ("SIGINT", "SIGTERM", "SIGHUP")) -> AbstractContextManager[None]:
    """Raise KeyboardInterrupt on the first of the signals *names* and ignore later ones, so cleanup completes."""

    def stop(*_: object) -> None:
        for name in names:
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        raise KeyboardInterrupt

    return signals_handled(names, stop)


def nvidia_smi(*arguments: str) -> str:
    """Return what ``nvidia-smi`` prints for *arguments*; empty without a driver and where it fails."""
    how: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(["nvidia-smi", *arguments], timeout=_WAIT_S, check=False, **how)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).strip() if done.returncode == 0 else ""  # headers are underlined
