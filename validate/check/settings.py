"""What NCCL's settings change: those of a log, and others that would gain time (:func:`setting_effects`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from simulator.api import Session
from simulator.api.settings import LogQuestion
from simulator.bands import evidence
from simulator.bands.composition import estimate
from simulator.errors import InputError
from simulator.questions.collective import SENDING, CollectiveQuestion
from simulator.records import replace
from validate.check.pace import SizeComparison

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
    some = rows[-_MOST_SIZES:]
    found = []
    for name, value in settings.items():
        if any(each.startswith(f"{name}=") for each in asked.known):
            without = {key: value for key, value in settings.items() if key != name}
            effects = _effects(session, asked_with(without), f"{name}={value}", some, is_set=True)
            found += list(effects)[-1:]
    for name, value in _others(asked.question, settings):
        try:
            other = asked_with({**settings, name: value})
            effects = _effects(session, other, f"{name}={value}", some, is_set=False)
            found += sorted(effects, key=lambda each: each.other_s / each.time_s)[:1]
        except InputError:
            continue
    return tuple(found)


def _others(question: CollectiveQuestion, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield settings that the log may lack."""
    reaches = [("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE")]
    reaches += [("NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL")] if (question.where.nodes or 1) > 1 else []
    yield from ((names[0], "SYS") for names in reaches if not settings.keys() & {*names})
    if question.collective in SENDING:
        if "NCCL_NCHANNELS_PER_NET_PEER" not in settings:
            yield "NCCL_NCHANNELS_PER_NET_PEER", "4"
        return
    if "NCCL_ALGO" not in settings:
        yield from (("NCCL_ALGO", value) for value in ("Ring", "Tree", "NVLS", "NVLSTree"))
    if "NCCL_MIN_NCHANNELS" not in settings and "NCCL_MAX_NCHANNELS" not in settings:
        yield from (("NCCL_MIN_NCHANNELS", value) for value in ("16", "32"))
    if "NCCL_PXN_DISABLE" not in settings:
        yield "NCCL_PXN_DISABLE", "1"
    if "NCCL_PROTO" not in settings:
        yield from (("NCCL_PROTO", value) for value in ("Simple", "LL128", "LL"))


def _effects(
    session: Session, other: LogQuestion, setting: str, some: Sequence[SizeComparison], *, is_set: bool
) -> Iterator[SettingEffect]:
    """Yield the effect at each of *some* sizes where it is more than the model's error between two ways."""
    for row in some:
        there = replace(other.question, size_bytes=float(row.size_bytes))
        other_s = session.time_s(there)
        known = estimate(session.composed(there), evidence())
        if known is None:
            continue
        gain, width = row.expected_s / other_s, math.exp(known.ways)
        if gain > width or (is_set and gain < 1 / width):
            yield SettingEffect(setting, is_set, row.size_bytes, row.expected_s, other_s, gain / width, gain * width)
