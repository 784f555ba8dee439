"""A measurement case: the row that it fills, the work that is timed for it, its faults and sizes; groups of cases."""

import errno
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, count, islice, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.host import DRIVER
from validate.machine.measure.timing import Call, Interval, Stopwatch

Mode = Literal["stream", "single", "graph"]
"""How calls are issued: back to back; one at a time, host time included; or replayed from a captured graph."""
Columns = dict[str, str | int | float]


class Unavailable(Exception):  # noqa: N818  no error: not every machine has everything
    """A case, or a whole group, cannot run on this machine; the message says why."""


class TimedWork(NamedTuple):
    """The work to time."""

    call: Call  # runs the work once
    mode: Mode = "stream"  # how calls are issued
    figures: Callable[[Interval], Mapping[str, Any]] | None = None  # columns of the interval; None: only the time
    own: Callable[[], Interval] | None = None  # measures the interval, where the loop of ``time_call`` does not fit
    watch: Stopwatch | None = None  # instead of the bench's own; the mode still tells how many calls make a sample
    at_least: int = 1  # fewest calls per sample, so that all buffers are used in turn
    hard: bool = False  # whether the work is compute-bound, so that the device's clock must settle first


class TimedRun(NamedTuple):
    """What is timed: ``run``, after an untimed ``prepare``, else from the end of the previous one.

    ``begin`` is called once after warm-up, ``end`` after the last sample; it may reject the samples (Unavailable).
    """

    run: Callable[[], object]
    prepare: Callable[[], object] | None = None
    begin: Callable[[], object] = lambda: None
    end: Callable[[], object] = lambda: None


class Case(NamedTuple):
    """One row to measure."""

    table: str  # file of its row
    columns: Mapping[str, str | int | float]  # cells that identify the case, unique within a table
    build: Callable[[Bench], TimedWork]  # allocates on a bench; raises Unavailable, or torch's errors
    needs_bytes: int = 0  # about; a case too large for the device is skipped with that reason
    needs_s: float = 0.0  # seconds that it takes at least; not begun with less time left
    # called with this case's row if it was measured before: later cases may have to match its repetitions
    known: Callable[[Mapping[str, str]], object] = lambda _: None

    @property
    def title(self) -> str:
        """Return a short description for messages."""
        return " ".join(f"{value}" for value in self.columns.values() if value != "")


ASKED = "asked.json"  # the file that lists the steps a user asked for
EXCHANGES = "exchanges.json"  # the file that lists the exchange strategies a user asked for, with each rank's part
SCALING = "scaling.json"  # the file that describes the step a user asked for over 1, 2, ... n ranks.


class CaseGroup(NamedTuple):
    """Cases of one kind, with the group's ``share`` of a time budget, and what measures them is ``about``.

    ``yields`` names a module in ``cases`` and, if not ``cases(bench)``, its function that yields them, any first part
    representative; it raises Unavailable where the machine has nothing to measure, as a CPU where ``not_on_cpu`` says
    why.  ``file`` is the file in the measurements folder that the group needs, if any.
    """

    yields: str
    share: float
    about: str
    file: str = ""
    not_on_cpu: str = ""


_TOLD = json.loads(Path(__file__).with_name("groups.json").read_text(encoding="utf-8"))["groups"]
GROUPS: Mapping[str, CaseGroup] = {name: CaseGroup(**told) for name, told in _TOLD.items()}


def usual_groups(folder: Path) -> tuple[str, ...]:
    """Return the groups measured into *folder* when the user names none."""
    return tuple(name for name, of in GROUPS.items() if not of.file or (folder / of.file).is_file())


def cases_of(name: str, bench: Bench) -> Iterator[Case]:
    """Return the cases of group *name*, not yet built; raises Unavailable where the machine has nothing to measure."""
    group = GROUPS[name]
    if group.not_on_cpu and not bench.is_cuda:
        raise Unavailable(group.not_on_cpu)
    module, _, function = group.yields.partition(":")
    cases = getattr(importlib.import_module(f"validate.machine.measure.cases.{module}"), function or "cases")
    found: Iterator[Case] = cases(bench)
    first = list(islice(found, 1))  # made now, so that a group with nothing to measure says so at once
    return chain(first, found)


_LENGTH = 200


class Fatal(Exception):  # noqa: N818
    """Nothing more can be measured; the message says why."""


class RunStopped(BaseException):
    """A signal asked the run to end."""


def short_line(error: object) -> str:
    """Return the text of *error* on one line, cut to 200 characters."""
    return " ".join(str(error).split())[:_LENGTH]


def fault_line(error: BaseException) -> str:
    """Return the kind and the text of *error* on one line, cut to 200 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LENGTH]


def failure_words(error: Exception) -> str:
    """Return why a case was not measured; raises Fatal where the device is lost or the disk is full."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Unavailable):
        return text
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Fatal("the disk is full") from error
        return f"{error.strerror or text}"
    full = any(words in text.lower() for words in ("out of memory", "can't allocate memory"))
    if full or isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return "out of memory"
    if any(words in text.lower() for words in DRIVER["lost"]):
        raise Fatal(f"the device is lost: {text[:_LENGTH]}") from error  # Bench.alive detects any that are missing
    return fault_line(error)


T = TypeVar("T")


def ladder(first: int, last: int, factor: int = 4) -> list[int]:
    """Return *first* and its multiples by powers of *factor*, up to *last*."""
    return list(takewhile(lambda size: size <= last, (first * factor**i for i in count())))


def spread(items: Sequence[T]) -> list[T]:
    """Return *items* in the order last, first, middle, then middles of the gaps: any first part covers the range."""
    if len(items) <= 2:
        return list(items)[::-1]
    order = [len(items) - 1, 0]
    gaps = [(0, len(items) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle > low:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [items[i] for i in order]


_BLOCK = 4 << 20  # bytes; larger buffers repeat the block, as generating random bytes is slower than copying


def random_bytes(size: int, device: Any, *, pinned: bool = False) -> Any:
    """Return *size* random bytes on *device*, or *pinned*; equal ones would draw less power and raise the clock."""
    buffer = torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned)
    block = _block()
    if buffer.device.type != "cpu":
        block = block.to(device)
    for start in range(0, size, _BLOCK):
        part = buffer[start : start + _BLOCK]
        part.copy_(block[: len(part)])
    return buffer


@cache
def _block() -> Any:
    return torch.randint(0, 256, (_BLOCK,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
