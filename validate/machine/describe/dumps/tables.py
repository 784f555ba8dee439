"""Tables of drivers and adapters: ``rocm-smi --showtopo``, ``amd-smi topology``, ``ibstat`` and ``nvidia-smi -q``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from validate.machine.describe.driver import Adapter, Card
from validate.machine.describe.matrix import MOST_DEVICES, Matrix

_TYPES = re.compile(r"Link Type between two GPUs|LINK TYPE TABLE")
_HOPS = re.compile(r"Hops between two GPUs|HOPS TABLE")
_NUMA = re.compile(r"GPU ?\[?(\d{1,4})\]?\s*: \(Topology\) Numa Node: (\d{1,3})", re.ASCII)
_NAMED = re.compile(r"GPU\d{1,4}|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE | re.ASCII)
_SAME_SOCKET_HOPS = 2


def amd_matrix(text: str) -> Matrix:
    """Return the GPUs in the output of ``rocm-smi --showtopo`` or ``amd-smi topology``, joined by one xGMI link each.

    Over PCIe, GPUs of one NUMA node, or two hops apart, are at one socket.  Raises ValueError where *text* has no table
    of link types.
    """
    types, hops = _table(text, _TYPES), _table(text, _HOPS)
    numa = {int(gpu): int(node) for gpu, node in _NUMA.findall(text)}
    n = len(types)
    if not n or any(len(row) != n for row in types):
        raise ValueError("no whole table of link types; 'rocm-smi --showtopo' and 'amd-smi topology' print it")
    if n > MOST_DEVICES:
        raise ValueError(f"{n} GPUs; one machine is needed")

    def word(a: int, b: int) -> str:
        if a == b:
            return "X"
        if types[a][b].upper() == "XGMI":
            return "NV1"
        if a in numa and b in numa:
            return "NODE" if numa[a] == numa[b] else "SYS"
        far = hops[a][b] if a < len(hops) and b < len(hops[a]) else ""
        return "SYS" if far.isdecimal() and int(far) > _SAME_SOCKET_HOPS else "NODE"

    between = {(f"GPU{a}", f"GPU{b}"): word(a, b) for a in range(n) for b in range(n)}
    return Matrix(n, (), between, numa if len(numa) == n else {})


def _table(text: str, title: re.Pattern[str]) -> list[list[str]]:
    """Return the cells below *title*, by row, without the rows' names; empty where there is none."""
    found = title.search(text)
    rows: list[list[str]] = []
    for line in text[found.end() :].splitlines()[1:] if found else ():
        words = line.split()
        if not words or not _NAMED.fullmatch(words[0]):
            if rows:
                break
            continue
        if len(words) > 1 and _NAMED.fullmatch(words[1]):  # the header
            continue
        rows.append(words[1:])
    return rows


_ADAPTER = re.compile(r"^CA '([^'\n]{1,60})'", re.MULTILINE)
_RATE = re.compile(r"^[ \t]*Rate: (\d{1,5})\b", re.MULTILINE | re.ASCII)
_LAYER = re.compile(r"^[ \t]*Link layer: (InfiniBand|Ethernet)", re.MULTILINE)


def ibstat_adapters(text: str) -> dict[str, Adapter]:
    """Return the adapters in the output of ``ibstat`` by name, each with the rate of all its active ports.

    An adapter without an active port has the rate 0.  Raises ValueError where *text* names none.
    """
    starts = [*_ADAPTER.finditer(text)]
    if not starts:
        raise ValueError("no adapter (CA 'mlx5_0') in it")
    found = {}
    for start, end in zip(starts, [*(each.start() for each in starts[1:]), len(text)], strict=True):
        ports = re.split(r"^[ \t]*Port \d+:", text[start.end() : end], flags=re.MULTILINE)[1:]
        active = [port for port in ports if "State: Active" in port]
        rates = [int(rate[1]) for port in active if (rate := _RATE.search(port))]
        layer = next((each[1].lower() for port in ports if (each := _LAYER.search(port))), "infiniband")
        found[start[1]] = Adapter(start[1], layer, sum(rates) * 1e9 / 8)
    return found


_GPU = re.compile(r"^GPU [0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7]", re.MULTILINE | re.IGNORECASE | re.ASCII)
_LINE = re.compile(r"^(\s+)([A-Z][^:\n]{1,60}?)\s*(?:: (.*))?$", re.ASCII)


def queried_cards(text: str) -> tuple[Card, ...]:
    """Return the GPUs in the output of ``nvidia-smi -q``: lanes as negotiated, power limit and clock as set.

    Raises ValueError where *text* shows no GPU.
    """
    starts = [each.start() for each in _GPU.finditer(text)]
    if not starts:
        raise ValueError("no GPU in it")
    return tuple(_card(dict(_paths(text[a:b]))) for a, b in zip(starts, [*starts[1:], len(text)], strict=True))


def _paths(text: str) -> Iterator[tuple[str, str]]:
    """Yield (titles from the outermost one, joined by slashes; value) of the indented lines of *text*."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        above = [*(each for each in above if each[0] < len(found[1])), (len(found[1]), found[2])]
        if found[3] is not None:
            yield "/".join(title for _, title in above), found[3].strip()


def _card(said: dict[str, str]) -> Card:
    def number(*ends: str) -> float:
        values = [value for end in ends for path, value in said.items() if path.endswith(end)]
        words = [found[0] for value in values if (found := re.match(r"\d{1,7}(?:\.\d+)?", value, re.ASCII))]
        return float(words[0]) if words else 0.0

    generations = [number("PCIe Generation/Max"), number("PCIe Generation/Host Max")]
    return Card(
        next((value for path, value in said.items() if path.endswith("Product Name")), ""),
        int(number("FB Memory Usage/Total")) << 20,
        int(min((each for each in generations if each), default=0)),
        int(number("Link Width/Current", "Link Width/Max")),
        number("Power Readings/Current Power Limit", "Power Readings/Power Limit"),
        1e6 * number("Applications Clocks/Graphics"),
        1e6 * number("Max Clocks/Graphics"),
    )
