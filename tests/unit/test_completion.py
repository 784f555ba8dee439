"""Shell completion, and the lists of built-in names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli import COMMANDS, run
from simulator.topology.catalogue import builtin_topologies, part_names

SIMULATE = Path(sys.executable).with_name("simulate")
BASH = r"""
eval "$(simulate --completion bash)"
while IFS= read -r line; do
    IFS=$'\t' read -r -a COMP_WORDS <<< "$line"
    if [[ $line == *$'\t' ]]; then COMP_WORDS+=(""); fi
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); COMPREPLY=()
    _simulate_completion simulate < /dev/null
    echo "${COMPREPLY[*]}" | tr '\n' ' '; echo
done
"""
OFFERED = {
    ("--topology", "dgx-b"): ["dgx-b200", "dgx-b300"],
    ("--topology", "dgx-h100,dgx-h2"): ["dgx-h100,dgx-h200"],
    ("--strategy", "nccl,ri"): ["nccl,ring"],
    ("--workload", "llama2"): ["llama2-7b", "llama2-13b", "llama2-70b"],
    ("best", "--topology", "dgx-b"): ["dgx-b200", "dgx-b300"],
    ("scale", "--strat"): ["--strategy"],
    ("machines", "--gpu", "h100"): ["h100-nvl", "h100-pcie", "h100-sxm5-80gb"],
    ("parts", "--kind", "s"): ["switch", "storage"],
    ("scenario", "a-barrier"): ["a-barrier-each-batch"],
    ("",): list(COMMANDS),
    ("--quiet", "b"): [],
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_bash_offers_names():
    path = f"{SIMULATE.parent}{os.pathsep}{os.environ['PATH']}"
    lines = "".join("\t".join(("simulate", *words)) + "\n" for words in OFFERED)
    done = subprocess.run(
        ["bash", "-c", BASH], input=lines, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    assert done.stderr == ""
    offered = dict(zip(OFFERED, map(str.split, done.stdout.splitlines()), strict=True))
    assert offered == OFFERED


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_are_answered_in_their_form(shell: str):
    at = {"zsh": "3", "fish": "dgx-b"}[shell]
    asked = {
        "_SIMULATE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "simulate best --topology dgx-b",
        "COMP_CWORD": at,
    }
    environment = {**os.environ, **asked}
    done = subprocess.run([str(SIMULATE)], capture_output=True, text=True, check=True, env=environment)
    assert "dgx-b200" in done.stdout
    assert "dgx-a100" not in done.stdout


def test_a_shell_that_is_not_known_is_refused(capsys):
    assert run(["--completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "simulate: --completion tcsh: no such choice; allowed: bash, fish, zsh\n"


def test_validate_is_completed_too():
    asked = {"_VALIDATE_COMPLETE": "bash_complete", "COMP_WORDS": "validate sco", "COMP_CWORD": "1"}
    words = [sys.executable, "-m", "validate"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    assert done.stdout == "plain,score\n"
    made = subprocess.run([*words, "--completion", "bash"], capture_output=True, text=True, check=True)
    assert "_VALIDATE_COMPLETE=bash_complete" in made.stdout


def listed(arguments: list[str], capsys) -> list[dict]:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)[arguments[0]]


def test_machines_are_chosen_by_gpu_count_and_nodes(capsys):
    everything = listed(["machines"], capsys)
    assert [entry["name"] for entry in everything] == list(builtin_topologies())
    h100 = listed(["machines", "--gpu", "h100", "--gpus", "8"], capsys)
    assert {"dgx-h100", "p5.48xlarge"} <= {entry["name"] for entry in h100}
    assert all(sum(entry["gpus"].values()) == 8 for entry in h100)
    assert all("h100" in model for entry in h100 for model in entry["gpus"])
    four = listed(["machines", "--nodes", "4"], capsys)
    (cluster,) = [entry for entry in four if entry["name"] == "dgx-h100-x4-ndr"]
    assert cluster["gpus"] == {"h100-sxm5-80gb": 32}


def test_parts_and_networks_are_chosen_by_sort_and_words(capsys):
    assert [entry["name"] for entry in listed(["parts", "--kind", "gpu"], capsys)] == [*part_names("gpu")]
    volta = listed(["parts", "--kind", "gpu", "volta"], capsys)
    assert {"v100-sxm2-16gb", "titan-v"} <= {entry["name"] for entry in volta} < set(part_names("gpu"))
    images = listed(["networks", "--sample", "images"], capsys)
    assert {entry["sample"] for entry in images} == {"images"}
    assert all("llama" in entry["name"] for entry in listed(["networks", "llama"], capsys))
    assert "ring" in {entry["name"] for entry in listed(["strategies", "rings"], capsys)}
    assert [entry["name"] for entry in listed(["parts", "rtx4090"], capsys)] == ["rtx-4090"]
    assert {"llama3-8b", "llama3-70b"} <= {entry["name"] for entry in listed(["networks", "llama3.1"], capsys)}


def test_a_part_alone_is_listed_with_its_figures_and_their_sources(capsys):
    assert run(["parts", "h100-sxm5"]) == 0  # an alias
    text = capsys.readouterr().out
    assert text.startswith("h100-sxm5-80gb: NVIDIA H100 SXM5 80 GB\n  aliases                h100-sxm, ")
    assert "  memory_bandwidth       3350 GB/s  (stas00/ml-engineering@" in text
    assert "  peak.int8              1979 TFLOP/s  (UNVERIFIED: NVIDIA H100 data sheet" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["machines", "--gpu", "h101"], "--gpu h101: no machine has such a GPU; "),
        (["machines", "zzz"], "no built-in machine has 'zzz' in its name or description; simulate machines lists all"),
        (["machines", "--gpu", "h1000"], "--gpu h1000: no machine has such a GPU; did you mean 'h100'?"),
        (["parts", "pcie9"], "no part has 'pcie9' in its name or description; "),
        (["networks", "llama9"], "no network of the zoo has 'llama9' in its name or description; did you mean"),
        (["machines", "--gpus", "x"], "--gpus x: must be a whole number"),
        (["parts", "--kind", "gpus"], "--kind gpus: no such choice; did you mean 'gpu'?"),
        (["networks", "--sample", "image"], "--sample image: no such choice; did you mean 'images'?"),
        (["machine"], "'machine' belongs to no option; did you mean 'machines'? (--help)"),
    ],
)
def test_what_is_not_there_is_said(arguments: list[str], words: str, capsys):
    assert run(arguments) == 2
    assert capsys.readouterr().err.startswith(f"simulate: {words}")
