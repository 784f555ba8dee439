"""Files of other programs, and damaged files of our own: read in linear time, or refused."""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
import time
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.console.run import run_app
from simulator.errors import InputError
from simulator.launch.arguments import Files
from simulator.launch.settings import read_deepspeed
from simulator.launch.shell import commands_of
from simulator.topology.yaml_source import read_json
from simulator.workload.hugging_face import read_config
from tests.calls import at_most_calls
from validate.cli import app as validate
from validate.importing.kineto import read_trace

# -- scripts -------------------------------------------------------------------------------

_TENFOLD = "".join(f"{chr(66 + i)}={('$' + chr(65 + i)) * 10}\n" for i in range(9))
BOMBS = {
    "variables that stand for ten others": f"A=xxxxxxxxxx\n{_TENFOLD}train.py --n $J\n",
    "a variable that doubles": "A=xy\n" + "A+=$A$A\n" * 40 + "train.py --n $A\n",
    "an array that triples": "A=(x y)\n" + 'A+=("${A[@]}" "${A[@]}")\n' * 40 + "train.py --n ${A[@]}\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_variables_that_grow_without_end_are_refused_where_they_do(name: str) -> None:
    with at_most_calls(300_000), pytest.raises(InputError) as caught:
        commands_of(BOMBS[name], "s.sh")
    fault = caught.value.faults[0]
    assert "variables stand for more than 4,000,000 characters" in fault.message
    assert fault.line > 1


def test_variables_of_a_usual_script_are_as_before() -> None:
    script = commands_of('A=(--tp 2)\nB=8\nrun.py "${A[@]}" --pp $B --n $((B * 2)) "$((1+$((B))))"\n', "s.sh")
    assert " ".join(word.text for word in script.commands[-1]) == "run.py --tp 2 --pp 8 --n 16 $((1+8))"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["9" * 200_000, 'run.py "' + "$((" * 60_000 + '"', "#c\n" * 60_000, "<a " * 60_000],
    ids=["one word", "sums that do not end", "comments", "words"],
)
def test_a_long_script_is_read_in_one_pass(text: str) -> None:
    """Each of these once took time quadratic in its length: minutes."""
    before_s = time.process_time()
    with contextlib.suppress(InputError):  # brackets that do not end are told
        commands_of(text, "s.sh")
    assert time.process_time() - before_s < 3.0


def test_places_in_a_script() -> None:
    words = [word for command in commands_of("a b\n\n  c\n", "s.sh").commands for word in command]
    assert [(word.text, word.line, word.column) for word in words] == [("a", 1, 1), ("b", 1, 3), ("c", 3, 3)]


# -- JSON ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": ' + "9" * 5_000 + "}", ":1:1: is not valid JSON: "),
        ('{"a": 1,\n "a": 2}', ":1:2: 'a' is there twice"),
        ("[" * 100_000, ":1:1: is not valid JSON: nested too deep"),
        ("[]", ":1:1: a config.json is a mapping: {...}"),
        ("", ":1:1: is not valid JSON: "),
    ],
)
def test_json_that_nobody_writes_is_refused(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_json(file, "config.json")
    assert str(caught.value).startswith(f"{file}{told}")


@pytest.mark.slow
def test_keys_are_compared_once(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{" + ",".join(f'"k{i}":1' for i in range(20_000)) + "}", encoding="utf-8")
    with at_most_calls(3_000_000):
        assert len(read_json(file, "config.json").data) == 20_000


def test_deepspeed_takes_no_key_twice_and_one_half(tmp_path: Path) -> None:
    """DeepSpeed itself raises on a duplicate key; here the last one once counted."""
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 8,\n"train_batch_size": 16}', encoding="utf-8")
    with pytest.raises(InputError, match=r"ds\.json:1:2: 'train_batch_size' is there twice"):
        read_deepspeed(str(file), Files("", {}))
    file.write_text('{"bf16": {"enabled": true},\n "fp16": {"enabled": true}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"ds\.json:2:2: fp16: bf16 is enabled too"):
        read_deepspeed(str(file), Files("", {}))
    file.write_text('{"zero_optimization":\n {"stage": 4}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"ds\.json:2:12: stage: must be a whole number, 0 to 3"):
        read_deepspeed(str(file), Files("", {}))


def test_a_network_of_a_billion_layers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100}
    file.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 10**9, **sizes}), encoding="utf-8")
    with pytest.raises(InputError, match="num_hidden_layers: must be a whole number, 1 to 1024"):
        read_config(str(file))


# -- traces ----------------------------------------------------------------------------------


def test_what_is_no_event_is_refused_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text('[{"ph": "M"},\n 1,' + "1," * 1_000_000 + "1]", encoding="utf-8")
    with at_most_calls(10_000), pytest.raises(InputError, match=r"t\.json:2:2: 1 is not an event: each is an object"):
        read_trace(str(file))


@pytest.mark.slow
def test_spaces_in_a_packed_trace_cost_next_to_nothing(tmp_path: Path) -> None:
    file = tmp_path / "t.json.gz"
    file.write_bytes(gzip.compress(b'{"traceEvents":[' + b" " * 100_000_000, compresslevel=1))
    before_s = time.process_time()
    with pytest.raises(InputError, match="ends within its list of events"):
        read_trace(str(file))
    assert time.process_time() - before_s < 2.0


# -- the file of a search ----------------------------------------------------------------------

_ASKED = shlex.split("best --topology p3.16xlarge --gpus 2 --workload resnet18 --global-batch 8 --jobs 1")
_BEST = [*_ASKED, *shlex.split("--parallel pp=1,tp=1,cp=1,zero=0 --recompute none --top 1 -q")]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the file of a search."""
    file = tmp_path_factory.mktemp("search") / "kept.jsonl"
    assert run([*_BEST, "--resume", str(file)]) == 0
    return file.read_text(encoding="utf-8")


_NO_SEARCH = ["my notes", "my notes\n", '{"search": "x"}', "[1, 2]\n", "\xff\n", "[" * 9_999 + "\n"]


@pytest.mark.parametrize("text", _NO_SEARCH)
def test_a_file_that_is_no_search_stays_as_it_is(text: str, tmp_path: Path, capsys) -> None:
    """A file without a line break was once taken for a new search, and emptied."""
    file = tmp_path / "notes.txt"
    file.write_text(text, encoding="latin-1")
    assert run([*_BEST, "--resume", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"{file}:1:1: is not a line of a search")
    assert file.read_text(encoding="latin-1") == text


def test_a_figure_that_was_changed_is_no_answer(kept: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "kept.jsonl"
    lines = kept.splitlines()
    entry = json.loads(lines[1])
    entry[1]["priced"][0][1] *= 2.0
    file.write_text("\n".join([lines[0], json.dumps(entry), *lines[2:]]) + "\n", encoding="utf-8")
    assert run([*_BEST, "--resume", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"{file}:2:1: is not a line of a search")


@pytest.mark.slow
def test_a_search_goes_on_from_any_place(kept: str, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    for length in (0, 5, len(kept) // 2, len(kept) - 1):
        file.write_text(kept[:length], encoding="utf-8")
        assert run([*_BEST, "--resume", str(file)]) == 0
        assert file.read_text(encoding="utf-8") == kept


@pytest.mark.parametrize(("path", "kind"), [("/dev/zero", "a device"), ("/dev/null", "a device"), (".", "a folder")])
def test_what_cannot_be_read_again_keeps_no_search(path: str, kind: str, capsys) -> None:
    assert run([*_BEST, "--resume", path]) == 2
    assert capsys.readouterr().err == f"simulate: --resume {path}: is {kind}; a file is needed\n"


def test_a_machine_that_another_file_describes_is_another_search(tmp_path: Path, capsys) -> None:
    """A cluster's file refers to its machine's file; the search once noted only the former."""
    machine, cluster, file = (tmp_path / name for name in ("machine.yaml", "cluster.yaml", "kept.jsonl"))
    text = "schema_version: 1\nname: m\ndevices:\n  gpu[0-1]: {part: v100-sxm2-16gb}\n  nic0: {part: connectx-5-edr}\n"
    text += "  cpu0: {part: xeon-e5-2686-v4}\nlinks:\n  - {between: ['gpu[0-1]', cpu0], part: pcie3-x16}\n"
    text += "  - {between: [nic0, cpu0], part: pcie3-x16}\n"
    cluster.write_text(f"schema_version: 1\nname: c\ncluster: {{node: {machine}, nodes: 2}}\n", encoding="utf-8")
    words = [word if word != "p3.16xlarge" else str(cluster) for word in _BEST]
    machine.write_text(text, encoding="utf-8")
    assert run([*words, "--resume", str(file)]) == 0, capsys.readouterr().err
    machine.write_text(text.replace("pcie3-x16", "pcie3-x8"), encoding="utf-8")
    assert run([*words, "--resume", str(file)]) == 2
    assert "is of another search" in capsys.readouterr().err


# -- options that went unread -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("waits --show --copy {here}", "--show prints the file and runs nothing; leave --copy out"),
        ("waits --show --json", "--show prints the file and runs nothing; leave --json out"),
        ("waits --copy {here} --plot x.svg", "--copy copies files and runs nothing; leave --plot out"),
        ("waits --copy=", "--copy needs the name of a folder"),
        ("waits --trace=", "--trace needs the name of a file"),
        ("--list --plot x.svg", "--list lists all scenarios; leave out what is about one"),
    ],
)
def test_what_a_scenario_does_not_do_is_refused(words: str, told: str, tmp_path: Path, capsys) -> None:
    assert run(["scenario", *(word.format(here=tmp_path) for word in words.split())]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"simulate: {told}\n"
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_processes_of_this_machine_are_none_of_a_cluster(capsys) -> None:
    assert run([*_BEST, "--dask", "tcp://nowhere:1"]) == 2
    assert capsys.readouterr().err == "simulate: --jobs: starts processes on this machine; --dask uses a cluster\n"


def test_there_are_not_more_processes_than_any_machine_has_use_for(capsys) -> None:
    assert run(["1025" if word == "1" else word for word in _ASKED]) == 2
    assert capsys.readouterr().err == "simulate: --jobs 1025: from 1 to 1024\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "trace none.json --topology t4 --workload resnet18 --batch 2 --what-if",
            "--what-if: belongs to the analysis of a step",
        ),
        (
            "trace none.json --topology t4 --workload resnet18 --batch 2 --mtbf 1h",
            "--mtbf: belongs to the analysis of a step",
        ),
        ("cluster --clean --dry-run", "--dry-run: is not read with --clean, which measures nothing"),
        ("cluster --dry-run --json", "--json: is not read with --dry-run, which measures nothing"),
    ],
)
def test_what_validate_would_not_read_is_refused(words: str, told: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "ops.csv").write_text("device,op,dtype,m,n,k,time_s\nt4,linear,fp32,64,64,64,1e-4\n", encoding="utf-8")
    assert run_app(validate, "validate", words.format(here=tmp_path).split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"validate: {told}")
    assert captured.out == ""


@pytest.mark.parametrize("option", ["--nccl 2.7", "--no-contention"])
def test_one_loop_over_gpus_takes_no_option_of_several_processes(option: str, capsys) -> None:
    words = "--topology p3.8xlarge --gpus 2 --workload resnet18 --batch 2 --parallel loop"
    assert run([*words.split(), *option.split()]) == 2
    assert capsys.readouterr().err.startswith(f"simulate: {option.split(maxsplit=1)[0]}: ")


def test_a_second_place_of_one_server_is_refused(capsys) -> None:
    """Once the first was used and the second ignored."""
    words = "--topology p3.16xlarge --workload bytes:1MB --strategy parameter-server --servers cpu0,cpu1"
    assert run(words.split()) == 2
    assert "one server stands somewhere, and --servers names 2 places" in capsys.readouterr().err
    assert run([*words.replace("server --", "server-sharded --").split(), "-q"]) == 0
