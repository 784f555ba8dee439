"""The YAML of a draft: reported figures as they are, missing ones as marked estimates, and which of these matter."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, groupby
from typing import NamedTuple

from simulator import CollectiveQuestion, InputError, Session, Where
from simulator.topology.catalogue import builtin_topologies, load_part
from simulator.topology.load import topology_from_text
from simulator.topology.parts import CpuPart, GpuPart
from simulator.topology.resolver import MOST_NVLINKS
from simulator.units import format_binary
from validate.machine.describe import driver
from validate.machine.describe.placement import Attachments, Matrix, place_gpus
from validate.machine.describe.processor import Processor, nearest_cpu, own_cpu, quoted
from validate.machine.describe.similar import sockets_like
from validate.machine.measure.host import slug
from validate.tables.names import find_cpu

_LONGEST_NAME = 60
_OF_AMD = re.compile(r"gfx\d|amd\b|instinct\b|radeon\b", re.IGNORECASE | re.ASCII)


def draft(
    processor: Processor,
    cards: Sequence[driver.Card],
    matrix: Matrix | None,
    remarks: Sequence[str] = (),
    disk: tuple[str, str] | None = None,
    *,
    peers: str = "",
    placement: Attachments | None = None,
    source: str = "what the system and the driver report",
) -> str:
    """Return the YAML of a machine with *processor*, *cards* and *disk* (the names of its part and link part).

    *remarks* become comments at the top.  *peers*: how far GPUs copy directly over PCIe, "" for the default.
    *placement* (None: by *matrix*) says where devices are attached, *source* where the draft's figures come from.
    """
    part, cpu_lines, own = _cpu(processor)
    parts, gpus = _gpus(cards, slug(processor.model) or "cpu")
    names = [card.name for card in cards]
    boards = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    title = ", ".join([*boards, f"{processor.sockets} x {processor.model or 'a processor without a name'}"])[:190]
    lines = [
        "# Drafted by validate describe. What starts with UNVERIFIED is an estimate: replace it by what you know.",
        *(f"# {remark}" for remark in remarks),
        "schema_version: 1",
        f"name: {quoted(_name(processor, gpus))}",
        f"description: {quoted(title)}",
        f"source: {quoted(f'drafted by validate describe from {source}')}",
        "",
    ]
    own += parts
    if placement is None and matrix is not None:
        placement = place_gpus(matrix, processor.sockets, processor.socket_of)
    if placement is None:
        placement = Attachments((0,) * len(cards), guessed=processor.sockets > 1 and len(cards) > 0)
    links, switches = _links(processor, part, cards, placement)
    mesh, nvswitch, switched = _nvlinks(cards, matrix)
    adapters, wired = _adapters(placement)
    devices = [*_ranges(gpus), *nvswitch, *cpu_lines, *switches, *adapters]
    links += wired
    if disk is not None:
        devices.append(f'disk0: {{part: {disk[0]}, source: "UNVERIFIED: its figures; the system says its kind"}}')
        links.append(f"- {{between: [disk0, cpu0], part: {disk[1]}}}")
    lines += ["parts:", *own, ""] if own else []
    lines += ["devices:", *(f"  {line}" for line in devices)]
    if links or nvswitch:
        lines += ["", "links:", *(f"  {line}" for line in [*links, *switched])]
    lines += mesh
    if peers:
        lines += ["", f'transport: {{peer_to_peer: {peers}, source: "nvidia-smi topo -p2p r"}}']
    return "\n".join(lines) + "\n"


def _name(processor: Processor, gpus: Sequence[str]) -> str:
    """Return a name made of the machine's parts; measurements of the machine will carry it."""
    boards = [f"{gpus.count(part)}x-{part}" for part in dict.fromkeys(gpus)]
    own = find_cpu(slug(processor.model)) or slug(processor.model) or "cpu"
    name = "-".join([*boards, f"{processor.sockets}x-{own}"])[:_LONGEST_NAME].rstrip("-.")
    return f"{name}-draft" if name in builtin_topologies() else name


def _cpu(processor: Processor) -> tuple[CpuPart, list[str], list[str]]:
    """Return the nearest built-in part, the CPU devices' lines, and those of a part of its own, if needed."""
    builtin = find_cpu(slug(processor.model))
    like = builtin or nearest_cpu(processor)
    part = load_part(like)
    assert isinstance(part, CpuPart)
    if processor.is_guest and processor.cores < (part.core_count or 1):
        builtin = None
    name = builtin or slug(processor.model) or "cpu"
    figures = [f"part: {quoted(name) if builtin is None else name}"]
    if processor.memory_bytes:
        figures.append(f"memory_size: {format_binary(processor.memory_bytes // processor.sockets, 5)}")
    if builtin is not None:
        if processor.cores != part.core_count:
            figures.append(f"core_count: {processor.cores}")
        if processor.threads * (part.core_count or 1) != processor.cores * (part.thread_count or 0):
            figures.append(f"thread_count: {processor.threads}")
        if processor.guess:
            figures.append(f"source: {quoted(f'UNVERIFIED: {processor.guess}')}")
    key = "cpu0" if processor.sockets == 1 else f"cpu[0-{processor.sockets - 1}]"
    own = [] if builtin is not None else own_cpu(name, processor, like, part)
    return part, [f"{key}: {{{', '.join(figures)}}}"], own


def _gpus(cards: Sequence[driver.Card], taken: str) -> tuple[list[str], list[str]]:
    lines: list[str] = []
    names = []
    for card in cards:
        name, own, figures = driver.driver_part(card), *driver.limited_part(card)
        head = f"  {own}:"
        if name is None:
            own = slug(card.name) or "gpu"
            own += "-gpu" if own == taken else ""
            head, figures = f"  {quoted(own)}:", ["kind: gpu", f"description: {quoted(card.name[:100])}"]
            figures += ["vendor: amd"] if _OF_AMD.match(card.name) else []
            figures += [f"memory_size: {card.memory_bytes >> 20} MiB"] if card.memory_bytes else []
            figures += [
                "# fill in for what compute costs: sm_count, boost_clock, peak, memory_bandwidth, l2_size",
                'source: "UNVERIFIED: a GPU that is not built in; the driver says its name and memory"',
            ]
        if own and head not in lines:
            lines += [head, *(f"    {line}" for line in figures)]
        names.append(own or name or "")
    return lines, names


def _ranges(names: Sequence[str]) -> list[str]:
    lines, start = [], 0
    for name, run in groupby(names):
        end = start + len([*run])
        key = f"gpu{start}" if end == start + 1 else f"gpu[{start}-{end - 1}]"
        lines.append(f"{key}: {{part: {quoted(name)}}}")
        start = end
    return lines


def _links(
    processor: Processor, part: CpuPart, cards: Sequence[driver.Card], placement: Attachments
) -> tuple[list[str], list[str]]:
    lines, switches = [], []
    above = {gpu: number for number, switch in enumerate(placement.switches) for gpu in switch.gpus}
    for gpu, card in enumerate(cards):
        slot, said = driver.pcie_part(card)
        to = f"plx{above[gpu]}" if gpu in above else f"cpu{placement.socket[gpu]}"
        notes = [] if said else ["UNVERIFIED: the driver does not say which slot"]
        notes += ["UNVERIFIED: nothing says at which socket"] if placement.guessed and gpu not in above else []
        source = f', source: "{"; ".join(notes)}"' if notes else ""
        lines.append(f"- {{between: [gpu{gpu}, {to}], part: {slot}{source}}}")
    for number, switch in enumerate(placement.switches):
        switches.append(f"plx{number}: {{kind: pcie-switch}}")
        to = f"cpu{switch.socket}" if switch.above is None else f"plx{switch.above}"
        below = [*(cards[gpu] for gpu in placement.gpus_below(number)), driver.Card("")]
        port = driver.port_part(*switch.port) or driver.pcie_part(below[0])[0]  # else that of its first GPU
        lines.append(f"- {{between: [plx{number}, {to}], part: {port}}}")
    name = sockets_like(find_cpu(slug(processor.model)) or "", part, driver.slot_generation(cards))
    for a, b in combinations(range(processor.sockets), 2):
        source = '"UNVERIFIED: usual between sockets of such processors"'
        lines.append(f"- {{between: [cpu{a}, cpu{b}], part: {name}, source: {source}}}")
    return lines, switches


def _adapters(placement: Attachments) -> tuple[list[str], list[str]]:
    devices: list[str] = []
    links: list[str] = []
    for hung in placement.adapters:
        part, guess = driver.adapter_part(hung.adapter, hung.generation)
        if not part:
            continue
        number, slot = len(devices), driver.port_part(hung.generation, hung.lanes)
        said = f"{hung.adapter.name}: " if hung.adapter.name else ""
        source = f", source: {quoted(f'UNVERIFIED: {said}{guess}')}" if guess else ""
        devices.append(f"nic{number}: {{part: {part}{source}}}")
        to = f"plx{hung.switch}" if hung.switch is not None else f"cpu{hung.socket}"
        unsaid = "" if slot else ', source: "UNVERIFIED: nothing says which slot"'
        links.append(f"- {{between: [nic{number}, {to}], part: {slot or driver.slot_for(part)}{unsaid}}}")
    return devices, links


def _nvlinks(cards: Sequence[driver.Card], matrix: Matrix | None) -> tuple[list[str], list[str], list[str]]:
    """Return the lines of a mesh of NVLinks, or those of the switch that joins them and of its links."""
    gpus = range(matrix.gpus if matrix is not None else 0)
    if matrix is None or not any(matrix.nvlinks(a, b) for a in gpus for b in gpus):
        return [], [], []
    link, switch = driver.nvlink_parts(driver.driver_part(cards[0]) or "")
    counts = {matrix.nvlinks(a, b) for a in gpus for b in gpus if a != b}
    first, count = load_part(driver.driver_part(cards[0]) or ""), max(counts) if len(counts) == 1 else 0
    most = first.nvlink_count if isinstance(first, GpuPart) else None
    if most is not None and count * (matrix.gpus - 1) > most:  # more than it has: all lead to switches
        wired = f'- {{between: ["gpu[0-{len(cards) - 1}]", nvswitch0], part: {link}, count: {count}}}'
        return [], [f"nvswitch0: {{part: {switch}}}" if switch else "nvswitch0: {kind: nvlink-switch}"], [wired]
    for a in gpus:
        n_links = sum(matrix.nvlinks(a, b) for b in gpus if b != a)
        part = load_part(driver.driver_part(cards[a]) or "")
        most = part.nvlink_count if isinstance(part, GpuPart) and part.nvlink_count is not None else MOST_NVLINKS
        if n_links > most:
            said = f"# The matrix gives gpu{a} {n_links} NVLinks, where it has at most {most}: all are left out."
            return ["", said], [], []
    form = f"part: {link}" if link else "kind: nvlink\n    bandwidth: 25 GB/s"
    lines = ["", "meshes:", f"  - {form}"]
    lines += [] if link else ['    source: "UNVERIFIED: the rate of one link; fill it in"']
    lines.append("    matrix: |")
    for a in gpus:
        cells = [matrix.between[f"GPU{a}", f"GPU{b}"] for b in gpus]
        lines.append(f"      gpu{a} {' '.join(cell if cell[:2] == 'NV' or cell == 'X' else '-' for cell in cells)}")
    return lines, [], []


_TOLD_FROM = 0.1  # change of a bandwidth
_SIZE_BYTES = 1 << 30
_PART = re.compile(r"part: ([\w.-]+)")
_SLOT = re.compile(r"pcie([45])-")


class Guess(NamedTuple):
    """What is guessed, marks of its lines, the command that would say it, and a line as it could also be."""

    what: str
    marks: tuple[str, ...]
    run: str
    otherwise: Callable[[str], str]


def _slower_slot(line: str) -> str:
    slower = _SLOT.sub(lambda found: f"pcie{int(found[1]) - 1}-", line)
    return slower if slower != line else line.replace("pcie3-x16", "pcie3-x8")


def _halved(figure: str, usual_Bps: float, line: str) -> str:
    """Return *line* with half of the *figure* of its part, or with *usual_Bps* where the part has none."""
    half_Bps = (getattr(load_part(_PART.findall(line)[-1]), figure, None) or 2 * usual_Bps) / 2
    return line.replace(", source:", f", {figure}: {half_Bps / 1e9:.6g} GB/s, source:", 1)


_COUNTED = "lscpu, whose CPU's data sheet counts links"
_GUESSES = (
    Guess("slots of GPUs", ("does not say which slot", "[plx"), "nvidia-smi -q, or lspci -vv", _slower_slot),
    Guess("slots of adapters", ("nothing says which slot",), "lspci -vv", _slower_slot),
    Guess("the link between sockets", ("usual between sockets",), _COUNTED, partial(_halved, "bandwidth", 10e9)),
    Guess("the CPU", ("the CPU",), "lscpu", partial(_halved, "memory_bandwidth", 50e9)),
    Guess("sockets of GPUs", ("at which socket",), "nvidia-smi topo -m", partial(re.sub, r"cpu\d+\]", "cpu0]")),
)


def moving_guesses(text: str, *, peers_unsaid: bool) -> list[str]:
    """Return a remark for each guess in the draft *text* whose alternative changes an all-reduce by over a tenth.

    The all-reduce is of 1 GiB over all GPUs, of the machine and of two where it has adapters.  *peers_unsaid*: nothing
    says how far GPUs copy directly over PCIe.  A guess that no alternative can be drawn of is not told.
    """
    drawn = [(guess.what, guess.run, _changed(text, guess)) for guess in _GUESSES]
    if peers_unsaid and "transport:" not in text:
        others = (f"{text}\ntransport: {{peer_to_peer: {level}}}\n" for level in ("none", "phb"))
        drawn += [("whether GPUs copy directly over PCIe", "nvidia-smi topo -p2p r", other) for other in others]
    asked = _bandwidths(text)
    found: dict[str, tuple[float, str]] = {}
    for what, run, other in drawn:
        if asked and other != text:
            changes = [abs(b / a - 1.0) for a, b in zip(asked, _bandwidths(other), strict=False) if a > 0.0]
            found[what] = max(found.get(what, (0.0, run)), (max(changes, default=0.0), run))
    told = sorted(((change, what, run) for what, (change, run) in found.items() if change > _TOLD_FROM), reverse=True)
    return [
        f"UNVERIFIED: {what}: guessed; another guess changes an all-reduce by {100 * change:.0f} %; {run} replaces it"
        for change, what, run in told
    ]


def _changed(text: str, guess: Guess) -> str:
    lines = text.splitlines(keepends=True)
    if not any(guess.marks[0] in line and "{" in line for line in lines):
        return text
    marked = (any(mark in line for mark in guess.marks) and "{" in line for line in lines)
    return "".join(guess.otherwise(line) if is_marked else line for line, is_marked in zip(lines, marked, strict=True))


def _bandwidths(text: str) -> Sequence[float]:
    """Return the bus bandwidths in B/s of an all-reduce on one machine and, if it has adapters, on two."""
    found = []
    for nodes in (1, 2) if re.search(r"^  nic\d+: ", text, re.MULTILINE) else (1,):
        session, where = Session(), Where("draft", nodes=nodes)
        try:
            session.know(where, topology_from_text(text, n_nodes=nodes if nodes > 1 else None))
            found.append(session.collective(CollectiveQuestion(where=where, size_bytes=_SIZE_BYTES)).busbw_Bps)
        except InputError:  # a single GPU, or one that no model knows
            found.append(0.0)
    return found
