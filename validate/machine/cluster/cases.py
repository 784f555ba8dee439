"""The strategies that can be measured, and the command's options as the list of cases to measure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from simulator.api.collectives import is_strategy, strategy_names
from simulator.errors import InputError, nearest, one_line
from simulator.records import dataclass
from simulator.units import parse_quantity
from simulator.workload import Collective
from validate.machine.cluster.commands import LinkShape
from validate.machine.measure.duration import duration_s

_SERVERS = re.compile(r"parameter-server-([1-9]\d{0,2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterStrategy:
    """A strategy: ``name`` as in ``--strategies``, ``predictor`` as in ``simulate --strategy``.

    ``by_torch`` marks torch's own collectives; the others run send by send, as the simulator plans them.
    ``least_nodes`` is the fewest hosts that the strategy needs.
    """

    name: str
    collective: Collective
    predictor: str
    by_torch: bool = False
    least_nodes: int = 2


_BY_TORCH = {
    "gloo": ClusterStrategy("gloo", "all-reduce", "gloo", by_torch=True),
    "broadcast": ClusterStrategy("broadcast", "broadcast", "gloo", by_torch=True),
}


def find_cluster_strategy(name: str) -> ClusterStrategy:
    """Return the strategy called *name*: one of torch's own, or any schedule of ``simulate --strategy``.

    Raises InputError for any other name; suggests the nearest.
    """
    word = name.strip().lower()
    if word in _BY_TORCH:
        return _BY_TORCH[word]
    if is_strategy(word) and word != "nccl":
        servers = _SERVERS.fullmatch(word)
        return ClusterStrategy(word, "all-reduce", word, least_nodes=max(2, int(servers[1])) if servers else 2)
    names = [*(known for known in strategy_names() if known != "nccl"), "parameter-server-2", *_BY_TORCH]
    raise InputError(f"--strategies: '{one_line(name, 40)}' is not measured; {nearest(word, names)}")


_MOST_NODES = 32
_LEAST_RATE_BPS, _MOST_RATE_BPS = 125e3, 12.5e9  # 1 Mbit/s, 100 Gbit/s
_LEAST_BYTES, _MOST_BYTES = 4, 1e9
_SIZES = "4 B to 1 GB"
_MOST_CASES = 2000
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterCase:
    """One combination of link, host count, size and strategy to measure and predict; holds no results."""

    shape: LinkShape
    n_nodes: int
    size_bytes: int
    strategy: ClusterStrategy


def make_cases(nodes: str, rates: Sequence[str], sizes: str, strategies: str, delay: str | None) -> list[ClusterCase]:
    """Return the cases ordered by rate, number of nodes, size and strategy, each in the order given.

    Sizes are rounded down to whole fp32 elements (4 B).  Strategies that need more nodes than a case has are skipped.

    Raises InputError where an option cannot be parsed, no case remains, or there are more than 2000.
    """
    counts = _node_counts(nodes)
    named = [find_cluster_strategy(word) for word in _words("--strategies", strategies)]
    delay_s = _quantity("--delay", delay, "time") if delay is not None else 0.0
    shapes = [
        LinkShape(
            _within("--rate", _quantity("--rate", word, "bandwidth"), _LEAST_RATE_BPS, _MOST_RATE_BPS, word), delay_s
        )
        for rate in rates
        for word in _words("--rate", rate)
    ]
    lengths = [
        int(_within("--sizes", _size(word), _LEAST_BYTES, _MOST_BYTES, word)) // 4 * 4
        for word in _words("--sizes", sizes)
    ]
    cases = [
        ClusterCase(shape, n, size, strategy)
        for shape, n, size, strategy in product(
            dict.fromkeys(shapes), dict.fromkeys(counts), dict.fromkeys(lengths), dict.fromkeys(named)
        )
        if strategy.least_nodes <= n
    ]
    if not cases:
        raise InputError("--strategies: more servers than nodes; nothing is left to measure")
    if len(cases) > _MOST_CASES:
        raise InputError(f"{len(cases)} cases are too many (up to {_MOST_CASES}); name fewer nodes, rates or sizes")
    return cases


def read_duration(option: str, text: str) -> float:
    """Return the positive duration *text* in seconds, as ``validate run`` reads durations or in any unit of time.

    Raises InputError, naming *option*, where *text* is neither.
    """
    try:
        return duration_s(text)
    except ValueError as error:
        try:
            return parse_quantity(text, "time", positive=True)
        except ValueError:
            raise InputError(f"{option}: {one_line(error, 120)}") from None


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option}: names or numbers with commas between are needed; got '{one_line(text, 60)}'")
    return words


def _node_counts(text: str) -> list[int]:
    counts: list[int] = []
    for word in _words("--nodes", text):
        match = _RANGE.fullmatch(word)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 2 <= low <= high <= _MOST_NODES:
            raise InputError(
                f"--nodes: numbers from 2 to {_MOST_NODES} such as 4, 2,4 or 2-6 are needed; got '{one_line(word, 40)}'"
            )
        counts.extend(range(low, high + 1))
    return counts


def _size(word: str) -> float:
    if word.startswith("-"):  # report a negative size as out of range, not as a number without a unit
        raise InputError(f"--sizes: {one_line(word, 40)} is outside {_SIZES}")
    return _quantity("--sizes", word, "size")


def _quantity(option: str, text: str, dimension: str) -> float:
    try:
        return parse_quantity(text, dimension)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


def _within(option: str, value: float, least: float, most: float, text: str) -> float:
    if not least <= value <= most:
        limits = "1 Mbit/s to 100 Gbit/s" if option == "--rate" else _SIZES
        raise InputError(f"{option}: {one_line(text, 40)} is outside {limits}")
    return value
