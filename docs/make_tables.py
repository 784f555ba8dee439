"""Regenerate the generated parts of the documents: outputs of commands, pictures, tables of errors.

``python docs/make_tables.py [FOLDER] [--leave-one-out] [--second DIR] [--imported DIR]`` rewrites the documents in
place: the top-level Markdown files and those below docs/.
The tables of errors need the measurements collectives.csv, ops.csv, training.csv and baselines.csv in FOLDER, or in the
folder named by TOPOCAST_CORPUS; without them these tables stay unchanged, with a message.
The columns on devices left out of the fit need ``--leave-one-out``, which fits for minutes (it runs
``validate fit ops.csv --leave-one-out place``); without it they stay unchanged.
The table of steps over several devices by data set needs ``--second DIR``, a folder with more steps.

In the documents

* a ``console`` block starts with ``$ simulate ...`` or ``$ validate ...``, followed by the command's output;
* a comment ``<!-- file: NAME -->`` before a block makes the block a file that commands can read;
* the tables of errors stand between ``<!-- errors -->`` and ``<!-- /errors -->``.  Other markers enclose the tables of
  operators, devices, steps and published predictors, and those of the measurements in the project
  (validate/measurements/), which need no folder.  Their columns on devices left out of the fit need
  ``--imported DIR``, the output of ``validate import``.

It then runs docs/make_pages.py, for the pages of scenarios and of the book, and docs/make_options.py.

``tests/unit/test_docs.py`` fails if a document differs from the program's output.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args
from unittest import mock

from simulator.api import Session
from simulator.api.context import machines_fitted_to
from simulator.api.session import Question
from simulator.cli import run as simulate
from simulator.console.run import run_app
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import StepQuestion
from simulator.workload.network import Family
from validate.blind.record import PROJECT, BlindErrors, read_record
from validate.cli import app as validate_app
from validate.constants.calibrate import calibrate_devices
from validate.kinds import COLLECTIVES, KINDS, OPERATORS, STEPS, Kind
from validate.kinds.kind import MeasuredRow
from validate.score.scores import ScoreGroup, Scores
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.statistics import Errors, summarise
from validate.tables.table import PUBLISHED, Table, made_complete, read_conventions, read_table

ROOT = Path(__file__).resolve().parent.parent
TRUST = ROOT / "simulator" / "results" / "trust.json"
PREDICTED = ROOT / "tests" / "golden" / "predicted-steps.json"
PUBLISHED_STEPS = ROOT / "validate" / "measurements" / "published-steps" / "training.csv"
HELD_OUT_STEPS = PUBLISHED_STEPS.with_name("held-out.csv")
BY_NVIDIA = ROOT / "validate" / "measurements" / "published-nvidia"
PICTURES = (
    "simulate --topology p3.16xlarge --plot docs/images/p3.16xlarge.svg",
    "simulate --topology p3.2xlarge --workload resnet50 --batch 128 --plot docs/images/step.svg",
)
# The machines of the V100 cube mesh; docs/decisions/nccl-costs.md.
CUBE_MESH = ("vtrain-8xv100-cube-mesh", "8xv100-sxm2-16gb-cube-mesh", "oci-bm.gpu3.8")  # one node each
Cells = tuple[str, str]
_NONE: Cells = ("-", "-")
_FEW_OF_GROUP = 5
_FEW_ROWS = 10
NVIDIA_FAMILIES = {"linear": "tensor_product", "attention": "attention"}  # families of cost models, by operator
# Lines of the table of steps, with the labels of their rows.  Except for the first line, each row is in one line, those
# of NeuSight in two.
_GPU = {"processor": "GPU", "ranks": "one"}
_SEVERAL = {"processor": "GPU", "ranks": "several"}
_RANKS = {"several": "replicas or shards", "divided": "network divided"}
_FRAMEWORKS = (("best", "the fastest framework of each"), ("other", "the other frameworks"))
DIVIDED = "tensor, pipeline, context, expert parallel: transformers"
Lines = tuple[tuple[str, dict[str, str]], ...]
SHOWN_STEPS: Lines = (
    ("all steps", {}),
    (
        "one GPU, or several that exchange nothing: transformers since 2019",
        {**_GPU, "family": "transformer", "era": "since 2019"},
    ),
    ("of these in fp32, eager PyTorch (NeuSight)", {"dataset": "neusight_model_latency"}),
    ("one GPU: CNNs since 2019", {**_GPU, "family": "CNN", "era": "since 2019"}),
    *(
        (f"one GPU: CNNs before 2019, {which}", {**_GPU, "family": "CNN", "era": "before 2019", "framework_rank": rank})
        for rank, which in _FRAMEWORKS
    ),
    ("one GPU: other networks", {**_GPU, "family": "other"}),
    *(
        (f"data-parallel replicas: {name}", {**_SEVERAL, "fsdp": "0", "family": family})
        for family, name in (("transformer", "transformers"), ("CNN", "CNNs"), ("other", "other networks"))
    ),
    ("FSDP shards: transformers", {**_SEVERAL, "fsdp": "1"}),
    (DIVIDED, {"processor": "GPU", "ranks": "divided"}),
    *(
        (f"any network on CPUs before 2019, {which}", {"processor": "CPU", "framework_rank": rank})
        for rank, which in _FRAMEWORKS
    ),
)
# What the rows of the table of steps hold besides whole steps on as many GPUs as there are.
STEP_PARTS: Lines = (
    ("whole training steps", {"phase": "train"}),
    ("inference", {"phase": "inference"}),
    ("forward passes of training alone", {"phase": "fwd"}),
    ("backward passes alone", {"phase": "bwd"}),
    ("on several GPUs that exchange nothing, counted as one GPU", {"ranks": "one", "strategy": "none"}),
)
# Lines of the table of the published steps in the project.
OWN_STEPS: Lines = (
    ("all steps", {}),
    ("MPT, 0.8 to 70 billion parameters, FSDP over 8 to 64 H100", {"dataset": "llmfoundry_mpt_h100"}),
    ("GPT-2 on one A100, fp32 to bf16, eager to compiled", {"dataset": "build_nanogpt"}),
    ("Llama 2, 70 billion parameters, FSDP over 128 A100", {"dataset": "fms_fsdp"}),
    ("Llama 3.1, 8 billion parameters, compiled, fp8, FSDP over 32 and 64 H200", {"dataset": "torchtitan_llama3"}),
)
HELD_OUT: Lines = (
    ("all steps", {}),
    ("CNNs and vision transformers on an RTX 3090 (timm)", {"dataset": "timm_rtx3090"}),
    ("Qwen, 1.8 to 72 billion parameters, fine-tuned on 1 to 4 A100", {"dataset": "qwen_finetuning"}),
    ("Llama, 1.1 billion parameters, on 8 to 64 H100 (nanotron)", {"dataset": "nanotron_bench"}),
    ("Qwen3, 0.6 to 30 billion parameters, FSDP on A6000 to B200 (prime-rl)", {"dataset": "prime_rl_sft"}),
    ("Llama, 7 and 34 billion parameters, FSDP over 128 A100", {"dataset": "fms_fsdp"}),
)
_FEW_NETWORKS = re.compile(r"^no network '.*' in the zoo$")
_FILE = r"(?:<!-- file: (?P<file>\S+) -->\n+)?"
_BLOCK = re.compile(_FILE + r"```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"(<!-- (?P<what>[\w-]+) -->\n)(?P<body>.*?)(<!-- /(?P=what) -->)", re.DOTALL)
_HEADER = (
    "| measurements of | rows | median | 90th percentile | bias | ring: median | ring: 90th percentile |",
    "|---|--:|--:|--:|--:|--:|--:|",
)


# -- tables of errors --


def percent(value: float | None, sign: str = "") -> str:
    """Return the fraction *value* as a percentage; "-" for None."""
    return "-" if value is None else f"{value * 100:{sign}.1f} %"


def cells_of(errors: Errors | None) -> Cells:
    """Return the median and the mean of *errors* as table cells."""
    return _NONE if errors is None else (percent(errors.median_ape), percent(errors.mean_ape))


def _counted(rows: Sequence[MeasuredRow], axis: str) -> dict[str, Errors]:
    return {g.by[axis]: g.errors for g in Scores(rows, (axis,)).groups((axis,)) if g.errors.n}


def operator_table(
    plain: Sequence[MeasuredRow], calibrated: Sequence[MeasuredRow], left_out: Mapping[str, Cells], axis: str
) -> str:
    """Return the table of errors by *axis* (op or device); labels with few rows are joined.

    *plain* are rows predicted from data sheets, *calibrated* those that remain to judge calibrations, and *left_out*
    holds, by label, the median and mean with fits that left out the device.
    """
    heads = ["data sheet", "device left out of the fit", "calibrated on 50 rows", "roofline"]
    columns = " | ".join(f"{head}: median | mean" for head in heads)
    lines = [f"| {axis} | rows | {columns} |", "|---|" + "--:|" * 9]
    after = _counted(calibrated, axis)
    found = [g for g in Scores(plain, (axis,)).groups((axis,)) if g.errors.n]
    groups = [g for g in found if g.errors.n >= _FEW_OF_GROUP]
    few = {g.by[axis] for g in found if g.errors.n < _FEW_OF_GROUP}
    labels: list[tuple[str, ScoreGroup, Errors | None]] = [
        ("all", Scores(plain).whole(), summarise(_errors(calibrated)))
    ]
    labels += [(f"`{g.by[axis]}`", g, after.get(g.by[axis])) for g in sorted(groups, key=lambda g: -g.errors.n)]
    if few:
        rest = Scores(row for row in plain if row.labels.get(axis) in few).whole()
        labels.append((f"{len(few)} of fewer than {_FEW_OF_GROUP} rows", rest, None))
    for label, group, fitted in labels:
        enough = fitted if fitted is not None and fitted.n >= _FEW_OF_GROUP else None
        cells = [*cells_of(group.errors), *left_out.get(label, _NONE), *cells_of(enough), *cells_of(group.baseline)]
        lines.append(f"| {label} | {group.errors.n} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _errors(rows: Sequence[MeasuredRow]) -> list[float]:
    return [row.error for row in rows if not row.skipped and row.error is not None]


def step_table(rows: Sequence[MeasuredRow], groups: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """Return the table of errors of the rows with the labels of each of *groups*, by the group's name."""
    lines = [
        "| steps of | rows | median | mean | 90th percentile | bias | roofline: median | mean |",
        "|---|" + "--:|" * 7,
    ]
    for name, labels in groups:
        group = Scores(row for row in rows if all(row.labels.get(k) == v for k, v in labels.items())).whole()
        e = group.errors
        cells = [*cells_of(e), percent(e.p90_ape), percent(e.bias, "+"), *cells_of(group.baseline)]
        lines.append(f"| {name} | {e.n} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def unscored_table(rows: Sequence[MeasuredRow]) -> str:
    """Return the table of the graded rows that are not scored: reasons, and the error that they would have."""
    graded = [row for row in rows if not row.is_context and row.grade in ("", "A", "B")]
    reasons: dict[str, list[MeasuredRow]] = {}
    for row in graded:
        if row.skipped:
            reasons.setdefault(_FEW_NETWORKS.sub("the network is not in the zoo", row.skipped), []).append(row)
    left = [row for found in reasons.values() for row in found]
    share = percent(len(left) / len(graded)) if graded else "-"
    lines = [f"Of {len(graded):,} graded steps {len(left):,} ({share}) are not scored:", ""]
    lines += ["| reason | rows | predicted | median | mean |", "|---|--:|--:|--:|--:|"]
    for reason, found in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        errors = summarise([row.error for row in found if row.error is not None])
        said = reason.replace("|", "\\|")
        lines.append(f"| {said} | {len(found)} | {errors.n} | {' | '.join(cells_of(errors if errors.n else None))} |")
    return "\n".join(lines) + "\n"


def constants_words() -> str:
    """Return how many constants there are, and how many of them were fitted or chosen."""

    def counted(files: Sequence[Path]) -> tuple[int, int, int]:
        origins = [text for file in files for text in _origins(json.loads(file.read_text(encoding="utf-8")))]
        return len(origins), *(sum(text.startswith(word) for text in origins) for word in ("fit", "chosen"))

    folder = ROOT / "simulator" / "constants"
    whole, fitted, chosen = counted(sorted(folder.glob("*.json")))
    of_nccl = counted([folder / "nccl.json"])
    text = (
        f"Of {whole} shared constants {fitted} are fitted to rows of these tables and {chosen} chosen; the others are "
        f"published or measured. NCCL's costs have {of_nccl[0]}, {of_nccl[1]} of them fitted. [constants.md]"
        f"(constants.md) tells which rows each was fitted to."
    )
    return textwrap.fill(text, 119, break_on_hyphens=False) + "\n"


def _origins(node: Any) -> Iterator[str]:
    """Yield where each constant under *node* is from."""
    if isinstance(node, dict) and "value" in node:
        yield str(node.get("from", ""))
    elif isinstance(node, dict):
        for each in node.values():
            yield from _origins(each)


def published_table(rows: Sequence[MeasuredRow]) -> str:
    """Return the table of errors of other predictors and of this one, on the rows that both predict."""
    lines = ["| predictor | rows | its median | its mean | Topocast: median | mean |", "|---|" + "--:|" * 5]
    for name, theirs, ours in Scores(rows).beside_published():
        lines.append(f"| {name} | {theirs.n} | " + " | ".join([*cells_of(theirs), *cells_of(ours)]) + " |")
    return "\n".join(lines) + "\n"


def documents() -> list[Path]:
    """Return the documents with generated parts."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, file name or empty, content) of each fenced block of *text*."""
    for match in _BLOCK.finditer(text):
        yield match["kind"], match["file"] or "", match["body"]


def write_files(text: str, folder: Path) -> None:
    """Write the blocks of *text* that have a file name into *folder*."""
    for _, name, body in blocks(text):
        if name:
            (folder / name).write_text(body, encoding="utf-8")


def printed(command: str) -> str:
    """Run *command* (``simulate ...`` or ``validate ...``) in this process and return the output of both streams.

    A status other than 0 is appended as ``[exit N]``.  ``COLUMNS=80 ... | head -24`` gives the first lines, of a width.
    """
    if screen := re.fullmatch(r"COLUMNS=(?P<width>\d+) (?P<command>.*) \| head -(?P<lines>\d+)", command):
        with mock.patch.dict(os.environ, COLUMNS=screen["width"]):
            return "".join(printed(screen["command"]).splitlines(keepends=True)[: int(screen["lines"])])
    words = shlex.split(command, comments=True)
    program = words[0].rpartition("/")[2]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = simulate(words[1:]) if program == "simulate" else run_app(validate_app, "validate", words[1:])
    return output.getvalue() + (f"[exit {status}]\n" if status else "")


def with_outputs(text: str) -> str:
    """Return the document *text* with the current output of its commands."""

    def anew(match: re.Match[str]) -> str:
        if match["kind"] != "console":
            return match[0]
        first = match["body"].split("\n", 1)[0]
        shown = printed(first.removeprefix("$ "))
        return f"```console\n{first}\n" + "".join(f"{line.rstrip()}\n" for line in shown.splitlines()) + "```"

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(text, Path(folder))
        return _BLOCK.sub(anew, text)


def scored(
    table: Path, kind: Kind, calibrate: int = 0, trust: Sequence[str] = ("A", "B"), **options: str
) -> list[MeasuredRow]:
    """Return the rows of *table* as ``validate score`` scores them with *options*.

    *calibrate* is the number of rows per device to calibrate on, 0 for none; *trust* holds the grades that count.
    """
    scoring = Scoring(ScoringOptions(**options))  # type: ignore[arg-type]
    read = _read(table, kind)
    if not calibrate:
        return list(scoring.score(read, kind, trust))
    calibrations, seen = calibrate_devices(read, scoring.names, trust, calibrate)
    return list(scoring.score(read, kind, trust, names=scoring.calibrated(calibrations), seen=seen))


def _read(table: Path, kind: Kind) -> Table:
    return read_table(table.read_bytes(), table.name, kind.needed, kind.columns, kind.name)


def completed_folder(folder: Path, into: Path) -> Path:
    """Write the tables of *folder* to *into*, with what their authors say elsewhere in columns; return *into*."""
    rules = read_conventions(PUBLISHED)
    into.mkdir()
    for file in sorted(folder.glob("*.csv")):
        raw = file.read_bytes()
        kind = next((kind for kind in KINDS if _is_of(raw, kind)), None)
        (into / file.name).write_bytes(made_complete(_read(file, kind), rules)[0] if kind is not None else raw)
    return into


def _is_of(raw: bytes, kind: Kind) -> bool:
    return {*kind.needed} <= {name.strip().lower() for name in raw.split(b"\n", 1)[0].decode().split(",")}


def _is_large(row: MeasuredRow) -> bool:
    return row.labels["size"] == ">=1MiB"


def error_table(table: Path) -> str:
    """Return the Markdown table of errors of the collectives in *table*."""
    fitted_to = machines_fitted_to()
    rows = [row for row in scored(table, COLLECTIVES) if not row.skipped]
    by_machine: dict[str, list[MeasuredRow]] = {}
    for row in rows:
        by_machine.setdefault(row.labels["machine"], []).append(row)
    groups = [
        ("all", Scores(rows).whole()),
        ("1 MiB and more", Scores(row for row in rows if _is_large(row)).whole()),
        ("less than 1 MiB", Scores(row for row in rows if not _is_large(row)).whole()),
        ("machines of the fit", Scores(row for row in rows if row.labels["machine"] in fitted_to).whole()),
        ("machines held out of it", Scores(row for row in rows if row.labels["machine"] not in fitted_to).whole()),
        (
            "**V100 cube mesh, held out**",
            Scores(r for name in CUBE_MESH for r in by_machine.get(name, ())).whole(),
        ),
    ]
    others = sorted(by_machine, key=lambda n: (-len(by_machine[n]), n))
    named = [name for name in others if len(by_machine[name]) >= _FEW_ROWS]
    few = [name for name in others if name not in named]
    for name in named:
        mark = "" if name in fitted_to else ", held out"
        groups.append((f"`{name}` ({_topology(by_machine[name][0])}{mark})", Scores(by_machine[name]).whole()))
    if few:
        rest = f"{len(few)} machines of fewer than {_FEW_ROWS} rows"
        groups.append((rest, Scores(row for name in few for row in by_machine[name]).whole()))
    return "\n".join([*_HEADER, *(_line(label, group) for label, group in groups)]) + "\n"


def _topology(row: MeasuredRow) -> str:
    assert row.asked is not None
    question = row.asked.question
    assert isinstance(question, CollectiveQuestion)
    return question.where.topology


def _line(label: str, group: ScoreGroup) -> str:
    errors, ring = group.errors, group.baseline
    figures = [percent(errors.median_ape), percent(errors.p90_ape), percent(errors.bias, "+")]
    figures += [percent(ring.median_ape), percent(ring.p90_ape)]
    return f"| {label} | {errors.n} | " + " | ".join(figures) + " |"


def operator_tables(table: Path, old: dict[str, str], *, leave_one_out: bool) -> dict[str, str]:
    """Return the Markdown tables ``operators`` and ``devices`` of errors of *table*.

    Their columns on devices left out of the fit come from new fits with *leave_one_out*, else from the tables *old*.
    """
    plain, calibrated = (scored(table, OPERATORS, calibrate, ("A",)) for calibrate in (0, 50))
    left = _left_out([table]) if leave_one_out else []
    return {
        what: operator_table(plain, calibrated, _left_out_by(left, place) if left else _kept(old.get(what, "")), axis)
        for what, axis, place in (("operators", "op", "op"), ("devices", "device", "place"))
    }


def _kept(table: str) -> dict[str, Cells]:
    """Return the cells on devices left out of the fit from the Markdown *table*, by the label of the line."""
    return {cells[0]: (cells[4], cells[5]) for cells in table_cells(table)}


def table_cells(table: str) -> list[list[str]]:
    """Return the cells of each line of the Markdown *table*, without its head."""
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()[2:]]


def accuracy_words(shown: Mapping[str, str]) -> str:
    """Return the README's words on accuracy: the blind record, then the first lines of the tables *shown*."""
    collectives, operators, steps = (table_cells(shown[what]) for what in ("errors", "operators", "steps"))
    blind = {event.name: event.whole for event in read_record(PROJECT) if event.whole is not None}
    fresh, kept = ([blind[f"{what}-{kind}"] for kind in BLIND_KINDS] for what in ("fresh", "kept-back"))
    of_fit = next(cells for cells in collectives if cells[0] == "machines of the fit")
    whole = collectives[0], operators[0], steps[0]
    text = (
        f"On sources that nobody had tuned to, half of the predictions were within {_listed(fresh, with_rows=True)}; "
        f"{_inside(fresh)} lay within their 80 % bands. On rows kept back of known sources: {_listed(kept)} "
        f"({_inside(kept)}). On published tables, with which constants and forms were chosen: {whole[0][2]} of "
        f"{int(whole[0][1]):,} collectives ({int(of_fit[1]):,} are of machines of the fit), {whole[1][2]} of "
        f"{int(whole[1][1]):,} operators of grade A ({whole[1][4]} on devices left out of the fit), {whole[2][2]} of "
        f"{int(whole[2][1]):,} training steps. [docs/accuracy.md](docs/accuracy.md) has every group, the worst named."
    )
    return textwrap.fill(text, 119, break_on_hyphens=False) + "\n"


BLIND_KINDS = {"collectives": "collectives", "operators": "operators", "steps": "training steps"}


def _listed(errors: Sequence[BlindErrors], *, with_rows: bool = False) -> str:
    """Return the medians of *errors*, of the kinds in :data:`BLIND_KINDS`, as words."""
    found = [
        percent(each.median) + (f" ({each.scored:,} {kind})" if with_rows else "")
        for each, kind in zip(errors, BLIND_KINDS.values(), strict=True)
    ]
    return f"{found[0]}, {found[1]} and {found[2]}"


def _inside(errors: Sequence[BlindErrors]) -> str:
    shares = [f"{100 * (each.inside or 0.0):.0f}" for each in errors]
    return f"{shares[0]}, {shares[1]} and {shares[2]} %"


def _left_out(tables: Sequence[Path], *options: str) -> list[dict[str, Any]]:
    """Return groups of errors from fits that leave out each device or machine in turn."""
    files = [str(table) for table in tables]
    jobs = str(os.cpu_count() or 1)
    words = ["validate", "fit", *files, *options, "--leave-one-out", "place", "--jobs", jobs, "--json", "--quiet"]
    errors: list[dict[str, Any]] = json.loads(printed(shlex.join(words)))["errors"]
    return [group for group in errors if group["rows"] == "place left out"]


def _left_out_by(groups: Sequence[dict[str, Any]], axis: str, op: str | None = None) -> dict[str, Cells]:
    """Return the cells of *groups* by the label of their line in a table along *axis*; only for *op* if given."""
    found: dict[str, Cells] = {}
    for group in groups:
        other = "place" if axis == "op" else "op"
        if group[other] == (None if axis == "op" else op):
            found[f"`{group[axis]}`" if group[axis] else "all"] = cells_of(Errors(**_figures(group)))
    return found


def _figures(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("rows", "op", "place")}


def nvidia_tables(old: dict[str, str], imported: Path | None) -> dict[str, str]:
    """Return the tables of errors on NVIDIA's measurements: products and attention by device, collectives by machine.

    *imported* is the folder written by ``validate import``, for new fits that leave out devices; None keeps their
    columns from the tables *old*.
    """
    found = {}
    files = sorted(BY_NVIDIA.glob("*/ops.csv"))
    both = [[row for file in files for row in scored(file, OPERATORS, calibrate)] for calibrate in (0, 50)]
    for what, op in (("nvidia-products", "linear"), ("nvidia-attention", "attention")):
        plain, calibrated = ([row for row in rows if row.labels["op"] == op] for rows in both)
        left = _kept(old.get(what, ""))
        if imported is not None:
            devices = sorted({row.labels["device"] for row in plain})
            tables = [imported / device / "ops.csv" for device in devices]
            left |= _left_out_by(_left_out(tables, "--only", NVIDIA_FAMILIES[op]), "place", op)
        found[what] = operator_table(plain, calibrated, left, "device")
    lines = ["| machine | rows | median | 90th percentile | bias | 1 MiB and more: median |", "|---|" + "--:|" * 5]
    for table in sorted(BY_NVIDIA.glob("*/collectives.csv")):
        rows = [row for row in scored(table, COLLECTIVES) if not row.skipped]
        name, all_ = rows[0].labels["machine"], Scores(rows).whole().errors
        large = Scores(row for row in rows if _is_large(row)).whole().errors
        mark = "" if name in machines_fitted_to() else ", held out"
        figures = [percent(all_.median_ape), percent(all_.p90_ape), percent(all_.bias, "+"), percent(large.median_ape)]
        lines.append(f"| `{name}`{mark} | {all_.n} | " + " | ".join(figures) + " |")
    return {**found, "nvidia-collectives": "\n".join(lines) + "\n"}


def own_step_tables(session: Session) -> dict[str, str]:
    """Return the tables of errors of the published steps in the project, and of those first predicted unseen.

    *session* answers the questions.
    """
    shown = {"own-steps": (PUBLISHED_STEPS, OWN_STEPS), "held-out": (HELD_OUT_STEPS, HELD_OUT)}
    return {what: step_table(_steps_in(file, session), lines) for what, (file, lines) in shown.items()}


def divided_table(rows: Sequence[MeasuredRow]) -> str:
    """Return the table of errors of steps over several devices, by data set."""
    names = dict.fromkeys(row.labels["dataset"] for row in rows if row.labels.get("ranks") in ("several", "divided"))
    lines = tuple(
        (f"`{name}`, {what}", {"dataset": name, "ranks": ranks}) for name in names for ranks, what in _RANKS.items()
    )
    there = [line for line in lines if any(_has(row, line[1]) and not row.skipped for row in rows)]
    return step_table(rows, (("all steps", {}), *there))


def _has(row: MeasuredRow, labels: Mapping[str, str]) -> bool:
    return all(row.labels.get(name) == value for name, value in labels.items())


def step_rows(folder: Path, session: Session) -> list[MeasuredRow]:
    """Return the scored steps of *folder*, with the predictions in ``baselines.csv`` if it has that file.

    *session* answers the questions.
    """
    baselines = folder / "baselines.csv"
    return _steps_in(folder / "training.csv", session, str(baselines) if baselines.is_file() else None)


def _steps_in(file: Path, session: Session, baselines: str | None = None) -> list[MeasuredRow]:
    scoring = Scoring(ScoringOptions(baselines=baselines))
    scoring.names = replace(scoring.names, session=session)
    return list(scoring.score(_read(file, STEPS), STEPS, ("A", "B")))


def question_digest(question: Question) -> str:
    """Return the key of *question* in the file of answers behind the tables (:data:`PREDICTED`).

    It is that of what the question says beyond the usual, so a new field changes no key.
    """
    return sha256(repr(_said(question)).encode()).hexdigest()[:12]


def _said(value: object) -> object:
    """Return the fields of *value*, and of what it holds, that differ from their defaults; other values as they are."""
    if not is_dataclass(value):
        return value
    own = {field.name: getattr(value, field.name) for field in fields(value)}
    return {f.name: _said(own[f.name]) for f in fields(value) if own[f.name] != f.default}


class _Listed(Session):
    """A session that answers nothing and records the questions about steps."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[StepQuestion] = []

    def time_s(self, question: Question) -> float:
        """Record *question* if it is about a step; always raises InputError."""
        if isinstance(question, StepQuestion):
            self.questions.append(question)
        raise InputError("listed")

    def bound_s(self, question: Question) -> float:
        """Always raise InputError."""
        raise InputError(f"listed: {type(question).__name__}")


@cache
def _answers_of_this_process() -> Answers:
    gc.set_threshold(100_000, 20, 20)  # the kept objects grow, and with them the time of each garbage collection
    return Answers()


def _answers_to(questions: Sequence[Question]) -> dict[str, float | str]:
    """Return the answers to *questions* by digest; runs in a worker process."""
    answers = _answers_of_this_process()
    for question in questions:
        with contextlib.suppress(InputError):
            answers.time_s(question)
    return {digest: answers.given[digest] for digest in map(question_digest, questions)}


class Answers(Session):
    """A session that keeps its answers by the digest of the question: seconds, or the reason why there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, float | str] = {}
        self.bounds: dict[str, float | str] = {}
        self.asked: set[str] = set()

    def time_s(self, question: Question) -> float:
        """Return the predicted time of *question*, in seconds; raises InputError."""
        digest = question_digest(question)
        self.asked.add(digest)
        if digest not in self.given:
            try:
                self.given[digest] = super().time_s(question)
            except InputError as error:
                self.given[digest] = str(error)
        found = self.given[digest]
        if isinstance(found, str):
            raise InputError(found)
        return found

    def bound_s(self, question: Question) -> float:
        """Return the time of *question* by the data sheet, in seconds; raises InputError."""
        digest = question_digest(question)
        if digest not in self.bounds:
            try:
                self.bounds[digest] = super().bound_s(question)
            except InputError as error:
                self.bounds[digest] = str(error)
        found = self.bounds[digest]
        if isinstance(found, str):
            raise InputError(found)
        return found

    def ask_together(self, folders: Sequence[Path]) -> None:
        """Answer the questions about the steps in the project and in *folders* on all cores.

        Questions about the same network on the same machine are answered in one process.
        """
        listed = _Listed()
        own_step_tables(listed)
        for folder in folders:
            step_rows(folder, listed)
        alike: dict[object, list[Question]] = {}
        for question in dict.fromkeys(listed.questions):
            alike.setdefault((question.workload, question.where), []).append(question)
        largest_first = sorted(alike.values(), key=lambda group: (-len(group), repr(group[0])))
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            for given in pool.map(_answers_to, largest_first):
                self.given |= given

    def written(self) -> str:
        """Return the questions asked so far as JSON, one per line: digest, answer, and bound (null if not asked)."""
        lines = (
            f"  {json.dumps(key)}: {json.dumps([self.given[key], self.bounds.get(key)])}" for key in sorted(self.asked)
        )
        return "{\n" + ",\n".join(lines) + "\n}\n"


def trust_json(rows: Sequence[MeasuredRow]) -> str:
    """Return errors of steps as JSON, by processor, family, format, and whether several devices share or divide it.

    For software before 2019, only the fastest framework counts.
    """
    formats = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half", "fp8": "fp8"}
    groups: dict[tuple[str, str, str, bool, bool], list[MeasuredRow]] = {}
    for row in rows:
        labels = row.labels
        counts = labels.get("era") == "since 2019" or labels.get("framework_rank") == "best"
        if row.skipped or not labels.get("processor") or not counts or labels.get("dtype") not in formats:
            continue
        if labels["family"] in get_args(Family):
            kind, ranks = (labels["processor"], labels["family"], formats[labels["dtype"]]), labels["ranks"]
            key = *kind, ranks != "one", ranks == "divided"
            groups.setdefault(key, []).append(row)
    entries = []
    for key, members in sorted(groups.items(), key=lambda item: (item[0][0] != "GPU", item[0][3:], item[0])):
        errors = Scores(members).whole().errors
        figures = {"median": errors.median_ape, "p90": errors.p90_ape, "bias": errors.bias}
        rounded = {name: round(value, 3) for name, value in figures.items()}
        early = sum(row.labels.get("era") == "before 2019" for row in members)
        processor, family, form, several, divided = key
        what = {"processor": processor, "family": family, "format": form, "several": several, "divided": divided}
        entries.append({**what, "rows": errors.n, "early_rows": early, **rounded})
    return "[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in entries) + "\n]\n"


def tables(
    folder: Path, old: dict[str, str], answers: Answers, *, leave_one_out: bool = False, second: Path | None = None
) -> dict[str, str]:
    """Return the tables of errors on the measurements in *folder*, by the name of their marker.

    *second* is a folder with more measurements, for the table of steps over several devices.  *answers* answers
    questions about steps.

    It also writes the errors of steps to :data:`TRUST`, from which the program reports the trust in an answer, and the
    predictions to :data:`PREDICTED`.
    """
    found = {}
    if (folder / "collectives.csv").is_file():
        found["errors"] = error_table(folder / "collectives.csv")
    if (folder / "ops.csv").is_file():
        found |= operator_tables(folder / "ops.csv", old, leave_one_out=leave_one_out)
    if (folder / "training.csv").is_file():
        rows = step_rows(folder, answers)
        PREDICTED.write_text(answers.written(), encoding="utf-8")
        found |= {"steps": step_table(rows, SHOWN_STEPS), "published": published_table(rows)}
        found |= {"step-parts": step_table(rows, STEP_PARTS), "unscored": unscored_table(rows)}
        TRUST.write_text(trust_json(rows), encoding="utf-8")
        if second is not None:
            found["divided"] = divided_table([*rows, *step_rows(second, answers)])
    return found


def main(arguments: Sequence[str]) -> int:
    """Rewrite the documents, by the command line's *arguments*; return the exit status 0."""
    for variable in ("COLUMNS", "FORCE_COLOR"):
        os.environ.pop(variable, None)
    parser = argparse.ArgumentParser(description="Write anew what the documents show of the program.")
    parser.add_argument("folder", nargs="?", type=Path, help="of measurements; TOPOCAST_CORPUS if not said")
    parser.add_argument("--leave-one-out", action="store_true", help="fit without each device in turn")
    parser.add_argument("--second", metavar="DIR", type=Path, help="more measurements of steps over several devices")
    parser.add_argument("--imported", metavar="DIR", type=Path, help="what validate import wrote")
    asked = parser.parse_args(arguments)
    imported: Path | None = asked.imported
    variable = os.environ.get("TOPOCAST_CORPUS")
    folder: Path | None = asked.folder or (Path(variable) if variable else None)
    second: Path | None = asked.second
    complete = tempfile.TemporaryDirectory()
    folder = folder and completed_folder(folder, Path(complete.name) / "first")
    second = second and completed_folder(second, Path(complete.name) / "second")
    old = {m["what"]: m["body"] for path in documents() for m in _MARKED.finditer(path.read_text(encoding="utf-8"))}
    answers = Answers()
    answers.ask_together([each for each in (folder, second) if each and (each / "training.csv").is_file()])
    new_tables = nvidia_tables(old, imported) | own_step_tables(answers)
    if folder is not None:
        new_tables |= tables(folder, old, answers, leave_one_out=asked.leave_one_out, second=second)
    new_tables |= {"accuracy": accuracy_words(old | new_tables), "constants": constants_words()}
    for path in documents():
        before = path.read_text(encoding="utf-8")
        after = _MARKED.sub(lambda m: f"{m[1]}{new_tables.get(m['what'], m['body'])}{m[4]}", with_outputs(before))
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    with contextlib.chdir(ROOT):
        for picture in PICTURES:
            printed(picture)
    for pages in ("docs.make_pages", "docs.make_options", "docs.make_launch_options"):
        subprocess.run([sys.executable, "-m", pages], cwd=ROOT, check=True)
    if folder is None:
        sys.stdout.write("the tables of errors stay as they were: name the folder of measurements (TOPOCAST_CORPUS)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
