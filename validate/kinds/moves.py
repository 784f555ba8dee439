"""Tables of what moves: collectives, copies, disks, and memory: bandwidth by working set, gathers, dependent loads."""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from string import Template

from simulator.api.context import ALPHA_S, is_strategy, machines_fitted_to
from simulator.errors import one_line
from simulator.questions import single
from simulator.questions.collective import ALGORITHMS, DTYPES, SENDING, Algorithm, CollectiveQuestion
from simulator.questions.where import Feature, Software
from simulator.topology.parts import CpuPart
from simulator.workload import Collective
from simulator.workload.operators import Reduction
from validate.kinds.kind import CELLS, WORDS, Cell, RowQuestion, Timed, kind_of
from validate.kinds.timing import with_other_s
from validate.tables import cells
from validate.tables.cells import NotScored, number, whole_or_none
from validate.tables.names import RowNames

LARGE_BYTES = 1 << 20
MAX_RANKS = 4096
_COLLECTIVES: Mapping[str, tuple[str, Collective]] = WORDS["collectives"]


def read_collective(cell: Cell, names: RowNames) -> RowQuestion:
    """Return a row's question, *cell* giving text of the columns that it may see; raises NotScored if not modelled."""
    collective = _COLLECTIVES.get(_letters(cell("collective")), ("", None))[1]
    if collective is None:
        raise NotScored(f"unknown collective '{one_line(cell('collective'), 40)}'")
    if cell("unclear"):
        raise NotScored(one_line(cell("unclear"), 200))
    n_bytes = cells.size_bytes(cell) if cell("bytes") else number("bytes", "")
    n_gpus = cells.whole_cell("n_gpus", cell("n_gpus"))
    n_nodes = whole_or_none(cell, "n_nodes") or 1
    group_size = whole_or_none(cell, "group_size") or n_gpus
    n_groups = whole_or_none(cell, "n_groups_concurrent") or 1
    for holds, why in (
        (n_gpus > MAX_RANKS, f"more than {MAX_RANKS} GPUs"),
        (n_gpus % n_nodes, "n_gpus is no multiple of n_nodes"),
        (group_size * n_groups > n_gpus, "the groups have more ranks than n_gpus"),
        (group_size < 2, "a group of one rank exchanges nothing"),
    ):
        if holds:
            raise NotScored(why)
    algorithm, strategy = forced_algorithm(cell("algorithm_forced"))
    if named := cell("strategy"):  # of the simulator, which ran instead of NCCL
        if not is_strategy(named):
            raise NotScored(f"strategy '{one_line(named, 40)}' is not modelled")
        if cell("algorithm_forced"):
            raise NotScored("strategy and algorithm_forced are both named; the second is NCCL's")
        strategy = named
    a_node = n_gpus // n_nodes
    local_gpus, pairs = _gpu_set(cell("gpu_set"), collective, a_node, group_size)
    if algorithm is not None and names.strategy not in ("nccl", algorithm):
        raise NotScored(f"forced algorithm '{algorithm}' is not what {names.strategy} does")
    where = names.machines.where(cell("machine"), n_nodes, a_node, cell("fabric_part"))
    local = tuple(range(a_node)) if local_gpus is None else local_gpus
    needs: list[Feature] = [algorithm] if algorithm is not None else []
    if collective in ("all-to-all", "send-recv"):
        needs.append("send-recv")
    chosen, software, dtype = strategy or names.strategy, cell("software"), cell("dtype")
    is_nccl, gpus_per_process = chosen == "nccl", 1
    # A host thread launches for nccl-tests' -g, or all.
    if is_nccl and n_nodes == 1 and not CELLS["a process each"].search(software):
        said = CELLS["tests of -g"].search(software)
        gpus_per_process = min(int(said[1]), group_size) if said else group_size
    question = CollectiveQuestion(
        where=where,
        collective=collective,
        size_bytes=n_bytes,
        strategy=chosen,
        gpus=names.gpus(where, n_nodes, local)[: group_size * n_groups],
        group_size=group_size,
        pairs=pairs,
        gpus_per_process=gpus_per_process,
        algorithm=algorithm if is_nccl and collective not in SENDING else None,
        # fp32 stands for all that a switch can reduce
        dtype=next((each for each in DTYPES if each == dtype), "fp8") if CELLS["small types"].match(dtype) else "fp32",
        software=Software(nccl=cells.nccl_of(f"{software} {cell('measured')}", names.capability(where), *needs)),
    )
    return RowQuestion(question)


def collective_name(text: str) -> str:
    """Return the collective *text* as tables spell it; *text* itself if it is no known collective."""
    found = _COLLECTIVES.get(_letters(text))
    return found[0] if found else one_line(text, 40)


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c not in "-_ ") if len(text) < 40 else text


def _gpu_set(
    text: str, collective: Collective, per_node: int, group_size: int
) -> tuple[tuple[int, ...] | None, tuple[tuple[int, int], ...]]:
    if not text:
        return None, ()
    if match := CELLS["pairs"].fullmatch(text):
        if collective != "send-recv":
            raise NotScored("gpu_set names pairs, which belong to a sendrecv")
        pairs = tuple((int(a), int(b)) for a, b in (pair.split(">") for pair in match[1].split(";")))
        if any(a == b or max(a, b) >= group_size for a, b in pairs):
            raise NotScored("gpu_set names pairs that are no two ranks of the group")
        return None, pairs
    if not CELLS["indices"].fullmatch(text):
        raise NotScored(f"gpu_set '{one_line(text, 40)}' is neither a list such as 0-3 or 0,2 nor pairs 0>1;2>3")
    gpus: list[int] = []
    for low, _, high in (piece.partition("-") for piece in re.split(r"[,;]\s*", text)):
        gpus.extend(range(int(low), int(high or low) + 1))
        if len(gpus) > MAX_RANKS:
            break
    if len(gpus) != per_node or len(set(gpus)) != per_node:
        raise NotScored("gpu_set does not name n_gpus / n_nodes different GPUs")
    return tuple(gpus), ()


def forced_algorithm(text: str) -> tuple[Algorithm | None, str | None]:
    """Return the NCCL algorithm or, failing that, the simulator strategy that *text* names; raises NotScored."""
    if not text:
        return None, None
    if match := CELLS["algorithm"].fullmatch(text.lower()):
        named = re.sub(r"nvls[ _-]?tree", "nvls_tree", match[1])
        return next(algorithm for algorithm in ALGORITHMS if algorithm == named), None
    if not is_strategy(text):
        raise NotScored(f"forced algorithm '{one_line(text, 40)}' is not modelled")
    return None, text


def _collective_labels(cell: Cell, names: RowNames) -> Mapping[str, str]:
    labels = {"machine": cell("machine"), "collective": collective_name(cell("collective")), "decade": "", "size": ""}
    with suppress(NotScored):
        size_bytes = number("bytes", cell("bytes"))
        labels |= {"decade": cells.decade_of(size_bytes), "size": ">=1MiB" if size_bytes >= LARGE_BYTES else "<1MiB"}
    if names.strategy == "nccl" and labels["machine"]:
        labels["fit"] = "fitted" if labels["machine"] in machines_fitted_to() else "not fitted"
    return labels


COLLECTIVES = kind_of(
    "collectives",
    legend=(
        f"ring: one alpha-beta ring at data sheet rates, alpha {ALPHA_S * 1e6:g} us; size: 1 MiB = 1048576 B;"
        " decade: 1e6 is 1 MB to below 10 MB"
    ),
    read=read_collective,
    measured_s=lambda cell, _names: number("time_s", cell("time_s")),
    labelled=_collective_labels,
)

_ALONE, _BESIDE = " alone", "copy and "
_MOST = 1e6
_HELD_S = 40  # seconds for which the device is held up: longer than the host takes to issue so many operators


def _beside_work(cell: Cell, names: RowNames, copy: single.CopyQuestion) -> RowQuestion:
    """Return the program that a row timed: its work, with *copy* beside it or alone; raises NotScored."""
    note, work = cell("note"), cell("work")
    if not work or not cell("repeats"):
        raise NotScored("work beside a copy, and how much of it is not said (work, repeats)")
    if not (note.startswith(_BESIDE) or note.endswith(_ALONE)):
        raise NotScored(f"'{one_line(note, 40)}' says neither what runs alone nor what beside a copy")
    machine = names.machine(copy.where)
    if copy.src >= len(machine.gpus):
        raise NotScored(f"{machine.name} has no GPU {copy.src}")
    gpu = machine.nodes[machine.gpus[copy.src]].name
    first, last = ("cpu", gpu) if copy.kind == "h2d" else (gpu, "cpu")
    repeats = cells.whole_cell("repeats", cell("repeats"), _MOST)
    said = {"gpu": gpu, "first": first, "last": last, "bytes": f"{copy.size_bytes:.0f}", "seconds": _HELD_S}
    said |= {"pinned": str(copy.pinned).lower(), "repeats": repeats, "work": work}
    parts = {name: Template(text).substitute(said) for name, text in WORDS["programs"].items()}
    ways = list(parts) if note.startswith(_BESIDE) else ["held", "work", "last", "end"]
    whole, alone = (
        single.ProgramQuestion(where=copy.where, workload="", text="".join(map(parts.__getitem__, way)), device=gpu)
        for way in (ways, ["held", "end"])
    )
    return RowQuestion(whole, timing=Timed(with_other_s, (-1.0, alone)))  # the work behind what held the device up


_KINDS: Mapping[str, tuple[single.CopyKind, bool]] = WORDS["copies"]


def _question(cell: Cell, names: RowNames) -> single.CopyQuestion:
    kind_text, note, software = cell("kind").lower(), cell("note"), cell("software")
    if kind_text not in _KINDS:
        raise NotScored(f"no model of copies of kind {one_line(kind_text, 30) or 'none'}")
    if "gpu_all" in note:
        raise NotScored("copies between one GPU and all others at once")
    kind, both = _KINDS[kind_text]
    src, dst = _ends(cell, kind, kind_text, note)
    if src != dst and kind == "h2d" and both:
        kind = "p2p"
    if cell("engine").lower() == "sm" and (kind == "d2h" or (kind == "h2d" and both)):
        raise NotScored("a kernel that writes to host memory")
    said = CELLS["threads"].search(note)
    return single.CopyQuestion(
        where=names.machines.where(cell("machine"), 1),
        kind=kind,
        src=src,
        dst=dst if kind == "p2p" else 0,
        size_bytes=cells.size_bytes(cell),
        both_ways=both,
        pinned=cell("pinned") != "0",
        staged=kind == "p2p" and CELLS["staged"].search(note) is not None,
        waited=CELLS["waited"].search(software) is not None,
        threads=int(said[1]) if said and kind == "h2h" else None,
    )


def _read(cell: Cell, names: RowNames) -> RowQuestion:
    copy = _question(cell, names)
    if cell("kind").lower().startswith("overlap") and cell("note") != "copy alone":
        return _beside_work(cell, names, copy)
    return RowQuestion(copy)


def _measured_s(cell: Cell, names: RowNames) -> float:
    if not cell("bytes") and not cell("gbps"):
        raise NotScored("a latency, and no size")
    question = _question(cell, names)
    twice = question.kind == "d2d" and CELLS["counts twice"].search(f"{cell('software')} {cell('note')}")
    return cells.measured_s(cell, question.size_bytes * (2 if question.both_ways or twice else 1))


def _ends(cell: Cell, kind: single.CopyKind, kind_text: str, note: str) -> tuple[int, int]:
    """Return the source and destination GPU of a copy; the host's end gets the number of the other end."""
    named = CELLS["between"].search(note)
    if named and not cell("src") and not cell("dst"):
        return int(named[1]), int(named[2])
    found = []
    for column in ("src", "dst"):
        text = cell(column)
        if text.lower() in ("", "host", "cpu"):
            continue
        number = CELLS["device"].fullmatch(text)
        if number is None:
            raise NotScored(f"{column} '{one_line(text, 20)}' is neither host nor a GPU such as cuda:0")
        found.append(int(number[1]))
    if not found:
        return (0, 1) if kind == "p2p" else (0, 0)
    if kind == "p2p" and len(found) < 2:
        raise NotScored(f"{one_line(kind_text, 20)} needs two GPUs")
    return found[0], found[-1]


COPIES = kind_of(
    "copies",
    read=_read,
    measured_s=_measured_s,
    labelled=lambda cell, _names: {"decade": cells.decade_of(number("bytes", cell("bytes")))},
)

_CACHES = ("direct", "dropped", "page cache")


def read_storage(cell: Cell, names: RowNames) -> RowQuestion:
    """Return the question that a row asks; raises NotScored if the row is incomplete or not modelled."""
    kind, cache = next((kind for kind in single.DISK_ACCESSES if kind == cell("kind")), None), cell("cache")
    if kind is None:
        raise NotScored(f"no model of accesses of kind {one_line(cell('kind'), 30) or 'none'}")
    if cache not in _CACHES:
        raise NotScored(f"cache is {one_line(cache, 20) or 'missing'}; it may be {', '.join(_CACHES)}")
    if not cell("block_bytes"):
        raise NotScored("block_bytes missing")
    return RowQuestion(
        single.DiskQuestion(
            where=names.machines.where(cell("machine"), 1),
            kind=kind,
            block_bytes=cells.size_bytes(cell, "block_bytes"),
            threads=whole_or_none(cell, "threads", cells.MOST_THREADS) or 1,
            # Writes wait until the data are on the disk.
            cached=cache == "page cache" and kind != "write_sequential",
        )
    )


STORAGE = kind_of(
    "storage",
    read=read_storage,
    measured_s=lambda cell, _names: cells.measured_s(cell, cells.size_bytes(cell, "block_bytes")),
)

_ARRAYS: Mapping[str, tuple[int, int]] = WORDS["arrays"]
_ELEMENT = {"fp32": 4, "fp64": 8, "double": 8, "float": 4, "": 8}
_LARGEST_BLOCK = 1024
_FULL = 95.0  # percent occupancy; below it bandwidth stays unused
_GATHERED, _CPU_GATHERED = 64 << 20, 8 << 20  # bytes that validate run gathers at once
_FLOAT_BYTES = 4


def _access(cell: Cell, names: RowNames) -> single.AccessQuestion:
    bench, kernel, dtype = cell("bench"), cell("kernel"), cell("dtype").lower()
    size = cells.size_bytes(cell)
    where, device = names.devices.where(cell("device"))
    ask = partial(single.AccessQuestion, where=where, device=device)
    on_cpu = isinstance(names.devices.described(cell("device")), CpuPart)
    if "chase" in f"{bench} {kernel}".replace("-", " "):
        return ask(kind="chase", size_bytes=size, threads=1 if on_cpu else None)
    if dtype not in _ELEMENT:
        raise NotScored(f"no such dtype: {one_line(dtype, 20)}")
    occupancy, variant = CELLS["occupancy"].search(cell("note")), CELLS["variant"].search(cell("note"))
    few = occupancy is not None and float(occupancy[1]) < _FULL
    threads = whole_or_none(cell, "threads", cells.MOST_THREADS) if on_cpu and occupancy is None else None
    block_threads = 0
    if variant and int(variant[1]) + 1 < int(variant[2]):
        block_threads = _LARGEST_BLOCK >> (int(variant[2]) - 1 - int(variant[1]))
        if "gsync" in kernel:
            raise NotScored("how many small blocks stay is not said")
    if gather := CELLS["gather"].search(kernel):
        row_bytes = int(gather[1])
        if row_bytes < _FLOAT_BYTES or row_bytes > size:
            raise NotScored("rows that are no part of their table")
        rows = min(int(size / row_bytes), (_CPU_GATHERED if on_cpu else _GATHERED) // row_bytes)
        return ask(kind="gather", size_bytes=size, rows=rows, row_bytes=row_bytes, threads=threads, in_graph=True)
    arrays = next((n for name, n in _ARRAYS.items() if kernel.lower().startswith(name)), None)
    if arrays is None:
        raise NotScored(f"no model of {one_line(kernel, 40) or 'a kernel without a name'}")
    of_one_array = bench.startswith(("BabelStream", "superbench"))
    return ask(
        kind="stream",
        size_bytes=size * sum(arrays) if of_one_array else size,
        reads=arrays[0],
        writes=arrays[1],
        element_bytes=_ELEMENT[dtype],
        threads=threads,
        in_graph="graph" in kernel.lower() or bench.startswith("torch"),
        resident=int(number("threads", cell("threads"))) if few else 0,
        block_threads=block_threads,
        persistent="gsync" in kernel or "persistent" in kernel,
    )


def _read_access(cell: Cell, names: RowNames) -> RowQuestion:
    access = _access(cell, names)
    on_cpu = isinstance(names.devices.described(cell("device")), CpuPart)
    if on_cpu or f"{cell('bench')} {cell('kernel')}" != "torch stream read":
        return RowQuestion(access)
    sums = Reduction(1, max(1, int(access.size_bytes) // access.element_bytes))
    asked = single.OperatorQuestion(where=access.where, operator=sums, device=access.device, issued="graph")
    return RowQuestion(asked)


def _access_s(cell: Cell, names: RowNames) -> float:
    """Return the measured time in seconds, or compute it from the rate; a gather's rate counts reads and writes."""
    question = _access(cell, names)
    if question.kind == "chase":
        if cell("latency_s"):
            return number("latency_s", cell("latency_s"))
        return number("latency_cycles", cell("latency_cycles")) / (number("clock_MHz", cell("clock_mhz")) * 1e6)
    gathered = 2.0 * question.rows * question.row_bytes
    return cells.measured_s(cell, gathered if question.kind == "gather" else question.size_bytes)


def _access_labels(cell: Cell, names: RowNames) -> Mapping[str, str]:
    question = _access(cell, names)
    held = question.size_bytes <= names.session.account(question).cache_bytes
    return {"work": question.kind, "level": "cache" if held else "memory"}


MEMORY = kind_of("memory", read=_read_access, measured_s=_access_s, labelled=_access_labels)
