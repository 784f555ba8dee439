"""Mistakes in a user's module give one line each, with the location and a remedy."""

from __future__ import annotations

import importlib.util
import linecache
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InputError
from simulator.workload.torch_import import load_torch_workload

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[torch]'")

MODULE = """
import sys
import torch
from torch import nn


class Body(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def with_body(function):
    def made(batch):
        return nn.Sequential(nn.Linear(4, 4), Body(function)), torch.zeros(batch, 4)
    return made


item = with_body(lambda x: x if (x > 0).any() else -x)
mask = with_body(lambda x: x[x > 0])
nonzero = with_body(lambda x: x.nonzero())
numpy = with_body(lambda x: torch.tensor(x.detach().numpy()))
unknown = with_body(lambda x: torch.fft.fft(x).abs() + torch.linalg.svdvals(x).sum())
cuda = with_body(lambda x: x.cuda())
device = with_body(lambda x: x + torch.ones(4, device="cpu"))
shape = with_body(lambda x: x @ torch.ones(5, 4))
detached = with_body(lambda x: x.detach())
raises = with_body(lambda x: {}["first\\nsecond"])
packed = with_body(lambda x: nn.LSTM(4, 4)(nn.utils.rnn.pack_padded_sequence(x.unsqueeze(0), [1, 1]))[1][0])
value = 3
built = nn.Linear(4, 4)


def bare():
    return nn.Linear(4, 4)


def fails(batch):
    raise ValueError("no such file: weights.pt")


def leaves(batch):
    sys.exit("bye")


def nothing(batch):
    pass


def lazy(batch):
    return nn.LazyLinear(4), torch.zeros(batch, 4)


def number(batch):
    return nn.Linear(4, 4), 3


def pair():
    return nn.Bilinear(4, 4, 2), torch.zeros(2, 4)


def no_loss(batch):
    return nn.Linear(4, 4), torch.zeros(batch, 4), "mse"


def wide_loss(batch):
    return nn.Linear(4, 4), torch.zeros(batch, 4), lambda y: y


def fixed():
    return nn.Linear(4, 4), torch.zeros(3, 4)


def width(batch, width):
    return nn.Linear(width, 4), torch.zeros(batch, width)
"""

# By factory: the text of the line, and the code that it points to, if any.
FAULTS = {
    "item": ("failed in 1: a number, or a decision, is taken from a tensor, and a trace has", "(x > 0).any()"),
    "mask": ("failed in 1: indexing with a mask gives a tensor whose size depends on numbers", "x[x > 0]"),
    "nonzero": ("failed in 1: aten::nonzero gives what depends on numbers", "x.nonzero()"),
    "numpy": ("it depends on numbers, and a trace has shapes alone: compute it from shapes", "x.detach().numpy()"),
    "cuda": ("create tensors on that of the input (x.device), call no .cuda()", "x.cuda()"),
    "device": ("create tensors on the device of the input (x.device), or register them", "x + torch.ones"),
    "shape": ("check the inputs' shapes against what the module takes", "x @ torch.ones"),
    "raises": ("the forward pass failed in 1: KeyError: 'first\\nsecond'", '{}["first'),
    "detached": ("nothing is trained, for no output depends on the parameters with gradients", ""),
    "value": ("value is an int and cannot be called; write a function that returns a torch.nn.Module", ""),
    "built": ("built is a module that was built on import; write a function that returns it", ""),
    "bare": ("nothing says what goes in; return (module, inputs) from the factory, or write the shape", ""),
    "fails": ("the factory failed: ValueError: no such file: weights.pt", 'ValueError("no such'),
    "leaves": ("the factory failed: SystemExit: bye", 'sys.exit("bye")'),
    "nothing": ("the factory returned None; it must return a torch.nn.Module, (module, inputs) or", ""),
    "lazy": ("weight has no size yet; write the layer with its sizes, not as a lazy one", ""),
    "number": ("the inputs are an int; they must be a tensor, a tuple, or a dict by name", ""),
    "pair": ("missing 1 required positional argument: 'input2'; return (module, inputs) from the factory", ""),
    "no_loss": ("the loss is a str; it must be a function of the module's output", ""),
    "wide_loss": ("the loss must be a tensor with one number", ""),
    "fixed": ("--batch 2, but the factory has no parameter batch and its inputs hold 3; add the parameter", ""),
    "width": ("width needs width; give them defaults, or write a function without them", ""),
    "iten": ("no 'iten' in faulty; did you mean 'item'?", ""),
    "bare:5": ("check the inputs' shapes against what the module takes", ""),
    "fixed:4": ("the factory says what goes in, and so does the workload; leave one out", ""),
}  # fmt: skip


@pytest.fixture(autouse=True)
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "faulty.py"
    path.write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("import torch\ndef build(:\n", encoding="utf-8")
    (tmp_path / "lacks.py").write_text("import torch\nimport no_such_library\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("faulty", "broken", "lacks"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    linecache.checkcache()
    return path


def faults_of(text: str, **sizes: Any) -> list[Any]:
    with pytest.raises(InputError) as caught:
        load_torch_workload(text, **{"batch": 2, **sizes})
    assert caught.value.exit_status == 2
    for fault in caught.value.faults:
        assert "\n" not in str(fault)
        assert replace(fault, file="", line=0, column=0).spelt("command").startswith(f"--workload {text}: ")
    return list(caught.value.faults)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_one_line_with_its_place(faulty: Path, name: str) -> None:
    words, code = FAULTS[name]
    (fault,) = faults_of(f"torch:faulty:{name}")
    assert words in fault.spelt("command")
    if code:
        assert fault.file == str(faulty)
        line = faulty.read_text(encoding="utf-8").splitlines()[fault.line - 1]
        assert code in line[fault.column - 1 :]
    else:
        assert not fault.file


def test_all_unknown_operators_are_told_at_once(faulty: Path) -> None:
    first, second = faults_of("torch:faulty:unknown")
    assert "the operator aten::_fft_r2c in 1 is not known; write it with operators" in first.spelt("command")
    assert "the operator aten::_linalg_svd in 1 is not known" in second.spelt("command")
    line = faulty.read_text(encoding="utf-8").splitlines()[first.line - 1]
    assert (first.file, "torch.fft" in line) == (str(faulty), True)


def test_packed_sequences_are_refused() -> None:
    (fault,) = faults_of("torch:faulty:packed")
    assert "give the recurrent layer a padded tensor" in fault.spelt("command")


def test_modules_that_cannot_be_imported(faulty: Path) -> None:
    (fault,) = faults_of("torch:faultx:item")
    assert "no module 'faultx'; did you mean 'faulty'? Otherwise the directory that holds it must be" in fault.spelt(
        "command"
    )
    if importlib.util.find_spec("timm") is None:
        (fault,) = faults_of("torch:timm.models:resnet50")
        assert fault.spelt("command").endswith("no module 'timm'; pip install timm")
    (fault,) = faults_of("torch:broken:build")
    assert "importing broken failed: SyntaxError" in fault.spelt("command")
    assert (fault.file, fault.line) == (str(faulty.with_name("broken.py")), 2)
    (fault,) = faults_of("torch:lacks:build")
    assert "No module named 'no_such_library'; install no_such_library" in fault.spelt("command")
    assert fault.line == 2


def test_sizes_that_are_missing_or_not_taken() -> None:
    assert "has no parameter sequence_length" in faults_of("torch:faulty:fixed", sequence_length=3)[0].spelt("command")
    assert "item needs batch; give --batch" in faults_of("torch:faulty:item", batch=None)[0].spelt("command")
    assert "the shape of an input needs --batch besides" in faults_of("torch:faulty:bare:4", batch=None)[0].spelt(
        "command"
    )
    assert "batch must be at least 1; got 0" in faults_of("torch:faulty:item", batch=0)[0].spelt("command")


def test_nothing_is_left_behind_by_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    hooks = torch.nn.modules.module._global_forward_hooks
    faults_of("torch:faulty:item")
    assert not hooks
    assert torch.nn.functional.has_torch_function is torch.overrides.has_torch_function
    assert torch.zeros(1).device.type == "cpu"
    assert torch._C._len_torch_dispatch_stack() == 0
    assert capsys.readouterr().out == ""


def test_a_shape_written_behind_the_factory() -> None:
    network = load_torch_workload("torch:faulty:bare:7x4", batch=2)
    assert (network.flop, network.samples) == (2 * 2 * 7 * 16, 2)
