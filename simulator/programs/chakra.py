"""Chakra execution traces, read from and written to protobuf files (docs/decisions/host.md)."""

import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, Literal

from simulator.errors import Fault, InputError, MissingDependency, nearest, one_line
from simulator.records import dataclass, own_data
from simulator.user_files import read_user_file
from simulator.workload import Collective

Kind = Literal["nothing", "compute", "host", "exchange", "send", "receive", "load", "store"]

MOST_NODES = 500_000  # of all ranks of a trace, which are simulated one by one
_MOST_BYTES = 256_000_000
_FORMAT = own_data("simulator.programs", "chakra.yaml")
_KINDS: dict[int, Kind] = dict(enumerate(_FORMAT["kinds"]))
_NUMBERS = {kind: number for number, kind in _KINDS.items()} | {"host": 4, "nothing": 0}
_OPS: dict[int, Collective] = _FORMAT["collectives"]
_BARRIER_BYTES = 4
_OF_ALL = ""
"""The group of exchanges that name none: all ranks."""


@dataclass(frozen=True, slots=True)
class ChakraNode:
    """One node of a rank: what it does, and the nodes of the rank that end before it starts."""

    id: int
    name: str
    kind: Kind
    after: tuple[int, ...] = ()
    duration_s: float = 0.0  # as recorded, or 0
    op: Collective = "all-reduce"
    size_bytes: float = 0.0  # of a computation, of an exchange (a rank's input), a transfer or a copy
    flop: float = 0.0
    group: str = _OF_ALL
    peer: int = 0  # the other rank of a transfer
    tag: int = 0  # transfers of one arrive in order
    stream: str = ""  # of a recorded kernel, or the thread of a recorded call


@dataclass(frozen=True, slots=True)
class ChakraTrace:
    """The nodes of each rank, by id, and the ranks of each group."""

    name: str
    ranks: tuple[Mapping[int, ChakraNode], ...]
    groups: Mapping[str, tuple[int, ...]]


@cache
def _messages() -> tuple[Any, Any, Any]:
    """Return the classes of a node and of the metadata at a file's head, and what frames them; or MissingDependency."""
    try:
        descriptors, pool, factory, framing = (
            import_module(f"google.protobuf.{name}")
            for name in ("descriptor_pb2", "descriptor_pool", "message_factory", "proto")
        )
    except ImportError:
        raise MissingDependency("Chakra traces need protobuf; pip install 'topocast[chakra]'") from None
    file = descriptors.FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto3")
    of = descriptors.FieldDescriptorProto

    def message(name: str, told: Mapping[str, Sequence[Any]]) -> Any:
        added = file.message_type.add(name=name)
        for field, (number, kind, *repeated) in told.items():
            own = added.field.add(name=field, number=number, label=of.LABEL_REPEATED if repeated else of.LABEL_OPTIONAL)
            if kind in scalars:
                own.type = getattr(of, f"TYPE_{kind.upper()}")
            else:
                own.type, own.type_name = of.TYPE_MESSAGE, f".chakra.{kind}"
        return added

    scalars = _FORMAT["scalars"].split()
    values = {}
    for place, kind in enumerate(scalars):
        message(f"{kind}_values", {"values": (1, kind, "repeated")})
        values[f"{kind}_val"] = 3 + 2 * place, kind
        values[f"{kind}_list"] = 4 + 2 * place, f"{kind}_values"
    attribute = message("AttributeProto", {"name": (1, "string"), "doc_string": (2, "string"), **values})
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[2:]:
        field.oneof_index = 0
    for name, fields in _FORMAT["messages"].items():
        message(name, fields)
    known = pool.DescriptorPool()
    known.Add(file)
    node, head = (known.FindMessageTypeByName(f"chakra.{name}") for name in ("Node", "GlobalMetadata"))
    return factory.GetMessageClass(node), factory.GetMessageClass(head), framing


def read_chakra(path: str) -> ChakraTrace:
    """Return the trace of which *path* is the file of one rank; raises InputError with all faults of its files."""
    found = re.fullmatch(r"(.*)\.(\d+)\.et", path, re.DOTALL)
    if found is None:
        usual = "a Chakra trace is a file a rank: NAME.0.et, NAME.1.et, ..."
        raise InputError(Fault(f"names no rank; {usual}", one_line(path)))
    prefix, folder = found[1], Path(path).parent
    mine = re.compile(re.escape(Path(prefix).name) + r"\.(\d+)\.et")
    names = (mine.fullmatch(each.name) for each in folder.iterdir()) if folder.is_dir() else ()
    there = {int(name[1]) for name in names if name}
    missing = [rank for rank in range(max(there, default=0)) if rank not in there]
    if missing and int(found[2]) in there:
        raise InputError(Fault(f"is missing; rank {max(there)} has a file", one_line(f"{prefix}.{missing[0]}.et")))
    faults: list[Fault] = []
    groups = _groups_beside(prefix, faults)
    ranks = [_read_rank(f"{prefix}.{rank}.et", groups, faults) for rank in sorted({*there, int(found[2])})]
    groups.setdefault(_OF_ALL, tuple(range(len(ranks))))
    for rank, nodes in enumerate(ranks):
        shown = one_line(f"{prefix}.{rank}.et")
        for node in nodes.values():
            lacks = _lacks(node, nodes, rank, len(ranks), groups)
            faults += [Fault(f"node {node.id}: {said}", shown) for said in lacks]
    if faults:
        raise InputError(faults)
    return ChakraTrace(Path(prefix).name, tuple(ranks), groups)


def _groups_beside(prefix: str, faults: list[Fault]) -> dict[str, tuple[int, ...]]:
    """Return the groups of the file beside a trace, as ASTRA-sim's ``--comm-group-configuration`` has them."""
    path = f"{prefix}.json"
    if not Path(path).exists():
        return {}
    try:
        told = json.loads(read_user_file(path, _MOST_BYTES))
        return {str(name): tuple(int(rank) for rank in ranks) for name, ranks in told.items()}
    except (ValueError, AttributeError, TypeError, RecursionError):
        faults.append(Fault('is not the groups of a trace, such as {"0": [0, 1, 2, 3]}', one_line(path)))
        return {}


def _read_rank(path: str, groups: dict[str, tuple[int, ...]], faults: list[Fault]) -> dict[int, ChakraNode]:
    """Return the nodes of one file, and add the *groups* that it names."""
    node_class, _, framing = _messages()
    shown, nodes = one_line(path), dict[int, ChakraNode]()
    raw = read_user_file(path, _MOST_BYTES, shown)
    try:
        raw = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
        stream = io.BytesIO(raw)
        any_class = import_module("google.protobuf.empty_pb2").Empty  # metadata of any version
        if framing.parse_length_prefixed(any_class, stream) is None:
            raise EOFError
        messages = list(iter(partial(framing.parse_length_prefixed, node_class, stream), None))
    except Exception:  # what protobuf raises is not of one class
        faults.append(Fault("is not a Chakra trace: its messages cannot be read", shown))
        return nodes
    for message in messages:
        told = {each.name: getattr(each, each.WhichOneof("value") or "name") for each in message.attr}
        if message.id in nodes:
            faults.append(Fault(f"node {message.id}: two nodes have this id", shown))
        try:
            nodes[message.id] = _node_of(message, told)
            if message.type == 1:
                groups.update(_groups_told(message.inputs.values))
        except (ValueError, TypeError) as error:
            faults.append(Fault(f"node {message.id}: {error}", shown))
    return nodes


def _groups_told(values: str) -> dict[str, tuple[int, ...]]:
    """Return the groups of PyTorch's metadata node, whose *values* are a list with one JSON text."""
    found = re.search(r"\[\s*\{.*\}\s*\]", values, re.DOTALL)
    if not found:
        return {}
    try:
        told = {str(each["pg_name"]): tuple(each["ranks"]) for each in json.loads(found[0])}
    except (KeyError, TypeError, ValueError):
        return {}
    return {name: ranks for name, ranks in told.items() if ranks}  # an empty list means all ranks


def _node_of(message: Any, told: Mapping[str, Any]) -> ChakraNode:
    """Return the node of *message* with the attributes *told*; raises ValueError with what is wrong."""
    if message.type not in _KINDS:
        raise ValueError(f"type {message.type} is not simulated; computing, memory, sends and collectives are")
    kind, size = _KINDS[message.type], float(told.get("comm_size", 0))
    op: Collective = "all-reduce"
    on_host = kind == "compute" and bool(told.get("is_cpu_op", False))
    if kind == "exchange":
        number = told.get("comm_type", -1)
        if number not in _OPS:
            raise ValueError(f"comm_type {number} is not simulated; those are {', '.join(map(str, _OPS))}")
        op, size = _OPS[number], size or (_BARRIER_BYTES if number == 9 else 0.0)
        if "involved_dim" in told and not all(told["involved_dim"].values):
            raise ValueError("involved_dim leaves out a dimension of ASTRA-sim's network; name the group by pg_name")
    elif kind in ("compute", "load", "store"):
        size = float(told.get("tensor_size", 0))
    if kind in ("exchange", "send", "receive", "load", "store") and size <= 0:
        raise ValueError(f"a {kind} needs its bytes, in {'tensor_size' if kind in ('load', 'store') else 'comm_size'}")
    peer = {"send": "comm_dst", "receive": "comm_src"}.get(kind, "")
    if peer and peer not in told:
        raise ValueError(f"a {kind} needs the other rank, in {peer}")
    return ChakraNode(
        id=message.id,
        name=message.name,
        kind="host" if on_host else kind,
        after=tuple(sorted({*message.ctrl_deps, *message.data_deps})),
        duration_s=told.get("duration_s", message.duration_micros * 1e-6),
        op=op,
        size_bytes=size,
        flop=float(told.get("num_ops", 0)),
        group=str(told.get("pg_name", _OF_ALL)),
        peer=int(told.get(peer, 0)),
        tag=int(told.get("comm_tag", 0)),
        stream=str(told.get("tid" if on_host else "stream", "")),
    )


def _lacks(
    node: ChakraNode, nodes: Mapping[int, ChakraNode], rank: int, count: int, groups: Mapping[str, tuple[int, ...]]
) -> Iterator[str]:
    yield from (f"waits for node {other}, which its file lacks" for other in node.after if other not in nodes)
    if node.kind == "exchange" and node.group not in groups:
        known = ", ".join(sorted(groups)) or "none"
        yield f"no group {one_line(node.group, 40)}; {nearest(node.group, sorted(groups)) if groups else known}"
    elif node.kind == "exchange":
        ranks, shown = groups[node.group], f"group {one_line(node.group, 40)}"
        if rank not in ranks:
            yield f"rank {rank} is not in {shown}"
        elif not {*range(count)}.issuperset(ranks):
            yield f"{shown} has ranks beyond the {count} of the trace"
        elif len(set(ranks)) < len(ranks):
            yield f"{shown} has a rank twice"
    elif node.kind in ("send", "receive") and (node.peer == rank or not 0 <= node.peer < count):
        yield f"rank {node.peer} is no other of the {count} of the trace"
    for what in ("duration_s", "size_bytes", "flop"):
        if not 0.0 <= getattr(node, what) < inf:
            yield f"{what} is {getattr(node, what):g}; a number from 0 is needed"


def written_rank(nodes: Sequence[ChakraNode]) -> bytes:
    """Return the file of a rank's *nodes*."""
    node_class, head_class, framing = _messages()
    raw = io.BytesIO()
    framing.serialize_length_prefixed(head_class(version="0.0.4"), raw)
    codes = {op: number for number, op in reversed(_OPS.items())}
    for node in nodes:
        whole_us = round(node.duration_s * 1e6)
        message = node_class(id=node.id, name=node.name, type=_NUMBERS[node.kind], duration_micros=whole_us)
        message.data_deps.extend(node.after)
        told: dict[str, tuple[str, Any]] = {"is_cpu_op": ("bool_val", node.kind == "host")}
        if node.duration_s:
            told["duration_s"] = "double_val", node.duration_s
        if node.kind == "exchange":
            told["comm_type"] = "int64_val", codes[node.op]
            if node.group:
                told["pg_name"] = "string_val", node.group
        if node.kind in ("exchange", "send", "receive"):
            told["comm_size"] = "int64_val", round(node.size_bytes)
        elif node.size_bytes:
            told["tensor_size"] = "uint64_val", round(node.size_bytes)
        if node.kind in ("send", "receive"):
            told["comm_dst" if node.kind == "send" else "comm_src"] = "int32_val", node.peer
            told["comm_tag"] = "int32_val", node.tag
        if node.flop:
            told["num_ops"] = "int64_val", round(node.flop)
        for name, (field, value) in told.items():
            message.attr.add(name=name, **{field: value})
        framing.serialize_length_prefixed(message, raw)
    return raw.getvalue()
