"""Which values switch a setting on or off, the same in launch lines and in configuration files."""

from __future__ import annotations

_ON = frozenset(("true", "1", "yes", "y", "t", "on"))
_OFF = frozenset(("none", "null", "false", "0", "no", "n", "f", "off", "0.0", ""))


def is_on(value: object) -> bool:
    """Return whether *value* says yes (``true``, ``1``, ``yes``)."""
    return str(value).lower() in _ON


def is_off(value: object) -> bool:
    """Return whether a setting with *value* does nothing (``none``, ``false``, ``0``)."""
    return str(value).lower() in _OFF


def divides(value: object) -> bool:
    """Return whether *value* is a size of a group: one of 1 rank divides nothing, and -1 and ``auto`` name none."""
    return not is_off(value) and str(value).lower() not in ("1", "-1", "auto")
