"""Published measurements as tables: the right rows in the right units, and nothing else."""

import csv
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.console.run import run_app
from simulator.workload.operators import Linear
from tests.published_wheels import (
    ATTENTION,
    PLAIN,
    SHAPES,
    attention,
    content,
    gemm,
    good_files,
    nccl,
    products,
    run_import,
    unpacked,
    wheel,
)
from validate.cli import app
from validate.importing.formats import is_cold, release
from validate.kinds import COLLECTIVES, OPERATORS, Kind
from validate.kinds.kind import RowQuestion
from validate.tables.names import RowNames
from validate.tables.statistics import is_sampled, one_in

NAMES = RowNames()


def asked(kind: Kind, row: Mapping[str, str]) -> RowQuestion:
    return kind.read(lambda column: row.get(column, ""), NAMES)


def imported(capsys, tmp_path, files, *options):
    source = wheel(tmp_path / "a.whl", files)
    status, err = run_import(capsys, source, "--out", tmp_path / "out", *options)
    assert status == 0, err
    return err


def rows(tmp_path, device="h200-sxm", table="ops"):
    with (tmp_path / "out" / device / f"{table}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


# -- rows ----------------------------------------------------------------------------------------------------


def test_a_product_in_seconds_and_in_the_precision_that_was_run(capsys, tmp_path):
    files = {
        "h200_sxm/sglang/0.5.9/gemm_perf.txt": gemm([("float16", 16, 4096, 512, 0.0123)]),
        "h200_sxm/trtllm/1.0.0/gemm_perf.txt": gemm([("bfloat16", 16, 4096, 512, 0.0124)]),
        "h200_sxm/vllm/0.12.0/gemm_perf.txt": gemm([("float16", 16, 4096, 512, 0.0125)]),
        "a100_sxm/sglang/0.5.9/gemm_perf.txt": gemm([("bfloat16", 16, 4096, 512, 0.0126)]),
    }
    imported(capsys, tmp_path, files)
    found = rows(tmp_path)
    assert [(row["software"], row["dtype"], row["time_s"]) for row in found] == [
        ("sglang 0.5.9", "fp16", "1.23e-05"),
        ("trtllm 1.0.0", "bf16", "1.24e-05"),
        ("vllm 0.12.0", "bf16", "1.25e-05"),
    ]
    assert rows(tmp_path, "a100-sxm4-80gb")[0]["dtype"] == "bf16"
    read = asked(OPERATORS, found[0])
    assert read == RowQuestion(read.question)  # no other columns, and no clock
    query = read.question
    assert query.operator == Linear(16, 512, 4096, bias=False)
    assert (query.device, query.phase, query.issued, query.calls) == ("h200-sxm", "fwd", "graph", False)


def test_other_formats_of_products_are_left_out_and_counted(capsys, tmp_path):
    shape = (16, 4096, 512, 0.01)
    table = gemm([("float16", *shape), ("fp8", *shape), ("nvfp4", *shape), ("fp8", 1, 2, 3, 0.01)])
    err = imported(capsys, tmp_path, {"h200_sxm/vllm/0.12.0/gemm_perf.txt": table})
    assert len(rows(tmp_path)) == 1
    assert "left out: 2 x product in fp8: quantises its input too\n" in err
    assert "left out: 1 x product in nvfp4: quantises its input too\n" in err


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "fast"])
def test_a_row_without_a_time_is_left_out(capsys, tmp_path, text):
    table = gemm([("float16", 16, 64, 64, 0.01), ("float16", 32, 64, 64, text)])
    err = imported(capsys, tmp_path, {"h200_sxm/vllm/1.0/gemm_perf.txt": table})
    assert [row["m"] for row in rows(tmp_path)] == ["16"]
    assert "left out: 1 x product without a time\n" in err


def test_what_fits_the_cache_six_times_is_warm():
    l2_bytes = 96 * 2**20
    assert not is_cold((1, 2048, 4000), "vllm", l2_bytes)  # six weights of slightly less than 16 MiB
    assert is_cold((1, 2048, 4096), "vllm", l2_bytes)  # 16 MiB: no room for the input
    assert is_cold((1, 64, 64), "vllm", 0.0)
    many = (4096, 64, 4096)  # inputs of 32 MiB: six of SGLang's do not fit, one of vLLM's does
    assert is_cold(many, "sglang", l2_bytes)
    assert not is_cold(many, "vllm", l2_bytes)


def test_the_cache_column_follows_the_device(capsys, tmp_path):
    shape = [("float16", 1, 4096, 1024, 0.01)]  # 48 MiB in total: fits the 50 MiB of an H200 but not the 40 of an A100
    files = {f"{device}/vllm/1.0/gemm_perf.txt": gemm(shape) for device in ("h200_sxm", "a100_sxm")}
    imported(capsys, tmp_path, files)
    assert rows(tmp_path)[0]["cache"] == "warm"
    assert rows(tmp_path, "a100-sxm4-80gb")[0]["cache"] == "cold"


def test_attention_with_shared_keys(capsys, tmp_path):
    table = attention(
        [
            (2, 512, 8, 2, 128, *PLAIN, 0.05),
            (2, 512, 8, 8, 128, *PLAIN, 0.06),
            (2, 512, 8, 2, 128, 128, 1, "float16", "float16", 0, 0.07),
            (2, 512, 8, 2, 128, 0, 1, "float16", "fp8", 0, 0.08),
            (2, 512, 8, 2, 128, 0, 4, "bfloat16", "bfloat16", 0, 0.09),
            (2, 512, 8, 2, 128, 0, 1, "bfloat16", "bfloat16", 7, 0.09),
        ]
    )
    files = {
        "h200_sxm/vllm/0.12.0/context_attention_perf.txt": table,
        "h200_sxm/vllm/0.12.0/generation_attention_perf.txt": f"{ATTENTION}\n1\n2\n3\n",
    }
    err = imported(capsys, tmp_path, files)
    found = rows(tmp_path)
    assert [row["time_s"] for row in found] == ["5e-05", "6e-05"]
    operators = [asked(OPERATORS, row).question.operator for row in found]
    assert [
        (o.batch, o.heads, o.kv_heads or o.heads, o.query_length, o.key_length, o.head_size) for o in operators
    ] == [
        (2, 8, 2, 512, 512, 128),
        (2, 8, 8, 512, 512, 128),
    ]
    assert all(operator.causal for operator in operators)
    assert {row["dtype"] for row in found} == {"bf16"}
    assert "writes cache" in found[0]["note"]
    assert [line for line in err.splitlines() if line.startswith("left out")] == [
        "left out: 1 x attention in a window: not modelled",
        "left out: 3 x attention of one query (decode): not modelled",
        "left out: 1 x attention to earlier tokens",
        "left out: 1 x attention with queries or keys of 8 bits",
        "left out: 1 x attention with several beams",
    ]


def test_collectives_in_bytes_of_nccl_tests(capsys, tmp_path):
    table = nccl(
        [("alltoall", "half", 8, 1024, 0.02), ("all_reduce", "int8", 4, 4096, 0.03), ("broadcast", "half", 2, 8, 0.1)]
    )
    err = imported(capsys, tmp_path, {"h100_sxm/nccl/2.27/nccl_perf.txt": table})
    found = rows(tmp_path, "h100-sxm5-80gb", "collectives")
    assert [(row["machine"], row["collective"], row["n_gpus"], row["bytes"], row["time_s"]) for row in found] == [
        ("dgx-h100", "all_reduce", "4", "4096", "3e-05"),
        ("dgx-h100", "all_to_all", "8", "2048", "2e-05"),
    ]
    query = asked(COLLECTIVES, found[1]).question
    assert (query.collective, query.gpus, query.gpus_per_process) == ("all-to-all", tuple(range(8)), 1)
    assert "NCCL 2.99.1" in found[0]["software"]  # from the row, which is more exact than the folder's name
    assert "left out: 1 x collective of another kind" in err


def test_a_machine_without_a_topology_and_a_device_without_a_part_are_said(capsys, tmp_path):
    files = {
        "l40s/nccl/2.27/nccl_perf.txt": nccl([("all_reduce", "half", 2, 8, 0.1)]),
        "l40s/vllm/1.0/gemm_perf.txt": products(),
        "b60/vllm/1.0/gemm_perf.txt": products(),
    }
    err = imported(capsys, tmp_path, files)
    assert "left out: 1 x collective on a machine of l40s: no topology of it\n" in err
    assert "left out: 1 x table of b60: no part of it\n" in err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["l40s"]
    assert [path.name for path in (tmp_path / "out" / "l40s").iterdir()] == ["ops.csv"]


# -- choice among several ------------------------------------------------------------------------------------


def test_versions_in_the_order_of_their_release():
    ordered = ["1.0.0rc3", "1.0.0", "1.2.0rc5", "1.2.0rc6", "1.2.0rc6.post3", "1.2.0", "1.2.0.post1", "1.10.0"]
    shuffled = ordered[1::2] + ordered[::2]
    assert sorted(shuffled, key=release) == ordered
    assert sorted(["0.14.1", "0.14.1.dev1", "0.9"], key=release) == ["0.9", "0.14.1.dev1", "0.14.1"]


def test_the_newest_version_with_the_common_shapes(capsys, tmp_path):
    fewer = products(shapes=[SHAPES[0], (2, 3, 4), (5, 6, 7)])
    files = {
        "h200_sxm/vllm/0.12.0/gemm_perf.txt": products(),
        "h200_sxm/vllm/0.9.0/gemm_perf.txt": products(factor=3),
        "h200_sxm/vllm/0.14.0/gemm_perf.txt": fewer,
        "gb300/vllm/0.14.0/gemm_perf.txt": fewer,
        "h200_sxm/vllm/0.12.0/context_attention_perf.txt": attention([(2, 512, 8, 2, 128, *PLAIN, 0.05)]),
        "h200_sxm/vllm/0.14.0/context_attention_perf.txt": attention([(2, 512, 8, 2, 128, *PLAIN, 0.04)]),
    }
    files["h100_sxm/vllm/0.12.0/gemm_perf.txt"] = products()
    err = imported(capsys, tmp_path, files)
    assert {(row["op"], row["software"]) for row in rows(tmp_path)} == {
        ("linear", "vllm 0.12.0"),
        ("attention", "vllm 0.14.0"),
    }
    assert [row["m"] for row in rows(tmp_path, "gb300")] == ["1"]  # a version without them has these
    assert "left out: 2 x product of a shape that few tables have\n" in err
    assert "left out: 6 x product in a version besides the newest with the common shapes\n" in err
    assert "left out: 1 x attention in a version besides the newest\n" in err


def test_what_was_measured_twice_is_one_row_of_the_median(capsys, tmp_path):
    table = gemm([("float16", 1, 64, 64, ms) for ms in (0.03, 0.01, 0.02)])
    imported(capsys, tmp_path, {"h200_sxm/vllm/1.0/gemm_perf.txt": table})
    assert [row["time_s"] for row in rows(tmp_path)] == ["2e-05"]


def test_grades(capsys, tmp_path):
    def table(*times):
        return gemm([("float16", 1, 64, 64 * (i + 1), ms) for i, ms in enumerate(times)])

    files = {
        "h200_sxm/sglang/1.0/gemm_perf.txt": table(0.01, 0.01, 0.0019),
        "h200_sxm/vllm/1.0/gemm_perf.txt": table(0.0149, 0.0151, 0.0021),
    }
    imported(capsys, tmp_path, files)
    found = {(row["software"], row["k"]): (row["trust"], row["note"]) for row in rows(tmp_path)}
    assert {k: trust for (software, k), (trust, _) in found.items() if software == "vllm 1.0"} == {
        "64": "A",
        "128": "B",
        "192": "A",
    }
    assert found["sglang 1.0", "192"][0] == "C"  # below 2 us
    assert found["sglang 1.0", "128"] == ("B", "frameworks differ x1.5")


# -- samples -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5), st.integers(1, 64))
def test_a_share_is_of_the_hash_of_the_sizes(sizes, divisor):
    text = ",".join(str(size) for size in sizes)
    expected = int(sha256(text.encode()).hexdigest(), 16) % divisor == 0
    assert is_sampled(tuple(sizes), one_in("--sample", f"1/{divisor}")) is expected


def test_a_sample_has_the_same_shapes_on_every_device(capsys, tmp_path):
    shapes = [(m, n, 64) for m in range(1, 21) for n in (64, 128, 256)]
    files = {f"{d}/vllm/1.0/gemm_perf.txt": products(shapes=shapes) for d in ("h200_sxm", "a100_sxm")}
    imported(capsys, tmp_path, files, "--sample", "1/4")
    expected = [s for s in shapes if int(sha256(f"{s[0]},{s[1]},{s[2]}".encode()).hexdigest(), 16) % 4 == 0]
    for device in ("h200-sxm", "a100-sxm4-80gb"):
        assert [(int(r["m"]), int(r["n"]), int(r["k"])) for r in rows(tmp_path, device)] == expected
    assert 5 < len(expected) < 30


def test_attention_has_a_share_of_its_own(capsys, tmp_path):
    shapes = [(b, s, 8, 2, 128) for b in range(1, 9) for s in (16, 32, 64, 128)]
    files = {
        "h200_sxm/vllm/1.0/context_attention_perf.txt": attention([(*s, *PLAIN, 0.05) for s in shapes]),
        "h200_sxm/vllm/1.0/gemm_perf.txt": products(),
    }
    imported(capsys, tmp_path, files, "--sample-attention", "1/4")
    expected = [s for s in shapes if int(sha256(",".join(map(str, s)).encode()).hexdigest(), 16) % 4 == 0]
    found = [row for row in rows(tmp_path) if row["op"] == "attention"]
    assert [(int(r["batch"]) // 8, int(r["m"])) for r in found] == [s[:2] for s in expected]
    assert len(rows(tmp_path)) - len(found) == len(SHAPES)


# -- files ---------------------------------------------------------------------------------------------------


def test_the_same_to_the_byte_from_a_wheel_and_a_folder_and_of_fewer_devices(capsys, tmp_path):
    source = wheel(tmp_path / "a.whl", good_files())
    folder = unpacked(tmp_path / "folder", good_files())
    for name, options in (
        ("1", [source]),
        ("2", [source]),
        ("3", [folder]),
        ("4", [source, "--device", "h200-sxm"]),
        ("5", [Path(folder) / "aiconfigurator" / "systems" / "data"]),
    ):
        assert run_import(capsys, *options, "--out", tmp_path / name)[0] == 0
    first = content(tmp_path / "1")
    assert set(first) == {"a100-sxm4-80gb/ops.csv", "h200-sxm/collectives.csv", "h200-sxm/ops.csv"}
    assert content(tmp_path / "2") == content(tmp_path / "3") == content(tmp_path / "5") == first
    assert content(tmp_path / "4") == {name: text for name, text in first.items() if name.startswith("h200")}


def test_validate_score_reads_what_was_written(capsys, tmp_path):
    imported(capsys, tmp_path, good_files(), "--quiet")
    for table in ("ops", "collectives"):
        file = str(tmp_path / "out" / "h200-sxm" / f"{table}.csv")
        assert run_app(app, "validate", ["score", file, "--json"]) == 0
        scored = json.loads(capsys.readouterr().out)["tables"][0]
        assert (scored["rows"], scored["skipped"]) == (scored["scored"], {})


def test_quiet_says_nothing(capsys, tmp_path):
    assert imported(capsys, tmp_path, good_files(), "--quiet") == ""
