"""Chakra traces, read and written, against bytes made here and closed forms.

The messages of the samples are those that ASTRA-sim's and Chakra's generator scripts write; the encoder below follows
protobuf's wire format and not the product's schema.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulator import ProgramQuestion, Session, Where, simulate
from simulator.cli.output import captured
from simulator.errors import InputError, MissingDependency
from simulator.programs import chakra
from simulator.results.program import ProgramResult

MACHINE = "p3.16xlarge"
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7
LOAD, STORE, COMP, SEND, RECV, COLL = 2, 3, 4, 5, 6, 7
FIELDS = {"int32": (7, 0), "int64": (9, 0), "uint64": (13, 0), "bool": (27, 0), "string": (29, 2), "double": (3, 1)}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: object) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    assert isinstance(raw, bytes)
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def attr(name: str, kind: str, value: object) -> bytes:
    if kind == "bools":
        assert isinstance(value, Sequence)
        return field(10, field(1, name) + field(28, field(1, bytes(value))))
    return field(10, field(1, name) + field(FIELDS[kind][0], value))


def node(number: int, kind: int, *attrs: bytes, deps: Sequence[int] = (), us: int = 0, inputs: str = "") -> bytes:
    raw = field(1, number) + field(2, f"node {number}") + field(3, kind)
    raw += b"".join(field(5, dep) for dep in deps) + (field(7, us) if us else b"")
    return raw + (field(8, field(1, inputs)) if inputs else b"") + b"".join(attrs)


def coll(number: int, op: int, size: int, *attrs: bytes, deps: Sequence[int] = ()) -> bytes:
    sized = attr("comm_type", "int64", op), attr("comm_size", "int64", size), attr("is_cpu_op", "bool", False)
    return node(number, COLL, *sized, *attrs, deps=deps)


def write(folder: Path, ranks: Sequence[Sequence[bytes]], head: bytes = field(1, "0.0.4")) -> str:
    for rank, nodes in enumerate(ranks):
        raw = b"".join(varint(len(each)) + each for each in (head, *nodes))
        (folder / f"t.{rank}.et").write_bytes(raw)
    return str(folder / "t.0.et")


def answer(path: str, machine: str = MACHINE) -> ProgramResult:
    return Session().program(ProgramQuestion(where=Where(machine), workload=path))


@pytest.mark.parametrize(
    ("op", "name", "factor"),
    [
        (ALL_REDUCE, "all-reduce", 1),
        (ALL_GATHER, "all-gather", 8),
        (ALL_TO_ALL, "all-to-all", 1),
        (REDUCE_SCATTER, "reduce-scatter", 1),
    ],
)
def test_a_microbenchmark_of_astra_sim_takes_what_the_exchange_takes(tmp_path, op, name, factor):
    """Sizes are a rank's input (Ring.cc), where nccl-tests' size of an all-gather is the output."""
    path = write(tmp_path, [[coll(rank, op, 1 << 20)] for rank in range(8)])
    alone = simulate(topology=MACHINE, workload=f"bytes:{factor}MiB", collective=name, strategy="nccl")
    assert answer(path).done_s == pytest.approx(alone.sync_time_s, rel=1e-9)


def test_computations_of_one_gpu_run_one_after_the_other(tmp_path):
    """Chakra's two_comp_nodes, dependent or not: a stream has one kernel at a time; the ranks run at once."""
    for deps in ((), (0,)):
        path = write(tmp_path, [[node(0, COMP, us=5), node(1, COMP, us=5, deps=deps)]] * 4)
        assert answer(path).done_s == pytest.approx(10e-6)


def test_groups_come_from_the_file_beside_and_exchanges_wait_for_all_their_ranks(tmp_path):
    def of(rank: int) -> list[bytes]:
        first = coll(1, ALL_REDUCE, 1 << 20, attr("pg_name", "string", str(rank // 2)))
        last = coll(3, ALL_REDUCE, 1 << 20, attr("pg_name", "string", str(2 + rank % 2)), deps=[2])
        return [first, node(2, COMP, us=100 * (1 + rank), deps=[1]), last]

    path = write(tmp_path, [of(rank) for rank in range(4)])
    groups = {"0": [0, 1], "1": [2, 3], "2": [0, 2], "3": [1, 3]}
    (tmp_path / "t.json").write_text(json.dumps(groups))
    result = answer(path)
    ends = {task.label + task.stream: span.end_s for task, span in result.timeline.ran()}
    assert ends["node 3exchanges 3"] > ends["node 2gpu3/compute"] == pytest.approx(ends["node 1exchanges 1"] + 400e-6)
    assert set(result.streams) >= {"exchanges 0", "exchanges 1", "exchanges 2", "exchanges 3"}


def test_groups_come_from_pytorchs_metadata(tmp_path):
    told = '["[{\\"pg_name\\": \\"7\\", \\"ranks\\": [0, 1]}]"]'.replace("\\", "")
    ranks = [[node(0, 1, inputs=told), coll(1, ALL_REDUCE, 1 << 20, attr("pg_name", "string", "7"))]] * 2
    assert set(answer(write(tmp_path, ranks)).streams) == {"exchanges 7"}


def test_sends_meet_their_receives_by_tag_in_any_order(tmp_path):
    """Each rank sends to the next and receives from the one before, with its send first: no rank waits for itself."""

    def of(rank: int) -> list[bytes]:
        size = attr("comm_size", "uint64", 1 << 20)
        out = node(1, SEND, size, attr("comm_dst", "int32", (rank + 1) % 4), attr("comm_tag", "int32", 3))
        back = node(2, RECV, size, attr("comm_src", "int32", (rank - 1) % 4), attr("comm_tag", "int32", 3))
        return [out, back, node(3, COMP, us=10, deps=[2])]

    result = answer(write(tmp_path, [of(rank) for rank in range(4)]))
    assert sorted(s for s in result.streams if s.startswith("sends")) == [
        f"sends {r} to {(r + 1) % 4}" for r in range(4)
    ]


def test_copies_and_computations_without_durations_take_the_machines_rates(tmp_path):
    moved, done = 1 << 30, 10**12
    work = node(2, COMP, attr("num_ops", "int64", done), attr("tensor_size", "uint64", 8), deps=[1])
    result = answer(write(tmp_path, [[node(1, LOAD, attr("tensor_size", "uint64", moved)), work]]))
    copy = simulate(topology=MACHINE, workload="copy:h2d,size=1GiB,pinned=yes")
    assert result.streams["gpu0/copies in"].busy_s == pytest.approx(copy.time_s, rel=0.05)
    assert result.streams["gpu0/compute"].busy_s == pytest.approx(done / 125e12)  # a V100's data sheet


FOUR = {"workload": "gpt2", "sizes": ["layers=4"]}
STEPS = {
    "data parallel": {"workload": "resnet50", "topology": MACHINE, "batch": 32},
    "one GPU": {"workload": "lenet", "topology": "p3.2xlarge", "batch": 32},
    "pipeline": {"workload": "gpt2", "topology": "dgx-h100", "batch": 1, "parallel": "pp=4", "micro_batches": 8},
    "shards": FOUR | {"topology": "dgx-h100", "batch": 1, "parallel": "fsdp", "micro_batches": 2},
    "tensors": FOUR | {"topology": "dgx-h100", "batch": 1, "parallel": "tp=2,cp=2"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_written_and_read_back_to_the_same_plan(tmp_path, name):
    question = simulate(**STEPS[name]).question
    session = Session()
    for end, raw in session.chakra(question).items():
        (tmp_path / f"t{end}").write_bytes(raw)
    step = session.step(question)
    again = session.program(ProgramQuestion(where=question.where, workload=str(tmp_path / "t.0.et")))
    assert len(list(tmp_path.glob("t.*.et"))) == step.device_count
    assert again.done_s == pytest.approx(step.step_time_s, rel=1e-3)


FAULTS = {
    "a dependency that is not there": ([[node(1, COMP, us=1, deps=[9])]], "waits for node 9, which its file lacks"),
    "two nodes of one id": ([[node(1, COMP, us=1), node(1, COMP, us=1)]], "two nodes have this id"),
    "a circle": ([[node(1, COMP, us=1, deps=[2]), node(2, COMP, us=1, deps=[1])]], "2 nodes wait for each other"),
    "a gather": ([[coll(1, 3, 64)]], "comm_type 3 is not simulated"),
    "a node of storage": ([[node(1, 8)]], "type 8 is not simulated"),
    "no size": ([[node(1, COLL, attr("comm_type", "int64", 0))]], "needs its bytes, in comm_size"),
    "an unknown group": ([[coll(1, 0, 64, attr("pg_name", "string", "x"))]], "no group x"),
    "a dimension left out": ([[coll(1, 0, 64, attr("involved_dim", "bools", [1, 0]))]], "involved_dim leaves out"),
    "a send without a receive": (
        [[node(1, SEND, attr("comm_size", "int64", 8), attr("comm_dst", "int32", 1))], [node(1, COMP, us=1)]],
        "rank 1 has no receive that matches, with tag 0",
    ),
    "ranks that differ": (
        [[coll(1, 0, 64)], [coll(1, 2, 64)]],
        "is all-reduce of 64 bytes; node 1 of rank 1 is all-gather",
    ),
    "a rank that is absent": ([[coll(1, 0, 64)], [node(1, COMP, us=1)]], "rank 1 of group '' has no exchange number 1"),
    "a rank that sends to itself": (
        [[node(1, SEND, attr("comm_size", "int64", 8), attr("comm_dst", "int32", 0))]],
        "rank 0 is no other of the 1",
    ),
    "no number": ([[node(1, COMP, attr("duration_s", "double", float("nan")))]], "duration_s is nan"),
    "more ranks than GPUs": ([[node(1, COMP, us=1)]] * 9, "has 9 ranks; p3.16xlarge has 8 GPUs"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_a_trace_cannot_mean_is_refused(tmp_path, what):
    ranks, said = FAULTS[what]
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        answer(write(tmp_path, ranks))


@pytest.mark.parametrize(
    ("group", "said"), [([0, 0], "has a rank twice"), ([0, 5], "ranks beyond the 2"), ("x", "is not the groups")]
)
def test_groups_are_of_the_ranks(tmp_path, group, said):
    path = write(tmp_path, [[coll(1, ALL_REDUCE, 64, attr("pg_name", "string", "g"))]] * 2)
    (tmp_path / "t.json").write_text(json.dumps({"g": group}))
    with pytest.raises(InputError, match=said):
        answer(path)


def test_faults_of_all_ranks_are_told_at_once(tmp_path):
    path = write(tmp_path, [[node(1, COMP, us=1, deps=[9])], [node(2, 8)]])
    output = captured(["--topology", MACHINE, "--workload", path])
    assert output.status == 2
    assert [line.partition(": ")[0][-6:] for line in output.said] == ["t.1.et", "t.0.et"]


@pytest.mark.parametrize("raw", [b"", b"not a trace", b"\x07\n\x050.0.4L\x12\nall"])
def test_damaged_files_are_refused(tmp_path, raw):
    (tmp_path / "t.0.et").write_bytes(raw)
    with pytest.raises(InputError, match="is not a Chakra trace"):
        answer(str(tmp_path / "t.0.et"))


def test_a_rank_that_is_missing_is_named(tmp_path):
    path = write(tmp_path, [[node(1, COMP, us=1)]] * 3)
    (tmp_path / "t.1.et").unlink()
    with pytest.raises(InputError, match=r"t\.1\.et: is missing; rank 2 has a file"):
        answer(path)


def test_heads_of_older_versions_are_passed_over(tmp_path):
    """Before 0.0.4 the head had attributes where the version is now."""
    path = write(tmp_path, [[node(1, COMP, us=7)]], head=field(1, field(1, "schema") + field(29, "1.0.1")))
    assert answer(path).done_s == pytest.approx(7e-6)


def test_without_protobuf_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    chakra._messages.cache_clear()
    with pytest.raises(MissingDependency, match=r"topocast\[chakra\]"):
        answer(write(tmp_path, [[node(1, COMP, us=1)]]))


def test_the_command_writes_a_file_a_rank_and_the_groups(tmp_path):
    asked = ["--topology", MACHINE, "--workload", "lenet", "--batch", "8", "-q"]
    assert captured([*asked, "--chakra", str(tmp_path / "r")]).status == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == [*(f"r.{rank}.et" for rank in range(8)), "r.json"]
    assert json.loads((tmp_path / "r.json").read_text()) == {"0": list(range(8))}
    servers = captured([*asked, "--strategy", "parameter-server", "--chakra", str(tmp_path / "s")])
    assert (servers.status, len(list(tmp_path.iterdir()))) == (2, 9)
    device = captured(["--topology", MACHINE, "--workload", str(tmp_path / "r.0.et"), "--device", "gpu1"])
    assert (device.status, device.said) == (
        2,
        ["--device: is of a program; a Chakra trace says what each rank runs, and where"],
    )


def test_written_messages_are_those_of_the_schema(tmp_path):
    """One node byte by byte, as Chakra's text converter would write it."""
    made = chakra.written_rank([chakra.ChakraNode(3, "sum", "exchange", (1,), size_bytes=64, group="0")])
    told = [attr("is_cpu_op", "bool", False), attr("comm_type", "int64", 0), attr("pg_name", "string", "0")]
    told.append(attr("comm_size", "int64", 64))
    expected = field(1, 3) + field(2, "sum") + field(3, COLL) + field(5, bytes([1])) + b"".join(told)
    head = field(1, "0.0.4")
    assert made == varint(len(head)) + head + varint(len(expected)) + expected
