"""The documents agree with the program: commands run, files load, links resolve, numbers are right."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import re
import shlex
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from simulator.api import Session, load_machine
from simulator.api.context import machines_fitted_to
from simulator.cli import run
from simulator.console.run import run_app
from simulator.topology.schema import TopologyFile
from simulator.topology.yaml_source import parse_yaml
from tests.asked import exchange_on
from tests.remembered import AGAIN, Remembering, tables
from tests.without_advice import without_advice
from validate.cli import app as validate_app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("answered_once")]

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in tables.documents()}
README = DOCUMENTS["README.md"]


def named_blocks(wanted: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (document, file name, content) of the blocks of these kinds."""
    return [(d, n, body) for d, text in DOCUMENTS.items() for kind, n, body in tables.blocks(text) if kind in wanted]


@functools.cache
def commands() -> list[tuple[str, str]]:
    """Return (document, command line) for each line of a shell block that starts one of our programs."""
    found = []
    for document, _, body in named_blocks(["sh"]):
        for line in body.splitlines():
            last = line.split("&&")[-1].strip()
            if re.match(r"(\.venv/bin/)?(simulate|validate) ", last):
                found.append((document, last.removeprefix(".venv/bin/")))
    return found


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a working folder with the figure's folder; output lines are not wrapped."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    return tmp_path


# -- commands ------------------------------------------------------------------------


def test_there_is_something_to_check() -> None:
    assert len(commands()) >= 6
    assert len(named_blocks(["console"])) >= 8
    assert len([name for _, name, _ in named_blocks(["yaml"]) if name]) >= 5


def test_the_readme_opens_with_the_two_commands() -> None:
    shell = [body for kind, _, body in tables.blocks(README) if kind == "sh"]
    assert shell[0] == (
        "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && "
        ".venv/bin/simulate --topology p3.16xlarge.yaml --strategy ring\n"
    )
    assert shell[1] == '.venv/bin/python -m pytest\n.venv/bin/python -m pytest -m ""\n'
    assert shell[1].splitlines()[1].removeprefix(".venv/bin/") in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_readme_is_read_to_the_end() -> None:
    assert len(README.splitlines()) <= 200


def test_the_words_on_accuracy_are_those_of_the_tables() -> None:
    marked = {m["what"]: m["body"] for text in DOCUMENTS.values() for m in tables._MARKED.finditer(text)}
    assert marked["accuracy"] == tables.accuracy_words(marked)
    assert marked["constants"] == tables.constants_words()


def test_every_page_is_listed() -> None:
    listed = DOCUMENTS["docs/README.md"]
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]
    assert [name for name in pages if f"({name})" not in listed] == []


# Words of commands that take long, and others in their place: the options are the same.
SHORTER = (
    ("--nodes 4 --workload vgg16", "--nodes 2 --workload alexnet"),
    ("--nodes 2 --workload gpt3-1.3b --global-batch 64", "--workload gpt3-125m --set layers=2 --global-batch 8"),
    ("gpt3-1.3b --global-batch 32", "gpt3-125m --set layers=2 --global-batch 8"),
)


def test_every_longer_command_is_there() -> None:
    assert [longer for longer, _ in SHORTER if not any(longer in command for _, command in commands())] == []


@pytest.mark.parametrize(("document", "command"), commands())
def test_a_command_runs(document: str, command: str, here, capsys, monkeypatch) -> None:
    """Advice on steps and bands are left out: they take most of the time, and are in the examples below."""
    monkeypatch.setattr(Session, "advised", without_advice)
    monkeypatch.setattr(Session, "composed", Remembering.composed)
    for longer, shorter in SHORTER:
        command = command.replace(longer, shorter)
    words = shlex.split(command)
    tables.write_files(DOCUMENTS[document], here)
    for other, earlier in commands():  # the calibration that it would write, for the device that it names
        calibrated = re.match(r"validate calibrate --device (\S+) .*--out (\S+)", earlier)
        if other == document and calibrated is not None:
            Path(calibrated[2]).write_text(f"schema_version: 1\ndevices:\n  {calibrated[1]}: {{compute: 1.02}}\n")
    if words[0] == "validate":  # needs a table: its options are checked here; test_docs_validate.py runs it
        has_commands = hasattr(validate_app.commands[words[1]], "commands")  # type: ignore[attr-defined]
        assert run_app(validate_app, "validate", [*words[1 : 3 if has_commands else 2], "--help"]) == 0
        shown = capsys.readouterr().out
        assert [w for w in words[2:] if w.startswith("--") and w not in shown] == []
    else:
        assert run(words[1:]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("document", [d for d, text in DOCUMENTS.items() if "```console" in text])
def test_examples_print_what_the_document_shows(document: str, here) -> None:
    text = DOCUMENTS[document]
    tables.write_files(text, here)
    for kind, _, body in tables.blocks(text):
        if kind == "console":
            first, _, shown = body.partition("\n")
            assert first.startswith("$ ")
            printed = "".join(f"{line.rstrip()}\n" for line in tables.printed(first[2:]).splitlines())
            assert shown == printed, AGAIN


def test_first_screens_say_how_sure_they_are_and_whether_it_fits() -> None:
    screens = [body for kind, _, body in tables.blocks(DOCUMENTS["docs/cookbook.md"]) if kind == "console"]
    assert len(screens) == 30
    for screen in screens:
        command, *lines = screen.splitlines()
        assert len(lines) <= 25
        assert re.search(r"band|not shown at 80 columns: (.*, )?80 % band", screen), command
        assert re.search(r"memory|strategy|busbw", screen), command
        assert max(map(len, lines)) <= 80 or "\nsimulate: " in screen, command
        assert re.search(r"bound by|limited by|limits training|lost to |largest losses|over (NVLink|PCIe)", screen), (
            command
        )
        assert "\nnext: " in screen, command
        assert sum("trust" in line for line in lines) <= 1, command


@pytest.mark.parametrize("document", [d for d, text in DOCUMENTS.items() if "```console\n$ validate" in text])
def test_answers_of_validate_fit_any_width(document: str, here, monkeypatch) -> None:
    """A file that goes to standard output keeps its lines; the document shows the usual width."""
    tables.write_files(DOCUMENTS[document], here)
    for kind, _, body in tables.blocks(DOCUMENTS[document]):
        command = body.partition("\n")[0].removeprefix("$ ")
        if kind != "console" or not command.startswith("validate") or command.startswith("validate calibrate"):
            continue
        monkeypatch.setenv("COLUMNS", "60")
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            run_app(validate_app, "validate", shlex.split(command)[1:])
        assert [line for line in shown.getvalue().splitlines() if len(line) > 60] == []


@pytest.mark.parametrize("command", tables.PICTURES)
def test_the_pictures_are_current(command: str, here) -> None:
    (here / "docs" / "images").mkdir(parents=True, exist_ok=True)
    tables.printed(command)
    picture = Path(command.split("--plot ")[1])
    # Text and tick labels; the positions of lines depend on Matplotlib's version.
    drawn, kept = (re.findall(r">([^<]+)</text>", (top / picture).read_text(encoding="utf-8")) for top in (here, ROOT))
    assert len(kept) > 30
    assert drawn == kept, AGAIN
    beside = str(picture).removeprefix("docs/")
    assert f"({picture})" in README or any(f"({beside})" in text for text in DOCUMENTS.values())


# -- files ---------------------------------------------------------------------------

NETWORKS = "docs/networks.md"  # its files are networks: tests/unit/test_network_yaml.py
PROGRAMS = "docs/programs.md"
INPUT = "docs/input.md"  # tests/unit/test_input.py
SCENARIOS = "docs/scenarios.md"  # tests/unit/test_scenarios.py
OTHERS = (NETWORKS, PROGRAMS, INPUT, SCENARIOS)
FILES = [(d, n) for d, n, _ in named_blocks(["yaml"]) if n and n != "broken.yaml" and d not in OTHERS]


@pytest.mark.parametrize(("document", "name"), FILES)
def test_a_yaml_file_of_a_document_loads_and_runs(document: str, name: str, here) -> None:
    tables.write_files(DOCUMENTS[document], here)
    machine = load_machine(name)
    assert machine.name == name.removesuffix(".yaml")
    assert exchange_on(machine, "ring", 1e8).sync_time_s > 0


def test_a_program_of_the_document_runs_or_is_refused_in_the_words_shown(here, capsys) -> None:
    tables.write_files(DOCUMENTS[PROGRAMS], here)
    shown = re.search(r"^mixed\.yaml:\d.*$", DOCUMENTS[PROGRAMS], re.MULTILINE)
    assert shown
    for _, name, _ in (block for block in named_blocks(["yaml"]) if block[0] == PROGRAMS and block[1]):
        status = run(["--topology", "p3.2xlarge", "--workload", name])
        assert status == (2 if name == "mixed.yaml" else 0)
        if status:
            assert shown[0] in capsys.readouterr().err


def test_a_gpu_and_a_cpu_of_ones_own_run_steps_and_need_what_the_document_says(here) -> None:
    document = DOCUMENTS["docs/topology.md"]
    tables.write_files(document, here)
    text = Path("own-gpu.yaml").read_text(encoding="utf-8")
    parts = yaml.safe_load(text)["parts"]
    # The table's second cell: required keys; the third: other keys that count.
    rows = {row[0]: row[1:] for row in re.findall(r"^\| `([gc]pu)` \| (`[^|]*) \| ([^|]*) \|$", document, re.MULTILINE)}
    for kind, device in (("gpu", "gpu0"), ("cpu", "cpu0")):
        step = ["--topology", "own-gpu.yaml", "--workload", "resnet18", "--batch", "2", "--quiet", "--device", device]
        assert run(step) == 0
        for key in re.findall(r"`(\w+)`", rows[kind][0]):
            if key in ("fp32", "nvidia"):
                continue
            less = re.sub(rf"(?m)^    {key}: .*\n", "", text)
            assert key in parts[f"my-{kind}"]
            assert less != text
            Path("own-gpu.yaml").write_text(less, encoding="utf-8")
            assert run(step) == 2, f"{kind} needs {key}"
        Path("own-gpu.yaml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("body", [body for _, name, body in named_blocks(["yaml"]) if not name])
def test_a_piece_of_yaml_has_keys_that_there_are(body: str) -> None:
    data = parse_yaml(body.encode(), "piece").data
    TopologyFile.model_validate({"schema_version": 1, "name": "piece", **(data or {})})


def test_every_key_of_the_schema_is_explained() -> None:
    from simulator.topology import parts, schema

    explained = set(re.findall(r"`(?:transport\.)?(\w+)`", DOCUMENTS["docs/topology.md"]))
    models = [
        *(schema.TopologyFile, schema.DeviceSpec, schema.LinkSpec, schema.MeshSpec, schema.TransportSpec),
        *(schema.ClusterSpec, parts.GpuPart, parts.CpuPart, parts.SwitchPart, parts.NicPart, parts.StoragePart),
        parts.LinkPart,
    ]
    assert {key for model in models for key in model.model_fields} - explained == set()


def test_the_strategy_of_the_documents_works(here, monkeypatch) -> None:
    tables.write_files(DOCUMENTS["docs/extending.md"], here)
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "flood", raising=False)
    import flood

    monkeypatch.setattr("simulator.collectives.registry.find_strategy", lambda _: flood.FLOOD)
    # Each GPU sends 3 x 160 MB over its one link of 16 GB/s.
    assert exchange_on(load_machine("4gpu-pcie"), "flood", 160e6).sync_time_s == pytest.approx(0.03)


# -- links ---------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS)
def test_relative_links_lead_somewhere(document: str) -> None:
    text = re.sub(r"```.*?```", "", DOCUMENTS[document], flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / document).parent / path if path else ROOT / document
        assert there.exists(), f"{document}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, target


# -- errors --------------------------------------------------------------------------


def error_rows() -> dict[str, list[str]]:
    """Return the cells of the table of errors, by row label."""
    table = DOCUMENTS["docs/accuracy.md"].partition("<!-- errors -->")[2].partition("<!-- /errors -->")[0]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()]
    return {row[0]: row[1:] for row in rows[2:]}


def figures(errors: list[float]) -> list[float]:
    sizes = [abs(e) for e in errors]
    p90 = statistics.quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else sizes[0]
    return [100 * statistics.median(sizes), 100 * p90, 100 * statistics.fmean(errors)]


@pytest.mark.corpus
def test_the_table_of_errors_is_current(corpus: Path, here, capsys) -> None:
    options = [str(corpus / "collectives.csv"), "--json", "--out", "predictions.csv"]
    assert run_app(validate_app, "validate", ["score", *options]) == 0
    document = json.loads(capsys.readouterr().out)["tables"][0]
    with open("predictions.csv", newline="", encoding="utf-8") as stream:
        scored = [row for row in csv.DictReader(stream) if not row["skipped"]]
    shown = error_rows()

    def check(label: str, rows: list[dict[str, str]]) -> None:
        cells = shown.pop(label)
        assert int(cells[0]) == len(rows), (label, AGAIN)
        numbers = [float(cell.removesuffix(" %")) for cell in cells[1:4]]
        assert numbers == pytest.approx(figures([float(r["error"]) for r in rows]), abs=0.1), (label, AGAIN)

    check("all", scored)
    check("1 MiB and more", [r for r in scored if float(r["bytes"]) >= 2**20])
    check("less than 1 MiB", [r for r in scored if float(r["bytes"]) < 2**20])
    check("machines of the fit", [r for r in scored if r["machine"] in machines_fitted_to()])
    check("machines held out of it", [r for r in scored if r["machine"] not in machines_fitted_to()])
    check("**V100 cube mesh, held out**", [r for r in scored if r["machine"] in tables.CUBE_MESH])
    rest = [r for r in scored if f"`{r['machine']}`" not in " ".join(shown)]
    check(next(label for label in shown if "fewer than" in label), rest)
    baselines = {
        g["by"]["machine"]: g["baselines"]["alpha-beta-ring"] for g in document["groups"] if [*g["by"]] == ["machine"]
    }
    for label in list(shown):
        machine = label.split("`")[1]
        ring = [float(cell.removesuffix(" %")) for cell in shown[label][4:]]
        expected = [100 * baselines[machine][key] for key in ("median_ape", "p90_ape")]
        assert ring == pytest.approx(expected, abs=0.1), (label, AGAIN)
        assert (machine not in machines_fitted_to()) == ("held out" in label)
        check(label, [r for r in scored if r["machine"] == machine])
    for machine in tables.CUBE_MESH:
        assert f"--hold-out {machine}" in DOCUMENTS["docs/decisions/nccl-costs.md"]
