"""``lspci -tv`` (and ``-tvnn``): the PCIe tree as text, with device names but no sockets or speeds."""

from __future__ import annotations

import re

from validate.machine.describe.dumps.tree import DEEPEST, TOO_DEEP, Bus, BusTree, Numa, adapter_of, model_in
from validate.machine.describe.matrix import MOST_DEVICES

_ROOT = re.compile(r"^\s*[-+\\|]*[-+\\]-?\[(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2})\]", re.IGNORECASE | re.ASCII)
# A device such as 1c.0 and, for a bridge, the buses below it.  Columns show what is attached where.
_SLOT = re.compile(
    r"(?P<slot>[0-9a-f]{2}\.[0-7])(?P<rest>-\[(?P<below>[0-9a-f]{2}(?:-[0-9a-f]{2})?)\])?", re.IGNORECASE | re.ASCII
)
_ADAPTERS = (
    (re.compile(r"MT\d+.*\[ConnectX-(\d)|ConnectX-(\d)", re.IGNORECASE), ""),
    (re.compile(r"Elastic Fabric Adapter", re.IGNORECASE), "efa"),
)
_CONNECTX_BPS = {"4": 12.5e9, "5": 12.5e9, "6": 25e9, "7": 50e9}
_BOARD = re.compile(r"NVIDIA Corporation \w+ \[([^\[\]]{2,60})\]")
_NO_GPU = re.compile(r"NVSwitch|audio|USB|UCSI|bridge|BlueField|ConnectX", re.IGNORECASE)
_UNNAMED = re.compile(r"NVIDIA Corporation Device [0-9a-f]{4}", re.IGNORECASE)
_LONGEST_LINE = 2_000


def lspci_tree(text: str) -> BusTree:
    """Return the tree drawn in *text*; all root complexes are attached to one socket, since lspci names none."""
    numa = Numa(0)
    roots: list[tuple[int, Bus]] = []  # open branches, each with its column
    bus_of: dict[int, str] = {}
    found_devices = 0
    for raw in text.splitlines():
        line = raw[:_LONGEST_LINE].rstrip()
        start = _ROOT.match(line)
        if start is not None:
            roots = []
            bus_of = {start.end(): start["bus"]}
        elif not bus_of:
            continue
        position = start.end() if start is not None else 0
        while True:
            found = _SLOT.search(line, position)
            if found is None or line[position : found.start()].strip("-+\\| "):  # words, and no more drawing
                break
            column = found.start()
            roots = [each for each in roots if each[0] < column]
            bus = next((bus_of[c] for c in sorted(bus_of, reverse=True) if c <= column), "")
            parents = roots[-1][1].below if roots else numa.below
            name = f"{bus}:{found['slot']}".lower()
            if found["below"]:
                bridge = Bus("bridge", name)
                parents.append(bridge)
                roots.append((column, bridge))
                if len(roots) > DEEPEST:
                    raise ValueError(TOO_DEEP)
                domain = bus.rpartition(":")[0]
                bus_of = {c: b for c, b in bus_of.items() if c <= column} | {
                    found.end(): f"{domain}:{found['below'][:2]}"
                }
                position = found.end()
                continue
            leaf = device_of(name, line[found.end() :])
            if leaf is not None:
                parents.append(leaf)
                found_devices += 1
                if found_devices > MOST_DEVICES:
                    raise ValueError(f"more than {MOST_DEVICES} GPUs and adapters; one machine is needed")
            break
    tree = BusTree([numa], None, sockets_said=False)
    unnamed = len(_UNNAMED.findall(text))
    if unnamed:
        tree.remarks.append(f"{unnamed} devices of NVIDIA that lspci has no name for are left out (update-pciids)")
    return tree


def device_of(name: str, words: str) -> Bus | None:
    """Return the GPU or adapter that *words* describe; None for any other device."""
    if "NVIDIA" in words or "AMD" in words:
        model = model_in(words)
        board = _BOARD.search(words)
        if not model and "NVIDIA" in words and board is not None and not _NO_GPU.search(words):
            model = board[1]
        if model:
            return Bus("gpu", name, model=model)
    for pattern, network in _ADAPTERS:
        found = pattern.search(words)
        if found is None:
            continue
        if network == "efa":
            return Bus("nic", name, adapter=adapter_of(name, "", "1d0f", "efa1"))
        which = next(group for group in found.groups() if group)
        adapter = adapter_of(name, "", rate_Bps=_CONNECTX_BPS.get(which, 0.0))
        return Bus("nic", name, adapter=adapter)
    return None
