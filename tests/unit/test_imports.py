"""No file imports itself, however far round; what is imported late is listed, and saves something."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("simulator", "validate", "reports")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def modules() -> dict[str, list[ast.AST]]:
    """Return the statements of every module in which anything is imported, by its name."""
    found = {}
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = parsed(path.read_text(encoding="utf-8"))
    return found


def parsed(source: str) -> list[ast.AST]:
    lines = source.splitlines()
    nodes = ast.parse(source).body
    return [node for node in nodes if any("import " in line for line in lines[node.lineno - 1 : node.end_lineno])]


@cache
def imported(name: str, *, head: bool) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return :func:`below` of one of our modules: several tests look at all of them."""
    return tuple(below(modules()[name], head=head))


def below(nodes: Iterable[ast.AST], *, head: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports in *nodes*; with *head*, those that run when the module is loaded."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse if head else [*node.body, *node.orelse]
        elif not isinstance(node, ast.expr) and not (head and isinstance(node, FUNCTIONS)):
            waiting += ast.iter_child_nodes(node)


def targets(node: ast.Import | ast.ImportFrom, known: Mapping[str, object]) -> list[str]:
    """Return the modules that *node* imports; of the *known* ones also those that it names as parts of a package."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "imports name their module in full"
    assert node.module is not None
    names = (f"{node.module}.{alias.name}" for alias in node.names)
    return [name if name in known else node.module for name in names]


def imports_of(nodes: Iterable[ast.AST], known: Mapping[str, object]) -> set[str]:
    """Return the *known* modules that are imported in *nodes*."""
    return {name for node in below(nodes, head=False) for name in targets(node, known) if name in known}


# -- circles -----------------------------------------------------------------------------


def circle_of(files: Mapping[str, list[ast.AST]]) -> list[str]:
    """Return modules that import each other in this order, first and last the same; empty if there are none."""
    try:
        TopologicalSorter({name: imports_of(nodes, files) for name, nodes in files.items()}).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_circle_of_files() -> None:
    """Imports in functions and for types alone count."""
    circle = circle_of(modules())
    assert not circle, f"these files import each other in a circle: {' -> '.join(circle)}"


def test_circles_of_local_and_type_imports_are_found() -> None:
    first = "def f():\n    from room.second import g\n"
    second = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import room.third\n"
    third = "from room import first\n"
    sources = {"room": "", "room.first": first, "room.second": second, "room.third": third}
    files = {name: parsed(text) for name, text in sources.items()}
    found = circle_of(files)
    assert {*found} == {"room.first", "room.second", "room.third"}
    assert all(there in imports_of(files[here], files) for here, there in pairwise(found))


# -- imports in functions ----------------------------------------------------------------

# Modules, or all below a package, that import in functions, and what that saves.
LATE = {
    "simulator.__init__": "import simulator loads no more than the names that are used",
    "simulator.api.advice": "most steps have no input pipeline",
    "simulator.api.context": "exchanges need no device models, no networks and no tables of NCCL's",
    "simulator.api.session": "exchanges need no device models; steps, programs and single operations load their own",
    "simulator.cli": "a command loads what it runs; help, completion and refusals come at once",
    "simulator.collectives.communicator": "a single machine has no trees of machines",
    "simulator.collectives.nccl": "few questions ask for all-to-all, none of a step without experts",
    "simulator.collectives.registry": "a strategy is loaded when it is named; packages are looked through for others",
    "simulator.console": "rich and click are loaded to print errors and progress alone",
    "simulator.devices.predict": "few devices have measured neighbours",
    "simulator.__main__": "an interrupt while modules are imported is told in a line",
    "simulator.python": "torch modules load what traces them",
    "simulator.api.steps": "most steps have neither pipeline stages nor parameter servers",
    "simulator.training": "most layouts divide no tensors, shards or stages; few steps name slow devices",
    "simulator.records": "the zoo reads JSON, and needs nothing but the standard library",
    "simulator.results.confidence": "exchanges need no kernels and no options of steps",
    "simulator.results.reason": "exchanges need no views of steps, which load device models",
    "simulator.step": "most steps have no experts, and run on GPUs",
    "simulator.topology.catalogue": "the folder of built-in machines is found when one is named",
    "simulator.workload.find": "the zoo, YAML and Hugging Face are read for networks that are there",
    "simulator.workload.parse": "sizes need no networks",
    "simulator.workload.torch_import": "torch need not be installed",
    "simulator.workload.zoo.registry": "a network of the zoo needs the code of no other",
    "validate.__main__": "an interrupt while modules are imported is told in a line, and what is missing",
    "validate.check.report": "only pages draw",
    "validate.cli.check": "only plots draw",
    "validate.compare.report": "only pages draw",
    "validate.cli": "a command loads what it runs",
    "validate.constants": "scipy need not be installed",
    "validate.machine": "torch need not be installed; a worker starts with what it measures",
}


def loaded_with(name: str, heads: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that are loaded once *name* is, without the packages that it is in."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += heads.get(here, ())
    return found


def test_late_imports_are_listed_and_save_something() -> None:
    files = modules()
    heads = {
        name: {target for node in imported(name, head=True) for target in targets(node, files) if target in files}
        for name in files
    }
    users, faults = set(), []
    for name, nodes in files.items():
        at_head = {node.lineno for node in imported(name, head=True)}
        for_types = {node.lineno for node in below((n for n in nodes if isinstance(n, ast.If)), head=False)}
        late = [node for node in imported(name, head=False) if node.lineno not in at_head | for_types]
        if not late:
            continue
        own = f"{name}.__init__" if name in ROOMS else name
        listed = next((key for key in LATE if own == key or own.startswith(f"{key}.")), "")
        users.add(listed)
        if not listed:
            faults.append(f"{name}:{late[0].lineno} imports in a function and is not listed (LATE)")
        loaded = loaded_with(name, heads)
        for node in late:
            for target in targets(node, files):
                if target in loaded and not name.startswith(f"{target}."):
                    faults.append(f"{name}:{node.lineno} imports {target}, which is loaded already, in a function")
    assert not faults, "\n".join(faults)
    assert set(LATE) <= users, f"import nothing late: {sorted(set(LATE) - users)}"


# -- what a question loads ---------------------------------------------------------------


def loaded_by(*options: str) -> set[str]:
    """Return our modules that ``simulate`` with *options* loads."""
    code = (
        f"import sys; from simulator.cli import run; assert run({list(options)!r}) == 0; "
        f"print([name for name in sys.modules if name.partition('.')[0] in {ROOMS!r}], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(ast.literal_eval(done.stderr))


def test_an_exchange_loads_no_device_models() -> None:
    loaded = loaded_by("--topology", "p3.16xlarge", "--workload", "bytes:1MB", "--quiet")
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    assert not rooms & {"devices", "step", "training", "host", "launch", "scenarios", "search"}


@pytest.mark.parametrize(
    ("most", "options"),
    [
        (72, ("--strategy", "ring", "--workload", "bytes:100MB")),
        (156, ("--workload", "resnet50", "--batch", "64", "--quiet")),
    ],
)
def test_a_question_loads_few_modules(most: int, options: tuple[str, ...]) -> None:
    """Each costs start-up time: what a question does not need is loaded late, and one concept is one file."""
    assert len(loaded_by("--topology", "p3.16xlarge", *options)) <= most


def test_classes_are_made_by_records() -> None:
    """Which compiles methods when they are first used; what runs on compute nodes has the standard library alone."""
    names = (
        (name, node.module)
        for name in modules()
        for node in imported(name, head=True)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "dataclass" for alias in node.names)
    )
    other = {name for name, source in names if source != "simulator.records" and name != "simulator.records"}
    assert not {name for name in other if not name.startswith("validate.machine.measure")}
