"""Tables of memory: bandwidth by size, gathers, pointer chases; names used by published benchmarks."""

import json

import pytest

from simulator.constants import DEFAULT
from simulator.devices.dispatch import in_graph
from simulator.devices.predict import kernel_cost
from simulator.host.latency import chase, memory_place
from simulator.questions.single import AccessQuestion
from simulator.topology.catalogue import load_part
from simulator.topology.parts import CacheLevel, CpuPart
from simulator.workload.kernels import Streaming
from tests.validate_commands import score_command
from validate.kinds import MEMORY
from validate.kinds.kind import RowQuestion
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

NAMES = RowNames()
GRAPH_SAVES_S = DEFAULT["issuing"].graph_saves_s
GPU, CPU, MIB = "a100-sxm4-40gb", "xeon-e5-2630-v3", 1 << 20
PHASES = CpuPart(
    kind="cpu",
    memory_latency="100 ns",
    caches={
        "l1": CacheLevel(size="32 KiB", latency="1 ns"),
        "l2": CacheLevel(size="1 MiB", latency="4 ns"),
        "l3": CacheLevel(size="32 MiB", latency="16 ns"),
    },
)


def chase_latency(part: CpuPart, working_set_bytes: float) -> float:
    return chase(part, working_set_bytes, memory_place(part)).latency_s


def asked(**cells) -> RowQuestion:
    row = {"device": GPU, "bench": "torch stream", "kernel": "copy", "bytes": str(64 * MIB), "dtype": "fp32", **cells}
    return MEMORY.read(lambda column: row.get(column, ""), NAMES)


def query(**cells) -> AccessQuestion:
    found = asked(**cells).question
    assert isinstance(found, AccessQuestion)
    return found


def seconds(**cells) -> float:
    return asked(**cells).time_s(NAMES.session)


def measured_s(cells: dict[str, str]) -> float:
    return MEMORY.measured_s(lambda column: cells.get(column, ""), NAMES)


def rate(**cells) -> float:
    question = asked(**cells).question
    moved = question.size_bytes if isinstance(question, AccessQuestion) else int(cells["bytes"])
    return moved / seconds(**cells)


@pytest.mark.parametrize("device", [GPU, CPU])
@pytest.mark.parametrize("kernel", ["read", "copy", "triad", "write"])
def test_large_sets_come_at_the_pace_of_memory_and_small_ones_of_caches(device, kernel) -> None:
    found = NAMES.device(device)
    large = rate(device=device, kernel=kernel, bytes=str(1 << 32))
    fetched = {"copy": 3 / 2, "triad": 4 / 3, "write": 2.0}.get(kernel, 1.0) if device == CPU else 1.0
    assert 0.6 * found.memory_bandwidth_Bps < large * fetched < 1.01 * found.memory_bandwidth_Bps
    fits = str(16 * MIB if device == GPU else 2 * MIB)
    ends = device == GPU and kernel == "read"  # of blocks whose sums the last one adds up, which take longer than bytes
    assert (rate(device=device, kernel=kernel, bytes=fits) > large) is not ends


@pytest.mark.parametrize(
    ("kernel", "shown_Bps"),
    # BabelStream 2.0 with OpenCL, arrays of 268 MB, of one socket with 76.8 GB/s (UoB-HPC/BabelStream)
    [("Copy", 43.6e9), ("Mul", 43.0e9), ("Add", 48.5e9), ("Triad", 49.2e9)],
)
def test_a_cpu_fetches_the_lines_that_it_writes(kernel, shown_Bps) -> None:
    row = {"device": "Intel(R) Xeon(R) CPU E5-2699 v4 @ 2.20GHz", "kernel": kernel, "bytes": "268399999"}
    assert rate(**row, bench="BabelStream 2.0", dtype="double") == pytest.approx(shown_Bps, rel=0.03)


def test_the_least_sets_take_what_a_kernel_takes() -> None:
    kernel = Streaming("copy", 128, 512, 512)
    time_s = kernel_cost(NAMES.device(GPU), kernel).time_s
    assert seconds(bytes="1024") == pytest.approx(time_s - GRAPH_SAVES_S)
    assert seconds(bytes="1024", bench="other") == pytest.approx(time_s)


def test_graphs_save_nothing_on_gpus_of_amd_and_on_cpus() -> None:
    for device in ("mi210", CPU):
        assert in_graph(NAMES.device(device), 5e-6) == 5e-6


def test_threads_draw_together() -> None:
    assert rate(device=CPU, threads="1") < rate(device=CPU, threads="8") == rate(device=CPU)


def test_a_gather_moves_rows_twice_and_is_slower_than_a_stream() -> None:
    table = str(1 << 30)
    cells = {"device": GPU, "bench": "torch index_select", "kernel": "gather rows of 1024 B", "bytes": table,
             "dtype": "fp32"}  # fmt: skip
    gathered = query(**cells)
    assert (gathered.kind, gathered.row_bytes) == ("gather", 1024)
    rows_bytes = 2 * (64 << 20)
    assert measured_s({**cells, "gbps": "500"}) == pytest.approx(rows_bytes / 500e9)
    assert rows_bytes / seconds(**cells) < rate(bytes=table)


def test_a_walk_waits_for_the_level_that_holds_it() -> None:
    assert chase_latency(PHASES, 1 << 14) == pytest.approx(1e-9)
    assert chase_latency(PHASES, 1 << 15) == pytest.approx(1e-9)
    assert chase_latency(PHASES, 1 << 16) == pytest.approx((1e-9 + 4e-9) / 2)
    assert chase_latency(PHASES, 1 << 40) == pytest.approx(100e-9, rel=1e-3)
    half = (1 / 2) * 100e-9 + (1 << 15) / (1 << 26) * 1e-9 + ((1 << 20) - (1 << 15)) / (1 << 26) * 4e-9
    half += ((1 << 25) - (1 << 20)) / (1 << 26) * 16e-9
    assert chase_latency(PHASES, 1 << 26) == pytest.approx(half)


@pytest.mark.parametrize("size", [1 << n for n in range(12, 32)])
def test_walks_over_more_are_never_faster(size) -> None:
    assert chase_latency(PHASES, 2 * size) >= chase_latency(PHASES, size)


def test_walks_are_measured_in_seconds_or_in_cycles() -> None:
    cells = {"device": CPU, "bench": "pointer chase", "kernel": "load after load", "bytes": "4096"}
    part = load_part(CPU)
    assert isinstance(part, CpuPart)
    assert seconds(**cells) == pytest.approx(part.caches["l1"].latency)
    by_cycles_s = measured_s({**cells, "latency_cycles": "4", "clock_mhz": "2000"})
    assert measured_s({**cells, "latency_s": "2e-9"}) == pytest.approx(by_cycles_s)


def test_babelstream_tells_the_size_of_one_array() -> None:
    assert query(bench="BabelStream 3.3", kernel="Triad", dtype="double").size_bytes == 3 * 64 * MIB
    assert query(bench="gpu-benches dram_stream", kernel="triad(2L1S)", dtype="fp64").size_bytes == 64 * MIB


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"kernel": "dance"}, "no model of dance"),
        ({"kernel": ""}, "no model of a kernel without a name"),
        ({"dtype": "fp31"}, "no such dtype: fp31"),
        ({"note": "occupancy 12.5 %"}, "threads missing"),
        ({"device": "rtx-4090", "note": "occupancy 12.5 %", "threads": "100"}, "the part has no memory_latency"),
        (
            {"note": "variant 3 of 9", "kernel": "scale(1L1S) gsync/persistent"},
            "how many small blocks stay is not said",
        ),
        ({"kernel": "gather rows of 4096 B", "bytes": "64"}, "rows that are no part of their table"),
        ({"device": "rtx-4090", "bench": "pointer chase"}, "the part has no l1_latency and no l2_latency"),
        ({"device": "nobody"}, "no part of device 'nobody'"),
        ({"device": CPU, "threads": "0"}, "threads not positive"),
        ({"device": CPU, "threads": "1e9"}, "threads is more than 4096"),
    ],
)
def test_what_is_not_modelled(cells, reason) -> None:
    with pytest.raises(NotScored, match=reason):
        seconds(**cells)


def test_a_table_is_grouped_by_what_holds_its_sets(tmp_path, capsys) -> None:
    table = tmp_path / "memory.csv"
    rows = [f"{GPU},torch stream,copy,{size},fp32,1000" for size in (MIB, 1 << 32)]
    table.write_text("\n".join(["device,bench,kernel,bytes,dtype,GBps", *rows]) + "\n")
    score_command([str(table)], json=True)
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert (scored["kind"], scored["scored"]) == ("memory", 2)
    groups = [group["by"] for group in scored["groups"]]
    assert {"work": "stream", "level": "cache"} in groups
    assert {"work": "stream", "level": "memory"} in groups


@pytest.mark.slow
@pytest.mark.corpus
def test_errors_of_published_streams(corpus, capsys) -> None:
    score_command([str(corpus / "memory.csv")], json=True)
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert scored["scored"] > 400
    assert scored["overall"]["median_ape"] < 0.1 < scored["baselines"]["data sheet"]["median_ape"]


@pytest.mark.parametrize(
    ("size", "shown_s"),  # sums of one H200 from a captured graph, torch 2.11: one block up to 256 KiB
    [(16 << 10, 2.27e-6), (64 << 10, 3.46e-6), (256 << 10, 7.57e-6), (16 << 20, 9.09e-6), (1 << 30, 249.3e-6)],
)
def test_pytorch_reads_by_a_sum_over_everything(size, shown_s) -> None:
    row = {"device": "h200-sxm", "bench": "torch stream", "kernel": "read", "dtype": "fp32"}
    assert seconds(**row, bytes=str(size)) == pytest.approx(shown_s, rel=0.12)
