"""The file of ``--calibration``, which must concern a simulated device."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import Fault, InputError, one_line
from simulator.network.machine import Machine
from simulator.questions.calibration import Calibration
from simulator.topology.parts import CpuPart, GpuPart


def read_calibrations(path: str | None, machines: Sequence[Machine]) -> dict[str, Calibration]:
    """Return the calibrations in the file *path* by part; raises InputError if none is of a device of *machines*."""
    if path is None:
        return {}
    from simulator.devices.calibration_file import load_calibration
    from simulator.topology.catalogue import part_names

    parts = {node.part_name for m in machines for node in m.nodes if isinstance(node.part, GpuPart | CpuPart)}
    found = load_calibration(path, {*parts, *part_names("gpu"), *part_names("cpu")})
    if not parts.intersection(found):
        names = " and ".join(machine.name for machine in machines)
        has = ", ".join(sorted(parts))
        raise InputError(Fault(f"calibrates {', '.join(found)}; {names} has {has}", one_line(path)))
    return found
