"""Clocks, power, temperature and throttling of an NVIDIA GPU, read through NVML and never changed.

NVML comes with the driver (``libnvidia-ml.so.1``), so no package is needed.  Where it is missing or does not answer,
the readings are absent.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

_SM, _MEMORY = 1, 2  # nvmlClockType_t: SM and memory
_CORE_C = 0  # nvmlTemperatureSensors_t
# nvmlClocksEventReasons: what holds the clock below the requested one.
_POWER_CAP = "power cap"
_REASONS = {
    0x4: _POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT, in mW; nvmlDeviceGetPowerUsage is a mean over a second
_PERIOD_S = 0.02  # update period of the driver's readings
_HELD = 0.5  # of the power limit: a board that draws less is not held by it, but remembers for seconds that it was


@dataclass(frozen=True, slots=True)
class Readings:
    """Sensor readings while a case ran: medians, and all reasons for throttling; None where unavailable."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: str = ""

    @property
    def held_back(self) -> bool:
        """Return whether heat or the board slowed the clock; the power cap, also present in training, is excluded."""
        return any(reason in self.throttled for reason in _REASONS.values() if reason != _POWER_CAP)


class _FieldValue(ctypes.Structure):
    """NVML's nvmlFieldValue_t."""

    _fields_ = (
        ("fieldId", ctypes.c_uint),
        ("scopeId", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latencyUsec", ctypes.c_longlong),
        ("valueType", ctypes.c_int),
        ("nvmlReturn", ctypes.c_int),
        ("value", ctypes.c_uint),
        ("rest", ctypes.c_uint),  # of a union of eight bytes
    )


class Sensors:
    """The sensors of the GPU with torch's *uuid*; without any if it is empty."""

    def __init__(self, uuid: str = "") -> None:
        self._library: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        self._rows: list[tuple[float | None, float | None, float | None, float | None]] = []
        self._reasons: set[str] = set()
        self._last_s = 0.0
        with suppress(OSError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            name = f"GPU-{uuid}".encode()
            if not (library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._handle))):
                self._library = library

    def look(self) -> None:
        """Take a reading, at most every 20 ms; call it while the GPU works."""
        if self._library is None or time.perf_counter() - self._last_s < _PERIOD_S:
            return
        power_mW, heat_C = self._power_mw(), self._unsigned("nvmlDeviceGetTemperature", _CORE_C)
        clock, memory = (self._unsigned("nvmlDeviceGetClockInfo", kind) for kind in (_SM, _MEMORY))
        self._rows.append((clock, memory, None if power_mW is None else power_mW / 1000, heat_C))
        mask = ctypes.c_ulonglong()
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        reasons = next((call for name in names if (call := getattr(self._library, name, None))), None)
        if reasons is not None and not reasons(self._handle, ctypes.byref(mask)):
            self._reasons |= {text for bit, text in _REASONS.items() if mask.value & bit}
        self._last_s = time.perf_counter()

    def take(self) -> Readings:
        """Return the readings since the last call, and clear them."""
        columns = [[v for v in column if v is not None] for column in zip(*self._rows, strict=True)] or [[]] * 4
        clock, memory, power, heat = (median(column) if column else None for column in columns)
        limit_mW = self._unsigned("nvmlDeviceGetEnforcedPowerLimit")
        if power is not None and limit_mW is not None and power < _HELD * limit_mW / 1000:
            self._reasons.discard(_POWER_CAP)
        taken = Readings(clock, memory, power, heat, "; ".join(sorted(self._reasons)))
        self._rows, self._reasons = [], set()
        return taken

    def limits(self) -> dict[str, float]:
        """Return the card's limits: power in W, clocks in MHz, PCIe generation and width."""
        found = {
            "power_limit_W": self._unsigned("nvmlDeviceGetEnforcedPowerLimit"),
            "max_sm_clock_MHz": self._unsigned("nvmlDeviceGetMaxClockInfo", _SM),
            "max_memory_clock_MHz": self._unsigned("nvmlDeviceGetMaxClockInfo", _MEMORY),
            "application_sm_clock_MHz": self._unsigned("nvmlDeviceGetApplicationsClock", _SM),
            "pcie_generation": self._unsigned("nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_width": self._unsigned("nvmlDeviceGetMaxPcieLinkWidth"),
        }
        if found["power_limit_W"] is not None:
            found["power_limit_W"] /= 1000
        return {name: value for name, value in found.items() if value is not None}

    def _power_mw(self) -> float | None:
        """Return the board's present power in mW; older drivers only give the mean over the last second."""
        call = getattr(self._library, "nvmlDeviceGetFieldValues", None)
        field = _FieldValue(fieldId=_POWER_INSTANT)
        if call is not None and not call(self._handle, 1, ctypes.byref(field)) and not field.nvmlReturn and field.value:
            return float(field.value)
        return self._unsigned("nvmlDeviceGetPowerUsage")

    def _unsigned(self, function: str, *arguments: int) -> float | None:
        if self._library is None:
            return None
        value = ctypes.c_uint()
        call = getattr(self._library, function, None)
        if call is None or call(self._handle, *arguments, ctypes.byref(value)):
            return None
        return float(value.value)
