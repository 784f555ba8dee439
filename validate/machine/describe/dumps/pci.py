"""What PCI IDs and names identify: GPU and adapter parts, device classes, link speeds.

IDs and names are those of the PCI ID database (pci-ids.ucw.cz), which ``lspci`` prints.
"""

from __future__ import annotations

import re
from typing import Literal

from validate.machine.describe.adapters import Adapter
from validate.machine.describe.graphics import Card, driver_part

_GPUS = {
    "10de:102d": "k80-die",
    "10de:15f8": "p100-pcie-16gb",
    "10de:15f9": "p100-sxm2-16gb",
    "10de:1bb3": "p4",
    "10de:1b06": "gtx-1080-ti",
    "10de:1b80": "gtx-1080",
    "10de:1db1": "v100-sxm2-16gb",
    "10de:1db4": "v100-pcie-16gb",
    "10de:1db5": "v100-sxm2-32gb",
    "10de:1db6": "v100-pcie-32gb",
    "10de:1db8": "v100-sxm3-32gb",
    "10de:1eb8": "t4",
    "10de:20b0": "a100-sxm4-40gb",
    "10de:20b2": "a100-sxm4-80gb",
    "10de:20b5": "a100-pcie-80gb",
    "10de:20b7": "a30",
    "10de:20f1": "a100-pcie-40gb",
    "10de:2204": "rtx-3090",
    "10de:2230": "rtx-a6000",
    "10de:2235": "a40",
    "10de:2236": "a10",
    "10de:2324": "h800-sxm5",
    "10de:2330": "h100-sxm5-80gb",
    "10de:2331": "h100-pcie",
    "10de:2335": "h200-sxm",
    "10de:233b": "h200-nvl",
    "10de:2684": "rtx-4090",
    "10de:26b5": "l40",
    "10de:26b9": "l40s",
    "10de:27b8": "l4",
    "10de:2901": "b200",
    "1002:738c": "mi100",
    "1002:7408": "mi250x-gcd",
    "1002:740c": "mi250x-gcd",
    "1002:740f": "mi210",
    "1002:74a1": "mi300x",
    "1002:74a5": "mi325x",
}
# Elastic Fabric Adapters by PCI ID: the parts of p4d, p5 and p5en instances (aws-ofi-nccl's platforms).
_EFA = {"1d0f:efa0": "efa-nic-100g", "1d0f:efa1": "efa-nic-100g-p5", "1d0f:efa2": "efa-nic-200g"}
_MELLANOX = {"1013": 12.5e9, "1017": 12.5e9, "1019": 12.5e9, "101b": 25e9, "1021": 50e9}  # ConnectX-4, 5, 5 Ex, 6, 7
_SPEED = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*GT/s", re.ASCII)
_GIGATRANSFERS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_BRACKETS = re.compile(r"\[([^\[\]]{1,60})\]")


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
    return _GPUS.get(number, number if number != ":" else "")


def model_in(text: str) -> str:
    """Return the GPU part named in ``lspci`` text (``GA100 [A100 SXM4 40GB]``); empty where none is built in."""
    names = [*_BRACKETS.findall(text), text.rpartition("Corporation")[2].strip(), text.strip()]
    for name in names:
        found = driver_part(Card(name.replace("/", " "))) or driver_part(Card(f"tesla {name}"))
        if found:
            return found
        number = name.lower()
        if number in _GPUS:
            return _GPUS[number]
    return ""


def adapter_of(name: str, class_code: str = "", vendor: str = "", device: str = "", rate_Bps: float = 0.0) -> Adapter:
    """Return an adapter identified by its PCI class and IDs; *rate_Bps* is 0 where the system gives no rate."""
    number = f"{_plain(vendor)}:{_plain(device)}"
    if number in _EFA:
        return Adapter(name, "efa", rate_Bps, _EFA[number])
    code = class_code.lower().removeprefix("0x")
    network = "infiniband" if code.startswith("0207") else "ethernet" if code.startswith("0200") else ""
    if _plain(vendor) == "15b3":
        rate_Bps = rate_Bps or _MELLANOX.get(_plain(device), 0.0)
    return Adapter(name, network, rate_Bps)


def speed_of(text: str) -> int:
    """Return the PCIe generation of a link speed such as ``16.0 GT/s PCIe``; 0 where *text* gives none."""
    found = _SPEED.match(text)
    return _GIGATRANSFERS.get(float(found[1]), 0) if found else 0


def _plain(number: str) -> str:
    return number.lower().removeprefix("0x")
