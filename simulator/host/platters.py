"""The platters of a spinning disk: the capacity of a track, and the speed of outer tracks relative to inner ones.

Bits are equally dense on all tracks, so a track's capacity is proportional to its length, and it passes the head in
one turn: bandwidth is proportional to the diameter (zoned recording).  With an areal density of D and tracks that are
``bit_aspect`` times as wide as a bit is long, the linear density is sqrt(D bit_aspect).  Sector gaps, servo marks and
codes are not subtracted.
"""

from __future__ import annotations

from math import pi, sqrt

from simulator.errors import InputError
from simulator.questions.single import Track
from simulator.topology.parts import StoragePart

_BITS = 8


def track_figures(disk: StoragePart) -> dict[str, float]:
    """Return the seconds of a turn and of half a turn and, where known, the bytes of the outer and inner tracks."""
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
    """Return the bandwidth on *track* relative to the part's, which data sheets state for the outermost track.

    1 where no track is named.  Raises InputError where the part does not give the diameters of its tracks.
    """
    if not track:
        return 1.0
    if not disk.outer_track or not disk.inner_track:
        raise InputError(f"track={track} needs a disk whose part has outer_track and inner_track, their diameters")
    return disk.inner_track / disk.outer_track if track == "inner" else 1.0
