"""How certain an answer is: its band, what lies outside the measurements, and what would narrow the band."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from simulator.bands.band import LEVEL, Band, band_of
from simulator.bands.composition import Composition, Estimate, estimate
from simulator.bands.distance import Kind, distance
from simulator.bands.evidence import Evidence, evidence
from simulator.units import format_duration

__all__ = ["BAND_HEAD", "Confidence", "band_words", "confidence_of", "of_a_bound"]

BAND_HEAD = f"{100 * LEVEL:.0f} % band"
# The command that measures an answer of this kind, or its parts, on the user's machine.
_NARROWED = {
    "operator": "validate run --only ops and validate calibrate",
    "step": "validate run --workload with this step",
    "collective": "validate run --only collectives",
    "copy": "validate run --only copies",
    "access": "validate run --only memory",
    "launch": "validate run --only launch",
}
_KERNELS = {"gemm": "matrix products", "convolution": "convolutions", "streaming": "elementwise kernels"}
_KERNELS |= {"rowwise": "norms and softmax", "pooling": "pooling", "gather": "look-ups"}
_KERNELS |= {"recurrence": "recurrent layers", "fusedattention": "attention kernels"}
_HOST = {"access": "memory accesses", "copy": "copies", "launch": "launches"}
_BOUNDS = {"compute": "arithmetic", "memory": "memory", "latency": "latency"}


@dataclass(frozen=True, slots=True)
class Confidence:
    """The band of an answer, None if nothing similar was measured; ``outside``: what no measured row covers.

    ``estimate`` says how wide the band is in logarithms, and why; ``narrowed`` is the command that would narrow it.
    """

    band: Band | None
    outside: tuple[str, ...]
    estimate: Estimate | None
    narrowed: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {"band": None if self.band is None else asdict(self.band), "outside": list(self.outside)}

    @property
    def why(self) -> str:
        """Why the band is this wide, and what would narrow it; empty without a band."""
        found = self.estimate
        if found is None:
            return ""
        half = (found.high - found.low) / 2
        rows = f"{found.rows:,} rows on {found.places} {'place' if found.places == 1 else 'places'}"
        text = f"band of {100 * half:.0f} % either way, mostly from {_class_words(found.widest)} ({rows})"
        return f"{text}; {self.narrowed} narrows it" if self.narrowed else text


def confidence_of(time_s: float, composition: Composition, known: Evidence | None = None) -> Confidence:
    """Return how certain *time_s* is for an answer composed as in *composition*."""
    known = known or evidence()
    _, outside = distance(composition.facts, known.seen)
    found = estimate(composition, known) if time_s > 0.0 else None
    band = None if found is None else band_of(time_s, found.low, found.high)
    return Confidence(band, outside, found, _narrowed(composition.facts.kind, composition.facts.what))


def of_a_bound() -> Confidence:
    """Return that of an ideal schedule: a lower bound, which has no band."""
    return Confidence(None, (), None, "")


def _class_words(name: str) -> str:
    """Return a class of errors in words."""
    head, *rest = name.split()
    if head == "kernel":
        what = f"errors of {_KERNELS.get(rest[0], rest[0]) if rest else 'kernels'}"
        bound = next((word for word in rest[1:] if word in ("compute", "memory", "latency")), "")
        return f"{what} bound by {_BOUNDS[bound]}" if bound else what
    if head == "step":
        return "time outside kernels"
    if head == "collective":
        words = {"small": "below 1 MiB", "large": "from 1 MiB", "node": "inside a node", "nodes": "between nodes"}
        return " ".join(["errors of collectives", *(words[word] for word in rest if word in words)])
    what = _HOST.get(head, head)
    return f"errors of {what} ({' '.join(rest)})" if rest else f"errors of {what}"


def _narrowed(kind: Kind, what: str) -> str:
    return _NARROWED.get(what if kind == "host" else kind, "")


def band_words(band: Band | None) -> str:
    """Return a band in a few words: 84 to 112 ms."""
    if band is None:
        return "-"
    low, high = format_duration(band.low_s, 3), format_duration(band.high_s, 3)
    unit = high.rpartition(" ")[2]
    return f"{low.removesuffix(' ' + unit)} to {high}"
