"""The disk that the system lists first, as the built-in part that such disks usually are like."""

from __future__ import annotations

from pathlib import Path

__all__ = ["disk_part"]


def disk_part(root: Path = Path("/")) -> tuple[str, str] | None:
    """Return the part and the link part of the first disk of the system under *root*, None where there is none.

    Memory, loops and optical drives are none, nor is what has no size.
    """
    for folder in sorted((root / "sys/block").glob("*")):
        name = folder.name
        if not name.startswith(("nvme", "sd", "vd", "xvd", "mmcblk", "hd")) or _number(folder / "size") == 0:
            continue
        if name.startswith("nvme"):
            return "nvme-gen3", "pcie3-x4"
        if name.startswith(("vd", "xvd")):
            return "nvme-gen3", "pcie3-x4"  # a volume that a host lends, nowadays of flash
        return ("hdd-7200" if _number(folder / "queue/rotational") else "sata-ssd"), "sata-600"
    return None


def _number(file: Path) -> int:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.isdigit() else 0
