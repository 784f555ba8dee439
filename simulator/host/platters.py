"""The platters of a disk that turns: what a track holds, and how much faster outer tracks are than inner ones.

Bits lie equally close on all tracks, so a track holds as much as it is long, and all pass the head in one turn: a disk
gives in proportion to the diameter (zoned recording).  With D bits on an area and tracks that are ``bit_aspect`` times
as wide as a bit is long, a length holds sqrt(D bit_aspect) bits.  Sectors' gaps, servo marks and codes are not taken
off.
"""

from __future__ import annotations

from math import pi, sqrt

from simulator.errors import InputError
from simulator.questions.disk import Track
from simulator.topology.parts import StoragePart

__all__ = ["track_figures", "track_share"]

_BITS = 8


def track_figures(disk: StoragePart) -> dict[str, float]:
    """Return the seconds of a turn and half of one, and the bytes of the outermost and innermost track where known."""
    if not disk.rpm:
        return {}
    figures = {"half_turn_s": 30.0 / disk.rpm, "turn_s": 60.0 / disk.rpm}
    if disk.areal_density and disk.bit_aspect:
        bytes_per_m = sqrt(disk.areal_density * disk.bit_aspect) / _BITS
        for name, diameter_m in (("outer", disk.outer_track), ("inner", disk.inner_track)):
            if diameter_m:
                figures[f"{name}_track_bytes"] = pi * diameter_m * bytes_per_m
    return figures


def track_share(disk: StoragePart, track: Track) -> float:
    """Return what *track* gives of the part's bandwidth, which data sheets say of the outermost; 1 where none is named.

    Raises InputError where the part does not say how large its tracks are.
    """
    if not track:
        return 1.0
    if not disk.outer_track or not disk.inner_track:
        raise InputError(f"track={track} needs a disk whose part has outer_track and inner_track, their diameters")
    return disk.inner_track / disk.outer_track if track == "inner" else 1.0
