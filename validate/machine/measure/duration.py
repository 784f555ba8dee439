"""Parse durations, fractions and bucket sizes of options; standard library only, for use on compute nodes."""

import re

_BYTES = {"B": 1, "kB": 10**3, "KiB": 1 << 10, "MB": 10**6, "MiB": 1 << 20, "GB": 10**9, "GiB": 1 << 30}
_UNITS = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}


def duration_s(text: str) -> float:
    """Return the duration *text* (``120``, ``120s``, ``2min``, ``1h``) in seconds; raises ValueError on others."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise ValueError(f"a time such as 120s or 2min is needed; got '{text[:60]}'")
    return float(found[1]) * _UNITS[found[2]]


def fraction(text: str) -> float:
    """Return the fraction *text* (``1%`` or ``0.01``); raises ValueError unless between 0 and 1."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(%?)\s*", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value < 1:
        raise ValueError(f"a part such as 1% or 0.01 is needed; got '{text[:60]}'")
    return value


def bucket_bytes(text: str) -> int:
    """Return the bucket size *text* (``bucket:25MiB``, ``bucket:10MB``) in bytes; raises ValueError."""
    found = re.fullmatch(r"bucket:\s*([0-9]+(?:\.[0-9]+)?)\s*(B|kB|KiB|MB|MiB|GB|GiB)", text.strip())
    if found is None or not float(found[1]):
        raise ValueError(f"--overlap: a size such as bucket:25MiB is needed; got '{text[:60]}'")
    return round(float(found[1]) * _BYTES[found[2]])
