"""Constants are data: each is described and sourced, read by a model, and installed with the program."""

from __future__ import annotations

import ast
import importlib
import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from simulator import OperatorQuestion, ProgramQuestion, Session, StepQuestion, Where
from simulator.api import Question
from simulator.collectives.nccl.cost import NcclConstants
from simulator.constants import DEFAULT, Constants, Values, constants_path
from simulator.devices.gpu.memory import StreamingCosts
from simulator.workload.operators import Attention, GroupedLinear, Linear, Operator, Recurrent
from simulator.workload.precision import Precision
from validate.compare.folder import COLUMNS
from validate.constants.families import FAMILIES
from validate.constants.fit import constants_text
from validate.kinds.kind import WORDS

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = (PROJECT / "simulator", PROJECT / "validate")
FILES = {path.stem: path for package in PACKAGES for path in package.glob("constants/*.json")}
READ = re.compile(r'^class (\w+)\(Values, file="(\w+)"\)', re.MULTILINE)
LIST = (PROJECT / "docs" / "constants.md").read_text(encoding="utf-8")


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILES[name].read_text(encoding="utf-8"))
    return found


def entries() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{name}.{key}", entry) for name in FILES for key, entry in document(name)["constants"].items()]


def readers() -> dict[str, type[Values]]:
    """Return the classes that read files of constants, by file; without one, a file holds numbers alone."""
    found = {}
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            for cls, name in READ.findall(path.read_text(encoding="utf-8")):
                module = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
                assert name not in found, f"two classes read {name}.json"
                found[name] = getattr(importlib.import_module(module), cls)
    return found


READERS = readers()


def test_there_is_something_to_check() -> None:
    assert len(FILES) >= 24
    assert len(entries()) >= 300


# -- descriptions ----------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_its_constants_are_and_rest_on(name: str) -> None:
    found = document(name)
    assert set(found) <= {"schema_version", "summary", "fitted", "constants"}
    assert found["schema_version"] == 1
    assert found["summary"].strip()
    for key, entry in found["constants"].items():
        assert {"value", "unit", "meaning", "from"} <= set(entry), key
        assert set(entry) <= {"value", "unit", "meaning", "from", "spread", "bound"}, key
        assert entry["unit"].strip(), key
        assert entry["meaning"].strip(), key
        assert entry["from"].strip(), key
        numbers = entry["value"] if isinstance(entry["value"], list) else [entry["value"]]
        assert all(type(number) in (int, float) for number in numbers), key


@pytest.mark.parametrize(("name", "entry"), [pair for pair in entries() if {"spread", "bound"} & set(pair[1])])
def test_what_a_fit_says_stands_beside_what_was_fitted(name: str, entry: dict[str, Any]) -> None:
    fitted = {constant for family in FAMILIES for stage in family.stages for constant in stage.free}
    assert entry["from"].startswith("fit")
    assert name in fitted
    assert 0 < entry.get("spread", 1) <= 1
    assert entry.get("bound", True) is True


def test_what_is_fitted_says_so() -> None:
    known = dict(entries())
    for family in FAMILIES:
        for stage in family.stages:
            for name in (*stage.free, *stage.tied):
                assert known[name]["from"].startswith(("fit", "that of", "chosen: the figure that the fit")), name


def test_files_are_as_a_fit_writes_them() -> None:
    """Files are formatted as a fit writes them, so that the next fit changes only the lines of its constants."""
    for name, path in FILES.items():
        assert constants_text(document(name)) == path.read_text(encoding="utf-8"), name


def test_constants_at_a_bound_and_files_are_in_the_document() -> None:
    for name, entry in entries():
        if entry.get("bound"):
            assert f"`{name}`" in LIST, name
    for name in FILES:
        assert re.search(rf"`{name}(\.json)?`", LIST), name
    names = {name for name, _ in entries()}
    for name in re.findall(r"`((?:" + "|".join(FILES) + r")\.(?!json`)[\w.]+)`", LIST):
        assert name in names, name


def test_a_value_is_at_the_bound_that_it_is_said_to_be_at() -> None:
    """Within 5 %: bounds are those of the next fit, values those of the last."""
    priors = {name: prior for family in FAMILIES for stage in family.stages for name, prior in stage.free.items()}
    for name, entry in entries():
        if entry.get("bound"):
            assert any(entry["value"] == pytest.approx(end, rel=0.05) for end in (priors[name].low, priors[name].high))


# -- readers ---------------------------------------------------------------------------


IN_PARTS = ("cpu_libraries", "front_ends", "tensor_product")  # parts that code reads as files of their own


def filled(file: str) -> Any:
    """Return the constants of *file*, as code reads them, or of a part of it."""
    return DEFAULT(READERS[file]) if file in READERS else DEFAULT[file]


def parts_of(file: str) -> set[str]:
    """Return the parts of *file* that code reads as files of their own: ``front_ends.mxnet``."""
    parts = {key.partition(".")[0] for key in document(file)["constants"] if "." in key}
    return {f"{file}.{part}" for part in parts} if file in IN_PARTS else set()


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax of every file; found when a test asks, as every worker of pytest imports this module."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for package in PACKAGES for path in package.rglob("*.py")}


FILE_OF = {cls.__name__: name for name, cls in READERS.items()}


def file_named(node: ast.AST | None) -> str | None:
    """Return the file whose class *node* names, or that ``constants(Class)`` or ``constants["file"]`` reads."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        of, file = getattr(node.value, "attr", getattr(node.value, "id", "")), str(node.slice.value)
        return file if of in ("constants", "DEFAULT") or (of == "known" and file in FILES) else None
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        node = node.args[0]
    return FILE_OF.get(node.id) if isinstance(node, ast.Name) else None


def test_every_file_is_read_and_is_where_its_reader_looks() -> None:
    parts = {"cpu_libraries.eigen", *(file_named(node) for tree in trees().values() for node in ast.walk(tree))}
    named = {file.partition(".")[0] for file in parts if file}  # Cpu.cycles reads the part of any library
    assert named | set(READERS) == set(FILES)
    assert {name: constants_path(name) for name in FILES} == FILES


def bound(function: ast.AST) -> dict[str, str]:
    """Return the file of each name that holds constants in *function*: an argument, or what is assigned to a name."""
    found: dict[str, str | None] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            found[node.arg] = file_named(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = file_named(node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            pairs = zip(node.targets[0].elts, values, strict=False)  # what a call returns has no file here
            found |= {target.id: file_named(value) for target, value in pairs if isinstance(target, ast.Name)}
    return {name: file for name, file in found.items() if file}


def read_of(path: Path) -> set[tuple[str, str, str]]:
    """Return each constant that *path* reads of a known file: the file, its name, and where."""
    found: set[tuple[str, str, str]] = set()
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in (*FILE_OF, "constants[", "DEFAULT[", "known[")):
        return found
    for function in ast.walk(trees()[path]):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = bound(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute):
                file = names.get(node.value.id) if isinstance(node.value, ast.Name) else file_named(node.value)
                if file and isinstance(node.value, ast.Name | ast.Call | ast.Subscript):
                    found.add((file, node.attr, f"{path.name}:{node.lineno}"))
    return found


def test_every_constant_that_code_reads_is_in_its_file() -> None:
    found = {each for path in trees() for each in read_of(path)}
    assert len({(file, name) for file, name, _ in found}) > 240
    for file, name, where in found:
        assert hasattr(filled(file), name), f"{where}: {file}.json has no {name}"


def test_every_constant_in_a_file_is_read() -> None:
    read = {node.attr for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    read |= {node.value for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    read |= {*WORDS["isolated"].values(), *COLUMNS["host"]["besides"].values()}  # by the class of an operator
    for name in FILES:
        for key in document(name)["constants"]:
            head, _, rest = key.partition(".")
            of = filled(f"{name}.{head}") if rest and name in IN_PARTS else getattr(filled(name), head)
            assert head in read or isinstance(of, dict | Values), f"{name}.{key}"
            if isinstance(of, Values):
                assert rest in read, f"{name}.{key}"


def names_in(key: ast.expr) -> set[str]:
    """Return the names that *key* of ``constants[key]`` may be; what a variable completes is each part of its file."""
    if isinstance(key, ast.IfExp):
        return names_in(key.body) | names_in(key.orelse)
    if isinstance(key, ast.JoinedStr):
        assert isinstance(key.values[0], ast.Constant)
        return parts_of(str(key.values[0].value).removesuffix("."))
    return {str(key.value)} if isinstance(key, ast.Constant) else set()


def test_every_file_that_code_names_has_numbers_and_no_class_that_reads_it() -> None:
    keys = [
        node.slice
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and getattr(node.value, "attr", getattr(node.value, "id", "")) in ("constants", "DEFAULT")
        and not isinstance(node.slice, ast.Name)
    ]
    named = set().union(*map(names_in, keys))
    assert all(map(names_in, keys))
    assert {"gemm", "front_ends.mxnet", "tensor_product.warps", "cpu_libraries.eigen"} <= named
    for name in named:
        assert vars(DEFAULT[name]), name


@pytest.mark.parametrize(
    "name", ["front_ends.mxnt", "front_ends.mxnet.operator_s", "cpu_libraries", "cpu_libraries.onednn"]
)
def test_a_part_without_numbers_is_refused(name: str) -> None:
    for _ in range(2):  # and not kept
        with pytest.raises(ValueError, match=f"^{name}: there are no such constants$"):
            Constants()[name]


@pytest.mark.parametrize("name", READERS)
def test_a_file_is_not_read_without_its_class(name: str) -> None:
    with pytest.raises(ValueError, match=rf"read by constants\({READERS[name].__name__}\) alone"):
        DEFAULT[name]


def test_parts_are_not_among_the_numbers_of_their_file() -> None:
    assert not hasattr(DEFAULT["tensor_product"], "copies")
    assert all(isinstance(value, int | float) for value in vars(DEFAULT["tensor_product"]).values())


def test_a_protocol_has_what_is_said_of_another_one_that_it_is_like() -> None:
    costs = DEFAULT(NcclConstants)
    assert costs.earlier["LL"].wire == costs.recent["LL"].wire
    assert costs.earlier["NVLSTree"] == costs.recent["NVLSTree"] != costs.recent["NVLS"]
    assert costs.recent["NVLSTree"].head_s == costs.recent["NVLS"].head_s
    assert costs.earlier["Simple"].fill == 0.0 < costs.recent["Simple"].fill
    other = Constants({"nccl.recent.LL.wire": 3.0})(NcclConstants)
    assert other.earlier["LL"].wire == 3.0


# -- other values ----------------------------------------------------------------------


def test_other_values_are_of_constants_that_there_are() -> None:
    changed = Constants({"gemm.fetch": 9.0, "streaming.slots.tanh": 7.0, "timing.replay_s": 1e-6})
    assert changed["gemm"].fetch == 9.0
    assert changed["gemm"].transpose == DEFAULT["gemm"].transpose
    assert changed(StreamingCosts).slots["tanh"] == 7.0
    assert changed["gemm"] is changed["gemm"]
    for name in ("gemm.fetched", "gem.fetch", "gemm", "streaming.slots.cosh", "streaming.slots", ""):
        with pytest.raises(ValueError, match="such constant"):
            Constants({name: 1.0})


# -- where they go ---------------------------------------------------------------------


def test_an_installed_program_has_them() -> None:
    """A wheel contains everything in a package except what its settings or Git exclude."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    ignored = [line.rstrip("/") for line in (PROJECT / ".gitignore").read_text(encoding="utf-8").split()]
    tables = [PROJECT / "validate" / "tables" / f"{name}.yaml" for name in ("conventions", "published")]
    blind = PROJECT / "validate" / "blind" / "record.jsonl"
    data = [*FILES.values(), *tables, blind, PROJECT / "validate" / "constants" / "families.yaml"]
    for path in (path.relative_to(PROJECT) for path in data):
        assert path.parts[0] in wheel["packages"]
        assert not any(path.is_relative_to(left_out) for left_out in wheel["exclude"])
        assert not any(Path(part).match(pattern) for part in path.parts for pattern in ignored), path


_IN_TWO_STREAMS = """
schema_version: 1
program:
  - {run: "op:mat_mul,m=512,n=512,k=512", stream: a}
  - {run: "op:mat_mul,m=512,n=512,k=512", stream: b}
  - {wait: all}
"""


def operator(machine: str, operator: Operator, precision: Precision = "fp32") -> OperatorQuestion:
    return OperatorQuestion(where=Where(machine), operator=operator, precision=precision)


RESNET = StepQuestion(where=Where("p3.16xlarge"), workload="resnet18", batch=32)
ASKED: dict[str, Question] = {
    "attention.exponentials_per_clock": operator("1x-a100-pcie-40gb", Attention(8, 16, 2048, 2048, 64), "bf16"),
    "contention.filling_share": ProgramQuestion(where=Where("p3.2xlarge"), workload="two", text=_IN_TWO_STREAMS),
    "contention.idle_taken": operator(
        "dgx-h100", GroupedLinear(8 * 2048, 2048, 768, False, 8, grouping="streams"), "bf16"
    ),
    "contention.memory_passes": RESNET,
    "gemm.partial_speed": operator("p3.2xlarge", Linear(64, 16384, 64)),
    "recurrence.most_of_peak": operator("p3.2xlarge", Recurrent("lstm", 128, 50, 1024, 1024)),
    "recurrence.next_kernel_s": operator("p3.2xlarge", Recurrent("lstm", 16, 50, 2048, 2048)),
    "tensor_product.power_sharpness": operator("dgx-h200", Linear(8192, 8192, 8192), "bf16"),
    "tensor_product.synchronous_flop_bytes": operator("dgx-h200", Linear(8192, 8192, 8190), "bf16"),
}


def test_every_constant_of_contention_is_asked_about() -> None:
    assert {name for name, _ in entries() if name.startswith("contention.")} <= set(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_another_value_is_another_time(name: str) -> None:
    """Twice the value, or half of one that is a cap."""
    file, _, constant = name.partition(".")
    value, question = document(file)["constants"][constant]["value"], ASKED[name]
    known_s = Session().time_s(question)
    assert any(Session(constants=Constants({name: f * value})).time_s(question) != known_s for f in (2.0, 0.5))


def test_what_stands_in_memory_is_part_of_the_need() -> None:
    value = document("residents")["constants"]["context_bytes"]["value"]
    known, twice = (
        Session(constants=Constants({"residents.context_bytes": f * value})).step(RESNET).tightest.need.total_bytes
        for f in (1.0, 2.0)
    )
    assert twice - known == pytest.approx(value)
