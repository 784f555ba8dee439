"""The output of ``simulate``: tables, JSON, sweeps and lists, on wide and narrow terminals."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.cli.app import app
from simulator.cli.options import parse_choice, parse_gpus
from simulator.cli.written import DECLARED, GROUPS, OPTIONS
from simulator.collectives.communicator import Communicator, Request, Unsuitable
from simulator.console import Style, choose_style
from simulator.network.compiling import compile_machine
from simulator.topology.load import load_topology
from simulator.topology.parts import GpuPart
from simulator.workload import COLLECTIVES
from simulator.workload.zoo.registry import network_names

PCIE = ["--topology", "4gpu-pcie.yaml", "--workload", "bytes:160MB"]


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_the_table_is_aligned_and_every_figure_has_a_unit(capsys) -> None:
    title, *lines = shown([*PCIE, "--strategy", "gpu0,cpu,sharded,ring"], capsys).splitlines()
    lines = lines[lines.index("") - 1 :]  # below the verdict
    assert title == "4gpu-pcie: all-reduce of 160 MB over 4 GPUs"
    assert lines[3] == "on the bare links: launches and protocols add to these times"
    assert lines[6] == "lower bound of each schedule: bare links, without launches and protocols"
    table = [lines[2], *lines[4:6], *lines[7:9]]
    assert table[0].split() == ["strategy", "time", "against", "first", "algbw", "busbw", "bottleneck", "use"]
    for line in table[1:]:
        assert re.search(r"\d ms .*\d x .*\d GB/s .*\d GB/s .*->.* \d+\.\d %$", line), line
    assert len({line.index("GB/s") for line in table[1:]}) == 1
    assert [line.split()[0] for line in table[1:]] == ["gpu0", "cpu", "sharded", "ring"]  # gpu0 and cpu can be run
    times = [float(line.split()[1]) for line in table[1:]]
    assert times[:2] == sorted(times[:2])
    assert times[2:] == sorted(times[2:])


def test_one_line_says_why_the_best_is_best(capsys) -> None:
    lines = shown([*PCIE, "--strategy", "ring,gpu0"], capsys).splitlines()
    line = next(line for line in lines if line.startswith("gpu0 needs at least 60 ms; the lowest bound, that of ring"))
    assert "240 MB" in line
    assert "480 MB" in line
    assert line.endswith("gpu0 60 ms for 480 MB over PCIe, 50 % in use")
    assert "on the bare links: launches and protocols add to these times" in lines
    assert "fastest" not in "".join(lines)


def test_software_is_ranked_and_bounds_stand_below_it(capsys) -> None:
    out = shown(["--topology", "p3.16xlarge", "--strategy", "ring,multi-ring,nccl"], capsys)
    table = out.split("\n\n")[1].splitlines()
    names = [line.split()[0] for line in table]
    assert names == ["strategy", "nccl", "lower", "multi-ring", "ring"]  # multi-ring takes less time than nccl
    assert float(table[3].split()[1]) < float(table[1].split()[1])
    assert re.search(
        r"^nccl takes 1\.\d+ ms; the lowest bound, that of multi-ring, is 1\.\d+ ms: \d\d % of the time of nccl$",
        out,
        re.MULTILINE,
    )
    assert "fastest" not in out


def test_machines_are_ranked_in_one_table(capsys) -> None:
    out = shown(["--topology", "p3.16xlarge,dgx-h100", "--strategy", "nccl"], capsys)
    assert out.startswith("all-reduce of 102.2 MB, compared on 2 machines ")
    table = out.split("\n\n")[1].splitlines()
    assert table[0].split()[:3] == ["strategy", "machine", "GPUs"]
    assert [line.split()[1] for line in table[1:]] == ["dgx-h100", "p3.16xlarge"]
    assert re.search(r"\ndgx-h100 is faster, 3\.13 times as fast as p3\.16xlarge \(80 % band \S+ to \S+\): ", out)
    assert re.search(r"dgx-h100 takes .* over NVLink, .* % in use; p3\.16xlarge \S+ [mu]s for .* over NVLink", out)


def test_one_gpu_has_no_verdict(capsys) -> None:
    assert run(["--topology", "h200-sxm", "--strategy", "ring,nccl"]) == 0
    out, err = capsys.readouterr()
    assert "bound" not in out
    assert "fastest" not in out
    assert err == "one GPU exchanges nothing; --workload resnet50 --batch 32 simulates a step on it\n"


def test_what_does_not_fit_is_said(capsys) -> None:
    out = shown([*PCIE, "--strategy", "ring,hierarchical"], capsys)
    assert [line for line in out.splitlines() if line.startswith("hierarchical does not fit: ")]


def test_one_strategy_shows_rings_and_links(capsys) -> None:
    out = shown([*PCIE, "--strategy", "ring"], capsys)
    assert "rings (1, by GPU)\n  0..3\n" in out
    assert re.search(r"^gpu0->switch0 x \d+ +240\.0 MB  100\.0 %$", out, re.MULTILINE)


def test_the_default_is_all_strategies_and_resnet50(monkeypatch, capsys) -> None:
    monkeypatch.setattr("simulator.cli.options.strategy_names", lambda: ["ring", "tree"])
    out = shown(["--topology", "4gpu-pcie"], capsys)
    assert out.startswith("4gpu-pcie: all-reduce of 102.2 MB over 4 GPUs (resnet50, 25,557,032 gradients in fp32)\n")
    assert "ring" in out
    assert "tree" in out


@pytest.mark.parametrize("strategy", ["ring", "gpu0,cpu,sharded,ring,hierarchical"])
@pytest.mark.parametrize("columns", [30, 40, 60])
def test_a_narrow_terminal_holds_every_line(strategy: str, columns: int, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown([*PCIE, "--strategy", strategy], capsys).splitlines()
    assert all(len(line) <= columns for line in lines)


def test_the_json_document(capsys) -> None:
    data = json.loads(shown([*PCIE, "--strategy", "ring,gpu0,hierarchical", "--json"], capsys))
    assert list(data)[:4] == ["schema_version", "topology", "workload", "results"]
    assert data["schema_version"] == 1
    assert data["topology"] == "4gpu-pcie"
    assert data["workload"] == "bytes:160MB"
    assert [entry["strategy"] for entry in data["results"]] == ["ring", "gpu0"]
    assert [entry["strategy"] for entry in data["unfit"]] == ["hierarchical"]
    entry = data["results"][0]
    assert {
        "topology", "strategy", "is_bound", "n_ranks", "bytes", "sync_time_s", "algbw_Bps", "busbw_Bps",
        "simulation_events", "bottleneck", "links", "rings",
    } <= set(entry)  # fmt: skip
    assert entry["topology"] == "4gpu-pcie"
    assert entry["is_bound"] is True
    assert entry["n_ranks"] == 4
    assert entry["bytes"] == 160_000_000
    assert isinstance(entry["bytes"], int)
    assert entry["sync_time_s"] == pytest.approx(0.015)
    assert entry["algbw_Bps"] == pytest.approx(160e6 / 0.015)
    assert entry["busbw_Bps"] == pytest.approx(160e6 / 0.015 * 1.5)
    assert entry["bottleneck"] == {"link": "gpu0->switch0", "utilisation": 1.0}
    links = {link["name"]: link for link in entry["links"]}
    assert links["gpu0->switch0"] == {"name": "gpu0->switch0", "bytes": 240_000_000, "utilisation": 1.0}
    assert all(isinstance(link["bytes"], int) for link in entry["links"])
    assert entry["rings"] == [[0, 1, 2, 3]]


def test_the_same_input_gives_the_same_document(capsys) -> None:
    arguments = ["--topology", "p3.16xlarge", "--strategy", "ring,tree,gpu0", "--json"]
    assert shown(arguments, capsys) == shown(arguments, capsys)


def test_folding_changes_the_events_and_nothing_else(capsys) -> None:
    arguments = ["--topology", "p3.16xlarge", "--strategy", "ring", "--json"]
    folded = json.loads(shown(arguments, capsys))["results"][0]
    stepped = json.loads(shown([*arguments, "--no-fold"], capsys))["results"][0]
    assert folded["simulation_events"] < stepped["simulation_events"]
    assert folded["sync_time_s"] == pytest.approx(stepped["sync_time_s"], rel=1e-9)


def test_a_sweep_is_a_document_of_one_result_a_size(capsys) -> None:
    out = shown(["--topology", "4gpu-pcie", "--strategy", "ring", "--workload", "sweep:8B-64B", "--json"], capsys)
    assert [entry["bytes"] for entry in json.loads(out)["results"]] == [8, 16, 32, 64]


def test_several_strategies_are_a_table_each(capsys) -> None:
    out = shown(["--topology", "4gpu-pcie", "--strategy", "ring,tree", "--workload", "sweep:8B-64B"], capsys)
    assert out.count("out-of-place") == 2
    assert "strategy ring" in out.partition("\n")[0]


@pytest.mark.parametrize("spelling", ["all-gather", "all_gather", "allgather", "ALL_GATHER"])
def test_collectives_are_spelt_with_either_dash(spelling: str) -> None:
    assert parse_choice("collective", spelling, COLLECTIVES) == "all-gather"


@pytest.mark.parametrize(
    ("text", "chosen"),
    [(None, range(4)), ("2", range(2)), ("1-3", (1, 2, 3)), ("0,3", (0, 3)), ("3,0-1", (3, 0, 1)), ("2-2", (2,))],
)
def test_gpus_by_number_range_or_list(text: str | None, chosen: object) -> None:
    machine = compile_machine(load_topology("4gpu-pcie"))
    assert parse_gpus(text, machine) == chosen


def test_a_subset_is_named_in_the_title(capsys) -> None:
    out = shown([*PCIE, "--strategy", "ring", "--gpus", "0,2,3"], capsys)
    assert out.startswith("4gpu-pcie: all-reduce of 160 MB over 3 GPUs (0 2 3)\n")


def test_lists(capsys) -> None:
    assert re.search(r"^p3\.16xlarge +AWS p3\.16xlarge", shown(["machines"], capsys), re.MULTILINE)
    assert re.search(r"^v100-sxm2-16gb +gpu +NVIDIA", shown(["parts"], capsys), re.MULTILINE)
    document = json.loads(shown(["machines", "--json"], capsys))
    assert document["schema_version"] == 1
    assert all(entry["description"] for entry in document["machines"])


def test_networks_are_listed_with_their_sizes(capsys) -> None:
    lines = shown(["networks"], capsys).splitlines()
    assert len(lines) == len(network_names())
    assert re.search(
        r"^resnet50 +images +ResNet, 50 layers\S* .*image=224 classes=1000$", "\n".join(lines), re.MULTILINE
    )
    (gpt2,) = (line for line in lines if line.startswith("gpt2 "))
    assert "sequence_length=1024 hidden=768 heads=12 layers=12" in gpt2
    networks = json.loads(shown(["networks", "--json"], capsys))["networks"]
    assert [entry["name"] for entry in networks] == network_names()
    assert all(entry["description"] for entry in networks), "words for a new network are missing"
    assert next(e for e in networks if e["name"] == "mlp")["sizes"] == {"inputs": 512, "widths": [256, 128, 2]}


def test_the_zoo_is_imported_where_networks_are_listed_alone() -> None:
    code = "import sys, simulator.cli.listing; print('simulator.workload.zoo.registry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_trace_and_the_plot_are_written_and_said(tmp_path: Path, capsys) -> None:
    trace, plot = tmp_path / "t.json", tmp_path / "p.svg"
    assert run([*PCIE, "--strategy", "ring,gpu0", "--trace", str(trace), "--plot", str(plot)]) == 0
    err = capsys.readouterr().err
    assert err == f"wrote the trace of gpu0 to {trace}\nwrote the plot to {plot}\n"
    assert json.loads(trace.read_text())["traceName"] == "4gpu-pcie gpu0"
    assert plot.read_text().startswith("<?xml")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.svg", "t.json"]


def test_quiet_says_nothing(tmp_path: Path, capsys) -> None:
    shown([*PCIE, "--strategy", "ring", "--trace", str(tmp_path / "t.json"), "--quiet"], capsys)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_needs_a_terminal_and_no_wish_against_it() -> None:
    assert choose_style(Terminal(), {}).colour
    assert not choose_style(Terminal(), {"NO_COLOR": "1"}).colour
    assert not choose_style(Terminal(), {"TERM": "dumb"}).colour
    assert choose_style(io.StringIO(), {}) == Style(None, False)
    assert choose_style(io.StringIO(), {"COLUMNS": "40"}).width == 40
    assert Style(colour=True).mark("best", "bold") == "\x1b[1mbest\x1b[0m"
    assert Style().mark("best", "bold") == "best"


def test_help_names_every_option_within_80_columns(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = shown(["--help"], capsys)
    assert all(len(line) <= 80 for line in out.splitlines())
    options = (
        "--topology --strategy --workload --collective --gpus --root --nodes --fabric --no-fold --json --trace --plot "
        "--nccl --pairs --group-size --gpus-per-process --algorithm --dtype --redop --batch --global-batch "
        "--micro-batches --parallel --overlap --reduce-fp32 --gather-fp32 --no-prefetch --no-contention "
        "--mode --precision --optimizer --seq-len --image --set "
        "--compile --cuda-graph --recompute --channels-last --fused-optimizer --cpu-library --device --threads "
        "--calibration --quiet --completion --debug --version "
        "--help"
    )
    assert not [option for option in options.split() if option not in out]


def test_help_has_each_option_in_one_group() -> None:
    options = [*(str(parameter.name) for parameter in app.params), "help"]
    grouped = [name for _, names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(options)


def test_each_kind_of_question_and_each_command_names_a_function_that_answers_it() -> None:
    kinds = {kind for option in OPTIONS.values() for kind in option.read_by}
    assert set(DECLARED["answers"]) == kinds
    for named in (*DECLARED["answers"].values(), *(told["answer"] for told in DECLARED["commands"].values())):
        module, _, function = named.partition(":")
        assert callable(getattr(import_module(f"simulator.cli.{module}"), function)), named


@pytest.mark.slow
@pytest.mark.parametrize("title", [title for title in GROUPS if title != "Launch line"])
def test_the_examples_of_help_run(title: str, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(GROUPS[title][0])) == 0, capsys.readouterr().err


# -- eighty columns ------------------------------------------------------------------------


def test_what_is_too_much_memory_is_told_within_the_width(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--topology", "p3.2xlarge", "--workload", "resnet50", "--batch", "2560"]) == 1
    out, err = capsys.readouterr()
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "what would fit" in out
    assert "--batch 186 " in " ".join(out.split())
    assert "a GPU with 223 GB, such as b300 " in err  # of the same vendor


def test_a_scaling_curve_says_what_time_is_lost_to_within_the_width(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown_words = ["scale", "--topology", "dgx-h100", "--nodes", "1,2", "--workload", "resnet50", "--batch", "32"]
    out = shown(shown_words, capsys)
    assert "largest losses" in out
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("columns", ["80", ""])
def test_a_sweep_says_how_sure_its_largest_size_is(columns: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = shown(["--topology", "dgx-h100", "--workload", "sweep:8B-512B", "--strategy", "nccl"], capsys)
    assert "trust: time of 512 B -" in out
    assert columns or all(line.startswith("#") for line in out.splitlines() if "trust" in line)


def test_a_slow_link_is_not_said_to_be_used_less_than_it_is(capsys) -> None:
    words = ["--topology", "dgx-h100", "--workload", "bytes:1GB", "--strategy", "nccl"]
    assert " GB/s over gpu0->nvswitch0, " in shown(words, capsys)
    slowed = shown([*words, "--slow-link", "gpu0-nvswitch0:0.5x"], capsys)
    used = re.search(r"gpu0->nvswitch0 +([\d.]+) %$", slowed, re.MULTILINE)
    said = re.search(r"NCCL moves at most .* over gpu0->nvswitch0, (\d+)% of its ", slowed)
    assert used is not None
    assert said is not None
    assert float(said[1]) == pytest.approx(float(used[1]), abs=0.6)


def test_the_precision_of_an_operator_is_said_in_its_word(capsys) -> None:
    assert run(["--topology", "p3.2xlarge", "--workload", "op:softmax,rows=8,cols=8", "--precision", "bf16"]) == 2
    assert "precision=bf16" in capsys.readouterr().err


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "other"])
def test_a_strategy_with_too_many_ranks_names_one_that_the_hardware_runs(vendor: str) -> None:
    machine = compile_machine(load_topology("8x-mi300x"))
    nodes = [
        replace(node, part=node.part.model_copy(update={"vendor": vendor})) if isinstance(node.part, GpuPart) else node
        for node in machine.nodes
    ]
    group = Communicator(replace(machine, nodes=nodes), machine.gpus)
    with pytest.raises(Unsuitable) as error:
        Request(group, "all-reduce", 1e8).refuse_beyond(4)
    assert str(error.value).endswith("does it") == (vendor != "other")
