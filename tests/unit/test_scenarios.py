"""``simulate scenario``: files, faults, expressions, answers, and the promises of built-in ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.cli.scenario_command import answer_scenario, error_words
from simulator.errors import InputError
from simulator.scenarios.answers import ScenarioAnswer, answers_of
from simulator.scenarios.expression import MissingPath, parse_expression
from simulator.scenarios.file import builtin_scenarios, find_scenario, in_order, needed_files, read_scenario

HEAD = """\
schema_version: 1
title: T
chapter: "12.7"
about: A.
runs:
  one: simulate --topology 4gpu-pcie --workload bytes:160MB --strategy gpu0
"""
FOUR = "four-gpus-one-switch"


def written(folder: Path, answers: str = "", head: str = HEAD) -> Path:
    path = folder / "mine.yaml"
    answers = answers or '  - {name: n, value: "one.results[0].sync_time_s", unit: s, ideal: 60 ms, within: 1 %}\n'
    path.write_text(f"{head}answers:\n{answers}")
    return path


def answered(folder: Path, answer: str, document: object) -> ScenarioAnswer:
    scenario = read_scenario(written(folder, f"  - {{name: n, {answer}}}\n"))
    return answers_of(scenario, {"one": document})[0]


# -- expressions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * 7/8 * 160 MB / (3 * 18 GB/s)", 2 * 7 / 8 * 160e6 / (3 * 18e9)),
        ("160 MB/s", 160e6),
        ("160 MB / 2 s", 80e6),
        ("10 Gbit/s", 1.25e9),
        ("1 - 2 - 3", -4),
        ("8 / 4 / 2", 1),
        ("-3 * -2", 6),
        ("- (1 + 2)", -3),
        ("min(3 s, 2 ms, 1 h)", 2e-3),
        ("max(1, 2) + 1", 3),
        ("75 %", 0.75),
        ("5min", 300),
        ("1.5e3 B", 1500),
    ],
)
def test_arithmetic_with_units(text: str, value: float) -> None:
    assert parse_expression(text).value({}) == pytest.approx(value, rel=1e-15)


def test_paths_lead_through_keys_positions_and_names() -> None:
    document = {"a": [{"name": "x->y", "b c": 3}, {"name": "z", "n": 2, "on": True}]}
    for text, value in [
        ('r.a[0]["b c"]', 3),
        ('r.a[name=x->y]["b c"] * 2', 6),
        ("r.a[-1].n", 2),
        ("r.a[on=true].n", 2),
        ("count(r.a)", 2),
    ]:
        assert parse_expression(text).value({"r": document}) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 +", "a number, a path (RUN.key) or a parenthesis is needed at the end"),
        ("(1", "')' is missing at the end"),
        ("1 2", "an operator (+ - * /) or nothing is expected before '2'"),
        ("3 parsec", "an operator (+ - * /) or nothing is expected before 'parsec'"),
        ("mix(1, 2)", "there is no function 'mix'; did you mean 'min'? before 'mix(1, 2)'"),
        ("__import__('os')", "there is no function '__import__'; allowed: count, max, min before \"__import__('os')\""),
        ("(" * 40 + "1", "has more than 30 parentheses within each other"),
        ("1" * 3000, "is longer than 2000 characters"),
        ("", "a number, a path (RUN.key) or a parenthesis is needed at the end"),
    ],
)
def test_what_cannot_be_parsed_says_where(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_expression(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("r.resultz", "r has no 'resultz'; did you mean 'results'?"),
        ("r.results[3]", "r.results has 1 entries; there is no [3]"),
        ("r.results[0][n=two]", "r.results[0] is not a list: it is a mapping"),
        ("r.results[n=two]", "r.results has no entry whose n is 'two'; allowed: one"),
        ("r.results[0].n.x", "r.results[0].n has no keys: it is 'one'"),
    ],
)
def test_a_path_that_leads_nowhere_names_the_nearest(text: str, words: str) -> None:
    with pytest.raises(MissingPath, match=re.escape(words)):
        parse_expression(text).value({"r": {"results": [{"n": "one"}]}})


@pytest.mark.parametrize(
    ("text", "words"),
    [("1/0", "divides by zero"), ("r.n", "r.n is not a number: it is 'one'"), ("count(r.n)", "count is of a list")],
)
def test_a_value_that_is_no_number_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_expression(text).value({"r": {"n": "one"}})


# -- files -----------------------------------------------------------------------------


def test_all_faults_of_a_file_come_at_once_with_their_places(tmp_path, capsys) -> None:
    head = HEAD + '  two: similate x\n  three-: simulate --json\n  four: simulate "x\ntimeline: won\n'
    answers = (
        "  - {name: n, value: won.x, unit: s, ideal: 1 +}\n"
        "  - {name: n, value: one.x, unit: s, measured: 3}\n"
        "  - {name: n, value: one.x, unit: s, ideal: 3 s, published: 2 s, source: x, within: often}\n"
        "  - {name: n, value: one.x, unit: s, within: 3 %}\n"
        "  - {name: n, valeu: one.x, unit: s}\n"
    )
    path = written(tmp_path, answers, head)
    assert run(["scenario", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(f"{path}:") for line in lines] == [
        "7:8: runs.two: a run is a command of simulate; got 'similate'",
        "8:3: runs: 'three-' is not a name of letters, digits and _",
        "8:11: runs.three-: --json says how an answer is shown; leave it out",
        "9:9: runs.four: cannot be read as a command: no closing quotation",
        "10:11: timeline: there is no run 'won'; did you mean 'two'?",
        "12:22: value: there is no run 'won'; did you mean 'two'?",
        "12:45: ideal: a number, a path (RUN.key) or a parenthesis is needed at the end",
        "13:48: measured: the key 'source' is missing: who says so",
        "13:48: measured: 3 needs a unit, for example 3 s",
        "14:61: published: ideal is there too; write an answer of its own for each",
        "14:85: within: write how far off it may be, for example 15 %; got 'often'",
        "15:46: within: is of a figure; add ideal, measured or published",
        "16:5: the key 'value' is missing",
        "16:15: unknown key 'valeu'; did you mean 'value'?",
    ]


def test_unknown_and_missing_keys_are_told(tmp_path) -> None:
    path = written(tmp_path, "  - {name: n, valeu: 1, unit: s}\n")
    with pytest.raises(InputError) as error:
        read_scenario(path)
    assert [str(fault).split(": ", 1)[1] for fault in error.value.faults] == [
        "the key 'value' is missing",
        "unknown key 'valeu'; did you mean 'value'?",
    ]


def test_the_faults_of_all_runs_are_told_at_their_lines(tmp_path, capsys) -> None:
    head = HEAD + "  two: simulate --topologi x\n  three: simulate --topology 4gpu-pci\n"
    assert run(["scenario", str(written(tmp_path, head=head))]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(":7:8: runs.two: --topologi: no such option; did you mean '--topology'? (--help)")
    assert ":8:10: runs.three: 4gpu-pci: no such file and no built-in topology; did you mean '4gpu-pcie'?" in second


def test_values_that_cannot_be_had_are_told_at_their_lines(tmp_path, capsys) -> None:
    answers = "".join(
        f'  - {{name: n, value: "{value}", unit: s, ideal: 1 s}}\n'
        for value in ("one.result", "one.results[0].strategy")
    )
    assert run(["scenario", str(written(tmp_path, answers))]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(":8:22: value: one has no 'result'; did you mean 'results'?")
    assert second.endswith(":9:22: value: one.results[0].strategy is not a number: it is 'gpu0'")


def test_a_scenario_is_not_made_of_scenarios(tmp_path) -> None:
    head = HEAD.replace("simulate --topology 4gpu-pcie", "simulate scenario four-gpus-one-switch")
    with pytest.raises(InputError, match="a scenario is made of runs, not of scenarios"):
        read_scenario(written(tmp_path, head=head))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["four-gpus-one-switsh"], f"no such scenario; did you mean '{FOUR}'? (--list)"),
        ([], "simulate: scenario needs a name or a file: simulate scenario --list shows those that are built in"),
        (["nothing.yaml"], "nothing.yaml: cannot be read: No such file or directory"),
        ([f"{FOUR}.yaml"], f"cannot be read: no such file; did you mean '{FOUR}', which is built in?"),
        ([FOUR, "--list"], "simulate: --list lists all scenarios; leave out what is about one"),
        ([FOUR, "--plot", "x.txt"], "simulate: --plot x.txt: .txt cannot be drawn; allowed: .pdf, .png, .svg"),
        ([FOUR, "more"], "'more' is one too many; scenario takes one at a time (--help)"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(words: list[str], line: str, capsys) -> None:
    assert run(["scenario", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert line in captured.err


# -- answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "value", "error", "holds"),
    [
        ("value: one.x, unit: s, ideal: 2 s, within: 10 %", 2.1, 0.05, True),
        ("value: one.x, unit: s, ideal: 2 s, within: 4 %", 2.1, 0.05, False),
        ("value: one.x, unit: s, ideal: 2 s", 2.1, 0.05, None),
        ("value: one.x, unit: s, ideal: 1 s to 2 s, within: 0 %", 1.5, 0.0, True),
        ("value: one.x, unit: s, ideal: 1 s to 2 s, within: 0 %", 4.0, 1.0, False),
        ("value: one.x, unit: s, ideal: at least 2 s, within: 0 %", 1.0, -0.5, False),
        ("value: one.x, unit: s, ideal: at most 2 s, within: 0 %", 1.0, 0.0, True),
        ("value: one.x, unit: images/s, ideal: 100 images/s, within: 1 %", 100, 0.0, True),
        ("value: one.x, unit: '%', ideal: 50 %, within: 1 %", 0.5, 0.0, True),
        ("value: one.x, unit: s, ideal: 2 * one.x, within: 1 %", 3.0, -0.5, False),
        ("value: one.x, unit: words, ideal: ring", "ring", None, True),
        ("value: one.x, unit: words, ideal: ring", "tree", None, False),
        ("value: one.x, unit: words, ideal: '[1,2]'", [1, 2], None, True),
        ("value: one.x, unit: s", 1.0, None, None),
    ],
)
def test_an_error_is_against_the_nearest_expected_value(tmp_path, answer, value, error, holds) -> None:
    found = answered(tmp_path, answer, {"x": value})
    assert found.error == (pytest.approx(error) if error is not None else None)
    assert found.holds is holds


def test_a_large_error_is_told_in_times(tmp_path) -> None:
    for value, told in ((19.0, "+850.0 %"), (6000.0, "3,000 times")):
        assert error_words(answered(tmp_path, "value: one.x, unit: s, ideal: 2 s", {"x": value})) == told


def test_the_answer_is_a_table_of_80_columns_with_the_commands(capsys) -> None:
    assert run(["scenario", FOUR]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "on the CPU         80 ms     80 ms  ideal      0.0 %" in lines
    commands = "\n".join(lines).partition("the commands")[2].replace("\\\n   ", "")
    assert all(run.words in commands for run in find_scenario(FOUR).runs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "marked", "why"),
    [
        ("value: 66 ms, unit: s, ideal: 60 ms, within: 1 %", "+10.0 % missed", "n (66 ms, 60 ms)"),
        ("value: 66 ms, unit: s, ideal: at most 60 ms, within: 0 %", "+10.0 % missed", "n (66 ms, at most 60 ms)"),
        ("value: 66 ms, unit: s, ideal: 0 s, within: 1 %", "missed", "n (66 ms, 0 s)"),
        ("value: 66 ms, unit: s, ideal: 60 ms, within: 10 %", "+10.0 %", None),
        ("value: 66 ms, unit: s, ideal: 60 ms", "+10.0 %", None),
    ],
)
def test_an_answer_that_misses_its_tolerance_is_marked(tmp_path, capsys, answer, marked, why) -> None:
    status = run(["scenario", str(written(tmp_path, f"  - {{name: n, {answer}}}\n")), "--quiet"])
    out, err = capsys.readouterr()
    assert next(line for line in out.splitlines() if line.startswith("n ")).endswith(f"  {marked}")
    assert status == (1 if why else 0)
    assert (f"expected values are missed: {why}" in err) is (why is not None)
    run(["scenario", str(tmp_path / "mine.yaml"), "--json", "--quiet"])
    (entry,) = json.loads(capsys.readouterr().out)["answers"]
    assert entry["holds"] is (None if "within" not in answer else why is None)


def test_json_has_the_answers_beside_what_is_expected(capsys) -> None:
    assert run(["scenario", FOUR, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["scenario"] == FOUR
    assert [(entry["value"], entry["expected"]) for entry in document["answers"]] == [
        (pytest.approx(value), value) for value in (0.06, 0.08, 0.015, 0.015)
    ]
    for entry in document["answers"]:
        assert set(entry) == {"name", "value", "unit", "expected", "kind", "error", "within", "holds", "source"}
        assert entry["kind"] in ("ideal", "measured")
    assert document["answers"][3]["kind"] == "measured"  # published measurements


def test_a_file_of_ones_own_is_run_beside_its_files_and_equal_runs_once(tmp_path, monkeypatch, capsys) -> None:
    from simulator.cli import output as module

    ran: list[list[str]] = []
    real = module.captured
    monkeypatch.setattr(
        "simulator.cli.scenario_command.captured", lambda words, **more: (ran.append(words), real(words, **more))[1]
    )
    machine = (Path(__file__).resolve().parents[2] / "topologies" / "4gpu-pcie.yaml").read_text()
    (tmp_path / "own-machine.yaml").write_text(machine.replace("16 GB/s", "32 GB/s"))
    head = HEAD.replace("4gpu-pcie", "own-machine.yaml") + HEAD.splitlines()[-1].replace("one:", "two:").replace(
        "4gpu-pcie", "own-machine.yaml"
    )
    path = written(tmp_path, "  - {name: n, value: 'one.results[0].sync_time_s', unit: s, ideal: 30 ms}\n", f"{head}\n")
    before = Path.cwd()
    assert run(["scenario", str(path), "--plot", "drawn.svg", "--trace", "drawn.json"]) == 0
    assert "n           30 ms     30 ms  ideal  0.0 %" in capsys.readouterr().out.splitlines()
    assert len(ran) == 1
    assert Path.cwd() == before
    for name in ("drawn.svg", "drawn.json"):  # in the caller's folder, not in the file's
        (before / name).unlink()


def test_a_run_may_fail_where_an_answer_asks_how_it_ended(tmp_path) -> None:
    head = HEAD.replace("gpu0", "gpu9")
    answers = (
        "  - {name: status, value: one.exit_status, unit: '1', ideal: 2, within: 0 %}\n"
        "  - {name: why, value: one.error, unit: words}\n"
    )
    status, why = answer_scenario(read_scenario(written(tmp_path, answers, head)))[0]
    assert status.holds
    assert "gpu9" in str(why.value)


def test_a_copy_runs_as_the_original_and_overwrites_nothing(tmp_path, capsys) -> None:
    name = "ring-on-cube-mesh"
    assert list(needed_files(find_scenario(name))) == [Path("machines/ideal-mesh-8.yaml")]
    assert run(["scenario", name, "--copy", str(tmp_path)]) == 0
    assert run(["scenario", name, "--json"]) == 0
    original = capsys.readouterr().out.partition("{")[2]
    assert run(["scenario", str(tmp_path / f"{name}.yaml"), "--json"]) == 0
    assert capsys.readouterr().out.partition("{")[2] == original
    assert run(["scenario", name, "--copy", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("is there already") == 2
    assert run(["scenario", name, "--show"]) == 0
    assert capsys.readouterr().out == (tmp_path / f"{name}.yaml").read_text()


def test_single_operations_are_drawn_as_answers_and_have_no_trace(tmp_path, capsys) -> None:
    head = HEAD.replace("4gpu-pcie --workload bytes:160MB --strategy gpu0", "p3.2xlarge --workload copy:h2d,1MB")
    answers = "  - {name: there, value: 'one.results[0].time_s', unit: s, ideal: 80 us to 90 us}\n"
    path = written(tmp_path, answers, head)
    assert run(["scenario", str(path), "--plot", str(tmp_path / "drawn.svg")]) == 0
    assert ">there<" in (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert run(["scenario", str(path), "--trace", str(tmp_path / "drawn.json")]) == 2
    assert "single operations, which have no timeline" in capsys.readouterr().err


def test_several_runs_are_drawn_as_their_answers(tmp_path) -> None:
    """One of several runs, drawn alone, would not show what is compared."""
    head = HEAD + HEAD.splitlines()[-1].replace("one:", "two:").replace("160MB", "320MB") + "\n"
    answers = "".join(f"  - {{name: of {r}, value: '{r}.results[0].sync_time_s', unit: s}}\n" for r in ("one", "two"))
    path = written(tmp_path, answers, head)
    assert run(["scenario", str(path), "--plot", str(tmp_path / "drawn.svg")]) == 0
    drawn = (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert ">of one<" in drawn
    assert ">of two<" in drawn


@pytest.mark.slow
def test_a_copy_has_the_nodes_of_its_clusters(tmp_path, capsys) -> None:
    (tmp_path / "there").mkdir()
    assert run(["scenario", "messages", "--copy", str(tmp_path / "there")]) == 0
    assert (tmp_path / "there" / "machines" / "iwarp-host.yaml").exists()
    assert run(["scenario", str(tmp_path / "there" / "messages.yaml"), "--json"]) == 0, capsys.readouterr().err


# -- built in --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_list_is_in_the_order_of_a_course(capsys) -> None:
    assert run(["scenario", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["scenarios"]
    chapters = list(dict.fromkeys(entry["chapter"] for entry in listed))
    book = [tuple(map(int, chapter.split("."))) for chapter in chapters if " " not in chapter]
    assert book == sorted(book)
    assert [" " in chapter for chapter in chapters] == sorted(" " in chapter for chapter in chapters)
    assert len(chapters) == len(set(chapters))
    assert [entry["name"] for entry in listed] == [scenario.name for scenario in in_order()]
    assert run(["scenario", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {entry['name']} " in shown for entry in listed)


def test_every_yaml_file_is_a_scenario_or_is_needed_by_one() -> None:
    folder = next(iter(builtin_scenarios().values())).parent
    named = {folder / file for scenario in in_order() for file in needed_files(scenario)}
    assert set(folder.rglob("*.yaml")) - set(builtin_scenarios().values()) - named == set()


def test_a_copy_has_the_networks_that_its_programs_name_and_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scenario", "a-barrier-each-batch", "--copy", str(tmp_path)]) == 0
    assert (tmp_path / "networks" / "mlp-512-2048-512-1.yaml").is_file()
    monkeypatch.chdir(tmp_path)
    assert run(["--topology", "p3.8xlarge", "--threads", "8", "--workload", "programs/epoch-wait-each.yaml"]) == 0
    assert "150 batches" in capsys.readouterr().out


@pytest.mark.parametrize("name", builtin_scenarios())
def test_a_built_in_scenario_says_what_falls_short(name: str) -> None:
    scenario = find_scenario(name)
    for asked in scenario.answers:
        if asked.expected is not None and asked.unit != "words":
            assert (asked.expected.within is not None) != bool(asked.falls_short), asked.name
