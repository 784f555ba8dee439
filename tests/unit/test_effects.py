"""A data file writes no file, runs no code and opens no connection, unless the user says ``--trust-code``."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path

import pytest

import simulator
from simulator.cli import COMMANDS, _app, run
from simulator.cli.processes import runner_of
from simulator.collectives.registry import find_strategy, strategy_names
from simulator.console.files import OutputFile
from simulator.effects import data_file, effect, has_effects
from simulator.errors import InputError

_SCENARIO = """\
schema_version: 1
title: t
chapter: c
about: x
runs: {{a: '{}'}}
answers: [{{name: n, value: a.exit_status, unit: "1"}}]
"""
_ONLY = "which a file may ask for only with --trust-code on the command line"
_BEST = "simulate best --topology p3.16xlarge --gpus 2 --workload lenet --global-batch 8 --jobs 1 --top 1"
_BEST += " --parallel pp=1,tp=1,cp=1,zero=0 --recompute none"
_TRACED = "simulate --topology p3.2xlarge --batch 4 --workload torch:evil:net:8"
# Modules of simulator that may write, start or import something without asking `effect`, each with the reason.
_EXCEPTIONS = {
    "cli/__init__.py": "imports its own modules",
    "cli/app.py": "imports Click's completion",
    "cli/scenario_command.py": "--copy, which is an option of the user alone: no scenario runs a scenario",
    "devices/predict.py": "imports the costs that the classes of kernels name",
    "programs/chakra.py": "imports protobuf",
    "console/__init__.py": "imports modules of the product when they are first called",
    "console/run.py": "imports the modules of the other commands, which the program lists; redirects a closed stream",
    "topology/json_schema.py": "a tool of developers, with its own command",
    "user_files.py": "opens for reading",
    "workload/operators/__init__.py": "installed operators, which it leaves out where a data file asks",
    "workload/torch_import/factory.py": "runs in the process that child.py starts",
    "workload/zoo/registry.py": "imports its own modules",
    "__init__.py": "imports its own modules",
}
_CALLS = frozenset(
    (
        *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "unlink"),
        *("rename", "symlink_to", "copyfile", "copymode", "truncate", "mkfifo"),
        *("mkstemp", "Popen", "popen", "system", "spawn", "execv"),
        *("import_module", "__import__", "exec", "eval", "run_path", "run_module"),
        *("connect", "create_connection", "urlopen", "Client", "NamedTemporaryFile"),
    )
)


def _has_effect(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "load" and not call.args:  # of an entry point
        return True
    if name == "open":  # for writing; os.open has flags
        texts = [
            each.value for each in ast.walk(call) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        return any(set("wax+") & set(text) for text in texts if len(text) <= 3) or "os" in ast.dump(call.func)
    return name in _CALLS


@pytest.mark.slow
def test_every_module_with_an_effect_asks_for_it() -> None:
    """A new option that writes, runs or connects is covered once its module asks; this fails where it does not."""
    folder = Path(simulator.__file__).parent
    with_effects = set()
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.Call) and _has_effect(node) for node in ast.walk(tree)):
            with_effects.add(path.relative_to(folder).as_posix())
            asks = any(isinstance(node, ast.Name) and node.id == "effect" for node in ast.walk(tree))
            assert asks or path.relative_to(folder).as_posix() in _EXCEPTIONS, f"{path} has an effect and asks for none"
    assert set(_EXCEPTIONS) <= with_effects


def _file(folder: Path, run_of_it: str) -> str:
    path = folder / "s.yaml"
    path.write_text(_SCENARIO.format(run_of_it), encoding="utf-8")
    (folder / "evil.py").write_text(
        "from pathlib import Path\n"
        "from torch import nn\n"
        f"Path({str(folder / 'ran')!r}).touch()\n"
        "def net(): return nn.Linear(8, 8)\n"
    )
    return str(path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (f"{_BEST} --resume there", "--resume there: writes a file"),
        (f"{_BEST.replace('--jobs 1 ', '')} --dask tcp://127.0.0.1:1", "--dask tcp://127.0.0.1:1: opens a connection"),
        (_TRACED, "--workload torch:evil:net:8: runs code"),
        ("simulate best --topology p3.16xlarge --workload torch:evil:net:8 --global-batch 8", "--workload torch:evil"),
    ],
)
def test_a_scenario_has_no_effects(words: str, told: str, tmp_path: Path, capsys) -> None:
    """The answer reads the exit status, so that a refused run alone would be an answer."""
    path = _file(tmp_path, words)
    assert run(["scenario", path]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{path}:5:11: runs.a: {told}")
    assert said.endswith(f"{_ONLY}\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["evil.py", "s.yaml"]


def test_a_trusted_scenario_has(tmp_path: Path) -> None:
    assert run(["scenario", _file(tmp_path, f"{_BEST} --resume there"), "--trust-code"]) == 0
    assert (tmp_path / "there").exists()


def test_a_scenario_does_not_trust_itself(tmp_path: Path, capsys) -> None:
    path = _file(tmp_path, "simulate --topology t4 --workload p.yaml --trust-code")
    assert run(["scenario", path]) == 2
    assert "5:11: runs.a: --trust-code is for whoever runs the scenario" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.slow
def test_a_program_runs_code_of_the_current_folder_only_if_trusted(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[torch]'")
    monkeypatch.chdir(tmp_path)
    _file(tmp_path, "")
    Path("p.yaml").write_text('schema_version: 1\nprogram:\n  - {run: "torch:evil:net:8", batch: 2}\n')
    assert run(["--topology", "p3.2xlarge", "--workload", "p.yaml"]) == 2
    assert capsys.readouterr().err == f"p.yaml:3:11: torch:evil:net:8: runs code, {_ONLY}\n"
    assert not Path("ran").exists()
    assert run(["--topology", "p3.2xlarge", "--workload", "p.yaml", "--trust-code"]) == 0
    assert Path("ran").exists()


def test_a_program_within_a_scenario_has_no_effects_either(tmp_path: Path, capsys) -> None:
    path = _file(tmp_path, "simulate --topology t4 --workload p.yaml")
    (tmp_path / "p.yaml").write_text('schema_version: 1\nprogram:\n  - {run: "torch:evil:net:8", batch: 2}\n')
    assert run(["scenario", path]) == 2
    assert capsys.readouterr().err.startswith(f"{path}:5:11: runs.a: --workload torch:evil:net:8: runs code")
    assert not (tmp_path / "ran").exists()


def test_the_users_own_outputs_are_written(tmp_path: Path) -> None:
    path = _file(tmp_path, "simulate --topology 4gpu-pcie --workload bytes:1MB --strategy ring")
    trace, plot = tmp_path / "t.json", tmp_path / "p.svg"
    assert run(["scenario", path, "--trace", str(trace), "--plot", str(plot)]) == 0
    assert trace.exists()
    assert plot.exists()


def test_nothing_is_imported_from_the_folder_of_a_scenario(tmp_path: Path, monkeypatch) -> None:
    """A console has the current folder on its import path, and a scenario's folder is the current one."""
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    path = _file(tmp_path, "simulate --topology 4gpu-pcie --workload bytes:1MB --strategy ring")
    seen = []

    def look(*_: object, **__: object) -> None:
        with contextlib.suppress(ImportError):
            seen.append(__import__("evil"))
        raise InputError("looked")

    monkeypatch.setattr("simulator.cli.output.check_read", look)
    assert run(["scenario", path]) == 0
    assert not seen


def test_an_effect_is_refused_within_a_data_file_alone(tmp_path: Path) -> None:
    def write() -> None:
        with OutputFile("--new", str(tmp_path / "x")) as file:
            file.write(b"")

    write()
    with data_file(trusted=False) as refused:
        assert not has_effects()
        with pytest.raises(InputError, match=rf"^--new .*x: writes a file, {_ONLY}$"):
            write()
        with data_file(trusted=True), pytest.raises(InputError, match="runs code"):
            effect("runs code", "a file within it")
        with pytest.raises(InputError, match="opens a connection"), contextlib.ExitStack() as stack:
            runner_of(1, "tcp://127.0.0.1:1", stack)
        assert len(refused) == 3
    with data_file(trusted=False, outputs=[str(tmp_path / "x")]):
        write()
    with data_file(trusted=True), data_file(trusted=False):
        write()
    assert has_effects()


def test_a_registered_strategy_is_code(monkeypatch, capsys) -> None:
    class Point:
        name = "mine"

        def load(self) -> type:
            raise AssertionError

    monkeypatch.setattr("simulator.collectives.registry._plugins", lambda: {"mine": Point()})
    assert "mine" in strategy_names()
    with data_file(trusted=False):
        assert "mine" not in strategy_names()
        with pytest.raises(InputError, match="strategy='mine': runs code"):
            find_strategy("mine")
        assert run(["--topology", "4gpu-pcie", "--gpus", "2", "--workload", "bytes:1MB"]) == 0
    assert "warning: --strategy all: without mine; a file may run such code" in capsys.readouterr().err


_ASKED = {
    "": "simulate --topology p3.16xlarge --gpus 2 --workload bytes:1MB --strategy ring",
    "best": _BEST,
    "run": "simulate run --topology p3.16xlarge --workload lenet --gpus 2 --batch 2 --samples 1M",
    "scale": "simulate scale --topology p3.16xlarge --workload lenet --gpus 1,2 --batch 2",
    **{name: f"simulate {name}" for name in COMMANDS if name not in ("best", "run", "scale", "scenario")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _ASKED)
def test_no_option_of_a_run_writes(name: str, tmp_path: Path, monkeypatch) -> None:
    """Every option that takes a value is given the name of a file that does not exist, and none appears."""
    app = _app([name] if name else [])
    command = getattr(app, "commands", {}).get(name, app)
    options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "is_flag", False)]
    assert options or name in COMMANDS
    for option in options:
        words = [word for word in _ASKED[name].split() if word]
        spelt = option.opts[0]
        if spelt in words:
            words[words.index(spelt) + 1] = "there.svg"
        else:
            words += [spelt, "there.svg"]
        run(["scenario", _file(tmp_path, " ".join(words)), "-q"])
        assert sorted(file.name for file in tmp_path.iterdir()) == ["evil.py", "s.yaml"], option
