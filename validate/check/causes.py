"""What may make an exchange slow, each as the question that it changes: :func:`causes_of`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from simulator.api import Session
from simulator.api.faulty import faulty_machines
from simulator.errors import InputError
from simulator.network.circumstances import machine_of
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import NCCL_TODAY, SlowLink
from simulator.topology.topology import Topology

__all__ = ["MOST_CAUSES", "causes_of"]

MOST_CAUSES = 19  # approximate number, for progress bars
_ALGORITHMS = ("ring", "tree", "nvls")
_PROTOCOLS = ("LL", "LL128", "Simple")
_ERAS = ((2, 18), NCCL_TODAY)


def causes_of(
    session: Session, topology: Topology, question: CollectiveQuestion, fixed: Collection[str]
) -> Iterator[tuple[str, CollectiveQuestion]]:
    """Yield possible causes in words, with the question on such a machine or with such a choice.

    *topology* is the question's machine.  *fixed* are the settings that the log shows, and ``version`` if it names its
    NCCL: what they decide is no cause.
    """
    where = question.where
    for words, changed in faulty_machines(topology):
        left = _unless_fixed(words, fixed)
        if left:
            yield from _there(session, question, left, changed, ())
    for words, link in _slow_links(session, question):
        yield from _there(session, question, words, topology, (link,))
    if question.in_switch and not {"NCCL_NVLS_ENABLE", "NCCL_ALGO"} & set(fixed):
        yield "NVLS off (NCCL_NVLS_ENABLE, no multicast memory)", replace(question, reduction="prod")  # in no switch
    for algorithm in () if "NCCL_ALGO" in fixed else _ALGORITHMS:
        yield f"the algorithm {algorithm} (NCCL_ALGO, a tuner's choice)", replace(question, algorithm=algorithm)
    for protocol in () if "NCCL_PROTO" in fixed else _PROTOCOLS:
        yield f"the protocol {protocol} (NCCL_PROTO, a tuner's choice)", replace(question, protocol=protocol)
    for version in () if "version" in fixed else _ERAS:
        if version != question.software.nccl:
            words = f"NCCL {version[0]}.{version[1]} in place of {'.'.join(map(str, question.software.nccl))}"
            yield words, replace(question, where=where, software=replace(question.software, nccl=version))


def _unless_fixed(words: str, fixed: Collection[str]) -> str:
    """Return *words* without the reasons in brackets that *fixed* rules out; empty if a setting decides all of it."""
    what, _, reasons = words.rstrip(")").partition(" (")
    if "NCCL_IB_HCA" in fixed and "NCCL_IB_HCA" in reasons:
        return ""
    left = [each for each in reasons.split(", ") if each not in fixed]
    return f"{what} ({', '.join(left)})" if left else ""


def _there(
    session: Session, question: CollectiveQuestion, words: str, topology: Topology, links: tuple[SlowLink, ...]
) -> Iterator[tuple[str, CollectiveQuestion]]:
    """Yield *question* on *topology* with slow *links*, unless there can be no such machine."""
    where = replace(question.where, topology=f"{question.where.topology} with {words}")
    try:
        session.know(where, machine_of(topology, links))
    except InputError:
        return
    yield words, replace(question, where=where)


def _slow_links(session: Session, question: CollectiveQuestion) -> Iterator[tuple[str, SlowLink]]:
    """Yield a slow or missing link of each kind at GPUs and adapters; other links of a kind have the same effect."""
    machine = session.machine(question.where)
    seen = set()
    for link in machine.links:
        first, second = machine.nodes[link.src], machine.nodes[link.dst]
        kinds = first.kind, second.kind
        ends = f"{first.name}-{second.name}"
        if first.host != 0 or (*kinds, link.kind, link.count) in seen:
            continue
        if kinds == ("gpu", "gpu"):
            yield f"the links of two GPUs down, as {ends}", SlowLink(ends, 0.0)
        elif kinds == ("gpu", "nvlink-switch"):
            yield f"half of the links of one GPU down, as {ends}", SlowLink(ends, 0.5)
        elif kinds in (("nic", "network-switch"), ("gpu", "pcie-switch"), ("gpu", "cpu")):
            yield f"one link at a quarter of its rate, as {ends}", SlowLink(ends, 0.25)
        else:
            continue
        seen.add((*kinds, link.kind, link.count))
