"""Whatever a path leads to, each command that reads a user's file answers at once: named pipes, devices, folders."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from simulator.cli import run as simulate
from simulator.console.run import run_app
from simulator.errors import InputError
from simulator.user_files import open_user_file, read_user_file
from validate.cli import app as validate

_STEP = ["--topology", "t4", "--batch", "1"]
_BEST = ["best", "--topology", "p3.16xlarge", "--workload", "resnet18", "--global-batch", "8", "--jobs", "1"]
# Commands that read the file {}; its name must end as the command's files do.
READERS = {
    "a topology": (["simulate", "--topology", "{}"], ".yaml"),
    "layers": (["simulate", *_STEP, "--workload", "{}"], ".yaml"),
    "a network written out": (["simulate", *_STEP, "--workload", "{}"], ".network.json"),
    "a config.json": (["simulate", *_STEP, "--workload", "{}"], ".json"),
    "a launch script": (["simulate", "--topology", "dgx-h100", "--launch", "@{}"], ".sh"),
    "a configuration of DeepSpeed": (
        ["simulate", "--topology", "dgx-h100", "--launch", "deepspeed train.py --deepspeed_config {}"],
        ".json",
    ),
    "a data set": (["simulate", *_STEP, "--input", "{}"], ".yaml"),
    "a calibration": (["simulate", *_STEP, "--calibration", "{}"], ".yaml"),
    "a scenario": (["simulate", "scenario", "{}"], ".yaml"),
    "a search": (["simulate", *_BEST, "--resume", "{}"], ".jsonl"),
    "a table": (["validate", "score", "{}"], ".csv"),
    "a table of operators": (["validate", "calibrate", "{}", "--device", "t4"], ".csv"),
    "a log": (["validate", "check", "--topology", "dgx-h100", "{}"], ".log"),
    "a dump": (["validate", "describe", "--from", "{}"], ".txt"),
    "a trace": (["validate", "trace", "{}", "--topology", "t4", "--workload", "resnet18", "--batch", "2"], ".json"),
}


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


_SPECIAL = {"a named pipe": _pipe, "a device": _device}


@pytest.mark.parametrize("kind", _SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_special_files_are_refused_at_once(reader: str, kind: str, tmp_path: Path, capsys) -> None:
    words, suffix = READERS[reader]
    path = tmp_path / f"file{suffix}"
    _SPECIAL[kind](path)
    program, *arguments = [word.replace("{}", str(path)) for word in words]
    status = simulate(arguments) if program == "simulate" else run_app(validate, "validate", arguments)
    told = capsys.readouterr().err.splitlines()
    assert status == 2
    assert re.search(rf"{re.escape(str(path))}: is {kind}; .* is needed", told[-1])


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(InputError, match=r"s: is a socket; a file is needed$"):
            open_user_file(tmp_path / "s")
    with pytest.raises(InputError, match=r"is a folder; a table is needed$"):
        open_user_file(tmp_path, needed="a table")
    with pytest.raises(InputError, match=r"cannot be read: is not a path$"):
        open_user_file("a\0b")


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert read_user_file(tmp_path / "f", 10) == b""
    assert read_user_file("/proc/self/status", 100_000).startswith(b"Name:")


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="the kernel's messages are not for this user")
def test_a_file_that_waits_is_refused() -> None:
    with pytest.raises(InputError, match=r"/proc/kmsg: (waits for news; a file is needed|cannot be read: .*)$"):
        read_user_file("/proc/kmsg", 10_000_000)


def test_names_of_any_length_are_refused(capsys) -> None:
    for words in (["scenario", f"./{'9' * 5_000}.yaml"], ["--topology", "9" * 5_000], ["scenario", "a\0b.yaml"]):
        assert simulate(words) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 2_000_001)
    with pytest.raises(InputError, match=r"f:1:1: is larger than 2 MB; such a file is a few kB$"):
        read_user_file(tmp_path / "f", 2_000_000, usual="such a file is a few kB")
    assert len(read_user_file(tmp_path / "f", 2_000_001)) == 2_000_001


def test_the_pipe_of_a_shell_is_read() -> None:
    inner, outer = os.pipe()
    os.write(outer, b"text")
    os.close(outer)
    assert read_user_file(f"/dev/fd/{inner}", 100) == b"text"
    os.close(inner)
