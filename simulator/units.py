"""Quantities as text with units, exact as decimals (``K`` is 1000, ``Ki`` 1024), and as SI floats inside."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic_core.core_schema import CoreSchema, float_schema, no_info_before_validator_function

from simulator.errors import nearest, one_line
from simulator.records import own_data


class _Dimension(NamedTuple):
    """Units in SI units, an example, and the least and most allowed value, far beyond real hardware."""

    units: Mapping[str, Decimal]
    example: str
    least: str
    most: str


_TOLD = own_data("simulator", "units.json")
_DIMENSIONS = {
    name: _Dimension(**{**said, "units": {unit: Decimal(scale) for unit, scale in said["units"].items()}})
    for name, said in _TOLD["dimensions"].items()
}
_UNITS = {name: dimension.units for name, dimension in _DIMENSIONS.items()}
# Other spellings of units of bytes and bits, and words for other units.
_BITS = re.compile(
    r"(?P<prefix>[kKMGTPmgtp]?i?)(?P<of>[bB]|[bB]its?|[bB]ytes?)(?P<per>ps|p/s|/s|/sec|/second|/S|PS)?", re.ASCII
)
_WORDS: Mapping[str, str] = _TOLD["words"]
_LONGEST = 80  # characters; guards the pattern against very long text
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_PATTERN = re.compile(rf"\s*({_NUMBER})\s*(\S.*?)?\s*", re.ASCII | re.DOTALL)


@lru_cache(maxsize=4096)
def _parse(text: str, dimension: str) -> float:
    example = _DIMENSIONS[dimension].example
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f'{dimension} is a number and a unit, for example "{example}"; got {text!r}')
    number, unit = match.groups()
    if unit is None:
        raise ValueError(f'{dimension} needs a unit, for example "{example}"; got the bare number {number}')
    table = _UNITS[dimension]
    if unit not in table:
        raise ValueError(f"{one_line(unit, 40)!r} is not a unit of {dimension}; {_unit_hint(unit, dimension)}")
    return float(Decimal(number) * table[unit])


def _unit_hint(unit: str, dimension: str) -> str:
    table = _UNITS[dimension]
    elsewhere = any(unit in units for units in _UNITS.values())
    meant = [] if elsewhere else respelt(unit, dimension)
    alike = [other for other in table if other.lower() == unit.lower()]
    if alike and (len(meant) < 2 or unit[0] in "gmtp"):  # mb is rather MB; Mb may be either
        meant = alike[:1]
    if meant:
        return f"did you mean {' or '.join(meant)}?"
    for name, units in _UNITS.items():
        if unit in units:
            return f'that is a unit of {name}; write for example "{_DIMENSIONS[dimension].example}"'
    common = [u for u in table if not u.startswith(("Ki", "k", "P"))]
    return nearest(unit, common) or f'write for example "{_DIMENSIONS[dimension].example}"'


def respelt(unit: str, dimension: str) -> list[str]:
    """Return the units of *dimension* that *unit*, spelt otherwise (``GBps``, ``msec``, ``TFLOPS``), may mean."""
    if unit in _UNITS[dimension]:
        return []
    bits = _BITS.fullmatch(unit)
    if dimension in ("bandwidth", "size") and bits is not None and (dimension == "bandwidth" or not bits["per"]):
        prefix = bits["prefix"] if bits["prefix"] in ("", "k") else bits["prefix"].capitalize()
        kinds = {"b": ("bit", "B"), "B": ("B",)}.get(bits["of"], ("bit",) if "bit" in bits["of"].lower() else ("B",))
        return [f"{prefix}{kind}{'/s' if dimension == 'bandwidth' else ''}" for kind in kinds]
    flops = re.fullmatch(r"([KMGTP]?)(?:flops?|f)(?:/s|ps)?", unit, re.IGNORECASE)
    if dimension == "flop rate" and flops is not None:
        return [f"{flops[1].upper()}FLOP/s"]
    return [name for name, words in _WORDS.items() if name in _UNITS[dimension] and unit.lower() in words.split()]


@lru_cache(maxsize=1)
def unit_names() -> tuple[str, ...]:
    """Return all units of all dimensions, longest first, so that no unit is a prefix of a later one."""
    return tuple(sorted({unit for table in _UNITS.values() for unit in table}, key=lambda unit: (-len(unit), unit)))


def whole_number(text: str) -> int | None:
    """Return the number that *text* writes in at most 18 digits; None if it is anything else."""
    return int(text) if re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII) else None


@lru_cache(maxsize=4096)
def in_si(number: str, unit: str) -> float:
    """Return *number* of *unit* in SI units; each unit has one dimension. Raises KeyError if the unit is unknown."""
    scale = next((table[unit] for table in _UNITS.values() if unit in table), None)
    if scale is None:
        raise KeyError(unit)
    return float(Decimal(number) * scale)


def parse_quantity(value: object, dimension: str, *, positive: bool = False) -> float:
    """Return *value* (text with a unit) in SI: bytes, s, B/s, FLOP/s, Hz, W, m, bit/m2 or 1/s; raises ValueError."""
    _, example, least, most = _DIMENSIONS[dimension]
    if isinstance(value, bool) or not isinstance(value, str):
        kind = "the bare number" if isinstance(value, int | float) and not isinstance(value, bool) else "the value"
        raise ValueError(f'{dimension} needs a unit, for example "{example}"; got {kind} {one_line(value, 40)}')
    if len(value) > _LONGEST:
        raise ValueError(f'{dimension} is a number and a unit, for example "{example}"; got {one_line(value, 40)!r}')
    result = _parse(value, dimension)
    if positive and result <= 0:
        raise ValueError(f"{dimension} must be more than zero; got {value!r}")
    if not 0.0 <= result < float("inf"):
        raise ValueError(f"{dimension} must be at least zero and finite; got {value!r}")
    if result and not _parse(least, dimension) <= result <= _parse(most, dimension):
        raise ValueError(f"{dimension} must be from {least} to {most}; got {value!r}")
    return result


class _Quantity:
    """Marks a model's field of a *dimension*.  Pydantic takes its schema as it is, once for the many such fields."""

    def __init__(self, dimension: str, *, positive: bool = False, least: str = "", most: str = "") -> None:
        def validate(value: object) -> float:
            found = parse_quantity(value, dimension, positive=positive)
            if least and not _parse(least, dimension) <= found <= _parse(most, dimension):
                raise ValueError(f"must be from {least} to {most}; got {value!r}")
            return found

        self.dimension = dimension
        self.schema = no_info_before_validator_function(validate, float_schema())

    def __get_pydantic_core_schema__(self, _: object, __: object) -> CoreSchema:
        return self.schema

    def __get_pydantic_json_schema__(self, _: object, __: object) -> dict[str, Any]:
        units = "|".join(sorted((re.escape(u) for u in _UNITS[self.dimension]), key=lambda u: (-len(u), u)))
        return {
            "type": "string",
            "pattern": rf"^\s*{_NUMBER}\s*({units})\s*$",
            "examples": [_DIMENSIONS[self.dimension].example],
            "description": f"a {self.dimension} with its unit",
        }


# In a model each is a float in SI units; in a file it is text with a unit.
Bandwidth: TypeAlias = Annotated[float, _Quantity("bandwidth", positive=True)]
Size: TypeAlias = Annotated[float, _Quantity("size")]
MemorySize: TypeAlias = Annotated[float, _Quantity("size", least="1 MB", most="1 PB")]
Duration: TypeAlias = Annotated[float, _Quantity("time")]
FlopRate: TypeAlias = Annotated[float, _Quantity("flop rate", positive=True)]
Frequency: TypeAlias = Annotated[float, _Quantity("frequency", positive=True)]
Length: TypeAlias = Annotated[float, _Quantity("length", positive=True)]
Density: TypeAlias = Annotated[float, _Quantity("density", positive=True)]
Power: TypeAlias = Annotated[float, _Quantity("power", positive=True)]
Rate: TypeAlias = Annotated[float, _Quantity("rate", positive=True)]
Share: TypeAlias = Annotated[float, _Quantity("share", positive=True)]


def _scaled(
    value: float, units: Sequence[tuple[float, str]], digits: int, beyond: Sequence[tuple[float, str]] = ()
) -> str:
    value = _steady(value)
    scale, unit = next((u for u in units if abs(value) >= u[0] * (1 - 0.5 * 10**-digits)), units[-1])
    if beyond and abs(value) >= scale * (10**digits - 0.5):
        scale, unit = next(u for u in (*beyond, (scale, unit)) if abs(value) >= u[0])
    return f"{_steady(value / scale):.{digits}g} {unit}"


def _steady(value: float) -> float:
    """Return *value* rounded to 12 digits, so that the order of additions does not show."""
    return float(f"{value:.12g}")


DURATIONS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
BANDWIDTHS = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_FAST = ((1e18, "EB/s"), (1e15, "PB/s"), (1e12, "TB/s"))
_LARGE = ((1e18, "EB"), (1e15, "PB"))
_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_MANY_S = 9999.5  # above it, four digits of seconds would need an exponent


def format_duration(seconds: float, digits: int = 4) -> str:
    """Return *seconds* as text, for example ``5.185 ms``."""
    if seconds == 0:
        return "0 s"
    if abs(seconds) >= _MANY_S:
        hours = seconds / 3600.0
        return f"{hours:,.0f} h" if abs(hours) >= 10**digits else f"{hours:.{digits}g} h"
    return _scaled(seconds, DURATIONS, digits)


def format_bandwidth(bytes_per_s: float, digits: int = 4) -> str:
    """Return *bytes_per_s* as text, for example ``54 GB/s``."""
    return _scaled(bytes_per_s, BANDWIDTHS, digits, _FAST)


def format_size(n_bytes: float, digits: int = 4) -> str:
    """Return *n_bytes* as text, for example ``160 MB``."""
    return _scaled(n_bytes, SIZES, digits, _LARGE)


def format_binary(n_bytes: float, digits: int = 4) -> str:
    """Return *n_bytes* in the largest binary unit that it reaches, for example ``4 MiB``."""
    reached = ((scale, unit) for scale, unit in _BINARY if n_bytes >= scale)
    scale, unit = next(reached, (1, "B"))
    number = n_bytes / scale
    return f"{number:.{digits}g} {unit}" if number < 1000 else f"{number:.0f} {unit}"


def format_capacity(n_bytes: float) -> str:
    """Return the size of a memory as its label and as decimals, for example ``24 GiB (25.8 GB)``."""
    return f"{n_bytes / 2**30:.3g} GiB ({format_size(n_bytes, 3)})"
