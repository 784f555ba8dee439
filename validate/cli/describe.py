"""The command ``validate describe``."""

import os
from contextlib import suppress
from pathlib import Path

from simulator.errors import InputError, nearest, one_line
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.load import topology_from_text
from simulator.topology.parts import GpuPart, NicPart
from validate.cli.command import Given, give
from validate.machine.describe.draft import draft, moving_guesses
from validate.machine.describe.driver import Card, are_peers, ask_driver, named_for
from validate.machine.describe.dumps.combine import combined
from validate.machine.describe.dumps.read import read_dump
from validate.machine.describe.placement import Matrix, parse_peers, parse_topo, peer_level
from validate.machine.describe.processor import Processor, disk_part, read_processor


def describe_command(given: Given) -> None:
    """Draft a topology of this machine, or of another from dumps."""
    nic, out = given.nic, given.out
    if nic is not None and not isinstance(load_part(nic), NicPart):
        raise InputError(f"--nic: no adapter is called '{one_line(nic, 40)}'; {nearest(nic, part_names('nic'))}")
    with given.opened("out") as output:
        if given.dumps:
            text, remarks = combined([read_dump(file) for file in given.dumps], given.gpu, nic)
            try:
                topology_from_text(text)  # which contradictory dumps do not make
            except InputError as error:
                told = f"--from: no topology can be made of this: {one_line(error.faults[0].message, 200)}"
                raise InputError(told) from None
        else:
            usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
            text, remarks = draft_of(read_processor(usable=usable), *ask_driver(), disk=disk_part())
        estimates = sum("UNVERIFIED" in line for line in text.splitlines()[1:])
        parts = (device.part for device in topology_from_text(text).devices)
        vendors = [part.vendor for part in parts if isinstance(part, GpuPart)]
        moving = moving_guesses(text, peers_unsaid=any("how far GPUs copy" in remark for remark in remarks))
        moving, remarks = ([named_for(remark, vendors) for remark in every] for every in (moving, remarks))
        first, *rest = text.split("\n")
        rest = [named_for(line, vendors) if line.startswith("# ") else line for line in rest]
        text = "\n".join([first, *(f"# {remark}" for remark in moving), *rest])
        if not given.force and out is not None and Path(out).is_file() and Path(out).read_bytes() != text.encode():
            raise InputError(f"--out {one_line(out)}: is there and differs from the draft; --force overwrites it")
        give(text, output)
    said = [*moving, *remarks]
    if estimates:
        said.append(f"{estimates} figure{'s are estimates' if estimates > 1 else ' is an estimate'}: see UNVERIFIED")
    if out is not None:
        said.append(f"wrote {one_line(out)}; try: simulate --topology {one_line(out)} --workload resnet18 --batch 8")
    given.remark(said)


def draft_of(
    processor: Processor, cards: tuple[Card, ...], topo: str, peers: str = "", disk: tuple[str, str] | None = None
) -> tuple[str, list[str]]:
    """Return the draft as YAML, and remarks for the user on how it was made."""
    if not cards:
        remarks = ["nvidia-smi lists no GPU; GPUs of another make are to be added by hand"]
        return draft(processor, cards, None, remarks, disk), remarks
    matrix: Matrix | None = None
    remarks, level = [], ""
    try:
        found = parse_topo(topo)
        if found.gpus != len(cards):
            raise ValueError(f"it lists {found.gpus} GPUs of {len(cards)}")
        matrix = found
    except ValueError as error:
        if len(cards) > 1 or topo:
            remarks.append(f"nvidia-smi topo -m: {one_line(error)}; so no links between GPUs, and each is at cpu0")
    if matrix is not None and matrix.nics:
        names = ", ".join(one_line(name, 40) for name in matrix.nics)
        remarks.append(f"adapters left out, because their speed is unknown: {names}")
    if matrix is not None and peers:
        with suppress(ValueError):  # an older driver that knows no such table
            level = peer_level(matrix, parse_peers(peers), usual=are_peers(cards))
    return draft(processor, cards, matrix, remarks, disk, peers=level), remarks
