"""Dumps, logs and traces with random damage are read, or refused in one line."""

from __future__ import annotations

import json
import random
import re

import pytest

from simulator.errors import InputError
from simulator.topology.load import topology_from_text
from tests.nccl_logs import as_json_log, as_log
from tests.unit.test_dumps import HWLOC, LISTED, LOG, LSPCI, NCCL_XML, NV12
from tests.unit.test_trace import document, two_steps
from validate.importing.kineto import read_trace
from validate.importing.nccl_tests import read_nccl_tests
from validate.machine.describe.dumps.combine import combined
from validate.machine.describe.dumps.read import read_dump

CLASSES = "0 2 3\n2 0 1\n3 1 0\n"
DUMPS = {"topo": NV12, "nccl": NCCL_XML, "hwloc": HWLOC, "lspci": LSPCI, "log": LOG, "list": LISTED, "classes": CLASSES}
TIMES = [(1 << 20, 1e-4), (1 << 24, 1e-3)]
LOGS = {"text": as_log(TIMES), "json": as_json_log(TIMES), "bare": as_log(TIMES, header=False)}
PIECES = (
    "<",
    ">",
    '"',
    "0",
    "-1",
    "9" * 20,
    "nan",
    "\x00",
    "\u202e",
    "NV18",
    "GPU9",
    "X",
    "[",
    "}",
    "\n",
    "1e999",
    "0000:",
)


def damaged(text: str, dice: random.Random) -> str:
    """Return *text* with characters deleted, doubled or inserted, numbers changed, or its end cut off."""
    for _ in range(dice.choice((1, 1, 2, 5, 20))):
        place, other = sorted((dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)))
        how = dice.randrange(5)
        if how == 0:
            text = text[:place] + text[place + dice.choice((1, 3, 30)) :]
        elif how == 1:
            text = text[:place] + dice.choice(PIECES) + text[place:]
        elif how == 2:
            text = text[:place] + text[place:other][:300] + text[place:]
        elif how == 3:
            text = text[:other]
        else:
            numbers = list(re.finditer(r"\d+", text))
            if numbers:
                found = dice.choice(numbers)
                text = (
                    text[: found.start()] + dice.choice(("0", "-5", "7", "100000", "3.5", "1e9")) + text[found.end() :]
                )
        text = text or "x"
    return text


@pytest.mark.parametrize("name", DUMPS)
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_dump_is_a_machine_or_refused(name, seed, tmp_path) -> None:
    dice = random.Random(f"{name} {seed}")
    told: list[str] = []
    file = tmp_path / "dump"
    for _ in range(60):
        file.write_text(damaged(DUMPS[name], dice), encoding="utf-8", errors="replace")
        try:
            text, _ = combined([read_dump(str(file))], dice.choice((None, "v100-sxm2-16gb")), "connectx-6-hdr")
        except InputError as error:
            told.append(str(error.faults[0]))
        else:
            assert topology_from_text(text).devices
    assert not [line for line in told if "\n" in line]


@pytest.mark.parametrize("name", LOGS)
def test_a_damaged_log_is_read_or_refused(name) -> None:
    dice = random.Random(name)
    told: list[str] = []
    for _ in range(300):
        try:
            log = read_nccl_tests(damaged(LOGS[name], dice), "a")
        except InputError as error:
            told.append(str(error.faults[0]))
        else:
            assert log.n_ranks > 1
            assert log.points
    assert not [line for line in told if "\n" in line]


def test_a_damaged_trace_is_read_or_refused(tmp_path) -> None:
    dice = random.Random(0)
    told: list[str] = []
    file = tmp_path / "trace"
    whole = json.dumps(document(two_steps()))
    for _ in range(300):
        file.write_text(damaged(whole, dice), encoding="utf-8", errors="replace")
        try:
            trace = read_trace(str(file))
        except InputError as error:
            told.append(str(error.faults[0]))
        else:
            assert len(trace.kernels)
    assert not [line for line in told if "\n" in line]
