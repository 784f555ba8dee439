"""Measured links against what the machine's links should carry: :func:`checked_links`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from simulator.api import Session
from simulator.api.faulty import ADAPTERS, SLOTS
from simulator.console.style import PLAIN, Style
from simulator.errors import InputError
from simulator.questions.single import CopyQuestion
from simulator.questions.where import Where
from simulator.results import taken
from simulator.topology.parts import NicPart
from validate.check.pace import healthy_range
from validate.importing.other_tests import LinkFigure

_OF_LINE_RATE = 0.9
"""Least healthy share of what an adapter carries; perftest reaches 0.92 to 0.99 of the line rate."""


class CheckedLink(NamedTuple):
    """A figure, what the machine should carry there, and the least that is healthy, in B/s."""

    figure: LinkFigure
    expected_Bps: float
    least_Bps: float

    @property
    def is_slow(self) -> bool:
        """Whether it carries less than is healthy."""
        return self.figure.measured_Bps < self.least_Bps

    @property
    def words(self) -> str:
        """What was measured."""
        src, dst = self.figure.src, self.figure.dst
        return {
            "adapter": f"adapter {src}",
            "h2d": f"host to GPU {src}",
            "d2h": f"GPU {src} to host",
            "p2p": f"GPU {src} to GPU {dst}",
        }[self.figure.kind]


def checked_links(session: Session, where: Where, figures: Iterable[LinkFigure]) -> tuple[CheckedLink, ...]:
    """Return *figures* with what *where* should carry; raises InputError if it has no such GPU or adapter."""
    parts = [node.part for node in session.machine(where).nodes_of(0)]
    rates = [part.bandwidth * part.efficiency for part in parts if isinstance(part, NicPart)]
    found = []
    for figure in figures:
        kind, size_bytes = figure.kind, float(figure.size_bytes)
        if kind == "adapter":
            if not rates:
                raise InputError("the topology has no adapter, of which ib_write_bw measured one")
            rate = rates[figure.src % len(rates)]  # adapters that NCCL does not use are numbered too
            found.append(CheckedLink(figure, rate, _OF_LINE_RATE * rate))
            continue
        dst = figure.dst if kind == "p2p" else 0
        asked = CopyQuestion(where=where, kind=kind, size_bytes=size_bytes, src=figure.src, dst=dst)
        expected = size_bytes / session.time_s(asked)
        slowest = max(1.0, healthy_range(session.composed(asked)).slowest)
        found.append(CheckedLink(figure, expected, expected / slowest))
    return tuple(found)


def sound(session: Session, where: Where, links: Sequence[CheckedLink]) -> frozenset[str]:
    """Return what *links* show to be as fast as it should: where every one was measured, and none is slow."""
    nodes = session.machine(where).nodes_of(0)
    found = set()
    for what, kinds, kind in ((ADAPTERS, ("adapter",), "nic"), (SLOTS, ("h2d", "d2h"), "gpu")):
        mine = [link for link in links if link.figure.kind in kinds]
        count = sum(node.kind == kind for node in nodes)
        if len({link.figure.src for link in mine}) >= count > 0 and not any(link.is_slow for link in mine):
            found.add(what)
    return frozenset(found)


def links_document(links: Sequence[CheckedLink]) -> dict[str, Any]:
    """Return *links* as plain data for JSON, in bytes and B/s."""
    figures = "expected_Bps healthy_from_Bps=least_Bps is_slow"
    return {"links": [{**link.figure._asdict(), **taken(link, figures)} for link in links]}


def links_text(links: Sequence[CheckedLink], style: Style = PLAIN) -> str:
    """Return *links* in words, for an answer of links alone."""
    return "".join(f"{part}\n" for line in links_words(links) for part in style.at_most(80).wrap(line, hang=2))


def links_words(links: Sequence[CheckedLink]) -> list[str]:
    """Return what is slow among *links*, the slowest first, and that the others are as expected."""
    slow = [(link.figure.measured_Bps / link.expected_Bps, link) for link in links if link.is_slow]
    lines = [
        f"{link.words}: {link.figure.measured_Bps / 1e9:.3g} GB/s, where {link.expected_Bps / 1e9:.3g} is expected"
        for _, link in sorted(slow, key=lambda each: each[0])
    ]
    fine = len(links) - len(slow)
    of = f"{fine} of {len(links)} measured link{'s' if len(links) > 1 else ''} as expected"
    return [*lines, *([of] if fine else [])]
