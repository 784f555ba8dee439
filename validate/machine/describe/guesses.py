"""Which guesses of a draft move its answers: each is drawn otherwise, and both drafts are asked for an all-reduce."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from simulator import CollectiveQuestion, InputError, Session, Where
from simulator.topology.catalogue import load_part
from simulator.topology.load import topology_from_text

_TOLD_FROM = 0.1  # change of a bandwidth
_SIZE_BYTES = 1 << 30
_PART = re.compile(r"part: ([\w.-]+)")
_SLOT = re.compile(r"pcie([45])-")


class Guess(NamedTuple):
    """A guess in a draft: ``what`` it is of, and words that mark its lines.

    ``run`` is the command whose output replaces it; ``otherwise`` returns a line as it could also be.
    """

    what: str
    marks: tuple[str, ...]
    run: str
    otherwise: Callable[[str], str]


def _slower_slot(line: str) -> str:
    slower = _SLOT.sub(lambda found: f"pcie{int(found[1]) - 1}-", line)
    return slower if slower != line else line.replace("pcie3-x16", "pcie3-x8")


def _halved(figure: str, usual_Bps: float) -> Callable[[str], str]:
    """Return what gives the part of a line half of its *figure*; *usual_Bps* where the part has none."""

    def otherwise(line: str) -> str:
        half_Bps = (getattr(load_part(_PART.findall(line)[-1]), figure, None) or 2 * usual_Bps) / 2
        return line.replace(", source:", f", {figure}: {half_Bps / 1e9:.6g} GB/s, source:", 1)

    return otherwise


_COUNTED = "lscpu, whose CPU's data sheet counts links"
_GUESSES = (
    Guess("slots of GPUs", ("does not say which slot", "[plx"), "nvidia-smi -q, or lspci -vv", _slower_slot),
    Guess("slots of adapters", ("nothing says which slot",), "lspci -vv", _slower_slot),
    Guess("the link between sockets", ("usual between sockets",), _COUNTED, _halved("bandwidth", 10e9)),
    Guess("the CPU", ("the CPU",), "lscpu", _halved("memory_bandwidth", 50e9)),
    Guess("sockets of GPUs", ("at which socket",), "nvidia-smi topo -m", partial(re.sub, r"cpu\d+\]", "cpu0]")),
)


def moving_guesses(text: str, *, peers_unsaid: bool) -> list[str]:
    """Return a remark for each guess in the draft *text* whose alternative changes an all-reduce by over a tenth.

    The all-reduce is of 1 GiB over all GPUs, of the machine and of two where it has adapters.  *peers_unsaid*: nothing
    says how far GPUs copy directly over PCIe.  A guess that no alternative can be drawn of is not told.
    """
    drawn = [(guess.what, guess.run, _changed(text, guess)) for guess in _GUESSES]
    if peers_unsaid and "transport:" not in text:
        others = (f"{text}\ntransport: {{peer_to_peer: {level}}}\n" for level in ("none", "phb"))
        drawn += [("whether GPUs copy directly over PCIe", "nvidia-smi topo -p2p r", other) for other in others]
    asked = _bandwidths(text)
    found: dict[str, tuple[float, str]] = {}
    for what, run, other in drawn:
        if asked and other != text:
            changes = [abs(b / a - 1.0) for a, b in zip(asked, _bandwidths(other), strict=False) if a > 0.0]
            found[what] = max(found.get(what, (0.0, run)), (max(changes, default=0.0), run))
    told = sorted(((change, what, run) for what, (change, run) in found.items() if change > _TOLD_FROM), reverse=True)
    return [
        f"UNVERIFIED: {what}: guessed; another guess changes an all-reduce by {100 * change:.0f} %; {run} replaces it"
        for change, what, run in told
    ]


def _changed(text: str, guess: Guess) -> str:
    lines = text.splitlines(keepends=True)
    marked = [any(mark in line for mark in guess.marks) and "{" in line for line in lines]
    if not any(guess.marks[0] in line and is_marked for line, is_marked in zip(lines, marked, strict=True)):
        return text
    return "".join(guess.otherwise(line) if is_marked else line for line, is_marked in zip(lines, marked, strict=True))


def _bandwidths(text: str) -> Sequence[float]:
    """Return the bus bandwidths in B/s of an all-reduce on one machine and, if it has adapters, on two."""
    found = []
    for nodes in (1, 2) if re.search(r"^  nic\d+: ", text, re.MULTILINE) else (1,):
        session, where = Session(), Where("draft", nodes=nodes)
        try:
            session.know(where, topology_from_text(text, n_nodes=nodes if nodes > 1 else None))
            found.append(session.collective(CollectiveQuestion(where=where, size_bytes=_SIZE_BYTES)).busbw_Bps)
        except InputError:  # a single GPU, or one that no model knows
            found.append(0.0)
    return found
