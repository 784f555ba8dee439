"""Write anew what the documents show of the program: outputs of commands, the picture, the table of errors.

``python docs/make_tables.py [FOLDER] [--leave-one-out] [--imported DIR]`` rewrites README.md and docs/*.md in place.
The tables of errors need the measurements: collectives.csv, ops.csv, training.csv and baselines.csv in
FOLDER, or in the folder that TOPOSIM_CORPUS names; without either they stay as they are, and that is said.
The columns of devices left out of the fit need ``--leave-one-out``, which fits for minutes (it is
``validate fit ops.csv --leave-one-device-out``); without it they stay as they are.

In the documents

* a ``console`` block starts with ``$ simulate ...`` or ``$ validate ...`` and goes on with
  what that prints;
* a comment ``<!-- file: NAME -->`` before a block makes the block a file that commands can read;
* the tables of errors stand between ``<!-- errors -->`` and ``<!-- /errors -->``, and likewise those of
  operators, devices, steps and published predictors, and those of the measurements that are part of the
  project (validate/measurements/), which need no folder.  What these show of devices left out of the fit needs
  ``--imported DIR``, what ``validate import`` wrote.

``tests/unit/test_docs.py`` fails where a document shows something else than the program.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from simulator.cli import run as simulate
from simulator.console.run import run_app
from simulator.strategies.nccl.cost import FITTED_TO
from validate.cli import app as validate_app
from validate.collectives.scorer import COLLECTIVES, LARGE_BYTES, CollectiveScorer
from validate.operators.devices import DeviceBook
from validate.operators.scorer import OPERATORS, OperatorScorer
from validate.score.groups import Group, whole
from validate.score.machines import MachineBook
from validate.score.markdown import operator_table, percent, published_table, step_table
from validate.score.score import ScoredRow, score_table
from validate.score.table import read_table
from validate.training.kind import TRAINING
from validate.training.published import read_published
from validate.training.scorer import TrainingScorer

ROOT = Path(__file__).resolve().parent.parent
TRUST = ROOT / "simulator" / "results" / "trust.json"
PUBLISHED_STEPS = ROOT / "validate" / "measurements" / "published-steps" / "training.csv"
BY_NVIDIA = ROOT / "validate" / "measurements" / "published-nvidia"
PICTURES = (
    "simulate --topology p3.16xlarge --plot docs/images/p3.16xlarge.svg",
    "simulate --topology p3.2xlarge --workload resnet50 --batch 128 --plot docs/images/step.svg",
)
# The machines of the V100 cube mesh; docs/decisions/nccl-costs.md.
CUBE_MESH = ("vtrain-8xv100-cube-mesh", "8xv100-sxm2-16gb-cube-mesh", "oci-bm.gpu3.8")  # one node each
_FEW_ROWS = 10
NVIDIA_FAMILIES = {"linear": "tensor_product", "attention": "attention"}  # of cost models, by what was measured
# What the table of steps shows: rows that have these labels.
_GPU = {"processor": "GPU"}
STEPS: tuple[tuple[str, dict[str, str]], ...] = (
    ("transformers in fp32, eager PyTorch (NeuSight)", {"dataset": "neusight_model_latency"}),
    ("transformers since 2019", {**_GPU, "family": "transformer", "era": "since 2019"}),
    ("CNNs since 2019", {**_GPU, "family": "CNN", "era": "since 2019"}),
    *(
        (f"CNNs before 2019, {which}", {**_GPU, "family": "CNN", "era": "before 2019", "framework_rank": rank})
        for rank, which in (("best", "the fastest framework of each"), ("other", "the other frameworks"))
    ),
    ("any network on several GPUs, each with a copy (DDP) or a share (FSDP)", {**_GPU, "ranks": "several"}),
    ("any network on CPUs before 2019, the fastest framework", {"processor": "CPU", "framework_rank": "best"}),
)
# Of the published steps that are part of the project.
OWN_STEPS: tuple[tuple[str, dict[str, str]], ...] = (
    ("MPT, 0.8 to 70 billion parameters, FSDP over 8 to 64 H100", {"dataset": "llmfoundry_mpt_h100"}),
    ("GPT-2 on one A100, fp32 to bf16, eager to compiled", {"dataset": "build_nanogpt"}),
)
_FILE = r"(?:<!-- file: (?P<file>\S+) -->\n+)?"
_BLOCK = re.compile(_FILE + r"```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"(<!-- (?P<what>[\w-]+) -->\n)(?P<body>.*?)(<!-- /(?P=what) -->)", re.DOTALL)
_HEADER = (
    "| measurements of | rows | median | 90th percentile | bias | ring: median | ring: 90th percentile |",
    "|---|--:|--:|--:|--:|--:|--:|",
)


def documents() -> list[Path]:
    """Return the documents that are kept up to date."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, name of its file or nothing, content) of each fenced block of *text*."""
    for match in _BLOCK.finditer(text):
        yield match["kind"], match["file"] or "", match["body"]


def write_files(text: str, folder: Path) -> None:
    """Write the blocks of *text* that are files into *folder*."""
    for _, name, body in blocks(text):
        if name:
            (folder / name).write_text(body, encoding="utf-8")


def printed(command: str) -> str:
    """Run *command* (``simulate ...`` or ``validate ...``) here and return what it prints on both streams."""
    words = shlex.split(command, comments=True)
    program = words[0].rpartition("/")[2]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = simulate(words[1:]) if program == "simulate" else run_app(validate_app, "validate", words[1:])
    return output.getvalue() + (f"[exit {status}]\n" if status else "")


def with_outputs(text: str) -> str:
    """Return the document *text* with what its commands print now."""

    def anew(match: re.Match[str]) -> str:
        if match["kind"] != "console":
            return match[0]
        first = match["body"].split("\n", 1)[0]
        shown = printed(first.removeprefix("$ "))
        return f"```console\n{first}\n" + "".join(f"{line.rstrip()}\n" for line in shown.splitlines()) + "```"

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(text, Path(folder))
        return _BLOCK.sub(anew, text)


def error_table(table: Path) -> str:
    """Return the table of errors of the measurements *table*, as Markdown."""
    book = MachineBook()
    read = read_table(table.read_bytes(), table.name, COLLECTIVES.needed, COLLECTIVES.read)
    rows = score_table(read, CollectiveScorer(book), ["A", "B"])
    scored = [row for row in rows if not row.skipped]
    by_machine: dict[str, list[ScoredRow]] = {}
    for row in scored:
        by_machine.setdefault(row.labels["machine"], []).append(row)
    groups = [
        ("all", whole(scored)),
        ("1 MiB and more", whole([r for r in scored if r.query and r.query.size_bytes >= LARGE_BYTES])),
        ("less than 1 MiB", whole([r for r in scored if r.query and r.query.size_bytes < LARGE_BYTES])),
        ("machines of the fit", whole([r for r in scored if r.labels["machine"] in FITTED_TO])),
        ("machines held out of it", whole([r for r in scored if r.labels["machine"] not in FITTED_TO])),
        ("**V100 cube mesh, held out**", whole([r for name in CUBE_MESH for r in by_machine.get(name, ())])),
    ]
    others = sorted(by_machine, key=lambda n: (-len(by_machine[n]), n))
    named = [name for name in others if len(by_machine[name]) >= _FEW_ROWS]
    few = [name for name in others if name not in named]
    for name in named:
        mark = "" if name in FITTED_TO else ", held out"
        groups.append((f"`{name}` ({book.topology(name)}{mark})", whole(by_machine[name])))
    if few:
        rest = f"{len(few)} machines of fewer than {_FEW_ROWS} rows"
        groups.append((rest, whole([row for name in few for row in by_machine[name]])))
    return "\n".join([*_HEADER, *(_line(label, group) for label, group in groups)]) + "\n"


def _line(label: str, group: Group) -> str:
    errors, ring = group.errors, group.baseline
    figures = [percent(errors.median_ape), percent(errors.p90_ape), percent(errors.bias, "+")]
    figures += [percent(ring.median_ape), percent(ring.p90_ape)]
    return f"| {label} | {errors.n} | " + " | ".join(figures) + " |"


def operator_tables(table: Path, old: dict[str, str], *, leave_one_out: bool) -> dict[str, str]:
    """Return the tables of operators and of devices; *old* are those that are there."""
    read = read_table(table.read_bytes(), table.name, OPERATORS.needed, OPERATORS.read, OPERATORS.name)
    plain = score_table(read, OperatorScorer(DeviceBook()), ["A"])
    calibrated = score_table(read, OperatorScorer(DeviceBook(), calibrate=50), ["A"])
    left: dict[str, dict[str, tuple[str, str]]] = {
        what: {cells[0]: (cells[4], cells[5]) for cells in _cells(old.get(what, ""))}
        for what in ("operators", "devices")
    }
    if leave_one_out:
        left = _left_out(table)
    return {
        what: operator_table(plain, calibrated, left[what], axis)
        for what, axis in (("operators", "op"), ("devices", "device"))
    }


def _cells(table: str) -> list[list[str]]:
    """Return the cells of the rows of a Markdown *table* below its head."""
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()[2:]]


def _left_out(table: Path) -> dict[str, dict[str, tuple[str, str]]]:
    """Return median and mean error of fits without the device, by operator and by device."""
    shown = printed(f"validate fit {shlex.quote(str(table))} --leave-one-device-out --jobs 2 --json --quiet")
    found: dict[str, dict[str, tuple[str, str]]] = {"operators": {}, "devices": {}}
    for name, errors in json.loads(shown)["left_out"].items():
        axis, _, label = name.partition(" ")
        cells = percent(errors["median_ape"]), percent(errors["mean_ape"])
        for what in [{"op": "operators", "device": "devices"}[axis]] if label else list(found):
            found[what][f"`{label}`" if label else "all"] = cells
    return found


def nvidia_tables(old: dict[str, str], imported: Path | None) -> dict[str, str]:
    """Return the tables of errors of what NVIDIA measured: products and attention by device, collectives by machine."""
    found = {}
    files = sorted(BY_NVIDIA.glob("*/ops.csv"))
    scored = [[row for file in files for row in _scored_operators(file, calibrate)] for calibrate in (0, 50)]
    for what, op in (("nvidia-products", "linear"), ("nvidia-attention", "attention")):
        plain, calibrated = ([row for row in rows if row.labels["op"] == op] for rows in scored)
        left = {cells[0]: (cells[4], cells[5]) for cells in _cells(old.get(what, ""))}
        if imported is not None:
            left = _left_out_of_nvidia(imported, [row.labels["device"] for row in plain], op, left)
        found[what] = operator_table(plain, calibrated, left, "device")
    lines = ["| machine | rows | median | 90th percentile | bias | 1 MiB and more: median |", "|---|" + "--:|" * 5]
    book = MachineBook()
    for table in sorted(BY_NVIDIA.glob("*/collectives.csv")):
        read = read_table(table.read_bytes(), table.name, COLLECTIVES.needed, COLLECTIVES.read)
        rows = [row for row in score_table(read, CollectiveScorer(book), ["A", "B"]) if not row.skipped]
        large = [row for row in rows if row.query and row.query.size_bytes >= LARGE_BYTES]
        name, all_, few = rows[0].labels["machine"], whole(rows).errors, whole(large).errors
        mark = "" if name in FITTED_TO else ", held out"
        figures = [percent(all_.median_ape), percent(all_.p90_ape), percent(all_.bias, "+"), percent(few.median_ape)]
        lines.append(f"| `{name}`{mark} | {all_.n} | " + " | ".join(figures) + " |")
    return {**found, "nvidia-collectives": "\n".join(lines) + "\n"}


def own_step_table() -> str:
    """Return the table of errors of the published steps that are part of the project."""
    read = read_table(PUBLISHED_STEPS.read_bytes(), PUBLISHED_STEPS.name, TRAINING.needed, TRAINING.read, TRAINING.name)
    return step_table(score_table(read, TrainingScorer(MachineBook(), {}, {}), ["A", "B"]), OWN_STEPS)


def _scored_operators(table: Path, calibrate: int) -> list[ScoredRow]:
    read = read_table(table.read_bytes(), table.name, OPERATORS.needed, OPERATORS.read, OPERATORS.name)
    return score_table(read, OperatorScorer(DeviceBook(), calibrate=calibrate), ["A", "B"])


def _left_out_of_nvidia(
    imported: Path, devices: Sequence[str], op: str, old: dict[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Return median and mean error of fits without the device, on all of its published shapes."""
    family = NVIDIA_FAMILIES[op]
    files = " ".join(shlex.quote(str(imported / device / "ops.csv")) for device in sorted(set(devices)))
    shown = printed(f"validate fit {files} --only {family} --leave-one-device-out --jobs 2 --json --quiet")
    left = json.loads(shown)["left_out"]
    names = {**{f"`{device}`": f"device {device}" for device in devices}, "all": "all"}
    return old | {
        label: (percent(left[name]["median_ape"]), percent(left[name]["mean_ape"])) for label, name in names.items()
    }


def step_tables(folder: Path) -> dict[str, str]:
    """Return the table of errors of steps, and that of published predictors beside."""
    table = folder / "training.csv"
    read = read_table(table.read_bytes(), table.name, TRAINING.needed, TRAINING.read, TRAINING.name)
    baselines = folder / "baselines.csv"
    published = read_published(str(baselines)) if baselines.is_file() else {}
    rows = score_table(read, TrainingScorer(MachineBook(), {}, published), ["A", "B"])
    TRUST.write_text(trust_json(rows), encoding="utf-8")
    return {"steps": step_table(rows, STEPS), "published": published_table(rows)}


def trust_json(rows: Sequence[ScoredRow]) -> str:
    """Return the errors of steps by processor, family and format, of software since 2019 or the best before."""
    formats = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half"}
    groups: dict[tuple[str, str, str], list[ScoredRow]] = {}
    for row in rows:
        labels = row.labels
        counts = labels.get("era") == "since 2019" or labels.get("framework_rank") == "best"
        if row.skipped or not labels.get("processor") or not counts or labels.get("dtype") not in formats:
            continue
        if labels["family"] in ("CNN", "transformer"):
            key = labels["processor"], labels["family"], formats[labels["dtype"]]
            groups.setdefault(key, []).append(row)
    entries = []
    for (processor, family, form), members in sorted(groups.items(), key=lambda item: (item[0][0] != "GPU", item[0])):
        errors = whole(members).errors
        figures = {"median": errors.median_ape, "p90": errors.p90_ape, "bias": errors.bias}
        rounded = {name: round(value, 3) for name, value in figures.items()}
        early = sum(row.labels.get("era") == "before 2019" for row in members)
        what = {"processor": processor, "family": family, "format": form}
        entries.append({**what, "rows": errors.n, "early_rows": early, **rounded})
    return "[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in entries) + "\n]\n"


def tables(folder: Path, old: dict[str, str], *, leave_one_out: bool = False) -> dict[str, str]:
    """Return the tables of errors that the measurements in *folder* give, by the name of their place."""
    found = {}
    if (folder / "collectives.csv").is_file():
        found["errors"] = error_table(folder / "collectives.csv")
    if (folder / "ops.csv").is_file():
        found |= operator_tables(folder / "ops.csv", old, leave_one_out=leave_one_out)
    if (folder / "training.csv").is_file():
        found |= step_tables(folder)
    return found


def main(arguments: Sequence[str]) -> int:
    """Rewrite the documents; *arguments* may name the folder of measurements."""
    for variable in ("COLUMNS", "FORCE_COLOR"):
        os.environ.pop(variable, None)
    parser = argparse.ArgumentParser(description="Write anew what the documents show of the program.")
    parser.add_argument("folder", nargs="?", type=Path, help="of measurements; TOPOSIM_CORPUS if not said")
    parser.add_argument("--leave-one-out", action="store_true", help="fit without each device in turn")
    parser.add_argument("--imported", metavar="DIR", type=Path, help="what validate import wrote")
    asked = parser.parse_args(arguments)
    imported: Path | None = asked.imported
    variable = os.environ.get("TOPOSIM_CORPUS")
    folder: Path | None = asked.folder or (Path(variable) if variable else None)
    old = {m["what"]: m["body"] for path in documents() for m in _MARKED.finditer(path.read_text(encoding="utf-8"))}
    new_tables = nvidia_tables(old, imported) | {"own-steps": own_step_table()}
    if folder is not None:
        new_tables |= tables(folder, old, leave_one_out=asked.leave_one_out)
    for path in documents():
        before = path.read_text(encoding="utf-8")
        after = _MARKED.sub(lambda m: f"{m[1]}{new_tables.get(m['what'], m['body'])}{m[4]}", with_outputs(before))
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    with contextlib.chdir(ROOT):
        for picture in PICTURES:
            printed(picture)
    if folder is None:
        sys.stdout.write("the tables of errors stay as they were: name the folder of measurements (TOPOSIM_CORPUS)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
