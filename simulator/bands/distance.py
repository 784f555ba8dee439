"""Distance of a question from the measurements: a state that sets the width of its band, and words for the reader."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from simulator.bands.evidence import Evidence, Seen

Kind = Literal["operator", "step", "collective", "host"]
State = Literal["calibrated", "seen", "unseen", "outside", "unmeasured"]
"""Calibrated device; place with measured rows; other place of a measured generation or kind; anything else.

Unmeasured: it or its kernels are of a kind with too few rows, so that nothing is known of its error.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The properties of an answer that determine its distance from the evidence.

    ``place`` is the computing part, a collective's machine, or the place of a host's answer.  ``generation`` is that of
    the GPUs, or ``cpu``.  ``form`` is the format of matrix products.  ``what`` is the collective, or the kind of a
    host's answer.  ``network`` is a step's network.  ``ranks`` is the number of participants; ``way`` is ``one``,
    ``several`` or ``divided`` for steps, and ``node`` or ``nodes`` for collectives.  ``unmeasured`` describes in words
    an aspect of which too few rows were measured for a class of errors.  ``kernels`` are the classes of its kernels,
    ``exchange`` the exchanges of a step, as one collective: what lies outside in a part does so in the whole.
    """

    kind: Kind
    place: str
    generation: str = ""
    form: str = ""
    what: str = ""
    network: str = ""
    way: str = ""
    ranks: int = 1
    calibrated: bool = False
    unmeasured: str = ""
    kernels: tuple[str, ...] = ()
    exchange: Facts | None = None

    @property
    def scale(self) -> str:
        """The key under which the largest measured number of ranks is kept."""
        return " ".join(filter(None, (self.what, self.way)))


def distance(facts: Facts, known: Evidence) -> tuple[State, tuple[str, ...]]:
    """Return the state of *facts* relative to what is *known*, and the aspects that no measurement covers."""
    seen = known.seen
    strange = [facts.unmeasured] if facts.unmeasured else []
    lacking = [name for name in facts.kernels if not known.has_kernels(name, in_step=facts.kind == "step")]
    strange += [f"no measured {name} kernels" for name in lacking]
    outside = list(strange)
    if facts.exchange is not None and facts.exchange.unmeasured:
        outside.append(facts.exchange.unmeasured)
    if facts.exchange is not None:
        outside += _beyond_collectives(facts.exchange, seen, (*seen.linked, *seen.exchanging))
    if facts.kind == "host":
        places = seen.hosts.get(facts.what)
        if places is None:
            outside.append(f"no measured {facts.what}")
        state: State = "seen" if places and facts.place in places else "unseen"
        return ("outside" if outside else state), tuple(outside)
    if facts.kind == "collective":
        outside += _beyond_collectives(facts, seen, seen.linked)
        state = "seen" if facts.place in seen.machines else "unseen"
    else:
        state, of_device = _of_device(facts, seen)
        outside += of_device
        most = seen.gpus.get(facts.scale, 0)
        if facts.kind == "step" and facts.ranks > max(1, most):
            what = "step whose network is divided" if facts.way == "divided" else "step"
            outside.append(f"no measured {what} over more than {most:,} GPUs" if most else f"no measured {what}")
    return ("unmeasured" if strange else "outside" if outside else state), tuple(outside)


def _of_device(facts: Facts, seen: Seen) -> tuple[State, list[str]]:
    """Return the state of the device, and its aspects that no measurement covers."""
    forms = seen.generations.get(facts.generation)
    outside = []
    if forms is None:
        outside.append(f"no measured device of generation {facts.generation or 'unknown'}")
    elif facts.form not in forms:
        of = "CPU" if facts.generation == "cpu" else f"device of generation {facts.generation}"
        outside.append(f"no measured {facts.form} on a {of}")
    if facts.calibrated:
        return "calibrated", []
    return ("seen" if facts.form in seen.devices.get(facts.place, ()) else "unseen"), outside


def _beyond_collectives(facts: Facts, seen: Seen, linked: Collection[str]) -> list[str]:
    """Return the aspects of a collective that no row covers: its kind, its scale, or its GPUs, unless *linked*."""
    where = "between nodes" if facts.way == "nodes" else "inside a node"
    most = seen.collectives.get(facts.scale)
    if most is None:
        return [f"no measured {facts.what} {where}"]
    found = []
    if facts.ranks > most:
        found.append(f"no measured {facts.what} {where} over more than {most:,} GPUs")
    if facts.generation not in linked:
        found.append(f"no measured collective on GPUs of generation {facts.generation or 'unknown'}")
    return found
