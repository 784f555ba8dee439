"""The devices that tables of measurements name: built-in GPU parts, by name or alias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from simulator.devices.calibration import Calibration
from simulator.devices.gpu.gpu import Gpu, gpu_from_part
from simulator.errors import InputError, nearest, one_line
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from validate.score.query import NotScored

__all__ = ["DeviceBook", "find_gpu", "gpu_names", "near_gpu"]


@lru_cache(maxsize=1)
def gpu_names() -> dict[str, str]:
    """Return the name of the part for every name and alias of a built-in GPU."""
    names: dict[str, str] = {}
    for name in part_names("gpu"):
        part = load_part(name)
        assert part is not None
        for known in (*part.aliases, name):
            names[known] = name
    return names


@lru_cache(maxsize=256)
def find_gpu(name: str) -> Gpu | None:
    """Return the device that *name* stands for, uncalibrated, or None."""
    part = load_part(gpu_names().get(name, ""))
    return gpu_from_part(name, part) if isinstance(part, GpuPart) else None


def near_gpu(name: str) -> str:
    """Say what GPU would have been right in place of *name*: a near name or alias, otherwise the parts."""
    close = nearest(name, gpu_names())
    return close if close.startswith("did") else nearest(name, set(gpu_names().values()))


class DeviceBook:
    """Devices by the names that tables give them.

    Parameters
    ----------
    named : sequence of str
        ``NAME=PART`` makes a name of the tables a built-in part; ``PART`` alone makes every row one.
    calibrations : mapping of str to Calibration
        What is known of single devices, by a name or alias of their part.

    Otherwise the built-in part of that name, or one that lists it among its ``aliases``.

    Raises
    ------
    InputError
        Where a part is not known; names the nearest.

    """

    def __init__(self, named: Iterable[str] = (), calibrations: Mapping[str, Calibration] | None = None) -> None:
        self._all: str | None = None
        self._named: dict[str, str] = {}
        for text in named:
            self._add(text)
        self._calibrations = {gpu_names().get(name, name): c for name, c in (calibrations or {}).items()}
        self._found: dict[str, Gpu] = {}

    @property
    def needs_names(self) -> bool:
        """Whether rows must name their device."""
        return self._all is None

    @property
    def calibrated(self) -> frozenset[str]:
        """Parts that have a calibration."""
        return frozenset(self._calibrations)

    def part(self, name: str) -> str | None:
        """Return the part that the tables' device *name* is, None where there is none."""
        return self._named.get(name) or self._all or gpu_names().get(name)

    def get(self, name: str) -> Gpu:
        """Return the tables' device *name*; raises NotScored where it is not known, or no GPU of NVIDIA or AMD."""
        part_name = self.part(name)
        if part_name is None:
            if not name:
                raise NotScored("device missing")
            close = nearest(name, [*self._named, *gpu_names()])
            hint = close if close.startswith("did") else "--device NAME=PART gives one"
            raise NotScored(f"no part of device '{one_line(name, 60)}'; {hint}")
        if part_name not in self._found:
            part = load_part(part_name)
            assert isinstance(part, GpuPart)
            if part.vendor == "other":
                raise NotScored(f"{part_name} is no GPU of NVIDIA or AMD")
            try:
                self._found[part_name] = gpu_from_part(part_name, part, self._calibrations.get(part_name))
            except InputError as error:
                raise NotScored(one_line(error)) from None
        return self._found[part_name]

    def calibrate(self, part: str, calibration: Calibration) -> None:
        """Use *calibration* of *part* from now on."""
        self._calibrations[part] = calibration
        self._found.pop(part, None)

    def check_used(self, seen: set[str]) -> None:
        """Refuse names given by the user that no row of the tables has (InputError)."""
        for name in self._named:
            if name not in seen:
                raise InputError(f"--device: no row is of device '{one_line(name, 60)}'; {nearest(name, seen)}")

    def _add(self, text: str) -> None:
        name, equals, part = (piece.strip() for piece in text.rpartition("="))
        if not part or (equals and not name):
            raise InputError(f"--device: NAME=PART or PART is needed; got '{one_line(text, 60)}'")
        if part not in gpu_names():
            raise InputError(f"--device: no GPU part '{one_line(part, 60)}'; {near_gpu(part)}")
        if not equals:
            if self._all is not None:
                raise InputError("--device: a part for all rows is given twice")
            self._all = gpu_names()[part]
        elif name in self._named:
            raise InputError(f"--device: '{one_line(name, 60)}' is given twice")
        else:
            self._named[name] = gpu_names()[part]
