"""Combine dumps of one machine: choose among their data, mark guesses, report gaps."""

from collections.abc import Sequence

from simulator.api.context import planned_nvlink_bps
from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import replace
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import CpuPart, GpuPart, LinkPart
from simulator.topology.resolver import MOST_NVLINKS
from validate.machine.describe import driver
from validate.machine.describe import placement as placing
from validate.machine.describe.draft import draft
from validate.machine.describe.dumps.read import KINDS, Dump
from validate.machine.describe.dumps.tree import BusTree
from validate.machine.describe.placement import Adapters, Attachments, Matrix, pcie_pairs, peer_level, place_gpus
from validate.machine.describe.processor import Processor
from validate.machine.describe.similar import cpu_like, links_like
from validate.tables.names import names_of

_MOST_GPUS = 1024
_NVLINK_BPS = 25e9  # per link, since Volta
_ASK_PEERS = "nvidia-smi topo -p2p r says it, with another --from"
_PEERS = {
    True: f"UNVERIFIED: no file says how far GPUs copy directly over PCIe: here as NCCL does by default; {_ASK_PEERS}",
    False: f"UNVERIFIED: GPUs do not copy directly over PCIe, which drivers of such boards refuse; {_ASK_PEERS}",
}
_DETAIL = ("nccl-xml", "hwloc-xml", "nccl-log", "lspci-vv", "lstopo", "lspci")  # with a tree; the first present is used


def combined(dumps: Sequence[Dump], gpu: str | None = None, nic: str | None = None) -> tuple[str, list[str]]:
    """Return the machine of *dumps* as YAML, and remarks; *gpu* and *nic* override names; raises InputError."""
    remarks = [f"{dump.shown}: {remark}" for dump in dumps for remark in dump.remarks]
    shows = [dump for dump in dumps if dump.gpus]
    if not shows:
        tree = dumps[0].tree
        told = tree.remarks[0] if tree is not None and tree.remarks else "shows no GPU"
        raise InputError(Fault(f"{told}; add nvidia-smi topo -m of the machine, with another --from", dumps[0].shown))
    count = shows[0].gpus
    for dump in shows:
        if dump.gpus != count:
            told = f"shows {dump.gpus} GPUs, but {shows[0].shown} shows {count}; give dumps of one machine"
            raise InputError(Fault(told, dump.shown))
    _check_alike(shows)
    if count > _MOST_GPUS:
        raise InputError(Fault(f"shows {count} GPUs; at most {_MOST_GPUS}", shows[0].shown))
    matrix = next((dump.matrix for dump in shows if dump.matrix is not None), None)
    trees = [dump.tree for kind in _DETAIL for dump in shows if dump.kind == kind and dump.tree is not None]
    cards = _cards(shows, trees, matrix, gpu, count)
    parts = {driver.driver_part(card) or card.name for card in cards}
    part = driver.driver_part(cards[0]) or ""
    if matrix is None:
        matrix, guess = _links(trees, part, count)
        remarks += guess
    if any(dump.kind == "amd" for dump in shows):
        matrix, said = _counted(matrix, part)
        remarks.append(said)
    _check_links(shows[0].shown, matrix, part)
    generation = driver.slot_generation(cards)
    adapters = {name: each for dump in dumps for name, each in dump.adapters.items()}
    placement = _placement(trees, matrix, nic, adapters, generation, remarks)
    processor = _processor(trees, placement, matrix, part, count, generation)
    hung = placement.adapters
    left = [each.adapter.name for each in hung if not driver.adapter_part(each.adapter, each.generation)[0]]
    if nic is None and not any(tree.nics() for tree in trees):
        left += [name for name in matrix.nics if not _rated(name, matrix, adapters)]
    if left:
        names = ", ".join(one_line(name, 40) for name in dict.fromkeys(left))
        unknown = f"adapters left out, because their speed is unknown: {names}"
        remarks.append(f"{unknown}; name the model, as in --nic connectx-7-ndr")
    if len(parts) > 1:
        remarks.append(f"GPUs of several kinds: {', '.join(sorted(parts))}")
    states = next((dump.peers for dump in shows if dump.peers), {})
    peers = peer_level(matrix, states, usual=driver.are_peers(cards)) if states else ""
    if not states and pcie_pairs(matrix):
        remarks.append(_PEERS[driver.are_peers(cards)])
    source = ", ".join(dict.fromkeys(KINDS.get(dump.kind, dump.kind) for dump in dumps))
    return draft(processor, cards, matrix, remarks, peers=peers, placement=placement, source=source), remarks


def _check_alike(dumps: Sequence[Dump]) -> None:
    first: tuple[Dump, set[str]] | None = None
    for dump in dumps:
        tree = dump.tree.cards() if dump.tree is not None else ()
        cards = (*map(driver.Card, dump.names), *dump.cards, *tree)
        parts = [load_part(name) for card in cards if card.name and (name := driver.driver_part(card))]
        made = {f"{part.vendor} {part.architecture}" for part in parts if isinstance(part, GpuPart)}
        if first is not None and made and made.isdisjoint(first[1]):
            has, had = (" and ".join(sorted(each)) for each in (made, first[1]))
            told = f"shows GPUs of {has}, but {first[0].shown} shows {had}; give dumps of one machine"
            raise InputError(Fault(told, dump.shown))
        first = first or ((dump, made) if made else None)


def _cards(
    dumps: Sequence[Dump], trees: Sequence[BusTree], matrix: Matrix | None, gpu: str | None, count: int
) -> tuple[driver.Card, ...]:
    """Return the GPUs, named by *gpu*, else by a listing, else by a tree; raises InputError where one has no name."""
    ports = next((tree.cards() for tree in trees if any(card.pcie_generation for card in tree.cards())), None)
    cards = list(ports or (driver.Card(""),) * count)
    listed = next((dump.names for dump in dumps if dump.names), ())
    for tree in reversed(trees):
        for i, card in enumerate(tree.cards()):
            if card.name:
                cards[i] = replace(cards[i], name=card.name, memory_bytes=card.memory_bytes)
    for i, name in enumerate(listed):
        cards[i] = replace(cards[i], name=name)
    for i, card in enumerate(next((dump.cards for dump in dumps if dump.cards), ())):
        cards[i] = card
    if gpu is not None:
        cards = [replace(card, name=_named(gpu, matrix, count), memory_bytes=0) for card in cards]
    if not all(card.name for card in cards):
        told = "does not say which GPUs these are; name them, as in --gpu h100"
        raise InputError(Fault(f"{told}, or add nvidia-smi -L with another --from", dumps[0].shown))
    return tuple(cards)


def _named(name: str, matrix: Matrix | None, count: int) -> str:
    """Return the GPU part that *name* means, of several one with *matrix*'s NVLinks; raises InputError."""
    known = names_of("gpu")
    direct = driver.driver_part(driver.Card(name))
    if direct is not None:
        return direct
    words = set(name.lower().replace("_", "-").split("-"))
    found = [part for part in part_names("gpu") if words <= set(part.split("-"))]
    if len(found) > 1 and matrix is not None:
        like = {part: links_like(part, count) for part in found}
        drawn = _nvlinks(matrix)
        found = [part for part, each in like.items() if each is not None and _nvlinks(each[0]) == drawn] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"--gpu {one_line(name, 40)}: {' or '.join(found[:6])}; say which")
    allowed = {each.lower() for each in known} | {part.partition("-")[0] for part in part_names("gpu")}
    raise InputError(f"--gpu: no GPU is called '{one_line(name, 40)}'; {nearest(name.lower(), allowed)}")


def _nvlinks(matrix: Matrix) -> dict[tuple[str, str], str]:
    return {pair: word for pair, word in matrix.between.items() if word.startswith("NV")}


def _links(trees: Sequence[BusTree], part: str, count: int) -> tuple[Matrix, list[str]]:
    """Return the NVLinks and remarks: from a tree, else from built-in machines with as many of the same GPUs."""
    gpu = load_part(part)
    capability = gpu.compute_capability if isinstance(gpu, GpuPart) else None
    link = load_part(driver.nvlink_parts(part)[0])
    nominal_Bps = (link.bandwidth if isinstance(link, LinkPart) else None) or _NVLINK_BPS
    for tree in trees:
        if tree.links is not None:
            return tree.matrix((planned_nvlink_bps(capability) if tree.rates == "planned" else nominal_Bps) / 1e9), []
    like = links_like(part, count)
    unsaid = "UNVERIFIED: no file says NVLinks"
    if like is not None and _nvlinks(like[0]):
        return like[0], [f"{unsaid}; they are those of {like[1]}, which has as many of these GPUs"]
    said = [f"{unsaid}; there are none in the draft"] if count > 1 else []
    return (trees[0].matrix() if trees else Matrix(count, (), {}, {})), said


def _check_links(shown: str, matrix: Matrix, part: str) -> None:
    """Raise InputError where a GPU has more NVLinks than its part allows, unless all may lead to switches."""
    gpu = load_part(part)
    most = gpu.nvlink_count if isinstance(gpu, GpuPart) and gpu.nvlink_count is not None else MOST_NVLINKS
    for a in range(matrix.gpus):
        counts = [matrix.nvlinks(a, b) for b in range(matrix.gpus) if b != a]
        if sum(counts) > most and not (len(set(counts)) == 1 and counts[0] <= most):
            same = len(counts) > 1 and len(set(counts)) == 1
            alike = f"{counts[0]} NVLinks to each other GPU" if same else f"{sum(counts)} NVLinks"
            told = f"GPU{a} has {alike}, where {part or 'a GPU'} has at most {most}; is --gpu another?"
            raise InputError(Fault(told, shown))


def _placement(
    trees: Sequence[BusTree], matrix: Matrix, nic: str | None, adapters: Adapters, generation: int, remarks: list[str]
) -> Attachments:
    """Return where devices are attached: by the first tree, else by *matrix*; *nic* is the part of all adapters."""
    rated = {name: adapters[matrix.legend.get(name, name)] for name in matrix.nics if _rated(name, matrix, adapters)}
    named = rated if nic is None else {name: placing.Adapter(name, part=nic) for name in matrix.nics}
    # Two sockets where CPU affinities differ or some pairs of GPUs are far apart.
    apart = {word in ("SYS", "SOC") for (a, b), word in matrix.between.items() if a != b}
    sockets = 2 if len(set(matrix.affinity.values())) > 1 or len(apart) > 1 else 1
    tree = next(iter(trees), None)
    if tree is None or (not any(bus.below for numa in tree.numas for bus in numa.below) and matrix.nics):
        placed = place_gpus(matrix, sockets, {}, named, generation=generation)
        said = {"PIX", "PXB", "PHB", "NODE"}.intersection(matrix.between.values())
        if not matrix.affinity and sockets == 1 and matrix.gpus > 1 and not said:
            remarks.append("UNVERIFIED: no file says at which socket or switch a GPU hangs; all are at one socket")
        return placed
    placed = tree.placement()
    hung = tuple(
        replace(each, adapter=replace(adapters.get(each.adapter.name, each.adapter), part=nic or each.adapter.part))
        for each in placed.adapters
    )
    placed = replace(placed, adapters=hung)
    if tree.sockets_said:
        return placed
    if sockets > 1:
        socket = place_gpus(matrix, sockets, {}).socket
        for number, switch in enumerate(placed.switches):
            below = placed.gpus_below(number)
            switch.socket = socket[below[0]] if below else 0
        at = [switch.socket for switch in placed.switches]
        hung = tuple(each if each.switch is None else replace(each, socket=at[each.switch]) for each in hung)
        return replace(placed, socket=socket, adapters=hung, guessed=False)
    remarks.append("UNVERIFIED: no file says at which socket a GPU hangs; all are at one; nvidia-smi topo -m says it")
    return placed


def _rated(name: str, matrix: Matrix, adapters: Adapters) -> bool:
    found = adapters.get(matrix.legend.get(name, name))
    return found is not None and found.rate_Bps > 0


def _counted(matrix: Matrix, part: str) -> tuple[Matrix, str]:
    """Return *matrix*, whose joined GPUs have one link each, with the counts of a similar machine, and a remark."""
    like = links_like(part, matrix.gpus)
    counts = _nvlinks(like[0]) if like is not None else {}
    if like is not None and counts.keys() == _nvlinks(matrix).keys():
        between = {**matrix.between, **counts}
        return replace(matrix, between=between), f"UNVERIFIED: as many xGMI links between two GPUs as in {like[1]}"
    return matrix, "UNVERIFIED: one xGMI link between two GPUs; amd-smi topology does not count them"


def _processor(
    trees: Sequence[BusTree], placement: Attachments, matrix: Matrix, gpu: str, count: int, generation: int
) -> Processor:
    """Return the host's processor: as a tree names it, else by its family and model, else as in similar machines."""
    numas = next((tree.numas for tree in trees if any(numa.vendor for numa in tree.numas)), [])
    first = numas[0] if numas else None
    used = {*placement.socket, *(switch.socket for switch in placement.switches)}
    used |= {hung.socket for hung in placement.adapters}
    sockets = 1 + max(used | {*(trees[0].sockets().values() if numas else ())}, default=0)
    threads = (sum(numa.threads for numa in numas) or matrix.threads) // sockets
    vendor = first.vendor if first else ""
    if first is not None and first.name:
        cores = max(1, sum(numa.cores for numa in numas) // sockets or threads)
        return Processor(first.name, vendor, first.family, sockets=sockets, cores=cores, threads=max(1, threads))
    family, model = (first.family, first.model) if first else (0, 0)
    name, why = cpu_like(vendor, family, model, threads, gpu, count, generation)
    part = load_part(name)
    assert isinstance(part, CpuPart)
    cores, threads = part.core_count or 1, part.thread_count or 1
    return Processor(name, part.vendor, sockets=sockets, cores=cores, threads=threads, guess=why)
