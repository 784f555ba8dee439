"""Calibration files, which ``validate calibrate`` writes and ``simulate --calibration`` reads (docs/calibration.md)."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from simulator.devices.dispatch import HOST_TIMES
from simulator.devices.neighbours import LEAST_SIZE, MOST_SIZE
from simulator.errors import InputError, nearest, one_line
from simulator.questions.calibration import CLOCKS, ISOLATED, MOST_MEASURED, Calibration, Neighbourhood
from simulator.topology.catalogue import validate
from simulator.topology.yaml_source import read_yaml
from simulator.workload.operators import CLASSES
from simulator.workload.precision import PRECISIONS

SCHEMA_VERSION = 1
# A factor outside this range means a different device or a wrong unit, not a calibration.
_Factor = Annotated[float, Field(gt=0.02, lt=50)]
_Seconds = Annotated[float, Field(ge=0, lt=0.1)]


class _Strict(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Points(_Strict):
    """The measurements that factors were fitted to."""

    table: str = Field("", description="Name of the table")
    count: dict[str, int] = Field({}, description="Rows by operator")
    median_error: float | None = Field(None, description="Median of the absolute relative error that is left")
    mean_error: float | None = Field(None, description="Mean of it")
    lines: str = Field("", description="Lines of the table, such as 2-5, 9")
    asked: tuple[str, ...] = Field((), description="First digits of SHA-256 of what each row asks")


class NeighboursOf(_Strict):
    """Measured kernels of one variety, each by the sizes of its class and its measured over its predicted time."""

    of: str = Field(..., description="The variety in words, the kernel's class first")
    near: float = Field(..., ge=0.01, le=100, description="Distance at which the correlation of errors falls to 1/e")
    strength: float = Field(..., ge=0, le=1, description="Share of the interpolated error that is applied")
    noise: float = Field(..., ge=0.001, le=100, description="Variance of a measurement relative to that of the errors")
    measured: tuple[dict[str, Annotated[float, Strict()] | str], ...] = Field(
        ..., min_length=1, max_length=MOST_MEASURED, description="Sizes of each kernel, and ratio"
    )

    @property
    def neighbourhood(self) -> Neighbourhood:
        """The same as the cost models see it."""
        axes = CLASSES[self.of.partition(" ")[0]].axes
        measured = tuple((tuple(each[name] for name in axes), float(each["ratio"])) for each in self.measured)
        return Neighbourhood(self.of, self.near, self.strength, self.noise, measured)


class Certificate(_Strict):
    """What a certificate says of a calibration: where and when it was measured, and how it did on steps kept apart."""

    date: str = Field(..., description="Day of the measurement, such as 2026-11-30")
    device: str = Field("", description="Name that the device gives itself")
    driver: str = Field("", description="Version of the driver; another one ends the certificate")
    torch: str = Field("", description="Version of torch, likewise")
    power_limit_W: float | None = Field(None, description="Limit of the board's power, likewise")
    steps: int = Field(..., ge=0, description="Steps that judged it, to which nothing was fitted")
    uncalibrated: float | None = Field(None, ge=0, description="Median of their absolute relative errors before")
    calibrated: float | None = Field(None, ge=0, description="The same after")
    in_band: float | None = Field(None, ge=0, le=1, description="Share of them within their 80 % bands after")

    def words(self, part: str) -> str:
        """Return in a line what is certified of the device *part*."""
        if self.calibrated is None or self.in_band is None:
            return f"measured on {self.date} for {part}; no step judged it"
        return (
            f"certified on {self.date} for {part}: {100 * self.calibrated:.1f} %, {100 * self.in_band:.0f} % in band "
            f"({self.steps} steps)"
        )


class DeviceCalibration(_Strict):
    """The factors of one device; each defaults to 1."""

    compute: _Factor = Field(1.0, description="On the sustained rate of arithmetic")
    bandwidth: _Factor = Field(1.0, description="On the bandwidth of the device's memory")
    dispatch: _Factor = Field(1.0, description="On the time in which the host issues an operator")
    by_class: dict[str, _Factor] = Field({}, description="On the time of one class of kernels")
    by_data_sheet: tuple[str, ...] = Field((), description="Classes of kernels that keep what the data sheet gives")
    host: dict[str, _Seconds] = Field(
        {}, description="Seconds of the host's calls, by name of dispatch.json, and of measuring"
    )
    neighbours: tuple[NeighboursOf, ...] = Field((), description="Measured kernels that correct those near them")
    clocks: dict[str, _Factor] = Field({}, description="Power of the board in seconds of load: power, burst, stream")
    spread: dict[str, float] = Field({}, description="Relative standard deviation of each factor")
    points: Points = Field(Points(), description="What the factors were fitted to")
    certificate: Certificate | None = Field(None, description="How it did on steps kept apart; validate certify")

    @property
    def calibration(self) -> Calibration:
        """The factors alone."""
        kept = tuple(sorted(set(self.by_data_sheet)))
        near = tuple(each.neighbourhood for each in self.neighbours)
        former = {_FORMERLY[key]: s for key, s in self.host.items() if key in _FORMERLY}
        host = former | {key: s for key, s in self.host.items() if key not in _FORMERLY}
        return Calibration(
            self.compute, self.bandwidth, self.dispatch, dict(self.by_class), host, kept, near, self.clocks
        )


class CalibrationFile(_Strict):
    """Factors of several devices, by the name of the device's part."""

    schema_version: Literal[1] = Field(..., description="Version of this form: 1")
    devices: dict[str, DeviceCalibration] = Field(..., description="Factors by the part of a device")


def read_calibration(path: str | Path, devices: Collection[str] | None = None) -> CalibrationFile:
    """Return the calibrations in a YAML file, of known *devices* or any (None); raises InputError with all mistakes."""
    source = read_yaml(Path(path), one_line(path, 1000), needs="a calibration needs schema_version and devices")
    read = validate(source, CalibrationFile)
    faults = []
    for name, device in read.devices.items():
        if devices is not None and name not in devices:
            message = f"there is no device '{one_line(name, 60)}' here; {nearest(name, devices)}"
            faults.append(source.fault(("devices", name), message, key=True))
        for key, place, message in _faults(device):
            faults.append(source.fault(("devices", name, *place), message, key=key))
    if faults:
        raise InputError(faults)
    return read


def _unknown(name: str, known: Collection[str]) -> str:
    return f"there is no '{one_line(name, 60)}'; {nearest(name, known, listed=20)}"


def _faults(device: DeviceCalibration) -> Iterator[tuple[bool, tuple[str | int, ...], str]]:
    """Yield of each mistake that the schema does not see whether it is a key, its place and its words."""
    known: Collection[str]
    for known, keys, place in (
        (CLASSES, device.by_class, "by_class"),
        (_HOST, device.host.keys() - _FORMERLY.keys(), "host"),
        (CLOCKS, device.clocks, "clocks"),
        ((*_FACTORS, *(f"by_class.{c}" for c in CLASSES)), device.spread, "spread"),
    ):
        yield from ((True, (place, key), _unknown(key, known)) for key in keys if key not in known)
    for index, kernel_class in enumerate(device.by_data_sheet):
        if kernel_class not in CLASSES:
            yield False, ("by_data_sheet", index), _unknown(kernel_class, CLASSES)
    varieties: set[str] = set()
    for index, each in enumerate(device.neighbours):
        of, kernel_class = ("neighbours", index, "of"), each.of.partition(" ")[0]
        if kernel_class not in CLASSES:
            yield False, of, _unknown(kernel_class, CLASSES)
            continue
        own = CLASSES[kernel_class].variety_words
        known = sorted((*PRECISIONS, *own))
        for word in each.of.split(" ")[1 : None if own else 2]:
            if word not in known:
                yield False, of, f"no kernels are '{one_line(word, 60)}'; {nearest(word, known, listed=0)}"
        if each.of in varieties:
            yield False, of, f"'{one_line(each.of, 60)}' is there twice"
        varieties.add(each.of)
        for row, sizes in enumerate(each.measured):
            if message := _fault_of_sizes(kernel_class, sizes):
                yield False, ("neighbours", index, "measured", row), message


def _fault_of_sizes(kernel_class: str, sizes: Mapping[str, float | str]) -> str:
    """Return what is wrong with the *sizes* of a measured kernel; empty if nothing is."""
    needed, words = (*CLASSES[kernel_class].axes, "ratio"), CLASSES[kernel_class].axis_words
    if set(sizes) != set(needed):
        wrong = sorted(set(sizes) ^ set(needed))[0]
        return f"a {kernel_class} has {', '.join(needed)}; '{one_line(wrong, 60)}' is {_WRONG[wrong in sizes]}"
    for name, value in sizes.items():
        if (name in words) != isinstance(value, str):
            return f"{name} must be {'text' if name in words else 'a number'}; got '{one_line(value, 60)}'"
        if isinstance(value, str) and words[name] and value not in words[name]:
            return f"{name} '{one_line(value, 60)}' is not known; {nearest(value, words[name])}"
        low, high = _RATIO if name == "ratio" else (1.0, MOST_SIZE) if name in _COUNTS else _SIZE
        if not isinstance(value, str) and not low <= value <= high:
            return f"{name} must be from {low:g} to {high:g}; got {value:g}"
    return ""


def load_calibration(path: str | Path, devices: Collection[str] | None = None) -> dict[str, Calibration]:
    """Return the factors in the file *path*, by part; parameters and errors as for :func:`read_calibration`."""
    return {name: device.calibration for name, device in read_calibration(path, devices).devices.items()}


_WRONG = {True: "not one of them", False: "missing"}
_COUNTS = ("m", "n", "k", "batch")
_RATIO, _SIZE = (0.02, 50.0), (LEAST_SIZE, MOST_SIZE)
_FACTORS = ("compute", "bandwidth", "dispatch")
_HOST = (*HOST_TIMES, *ISOLATED)
_FORMERLY = {"isolated_convolution_s": "searched_convolution_s"}  # names that earlier versions wrote
