"""Tables of copies: between host and device, within one, between two; one way or both at once.

A row's rate counts bytes copied once, of copies both ways at once the sum of both; the tests of NVIDIA's samples
count memory that is read and written within one device twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from simulator.devices.calibration import Calibration
from simulator.errors import one_line
from validate.microbench.cells import Cell, measured_s, size_bytes
from validate.microbench.copying import CopyKind, CopyPredictor, CopyQuery
from validate.microbench.scorer import FunctionScorer
from validate.score.kind import Kind
from validate.score.machines import MachineBook
from validate.score.query import NotScored, number

__all__ = ["COPIES", "copy_scorer", "read_copy"]

_COLUMNS = ("machine", "kind", "src", "dst", "bytes", "pinned", "engine", "software", "note")
COPIES = Kind(
    name="copies",
    needed=("machine", "kind", "src", "dst", "bytes"),
    asked=_COLUMNS,
    measured=("gbps", "time_s"),
    place="machine",
    axes=(("kind",), ("kind", "pinned"), ("decade",), ("machine",), ("machine", "kind")),
    shown=(("kind", "pinned"), ("decade",), ("machine",)),
    labels=("machine", "kind", "decade"),
    baseline="data sheet",
    baseline_label="data sheet",
    legend="data sheet: bytes over the nominal rate of the slowest link or memory on the way",
)
_KINDS: dict[str, tuple[CopyKind, bool]] = {
    "h2d": ("h2d", False),
    "d2h": ("d2h", False),
    "d2d": ("d2d", False),
    "h2h": ("h2h", False),
    "p2p": ("p2p", False),
    "bidir": ("h2d", True),
    "d2d_bidir": ("d2d", True),
    "p2p_bidir": ("p2p", True),
    "overlap_h2d": ("h2d", False),
    "overlap_d2h": ("d2h", False),
}
_DEVICE = re.compile(r"(?:cuda:|gpu)?(\d{1,4})", re.IGNORECASE | re.ASCII)
_BETWEEN = re.compile(r"gpu(\d{1,3})_(?:to|and)_gpu(\d{1,3})(?:_|$)", re.ASCII)
_THREADS = re.compile(r"([1-9]\d{0,3}) threads?", re.ASCII)
_COUNTS_TWICE = re.compile(r"bandwidthTest|p2pBandwidthLatencyTest", re.ASCII)
_STAGED = re.compile(r"p2p disabled|through host memory", re.IGNORECASE | re.ASCII)
_WAITED = re.compile(r"rocm_bandwidth_test", re.ASCII)


def read_copy(cell: Cell) -> CopyQuery:
    """Return what a row asks; raises NotScored where it is incomplete or asks for what is not modelled."""
    kind_text, note, software = cell("kind").lower(), cell("note"), cell("software")
    if kind_text not in _KINDS:
        raise NotScored(f"no model of copies of kind {one_line(kind_text, 30) or 'none'}")
    if kind_text.startswith("overlap") and note != "copy alone":
        raise NotScored("work beside a copy, made as long as the copy was measured to take")
    if "gpu_all" in note:
        raise NotScored("copies between one GPU and all others at once")
    kind, both = _KINDS[kind_text]
    src, dst = _ends(cell, kind, kind_text, note)
    if src != dst and kind == "h2d" and both:
        kind = "p2p"
    if cell("engine").lower() == "sm" and (kind == "d2h" or (kind == "h2d" and both)):
        raise NotScored("a kernel that writes to host memory")
    size = size_bytes(cell)
    said = _THREADS.search(note)
    twice = kind == "d2d" and _COUNTS_TWICE.search(f"{software} {note}")
    return CopyQuery(
        machine=cell("machine"),
        kind=kind,
        src=src,
        dst=dst,
        bytes=size,
        both_ways=both,
        pinned=cell("pinned") != "0",
        staged=_STAGED.search(note) is not None,
        waited=_WAITED.search(software) is not None,
        threads=int(said[1]) if said and kind == "h2h" else None,
        counted_bytes=size * (2 if both or twice else 1),
    )


def _ends(cell: Cell, kind: CopyKind, kind_text: str, note: str) -> tuple[int, int]:
    """Return the GPUs of a copy; the host counts as the other end's."""
    named = _BETWEEN.search(note)
    if named and not cell("src") and not cell("dst"):
        return int(named[1]), int(named[2])
    found = []
    for column in ("src", "dst"):
        text = cell(column)
        if text.lower() in ("", "host", "cpu"):
            continue
        number = _DEVICE.fullmatch(text)
        if number is None:
            raise NotScored(f"{column} '{one_line(text, 20)}' is neither host nor a GPU such as cuda:0")
        found.append(int(number[1]))
    if not found:
        return (0, 1) if kind == "p2p" else (0, 0)
    if kind == "p2p" and len(found) < 2:
        raise NotScored(f"{one_line(kind_text, 20)} needs two GPUs")
    return found[0], found[-1]


def copy_scorer(book: MachineBook, calibrations: Mapping[str, Calibration] | None = None) -> FunctionScorer:
    """Return the scorer of tables of copies on the machines of *book*, with *calibrations* by part."""
    predictor = CopyPredictor(book, calibrations)
    needed = tuple(column for column in COPIES.needed if column != "machine" or book.needs_names)
    return FunctionScorer(
        kind=replace(COPIES, needed=needed),
        method="routes of the machine, run by the engine",
        reader=read_copy,
        predict=predictor.time_s,
        baseline=predictor.data_sheet_s,
        measured=_measured,
        check_names=book.check_used,
        labelled=_labels,
    )


def _measured(cell: Cell) -> float:
    if not cell("bytes") and not cell("gbps"):
        raise NotScored("a latency, and no size")
    return measured_s(cell, read_copy(cell).counted_bytes)


def _labels(cell: Cell) -> dict[str, str]:
    try:
        size = number("bytes", cell("bytes"))
    except NotScored:
        return {}
    return {"decade": f"1e{Decimal(repr(size)).adjusted()}"}
