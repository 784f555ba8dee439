"""The operator of docs/extending.md, in a package of its own: every answer that a built-in operator has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from docs.make_tables import write_files
from reports.colours import kernel_colour
from simulator.cli import run
from simulator.devices.neighbours import kernel_axes, variety_of
from simulator.errors import InputError
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.workload.backward import one_format, saved_tensors
from simulator.workload.described import network_document, network_of
from simulator.workload.network import Layer, Network, Parameter
from simulator.workload.operators import CLASSES, Attention, Linear, _registered
from simulator.workload.split.context import context_split
from simulator.workload.split.tensor import tensor_split

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
import torch

class Ranked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 8)

    def forward(self, x):
        return self.down(self.up(x).sort(-1).values)

def build(batch):
    return Ranked(), torch.zeros(batch, 32)
"""


@pytest.fixture
def sort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install the package of the document, and return its operator."""
    monkeypatch.chdir(tmp_path)
    write_files((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), tmp_path)
    information = tmp_path / "sorting-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sorting\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text("[topocast.operators]\nsort = sort:Sort\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    _registered.cache_clear()
    yield import_module("sort").Sort
    _registered.cache_clear()
    for name in ("sort", "sort_cost"):
        sys.modules.pop(name, None)
    CLASSES.pop("radixsort", None)


def ranked(sort: Any) -> Network:
    """Return a network of two products with a sort between them."""
    layers = (
        Layer("up", Linear(8, 32, 64), (0,), 1, (Parameter("up.weight", 2048), Parameter("up.bias", 64))),
        Layer("sort", sort(8, 64), (1,), 2),
        Layer("down", Linear(8, 64, 8), (2,), 3, (Parameter("down.weight", 512), Parameter("down.bias", 8))),
    )
    return Network("ranked", layers, (256, 512, 512, 64), 8)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("device", ["gpu0", "cpu"])
def test_it_has_a_time_on_gpus_and_cpus(sort: Any, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--topology", "p3.2xlarge", "--device", device, "--workload")
    (small,), (large,) = (asked(capsys, *words, f"op:sort,rows={rows},cols=4096")["results"] for rows in (64, 6400))
    assert 0.0 < small["time_s"] < large["time_s"]
    assert "no measured radixsort kernels" in small["outside"]
    assert asked(capsys, *words, "op:sort,rows=64,cols=4096,bwd")["results"][0]["time_s"] > 0.0


@pytest.mark.parametrize("device", ["gpu0", "cpu"])
def test_a_step_runs_it(sort: Any, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ranked.network.json"
    path.write_text(json.dumps(network_document(ranked(sort))), encoding="utf-8")
    assert network_of(network_document(ranked(sort))).layers == ranked(sort).layers
    words = ["--topology", "p3.2xlarge", "--device", device, "--workload", str(path), "--batch", "8"]
    assert run([*words, "--precision", "fp32", "--verbose"]) == 0
    assert "sorting" in capsys.readouterr().out
    assert kernel_colour("radixsort") == "#7f4f24"
    assert asked(capsys, *words, "--compile")["step_time_s"] > 0.0


def test_it_is_divided_and_its_memory_counted(sort: Any) -> None:
    network = ranked(sort)
    by_columns = tensor_split(network, 2).layers
    (gathered,) = [layer for layer in by_columns if layer.name == "sort"]
    assert gathered.operator == sort(8, 64)  # whole rows are sorted, after a gather
    assert by_columns[by_columns.index(gathered) - 1].name.endswith("gather")
    attends = Layer("attends", Attention(1, 1, 8, 8, 64), (1, 1, 1), 1)
    divided = context_split(replace(network, layers=(*network.layers, attends)), 2)
    assert [layer.operator for layer in divided.layers if layer.name == "sort"] == [sort(4, 64)]
    saved = saved_tensors(network, one_format(network, 4))
    assert saved.by_layer[1] == 8 * 8 * 64  # places of 8 bytes


def test_its_kernels_correct_each_other(sort: Any) -> None:
    (kernel,) = sort(64, 4096).kernels("fwd", "fp32")
    assert variety_of(kernel) == "radixsort fp32"
    assert kernel_axes(kernel) == (64.0, 4096.0)


@pytest.mark.torch
def test_a_torch_module_that_sorts_has_it(
    sort: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    (tmp_path / "sorted_rows.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    words = [
        "--topology",
        "p3.8xlarge",
        "--workload",
        "torch:sorted_rows:build",
        "--batch",
        "8",
        "--parallel",
        "tp=2,dp",
    ]
    found = asked(capsys, *words, "--parallel", "tp=2,dp")
    assert found["step_time_s"] > 0.0
    assert "radixsort" in {kind["kind"] for kind in found["kinds"]}


def test_without_the_package_there_is_no_such_operator() -> None:
    with pytest.raises(InputError, match="there is no operator 'sort'"):
        parse_question("op:sort,rows=64,cols=4096", Where("p3.2xlarge"))
