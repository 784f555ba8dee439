"""The devices that tables of measurements name: built-in GPU and CPU parts, by name or alias, and a topology's own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from simulator.devices.calibration import Calibration
from simulator.devices.cpu.cpu import CpuLibrary, cpu_from_part
from simulator.devices.gpu.generation import MAKERS
from simulator.devices.gpu.gpu import Gpu, gpu_from_part
from simulator.devices.predict import Device
from simulator.errors import InputError, nearest, one_line
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.load import load_topology
from simulator.topology.parts import CpuPart, GpuPart
from validate.score.query import NotScored

__all__ = ["DeviceBook", "device_names", "find_cpu", "find_gpu", "gpu_names", "near_device"]

_SOCKETS = re.compile(r"([1-9][0-9]?)\s*x\s+(.+)", re.IGNORECASE | re.ASCII)


@lru_cache(maxsize=1)
def gpu_names() -> dict[str, str]:
    """Return the name of the part for every name and alias of a built-in GPU."""
    return _names("gpu")


@lru_cache(maxsize=1)
def device_names() -> dict[str, str]:
    """Return the name of the part for every name and alias of a built-in GPU or CPU.

    An accelerator of another make than NVIDIA's and AMD's, which have models, is the CPU that it also is, where
    there is such a part: a Xeon Phi.
    """
    cpus = _names("cpu")
    found = dict(cpus)
    for name, part in gpu_names().items():
        as_cpu = f"{part}-cpu"
        found[name] = as_cpu if as_cpu in cpus and _is_other(part) else part
    return found


@lru_cache(maxsize=1024)
def find_cpu(name: str) -> str | None:
    """Return the CPU part that a system's own name of its processor means, None where there is none.

    All words of a part's name stand in it: ``xeon-e5-2686-v4`` in ``intel-xeon-cpu-e5-2686-v4-2-30ghz``.
    """
    words = set(name.split("-"))
    found = [part for part in part_names("cpu") if words.issuperset(part.split("-"))]
    return max(found, key=len) if found else None


def _names(kind: str) -> dict[str, str]:
    names: dict[str, str] = {}
    for name in part_names(kind):
        part = load_part(name)
        assert part is not None
        for known in (*part.aliases, name):
            names[known] = name
    return names


def _is_other(name: str) -> bool:
    part = load_part(name)
    return isinstance(part, GpuPart) and part.vendor not in MAKERS


@lru_cache(maxsize=256)
def find_gpu(name: str) -> Gpu | None:
    """Return the device that *name* stands for, uncalibrated; None where there is no GPU, or no model, of it."""
    part = load_part(gpu_names().get(name, ""))
    return gpu_from_part(name, part) if isinstance(part, GpuPart) and part.vendor in MAKERS else None


def near_device(name: str) -> str:
    """Say what part would have been right in place of *name*: a near name or alias, otherwise the parts."""
    return _near(name, device_names())


def _near(name: str, names: Mapping[str, str]) -> str:
    close = nearest(name, names)
    return close if close.startswith("did") else nearest(name, set(names.values()))


@dataclass(frozen=True, slots=True)
class _Named:
    """A part by its name, and of a CPU how many sockets make the device."""

    part: str
    sockets: int = 1


class DeviceBook:
    """Devices by the names that tables give them.

    Parameters
    ----------
    named : sequence of str
        ``NAME=PART`` makes a name of the tables a part; ``PART`` alone makes every row one.  A CPU
        of several sockets is ``2 x PART``.
    calibrations : mapping of str to Calibration
        What is known of single devices, by a name or alias of their part.
    topology : str, optional
        A path or a built-in name: its parts, and how many sockets of a CPU it has, go before what is built in.

    Otherwise the built-in part of that name, or one that lists it among its ``aliases``.

    Raises
    ------
    InputError
        Where a part is not known; names the nearest.

    """

    def __init__(
        self,
        named: Iterable[str] = (),
        calibrations: Mapping[str, Calibration] | None = None,
        topology: str | None = None,
    ) -> None:
        self._all: _Named | None = None
        self._named: dict[str, _Named] = {}
        self._own: dict[str, GpuPart | CpuPart] = {}
        self._known = {name: _Named(part) for name, part in device_names().items()}
        if topology is not None:
            self._read(topology)
        for text in named:
            self._add(text)
        self._calibrations = {self._known.get(name, _Named(name)).part: c for name, c in (calibrations or {}).items()}
        self._found: dict[tuple[_Named, int | None, CpuLibrary], Device] = {}

    @property
    def needs_names(self) -> bool:
        """Whether rows must name their device."""
        return self._all is None

    @property
    def names(self) -> dict[str, str]:
        """The name of the part for every name and alias, built in and of the topology."""
        return {name: entry.part for name, entry in self._known.items()}

    @property
    def calibrated(self) -> frozenset[str]:
        """Parts that have a calibration."""
        return frozenset(self._calibrations)

    def part(self, name: str) -> str | None:
        """Return the part that the tables' device *name* is, None where there is none."""
        found = self._of(name)
        return found.part if found is not None else None

    def get(self, name: str, threads: int | None = None, library: CpuLibrary = "onednn") -> Device:
        """Return the tables' device *name*; of a CPU with so many *threads*, one a core where None.

        Raises
        ------
        NotScored
            Where it is not known, is a GPU of a maker without models, or lacks a figure.

        """
        found = self._of(name)
        if found is None:
            if not name:
                raise NotScored("device missing")
            close = nearest(name, [*self._named, *self._known])
            hint = close if close.startswith("did") else "--device NAME=PART gives one"
            raise NotScored(f"no part of device '{one_line(name, 60)}'; {hint}")
        key = found, threads, library
        if key not in self._found:
            try:
                self._found[key] = self._made(found, threads, library)
            except InputError as error:
                raise NotScored(one_line(error)) from None
        return self._found[key]

    def described(self, name: str) -> GpuPart | CpuPart:
        """Return the part itself of the tables' device *name*; raises NotScored where it is not known."""
        self.get(name)
        part = self.part(name) or ""
        found = self._own.get(part) or load_part(part)
        assert isinstance(found, GpuPart | CpuPart)
        return found

    def calibrate(self, part: str, calibration: Calibration) -> None:
        """Use *calibration* of *part* from now on."""
        self._calibrations[part] = calibration
        self._found = {key: device for key, device in self._found.items() if key[0].part != part}

    def check_used(self, seen: set[str]) -> None:
        """Refuse names given by the user that no row of the tables has (InputError)."""
        for name in self._named:
            if name not in seen:
                raise InputError(f"--device: no row is of device '{one_line(name, 60)}'; {nearest(name, seen)}")

    def _of(self, name: str) -> _Named | None:
        return self._named.get(name) or self._all or self._known.get(name) or self._known.get(find_cpu(name) or "")

    def _made(self, named: _Named, threads: int | None, library: CpuLibrary) -> Device:
        part = self._own.get(named.part) or load_part(named.part)
        calibration = self._calibrations.get(named.part)
        if isinstance(part, CpuPart):
            return cpu_from_part(named.part, part, named.sockets, threads, library=library, calibration=calibration)
        assert isinstance(part, GpuPart)
        return gpu_from_part(named.part, part, calibration)

    def _read(self, topology: str) -> None:
        """Take the parts of *topology*, each of a CPU with the sockets that one of its machines has."""
        first = [device for device in load_topology(topology).devices if device.node == 0 and device.part_name]
        sockets = Counter(device.part_name for device in first)
        for device in first:
            part, name = device.part, device.part_name
            if isinstance(part, GpuPart | CpuPart) and name not in self._own:
                self._own[name] = part
                entry = _Named(name, sockets[name] if isinstance(part, CpuPart) else 1)
                self._known.update(dict.fromkeys((*part.aliases, name), entry))

    def _add(self, text: str) -> None:
        name, equals, part = (piece.strip() for piece in text.rpartition("="))
        if not part or (equals and not name):
            raise InputError(f"--device: NAME=PART or PART is needed; got '{one_line(text, 60)}'")
        several = _SOCKETS.fullmatch(part)
        part = several[2] if several else part
        if part not in self._known:
            raise InputError(f"--device: no GPU or CPU part '{one_line(part, 60)}'; {_near(part, self.names)}")
        found = self._known[part]
        if several:
            if not isinstance(self._own.get(found.part) or load_part(found.part), CpuPart):
                raise InputError(f"--device: '{one_line(text, 60)}': several of a part are sockets of a CPU")
            found = _Named(found.part, int(several[1]))
        if not equals:
            if self._all is not None:
                raise InputError("--device: a part for all rows is given twice")
            self._all = found
        elif name in self._named:
            raise InputError(f"--device: '{one_line(name, 60)}' is given twice")
        else:
            self._named[name] = found
