"""Rows of nccl-tests logs that cannot be read, results that are wrong, and which sizes decide the verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from tests.nccl_logs import as_json_log, as_log
from validate.check.check import CheckedLog, check_log
from validate.check.report import as_document, as_text, headline
from validate.cli import main
from validate.importing.nccl_tests import read_nccl_tests, unread_words
from validate.machine.describe.dumps.read import read_text

SESSION = Session()
SIZES = [1 << power for power in range(14, 31, 2)]
QUESTION = CollectiveQuestion(where=Where("dgx-h100"), size_bytes=0.0)
TIMES = [(size, SESSION.time_s(replace(QUESTION, size_bytes=float(size)))) for size in SIZES]
ROW = " 1048576 262144 float sum -1 {} 8.74 15.29 0 120.0 8.74 15.29 0\n"


def checked(text: str, **options: object) -> CheckedLog:
    return check_log(SESSION, read_nccl_tests(text, "a.log"), "dgx-h100", explains=False, **options)  # type: ignore[arg-type]


def scaled(factors: dict[int, float], sizes: Sequence[int] = SIZES) -> str:
    """Return a log of *sizes* in the expected times, which *factors* multiply by size."""
    return as_log([(size, time_s * factors.get(size, 1.0)) for size, time_s in TIMES if size in sizes])


# -- rows that cannot be read ----------------------------------------------------------


@pytest.mark.parametrize("time", ["-42.00", "0.00", "1.#QNAN", "-nan", "inf", "nan", "1e-300", "9e99"])
def test_a_time_that_is_none_is_told_with_its_line(time: str) -> None:
    text = scaled({})
    number = len(text.splitlines()) + 1
    log = read_nccl_tests(text + ROW.format(time), "a")
    assert unread_words(log.unread) == f"1 row not read: line {number} (time '{time}')"
    assert len(log.points) == len(SIZES)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (" 1048576 262144 float sum -1 120.0", "cut off"),
        (" 1048576 262144 float sum -1", "cut off"),
        (" 1048576 262144 float", "cut off"),
        (" 1048576 262144 flo", "cut off"),
        (" 1048576 262144", "cut off"),
        (" 10485", "cut off"),
        (" 9999999999999999 262144 float sum -1 1.0 1.0 1.0 0", "size '9999999999999999'"),
        (" 1048576 262144 float sum -1 node0: NCCL WARN", "'node0:' in place of a figure"),
        (" 1048576 262144 quarter sum -1 1.0 10.5 18.4 0", "type 'quarter'"),
        (" 1048576 262144 float xor -1 1.0 10.5 18.4 0", "redop 'xor'"),
    ],
)
def test_a_row_that_is_cut_off_or_of_an_unknown_type_is_told(row: str, why: str) -> None:
    table, _, _ = scaled({}).partition("# Out of bounds")
    number = len(table.splitlines()) + 1
    for prefix in ("", "[1,0]<stdout>:", "0: "):
        text = "".join(f"{prefix}{line}\n" for line in (*table.splitlines(), row))
        assert read_nccl_tests(text, "a").unread == ((f"line {number}", why),)


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "0: "])
def test_a_row_that_messages_of_nccl_tear_is_read(prefix: str) -> None:
    text = scaled({})
    message = "node0:900:912 [0] NCCL INFO Connected all rings\nnode0:900:912 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n"
    assert " -1 " in text.splitlines()[20]
    torn = text.replace("     -1  ", f"     -1{message}  ")
    with_prefix = "".join(f"{prefix}{line}\n" for line in torn.splitlines())
    assert read_nccl_tests(with_prefix, "a") == read_nccl_tests(text, "a")
    lost = "".join(line for line in with_prefix.splitlines(keepends=True) if "NCCL" in line or "#" in line)
    with pytest.raises(InputError, match=r"9 rows not read: line 18 \('-1node0:900:912' in place of a figure\)"):
        read_nccl_tests(lost, "a")


def test_a_size_that_is_no_number_is_told() -> None:
    log = read_nccl_tests(scaled({}).replace("  1073741824  ", "         1GB  "), "a")
    assert [each.why for each in log.unread] == ["size '1GB'"]


def test_a_test_that_failed_or_did_not_end_is_told() -> None:
    head, _, _ = scaled({}).partition("# Out of bounds")
    (remark,) = read_nccl_tests(head, "a").remarks
    assert "no line 'Out of bounds values'" in remark
    number = len(head.splitlines()) + 1
    failed = checked(head + "node0: Test NCCL failure common.cu:958 'unhandled cuda error'\n")
    assert f"the test failed, line {number}: node0: Test NCCL failure common.cu:958" in as_text(failed)
    assert as_document(failed)["failure"].startswith(f"line {number}: node0")


def test_a_test_that_failed_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, _, _ = scaled({}).partition("# Out of bounds")
    path = tmp_path / "a.log"
    path.write_text(head + "node0: Test NCCL failure common.cu:958 'unhandled cuda error'\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="3"):
        main(["check", "--topology", "dgx-h100", str(path), "--quiet"])
    assert "healthy" in capsys.readouterr().out


def test_a_version_that_the_log_contradicts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_text(scaled({}), encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main(["check", "--topology", "dgx-h100", str(path), "--quiet", "--nccl", "2.10"])
    assert "a.log: names NCCL 2.30, where --nccl says 2.10\n" in capsys.readouterr().err


def test_a_log_of_an_unmeasured_machine_says_whose_range_is_used() -> None:
    text = scaled({}).replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI355X")
    remarks = check_log(Session(), read_nccl_tests(text, "a"), "8x-mi355x").remarks
    assert any("the healthy range is that of other machines: no measured collective" in each for each in remarks)


def test_rccl_says_its_version() -> None:
    text = scaled({}).replace("# nccl-tests version 2.17.6 nccl-headers=23007 nccl-library=23007\n", "")
    assert read_nccl_tests(f"RCCL version : 2.22.3-HEAD:1234\n{text}", "a").nccl == (2, 22)


def test_lines_beside_a_table_are_no_rows() -> None:
    text = scaled({}) + "8\n12 14 via\nnode0 NCCL INFO 1 2 3 foo\n"
    before = "n0:1:1 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n3 nodes\n"
    assert read_nccl_tests(before + text, "a").unread == ()


def test_an_in_place_time_that_is_none_does_not_matter_and_one_alone_does() -> None:
    row = " 1048576 262144 float sum -1 {} 8.74 15.29 0 {} 8.74 15.29 0\n"
    (point,) = read_nccl_tests(as_log([]) + row.format("120.0", "-42.00"), "a").points
    assert point.out_s == pytest.approx(120e-6)
    (point,) = read_nccl_tests(as_log([]) + row.format("N/A", "120.0"), "a").points
    assert point.in_s == pytest.approx(120e-6)
    with pytest.raises(InputError, match=r"a: 1 row not read: line \d+ \(time '-42.00'\)"):
        read_nccl_tests(as_log([]) + row.format("-42.00", "120.0"), "a")


def test_rows_of_json_that_cannot_be_read_are_told_and_so_is_its_verdict() -> None:
    document = json.loads(as_json_log(TIMES))
    document["results"][1]["out_of_place"]["time"] = -42.0
    document["results"][2]["type"] = "quarter"
    document["results"] += [3, {"size": "x"}]
    document["out_of_bounds"] = {"count": 7, "okay": "false"}
    log = read_nccl_tests(json.dumps(document), "a")
    assert unread_words(log.unread) == (
        "4 rows not read: results[1] (time '-42.0'), results[2] (type 'quarter'), results[9] (no object), "
        'results[10] (size "x")'
    )
    assert log.out_of_bounds == 7
    document["results"] = [{"size": 8, "type": "float", "out_of_place": {"cpu_time": 1.0}}]
    with pytest.raises(InputError, match=r"1 row not read: results\[0\] \(cpu_time, which says nothing"):
        read_nccl_tests(json.dumps(document), "a", collective="all-reduce")


def test_what_was_not_read_is_in_the_answer_and_alone_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = scaled({})
    number = len(text.splitlines()) + 1
    found = checked(text + "".join(ROW.format("-42.00") for _ in range(8)))
    assert f"8 rows not read: line {number} (time '-42.00'), line {number + 1}" in as_text(found).splitlines()[1]
    assert "and 2 more" in " ".join(as_text(found).split())
    assert as_document(found)["unread"][0] == {"where": f"line {number}", "why": "time '-42.00'"}
    path = tmp_path / "a.log"
    path.write_text(as_log([]) + ROW.format("-42.00"))
    with pytest.raises(SystemExit) as stopped:
        main(["check", "--topology", "dgx-h100", str(path)])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a.log: 1 row not read: line" in line


def test_all_types_of_nccl_tests_are_known() -> None:
    for name, dtype in {
        **{name: name for name in ("int8", "uint8", "int32", "uint32", "int64", "uint64")},
        "half": "fp16",
        "float": "fp32",
        "double": "fp64",
        "bfloat16": "bf16",
        "f8e4m3": "fp8",
        "fp8_e5m2": "fp8",
    }.items():
        assert read_nccl_tests(scaled({}).replace("float", name), "a").dtype == dtype
    assert read_nccl_tests(scaled({}).replace(" sum ", " mulsum "), "a").reduction == "avg"


# -- files -----------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_log_is_read_as_shells_write_it(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(scaled({}).replace("\n", "\r\n").encode(encoding))
    assert read_nccl_tests(read_text(str(path)), "a") == read_nccl_tests(scaled({}), "a")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (
            "# size count type redop root busbw algbw time",
            "a:2:1: has the columns size, count, type, busbw, algbw, time",
        ),
        ("#  size count type redop root cputime algbw busbw #wrong", "a:2:31: holds the host's times of launches"),
    ],
)
def test_columns_of_another_order_or_meaning_are_refused(header: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_nccl_tests(f"#\n{header}\n{ROW.format('120.0')}", "a", collective="all-reduce", n_ranks=8)
    assert said in str(refused.value)


def test_one_rank_is_one() -> None:
    with pytest.raises(InputError, match="lists 1 rank, where --gpus says 8"):
        read_nccl_tests(as_log(TIMES, devices=(0,)), "a", n_ranks=8)


def test_ranks_that_are_left_out_or_in_groups_are_refused() -> None:
    text = scaled({})
    with pytest.raises(InputError, match="lists rank 7 and not rank 3; without these lines, --gpus says how many"):
        read_nccl_tests(text.replace("#  Rank  3", "# lost 3"), "a")
    with pytest.raises(InputError, match="ran in 2 groups at once"):
        read_nccl_tests(text.replace("Rank  3 Group  0", "Rank  3 Group  1"), "a")


def test_hosts_may_have_unlike_numbers_of_ranks() -> None:
    log = read_nccl_tests(scaled({}).replace("node0 device  7", "node1 device  0"), "a")
    assert (log.per_host, log.devices) == ((7, 1), (tuple(range(7)), (0,)))
    assert check_log(SESSION, log, "dgx-h100", explains=False).question.gpus == (*range(7), 8)


# -- wrong results ---------------------------------------------------------------------


@pytest.mark.parametrize("count", ["3", "1.23457e+06"])
def test_wrong_results_are_a_verdict_of_their_own(count: str) -> None:
    found = checked(scaled({}) + ROW.format("120.0").replace(" 0\n", f" {count}\n"))
    assert (found.verdict, found.pace) == ("wrong", "healthy")
    assert as_document(found)["verdict"] == "wrong"
    first, *_ = headline(found).splitlines()
    assert first.endswith(
        "gives wrong results, at 1 MiB (#wrong): look for faulty links or memory before anything else"
    )
    assert "its times are healthy" in as_text(found)
    assert "GPUs is healthy" not in as_text(found)


def _without_out_of_place(text: str, sizes: Sequence[int]) -> str:
    """Return the log *text* with N/A for the times out of place at *sizes*; bandwidths stay."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        words = line.split()
        if line[:1] == " " and int(words[0]) in sizes:
            lines[at] = " ".join([*words[:5], "N/A", *words[6:]])
    return "\n".join(lines) + "\n"


def test_times_in_place_are_said_to_be_judged_where_the_others_were_not_measured() -> None:
    found = checked(_without_out_of_place(scaled({}), SIZES))
    assert headline(found) == "dgx-h100: all-reduce in place over 8 GPUs is healthy"
    assert "times in place are judged: those out of place were not measured (N/A)" in found.remarks
    assert {row["placement"] for row in as_document(found)["sizes"]} == {"in-place"}
    some = checked(_without_out_of_place(scaled({}), [1 << 20, 1 << 30]))
    assert headline(some) == "dgx-h100: all-reduce over 8 GPUs is healthy"
    assert "times in place are judged at 1 MiB, 1 GiB: those out of place were not measured (N/A)" in some.remarks
    assert [row["placement"] for row in as_document(some)["sizes"]].count("out-of-place") == len(SIZES) - 2
    assert not any("in place" in each for each in checked(scaled({})).remarks)


# -- rows that contradict themselves ---------------------------------------------------


def _times_3(text: str, columns: Sequence[int]) -> str:
    """Return the log *text* with the figures in *columns* of each row, counted from 0, multiplied by 3."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        words = line.split()
        if line[:1] == " " and words[0].isdigit():
            lines[at] = " ".join(f"{float(w) * 3:g}" if n in columns else w for n, w in enumerate(words))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("columns", [(6, 7, 10, 11), (6, 7), (10, 11), (7,), (11,), (5,), (5, 9)])
def test_rows_whose_figures_contradict_each_other_are_not_read(columns: Sequence[int]) -> None:
    with pytest.raises(InputError, match=r"a: 9 rows not read: line 18 \((algbw|busbw) [\d.]+, wh.*\).* and 3 more"):
        read_nccl_tests(_times_3(scaled({}), columns), "a")
    head, last = scaled({}).split("  1073741824", 1)
    log = read_nccl_tests(head + _times_3("  1073741824" + last, columns), "a")
    assert [each.where for each in log.unread] == ["line 26"]
    assert len(log.points) == len(SIZES) - 1


def test_what_rounding_allows_is_no_contradiction() -> None:
    rows = (
        " 8 2 float sum -1 20.05 0.00 0.00 0 21.33 0.00 0.00 0\n"
        " 65536 16384 float sum -1 37.3 1.8 3.1 0 37 2 3 0\n"
        " 1048576 262144 float sum -1 100.0 10.5 18.4 0 N/A N/A N/A N/A\n"
        " 16777216 4194304 float sum -1 N/A 60.8 106.4 0 2.76e+02 60.8 106.4 0\n"
    )
    log = read_nccl_tests(as_log([]) + rows, "a")
    assert (log.unread, len(log.points)) == ((), 4)


def test_rows_of_json_that_contradict_themselves_are_not_read() -> None:
    document = json.loads(as_json_log(TIMES))
    document["results"][2]["in_place"]["bus_bw"] *= 3
    (unread,) = read_nccl_tests(json.dumps(document), "a").unread
    assert unread.where == "results[2]"
    assert unread.why.startswith("busbw ")
    assert "which is not 1.75 times algbw" in unread.why


# -- which sizes decide ----------------------------------------------------------------


def test_an_impossible_time_is_marked_and_named() -> None:
    found = checked(scaled({1 << 22: 0.09}))
    assert found.verdict == "healthy"
    assert headline(found).endswith("is healthy, but fast at 4 MiB (0.09 times the expected time)")
    assert [row.mark for row in found.rows] == ["", "", "", "", "fast", "", "", "", ""]
    assert as_document(found)["sizes"][4]["mark"] == "fast"
    assert [line[-4:] for line in as_text(found).splitlines() if line.lstrip().startswith("4 MiB")] == ["fast"]


def test_what_is_faster_than_the_machine_is_faster_though_small_sizes_are_slow() -> None:
    found = checked(scaled({size: 0.09 if size > 1 << 25 else 5.0 for size in SIZES}))
    assert found.verdict == "faster"
    assert headline(found).endswith("but slow at 16 KiB to 16 MiB (5.00 times the expected time)")


def test_slow_sizes_are_named() -> None:
    assert headline(checked(scaled(dict.fromkeys(SIZES[:5], 3.0)))).endswith("is slow at 16 KiB to 4 MiB")
    assert headline(checked(scaled(dict.fromkeys(SIZES, 3.0)))).endswith("is slow")
    found = checked(scaled({SIZES[0]: 5.0}))
    assert headline(found).endswith("is healthy, but slow at 16 KiB (5.00 times the expected time)")


@pytest.mark.parametrize(
    ("slow", "sizes", "verdict"),
    [
        (SIZES[:1], [SIZES[0], *SIZES[-3:]], "healthy"),  # one small size
        (SIZES[:2], [*SIZES[:2], *SIZES[-3:]], "healthy"),
        (SIZES[:3], [*SIZES[:3], *SIZES[-3:]], "slow"),
        (SIZES[-1:], SIZES, "healthy"),  # one of three large sizes
        (SIZES[-2:], SIZES, "slow"),
        (SIZES[-1:], SIZES[-1:], "slow"),  # all there is
        (SIZES[-1:], [SIZES[0], SIZES[1], SIZES[-1]], "healthy"),
    ],
)
def test_a_group_of_one_or_two_sizes_does_not_decide_alone(slow: list[int], sizes: list[int], verdict: str) -> None:
    assert checked(scaled(dict.fromkeys(slow, 4.0), sizes)).verdict == verdict


def test_the_healthy_ranges_of_a_group_are_a_span() -> None:
    found = checked(scaled({}))
    text = " ".join(as_text(found).split())
    bands = {row.band for row in found.groups[1]}
    assert len(bands) > 1
    ends = sorted(f"{band.slowest:.2f}" for band in bands)
    assert f"and ends at {ends[0]} to {ends[-1]}, by size" in text
    ratios = as_document(found)["ratios"][1]
    assert ratios["healthy_to"] == max(band.slowest for band in bands)
