"""The system's first disk, as the usual built-in part for its kind."""

from __future__ import annotations

from pathlib import Path

from validate.machine.measure.host import text_of

_OVER_A_NETWORK = ("elastic block store", "persistentdisk", "virtual disk")  # as Amazon, Google and Microsoft call them


def disk_part(root: Path = Path("/")) -> tuple[str, str] | None:
    """Return the names of the part and the link part of the first disk under *root*; None where there is none.

    RAM disks, loop devices, optical drives and devices without a size do not count.
    """
    for folder in sorted((root / "sys/block").glob("*")):
        name = folder.name
        if not name.startswith(("nvme", "sd", "vd", "xvd", "mmcblk", "hd")) or _number(folder / "size") == 0:
            continue
        model = text_of(folder / "device/model").lower()
        if any(words in model for words in _OVER_A_NETWORK):
            return "ebs-gp2", "pcie3-x4"
        if name.startswith("nvme"):
            return "nvme-gen3", "pcie3-x4"
        if name.startswith(("vd", "xvd")):
            return "virtio-disk", "pcie3-x4"  # a virtual disk, nowadays usually backed by flash
        return ("hdd-7200" if _number(folder / "queue/rotational") else "sata-ssd"), "sata-600"
    return None


def _number(file: Path) -> int:
    text = text_of(file)
    return int(text) if text.isascii() and text.isdigit() else 0
