"""Memory available to this process, by the system and its control group."""

from __future__ import annotations

from pathlib import Path

_GROUPS = (  # limit and usage files of a control group, versions 2 and 1
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
_UNKNOWN = 4 << 30


def host_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of available memory; 4 GiB where the system does not report it."""
    found = [_available(root / "proc/meminfo")]
    for limit, used in _GROUPS:
        folder = root / "sys/fs/cgroup"
        most, taken = _number(folder / limit), _number(folder / used)
        if most is not None and taken is not None:
            found.append(max(0, most - taken))
    known = [number for number in found if number is not None]
    return min(known) if known else _UNKNOWN


def _available(path: Path) -> int | None:
    for line in _text(path).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # "max" means no limit


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
