"""Cores that write to one line: each write waits for the line to arrive from the core that wrote it last.

Where the cores' data is on separate lines, each core keeps its line in its first-level cache and waits for nobody.
"""

from __future__ import annotations

from simulator.devices.cpu.cpu import LINE_BYTES
from simulator.errors import InputError
from simulator.host.answer import HostTime
from simulator.questions.single import AccessQuestion
from simulator.topology.parts import CpuPart
from simulator.units import format_duration


def shared_answer(question: AccessQuestion, part: CpuPart) -> HostTime:
    """Return the time of an access by the next of ``cores`` cores to shared, or falsely shared, data.

    Raises InputError where the question's figures are out of range or the part lacks one.
    """
    if question.cores < 1:
        raise InputError(f"cores is at least 1; got {question.cores}")
    is_remote = question.node == "remote"
    if question.node not in ("local", "remote"):
        raise InputError(f"node={question.node}: cores of a line's other writers are local or remote")
    here = part.core_count or question.cores
    if question.cores > here * (2 if is_remote else 1):
        raise InputError(f"cores={question.cores}: the socket has {here}; node=remote: some are on another")
    first = next(iter(part.caches.values()), None)
    if first is None:
        raise InputError("the part has no caches")
    alone_s = first.latency
    own_bytes = question.size_bytes / question.cores
    if question.cores == 1 or own_bytes >= LINE_BYTES:
        said = "one core has the line to itself" if question.cores == 1 else "each core has lines of its own"
        return HostTime(
            alone_s, "a write", "latency of L1", (f"{said}: it stays in its first cache",), {"alone_s": alone_s}
        )
    if part.line_moves is None:
        raise InputError("the part has no line_moves: what a line that another core has takes to come")
    moves = part.line_moves
    moved_s = moves.remote if is_remote else moves.modified if question.state == "modified" else moves.shared
    if moved_s is None:
        raise InputError("the part has no line_moves.remote")
    did = "written" if question.state == "modified" else "read"
    where = "of the other socket" if is_remote else "of the socket"
    why = (
        f"{question.cores} cores {where} use {own_bytes:.3g} B each of the same line of {LINE_BYTES} B: false sharing",
        f"the core that has {did} it last has the line, and it takes {format_duration(moved_s, 3)} to come, every time",
        f"one core alone takes {format_duration(alone_s, 3)}: together they are {moved_s / alone_s:.3g} times slower",
        f"with {LINE_BYTES} B for each core they would not wait",
    )
    figures = {"alone_s": alone_s, "moved_s": moved_s, "against_one_core": moved_s / alone_s}
    return HostTime(moved_s, "a write", "moves of a cache line", why, figures)
