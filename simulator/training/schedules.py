"""Schedules of a pipeline: places of parts, and each stage's order of passes (docs/decisions/parallelism.md)."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from simulator.errors import refused
from simulator.questions.layout import Layout, Schedule

Position = tuple[int, int]
"""A stage, and the number of one of its chunks."""


class Pass(NamedTuple):
    """One pass of a micro-batch through part ``chunk`` of a stage."""

    kind: Literal["forward", "backward", "weights"]  # weights: gradients of parameters, if computed apart
    chunk: int
    micro_batch: int
    joined: bool = False  # starts with the pass before it, and both send at their common end


_Order = Callable[[Layout, int, int], list[Pass]]


class PipelineSchedule(NamedTuple):
    """The passes of *stage* over *count* micro-batches are ``order(layout, stage, count)``, or InputError."""

    order: _Order
    chunks: int = 0  # of each stage; 0: the layout's virtual stages
    shape: Literal["line", "V", "two-way"] = "line"  # one way, and back, or from each end
    splits: bool = False  # gradients of parameters are computed apart
    fill: float = 1.0  # a stage's wait in 1F1B's, if all three passes take equally long


def schedule_of(layout: Layout) -> PipelineSchedule:
    """Return the schedule that *layout* names."""
    return _SCHEDULES[layout.schedule]


def chunks_of(layout: Layout) -> int:
    """Return the parts of the network that each stage holds."""
    return schedule_of(layout).chunks or layout.vp


def paths_of(layout: Layout) -> tuple[tuple[Position, ...], ...]:
    """Return the places of the parts of the network, in order, for each direction of micro-batches."""
    down, shape = range(layout.pp), schedule_of(layout).shape
    if shape == "line":
        return (tuple((stage, chunk) for chunk in range(layout.vp) for stage in down),)
    there, back = tuple((stage, 0) for stage in down), tuple((stage, 1) for stage in reversed(down))
    return (there, back) if shape == "two-way" else (there + back,)


def part_count(layout: Layout) -> int:
    """Return the number of parts into which the network is cut."""
    return len(paths_of(layout)[0])


def stage_parts(layout: Layout, stage: int) -> list[int]:
    """Return the numbers of the parts that *stage* holds, by its chunks."""
    found = sorted((chunk, part) for path in paths_of(layout) for part, (at, chunk) in enumerate(path) if at == stage)
    return [part for _, part in found]


def passing_each(layout: Layout, count: int) -> int:
    """Return how many of *count* micro-batches pass each chunk of a stage; of two directions, half."""
    return count // len(paths_of(layout))


def next_places(layout: Layout) -> tuple[dict[Position, Position], dict[Position, Position]]:
    """Return what is right behind and right ahead of each position on its path; nothing at an end."""
    steps = [pair for path in paths_of(layout) for pair in pairwise(path)]
    return {there: here for here, there in steps}, dict(steps)


def in_flight(layout: Layout, stage: int, count: int, saved: tuple[float, ...] = ()) -> float:
    """Return the micro-batches that *stage* holds at once; parts count by what is *saved*, or equally."""
    each = saved or (1.0,) * chunks_of(layout)
    ordered = {name: getattr(layout, name) for name in ("pp", "vp", "schedule", "ep_overlap")}
    return _most_held(Layout(**ordered, ep=2 if layout.ep_overlap else 1), stage, count, each) / sum(each)


@lru_cache(maxsize=4096)
def _most_held(layout: Layout, stage: int, count: int, saved: tuple[float, ...]) -> float:
    frees = "weights" if schedule_of(layout).splits else "backward"
    held = most = 0.0
    for each in schedule_of(layout).order(layout, stage, count):
        held += saved[each.chunk] * ((each.kind == "forward") - (each.kind == frees))
        most = max(most, held)
    return most


def _alternating(layout: Layout, stage: int, count: int) -> list[Pass]:
    """Return the passes of GPipe, of 1F1B with its virtual stages, and of ZB-H1."""
    if layout.vp > 1 and count % layout.pp:
        near = " or ".join(str(n) for n in (count // layout.pp * layout.pp, -(-count // layout.pp) * layout.pp) if n)
        why = f"takes turns among {layout.pp} micro-batches at a time, and there are {count}; {near} would do"
        raise refused("layout", f"vp={layout.vp} {why}")
    turn = layout.pp * layout.vp
    forward = [(n % turn // layout.pp, n // turn * layout.pp + n % layout.pp) for n in range(count * layout.vp)]
    backward = [(layout.vp - 1 - chunk, micro_batch) for chunk, micro_batch in forward]
    if layout.schedule == "gpipe":
        backward = backward[::-1]
    filled, apart = _filled(layout, stage, count), schedule_of(layout).splits
    found = [Pass("forward", *at) for at in forward[:filled]]
    put_off: list[tuple[int, int]] = []
    for number, at in enumerate(backward):
        following = forward[filled + number : filled + number + 1]
        joined = bool(following) and layout.ep_overlap
        found += [*(Pass("forward", *each) for each in following), Pass("backward", *at, joined)]
        put_off += [at] if apart else []
        if len(put_off) > (stage if filled + number + 1 < len(forward) else 0):
            found.append(Pass("weights", *put_off.pop(0)))
    return found + [Pass("weights", *at) for at in put_off]


def _filled(layout: Layout, stage: int, count: int) -> int:
    """Return the forward passes of the fill but the last; one more if it runs with a backward pass."""
    more = int(layout.ep_overlap)
    if layout.schedule == "gpipe":
        return count
    if layout.vp == 1:
        return min(count, layout.pp - stage - 1 + more)
    if count == layout.pp:
        return count * layout.vp
    return min(count * layout.vp, 2 * (layout.pp - stage - 1) + (layout.vp - 1) * layout.pp + more)


class _Writer:
    """Writes passes, which count up the micro-batches of each kind and chunk; ``put_off`` are passes for weights."""

    def __init__(self) -> None:
        self.found: list[Pass] = []
        self.put_off: list[Pass] = []
        self._numbers = Counter[tuple[str, int]]()

    def forward(self, *chunks: int) -> None:
        self.found += [Pass("forward", chunk, self._next("forward", chunk)) for chunk in chunks]

    def backward(self, chunk: int, *, apart: bool = False, joined: bool = False) -> None:
        number = self._next("backward", chunk)
        weights = Pass("weights", chunk, number, joined)
        self.found.append(Pass("backward", chunk, number, joined))
        (self.put_off if apart else self.found).append(weights)

    def weights(self, *chunks: int) -> None:
        """Write the first pass that was put off, of *chunks* if there are any."""
        first = next(n for n, each in enumerate(self.put_off) if not chunks or each.chunk in chunks)
        self.found.append(self.put_off.pop(first))

    def _next(self, kind: str, chunk: int) -> int:
        self._numbers[kind, chunk] += 1
        return self._numbers[kind, chunk] - 1


def _zero_bubble_v(layout: Layout, stage: int, count: int) -> list[Pass]:
    """Return ZB-V's passes, as of PyTorch's ``ScheduleZBVZeroBubble``; those beyond *count* are left out."""
    write, rest = _Writer(), layout.pp - stage
    most = max(2 * layout.pp - 1, count)
    write.forward(*[0] * (2 * rest - 1), *[1, 0] * stage)
    for _ in range(rest):
        write.forward(1)
        write.backward(1)
    for number in range(most - layout.pp):
        write.forward(*[0] * (number < most - 2 * layout.pp + stage + 1))
        write.backward(0)
        write.forward(1)
        write.backward(1)
    for _ in range(stage):
        write.backward(0, apart=True)
        write.backward(1, apart=True)
    for _ in range(rest):
        write.backward(0, apart=True)
        write.weights(0)
    write.found += sorted(write.put_off, key=lambda each: (-each.chunk, each.micro_batch))
    return [each for each in write.found if each.micro_batch < count]


_Turn = tuple[Literal["forward", "backward"], int]
_TURN: tuple[_Turn, ...] = (("forward", 0), ("forward", 1), ("backward", 1), ("backward", 0))
"""The passes of a micro-batch through a stage of a V; the first and the third go down the stages, the others up."""


def _of_block(layout: Layout, stage: int, count: int) -> list[Pass]:
    return list(_repeated(layout.schedule == "v-half", layout.pp, count)[stage])


@lru_cache(maxsize=64)
def _repeated(is_half: bool, pp: int, count: int) -> tuple[tuple[Pass, ...], ...]:
    """Return the passes of V-Half's or V-Min's block, repeated every 6 passes and squeezed (Qi et al., 2024)."""
    held, apart = (pp // 2 + 1, 0 if pp % 2 else 3) if is_half else ((pp + 4) // 3, 0 if pp % 3 else 2)
    orders = []
    for stage in range(pp):  # in V-Min each pass starts right after its neighbour's; no two of a stage fall together
        begins = stage, 2 * pp - stage - 1, 2 * pp + apart + stage, 4 * pp + apart - stage - 1
        if is_half:
            begins = 2 * stage, 3 * pp - stage - 2, 3 * pp + apart + 2 * stage - 1, 6 * pp + apart - stage - 2
        repeated = sorted((begins[turn] + 6 * number, turn, number) for turn in range(4) for number in range(count))
        orders.append([(turn, number) for _, turn, number in reversed(repeated)])
    found: list[list[Pass]] = [[] for _ in orders]
    put_off: list[list[Pass]] = [[] for _ in orders]
    alive, done = [0] * pp, {(0, -1, number) for number in range(count)}  # by stage, turn and micro-batch
    while any(orders) or any(put_off):
        ended = []
        for stage, order in enumerate(orders):
            turn, number = order[-1] if order else (0, 0)
            (kind, chunk), full = _TURN[turn], alive[stage] >= 2 * held and bool(put_off[stage])
            neighbour = stage + (1 if turn % 2 else -1)
            before = (neighbour, turn, number) if 0 <= neighbour < pp else (stage, turn - 1, number)
            if order and before in done and not (full and kind == "forward"):
                ended.append((stage, *order.pop()))
                found[stage].append(Pass(kind, chunk, number))
                alive[stage] += kind == "forward"
                put_off[stage] += [Pass("weights", chunk, number)] if kind == "backward" else []
            elif put_off[stage]:
                found[stage].append(put_off[stage].pop(0))
                alive[stage] -= 1
        done.update(ended)
    return tuple(map(tuple, found))


def _dual(layout: Layout, stage: int, count: int) -> list[Pass]:
    """Return the passes of DualPipe: as in a V of half the stages, and from the other end in the other half."""
    if count % 2 or count < 2 * layout.pp:
        near = max(2 * layout.pp, count + count % 2)
        why = f"sends an even number of micro-batches, {2 * layout.pp} or more, from both ends of pp={layout.pp}"
        raise refused("layout", f"schedule=dualpipe {why}, and there are {count}; {near} would do")
    half, far = layout.pp // 2, stage >= layout.pp // 2
    passes = _facing(half, min(stage, layout.pp - 1 - stage), count // 2)
    chunks = ((each, each.chunk ^ far) for each in passes)
    return [each._replace(chunk=own, micro_batch=each.micro_batch + own * count // 2) for each, own in chunks]


def _dual_v(layout: Layout, stage: int, count: int) -> list[Pass]:
    """Return the passes of DualPipeV ("cut in half"; PyTorch's ``ScheduleDualPipeV``)."""
    if count < 2 * layout.pp:
        why = f"takes {2 * layout.pp} micro-batches or more with pp={layout.pp}, and there are {count}"
        raise refused("layout", f"schedule=dualpipe-v {why}; {2 * layout.pp} would do")
    return _facing(layout.pp, stage, count)


def _facing(stages: int, stage: int, count: int) -> list[Pass]:
    """Return the passes of *stage*, where *count* micro-batches come from either side (DeepSeek's dualpipe.py)."""
    write, rest = _Writer(), stages - stage - 1
    write.forward(*[0] * (2 * rest), *[0, 1] * (stage + 1))
    for _ in range(rest):
        write.backward(1, apart=True)
        write.weights()
        write.forward(1)
    for number in range(count - 2 * stages + stage + 1):
        write.forward(0)
        write.backward(1, joined=number > 0 or rest > 0)
        write.forward(1)
        write.backward(0, joined=True)
    for _ in range(rest):
        write.backward(1)
        write.forward(1)
        write.backward(0, joined=True)
    for number in range(2 * stage + 2):  # the gradients of parameters of about half of these are put off
        write.backward(1 - number % 2, apart=number > stage)
    for _ in range(rest):
        write.weights()
        write.backward(0, apart=True)
    while write.put_off:
        write.weights()
    return write.found


_SCHEDULES: Mapping[Schedule, PipelineSchedule] = {
    "1f1b": PipelineSchedule(_alternating),
    "gpipe": PipelineSchedule(_alternating),
    "zero-bubble": PipelineSchedule(_alternating, splits=True, fill=1 / 3),
    "zb-v": PipelineSchedule(_zero_bubble_v, 2, "V", splits=True, fill=1 / 6),
    "v-half": PipelineSchedule(_of_block, 2, "V", splits=True, fill=1 / 2),
    "v-min": PipelineSchedule(_of_block, 2, "V", splits=True, fill=2 / 3),
    "dualpipe": PipelineSchedule(_dual, 2, "two-way", splits=True, fill=1 / 3),
    "dualpipe-v": PipelineSchedule(_dual_v, 2, "V", splits=True, fill=1 / 3),
}
