"""Each mistake on the command line gives one line that suggests the remedy, and exit status 2."""

from __future__ import annotations

import pytest

from simulator.cli import run
from simulator.questions.words import KINDS

P3 = ["--topology", "p3.16xlarge.yaml"]
RING = [*P3, "--strategy", "ring"]

ERRORS = {
    "no topology": (
        [],
        "simulate: --topology is needed, for example --topology p3.16xlarge.yaml (simulate machines)",
    ),
    "unknown option": (
        ["--topologi", "x"],
        "simulate: --topologi: no such option; did you mean '--topology'? (--help)",
    ),
    "nothing near": (["--xyzzy"], "simulate: --xyzzy: no such option (--help)"),
    "missing value": (["--topology"], "simulate: --topology needs a value (--help)"),
    "option in place of a value": (
        ["sweep", "--csv", "s.csv", "--resume", "--jobs", "1"],
        "simulate: --resume needs a value (FILE); got --jobs",
    ),
    "another in place of a workload": (
        ["--workload", "--batch", "4"],
        "simulate: --workload needs a value (WHAT); got --batch",
    ),
    "help in place of a value": (["--workload", "--help"], "simulate: --workload needs a value (WHAT); got --help"),
    "value of a flag": (["--json=3"], "simulate: --json takes no value (--help)"),
    "given twice": (["--topology", "a", "--topology=b"], "simulate: --topology is given twice; once is enough"),
    "left over": (["ring"], "simulate: 'ring' belongs to no option; write for example --topology FILE (--help)"),
    "unknown topology": (
        ["--topology", "p3.16xlarg"],
        "p3.16xlarg: no such file and no built-in topology; did you mean 'p3.16xlarge'? (simulate machines)",
    ),
    "a part": (
        ["--topology", "efa-nic-100g-v1"],
        "efa-nic-100g-v1: is a part, not a machine; p3dn.24xlarge has it",
    ),
    "a part of no machine": (
        ["--topology", "pcie5-x8"],
        "pcie5-x8: is a part, not a machine; no built-in machine has it: describe one (docs/topology.md)",
    ),
    "a part of many machines": (
        ["--topology", "nvlink2"],
        "nvlink2: is a part, not a machine; 2x-v100-sxm2-ib, 4x-v100-sxm2-16gb-4xopa, 4x-v100-sxm2-2xedr, ... have it",
    ),
    "a part for its machine": (
        ["--topology", "xeon-e5-2686-v4"],
        "simulate: xeon-e5-2686-v4 has no GPU, so nothing is exchanged; --batch 32 runs a step on its CPU",
    ),
    "unknown strategy": (
        [*P3, "--strategy", "rign"],
        "simulate: --strategy: no strategy is called 'rign'; did you mean 'ring'? (simulate strategies)",
    ),
    "reduction": ([*RING, "--redop", "su"], "simulate: --redop su: no such choice; did you mean 'sum'?"),
    "no reduction": (
        [*RING, "--collective", "all-gather", "--redop", "max"],
        "simulate: --redop max: all-gather reduces nothing",
    ),
    "data type": ([*RING, "--dtype", "fp31"], "simulate: --dtype fp31: no such choice; did you mean 'fp32'?"),
    "empty strategy": (
        [*P3, "--strategy", "ring,,tree"],
        "simulate: --strategy ring,,tree: a name is missing; write for example ring,tree",
    ),
    "too many GPUs": ([*RING, "--gpus", "9"], "simulate: --gpus 9: p3.16xlarge has 8 GPUs"),
    "GPU out of range": ([*RING, "--gpus", "0-9"], "simulate: --gpus 0-9: p3.16xlarge has 8 GPUs, 0 to 7"),
    "huge range": (
        [*RING, "--gpus", "0-999999999999"],
        "simulate: --gpus 0-999999999999: p3.16xlarge has 8 GPUs, 0 to 7",
    ),
    "no GPU": ([*RING, "--gpus", "0"], "simulate: --gpus 0: at least one GPU takes part"),
    "GPU twice": ([*RING, "--gpus", "0-2,1"], "simulate: --gpus 0-2,1: GPU 1 is named twice"),
    "range backwards": (
        [*RING, "--gpus", "4-0"],
        "simulate: --gpus 4-0: the smaller number comes first; did you mean 0-4?",
    ),
    "no GPUs at all": (
        [*RING, "--gpus", "a"],
        "simulate: --gpus a: write how many (4), a range (0-4), a list (0,2,5), or best:4",
    ),
    "root": ([*RING, "--root", "8", "--collective", "broadcast"], "simulate: --root 8: the ranks are 0 to 7"),
    "root no number": ([*RING, "--root", "x"], "simulate: --root x: must be a whole number"),
    "nodes no number": ([*RING, "--nodes", "1.5"], "simulate: --nodes 1.5: must be a whole number"),
    "root too large": ([*RING, "--root", "9" * 20], f"simulate: --root {'9' * 20}: is too large"),
    "nodes too small": ([*RING, "--nodes=-" + "9" * 20], f"simulate: --nodes -{'9' * 20}: is too small"),
    "nodes without a NIC": (
        ["--topology", "4gpu-pcie", "--nodes", "2"],
        "simulate: --nodes: 4gpu-pcie has no NIC; name a network with --fabric, for example ethernet-10g",
    ),
    "collective": (
        [*RING, "--collective", "all_gathr"],
        "simulate: --collective all_gathr: no such choice; did you mean 'all-gather'?",
    ),
    "bare size": (
        [*RING, "--workload", "bytes:160"],
        'simulate: --workload bytes:160: size needs a unit, for example "160 MB"; got the bare number 160',
    ),
    "bits": (
        [*RING, "--workload", "bytes:160Mb"],
        "simulate: --workload bytes:160Mb: 'Mb' is not a unit of size; did you mean Mbit or MB?",
    ),
    "broken byte": (
        [*RING, "--workload", "bytes:1.5B"],
        "simulate: --workload bytes:1.5B: a size is a whole number of bytes; 1.5B is 1.5 B",
    ),
    "sweep backwards": (
        [*RING, "--workload", "sweep:8GB-8B"],
        "simulate: --workload sweep:8GB-8B: the smaller size comes first; did you mean sweep:8B-8GB?",
    ),
    "sweep factor": (
        [*RING, "--workload", "sweep:8B-8GB:1"],
        "simulate: --workload sweep:8B-8GB:1: the step must be a factor of more than 1; got 1",
    ),
    "sweep step": (
        [*RING, "--workload", "sweep:8B-8GB:x"],
        "simulate: --workload sweep:8B-8GB:x: the step must be a factor, for example 8B-8GB:4; got 'x'",
    ),
    "half a sweep": (
        [*RING, "--workload", "sweep:8B"],
        "simulate: --workload sweep:8B: a sweep goes from one size to another, for example sweep:8B-8GB",
    ),
    "unknown network": (
        [*RING, "--workload", "resnt50"],
        "simulate: --workload resnt50: no such workload; did you mean 'resnet50'? (simulate networks)",
    ),
    "unknown scheme": (
        [*RING, "--workload", "byte:1MB"],
        "simulate: --workload byte:1MB: no such workload; did you mean 'bytes:'?",
    ),
    "misspelt operation": (
        [*RING, "--workload", "cpoy:h2d,1MB"],
        "simulate: --workload cpoy:h2d,1MB: no such workload; did you mean 'copy:'?",
    ),
    "a file behind a scheme": (
        [*RING, "--workload", "program:loop.yaml"],
        "simulate: --workload program:loop.yaml: no such workload; a file goes alone: loop.yaml",
    ),
    "an option that is none": ([*RING, "--captured"], "simulate: --captured: no such option (--help)"),
    "an option that is nearly one": (
        [*RING, "--cudagraph"],
        "simulate: --cudagraph: no such option; did you mean '--cuda-graph'? (--help)",
    ),
    "an option of another command": (
        ["best", "--straggler", "gpu3:2x"],
        "simulate: --straggler: is an option of simulate, simulate run and simulate sweep, not of simulate ",
    ),
    "nearly an option of another command": (
        ["best", "--stragler", "gpu0:2x"],
        "simulate: --stragler: no such option; did you mean '--straggler'? It is an option of simulate, simulate ",
    ),
    "nearer to an option of others than to its own": (
        ["scale", "--stragler", "gpu0:2x"],
        "simulate: --stragler: no such option; did you mean '--straggler'? It is an option of simulate, simulate ",
    ),
    "a length that is no number": (
        ["--topology", "p3.16xlarge", "--workload", "gpt2", "--batch", "1", "--seq-len", "x"],
        "simulate: --seq-len x: must be a whole number",
    ),
    "an option of four others": (
        ["machines", "--batch=3"],
        "simulate: --batch: is an option of simulate, simulate run, simulate scale, ... (4 in all), not of ",
    ),
    "an option of a search": (
        [*RING, "--top", "3"],
        "simulate: --top: is an option of simulate best, not of simulate (--help)",
    ),
    "two scenarios": (
        ["scenario", "waits", "moves"],
        "simulate: 'moves' is one too many; scenario takes one at a time (--help)",
    ),
    "trace of a sweep": (
        [*RING, "--workload", "sweep:8B-8MB", "--trace", "t.json"],
        "simulate: --trace shows one size; sweep:8B-8MB has 21",
    ),
    "plot suffix": (
        [*RING, "--plot", "x.gif"],
        "simulate: --plot x.gif: .gif cannot be drawn; allowed: .pdf, .png, .svg",
    ),
    "plot without suffix": (
        [*RING, "--plot", "plot"],
        "simulate: --plot plot: no suffix cannot be drawn; allowed: .pdf, .png, .svg",
    ),
    "no folder": ([*RING, "--plot", "nowhere/x.svg"], "simulate: --plot nowhere/x.svg: there is no folder 'nowhere'"),
    "a folder": ([*RING, "--trace", "/"], "simulate: --trace /: is a folder; name a file"),
    "does not fit": (
        ["--topology", "4gpu-pcie", "--strategy", "hierarchical"],
        "simulate: --strategy hierarchical does not fit 4gpu-pcie: ",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_mistake_is_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = ERRORS[case]
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(expected) if expected.endswith(" ") else err == expected + "\n"


def test_what_workloads_there_are_is_said_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RING, "--workload", "xyzzy:1"]) == 2
    assert f"one operation ({' '.join(f'{kind}:' for kind in KINDS)})" in capsys.readouterr().err


def test_all_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--strategy", "rign,tre", "--collective", "all_gathr", "--workload", "bytes:160", "--root", "x"]
    assert run(["--topology", "p3.16xlarg", *wrong]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("simulate: ").split(" ")[0].strip(":") for line in lines] == [
        *("--workload", "p3.16xlarg", "--strategy", "--strategy", "--collective", "--root")
    ]


def test_faults_of_a_file_are_one_line_each_with_their_place(tmp_path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "schema_version: 1\nname: mine\ndevices:\n  gpu[0-1]: {kind: gpu, colour: red}\n  cpu0: {kind: cpux}\n"
    )
    assert run(["--topology", str(file), "--strategy", "ring"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{file}:4:")
    assert lines[1].startswith(f"{file}:5:")


def test_debug_shows_where(capsys) -> None:
    with pytest.raises(Exception, match="no strategy is called 'rign'"):
        run([*P3, "--strategy", "rign", "--debug"])


def test_an_unforeseen_error_is_one_line_too(monkeypatch, capsys) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("simulator.api.session.Session.collective", fail)
    assert run(RING) == 1
    assert capsys.readouterr().err == "simulate: ZeroDivisionError: division by zero (--debug shows where)\n"


def test_a_run_that_fails_names_the_strategy(monkeypatch, capsys) -> None:
    from simulator.errors import SimulationError

    def fail(*_args: object, **_kwargs: object) -> None:
        raise SimulationError("some tasks never ended")

    monkeypatch.setattr("simulator.api.session.Session.collective", fail)
    assert run(RING) == 1
    assert capsys.readouterr().err == "simulate: ring on p3.16xlarge: some tasks never ended\n"


def test_a_missing_library_is_exit_status_4(monkeypatch, capsys) -> None:
    monkeypatch.setattr("simulator.cli.options.find_spec", lambda _name: None)
    assert run([*RING, "--plot", "x.svg"]) == 4
    assert capsys.readouterr().err == "simulate: --plot needs matplotlib; pip install matplotlib\n"


def test_an_interrupt_is_one_line(monkeypatch, capsys) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.api.session.Session.collective", interrupt)
    assert run(RING) == 130
    assert capsys.readouterr().err == "simulate: interrupted\n"


def test_nothing_is_left_where_the_run_fails(monkeypatch, tmp_path, capsys) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        assert list(tmp_path.iterdir())  # the output location was tested before the run
        raise ZeroDivisionError

    monkeypatch.setattr("simulator.api.session.Session.collective", fail)
    target = tmp_path / "old.json"
    target.write_text("old")
    assert run([*RING, "--trace", str(target), "--plot", str(tmp_path / "new.svg")]) == 1
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("old.json", "old")]


def test_trace_and_plot_need_two_files(tmp_path, capsys) -> None:
    path = str(tmp_path / "x.svg")
    assert run([*RING, "--trace", path, "--plot", path]) == 2
    assert capsys.readouterr().err == f"simulate: --plot {path}: is the file of --trace too\n"


@pytest.mark.parametrize(
    "others", [["--strategy", "nccl,parameter-server"], ["--parallel", "dp", "--parallel", "zero=1"]]
)
def test_a_batch_divided_best_is_compared_with_no_way_that_shares_it_evenly(
    others: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--topology", "p3.8xlarge", "--workload", "lenet", "--global-batch", "64", "--divide", "best"]
    assert run([*asked, *others]) == 2
    assert "--divide: is for --parallel dp, with a collective; ask the other ways apart" in capsys.readouterr().err


def test_a_folder_is_no_network(tmp_path, capsys) -> None:
    assert run(["--topology", "t4", "--workload", str(tmp_path), "--batch", "4"]) == 2
    assert "is a folder without config.json; name a network" in capsys.readouterr().err


def test_a_curve_names_a_number_of_nodes_once(tmp_path, capsys) -> None:
    file = tmp_path / "pc.yaml"
    file.write_text(
        "schema_version: 1\nname: pc\ndevices: {cpu0: {kind: cpu}, gpu0: {part: rtx-3090}}\n"
        "links: [{between: [cpu0, gpu0], kind: pcie, bandwidth: 16 GB/s}]\n"
    )
    words = ["scale", "--topology", str(file), "--workload", "lenet", "--batch", "4", "--nodes", "1,2"]
    assert run(words) == 2
    told = "simulate: --nodes 2: pc has no NIC; name a network with --fabric, for example ethernet-10g"
    assert capsys.readouterr().err.strip() == told
