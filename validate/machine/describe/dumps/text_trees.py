"""Trees in text: of ``lspci -tv`` (names), ``lspci -vv`` (widths, NUMA nodes), ``lstopo-no-graphics``, and NCCL's log.

With ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH``, NCCL prints its tree of the machine with the bandwidth of each link
(``ncclTopoPrint`` in ``src/graph/topo.cc``).  Without, ``INIT`` lines name the GPU of each rank.
"""

from collections.abc import Iterator

from simulator.records import own_patterns
from validate.machine.describe.driver import GENERATIONS
from validate.machine.describe.dumps import tree as pcie
from validate.machine.describe.dumps.tree import DEEPEST, TOO_DEEP, Bus, BusKind, BusTree, Numa
from validate.machine.describe.placement import MOST_DEVICES, Adapter

_FIND = own_patterns("validate.machine.describe", "patterns.yaml", "text_trees")
_LONGEST_LINE = 2_000


def lspci_tree(text: str) -> BusTree:
    """Return the tree drawn in *text*; all root complexes are attached to one socket, since lspci names none."""
    branches = _Branches()
    bus_of: dict[int, str] = {}
    leaves = 0
    for raw in text.splitlines():
        line = raw[:_LONGEST_LINE].rstrip()
        start = _FIND["root"].match(line)
        if start is not None:
            branches.open, bus_of = [], {start.end(): start["bus"]}
        elif not bus_of:
            continue
        position = start.end() if start is not None else 0
        while True:
            found = _FIND["slot"].search(line, position)
            if found is None or line[position : found.start()].strip("-+\\| "):  # words, and no more drawing
                break
            column, position = found.span()
            branches.at(column)
            bus = next((bus_of[c] for c in sorted(bus_of, reverse=True) if c <= column), "")
            name = f"{bus}:{found['slot']}".lower()
            if found["below"]:
                branches.grow(column, Bus("bridge", name))
                bus_of = {c: b for c, b in bus_of.items() if c <= column}
                bus_of[position] = f"{bus.rpartition(':')[0]}:{found['below'][:2]}"
                continue
            leaf = device_of(name, line[position:])
            if leaf is not None:
                branches.below().append(leaf)
                leaves += 1
                if leaves > MOST_DEVICES:
                    raise ValueError(f"more than {MOST_DEVICES} GPUs and adapters; one machine is needed")
            break
    tree = BusTree(branches.numas or [Numa(0)], None, sockets_said=False)
    unnamed = len(_FIND["unnamed"].findall(text))
    if unnamed:
        tree.remarks.append(f"{unnamed} devices of NVIDIA that lspci has no name for are left out (update-pciids)")
    return tree


class _Branches:
    """The buses that are open in an indented drawing, each with its column, and the NUMA nodes that hold all."""

    def __init__(self) -> None:
        self.open: list[tuple[int, Bus]] = []
        self.numas: list[Numa] = []

    def node(self, numa: Numa) -> None:
        self.numas.append(numa)
        self.open = []

    def at(self, column: int) -> Bus | None:
        """Close what begins at *column* or behind it; return the bus that is open then."""
        self.open = [each for each in self.open if each[0] < column]
        return self.open[-1][1] if self.open else None

    def below(self) -> list[Bus]:
        if not self.numas:
            self.numas.append(Numa(0, socket=0))
        return self.open[-1][1].below if self.open else self.numas[-1].below

    def grow(self, column: int, bus: Bus) -> None:
        """Add *bus*, which stays open; raises ValueError where it is too deep."""
        self.below().append(bus)
        self.open.append((column, bus))
        if len(self.open) > DEEPEST:
            raise ValueError(TOO_DEEP)


def device_of(name: str, words: str) -> Bus | None:
    """Return the GPU or adapter that *words* describe; None for any other device."""
    if "NVIDIA" in words or "AMD" in words:
        model = pcie.model_in(words)
        board = _FIND["board"].search(words)
        if not model and "NVIDIA" in words and board is not None and not _FIND["no_gpu"].search(words):
            model = board[1]
        if model:
            return Bus("gpu", name, model=model)
    if connectx := _FIND["connectx"].search(words):
        rate_Bps = GENERATIONS["connectx_Bps"].get(connectx[1], 0.0)
        return Bus("nic", name, adapter=pcie.adapter_of(name, rate_Bps=rate_Bps))
    is_efa = "elastic fabric adapter" in words.lower()
    return Bus("nic", name, adapter=pcie.adapter_of(name, "", "1d0f", "efa1")) if is_efa else None


def lspci_verbose_tree(text: str) -> BusTree:
    """Return the tree of ``lspci -vv``: a port's own generation, as idle GPUs lower theirs, and negotiated width."""
    starts = [*_FIND["start"].finditer(text)]
    holders: dict[str, Bus] = {}
    found: list[tuple[str, Bus, int | None]] = []
    for start, end in zip(starts, [*(each.start() for each in starts[1:]), len(text)], strict=True):
        name, block = start[1].lower(), text[start.start() : end]
        domain = name[: name.index(":") + 1] if name.count(":") > 1 else ""
        can, now, node = _FIND["can"].search(block), _FIND["is"].search(block), _FIND["node"].search(block)
        below = _FIND["below"].search(block)
        bus = Bus("bridge", name) if below is not None else device_of(name, start[2])
        if bus is None:
            continue
        if can is not None:
            bus.generation, bus.lanes = pcie.speed_of(can[1]), int(now[1] if now is not None else can[2])
        if below is not None:
            holders[domain + below[2].lower()] = bus
        found.append((name.rpartition(":")[0], bus, int(node[1]) if node else None))
    nodes = sorted({node for _, bus, node in found if node is not None and bus.kind != "bridge"}) or [0]
    numas = {node: Numa(node) for node in nodes}
    for above, bus, at in found:
        holder = holders.get(above)
        number = at if at is not None and at in numas else nodes[0]
        (holder.below if holder is not None and holder is not bus else numas[number].below).append(bus)
    level = [bus for numa in numas.values() for bus in numa.below]
    for _ in range(DEEPEST + 1):
        level = [each for bus in level for each in bus.below]
    if level:
        raise ValueError(TOO_DEEP)
    return BusTree(list(numas.values()), None, sockets_said=len(nodes) > 1)


def lstopo_tree(text: str) -> BusTree:
    """Return the tree in the text of ``lstopo-no-graphics``, without rates; raises ValueError for too deep ones."""
    branches = _Branches()
    maybe: dict[str, bool] = {}
    for found in filter(None, map(_FIND["object"].match, text.splitlines())):
        column, kind, rest = len(found[1]), found[2], found[3]
        if kind in ("Package", "Socket"):
            branches.node(Numa(len(branches.numas), socket=len(branches.numas)))
            continue
        holder, device = branches.at(column), _FIND["device"].search(rest)
        branches.below()  # a node of its own where there is no package
        if kind in ("Net", "OpenFabrics", "CoProc", "GPU"):
            title = _FIND["quoted"].search(rest)
            if holder is not None and holder.kind == "nic" and kind == "OpenFabrics" and title:
                holder.adapter = Adapter(title[1], holder.adapter.network)
            if holder is not None and holder.kind == "gpu" and kind in ("CoProc", "GPU"):
                maybe[holder.name] = True
        elif kind == "PCIBridge":
            branches.grow(column, Bus("bridge", f"line {len(maybe)}.{column}"))
        elif kind == "PCI" and device is not None:
            name, is_gpu = device[1] or f"pci {len(maybe)}", device[2] in ("3D", "VGA", "Display")
            adapter = Adapter(name, "" if is_gpu else device[2].lower())
            branches.grow(column, Bus("gpu" if is_gpu else "nic", name, adapter=adapter))
            maybe[name] = device[2] != "VGA"
    for numa in branches.numas:
        numa.below = [bus for bus in numa.below if _keeps(bus, maybe)]
    return BusTree(branches.numas, None)


def _keeps(bus: Bus, known: dict[str, bool]) -> bool:
    """Return whether *bus* is a bridge or a device that counts, after dropping displays without a driver below it."""
    bus.below = [each for each in bus.below if _keeps(each, known)]
    return bus.kind != "gpu" or known.get(bus.name, False)


_KINDS: dict[str, BusKind] = {"GPU": "gpu", "NIC": "nic"}
_ODD_PORT = 2.0  # GB/s: slower ports are virtual bridges, which report 2.5 GT/s x1


def log_tree(text: str) -> BusTree:
    """Return the machine in a log; raises ValueError where it shows none, or several machines."""
    drawn = list(_drawn(text))
    if drawn:
        return _from_drawing(drawn)
    seen: dict[str, int] = {}
    for found in filter(None, map(_FIND["init"].search, text.splitlines())):
        seen.setdefault(found["bus"].lower(), int(found["dev"]))
    if not seen:
        raise ValueError("no machine in it: NCCL draws one with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH")
    if len(set(seen.values())) != len(seen):
        raise ValueError("ranks of several machines; cut it to one of them, or log with NCCL_DEBUG_SUBSYS=GRAPH")
    numa = Numa(0, below=[Bus("gpu", bus, order=device) for bus, device in seen.items()])
    return BusTree([numa], None, sockets_said=False)


def _drawn(text: str) -> Iterator[str]:
    """Yield the lines of the first machine printed, without their prefixes; other processes' lines are skipped."""
    who = None
    for found in filter(None, map(_FIND["info"].match, text.splitlines())):
        said = found["said"]
        if who is None and said.startswith("=== System"):
            who = found["who"]
        elif who is not None and found["who"] == who:
            if said.startswith("===="):
                return
            yield said


def _from_drawing(lines: list[str]) -> BusTree:
    branches = _Branches()
    links_GBps: dict[tuple[str, str], float] = {}
    switch_GBps: dict[str, float] = {}
    rate_GBps: dict[str, float] = {}
    for said in lines:
        head, found = _FIND["cpu"].match(said), _FIND["line"].match(said)
        if head is not None:
            branches.node(Numa(int(head["id"]), GENERATIONS["nccl_vendors"].get(int(head["vendor"] or 0), "")))
            continue
        if found is None or not branches.numas:
            continue
        column, name, rate = len(found["indent"]), found["id"].lower(), float(found["rate"])
        at = branches.at(column)
        if at is not None and found["link"] == "NVL" and found["kind"] == "NVS":
            switch_GBps[at.name] = switch_GBps.get(at.name, 0.0) + rate
        elif at is not None and found["link"] == "NVL" and found["kind"] == "GPU":
            links_GBps[at.name, name] = rate
        elif at is not None and found["link"] == "NET":
            at.adapter = Adapter(f"net {name}", at.adapter.network, at.adapter.rate_Bps + rate * 1e9)
        elif found["link"] == "PCI":
            rate_GBps[name] = rate
            port = pcie.port_near(rate, GENERATIONS["nccl_lanes_GBps"], 0.1)
            branches.grow(column, Bus(_KINDS.get(found["kind"], "bridge"), name, *port))
    tree = BusTree(branches.numas, links_GBps, switch_GBps, rates="planned")
    if any(rate < _ODD_PORT for rate in rate_GBps.values()):
        tree.remarks.append("bridges of 2.5 GT/s x1 are a virtual machine's; their ports are taken as those below them")
    return tree
