"""Write anew what the documents show of the program: outputs of commands, the picture, the table of errors.

``python docs/make_tables.py [COLLECTIVES.csv]`` rewrites README.md and docs/*.md in place.
The table of errors needs the measurements: their file is the argument, or collectives.csv in
the folder that TOPOSIM_CORPUS names; without either it stays as it is, and that is said.

In the documents

* a ``console`` block starts with ``$ simulate ...`` or ``$ validate ...`` and goes on with
  what that prints;
* a comment ``<!-- file: NAME -->`` before a block makes the block a file that commands can read;
* the table of errors stands between ``<!-- errors -->`` and ``<!-- /errors -->``.

``tests/unit/test_docs.py`` fails where a document shows something else than the program.
"""

from __future__ import annotations

import contextlib
import io
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
from validate.score.collectives import COLLECTIVES, LARGE_BYTES, CollectiveScorer
from validate.score.groups import Group, whole
from validate.score.machines import MachineBook
from validate.score.score import ScoredRow, score_table
from validate.score.table import read_table

ROOT = Path(__file__).resolve().parent.parent
PICTURE = "simulate --topology p3.16xlarge --plot docs/images/p3.16xlarge.svg"
# The machines of the V100 cube mesh; docs/decisions/nccl-costs.md.
CUBE_MESH = ("vtrain-8xv100-cube-mesh", "8xv100-sxm2-16gb-cube-mesh", "oci-bm.gpu3.8")  # one node each
_FEW_ROWS = 10
_FILE = r"(?:<!-- file: (?P<file>\S+) -->\n+)?"
_BLOCK = re.compile(_FILE + r"```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_ERRORS = re.compile(r"(<!-- errors -->\n).*?(<!-- /errors -->)", re.DOTALL)
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
    figures = [_percent(errors.median_ape), _percent(errors.p90_ape), _percent(errors.bias, "+")]
    figures += [_percent(ring.median_ape), _percent(ring.p90_ape)]
    return f"| {label} | {errors.n} | " + " | ".join(figures) + " |"


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value * 100:{sign}.1f} %"


def main(arguments: Sequence[str]) -> int:
    """Rewrite the documents; *arguments* may name the table of measurements."""
    for variable in ("COLUMNS", "FORCE_COLOR"):
        os.environ.pop(variable, None)
    folder = os.environ.get("TOPOSIM_CORPUS")
    table = Path(arguments[0]) if arguments else Path(folder) / "collectives.csv" if folder else None
    for path in documents():
        old = path.read_text(encoding="utf-8")
        new = with_outputs(old)
        if table is not None and _ERRORS.search(new):
            errors = error_table(table)
            new = _ERRORS.sub(lambda match, errors=errors: match[1] + errors + match[2], new)
        if new != old:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    with contextlib.chdir(ROOT):
        printed(PICTURE)
    if table is None:
        sys.stdout.write("the table of errors stays as it was: name collectives.csv, or its folder by TOPOSIM_CORPUS\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
