"""Whole tables with known errors, scored with a strategy that takes 1 us per byte."""

import csv
import io
import json
import random

import pytest

from simulator.collectives.communicator import Unsuitable
from simulator.collectives.nccl.cost import costs_of
from simulator.collectives.registry import strategy_of
from simulator.plan.plan import Flow, PlanBuilder
from tests.validate_commands import score_command
from validate.score.report import ADDED

HEADER = "machine,n_nodes,n_gpus,gpu_set,group_size,n_groups_concurrent,collective,bytes,time_s,trust,note"


class MicrosecondPerByte:
    """Takes 1 us per byte; supports only all-reduce; records its requests."""

    name = "us-per-byte"
    summary = "for tests"

    def __init__(self):
        self.requests = []

    def plan(self, request):
        self.requests.append(request)
        if request.collective not in ("all-reduce", "send-recv"):
            raise Unsuitable("all-reduce alone")
        builder = PlanBuilder()
        builder.work("wait", "host", request.size_bytes * 1e-6)
        return builder.build()


@pytest.fixture
def strategy(monkeypatch):
    made = MicrosecondPerByte()
    monkeypatch.setattr("simulator.api.session.strategy_of", lambda name, software, **how: made)
    return made


def row(size="1000", time="0.001", machine="4gpu-pcie", gpus="4", collective="all_reduce", trust="A", **more):
    return ",".join(
        [
            machine,
            more.get("nodes", "1"),
            gpus,
            more.get("gpu_set", ""),
            more.get("group_size", ""),
            more.get("groups", ""),
            collective,
            size,
            time,
            trust,
            more.get("note", ""),
        ]
    )


def table(tmp_path, *rows, name="t.csv", header=HEADER):
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def document(capsys, *files, **options):
    score_command(list(files), json=True, strategy="ring", **options)
    return json.loads(capsys.readouterr().out)


def predictions(path):
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def group(scored, **by):
    (found,) = [g for g in scored["groups"] if g["by"] == by]
    return found


def test_known_errors(tmp_path, capsys, strategy):
    file = table(
        tmp_path,
        row("1000", "0.001"),  # exact
        row("1000", "0.002"),  # half the time: -0.5
        row("2000000", "1"),  # twice the time: +1
        row("100", "0.0001", collective="reduce"),
    )
    scored = document(capsys, file)["tables"][0]
    assert (scored["file"], scored["rows"], scored["scored"], scored["coverage"]) == (file, 4, 3, 0.75)
    assert scored["overall"] == {
        "n": 3,
        "median_ape": pytest.approx(0.5),
        "p90_ape": pytest.approx(0.9),
        "mean_ape": pytest.approx(0.5),
        "bias": pytest.approx(0.5 / 3),
        "median_of_machines": 0.5,
    }
    assert scored["skipped"] == {"ring does not fit: all-reduce alone": 1}
    assert scored["skipped_lines"] == {"ring does not fit: all-reduce alone": [5]}
    assert group(scored, size=">=1MiB")["bias"] == pytest.approx(1)
    assert group(scored, size="<1MiB")["n"] == 2
    assert group(scored, decade="1e3")["median_ape"] == pytest.approx(0.25)
    assert group(scored, machine="4gpu-pcie")["coverage"] == 0.75
    assert group(scored, machine="4gpu-pcie", collective="all_reduce", decade="1e6")["n"] == 1
    assert {"by": {"collective": "reduce"}, "rows": 1} in scored["not_scored"]
    assert scored["baselines"]["alpha-beta-ring"]["n"] == 3


def test_the_baseline_stands_beside(tmp_path, capsys, strategy):
    size = 160e6
    ring_s = 6 * (2e-6 + size / (4 * 16e9))
    scored = document(capsys, table(tmp_path, row("160000000", repr(ring_s * 2))))["tables"][0]
    assert scored["baselines"]["alpha-beta-ring"]["median_ape"] == pytest.approx(0.5)
    assert group(scored, size=">=1MiB")["baselines"]["alpha-beta-ring"]["bias"] == pytest.approx(-0.5)


def test_rows_of_other_grades_are_context(tmp_path, capsys, strategy):
    out = tmp_path / "p.csv"
    file = table(tmp_path, row(trust="A"), row(trust="C"), row(trust="b"), row(trust=""), row(trust="Z"))
    scored = document(capsys, file, out=str(out))["tables"][0]
    assert (scored["scored"], scored["context"]) == (3, 2)
    assert scored["skipped"] == {"context: trust C": 1, "context: trust Z": 1}
    context = predictions(out)[1]
    assert float(context["predicted_s"]) == pytest.approx(0.001)
    assert context["skipped"] == "context: trust C"
    assert document(capsys, file, trust="C")["tables"][0]["scored"] == 2


def test_without_a_trust_column_all_rows_count(tmp_path, capsys, strategy):
    file = table(tmp_path, "4gpu-pcie,4,all_reduce,8,1", header="machine,n_gpus,collective,bytes,time_s")
    assert document(capsys, file)["tables"][0]["scored"] == 1


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"machine": "nowhere"}, "no topology of machine 'nowhere'; --machine NAME=FILE gives one"),
        ({"machine": "dgx-h10"}, "no topology of machine 'dgx-h10'; did you mean 'dgx-h100'?"),
        ({"machine": ""}, "machine missing"),
        ({"gpus": "8"}, "more GPUs a node than 4gpu-pcie has"),
        ({"gpus": "2", "gpu_set": "3-4"}, "more GPUs a node than 4gpu-pcie has"),
        ({"gpus": "8", "nodes": "2"}, "nodes: 4gpu-pcie has no NIC"),
        ({"time": ""}, "time_s missing"),
        ({"time": "0"}, "time_s not positive"),
        ({"time": "-1"}, "time_s not positive"),
        ({"time": "fast"}, "time_s is not a number"),
        ({"time": "inf"}, "time_s is not a number"),
        ({"time": "1e-300"}, "time_s outside 1e-09 to 1e+09 s"),
        ({"size": ""}, "bytes missing"),
        ({"note": "a,b"}, "12 fields where the header has 11"),
    ],
)
def test_rows_that_cannot_be_scored(tmp_path, capsys, strategy, cells, reason):
    scored = document(capsys, table(tmp_path, row(), row(**cells)))["tables"][0]
    (found,) = scored["skipped"]
    assert found.startswith(reason)
    assert scored["skipped_lines"][found] == [3]
    assert (scored["rows"], scored["scored"]) == (2, 1)


def test_short_rows_are_skipped_with_their_line(tmp_path, capsys, strategy):
    scored = document(capsys, table(tmp_path, row(), "4gpu-pcie,1", row()))["tables"][0]
    assert scored["skipped_lines"] == {"2 fields where the header has 11": [3]}


def test_all_rows_are_scored_skipped_or_context(tmp_path, capsys, strategy):
    scored = document(capsys, table(tmp_path, row(), row(trust="C"), row(time=""), "x"))["tables"][0]
    assert scored["rows"] == scored["scored"] + sum(scored["skipped"].values()) == 4


def test_machine_that_nccl_does_not_run_on(tmp_path, capsys):
    file = table(tmp_path, row(machine="knl7250-cluster", nodes="2", gpus="2"))
    score_command([file], json=True)
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert scored["skipped"] == {"nccl does not fit: NCCL does not run on this hardware": 1}


# -- choice of GPUs --------------------------------------------------------------------


def ranks(strategy):
    machine = strategy.requests[0].machine
    return [[machine.gpus.index(node) for node in request.ranks] for request in strategy.requests]


def test_the_first_gpus_of_each_node(tmp_path, capsys, strategy):
    document(capsys, table(tmp_path, row(machine="p3.16xlarge", nodes="2", gpus="4")))
    assert ranks(strategy) == [[0, 1, 8, 9]]


def test_named_gpus_of_each_node(tmp_path, capsys, strategy):
    document(capsys, table(tmp_path, row(machine="p3.16xlarge", nodes="2", gpus="4", gpu_set="4-5")))
    assert ranks(strategy) == [[4, 5, 12, 13]]


def test_groups_are_of_consecutive_ranks(tmp_path, capsys, strategy):
    document(capsys, table(tmp_path, row(machine="p3.16xlarge", gpus="8", group_size="4", groups="2")))
    assert ranks(strategy) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_pairs_of_a_sendrecv_reach_the_strategy(tmp_path, capsys, strategy):
    document(capsys, table(tmp_path, row(collective="sendrecv", gpu_set="pairs 0>2;1>3")))
    assert strategy.requests[0].pairs == ((0, 2), (1, 3))
    assert ranks(strategy) == [[0, 1, 2, 3]]


def test_groups_at_once_share_links(tmp_path, capsys, monkeypatch):
    class AcrossTheSwitch:
        name = "across-the-switch"

        def plan(self, request):
            builder = PlanBuilder()
            first, second = request.machine.gpus[:2]
            builder.transfer("up", [Flow(request.router.route(first, second), request.size_bytes)])
            return builder.build()

    monkeypatch.setattr("simulator.api.session.strategy_of", lambda name, software, **how: AcrossTheSwitch())
    out = tmp_path / "p.csv"
    file = table(tmp_path, row("16000000", group_size="2", groups="1"), row("16000000", group_size="2", groups="2"))
    document(capsys, file, out=str(out))
    one, two = (float(r["predicted_s"]) for r in predictions(out))
    assert one == pytest.approx(1e-3)
    assert two == pytest.approx(2e-3)


def test_equal_queries_are_planned_once(tmp_path, capsys, strategy):
    document(capsys, table(tmp_path, row(time="1"), row(time="2"), row(time="3", trust="C")))
    assert len(strategy.requests) == 1


def test_a_forced_algorithm_needs_a_strategy_that_has_it(tmp_path, capsys, strategy):
    header = "machine,n_gpus,collective,bytes,time_s,algorithm_forced"
    file = table(
        tmp_path, "4gpu-pcie,4,all_reduce,8,1,ring (NVLS off)", "4gpu-pcie,4,all_reduce,8,1,tree", header=header
    )
    scored = document(capsys, file)["tables"][0]
    assert scored["scored"] == 1
    assert scored["skipped"] == {"forced algorithm 'tree' is not what ring does": 1}


@pytest.fixture
def strategies_anew():
    """Clear the cache of strategies before and after a test that makes its own."""
    strategy_of.cache_clear()
    yield
    strategy_of.cache_clear()


def test_a_row_says_which_nccl_ran(tmp_path, capsys, monkeypatch, strategies_anew):
    """The forced algorithm, the version, and whether a switch can reduce the data type."""
    made = []
    requests = MicrosecondPerByte()

    def nccl(algorithm, costs, *, in_switch, protocol=None, nvls=True, version=None):
        made.append((algorithm, costs.protocols is costs_of((2, 30)).protocols, in_switch))
        return requests

    monkeypatch.setattr("simulator.collectives.nccl.strategy.Nccl", nccl)
    header = "machine,n_gpus,collective,bytes,time_s,algorithm_forced,software,dtype"
    asked = (
        "tree,,fp32",
        "tree,,fp16",
        "ring (NVLS off),XLA + NCCL,",
        ",,fp32",
        ',"nccl-tests 2.4, -g 4",bf16',
        ",nccl-tests -g 1; NCCL 2.27.3,int8",
        ",NCCL 2.23.4,fp8_e4m3",
        ",NCCL 2.9.9,uint8",
    )
    rows = [f"4gpu-pcie,4,all_reduce,8,1,{forced}" for forced in asked]
    score_command([table(tmp_path, *rows, header=header)], json=True)
    assert json.loads(capsys.readouterr().out)["tables"][0]["scored"] == 8
    assert made == [
        ("tree", True, True),
        ("ring", True, True),
        (None, True, True),
        (None, True, False),
        (None, True, False),
        (None, False, False),
    ]
    assert [request.gpus_per_process for request in requests.requests] == [4, 1, 4, 1, 4, 4]


# -- the measured value ----------------------------------------------------------------


def test_predictions_do_not_depend_on_what_was_measured(tmp_path, capsys, strategy):
    rng = random.Random(1)
    sizes = [str(rng.randrange(8, 10**7)) for _ in range(40)]
    times = [repr(rng.uniform(1e-5, 1)) for _ in range(40)]
    outs = []
    for turn in range(3):
        rng.shuffle(times)
        out = tmp_path / f"{turn}.csv"
        rows = [row(size, time if turn else "") for size, time in zip(sizes, times, strict=True)]
        document(capsys, table(tmp_path, *rows), out=str(out))
        outs.append([(r["predicted_s"], r["bytes"]) for r in predictions(out)])
    assert outs[0] == outs[1] == outs[2]
    assert all(predicted for predicted, _ in outs[0])


# -- predictions.csv -------------------------------------------------------------------


def test_every_row_is_repeated_as_written(tmp_path, capsys, strategy):
    out = tmp_path / "p.csv"
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"\xef\xbb\xbfextra,Machine,n_gpus,collective,bytes,time_s\r\n"
        b'" x, y ",4gpu-pcie, 4,all_reduce,1e3,0.0010\r\nq,?\r\n'
    )
    document(capsys, str(path), out=str(out))
    rows = list(csv.reader(io.StringIO(out.read_text())))
    assert rows[0] == ["extra", "Machine", "n_gpus", "collective", "bytes", "time_s", *ADDED]
    assert rows[1][:6] == [" x, y ", "4gpu-pcie", " 4", "all_reduce", "1e3", "0.0010"]
    assert [float(rows[1][6]), *rows[1][7:9], rows[1][10]] == [pytest.approx(0.001), "", "", ""]  # no NCCL, no band
    assert rows[2] == ["q", "?", "", "", "", "", "", "", "", "", "2 fields where the header has 6"]


def test_error_is_signed_and_relative(tmp_path, capsys, strategy):
    out = tmp_path / "p.csv"
    document(capsys, table(tmp_path, row("1000", "0.004")), out=str(out))
    assert float(predictions(out)[0]["error"]) == pytest.approx(-0.75)


def test_fields_beyond_the_header_stay(tmp_path, capsys, strategy):
    out = tmp_path / "p.csv"
    document(capsys, table(tmp_path, row(note="a,b,c")), out=str(out))
    assert predictions(out)[0]["note"] == "a,b,c"


def test_predictions_can_be_scored_again(tmp_path, capsys, strategy):
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    document(capsys, table(tmp_path, row(), row(trust="C")), out=str(first))
    document(capsys, str(first), out=str(second))
    assert first.read_bytes() == second.read_bytes()


def test_several_tables_are_joined_by_column(tmp_path, capsys, strategy):
    out = tmp_path / "p.csv"
    one = table(tmp_path, row(), name="1.csv")
    two = table(tmp_path, "1,4,all_reduce,8,4gpu-pcie", name="2.csv", header="time_s,n_gpus,collective,bytes,machine")
    scored = document(capsys, one, two, out=str(out))
    assert [t["file"] for t in scored["tables"]] == [one, two]
    rows = predictions(out)
    assert [r["table"] for r in rows] == [one, two]
    assert [r["trust"] for r in rows] == ["A", ""]
    assert rows[1]["machine"] == "4gpu-pcie"


# -- text ------------------------------------------------------------------------------


def test_text_is_plain_and_complete(tmp_path, capsys, strategy):
    file = table(tmp_path, row("1000", "0.002"), row("2000000", "1"), row(trust="C"), row(time=""))
    score_command([file], strategy="ring")
    text = capsys.readouterr().out
    assert text.startswith(f"{file}: 2 of 4 rows scored (50.0%); strategy ring, trust A, B\n")
    for words in ("by size", "by machine", "by collective", "by decade", ">=1MiB", "context: trust C", "75.0 %"):
        assert words in text
    assert "\x1b" not in text
    score_command([file], strategy="ring")
    assert capsys.readouterr().out == text


def test_by_any_column(tmp_path, capsys, strategy):
    file = table(tmp_path, row(note="x"), row(note="y"), row(note="y", gpus="2"))
    score_command([file], strategy="ring", by="note,n_gpus")
    text = capsys.readouterr().out
    assert "by note, n_gpus" in text
    assert "by machine" not in text
    assert group(document(capsys, file, by="note")["tables"][0], note="y")["n"] == 2


def test_a_table_without_rows(tmp_path, capsys, strategy):
    scored = document(capsys, table(tmp_path))["tables"][0]
    assert (scored["rows"], scored["scored"], scored["coverage"]) == (0, 0, None)
    assert scored["overall"]["median_ape"] is None
    assert scored["groups"] == []
