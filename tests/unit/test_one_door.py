"""Rows of tables asked on the command line: ``simulate`` gives the same time by which the rows are scored."""

from __future__ import annotations

import csv
import json
import random
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from simulator.api import Question, Session
from simulator.cli import read, run
from simulator.cli.step_questions import ask_steps
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import FSDP
from simulator.questions.options import StepOptions
from simulator.questions.single import AccessQuestion, CoreQuestion, DiskQuestion, MessageQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Software, Where
from tests import measured_folders
from tests.command_of import command_of
from tests.without_advice import without_advice
from validate.kinds import COLLECTIVES, COPIES, KINDS, LAUNCH, MEMORY, OPERATORS, STEPS, STORAGE, Kind
from validate.tables.cells import NotScored
from validate.tables.names import DeviceNames, MachineNames, RowNames
from validate.tables.table import read_table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("answered_once")]

PUBLISHED = Path(__file__).resolve().parents[2] / "validate" / "measurements"
TABLES = {
    "ops.csv": OPERATORS,
    "collectives.csv": COLLECTIVES,
    "training.csv": STEPS,
    "copies.csv": COPIES,
    "memory.csv": MEMORY,
    "launch.csv": LAUNCH,
}
Row = Mapping[str, str]


@pytest.fixture(autouse=True)
def no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the search for faster alternatives, which takes longer than the answer."""
    monkeypatch.setattr(Session, "advised", without_advice)


def answered_s(question: Question, capsys: pytest.CaptureFixture[str]) -> float:
    """Return the seconds that ``simulate`` prints; a step that does not fit into memory is answered too."""
    command = [*command_of(question), "--json", "--quiet"]
    status = run(command)
    out, err = capsys.readouterr()
    assert status == 0 or err.startswith("simulate: out of memory: "), f"{' '.join(command)}: {err}"
    (result,) = json.loads(out)["results"]
    return next(result[key] for key in ("time_s", "step_time_s", "sync_time_s") if key in result)


def check(questions: Iterable[Question], session: Session, capsys: pytest.CaptureFixture[str], least: int) -> None:
    """Ask each question in both ways; at least *least* must have an answer."""
    answered = 0
    for question in questions:
        try:
            expected_s = session.time_s(question)
        except InputError:
            continue
        assert answered_s(question, capsys) == pytest.approx(expected_s, rel=1e-9), question
        answered += 1
    assert answered >= least


def asked(kind: Kind, rows: Iterable[Row], names: RowNames) -> list[Question]:
    """Return the questions of *rows*, except rows that ask for unmodelled features."""
    found: list[Question] = []
    for row in rows:
        try:
            read = kind.read(lambda column, row=row: row.get(column, ""), names)  # type: ignore[misc]
        except NotScored:
            continue
        found += [read.question, *read.besides]
    return found


def sample(file: Path, kind: Kind, count: int) -> list[Row]:
    """Return *count* rows of the table *file*, with conventions applied; the same rows each time."""
    table = read_table(file.read_bytes(), file.name, kind.needed, kind.columns, kind.name)
    rows = random.Random(1).sample(table.rows, min(count, len(table.rows)))
    return [{column: table.cell(row, column) for column in kind.asked} for row in rows]


# -- rows as tests and users write them --------------------------------------------------

ROWS: Sequence[tuple[Kind, Sequence[Row]]] = (
    (
        COLLECTIVES,
        [
            {"machine": "p3.16xlarge", "n_gpus": n, "collective": collective, "bytes": n_bytes, **more}
            for n, collective, n_bytes, more in (
                ("8", "all_reduce", "1e8", {}),
                ("4", "all_gather", "4096", {"gpu_set": "0,2,4,6", "software": "NCCL 2.18.3, nccl-tests -g 4"}),
                ("8", "sendrecv", "65536", {"gpu_set": "pairs 0>4;1>5"}),
                ("8", "broadcast", "1e6", {"group_size": "4", "n_groups_concurrent": "2"}),
                ("16", "reduce_scatter", "1e9", {"n_nodes": "2", "dtype": "int8"}),
                ("8", "all_reduce", "1e6", {"algorithm_forced": "tree"}),
                ("8", "all_reduce", "1e6", {"algorithm_forced": "halving-doubling"}),
            )
        ],
    ),
    (
        COPIES,
        [
            {"machine": "p3.16xlarge", "kind": kind, "src": src, "dst": dst, "bytes": "16777216", **more}
            for kind, src, dst, more in (
                ("h2d", "host", "gpu0", {"pinned": "1"}),
                ("d2h", "gpu3", "host", {"pinned": "0"}),
                ("d2d", "gpu1", "gpu1", {}),
                ("h2h", "host", "host", {"note": "4 threads"}),
                ("p2p", "gpu0", "gpu5", {}),
                ("p2p_bidir", "gpu0", "gpu1", {"note": "P2P disabled"}),
            )
        ],
    ),
    (
        MEMORY,
        [
            {"device": device, "bench": bench, "kernel": kernel, "bytes": "67108864", "dtype": dtype}
            for device, bench, kernel, dtype in (
                ("t4", "torch stream", "copy", "fp32"),
                ("t4", "BabelStream", "triad", "double"),
                ("a100-sxm4-40gb", "torch", "gather rows of 256 B", "fp32"),
                ("xeon-e5-2630-v3", "chase", "", ""),
                ("xeon-e5-2630-v3", "torch stream", "add", "fp32"),
            )
        ],
    ),
    (
        LAUNCH,
        [
            {"device": device, "metric": metric, "mode": mode}
            for device, metric, mode in (
                ("a100-sxm4-40gb", "time of one relu in place of 64 numbers", "torch eager, one after the other"),
                ("a100-sxm4-40gb", "time of one matrix product", "torch eager, from a captured graph"),
                ("a100-sxm4-40gb", "host time of layer_norm, forward and backward", ""),
                ("a100-sxm4-40gb", "host time of a step of Adam, foreach", ""),
                ("a100-sxm4-40gb", "time of a graph of 100 kernels", "captured graph, replay alone"),
                ("a100-sxm4-40gb", "per-kernel time floor, 64 KiB SCALE kernel", "CUDA graph replay"),
                ("xeon-e5-2630-v3", "host time of linear, forward and backward", ""),
            )
        ],
    ),
    (
        STORAGE,
        [
            {"machine": machine, "kind": kind, "block_bytes": "4096", "threads": threads, "cache": cache}
            for machine, kind, threads, cache in (
                ("p3.16xlarge", "read_random", "4", "direct"),
                ("p3.16xlarge", "read_sequential", "1", "page cache"),
                ("dgx-a100-40gb", "write_sequential", "2", "dropped"),
            )
        ],
    ),
)


@pytest.mark.parametrize(("kind", "rows"), ROWS, ids=[kind.name for kind, _ in ROWS])
def test_rows_that_are_written_here(kind: Kind, rows: Sequence[Row], capsys: pytest.CaptureFixture[str]) -> None:
    names = RowNames()
    questions = asked(kind, rows, names)
    assert len(questions) >= len(rows)
    check(questions, names.session, capsys, len(rows))


def test_rows_of_a_measured_folder(capsys: pytest.CaptureFixture[str]) -> None:
    machine, device = measured_folders.TOPOLOGY, f"{measured_folders.DEVICE}={measured_folders.PART}"
    names = RowNames(machines=MachineNames(machine), devices=DeviceNames([device], machine))
    for kind, rows, least in (
        (OPERATORS, measured_folders.operators(25), 20),
        (STEPS, measured_folders.steps(), 8),
        (MEMORY, measured_folders.bandwidths()[::6], 8),
    ):
        cells = [{column: str(value) for column, value in row.items()} for row in rows]
        check(asked(kind, cells, names), names.session, capsys, least)


_NOT_ASKED = ("allocations", "clocks", "kernels", "copies")  # copies: of a machine that its folder alone describes
ASKING = [file for file in sorted(PUBLISHED.glob("**/*.csv")) if file.stem not in _NOT_ASKED]


@pytest.mark.parametrize("file", ASKING, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_rows_of_published_tables(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    if "arguments" in rows[0]:  # the memory of steps, asked in words of simulate
        for row in random.Random(1).sample(rows, 4):
            words = shlex.split(row["arguments"])
            with suppress(InputError) if "--offload" in words else nullcontext():  # some of these are refused
                session, questions = ask_steps(read(words).written)  # type: ignore[attr-defined]
                check(questions, session, capsys, 0 if "--offload" in words else 1)
        return
    kind, names = TABLES.get(file.name, STEPS), RowNames()
    check(asked(kind, sample(file, kind, 4 if kind is STEPS else 10), names), names.session, capsys, 2)


@pytest.mark.corpus
@pytest.mark.parametrize("table", TABLES)
def test_rows_of_the_corpus(table: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind, names = TABLES[table], RowNames()
    rows = sample(corpus / table, kind, 12 if kind is STEPS else 30)
    check(asked(kind, rows, names), names.session, capsys, 6)


# -- questions that no table asks --------------------------------------------------------

P3, TWO, SOCKETS = Where("p3.16xlarge"), Where("4x-v100-sxm2-pcie", 2, "ethernet-10g"), Where("cpu-2xe5-2690v4")
STEP = StepQuestion(where=P3, workload="resnet18", batch=4)
ODD: Sequence[Question] = (
    CollectiveQuestion(where=TWO, size_bytes=1e6, strategy="ring"),
    CollectiveQuestion(where=P3, size_bytes=1e6, collective="broadcast", strategy="nccl", root=3, gpus_per_process=8),
    CollectiveQuestion(where=Where("dgx-h100"), size_bytes=1e6, dtype="fp8", software=Software((2, 18))),
    CollectiveQuestion(where=P3, size_bytes=1e6, strategy="nccl", gpus=(3, 1), algorithm="ring"),
    CollectiveQuestion(where=P3, size_bytes=1e6, strategy="nccl", protocol="LL", nvls=False),
    StepQuestion(where=P3, workload="resnet18", batch=4, algorithm="tree", protocol="Simple", nvls=False),
    CollectiveQuestion(where=P3, size_bytes=1e6, strategy="parameter-server-1"),
    STEP,
    StepQuestion(where=TWO, workload="resnet18", batch=4, strategy="ring", bucket_bytes=0.0, contention=True),
    StepQuestion(where=P3, workload="resnet18", batch=4, gpus=(1, 3), bucket_bytes=1e6, strategy="gpu0"),
    StepQuestion(where=P3, workload="resnet18", batch=4, gpus=(5,)),
    StepQuestion(where=P3, workload="resnet18", batch=4, device="cpu0", threads=4, software=Software((2, 30), "blas")),
    StepQuestion(where=P3, workload="resnet18", batch=2, layout=FSDP, micro_batches=3, sums_in_fp32=True,
                 options=StepOptions(precision="amp-fp16", optimizer="sgd", channels_last=True, fused_optimizer=True)),
    StepQuestion(where=P3, workload="gpt2", batch=1, sizes=(("sequence_length", 128), ("layers", 2), ("loss", 0)),
                 options=StepOptions(mode="inference", compiled=True, cuda_graph=True)),
    StepQuestion(where=P3, workload="gpt2", batch=1, sizes=(("layers", 2), ("attention", "fused")),
                 options=StepOptions(mode="backward", optimizer="adam", recompute="full")),
    AccessQuestion(where=SOCKETS, kind="random", size_bytes=1e9, each_bytes=100.0, outstanding=3, node="cpu1",
                   page_bytes=2097152.0, misaligned=True, threads=2),
    AccessQuestion(where=SOCKETS, kind="strided", size_bytes=1e9, stride_bytes=24.0, backward=True, device="cpu0"),
    AccessQuestion(where=SOCKETS, kind="shared", size_bytes=64.0, cores=3, state="unchanged"),
    AccessQuestion(where=P3, kind="stream", size_bytes=1e9, resident=4096, block_threads=64, device="gpu1"),
    AccessQuestion(where=P3, kind="chase", size_bytes=1e4, level="scratchpad"),
    DiskQuestion(where=Where("dgx-2"), kind="read_random", block_bytes=5e4, threads=3, hit_percent=20, disk="nvme1"),
    MessageQuestion(where=TWO, size_bytes=1234.0, protocol="udp", src=1, dst=0, mtu_bytes=9000.0, switches=3,
                    distance_km=7, in_vacuum=True, round_trip=True),
    CoreQuestion(where=SOCKETS, operation="branch-miss", count=7, device="cpu1"),
)  # fmt: skip


@pytest.mark.parametrize("question", ODD, ids=range(len(ODD)))
def test_questions_that_no_table_asks(question: Question, capsys: pytest.CaptureFixture[str]) -> None:
    check([question], Session(), capsys, 1)


def test_what_is_as_usual_is_not_said() -> None:
    usual = StepQuestion(where=P3, workload="resnet50", batch=64, contention=True)
    assert command_of(usual) == [
        *("--topology", "p3.16xlarge", "--workload", "resnet50", "--batch", "64", "--optimizer", "momentum")
    ]
    assert command_of(CollectiveQuestion(where=P3, size_bytes=160e6)) == [
        *("--topology", "p3.16xlarge", "--workload", "bytes:160000000B", "--strategy", "nccl")
    ]


def test_every_kind_of_question_is_asked_here() -> None:
    assert {kind.name for kind in KINDS} == {kind.name for kind in (*TABLES.values(), STORAGE)}
