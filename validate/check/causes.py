"""What may make an exchange slow (:func:`causes_of`), and what NCCL's settings change (:func:`setting_effects`).

A cause is the question that it changes; settings are those of a log, and others that would gain time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from simulator.api import Session
from simulator.api.variants import LogQuestion, faulty_machines, fewer_links, narrower_pcie
from simulator.bands import evidence
from simulator.bands.composition import estimate
from simulator.errors import InputError
from simulator.questions.collective import SENDING, Algorithm, CollectiveQuestion, Protocol
from simulator.questions.nccl import version_words
from simulator.questions.where import NCCL_TODAY, SlowLink
from simulator.records import replace
from simulator.topology import Topology
from validate.check.pace import SizeComparison

MOST_CAUSES = 34  # approximate number, for progress bars
_ALGORITHMS: tuple[Algorithm, ...] = ("ring", "tree", "nvls")
_PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
_HALF = 0.5  # a card in a slot of half the width, which NCCL knows where it is on PCIe
_ERAS = ((2, 18), NCCL_TODAY)
_CHOICE = "'Algo' and 'proto' of NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING"
_RATES = ((0.5, "half"), (0.25, "a quarter"), (0.125, "an eighth"))


SHOWN = ", as NCCL reports"
"""How words of a cause end that the log shows to be there."""


class Cause(NamedTuple):
    """A possible cause in words, the question on such a machine or with such a choice, and what would show it.

    ``is_fault``: whether something is amiss, and NCCL does not only choose otherwise than predicted.
    """

    words: str
    question: CollectiveQuestion
    measure: str
    is_fault: bool = True


def causes_of(
    session: Session, topology: Topology, question: CollectiveQuestion, fixed: Collection[str]
) -> Iterator[Cause]:
    """Yield possible causes.

    *topology* is the question's machine.  *fixed* are the settings that the log shows, ``version`` if it names its
    NCCL, and what NCCL reports of its transports: what they decide is no cause.
    """

    def there(words: str, topology: Topology, links: tuple[SlowLink, ...], measure: str) -> Iterator[Cause]:
        """Yield *question* on *topology* with slow *links*, unless there can be no such machine."""
        where = replace(question.where, topology=f"{question.where.topology} with {words}", slow_links=links)
        session.know(where, topology)
        with suppress(InputError):
            session.machine(where)
            yield Cause(words, replace(question, where=where), measure)

    for faulty in faulty_machines(topology):
        left = [reason for reason in faulty.reasons if reason not in fixed]
        if left and not faulty.decided_by & set(fixed):
            shown = any(f"no {each}" in fixed for each in faulty.decided_by)
            words = f"{faulty.what} ({', '.join(left)}){SHOWN if shown else ''}"
            yield from there(words, faulty.topology, (), faulty.measure)
    for words, links, left_of, measure in _slow_links(session, question):
        link, narrow = links[0], topology
        ends = link.ends.split("-")
        if left_of is not None:
            narrow = fewer_links(topology, round(link.factor * left_of), ends)
        elif link.factor == _HALF and len(links) == 1:
            narrow = narrower_pcie(topology, link.factor, ends)
        yield from there(words, narrow, links if narrow == topology else (), measure)
    for decided_by, cause in _choices(question):
        if not decided_by & set(fixed):
            yield cause


def _choices(question: CollectiveQuestion) -> Iterator[tuple[set[str], Cause]]:
    """Yield what NCCL may choose otherwise, with the settings that decide it, and other versions of it."""
    if question.nvls and question.collective not in SENDING:
        words = "NVLS off (NCCL_NVLS_ENABLE, no multicast memory)"
        shown = "'NVLS multicast support' of NCCL_DEBUG=INFO, the fabric manager's state"
        yield {"NCCL_NVLS_ENABLE", "NCCL_ALGO", "NVLS"}, Cause(words, replace(question, nvls=False), shown)
    for field, setting, ways in (("algorithm", "NCCL_ALGO", _ALGORITHMS), ("protocol", "NCCL_PROTO", _PROTOCOLS)):
        for way in ways if question.collective not in SENDING else ():
            words = f"the {field} {way} ({setting}, a tuner's choice)"
            chosen: dict[str, Any] = {field: way}
            yield {setting}, Cause(words, replace(question, **chosen), _CHOICE, is_fault=False)
    for version in _ERAS:
        if version != question.software.nccl:
            words = f"NCCL {version_words(version)} in place of {version_words(question.software.nccl)}"
            asked = replace(question, software=replace(question.software, nccl=version))
            yield {"version"}, Cause(words, asked, "the version that NCCL_DEBUG=VERSION prints", is_fault=False)


_SlowLinks = tuple[str, tuple[SlowLink, ...], int | None, str]
"""A cause in words, its links, the number of parallel links of which a share is left, if so, and what shows it."""


def _slow_links(session: Session, question: CollectiveQuestion) -> Iterator[_SlowLinks]:
    """Yield a slow or missing link of each kind at GPUs and adapters; other links of a kind have the same effect.

    Last is one of several machines whose adapters are all slow.
    """
    machine = session.machine(question.where)
    seen = set()
    at_gpus, at_rails = "`nvidia-smi nvlink -s` on each machine", "ib_write_bw or iperf3 over each rail at once"
    adapters = []  # of the first machine
    for link in machine.links:
        first, second = machine.nodes[link.src], machine.nodes[link.dst]
        kinds = first.kind, second.kind
        ends = f"{first.name}-{second.name}"
        adapters += [ends] if first.kind == "nic" and first.host == 0 else []
        if first.host != 0 or (*kinds, link.kind, link.count) in seen:
            continue
        if kinds == ("gpu", "gpu"):
            yield f"the links of two GPUs down, as {ends}", (SlowLink(ends, 0.0),), None, at_gpus
            if down := link.count // 2:
                words = f"{down} of the {link.count} links of two GPUs down, as {ends}"
                yield words, (SlowLink(ends, 1.0 - down / link.count),), link.count, at_gpus
        elif kinds == ("gpu", "nvlink-switch"):
            yield f"half of the links of one GPU down, as {ends}", (SlowLink(ends, 0.5),), None, at_gpus
        elif kinds == ("nic", "network-switch"):
            for rate, words in _RATES[:2]:
                told = f"one rail at {words} of its rate (oversubscribed, a cable), as {ends}"
                yield told, (SlowLink(ends, rate),), None, at_rails
        elif kinds in (("gpu", "pcie-switch"), ("gpu", "cpu")):
            for rate, words in _RATES:
                told = f"one GPU's link at {words} of its rate, as {ends}"
                yield told, (SlowLink(ends, rate),), None, "`nvidia-smi -q`, `nvbandwidth` on each GPU"
        else:
            continue
        seen.add((*kinds, link.kind, link.count))
    for rate, words in _RATES[:2] if machine.n_hosts > 1 and len(adapters) > 1 else ():
        told = f"one node's adapters at {words} of their rate, as node0"
        yield told, tuple(SlowLink(each, rate) for each in adapters), None, "the same test on each pair of machines"


_MOST_SIZES = 4  # sizes at which other settings are simulated: the largest


class SettingEffect(NamedTuple):
    """What one setting does at a size: the expected seconds as the log ran, and otherwise.

    ``is_set``: the log sets it, and ``other_s`` is without it; else the log does not, and ``other_s`` is with it.
    ``gain_low``, ``gain_high`` are the 80 % band of ``time_s`` over ``other_s``.
    """

    setting: str
    is_set: bool
    size_bytes: int
    time_s: float
    other_s: float
    gain_low: float
    gain_high: float


def setting_effects(
    session: Session,
    asked: LogQuestion,
    rows: Sequence[SizeComparison],
    asked_with: Callable[[dict[str, str]], LogQuestion],
    settings: dict[str, str],
) -> tuple[SettingEffect, ...]:
    """Return what the settings of a log change by more than the model's error, and which others would gain as much.

    *asked_with* returns the question with other settings than *settings*, those of the log.
    """

    def effects(other: LogQuestion, setting: str, *, is_set: bool) -> Iterator[SettingEffect]:
        """Yield the effect at each of the largest sizes where it is more than the model's error between two ways."""
        for row in rows[-_MOST_SIZES:]:
            there = replace(other.question, size_bytes=float(row.size_bytes))
            other_s = session.time_s(there)
            known = estimate(session.composed(there), evidence())
            if known is None:
                continue
            gain, width = row.expected_s / other_s, math.exp(known.ways)
            if gain > width or (is_set and gain < 1 / width):
                yield SettingEffect(
                    setting, is_set, row.size_bytes, row.expected_s, other_s, gain / width, gain * width
                )

    found = []
    for name, value in settings.items():
        if any(each.startswith(f"{name}=") for each in asked.known):
            without = {key: value for key, value in settings.items() if key != name}
            found += list(effects(asked_with(without), f"{name}={value}", is_set=True))[-1:]
    for name, value in _others(asked.question, settings):
        with suppress(InputError):
            gains = effects(asked_with({**settings, name: value}), f"{name}={value}", is_set=False)
            found += sorted(gains, key=lambda each: each.other_s / each.time_s)[:1]
    return tuple(found)


def _others(question: CollectiveQuestion, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield settings that the log may lack."""
    sends, several = question.collective in SENDING, (question.where.nodes or 1) > 1
    others = {
        ("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"): ("SYS",),
        ("NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"): ("SYS",) if several else (),
        ("NCCL_NCHANNELS_PER_NET_PEER",): ("4",) if sends else (),
        ("NCCL_ALGO",): ("Ring", "Tree", "NVLS", "NVLSTree") if not sends else (),
        ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"): ("16", "32") if not sends else (),
        ("NCCL_PXN_DISABLE",): ("1",) if not sends else (),
        ("NCCL_PROTO",): ("Simple", "LL128", "LL") if not sends else (),
    }
    for names, values in others.items():
        if not settings.keys() & {*names}:
            yield from ((names[0], value) for value in values)
