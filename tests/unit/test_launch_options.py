"""Every option in the frameworks' own lists has an answer, and what is emitted is in the lists."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest

from docs.launch_options.answers import LISTS, List, option_list, what_becomes_of
from simulator.cli.launch_line import emitted_on
from simulator.errors import InputError
from simulator.launch.emit.emitted import EMITTERS, Emitter
from simulator.launch.emit.parts import Emission
from tests.emitted import SESSION, asked, drawn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "launch-options.md"
OF: dict[Emitter, tuple[List, ...]] = {
    "megatron": ("megatron",),
    "torchtitan": ("torchtitan",),
    "deepspeed": ("deepspeed", "trainer"),
    "accelerate": ("accelerate", "trainer"),
}
_OF_PROGRAM = {"model_name_or_path", "block_size", "deepspeed"}  # of run_clm.py
_OF_LAUNCHERS = {"nnodes", "nproc_per_node", "num_gpus", "num_nodes", "m"}  # of torchrun and deepspeed


_LONG = ("megatron", "megatron-bridge", "axolotl")  # 600 options and more, or files of many keys


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in _LONG else n for n in LISTS])
def test_every_option_has_an_answer(name: List) -> None:
    """On two lines of those that the page is made of: an option that nobody knows is unknown on each."""
    found = what_becomes_of(name, 2)
    assert [option for option, (answer, _) in found.items() if answer == "unknown"] == []
    assert all(why for answer, why in found.values() if answer in ("not modelled", "refused"))
    assert sum(answer == "modelled" for answer, _ in found.values()) >= 8
    page = PAGE.read_text(encoding="utf-8")
    assert [option for option in found if f"`{option}`" not in page] == []


def options_said(found: Emission) -> dict[str, list[str]]:
    """Return the options of the line and of its files, with their values."""
    said: dict[str, list[str]] = {}
    name = ""
    for word in [*found.launcher, *shlex.split(" ".join(found.arguments))]:
        if word.startswith("-"):
            name = word.lstrip("-")
            said[name] = []
        elif name:
            said[name].append(word)
    for text in found.files.values():
        for key, value in json.loads(text).items():
            inside = value if isinstance(value, dict) else {}
            said |= {f"{key}.{inner}": [] for inner in inside} or {key: []}
    return said


@pytest.mark.parametrize("framework", EMITTERS)
def test_what_is_emitted_is_in_the_frameworks_lists(framework: Emitter) -> None:
    lists = [option_list(name) for name in OF[framework]]
    known = {option.replace("-", "_") for each in lists for option in each.options}
    choices = {option.replace("-", "_"): values for each in lists for option, values in each.choices.items()}
    lines = 0
    for seed in range(60):
        try:
            found = emitted_on(SESSION, asked(drawn(framework, random.Random(f"{framework} {seed}"))), framework)
        except InputError:
            continue
        lines += 1
        for option, values in options_said(found).items():
            plain = option.replace("-", "_")
            assert plain in known | _OF_PROGRAM | _OF_LAUNCHERS, option
            allowed = choices.get(plain)
            assert allowed is None or not set(values) - set(allowed), (option, values)
    assert lines > 20


@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_its_source(name: List) -> None:
    found = option_list(name)
    assert found.source.startswith("https://")
    assert found.version in found.source
    assert len(set(found.options)) == len(found.options) > 70
    assert found.choices.keys() <= set(found.options)
