"""Scripts as people write them - here-documents, quotes within each other, odd bytes - against bash itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.launch.shell import commands_of
from tests.calls import at_most_calls

_RUN = "run.py --tensor-model-parallel-size"
# Scripts whose last command is `run.py ...`, which bash is asked for too.
SCRIPTS = {
    "an apostrophe in a here-document": "cat <<EOF\nit's here\nEOF\nTP=4\nrun.py --tp $TP",
    "a quoted delimiter": "cat <<'E F'x > /dev/null\n\"\nE Fx\nrun.py --tp 2",
    "a delimiter behind tabs": "cat <<-EOF\n\t'\n\tEOF\nrun.py --tp 2",
    "a delimiter within a line": "cat <<EOF\n'EOF\n EOF\nEOF\nrun.py --tp 2",
    "two documents": "cat <<A <<B\n'\nA\n\"\nB\nrun.py --tp 2",
    "a document in the middle of a command": "cat <<EOF | tee x; A=1\n`\nEOF\nrun.py --tp $A".replace("`", "'"),
    "a document in a substitution": "A=$(cat <<EOF\nit's (\nEOF\n)\nrun.py --tp 3",
    "a command within a document": "cat <<EOF\nrun.py --tp 8\nEOF\nrun.py --tp 2",
    "a shift that is no document": "((A = 1 << 2))\nB=$((1 << 3))\nrun.py --tp 2",
    "a here-string": "cat <<<word\nrun.py --tp 2",
    "escapes": "run.py --name $'a\\'b' --tab $'a\\tb' --hex $'\\x41\\101' --two $\"x\"",
    "quotes within a substitution": 'A="$(printf %s "it is (" "a")"\nrun.py --tp "2"',
    "a bracket in quotes": "A=$(echo ')' \")\")\nrun.py --tp 2",
    "an apostrophe in a comment of a substitution": "A=$(echo 1 # don't\n)\nrun.py --tp 2",
    "quotes in an expansion in quotes": "run.py --x \"${A:-'it is a bracket }'}\" --tp 2",
    "a quote in an expansion": "run.py --x ${A:-'a}b'} --tp 2",
    "declared": "declare -i A=2; readonly B=3; export C=4\nrun.py --a $A --b $B --c $C",
    "redirections": "run.py > /dev/null --a 1 2>&1\nrun.py --tp 2 2>&1 --b 3 < /dev/null",
    "all output": "run.py --tp 2 --b 3 &> /dev/null",
    "appended": "run.py --tp 2 >> /dev/null 2>> /dev/null --c 4",
    "unset and set again": "TP=8\nunset TP\nTP=2\nrun.py --tp $TP",
}


def _of_bash(script: str, folder: Path) -> list[str]:
    """Return the words that bash gives to run.py."""
    program = folder / "run.py"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@" > said\n')
    program.chmod(0o755)
    (folder / "s.sh").write_text(script + "\n")
    subprocess.run(
        ["bash", "s.sh"],
        cwd=folder,
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    return (folder / "said").read_text().splitlines()[1:]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize("name", [name for name in SCRIPTS if "in an expansion" not in name])
def test_words_are_those_of_bash(name: str, tmp_path: Path) -> None:
    ours = [word.text for word in commands_of(SCRIPTS[name], "s.sh").commands[-1]]
    assert ours[0] == "run.py"
    assert ours[1:] == _of_bash(SCRIPTS[name], tmp_path)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_last_command_is_the_one_that_runs(name: str) -> None:
    words = [word.text for word in commands_of(SCRIPTS[name], "s.sh").commands[-1]]
    assert words[0] == "run.py"
    assert len(words) >= 3


@pytest.mark.parametrize("shell", ["sbatch", "bash -s", "ssh node0 bash", "/bin/bash"])
def test_a_document_that_a_shell_reads_is_a_script(shell: str) -> None:
    text = f"{shell} <<EOF\n#!/bin/bash\ntorchrun {_RUN} 4 --num-layers 2\nEOF\n"
    words = [word.text for word in commands_of(text, "s.sh").commands[-2]]
    assert words[:2] == ["torchrun", "run.py"]


def test_what_is_unset_is_not_simulated(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text(f"TP=8\nunset TP\ntorchrun {_RUN} $TP --num-layers 2 --micro-batch-size 1\n")
    with pytest.raises(InputError, match=r"s\.sh:3:17: --tensor-model-parallel-size: \$TP is set nowhere"):
        read_launch(f"@{script}")


def test_a_path_in_latin_1_is_read(tmp_path: Path, capsys) -> None:
    script = tmp_path / "s.sh"
    script.write_bytes(
        f"torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers 2 --hidden-size 64 "
        f"--num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 "
        f"--global-batch-size 8 --vocab-size 100 --data-path /donn\xe9es {'--caf' + chr(0xE9)} 1\n".encode("latin-1")
    )
    assert run(["--topology", "dgx-h100", "--launch", f"@{script}", "--show-options"]) == 0
    said = capsys.readouterr()
    assert "tp=4" in said.out
    assert "--caf\\udce9" in said.err
    script.write_bytes(b"a\nb\0c")
    with pytest.raises(InputError, match=r"s\.sh:2:1: is not text; a shell script is needed$"):
        read_launch(f"@{script}")


@pytest.mark.slow
def test_many_variables_set_twice_are_counted(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    twice = "".join(f"V{i}={j}\n" for j in (1, 2) for i in range(20_000))
    script.write_text(f"{twice}torchrun train.py --per_device_train_batch_size 2\n")
    notes = read_launch(f"@{script}", 8).notes
    assert len(notes[0]) < 300
    assert notes[0].startswith(f"{script}: variables are set more than once, and the last value counts: $V0, $V1, ")
    assert notes[0].endswith(", ... (20,000 in all)")
    assert not any("$V" in note for note in notes[1:])


@pytest.mark.slow
def test_documents_without_an_end_cost_no_more() -> None:
    with at_most_calls(6_000_000):
        commands_of("".join(f"a <<E{i}\n" for i in range(40_000)), "s.sh")


@pytest.mark.parametrize("text", ["run.py $(a 'b", "run.py $'a\\'", 'run.py "$(a "b)', "run.py ${a", "A=(<<b"])
def test_what_does_not_end_is_told_where_it_begins(text: str) -> None:
    with pytest.raises(InputError, match=r"^s\.sh:1:\d+: (this (quote|bracket) does not end|'<' cannot stand in an)"):
        commands_of(text, "s.sh")
