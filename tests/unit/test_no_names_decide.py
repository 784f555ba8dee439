"""No name of a data set, its machine or its publisher affects a prediction: only columns do.

Names are looked for in programs and in the data that they read, and tables are read under other names.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.records import replace
from validate.kinds import KINDS
from validate.kinds.kind import Kind, every_row, read_measurements
from validate.tables.names import DeviceNames, MachineNames, RowNames, machines_named
from validate.tables.table import NAMES, PUBLISHED, Table, conventions_of, general, read_table

ROOT = Path(__file__).resolve().parents[2]
# Files that read tables document their conventions with sources; importers and the measuring code make tables.
READERS = ("validate/importing/", "validate/cli/import_.py", "validate/machine/measure/run.py")
# What fills columns of published tables, with sources, before they are read; and what was measured, for readers.
COMPLETING = ("validate/tables/published.yaml", "validate/measurements/", "validate/blind/")
# What data say of where a figure is from, which nothing is decided by.
PROSE = ("source", "evidence", "description", "meaning", "note", "origin", "why", "because", "reason", "comment")
PUBLISHERS = ("neusight", "deepbench", "superbench", "llm-foundry", "llmfoundry", "dlperf", "aiconfigurator", "habitat")


def code() -> Iterator[tuple[str, int, str]]:
    """Yield file, line number and code of everything that can affect a prediction: with strings, without comments."""
    for top in ("simulator", "validate"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name.startswith(READERS):
                continue
            text = re.sub(r'"""(?:.|\n)*?"""', lambda match: "\n" * match[0].count("\n"), path.read_text("utf-8"))
            for number, line in enumerate(text.splitlines(), start=1):
                yield name, number, line.split("  #")[0].lower()


def test_publishers_are_named_where_tables_are_read_alone() -> None:
    shown_of_a_network = re.compile(r"\(r?\"[^\"]*\", \"[^\"]*\"\)")  # (name, what the list of networks says of it)
    found = [
        (name, number, word)
        for name, number, line in code()
        for word in PUBLISHERS
        if word in shown_of_a_network.sub("", line)
    ]
    assert found == []


def names_in(folder: Path) -> set[str]:
    """Return the names of data sets in the tables under *folder*."""
    found: set[str] = set()
    for table in folder.rglob("*.csv"):
        with table.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                found.update((row.get("dataset") or "").lower().split(";"))
    return {name.strip() for name in found if "_" in name}


def test_no_data_set_of_the_project_is_named() -> None:
    check_not_named(names_in(ROOT / "validate" / "measurements"))


@pytest.mark.slow
@pytest.mark.corpus
def test_no_published_data_set_is_named(corpus: Path) -> None:
    check_not_named(names_in(corpus))


def check_not_named(names: set[str]) -> None:
    assert names
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)))
    assert [(name, number, match[0]) for name, number, line in code() for match in pattern.finditer(line)] == []
    assert [(name, text, match[0]) for name, text in data() for match in pattern.finditer(text.lower())] == []


# -- in data -----------------------------------------------------------------------------


def data() -> Iterator[tuple[str, str]]:
    """Yield file and text of every key and value in data files that may affect a prediction."""
    found = []
    for top in ("simulator", "validate"):
        for path in sorted((ROOT / top).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".yaml", ".json") and not name.startswith(COMPLETING):
                text = path.read_text(encoding="utf-8")
                found.append(name)
                read = json.loads(text) if path.suffix == ".json" else list(yaml.safe_load_all(text))
                yield from ((name, each) for each in texts(read))
    assert "validate/tables/conventions.yaml" in found
    assert any(name.endswith(".json") for name in found)


def texts(node: Any) -> Iterator[str]:
    """Yield the keys and values under *node*, without prose."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            if str(key) not in PROSE:
                yield from texts(value)
    elif isinstance(node, list):
        for each in node:
            yield from texts(each)
    else:
        yield str(node)


def test_conventions_of_every_table_look_at_no_name() -> None:
    looked_at = {
        (kind, column, looked)
        for kind, by_column in general().items()
        for column, rules in by_column.items()
        for rule in rules
        for looked in rule.looks_at() & NAMES
    }
    assert looked_at == set()
    assert any(rule.looks_at() & NAMES for rule in conventions_of(PUBLISHED)["training"]["policy"])


# -- by renaming -------------------------------------------------------------------------


def named_otherwise(table: Table, kind: Kind) -> Table:
    """Return *table* with other texts in the columns that say whose a row is."""
    changed = {table.position[name] for name in NAMES - {*kind.asked} if name in table.position}
    rows = [table.header, *([_other(at, text, changed) for at, text in enumerate(row.fields)] for row in table.rows)]
    raw = "\n".join(",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) for row in rows)
    return read_table(raw.encode(), table.file, (), kind.columns, kind.name)


def _other(at: int, text: str, changed: set[int]) -> str:
    return "mine" if at in changed else text


def check_renamed(files: Sequence[Path], each: int = 1) -> None:
    """Every row of *files*, or one in *each*, asks the same, whatever its data set is called."""
    n = 0
    for file in files:
        table, kind = read_measurements(str(file), KINDS)
        table, names = replace(table, rows=table.rows[::each]), RowNames(folder=str(file.parent))
        before, after = every_row(table, kind, names), every_row(named_otherwise(table, kind), kind, names)
        for row, renamed in zip(before, after, strict=True):
            n += 1
            assert (row.asked, row.digest) == (renamed.asked, renamed.digest), (file.name, row.line)
    assert n


def test_a_renamed_table_of_the_project_asks_the_same() -> None:
    files = sorted((ROOT / "validate" / "measurements").rglob("*.csv"))
    check_renamed([file for file in files if file.name in ("training.csv", "held-out.csv", "collectives.csv")])


@pytest.mark.slow
@pytest.mark.corpus
def test_a_renamed_published_table_asks_the_same(corpus: Path) -> None:
    check_renamed(
        [file for file in corpus.parent.glob("*/*.csv") if file.stem in ("collectives", "ops", "training")], 10
    )


def test_a_machine_by_another_name_is_predicted_the_same() -> None:
    """The same topology under a name of the user's own: a DGX H100 and a GB200, whose names recipes go by."""
    cells = (
        "framework,software,model,dtype,batch_per_gpu,global_batch,micro_batch,seq_len,n_gpus,n_nodes,sync,tp,pp,ep,t"
    )
    rows = [
        "megatron-bridge,26.02,deepseek-v3,fp8,8,8192,1,4096,1024,128,nccl,2,8,64,10",
        "megatron-bridge,26.04,qwen3-30b-a3b,bf16,64,512,4,4096,8,1,nccl,1,1,8,10",
        "mlperf,v5.0,llama2-70b-lora,fp8,1,8,1,8192,8,1,nccl,4,1,1,1",
        "pytorch,pytorch 1.13,ncf,fp16,1000000,8000000,,,4,1,ddp,,,,1",
    ]
    steps = next(kind for kind in KINDS if kind.name == "training")
    for machine in ("dgx-h100", "gb200-nvl72", "dgx-b200"):
        asked = []
        for name in (machine, "mine"):
            raw = "\n".join([f"machine,{cells}", *(f"{name},{row}" for row in rows)])
            table = read_table(raw.encode(), "t.csv", (), steps.columns, steps.name)
            names = RowNames(MachineNames(None, machines_named([f"mine={machine}"])), DeviceNames())
            asked.append([row.asked for row in every_row(table, steps, names)])
        assert asked[0] == asked[1]
        assert sum(each is not None for each in asked[0]) >= 3
