"""Inputs that once hung, exhausted memory or caused an internal error are answered, or refused in a few lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from simulator.collectives.communicator import MAX_RANKS, Communicator, Request, Unsuitable
from simulator.collectives.lower import ALPHA_S, alpha_beta_ring_s
from simulator.collectives.registry import find_strategy
from simulator.console.files import OutputFile
from simulator.errors import FAULTS_SHOWN, InputError, escaped, nearest
from simulator.network.compiling import compile_machine
from simulator.topology.load import load_topology, topology_from_text
from tests.calls import at_most_calls
from tests.fuzz.run import fault_of
from tests.hostile import ESCAPES, MESHES, REFUSED
from tests.unit.test_dumps import LISTED, LOG, LSPCI, NV12
from tests.unit.test_dumps_of_tools import AMD_SMI, IBSTAT, LSTOPO, QUERY
from tests.unit.test_dumps_of_tools import LSPCI as VERBOSE
from validate.compare.folder import read_folder
from validate.importing.formats import Source, latency_s, release
from validate.machine.measure.table import alone_in
from validate.tables.cells import read_records

_CALLS = 3_000_000  # function calls, about a second


# -- topologies ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_faults_cost_as_much_as_the_file_is_long(name: str) -> None:
    text, line = REFUSED[name]
    with at_most_calls(_CALLS), pytest.raises(InputError) as caught:
        topology_from_text(text)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"<text>:{line}")
    assert len(lines) <= FAULTS_SHOWN + 1
    assert all(len(found) <= 600 for found in lines)


@pytest.mark.slow
def test_the_first_faults_are_told_and_the_others_counted() -> None:
    text, _ = REFUSED["links to devices that are not there"]
    with pytest.raises(InputError) as caught:
        topology_from_text(text)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines[:-1]] == [str(6 + i // 2) for i in range(FAULTS_SHOWN)]
    assert lines[-1] == f"and {2 * 1_000 - FAULTS_SHOWN} more"


def test_near_names_are_found_among_many() -> None:
    names = [f"gpu{i}" for i in range(60_000)]
    with at_most_calls(200_000):
        assert nearest("gpx17", names) == "did you mean 'gpu17'?"
        assert nearest("gp17", names) == "did you mean 'gpu17'?"
        assert nearest("GPU59999", names) == "did you mean 'gpu59999'?"
        assert nearest("zzz", names).startswith("allowed: gpu0, gpu1, ")


# -- searches ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ring", "bidirectional-ring", "nccl"])
@pytest.mark.parametrize("name", MESHES)
def test_a_search_has_a_budget_and_says_where_it_ended_there(name: str, strategy: str) -> None:
    machine = compile_machine(topology_from_text(MESHES[name]))
    request = Request(Communicator(machine, machine.gpus), "all-reduce", 1e8)
    with at_most_calls(_CALLS):
        plan = find_strategy(strategy).plan(request)
    assert plan.tasks
    if name.startswith("two"):
        # NCCL's search order finds rings through a neighbour of the shared GPU, and finishes.
        ended = (name, strategy) != ("two groups of 8 that share a GPU", "nccl")
        assert any("ended at its budget of steps" in note for note in plan.notes) == ended
        if strategy == "ring":  # over NVLink, through a neighbour where there is no link, and not over PCIe
            assert max(plan.facts["ring_count"], 1) == 1
            kinds = {link.kind for a in plan.tasks for link in _links(machine, a)}
            assert kinds <= {"nvlink"}


def _links(machine: object, activity: object) -> list[object]:
    parts = getattr(activity, "parts", ())
    found = [index for part in parts for index, _ in getattr(getattr(part, "route", None), "links", ())]
    return [machine.links[index] for index in found]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_the_ring_on_paper_is_found_in_bounded_steps(name: str) -> None:
    """20 GB/s where a cycle uses NVLink alone, 1 GB/s where it needs PCIe."""
    machine = compile_machine(topology_from_text(MESHES[name]))
    group = Communicator(machine, machine.gpus)
    with at_most_calls(_CALLS):
        time_s = alpha_beta_ring_s(group, "broadcast", 1e9)
    n = len(machine.gpus)
    rate_Bps = 1e9 if not name.startswith("all") else 40e9 if name.endswith("twice") else 20e9
    assert time_s == pytest.approx((n - 1) * ALPHA_S + 1e9 / rate_Bps)


@pytest.mark.slow
def test_all_rings_of_16_gpus_that_are_all_linked_are_found_though_not_all_can_be_listed() -> None:
    """A complete graph of 16 has 7 disjoint Hamiltonian cycles (Walecki)."""
    machine = compile_machine(topology_from_text(MESHES["all of 16 with all"]))
    plan = find_strategy("ring").plan(Request(Communicator(machine, machine.gpus), "all-reduce", 1e8))
    assert plan.facts["ring_count"] == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        *("gpu0", "cpu", "naive-ring", "ring", "single-ring", "bidirectional-ring", "multi-ring", "tree"),
        *("double-tree", "halving-doubling", "parameter-server"),
    ],
)
def test_too_many_ranks_are_refused_at_once_with_the_limit(strategy: str) -> None:
    machine = compile_machine(load_topology("dgx-h100", n_nodes=4096))
    request = Request(Communicator(machine, machine.gpus), "all-reduce", 1e8)
    with at_most_calls(1_000_000), pytest.raises(Unsuitable, match=r"up to [\d,]+"):
        find_strategy(strategy).plan(request)
    assert max(MAX_RANKS.values()) < 32_768


# -- terminals -----------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_terminal_would_obey_is_shown_escaped() -> None:
    assert escaped("a\0b\x1b[31m\u202e\tµ × é\n") == "a\\x00b\\x1b[31m\\u202e\tµ × é\n"
    done = _command("simulator", ["--topology", "-", "--strategy", "ring"], ESCAPES)
    assert done.returncode == 0, done.stderr
    assert "a\\x00b\\x1b[31mRED\\x1b]0;title\\x07\\u202e" in done.stdout
    for stream in (done.stdout, done.stderr):
        assert all(c.isprintable() or c == "\n" for c in stream)


def _command(program: str, arguments: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# -- tables --------------------------------------------------------------------------------

_COLUMNS = b"machine,n_gpus,collective,bytes,time_s\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (_COLUMNS + b"\n" * 40_000_000, "has more than 2,000,000 lines; score it in parts"),
        (_COLUMNS + b"a," * 2_000_000, "2:1: the row has more than 5,000 fields"),
        (_COLUMNS + b"a" * 20_000_000, "2:1: a cell has more than 1,000,000 characters"),
        (_COLUMNS + b'"' + b"a" * 20_000_000 + b'"', "2:1: a cell has more than 1,000,000 characters"),
        (_COLUMNS + b'x,"' + b"a\n" * 900_000 + b'"', "2:3: a cell has more than 1,000,000 characters"),
        (_COLUMNS + b"a,8,all_reduce,1,1\n" * 150_000, "100002:1: has more than 100,000 rows; score it in parts"),
        (_COLUMNS + b'x,"' + b'""' * 5_000_000 + b'"', "2:3: a cell has more than 1,000,000 characters"),
        (_COLUMNS + b'x,"' + "é".encode() * 1_000_001 + b'"', "2:3: a cell has more than 1,000,000 characters"),
        (b"x" * 70_000_000, "is larger than 64 MB; score it in parts"),
    ],
    ids=["lines", "fields", "cell", "quoted", "many lines in a cell", "rows", "many quotes", "two bytes each", "bytes"],
)
def test_what_is_too_large_for_a_table_is_refused_early(raw: bytes, words: str) -> None:
    with at_most_calls(3_000_000), pytest.raises(InputError, match=rf"^t\.csv:? ?{words}$|^t\.csv:{words}$"):
        read_records(raw, "t.csv")


def test_plain_digits_alone_are_numbers_of_an_import() -> None:
    assert latency_s("1.5") == pytest.approx(1.5e-3)
    assert latency_s("1e3") == pytest.approx(1.0)
    for text in ("1_000", "\u0661\u0662", "0x10", "inf", "nan", "-1", "", "1e999", "1" * 100):
        assert latency_s(text) is None


# -- packages and folders ------------------------------------------------------------------

_FILE = "aiconfigurator/systems/data/h100_sxm/vllm/1.0/gemm_perf.txt"


def _wheel(path: Path, files: dict[str, str]) -> str:
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return str(path)


def test_a_wheel_with_a_folder_in_place_of_a_file_holds_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no file"):
        Source(_wheel(tmp_path / "a.whl", {f"{_FILE}/": ""}))


def test_a_wheel_of_another_format_is_one_line(tmp_path: Path) -> None:
    path = Path(_wheel(tmp_path / "a.whl", {_FILE: "m,n,k\n1,2,3\n"}))
    raw = bytearray(path.read_bytes())
    directory = raw.find(b"PK\x01\x02")
    raw[directory + 6] = 153  # the version needed to read it
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"cannot be read: zip file version 15\.3$"):
        Source(str(path))


def test_a_version_of_5000_digits_is_no_version(tmp_path: Path) -> None:
    assert release("9" * 5_000) == ((), (0, 0), (0, 0))
    assert release("1.2rc5") < release("1.2") < release("1.2.post1")


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    source = Source(_wheel(tmp_path / "a.whl", {_FILE: "m,n,m\n1,2,3\n"}))
    [table] = source.tables("gemm")
    with pytest.raises(InputError, match=r"the column 'm' is there twice$"):
        list(source.rows(table, ("m",)))


def test_a_device_without_an_end_is_no_package() -> None:
    with pytest.raises(InputError, match=r"^/dev/zero: is a device; a wheel or an unpacked folder is needed$"):
        Source("/dev/zero")


@pytest.mark.parametrize(
    ("record", "words"),
    [("[" * 100_000, "is not JSON: nested too deep"), ('{"a": 1', "is not JSON"), ("[1]", "is not a record of a run")],
)
def test_a_damaged_record_is_one_line(record: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(record)
    (tmp_path / "ops.csv").write_text("device,op,time_s\nt4,linear,1e-3\n")
    with pytest.raises(InputError, match=rf"^.*run\.json: {words}[^\n]*$"):
        read_folder(str(tmp_path))


def test_figures_of_a_record_that_no_machine_has_are_none(tmp_path: Path) -> None:
    figures = {"a": 10**400, "b": float("nan"), "c": [float("inf"), 3], "d": True}
    (tmp_path / "run.json").write_text(json.dumps(figures))
    (tmp_path / "ops.csv").write_text("device,op,time_s\nt4,linear,1e-3\n")
    assert read_folder(str(tmp_path)).record == {"a": None, "b": None, "c": [None, 3], "d": True}


# -- files and runs ------------------------------------------------------------------------


def test_a_name_too_long_for_a_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--trace .{1,150}: cannot be written: File name too long$"):
        OutputFile("--trace", str(tmp_path / ("x" * 300)))


def test_what_a_killed_process_left_beside_a_file_is_removed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    target = tmp_path / "trace.json"
    with OutputFile("--trace", str(target)):
        [own] = tmp_path.iterdir()
        left = own.with_name(own.name.replace(str(os.getpid()), ended.stdout.decode().strip()))
        left.write_text("half")
        with OutputFile("--trace", str(target)) as second:  # the file of a live process stays
            assert not left.exists()
            assert own.exists()
            second.write(b"whole")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    assert target.read_bytes() == b"whole"


def test_a_folder_is_measured_into_by_one_run_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from validate.machine.measure.table import alone_in\n"
        f"with alone_in(Path({str(tmp_path)!r})):\n    print('held', flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        words = rf"another run measures into it \(process {other.pid}\); wait"
        with pytest.raises(ValueError, match=words), alone_in(tmp_path):
            pass
        other.kill()
    assert (tmp_path / ".lock").exists()  # left behind, and taken over
    with alone_in(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
    assert not list(tmp_path.iterdir())


# -- the files that were reported ----------------------------------------------------------

_HANG_S = 60  # CPU time limit of inputs that make no calls
_REPORTED = Path(__file__).resolve().parents[3] / "shared" / "repro"


_LONG = "x" * 300  # longer than a file name may be


@pytest.mark.parametrize(
    "words",
    [
        ["simulator", "--topology", f"{_LONG},t4", "--strategy", "ring"],
        ["simulator", "--topology", "t4", "--workload", _LONG],
        ["simulator", "--topology", "t4", "--workload", f"{_LONG}/config.json"],
        ["simulator", "--topology", "t4", "--workload", "resnet50", "--calibration", _LONG],
        ["validate", "score", _LONG],
        ["validate", "compare", _LONG],
    ],
    ids=lambda words: " ".join(words).replace(_LONG, "LONG"),
)
def test_names_too_long_for_a_file_are_refused(words: list[str]) -> None:
    assert not fault_of(words)


_NAMES = sorted(p.name for p in _REPORTED.glob("*"))


def _asked_about(path: Path, folder: Path) -> list[str]:
    """Return the command that reads the file *path*."""
    if path.name.startswith("net-"):
        return ["simulate", "--topology", "p3.16xlarge", "--workload", str(path)]
    if path.is_dir():
        return ["validate", "compare", str(path)]
    if path.suffix == ".whl":
        return ["validate", "import", "aiconfigurator", str(path), "--out", str(folder)]
    if path.suffix == ".csv":
        return ["validate", "score", str(path), "--topology", str(path.with_suffix(".yaml"))]
    return ["simulate", "--topology", str(path), "--strategy", "ring,nccl"]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what the command about each reported file did and used."""
    commands = [_asked_about(_REPORTED / name, tmp_path_factory.mktemp("imported")) for name in _NAMES]
    done = subprocess.run(
        [sys.executable, "-m", "tests.within_bounds", str(_HANG_S)],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    return dict(zip(_NAMES, json.loads(done.stdout), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES or ["none"])
def test_reported_files_are_answered_or_refused_within_bounds(name: str, used: dict[str, dict[str, Any]]) -> None:
    if name not in used:
        pytest.skip(f"no reported files at {_REPORTED}")
    found = used[name]
    assert found["status"] in (0, 2), found
    assert all(c.isprintable() or c == "\n" for c in found["out"] + found["err"])
    assert all(len(line) < 700 for line in found["err"].splitlines())
    assert found["calls"] < 2 * _CALLS
    assert found["kB"] < 240 * 1024


# -- dumps of machines ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["\n", " ", "GPU0 ", "GPU0\n", "<!--", "-[0000:00]-", "+-00.0-[01]-", "1 "])
def test_a_piece_of_a_dump_repeated_often_costs_what_the_file_is_long(tmp_path: Path, piece: str) -> None:
    file = tmp_path / "long.txt"
    for text in (LISTED, LSPCI, NV12, LOG, IBSTAT, QUERY, LSTOPO, AMD_SMI, VERBOSE):
        for at in (40, len(text) // 2, len(text)):
            file.write_text(text[:at] + piece * (200_000 // len(piece)) + text[at:])
            assert fault_of(["validate", "describe", "--from", str(file), "--gpu", "h100"]) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "GPU0 GPU1 " + "NIC " * 100_000 + "\n" + "GPU9\n" * 40_000,
        "x [1] NCCL INFO " + "rank 0 nranks 8 cudaDev 0 " * 40_000,
        "GPU0" + " " * 199_000,
    ],
)
def test_a_dump_of_two_long_parts_costs_what_the_file_is_long(tmp_path: Path, text: str) -> None:
    file = tmp_path / "long.txt"
    file.write_text(text)
    assert fault_of(["validate", "describe", "--from", str(file), "--gpu", "h100"]) == ""
