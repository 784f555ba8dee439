"""Loops: written out until they repeat evenly, then skipped ahead (docs/decisions/host.md)."""

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import floor

from simulator.engine.executor import execute
from simulator.engine.timeline import Span
from simulator.programs.costs import Bound, ProgramLabel, Repetitions, SkippedRepetitions, StreamQueue, Use
from simulator.programs.statements import Statement
from simulator.programs.writer import Writer
from simulator.records import dataclass, lists_by_key, replace, sums_by_key

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


def write_loop(writer: Writer, loop: Statement) -> None:
    """Write *loop*; raises InputError where it does not repeat evenly and is too long to write out."""
    done, written, attempt = 0, [_standing(writer)], _EVEN
    may_pass = loop.keys.repeat > _WRITTEN and not writer.locks
    while done < loop.keys.repeat:
        writer.block(loop.bodies[0])
        done += 1
        written.append(_standing(writer))
        left = loop.keys.repeat - done
        if not may_pass or left < _LEAST or len(written) <= attempt:
            continue
        writer.executed += len(writer.builder.tasks)
        writer.count(loop.path, 2 * writer.executed)
        passed = _Passing(writer, written).skipped(left - 2)
        done += passed
        # An uneven loop is examined again after half as many further repetitions.
        attempt = _EVEN if passed else len(written) + len(written) // 2
        if passed:
            written = [_standing(writer)]


def _standing(writer: Writer) -> _Repetition:
    state = writer.state
    queued = {name: stream.queue.count for name, stream in state.streams.items()}
    marks = {name: noted.count for name, noted in state.marks.items()}
    return _Repetition(len(writer.builder.tasks), queued, len(state.held), marks, state.operators, state.copies)


class _Passing:
    """The repetitions *written*, of which the next ones may continue the last."""

    def __init__(self, writer: Writer, written: Sequence[_Repetition]) -> None:
        self.writer, self.tasks = writer, writer.builder.tasks
        self.before, self.after = written[-2], written[-1]
        bounds = [(a.last, b.last) for a, b in itertools.pairwise(written)][-_EVEN:]
        self.groups: list[dict[str, list[int]]] = []  # the activities of the last repetitions, by stream
        for first, last in bounds:
            own = (task for task in self.tasks[first:last] if not task.stream.startswith(_LATER))
            self.groups.append(lists_by_key((task.stream, task.id) for task in own))
        self.spans: Sequence[Span] = ()
        self.period_s: dict[str, float] = {}  # of each stream, in seconds per repetition

    def skipped(self, most: int) -> int:
        """Skip as many of the next *most* repetitions as continue like the last; return their number."""
        groups = self.groups
        if len({tuple((name, len(found)) for name, found in group.items()) for group in groups}) > 1:
            return 0
        self.spans = spans = execute(self.writer.places.machine, self.writer.builder.build()).spans
        for name in groups[0]:
            runs = [[spans[number] for number in group[name]] for group in groups]
            pairs = [pair for each in itertools.pairwise(runs) for pair in zip(*each, strict=True)]
            steps, starts = [b.end_s - a.end_s for a, b in pairs], [b.start_s - a.start_s for a, b in pairs]
            if max(*steps, *starts) - min(*steps, *starts) > _SAME * spans[groups[-1][name][-1]].end_s:
                return 0
            self.period_s[name] = steps[-1]
        times = min(most, self._until_waits_change())
        for name, stream in self.writer.state.streams.items():
            operators = self._operators(name)
            if operators and stream.queue.depth and times >= _LEAST:
                times = min(times, self._until_full(name, stream.queue, operators, times))
        if times < _LEAST:
            return 0
        self._skip(times)
        return times

    def _operators(self, stream: str) -> int:
        return self.after.queued.get(stream, 0) - self.before.queued.get(stream, 0)

    def _until_waits_change(self) -> int:
        """Return the repetitions for which all dependencies of the last one's activities end before these begin."""
        most, first, tasks = 10**18, self.before.last, self.tasks
        for task in tasks[first:]:
            for other in (tasks[number] for number in task.after if not task.stream.startswith(_LATER)):
                own, theirs = task.stream, other.stream
                if theirs.startswith(_LATER) or (own == theirs and other.id < first):
                    continue  # an entry of a queue, which _until_full examines; or the previous repetition
                mine_s, theirs_s = self.period_s[own], self.period_s.get(theirs, 0.0)
                if theirs_s - mine_s > _SAME * max(mine_s, theirs_s):
                    slack_s = max(0.0, self.spans[task.id].start_s - self.spans[other.id].end_s)
                    most = min(most, floor(slack_s / (theirs_s - mine_s)) - 1)
        return most

    def _until_full(self, name: str, queue: StreamQueue, operators: int, most: int) -> int:
        """Return the number of repetitions in which every operator finds a free entry when the host issues it."""
        spans, tasks, device_s = self.spans, self.tasks, self.period_s[name]
        issues = [tasks[number].after[0] for number in self.groups[-1].get(name, ()) if tasks[number].after]
        base = [queue.entry(n) for n in range(queue.count - operators, queue.count)]

        def done_s(number: int) -> float:
            if number < queue.count:
                activity, late_s = queue.entry(number)
                return spans[activity].end_s + late_s
            again, place = divmod(number - queue.count, operators)
            activity, late_s = base[place]
            return spans[activity].end_s + late_s + (again + 1) * device_s

        for place, issue in enumerate(issues[:operators]):
            host_s = self.period_s[tasks[issue].stream]
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
                elif lacks(end):  # times are linear in between, and so is the delay
                    most = min(most, begin + bisect_left(range(begin + 1, end), True, key=lacks))
                if most < end:
                    break
        return most

    def _skip(self, times: int) -> None:
        """Write *times* repetitions as one activity per stream, and advance all other state past them."""
        state, tasks, period_s = self.writer.state, self.tasks, self.period_s
        before, after = self.before, self.after
        moved: dict[int, int] = {}

        def later(number: int) -> int:
            """Return an activity that ends when the counterpart of *number* in the last of them does."""
            if not before.last <= number < after.last or tasks[number].stream not in period_s:
                return number
            if number not in moved:
                moved[number] = self.writer.later(number, times * period_s[tasks[number].stream])
            return moved[number]

        for stream, numbers in self.groups[-1].items():
            ran = [(tasks[number], self.spans[number]) for number in numbers]
            busy = sums_by_key(each for task, span in ran for each in busy_of(task.about, span))
            parts = [(part, span) for task, span in ran for part in task.parts]
            loads = sums_by_key((r, n * span.length_s) for part, span in parts for r, n in getattr(part, "loads", ()))
            each_s, place = period_s[stream], tasks[numbers[-1]].place
            taken = tuple((r, min(1.0, used_s / each_s)) for r, used_s in loads.items() if each_s)
            about = SkippedRepetitions(times, tuple((*key, times * seconds) for key, seconds in busy.items()))
            label, add = f"{times:,} repetitions more", self.writer.builder.work
            add(label, place, times * each_s, stream=stream, loads=taken, about=about)
        for tensor in state.tensors.values():
            tensor.ready = tuple(map(later, tensor.ready))
        for event, recorded in state.events.items():
            state.events[event] = tuple(map(later, recorded))
        for name, one in state.streams.items():
            one.last, one.after = tuple(map(later, one.last)), tuple(map(later, one.after))
            one.queue.skip(self._operators(name), times, period_s.get(name, 0.0))
        for held in state.held[before.held : after.held]:
            issue_s, done_s = (period_s.get(tasks[n].stream, 0.0) for n in (held.issued, held.done))
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
