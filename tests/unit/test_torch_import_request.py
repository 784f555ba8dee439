"""The syntax of ``torch:...``; needs no PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from simulator.errors import InputError, MissingDependency
from simulator.workload.torch_import import load_torch_workload
from simulator.workload.torch_import.request import InputShape, parse_torch


def test_a_module_and_a_factory() -> None:
    request = parse_torch("torch:package.models:Zoo.build")
    assert (request.module, request.factory, request.shapes) == ("package.models", "Zoo.build", ())


@pytest.mark.parametrize(
    ("written", "shapes"),
    [
        ("3x224x224", (InputShape((3, 224, 224)),)),
        ("128xint64", (InputShape((128,), "int64"),)),
        ("3x8x8, 10", (InputShape((3, 8, 8)), InputShape((10,)))),
    ],
)
def test_shapes_stand_behind_the_factory(written: str, shapes: tuple[InputShape, ...]) -> None:
    assert parse_torch(f"torch:m:f:{written}").shapes == shapes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch:models", "write torch:package.module:factory, for example"),
        ("torch::build", "write torch:package.module:factory"),
        ("torch:models.py:build", "'models.py' is not a name of a module; write a.b for a/b.py"),
        ("torch:a/b:build", "write a.b for a/b.py"),
        ("torch:m:2build", "'2build' is not a name of a factory"),
        ("torch:m:f:3x", "'3x' is no shape of an input without its batch; write 3x224x224"),
        ("torch:m:f:0x3", "is no shape"),
        ("torch:m:f:int64", "is no shape"),
        ("torch:m:f:4xint46", "no number format 'int46'; did you mean 'int64'?"),
        ("torch:m:f:3,", "'' is no shape"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_torch(text)
    (fault,) = caught.value.faults
    assert words in fault.message
    assert "\n" not in str(fault)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("broken", [False, True])
def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
    if broken:

        class Broken:
            def find_spec(self, name: str, path: object = None, target: object = None) -> None:
                if name == "torch":
                    raise ImportError("libcudart.so: cannot open shared object file")

        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
        words = r"cannot be imported \(libcudart.so"
    else:
        monkeypatch.setitem(sys.modules, "torch", None)
        words = r"needs PyTorch, which is not installed; in the clone: pip install -e '\.\[torch\]'"
    with pytest.raises(MissingDependency, match=words) as caught:
        load_torch_workload("torch:models:build", batch=2)
    assert caught.value.exit_status == 4


def test_torch_is_imported_when_a_module_is_asked_for_and_not_before() -> None:
    code = (
        "import sys, simulator.cli, simulator.workload.find, simulator.workload.torch_import; "
        "print(any(name.split('.')[0] == 'torch' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
