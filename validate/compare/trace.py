"""A profiled step compared with the predicted one: kernel classes, exposed communication, largest differences."""

from operator import add

from simulator.cli.table import table_of
from simulator.console import PLAIN, Style
from simulator.errors import Fault, InputError, counted, one_line
from simulator.records import dataclass, sums_by_key
from simulator.results import duration_column, percent
from simulator.units import format_duration
from validate.importing.kineto import CLASSES, Kernels, Trace, span_at

_MOST = 10
_NOTHING = 1e-9
_COLLECTIVE = CLASSES.index("collective")
_HIDES_NOTHING = (_COLLECTIVE, CLASSES.index("copy"))


@dataclass(frozen=True, slots=True)
class Overview:
    """Times of one step in seconds: whole step, kernels running, exposed communication, device idle."""

    step_s: float
    busy_s: float
    exposed_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class ClassTime:
    """One class of kernels in one step: times in seconds and numbers of kernels, measured and predicted."""

    kind: str
    measured_s: float
    predicted_s: float
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A kernel, or a class with other numbers of them: predicted ``name``, measured ``ran_as``, both in seconds."""

    kind: str
    name: str
    ran_as: str
    measured_s: float
    predicted_s: float


@dataclass(frozen=True, slots=True)
class ComparedTrace:
    """A measured trace compared with a predicted one; ``steps`` is the number of steps in the measured trace."""

    measured: Overview
    predicted: Overview
    classes: tuple[ClassTime, ...]
    differences: tuple[Difference, ...]
    steps: int
    remarks: tuple[str, ...]


def compare_traces(measured: Trace, predicted: Trace, steps: int | None = None) -> ComparedTrace:
    """Compare the mean of *steps* of *measured* (those it marks, if None) with *predicted*, one step."""
    marks, kernels, every = measured.steps, measured.kernels, predicted.kernels
    if marks:
        inside = (i for i, start_s in enumerate(kernels.start_s) if span_at(marks, start_s) is not None)
        kernels = kernels.chosen(list(inside))
    wrong = ""
    if steps is not None and marks and steps != len(marks):
        wrong = f"marks {counted(len(marks), 'step')}, where --steps says {steps}"
    elif steps is not None and steps > len(kernels):
        wrong = f"holds {counted(len(kernels), 'kernel')}, too few for --steps {steps}"
    elif not len(kernels):
        wrong = "holds no kernel within the steps that it marks"
    if wrong:
        raise InputError(Fault(wrong, measured.shown))
    count = steps or len(marks) or 1
    start_s, end_s = (marks[0][0], marks[-1][1]) if marks else _ends(kernels)
    seen = _overview(kernels, end_s - start_s, count, on_host=measured.on_host)
    said = _overview(every, predicted.origin_s + _ends(every)[1], 1, on_host=predicted.on_host)
    classes, differences = [], []
    for number, kind in enumerate(CLASSES):
        mine, theirs = (of.chosen([i for i, each in enumerate(of.kind) if each == number]) for of in (kernels, every))
        if len(mine) or len(theirs):
            figures = sum(mine.time_s) / count, sum(theirs.time_s), len(mine) / count, float(len(theirs))
            classes.append(ClassTime(kind, *figures))
            differences += _differences(kind, mine, theirs, (measured.names, predicted.names), count)
    differences.sort(key=lambda each: -abs(each.measured_s - each.predicted_s))
    what = "operators" if measured.on_host else "kernels"
    remarks = {
        f"{measured.left_out:,} {what} without a usable name, place, start or duration are left out": measured.left_out,
        "the trace marks no steps (profiler.step()); all of it is taken for one: --steps says how many": (
            not marks and steps is None
        ),
        f"the trace holds {measured.devices} devices; the busiest is shown": measured.devices > 1,
        "the trace holds no kernels of a GPU; operators of the CPU count with their own time": measured.on_host,
    }
    told = tuple(words for words, holds in remarks.items() if holds)
    return ComparedTrace(seen, said, tuple(classes), tuple(differences[:_MOST]), count, told)


def _ends(kernels: Kernels) -> tuple[float, float]:
    return min(kernels.start_s, default=0.0), max(map(add, kernels.start_s, kernels.time_s), default=0.0)


def _overview(kernels: Kernels, span_s: float, steps: int, *, on_host: bool) -> Overview:
    spans = list(zip(kernels.start_s, kernels.time_s, strict=True))
    whole, exposed_s = (sum(kernels.time_s) if on_host else _union_s(spans)), 0.0
    if not on_host:
        computing = [span for span, kind in zip(spans, kernels.kind, strict=True) if kind not in _HIDES_NOTHING]
        either = [span for span, kind in zip(spans, kernels.kind, strict=True) if kind == _COLLECTIVE] + computing
        exposed_s = _union_s(either) - _union_s(computing)
    idle_s = span_s - whole if span_s - whole > _NOTHING * span_s else 0.0  # ignore rounding errors
    return Overview(span_s / steps, whole / steps, exposed_s / steps, idle_s / steps)


def _union_s(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for start_s, time_s in sorted(spans):
        total += max(0.0, start_s + time_s - max(start_s, reached))
        reached = max(reached, start_s + time_s)
    return total


def _differences(
    kind: str, mine: Kernels, theirs: Kernels, named: tuple[list[str], list[str]], steps: int
) -> list[Difference]:
    """Return the differences in a class: kernel by kernel if their numbers are equal, else for the class as a whole."""
    measured, predicted = named
    if len(mine) == steps * len(theirs):
        found = []
        for place, theirs_s in enumerate(theirs.time_s):
            mine_s = sum(mine.time_s[place :: len(theirs)]) / steps
            found.append(Difference(kind, predicted[theirs.name[place]], measured[mine.name[place]], mine_s, theirs_s))
        return found
    by_name = sums_by_key(zip(mine.name, mine.time_s, strict=True))
    most = measured[max(by_name, key=lambda name: by_name[name])] if by_name else ""
    each_step = len(mine) / steps
    name = f"{each_step:.4g} kernel{'s' * (each_step != 1)}, {len(theirs)} predicted"
    return [Difference(kind, name, most, sum(by_name.values()) / steps, sum(theirs.time_s))]


SCHEMA_VERSION = 1
_WIDTH = 80
_NAME = 36
_SHORT = 18


def trace_text(compared: ComparedTrace, shown: str, style: Style = PLAIN) -> str:
    """Return the comparison as text: the step time, times by class of kernels, and the largest differences."""
    style = style.at_most(_WIDTH)
    seen, said = compared.measured, compared.predicted
    ratio = said.step_s / seen.step_s if seen.step_s > 0 else 0.0
    change = f"{percent(abs(ratio - 1.0))} {'more' if ratio > 1.0 else 'less'}"
    head = (
        f"a step takes {format_duration(seen.step_s, digits=3)} (mean of {counted(compared.steps, 'step')}), "
        f"predicted {format_duration(said.step_s, digits=3)}, {change}"
    )
    overview: list[tuple[str, ...]] = [("", "measured", "predicted", "difference")]
    fields = {"step": "step_s", "kernels run": "busy_s", "exposed communication": "exposed_s", "device idle": "idle_s"}
    overview += [(name, *_pair(getattr(seen, of), getattr(said, of))) for name, of in fields.items()]
    table: list[tuple[str, ...]] = [("kernels", "number", "predicted", "measured", "predicted", "difference")]
    for each in sorted(compared.classes, key=lambda each: -max(each.measured_s, each.predicted_s)):
        pair = _pair(each.measured_s, each.predicted_s)
        table.append((each.kind, f"{each.measured:.4g}", f"{each.predicted:.4g}", *pair))
    worst: list[tuple[str, ...]] = [("largest differences", "ran as", "measured", "predicted")]
    for other in compared.differences:
        names = one_line(f"{other.kind}: {other.name}", _NAME), one_line(other.ran_as, _SHORT)
        worst.append((*names, *duration_column([other.measured_s, other.predicted_s])))
    lines = [*style.wrap(head, hang=2), *style.wrap(f"of {shown}", hang=2)]
    for body, words in ((overview, 1), (table, 1), (worst, 2)):
        lines += ["", *table_of(body, [False] * words + [True] * (len(body[0]) - words), style)]
    return "\n".join(lines) + "\n"


def _pair(measured_s: float, predicted_s: float) -> tuple[str, str, str]:
    sign = "+" if predicted_s >= measured_s else "-"
    change = f"{sign}{format_duration(abs(predicted_s - measured_s), digits=3)}"
    return format_duration(measured_s, digits=3), format_duration(predicted_s, digits=3), change
