"""The machines of ``--topology``, from files, the catalogue or standard input, and the file of ``--calibration``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.api.session import Session
from simulator.cli.options import fields_of
from simulator.cli.output import warn
from simulator.cli.written import CommandOptions
from simulator.errors import Fault, InputError, one_line, refused
from simulator.network.machine import Machine
from simulator.questions.where import Where
from simulator.spelling import mention
from simulator.topology.catalogue import part_names
from simulator.topology.load import topology_from_text
from simulator.topology.parts import CpuPart, GpuPart
from simulator.topology.yaml_source import MAX_BYTES

if TYPE_CHECKING:
    from simulator.questions.calibration import Calibration


def find_machines(written: CommandOptions, session: Session) -> list[Where]:
    """Return the machines in *written* and load them into *session*; ``-`` is standard input.

    Raises InputError with every fault of the files.
    """
    if not written.topology:
        raise InputError(
            f"{mention('topology')} is needed, for example {mention('topology', 'p3.16xlarge.yaml')} (simulate "
            "machines)"
        )
    usual = Where(**fields_of(written, Where))
    found: list[Where] = []
    faults: list[Fault] = []
    more = 0
    names = _names(written.topology)
    for name in names:
        where = replace(usual, topology=name)
        try:
            if name == "-":
                _know_input(session, where)
            warn(written, session.machine(where).notes)
        except InputError as error:
            faults += (on_machine(error, name) if len(names) > 1 else error).faults
            more += error.more
        found.append(where)
    if faults:
        raise InputError(faults, more)
    return found


def on_machine(error: InputError, name: str) -> InputError:
    """Return *error* of one of several machines, with the machine's *name* where it says none."""

    def named(fault: Fault) -> Fault:
        known = fault.file or fault.message.startswith(f"{name}:")
        return fault if known else replace(fault, message=f"{name}: {fault.message}")

    return error.changed(named)


def _names(text: str) -> list[str]:
    if "," not in text or os.path.exists(text):
        return [text]
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise refused("topology", "a name is missing; write for example p3.16xlarge,dgx-h100", one_line(text, 60))
    if len(set(names)) < len(names):
        raise refused("topology", "a machine is named twice", one_line(text, 60))
    return names


def _know_input(session: Session, where: Where) -> None:
    """Load standard input, which can be read only once, as the machine of *where*."""
    if sys.stdin is None:
        raise refused("topology", "standard input is closed", "-")
    try:
        topology = topology_from_text(sys.stdin.buffer.read(MAX_BYTES + 1), n_nodes=where.nodes, fabric=where.fabric)
        session.know(where, topology)
    except InputError as error:
        raise error.changed(lambda f: replace(f, file="<stdin>") if f.file == "<text>" else f) from None


def read_calibrations(path: str | None, machines: Sequence[Machine]) -> dict[str, Calibration]:
    """Return the calibrations in the file *path* by part; raises InputError if none is of a device of *machines*."""
    if path is None:
        return {}
    from simulator.devices.calibration_file import load_calibration

    parts = {node.part_name for m in machines for node in m.nodes if isinstance(node.part, GpuPart | CpuPart)}
    found = load_calibration(path, {*parts, *part_names("gpu"), *part_names("cpu")})
    if not parts.intersection(found):
        names = " and ".join(machine.name for machine in machines)
        has = ", ".join(sorted(parts))
        raise InputError(Fault(f"calibrates {', '.join(found)}; {names} has {has}", one_line(path)))
    return found
