"""How measurements were timed: the overheads that their clocks include, which training does not pay, and more.

Attention of frameworks for serving includes copies and a paged cache (docs/decisions/device-costs.md).
"""

import math
from collections.abc import Sequence
from functools import partial

from simulator.api import Session
from simulator.api.session import Question
from simulator.constants import Values
from simulator.questions.single import LaunchQuestion
from simulator.questions.where import Where
from simulator.workload import operators as ops
from simulator.workload.operators import Attention, AttentionLibrary
from validate.kinds.kind import CELLS, WORDS, Timed


class TimingCosts(Values, file="timing"):
    """Overheads in seconds, the same for all hosts unless a calibration has the host's own.

    Between two events around an isolated operator on an idle device, the clock starts before the host launches
    anything, and stops only after the host has returned and recorded the second event, however short the kernel.
    """


def _costs_of(part: str, session: Session) -> tuple[TimingCosts, float]:
    """Return the overheads on the host of *part*, and how many times as long as others' it takes."""
    costs, known = session.constants(TimingCosts), session.calibrations.get(part)
    if known is None:
        return costs, 1.0
    return costs.but(**{name: value for name, value in known.host.items() if name in vars(costs)}), known.dispatch


def between_events(part: str, operator: ops.Operator, phase: ops.Phase, *, searched: bool = False) -> Timed:
    """Return the timing of *operator* in *phase* between two events; *searched*: with the search of its algorithm."""
    forward = WORDS["isolated"].get(type(operator).__name__, "isolated_other_s")
    forward = "searched_convolution_s" if searched else forward
    return Timed(between_events_s, (part, forward if phase == "fwd" else "isolated_backward_s"))


def between_events_s(part: str, before: str, asked_s: float, session: Session) -> float:
    """Return the seconds between events around an operator on an idle *part*, with the cost *before* it."""
    costs, slower = _costs_of(part, session)
    return float(getattr(costs, before)) * slower + max(asked_s, costs.isolated_end_s * slower)


def by_host(where: Where, device: str, operator: ops.Operator, *, is_compiled: bool) -> Timed:
    """Return the timing of *operator* on the host's clock, with a synchronisation, in a loop without gradients.

    Returning from a compiled function takes the host as long as recording a second event, and hides a short kernel.
    The time of a product, less that of another operator, is that in which cuBLAS chooses a kernel.
    """
    timed = partial(LaunchQuestion, where=where, device=device, timed="host")
    issued = [timed(call="empty"), timed(call="wait")]
    if isinstance(operator, ops.Linear | ops.MatMul) and not is_compiled:
        issued += [timed(operator=operator), timed(operator=ops.Elementwise("relu", 1))]
    return Timed(_by_host_s, (tuple(issued), device if is_compiled else ""))


def _by_host_s(issued: Sequence[Question], compiled_on: str, asked_s: float, session: Session) -> float:
    before_s, wait_s, *choosing_s = map(session.time_s, issued)
    after_s = 0.0
    if compiled_on:
        costs, slower = _costs_of(compiled_on, session)
        after_s = costs.isolated_end_s * slower
        before_s += costs.compiled_call_s * slower - after_s
    elif choosing_s:
        before_s += choosing_s[0] - choosing_s[1]
    return before_s + max(asked_s, after_s) + wait_s


def with_overhead_s(constant: str, asked_s: float, session: Session) -> float:
    """Return a time that includes the *constant* of :class:`TimingCosts` with this name, in seconds.

    ``alone_s``: a kernel alone on an idle NVIDIA GPU; ``te_attention_s``: from the first kernel of a call of
    Transformer Engine's attention to the one that attends.
    """
    return asked_s + float(getattr(session.constants(TimingCosts), constant))


def replayed_s(warp_clock_s: float, copied: Sequence[Question], asked_s: float, session: Session) -> float:
    """Return the seconds between replays of a call that also copies; *warp_clock_s*: the SMs' clock for a warp."""
    costs = session.constants(TimingCosts)
    copied_s = sum(session.time_s(each) for each in copied)
    return asked_s + costs.replay_s + max(0.0, warp_clock_s * costs.cache_clocks - copied_s)


def with_other_s(times: float, other: Question, asked_s: float, session: Session) -> float:
    """Return the seconds with those of the *other* question *times* over; -1: the clock leaves them out."""
    return asked_s + times * session.time_s(other)


def from_start_s(counted: int, ran: int, ranks: int, asked_s: float, session: Session) -> float:
    """Return the seconds of the first *ran* steps of *ranks* processes, with loading and connecting, over *counted*."""
    costs = session.constants(TimingCosts)
    start_s = costs.start_s + costs.start_rank_s * (ranks - 1)
    return (asked_s * ran + start_s) / counted


_FOURTH_CUDNN = (9, 14)  # cuDNN version from which attention is FlashAttention 4's on Blackwell
_PREFERS_CUDNN = (2, 11)  # torch version from which attention uses cuDNN on data-centre Hopper and Blackwell
_WRITES_APART = (0, 17)  # vLLM version from which the cache is written by a separate operation
_MOST_THREADS = 512  # of a block of vLLM's reshape_and_cache_flash, which writes one token


def attention_library(software: str) -> AttentionLibrary:
    """Return the library whose attention kernels *software* runs; tables name it with its version."""
    torch = CELLS["torch"].match(software)
    if torch is not None:
        return "native" if (int(torch[1]), int(torch[2])) >= _PREFERS_CUDNN else "flash2"
    cudnn = CELLS["cudnn"].search(software)
    version = tuple(int(part) for part in cudnn.groups() if part)[:2] if cudnn is not None else (0, 0)
    if version >= _FOURTH_CUDNN or CELLS["fourth"].search(software):
        return "flash4"
    return "fmha2" if CELLS["tensorrt"].search(software) else "native" if CELLS["native"].search(software) else "flash2"


def is_torch_since(software: str, version: tuple[int, int]) -> bool:
    """Return whether *software* is PyTorch of at least *version*, or is not said: today's."""
    torch = CELLS["torch"].match(software)
    return not software or (torch is not None and (int(torch[1]), int(torch[2])) >= version)


def _served(software: str) -> tuple[str, bool]:
    """Return the framework for serving that *software* is, and whether it writes the cache by a separate operation."""
    found = CELLS["serving"].match(software)
    name, version = (found[1].lower(), (int(found[2]), int(found[3]))) if found is not None else ("", (0, 0))
    return name, name == "vllm" and version >= _WRITES_APART


def replays(software: str) -> bool:
    """Return whether attention of *software* was timed by replaying a graph with that one call."""
    return CELLS["serving"].match(software) is not None


def copied_besides(operator: Attention, software: str) -> int:
    """Return the number of elements that *software* copies before *operator*, within the measured time."""
    name, apart = _served(software)
    if not name or apart:
        return 0
    heads = 2 * (operator.kv_heads or operator.heads) + operator.heads * (name in ("trtllm", "tensorrt-llm"))
    return operator.batch * heads * operator.key_length * operator.head_size


def cache_warps(operator: Attention, software: str) -> int:
    """Return the warps in which *software* writes keys and values, each finding one token's place in the cache."""
    name, apart = _served(software)
    threads = min(_MOST_THREADS, (operator.kv_heads or operator.heads) * operator.head_size)
    return operator.batch * operator.key_length * math.ceil(threads / 32) if name == "vllm" and not apart else 0
