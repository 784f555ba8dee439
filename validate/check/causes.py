"""What may make an exchange slow, each as the question that it changes: :func:`causes_of`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from simulator.api import Session
from simulator.api.faulty import faulty_machines, fewer_links, narrower_pcie
from simulator.errors import InputError
from simulator.questions.collective import SENDING, Algorithm, CollectiveQuestion, Protocol
from simulator.questions.nccl import version_words
from simulator.questions.where import NCCL_TODAY, SlowLink
from simulator.topology import Topology

MOST_CAUSES = 22  # approximate number, for progress bars
_ALGORITHMS: tuple[Algorithm, ...] = ("ring", "tree", "nvls")
_PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
_HALF = 0.5  # a card in a slot of half the width, which NCCL knows where it is on PCIe
_ERAS = ((2, 18), NCCL_TODAY)


def causes_of(
    session: Session, topology: Topology, question: CollectiveQuestion, fixed: Collection[str]
) -> Iterator[tuple[str, CollectiveQuestion]]:
    """Yield possible causes in words, with the question on such a machine or with such a choice.

    *topology* is the question's machine.  *fixed* are the settings that the log shows, and ``version`` if it names its
    NCCL: what they decide is no cause.
    """
    for faulty in faulty_machines(topology):
        left = [reason for reason in faulty.reasons if reason not in fixed]
        if left and not faulty.decided_by & set(fixed):
            yield from _there(session, question, f"{faulty.what} ({', '.join(left)})", faulty.topology, ())
    for words, link, there in _slow_links(session, question):
        ends, narrow = link.ends.split("-"), topology
        if there is not None:
            narrow = fewer_links(topology, round(link.factor * there), ends)
        elif link.factor == _HALF:
            narrow = narrower_pcie(topology, link.factor, ends)
        yield from _there(session, question, words, narrow, (link,) if narrow == topology else ())
    for decided_by, words, asked in (*_choices(question), *_versions(question)):
        if not decided_by & set(fixed):
            yield words, asked


def _choices(question: CollectiveQuestion) -> Iterator[tuple[set[str], str, CollectiveQuestion]]:
    """Yield what NCCL may choose otherwise: the settings that decide it, words, and the question with that choice."""
    if question.collective in SENDING:
        return
    if question.nvls:
        words = "NVLS off (NCCL_NVLS_ENABLE, no multicast memory)"
        yield {"NCCL_NVLS_ENABLE", "NCCL_ALGO"}, words, replace(question, nvls=False)
    for algorithm in _ALGORITHMS:
        words = f"the algorithm {algorithm} (NCCL_ALGO, a tuner's choice)"
        yield {"NCCL_ALGO"}, words, replace(question, algorithm=algorithm)
    for protocol in _PROTOCOLS:
        words = f"the protocol {protocol} (NCCL_PROTO, a tuner's choice)"
        yield {"NCCL_PROTO"}, words, replace(question, protocol=protocol)


def _versions(question: CollectiveQuestion) -> Iterator[tuple[set[str], str, CollectiveQuestion]]:
    """Yield other versions of NCCL, as :func:`_choices` yields choices."""
    for version in _ERAS:
        if version != question.software.nccl:
            words = f"NCCL {version_words(version)} in place of {version_words(question.software.nccl)}"
            yield {"version"}, words, replace(question, software=replace(question.software, nccl=version))


def _there(
    session: Session, question: CollectiveQuestion, words: str, topology: Topology, links: tuple[SlowLink, ...]
) -> Iterator[tuple[str, CollectiveQuestion]]:
    """Yield *question* on *topology* with slow *links*, unless there can be no such machine."""
    where = replace(question.where, topology=f"{question.where.topology} with {words}", slow_links=links)
    session.know(where, topology)
    try:
        session.machine(where)
    except InputError:
        return
    yield words, replace(question, where=where)


def _slow_links(session: Session, question: CollectiveQuestion) -> Iterator[tuple[str, SlowLink, int | None]]:
    """Yield a slow or missing link of each kind at GPUs and adapters; other links of a kind have the same effect.

    Each has a number if it is the share of so many parallel links that is left.
    """
    machine = session.machine(question.where)
    seen = set()
    for link in machine.links:
        first, second = machine.nodes[link.src], machine.nodes[link.dst]
        kinds = first.kind, second.kind
        ends = f"{first.name}-{second.name}"
        if first.host != 0 or (*kinds, link.kind, link.count) in seen:
            continue
        if kinds == ("gpu", "gpu"):
            yield f"the links of two GPUs down, as {ends}", SlowLink(ends, 0.0), None
            if down := link.count // 2:
                words = f"{down} of the {link.count} links of two GPUs down, as {ends}"
                yield words, SlowLink(ends, 1.0 - down / link.count), link.count
        elif kinds == ("gpu", "nvlink-switch"):
            yield f"half of the links of one GPU down, as {ends}", SlowLink(ends, 0.5), None
        elif kinds in (("nic", "network-switch"), ("gpu", "pcie-switch"), ("gpu", "cpu")):
            yield f"one link at half of its rate, as {ends}", SlowLink(ends, _HALF), None
            yield f"one link at a quarter of its rate, as {ends}", SlowLink(ends, 0.25), None
        else:
            continue
        seen.add((*kinds, link.kind, link.count))
