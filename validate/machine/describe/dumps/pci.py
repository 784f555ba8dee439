"""What PCI IDs and names identify: GPU and adapter parts, device classes, link speeds.

IDs and names are those of the PCI ID database (pci-ids.ucw.cz), which ``lspci`` prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import NicPart
from validate.machine.describe.graphics import Adapter, Card, driver_part

_MELLANOX = {"1013": 12.5e9, "1017": 12.5e9, "1019": 12.5e9, "101b": 25e9, "1021": 50e9}  # ConnectX-4, 5, 5 Ex, 6, 7
_SPEED = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*GT/s", re.ASCII)
_GIGATRANSFERS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_BRACKETS = re.compile(r"\[([^\[\]]{1,60})\]")


@lru_cache(maxsize=1)
def _by_number() -> dict[str, str]:
    """Return the built-in parts by their PCI IDs."""
    parts = [(name, load_part(name)) for kind in ("gpu", "nic") for name in part_names(kind)]
    return {number: name for name, part in parts if part is not None for number in part.pci_ids}


def pci_kind(class_code: str) -> Literal["gpu", "nic", "bridge", "nvswitch", ""]:
    """Return the kind of device with a PCI class such as ``0x030200`` or ``0302``; empty for irrelevant kinds."""
    digits = class_code.lower().removeprefix("0x")
    if digits.startswith("0604"):
        return "bridge"
    if digits.startswith("0680"):
        return "nvswitch"
    if digits.startswith(("03", "1200")):
        return "gpu"
    return "nic" if digits.startswith("02") else ""


def gpu_model(vendor: str, device: str) -> str:
    """Return the GPU part with these PCI IDs; the IDs themselves where no built-in part has them."""
    number = f"{_plain(vendor)}:{_plain(device)}"
    return _by_number().get(number, number if number != ":" else "")


def model_in(text: str) -> str:
    """Return the GPU part named in ``lspci`` text (``GA100 [A100 SXM4 40GB]``); empty where none is built in."""
    names = [*_BRACKETS.findall(text), text.rpartition("Corporation")[2].strip(), text.strip()]
    for name in names:
        found = driver_part(Card(name.replace("/", " "))) or driver_part(Card(f"tesla {name}"))
        if found:
            return found
        if name.lower() in _by_number():
            return _by_number()[name.lower()]
    return ""


def adapter_of(name: str, class_code: str = "", vendor: str = "", device: str = "", rate_Bps: float = 0.0) -> Adapter:
    """Return an adapter identified by its PCI class and IDs; *rate_Bps* is 0 where the system gives no rate."""
    known = _by_number().get(f"{_plain(vendor)}:{_plain(device)}", "")
    part = load_part(known)
    if isinstance(part, NicPart):
        return Adapter(name, part.network, rate_Bps, known)
    code = class_code.lower().removeprefix("0x")
    network = "infiniband" if code.startswith("0207") else "ethernet" if code.startswith("0200") else ""
    if _plain(vendor) == "15b3":
        rate_Bps = rate_Bps or _MELLANOX.get(_plain(device), 0.0)
    return Adapter(name, network, rate_Bps)


def speed_of(text: str) -> int:
    """Return the PCIe generation of a link speed such as ``16.0 GT/s PCIe``; 0 where *text* gives none."""
    found = _SPEED.match(text)
    return _GIGATRANSFERS.get(float(found[1]), 0) if found else 0


def port_near(rate_GBps: float, lane_GBps: Mapping[int, float], near: float) -> tuple[int, int]:
    """Return PCIe generation and lanes of a port of this rate, to within the part *near* of it; zeros for none.

    *lane_GBps* is the rate of a lane by generation.  Of equal ports, the widest is taken: GPUs and adapters mostly have
    16 lanes.
    """
    ports = [(generation, lanes, lanes * each) for lanes in (16, 8, 4) for generation, each in lane_GBps.items()]
    return next((port for *port, full in ports if abs(rate_GBps / full - 1.0) < near), (0, 0))  # type: ignore[return-value]


def _plain(number: str) -> str:
    return number.lower().removeprefix("0x")
