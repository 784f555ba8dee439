"""Built-in machines like what is reported, which supply its NVLinks, its sockets' link and its CPU."""

import math
import re
from collections import Counter
from functools import lru_cache
from itertools import product

from simulator.topology import Topology
from simulator.topology.catalogue import builtin_topologies, load_part, part_names
from simulator.topology.load import load_topology
from simulator.topology.parts import CpuPart
from validate.machine.describe.driver import GENERATIONS
from validate.machine.describe.placement import Matrix
from validate.machine.describe.processor import designs

_SOCKET_LINK = re.compile(r"between: \[cpu0, cpu1\], part: ([\w.-]+)")


@lru_cache(maxsize=256)
def machines_of(part: str) -> tuple[Topology, ...]:
    """Return the built-in machines whose first GPU is *part*."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in builtin_topologies().items()}
    found = [load_topology(name) for name, text in texts.items() if part in text]
    return tuple(machine for machine in found if gpus_of(machine)[:1] == [part])


def gpus_of(machine: Topology) -> list[str]:
    """Return the parts of the GPUs of one node of *machine*, in order."""
    return [device.part_name for device in machine.devices if device.kind == "gpu"]


def machines_like(part: str, count: int) -> list[Topology]:
    """Return the built-in single-node machines with exactly *count* GPUs, all of *part*."""
    return [machine for machine in machines_of(part) if machine.n_nodes == 1 and gpus_of(machine) == [part] * count]


_DESIGNS = GENERATIONS["processors"]
_PCIE_OF = {name: design["pcie"] for name, design in _DESIGNS.items()}


def sockets_like(cpu: str, part: CpuPart, generation: int) -> str:
    """Return the sockets' link of most built-in machines with *cpu*, its design or vendor, or PCIe *generation*."""
    votes: Counter[str] = Counter()
    for path in builtin_topologies().values():
        text = path.read_text(encoding="utf-8")
        if cpu and f"part: {cpu}" in text:
            votes.update(_SOCKET_LINK.findall(text))
    if votes and not cpu.startswith("generic"):
        return max(sorted(votes), key=lambda name: votes[name])
    amd = "xgmi-socket-32g" if generation > 4 else "xgmi-socket"
    newest = max(generation, _PCIE_OF.get(part.architecture, 3))
    by_vendor = amd if part.vendor == "amd" else GENERATIONS["sockets_beside"].get(newest, "upi-16-x3")
    return str(_DESIGNS.get(part.architecture, {}).get("sockets", by_vendor))


def links_like(part: str, count: int) -> tuple[Matrix, str] | None:
    """Return the most common NVLinks of built-in machines with *count* GPUs of *part*, and the first one; or None."""
    drawn = {machine.name: _matrix(machine) for machine in machines_like(part, count)}
    if not drawn:
        return None
    links = {name: tuple(sorted(matrix.between.items())) for name, matrix in drawn.items()}
    votes = Counter(links.values())
    name = max(drawn, key=lambda name: votes[links[name]])
    return drawn[name], name


def _matrix(machine: Topology) -> Matrix:
    gpus = {device.name: f"GPU{i}" for i, device in enumerate(d for d in machine.devices if d.kind == "gpu")}
    counts: Counter[tuple[str, ...]] = Counter()
    for wire in (wire for wire in machine.wires if wire.part.of in ("nvlink", "xgmi")):
        ends = tuple(gpus[end] for end in (wire.a, wire.b) if end in gpus)  # of a link to a switch only one
        for way in {ends, ends[::-1]}:
            counts[way] += wire.count
    between = {}
    for a, b in product(gpus.values(), repeat=2):
        n = counts[a, b] or min(counts[a,], counts[b,])
        between[a, b] = "X" if a == b else f"NV{n}" if n else "SYS"
    return Matrix(len(gpus), (), between, {})


def cpu_like(
    vendor: str, family: int, model: int, threads: int, gpu: str, count: int, generation: int
) -> tuple[str, str]:
    """Return the CPU part that fits what a host reports, and the reason for the choice.

    In order: the part of the generation that family and model name, nearest in threads; the CPU of a built-in machine
    with these GPUs, first with so many threads; that of most machines with PCIe *generation*; a generic one.
    """
    names = designs(vendor, GENERATIONS["nccl_families"].get(family, family) if vendor == "amd" else family, model)
    parts = [(name, part) for name in part_names("cpu") if isinstance(part := load_part(name), CpuPart)]
    same = [(name, part) for name, part in parts if part.vendor == vendor and part.architecture in names]
    near = [(abs(math.log((cpu.thread_count or 1) / (threads or cpu.thread_count or 1))), name) for name, cpu in same]
    if near:
        why = f"{' or '.join(names)} by family and model, the nearest of {threads or 'unsaid'} threads"
        return min(near)[1], why
    like = [
        (threads not in (part.thread_count, part.core_count), device.part_name, machine.name)
        for machine in machines_like(gpu, count)
        for device in machine.devices
        if isinstance(part := device.part, CpuPart)
        and vendor in ("", part.vendor)
        and _PCIE_OF.get(part.architecture, generation) >= generation
    ]
    if like:
        is_other, name, machine_name = min(like, key=lambda each: each[0])
        why = "as many of these GPUs" if is_other else f"as many of these GPUs and CPUs of {threads} threads"
        return name, f"the CPU of {machine_name}, which has {why}"
    of_vendor = [each for each in parts if each[1].vendor in (vendor or "intel", vendor or "amd")]
    made = [name for name, part in of_vendor if _PCIE_OF.get(part.architecture) == generation]
    if made:
        texts = [path.read_text(encoding="utf-8") for path in builtin_topologies().values()]
        usual = max(made, key=lambda name: (sum(f"part: {name}" in text for text in texts), name))
        of = f"of {vendor} " if vendor else ""
        return usual, f"the CPU {of}with PCIe {generation} that most built-in machines have"
    return "generic-server-cpu", "nothing says which CPU"
