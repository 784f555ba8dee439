"""Loops: written out until they repeat evenly, then skipped ahead for as long as they do: ``write_loop``.

While it does not change who waits for whom, each stream advances by a constant period per repetition: the host by what
it issues, a device by what it computes.  Once the last repetitions have been even, the next ones are known until some
wait starts or ceases to matter: a queue fills up, or the host falls behind.  That many repetitions become one activity
on each stream; then some are written out again.  The engine executes everything that is written, so this module does
not know the cost of an operator; the result is exact but for rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import floor

from simulator.engine.executor import execute
from simulator.engine.timeline import Span
from simulator.plan.plan import Activity
from simulator.programs.costs import Bound, ProgramLabel, SkippedRepetitions, Use
from simulator.programs.state import Repetitions, StreamQueue
from simulator.programs.statements import Repeat
from simulator.programs.writer import Writer
from simulator.records import dataclass, replace
from simulator.sums import sums_by_key

_WRITTEN = 12  # loops with up to this many repetitions are written out in full
_EVEN = 3  # consecutive repetitions that must be alike
_SAME = 1e-9  # relative difference that counts as rounding
_LEAST = 8  # fewest repetitions that are worth skipping
_LATER = "later/"


@dataclass(frozen=True, slots=True)
class _Repetition:
    """The writer's state after a repetition, whose activities are those before ``last``."""

    last: int
    queued: Mapping[str, int]
    held: int
    marks: Mapping[str, int]
    operators: int
    copies: int


def write_loop(writer: Writer, loop: Repeat) -> None:
    """Write *loop*; raises InputError where it does not repeat evenly and is too long to write out."""
    done, written, attempt = 0, [_standing(writer)], _EVEN
    may_pass = loop.count > _WRITTEN and not writer.locks
    while done < loop.count:
        writer.block(loop.body)
        done += 1
        written.append(_standing(writer))
        left = loop.count - done
        if not may_pass or left < _LEAST or len(written) <= attempt:
            continue
        writer.executed += len(writer.builder.tasks)
        writer.count(loop.path, 2 * writer.executed)
        passed = _pass(writer, written, left - 2)
        done += passed
        # An uneven loop is examined again after half as many further repetitions.
        attempt = _EVEN if passed else len(written) + len(written) // 2
        if passed:
            written = [_standing(writer)]


def _standing(writer: Writer) -> _Repetition:
    state = writer.state
    return _Repetition(
        len(writer.builder.tasks),
        {name: stream.queue.count for name, stream in state.streams.items()},
        len(state.held),
        {name: noted.count for name, noted in state.marks.items()},
        state.operators,
        state.copies,
    )


def _pass(writer: Writer, written: Sequence[_Repetition], most: int) -> int:
    """Skip as many of the next *most* repetitions as continue like the last; return their number."""
    bounds = [(a.last, b.last) for a, b in itertools.pairwise(written)][-_EVEN:]
    tasks, groups = writer.builder.tasks, []
    for first, last in bounds:
        group: dict[str, list[int]] = {}  # the activities of a repetition by stream
        for task in tasks[first:last]:
            if not task.stream.startswith(_LATER):
                group.setdefault(task.stream, []).append(task.id)
        groups.append(group)
    if len({tuple((name, len(found)) for name, found in group.items()) for group in groups}) > 1:
        return 0
    spans = execute(writer.places.machine, writer.builder.build()).spans
    period_s: dict[str, float] = {}  # of each stream, in seconds per repetition
    for name in groups[0]:
        pairs = [
            (spans[a], spans[b])
            for earlier, later in itertools.pairwise(groups)
            for a, b in zip(earlier[name], later[name], strict=True)
        ]
        steps, starts = [b.end_s - a.end_s for a, b in pairs], [b.start_s - a.start_s for a, b in pairs]
        if max(*steps, *starts) - min(*steps, *starts) > _SAME * spans[groups[-1][name][-1]].end_s:
            return 0
        period_s[name] = steps[-1]
    before, after = written[-2], written[-1]
    times = min(most, _until_waits_change(tasks, before.last, spans, period_s))
    for name, stream in writer.state.streams.items():
        operators = after.queued.get(name, 0) - before.queued.get(name, 0)
        if operators and stream.queue.depth and times >= _LEAST:
            issues = [tasks[number].after[0] for number in groups[-1].get(name, ()) if tasks[number].after]
            times = min(times, _until_full(stream.queue, issues, operators, times, spans, period_s, name, tasks))
    if times < _LEAST:
        return 0
    _skip(writer, before, after, times, groups[-1], spans, period_s)
    return times


def _until_waits_change(
    tasks: Sequence[Activity], first: int, spans: Sequence[Span], period_s: Mapping[str, float]
) -> int:
    """Return the repetitions for which all dependencies of the activities from *first* on end before these begin."""
    most = 10**18
    for task in tasks[first:]:
        for other in (tasks[number] for number in task.after if not task.stream.startswith(_LATER)):
            own, theirs = task.stream, other.stream
            if theirs.startswith(_LATER) or (own == theirs and other.id < first):
                continue  # an entry of a queue, which _until_full examines; or the previous repetition
            mine_s, theirs_s = period_s[own], period_s.get(theirs, 0.0)
            if theirs_s - mine_s > _SAME * max(mine_s, theirs_s):
                slack_s = max(0.0, spans[task.id].start_s - spans[other.id].end_s)
                most = min(most, floor(slack_s / (theirs_s - mine_s)) - 1)
    return most


def _until_full(
    queue: StreamQueue,
    issues: Sequence[int],
    operators: int,
    most: int,
    spans: Sequence[Span],
    period_s: Mapping[str, float],
    name: str,
    tasks: Sequence[Activity],
) -> int:
    """Return the number of repetitions in which every operator finds a free entry when the host issues it."""
    device_s = period_s[name]
    base = [queue.entry(n) for n in range(queue.count - operators, queue.count)]

    def done_s(number: int) -> float:
        if number < queue.count:
            entry = queue.entry(number)
            return spans[entry.number].end_s + entry.late_s
        again, place = divmod(number - queue.count, operators)
        return spans[base[place].number].end_s + base[place].late_s + (again + 1) * device_s

    for place, issue in enumerate(issues[:operators]):
        host_s = period_s[tasks[issue].stream]
        number = queue.count - operators + place - queue.depth  # the operator whose entry it takes
        begins_s = spans[issue].start_s

        def lacks(k: int, number: int = number, begins_s: float = begins_s, host_s: float = host_s) -> bool:
            needed = number + k * operators
            return needed >= 0 and done_s(needed) > (begins_s + k * host_s) * (1 + _SAME)

        for low, high in queue.pieces(max(0, number + operators), max(0, number + most * operators + 1)):
            begin = -(-(low - number) // operators)
            end = (high - number) // operators
            if begin > end:
                continue
            if lacks(begin):
                most = min(most, begin - 1)
            elif lacks(end):
                while end - begin > 1:  # bisect: times are linear in between, and so is the delay
                    middle = (begin + end) // 2
                    begin, end = (begin, middle) if lacks(middle) else (middle, end)
                most = min(most, end - 1)
            if most < end:
                break
    return most


def _skip(
    writer: Writer,
    before: _Repetition,
    after: _Repetition,
    times: int,
    group: Mapping[str, list[int]],
    spans: Sequence[Span],
    period_s: Mapping[str, float],
) -> None:
    """Write *times* repetitions as one activity per stream, and advance all other state past them."""
    state, builder = writer.state, writer.builder
    moved: dict[int, int] = {}

    def later(number: int) -> int:
        """Return an activity that ends when the counterpart of *number* in the last of them does."""
        if not before.last <= number < after.last or builder.tasks[number].stream not in period_s:
            return number
        if number not in moved:
            moved[number] = writer.later(number, times * period_s[builder.tasks[number].stream])
        return moved[number]

    for stream, numbers in group.items():
        ran = [(builder.tasks[number], spans[number]) for number in numbers]
        busy = sums_by_key(each for task, span in ran for each in busy_of(task.about, span))
        loads = sums_by_key(
            (resource, share * span.length_s)
            for task, span in ran
            for part in task.parts
            for resource, share in getattr(part, "loads", ())
        )
        taken = tuple((r, min(1.0, used_s / period_s[stream])) for r, used_s in loads.items() if period_s[stream])
        builder.work(
            f"{times:,} repetitions more",
            builder.tasks[numbers[-1]].place,
            times * period_s[stream],
            stream=stream,
            loads=taken,
            about=SkippedRepetitions(times, tuple((*key, times * seconds) for key, seconds in busy.items())),
        )
    for tensor in state.tensors.values():
        tensor.ready = tuple(map(later, tensor.ready))
    for event, recorded in state.events.items():
        state.events[event] = tuple(map(later, recorded))
    for name, one in state.streams.items():
        one.last, one.after = tuple(map(later, one.last)), tuple(map(later, one.after))
        operators = after.queued.get(name, 0) - before.queued.get(name, 0)
        one.queue.skip(operators, times, period_s.get(name, 0.0))
    for held in state.held[before.held : after.held]:
        issue_s, done_s = (period_s.get(builder.tasks[n].stream, 0.0) for n in (held.issued, held.done))
        state.held.append(replace(held, again=(*held.again, Repetitions(times, issue_s, done_s))))
    for name, noted in state.marks.items():
        noted.count += times * (noted.count - before.marks.get(name, 0))
    state.operators += times * (after.operators - before.operators)
    state.copies += times * (after.copies - before.copies)


def busy_of(about: object, span: Span) -> list[tuple[tuple[Use, Bound], float]]:
    """Return the busy seconds of an activity, by use and bound."""
    if isinstance(about, SkippedRepetitions):
        return [((use, bound), seconds) for use, bound, seconds in about.busy_s]
    if not isinstance(about, ProgramLabel) or about.use in ("hidden", "mark"):
        return []
    seconds = span.length_s
    if about.issue_s:
        return [(("issue", "given"), about.issue_s), (("kernel", about.bound), seconds - about.issue_s)]
    return [((about.use, about.bound), seconds)]
