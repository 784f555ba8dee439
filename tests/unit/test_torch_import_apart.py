"""A module that raises, exits, or never ends gives one line of error, and never an answer."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from simulator.errors import Fault, InputError
from simulator.workload.find import find_network
from simulator.workload.torch_import import child
from tests.calls import hang_limit

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[torch]'")

MODULES = """
import os, signal, sys, threading, time
import torch
from torch import nn

class Odd(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise Odd("no")
    __repr__ = __str__

def good(batch):
    return nn.Linear(4, 4), torch.zeros(batch, 4)

def raises(batch):
    raise Odd("first\\nsecond \\x1b[31m")

def mute(batch):
    raise Mute()

def interrupts(batch):
    raise KeyboardInterrupt

def leaves(batch):
    os._exit(0)

def exits(batch):
    sys.exit(0)

def killed(batch):
    os.kill(os.getpid(), signal.SIGKILL)

def closes(batch):
    os.closerange(3, 100)
    return good(batch)

def endless(batch):
    while True:
        pass

def starts_another(batch):
    other = os.fork()
    if not other:
        time.sleep(1000)
        os._exit(0)
    with open(os.path.join(os.path.dirname(__file__), "other.pid"), "w") as file:
        file.write(str(other))
    return good(batch)

def threads(batch):
    threading.Thread(target=lambda: time.sleep(1000)).start()
    return good(batch)

def plugs(batch):
    assert "PYDANTIC_DISABLE_PLUGINS" not in os.environ
    return good(batch)

def reads(batch):
    assert sys.stdin.read() == ""
    print("on standard output")
    return good(batch)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    (path / "hostile_models.py").write_text(MODULES)
    return path


def traced(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.syspath_prepend(str(folder))
    return find_network(f"torch:hostile_models:{name}").build(4).parameter_count


@pytest.mark.parametrize("name", ["good", "threads", "reads"])
def test_what_threads_and_reads_is_traced_all_the_same(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert traced(name, folder, monkeypatch) == 20
    assert capfd.readouterr().out == ""


def test_what_our_own_process_sets_is_not_handed_on(folder: Path) -> None:
    words = [sys.executable, "-m", "simulator", "--topology", "p3.2xlarge", "--batch", "4", "--json"]
    words += ["--workload", "torch:hostile_models:plugs"]
    path = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYDANTIC_DISABLE_PLUGINS", None)
    ended = subprocess.run(words, check=False, env=environment, capture_output=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", r"raised Odd: first second \x1b[31m"),
        ("mute", "raised Odd: no"),
        ("interrupts", "raised KeyboardInterrupt"),
        ("exits", "the factory failed: SystemExit: 0"),
        ("leaves", "its process ended without an answer (exit status 0)"),
        ("killed", "its process ended without an answer (signal 9)"),
        ("closes", "its process ended without an answer"),
    ],
)
def test_what_ends_the_process_is_one_line(
    name: str, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError) as caught:
        traced(name, folder, monkeypatch)
    [fault] = caught.value.faults
    assert f"--workload torch:hostile_models:{name}: {words}" in fault.spelt("command")
    assert "\n" not in str(fault)


def test_what_never_ends_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced("good", folder, monkeypatch)  # so that torch is imported
    monkeypatch.setattr(child, "LIMIT_S", 1.0)
    ((process, _),) = child._serving.values()
    with hang_limit(), pytest.raises(InputError, match="did not end within 1 s"):
        traced("endless", folder, monkeypatch)
    assert process.returncode == -signal.SIGKILL  # not left running
    assert not child._serving


def test_what_it_started_is_ended_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert traced("starts_another", folder, monkeypatch) == 20
    child._end()
    other = int((folder / "other.pid").read_text())
    with hang_limit(), suppress(FileNotFoundError):
        while Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)  # killed, but not yet reaped by the system


def test_faults_survive_the_way_between_processes() -> None:
    error = InputError([Fault("a", "f", 1, 2)] * 30, more=5)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.faults, again.more) == (str(error), error.faults, 15)
