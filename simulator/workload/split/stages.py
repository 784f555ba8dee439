"""Pipeline stages: a network cut into consecutive parts."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from simulator.errors import counted, refused
from simulator.records import dataclass, replace
from simulator.workload.network import Layer, Network, block_name, family_of, once


@dataclass(frozen=True, eq=False)
class NetworkStage:
    """One part of a network.

    ``received_elements`` is the size of the tensors received from earlier parts, ``shared_elements`` that of the
    parameters that another part holds too (a tied embedding).
    """

    network: Network
    received_elements: int
    shared_elements: int


@once
def stages_of(network: Network, count: int, blocks: tuple[int, ...] = ()) -> tuple[NetworkStage, ...]:
    """Return *network* as *count* consecutive parts, with so many *blocks* (layers, in a network without) where given.

    Without *blocks* each part gets equally many where they divide, or else the heaviest part, mainly by FLOPs, is as
    light as possible (docs/decisions/parallelism.md).

    Raises InputError if there are fewer units than *count*, or other ones than *blocks* say.
    """
    units = units_of(network)
    if blocks:
        return _made(network, _as_said(network, units, count, blocks))
    if len(units) < count == len(units) + 2:
        units = _with_ends(units)
    if count > len(units):
        raise refused("layout", f"{_counted(network, units)}; pp x vp is at most that, not {count}")
    of_blocks = [number for number, unit in enumerate(units) if block_name(unit[0].name) or block_name(unit[-1].name)]
    equal = family_of(network) in ("transformer", "MoE") or _alike(units)
    if len(of_blocks) == len(units) and len(units) % count == 0 and equal:
        each = len(units) // count
        cuts = [each * part for part in range(count + 1)]
    else:
        cuts = _balanced([sum(_weight(layer) for layer in unit) for unit in units], count)
    return _made(network, [[layer for unit in units[a:b] for layer in unit] for a, b in pairwise(cuts)])


def joined_stages(parts: Sequence[NetworkStage]) -> Network:
    """Return the parts of one stage (several, with virtual stages) as one network."""
    first = parts[0].network
    if len(parts) == 1:
        return first
    layers = tuple(layer for part in parts for layer in part.network.layers)
    return replace(first, layers=layers, trained_inputs=frozenset(t for p in parts for t in p.network.trained_inputs))


def units_of(network: Network) -> list[list[Layer]]:
    """Return the indivisible units: each block with the layers up to the next; each layer if there are no blocks."""
    names = [block_name(layer.name) for layer in network.layers]
    if not any(names):
        return [[layer] for layer in network.layers]
    units: list[list[Layer]] = [[]]
    current = ""
    for layer, name in zip(network.layers, names, strict=True):
        if name and name != current:
            if current:
                units.append([])
            current = name
        units[-1].append(layer)
    return units


def _counted(network: Network, units: Sequence[object]) -> str:
    kind = "blocks" if any(block_name(layer.name) for layer in network.layers) else "layers"
    return f"{network.name} has {len(units)} {kind}"


def _as_said(network: Network, units: list[list[Layer]], count: int, blocks: tuple[int, ...]) -> list[list[Layer]]:
    said = f"blocks={'-'.join(map(str, blocks))}"
    if len(blocks) != count:
        raise refused("layout", f"{said} is {counted(len(blocks), 'part')}, and the pipeline has {count}: pp x vp")
    if sum(blocks) != len(units):
        raise refused("layout", f"{said} is {sum(blocks)} in all, and {_counted(network, units)}")
    apart = _with_ends(units)
    first, middle, last = ([], units, []) if len(apart) == len(units) else (apart[0], apart[1:-1], apart[-1])
    ends = list(accumulate(blocks, initial=0))
    parts = [[layer for unit in middle[a:b] for layer in unit] for a, b in pairwise(ends)]
    parts[0], parts[-1] = first + parts[0], parts[-1] + last
    if not all(parts):
        raise refused("layout", f"{said}: part {parts.index([]) + 1} would have no layers")
    return parts


def _with_ends(units: list[list[Layer]]) -> list[list[Layer]]:
    """Return *units* with the layers before the first block and after the last, if any, as units of their own."""
    first, last = units[0], units[-1]
    begins = next((n for n, layer in enumerate(first) if block_name(layer.name)), 0)
    ends = len(last) - next((n for n, layer in enumerate(reversed(last)) if block_name(layer.name)), 0)
    if len(units) < 2 or not begins or ends == len(last):
        return units
    return [first[:begins], first[begins:], *units[1:-1], last[:ends], last[ends:]]


def _alike(units: Sequence[Sequence[Layer]]) -> bool:
    """Return whether all blocks have the same operators, ignoring the layers around them."""
    shapes = [[layer.operator for layer in unit if block_name(layer.name)] for unit in units]
    return all(shape == shapes[0] for shape in shapes)


def _weight(layer: Layer) -> float:
    """Return the weight of a layer for balancing: its FLOPs, plus 10 for each element of its result."""
    return layer.operator.flop + 10.0 * layer.operator.output_elements


def _balanced(weights: Sequence[float], count: int) -> list[int]:
    """Return the cuts that minimise the weight of the heaviest of *count* parts, by dynamic programming."""
    sums = list(accumulate(weights, initial=0.0))
    n = len(weights)
    best = [sums[end] for end in range(n + 1)]  # heaviest weight for the first `end` units, in as many parts as so far
    starts: list[list[int]] = []
    for part in range(1, count):
        longer, start = [float("inf")] * (n + 1), [0] * (n + 1)
        for end in range(part + 1, n + 1):
            for cut in range(end - 1, part - 1, -1):
                own = sums[end] - sums[cut]
                heaviest = max(best[cut], own)
                if heaviest < longer[end]:
                    longer[end], start[end] = heaviest, cut
                if own > longer[end]:
                    break
        best = longer
        starts.append(start)
    cuts = [n]
    for start in reversed(starts):
        cuts.append(start[cuts[-1]])
    return [0, *reversed(cuts)]


def _made(network: Network, parts: Sequence[Sequence[Layer]]) -> tuple[NetworkStage, ...]:
    written: dict[int, int] = {}  # index of the part that writes each tensor
    read: dict[int, int] = {}  # index of the last part that reads it
    owners: dict[str, set[int]] = {}
    for number, layers in enumerate(parts):
        for layer in layers:
            for tensor in layer.inputs:
                read[tensor] = number
            written[layer.output] = number
            for parameter in layer.parameters:
                owners.setdefault(parameter.name, set()).add(number)
    stages = []
    for number, layers in enumerate(parts):
        crossing = [t for t, first in written.items() if first < number <= read.get(t, -1)]
        parameters = {p.name: p.elements for layer in layers for p in layer.parameters}
        shared = sum(n for name, n in parameters.items() if len(owners[name]) > 1)
        part = replace(network, layers=tuple(layers), trained_inputs=frozenset(crossing))
        stages.append(NetworkStage(part, sum(network.elements[t] for t in crossing), shared))
    return tuple(stages)
