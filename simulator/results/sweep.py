"""A sweep over sizes in the format of nccl-tests, so that tools for its tables can read ours.

The columns, widths and rounding are those of nccl-tests' ``src/util.cu`` (``writeResultHeader``,
``writeBenchmarkLinePreamble``, ``getFloatStr``).  A simulation has no overlapping buffers, so in-place equals
out-of-place; it moves no data, so ``#wrong`` is N/A.
"""

import math
from collections.abc import Sequence
from itertools import count

from simulator.questions.collective import CollectiveQuestion
from simulator.results.result import Result, best_of, by_time
from simulator.units import format_size
from simulator.workload import Collective
from simulator.workload.parse import type_bytes

SWEEP_WIDTH = 119  # characters per line of the table

# The types' names in nccl-tests, where these are others.
_TYPES = {"fp64": "double", "fp32": "float", "tf32": "float", "fp16": "half", "bf16": "bfloat16", "fp8": "fp8_e4m3"}
_REDUCES = ("all-reduce", "reduce-scatter", "reduce")
_PER_RANK = ("all-gather", "reduce-scatter", "all-to-all")  # the table counts the elements of one rank's part


def sweep_table(results: Sequence[Result], question: CollectiveQuestion) -> str:
    """Return the table of *results* of one strategy on one machine, one line per size, for *question*."""
    first, last = results[0], results[-1]
    side = "  {:>7}  {:>6}  {:>6}  {:>6}".format
    lines = [
        f"# {first.machine}: {first.collective}, strategy {first.strategy}, {first.n_ranks} GPUs, simulated",
        *([f"# {last.changed.said(format_size(last.size_bytes))}"] if last.changed else []),
        "#",
        _left("", "", "", "", "") + "           out-of-place                       in-place          ",
        _left("size", "count", "type", "redop", "root") + 2 * side("time", "algbw", "busbw", "#wrong") + " ",
        _left("(B)", "(elements)", "", "", "") + 2 * side("(us)", "(GB/s)", "(GB/s)", "") + " ",
    ]
    lines += [_line(result, question) for result in results]
    average = sum(result.busbw_Bps for result in results) / len(results) / 1e9
    lines += [f"# {'Out of bounds values':<20} : N/A", f"# {'Avg bus bandwidth':<20} : {average:g} ", "#"]
    return "".join(line + "\n" for line in lines)


def _left(size: str, count: str, kind: str, redop: str, root: str) -> str:
    return f"# {size:>10}  {count:>12}  {kind:>8}  {redop:>6}  {root:>6}"


def _line(result: Result, question: CollectiveQuestion) -> str:
    size = int(result.size_bytes)
    shown_root = question.root if result.collective in ("broadcast", "reduce") else -1
    redop = question.reduction if result.collective in _REDUCES else "none"
    kind, element_bytes = _TYPES.get(question.dtype, question.dtype), type_bytes(question.dtype)
    time = fit(result.sync_time_s * 1e6, 7)
    side = f"  {time:>7}  {fit(result.algbw_Bps / 1e9, 6):>6}  {fit(result.busbw_Bps / 1e9, 6):>6}    N/A"
    count = element_count(size, result.collective, result.n_ranks, element_bytes)
    return f"{size:>12}  {count:>12}  {kind:>8}  {redop:>6}  {shown_root:>6}{side}{side}"


def element_count(size_bytes: int, collective: Collective, n_ranks: int, element_bytes: int) -> int:
    """Return the number of elements in nccl-tests' column ``count``."""
    return size_bytes // element_bytes // (n_ranks if collective in _PER_RANK else 1)


def fit(value: float, width: int) -> str:
    """Return *value* in at most *width* characters, with fewer decimals for larger values."""
    digits = next(digits for digits in count() if value < 10**digits)
    forms = {"2f": width - 2, "1f": width - 1, "0f": width + 1, "1e" if width >= 7 else "0e": math.inf}
    return f"{value:{width}.{next(form for form, most in forms.items() if digits < most)}}"


def winners(by_size: Sequence[Sequence[Result]]) -> str:
    """Return which strategy is fastest from which size on; bounds count only if users can select none of the others."""
    runs: dict[float, str] = {}
    for found in by_size:
        best = best_of(by_time(found))
        name = best.strategy if len({result.machine for result in found}) == 1 else f"{best.strategy} on {best.machine}"
        if not runs or next(reversed(runs.values())) != name:
            runs[best.size_bytes] = name
    above = [result for result in by_size[-1] if not result.is_bound]
    what = "fastest" if above else "lowest bound"
    if len({result.counts_software for result in above}) > 1:
        what += ", launches and protocols included"
    if len(runs) == 1:
        sizes = f"from {format_size(by_size[0][0].size_bytes)} to {format_size(by_size[-1][0].size_bytes)}"
        text = f"{what}, {sizes}: {name}"
    else:
        text = f"{what}: " + ", ".join(f"{name} from {format_size(size)}" for size, name in runs.items())
    bounds = above and len(above) < len(by_size[-1])
    return text + ("; lower bounds do not count, as nobody can select an ideal schedule" if bounds else "")
