"""Scripts that choose between branches, take arguments and run one another, against bash itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.launch.shell import commands_of

SIZES = 'if [ $SIZE = 7B ]; then\nL=32\nH=4096\nelif [ "$SIZE" == 70B ]\nthen\nL=80\nH=8192\nelse L=0; fi\n'
SCRIPTS = {
    "if": f"SIZE=7B\n{SIZES}run.py --l $L --h $H",
    "elif": f"SIZE=70B\n{SIZES}run.py --l $L --h $H",
    "else": f"SIZE=1B\n{SIZES}run.py --l $L --h $H",
    "one line each": "if   [[ ${M} == 7 ]]; then N=1; K=2\nelif [[ 1 == 1 ]]; then N=3; K=4\nfi\nrun.py --n $N --k $K",
    "numbers": "TP=8\nif [ $TP -gt 4 ] && [ $TP -le 8 ]; then A=1; fi\nif (( TP == 4 )); then A=2; fi\nrun.py --a $A",
    "either": "A=x\nif [ $A = y ] || [[ -n $A ]]; then B=1; else B=2; fi\nrun.py --b $B",
    "not": 'if ! [ "$A" = y ]; then B=1; fi\nif [ ! -z "$B" ]; then C=2; fi\nrun.py --b $B --c $C',
    "both in one": "A=1\nB=2\nif [[ $A == 1 && $B == 3 ]]; then C=4; else C=5; fi\nrun.py --c $C",
    "unset is empty": 'if [ -n "${KEY}" ]; then A=1; fi\nif [ -z ${VP} ]; then VP=3; fi\nrun.py --a "$A" --v $VP',
    "within": "A=1\nif [ $A = 1 ]; then\n if [ $A = 2 ]; then B=3; else B=4; fi\n C=5\nfi\nrun.py --b $B --c $C",
    "within what does not run": "A=2\nif [ $A = 1 ]; then\nif true; then A=9; fi\nelse A=7\nfi\nrun.py --a $A",
    "case": "S=13b\ncase $S in\n 7b) L=32;;\n 13b|14b)\n  L=40\n  H=5120 ;;\n *) L=0 ;;\nesac\nrun.py --l $L --h $H",
    "a pattern": 'case "llama3-8b" in (llama*) F=1;; *) F=2;; esac\nrun.py --f $F',
    "and": '[ -z "$TP" ] && TP=4\n[[ $TP = 4 ]] || TP=8\n[ $TP = 8 ] && TP=2\nrun.py --tp $TP',
    "greater": "N=2\nif [[ $N > 1 ]]; then A=1; fi\nrun.py --a $A",
    "a document in a branch": "Z=3\nif [ $Z = 3 ]; then cat > f <<E\n3\nE\nelse cat > f <<E\n2\nE\nfi\nrun.py --z $Z",
    "appended": "A=(--x 1)\nif [ 1 -eq 2 ]; then A+=(--fp8); fi\nif [ 1 -eq 1 ]; then A+=(--bf16); fi\nrun.py ${A[@]}",
    "a choice": "TP=2\nC=$(( ($TP > 1) ? 1 : 0 ))\nrun.py --c $C --d $(( ${TP} * (3 + ${C}) / 2 ))",
    "defaults": "B=5\nrun.py --a ${A:-${B:-1}} --b ${B:-2} --c ${C:=7} --d $C",
    "an alternative": "V=2\nrun.py ${V:+--vp $V} ${W:+--w $W} --b 1",
    "arguments that are not there": 'N=64\nif [ -n "${3}" ]; then N=$3; fi\n[ -z "$1" ] && M=2\nrun.py --n $N --m $M',
    "set by a colon": ': ${HS:=4096}\n: "${TP:=8}"\nrun.py --h $HS --tp $TP',
    "an empty default": 'A=""\nrun.py --a ${A:-3}',
    "eval": 'F="\'([0]*1+[1]*3)\'"\nC="run.py --f $F --b 2 2>&1 | cat"\neval $C',
    "a command in quotes": "X='--a 1'\nexport X\nbash -c 'run.py $X --b 2'",
    "no loop": "TP=8\nwhile [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; esac; done\nrun.py --tp $TP",
}


def _of_bash(command: list[str], folder: Path) -> list[str]:
    """Return the words that *command*, run by bash in *folder*, gives to run.py."""
    program = folder / "run.py"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > said\n')
    program.chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    subprocess.run(["bash", *command], cwd=folder, env=env, capture_output=True, timeout=20, check=False)
    return (folder / "said").read_text().splitlines()


def _launched(text: str) -> list[str]:
    words = [word.text for word in commands_of(text, "s.sh").commands[-1]]
    return words[words.index("run.py") + 1 :]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_branch_that_runs_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text(SCRIPTS[name] + "\n")
    assert _launched(SCRIPTS[name]) == _of_bash(["s.sh"], tmp_path)


def test_what_only_the_run_knows_leaves_both_branches() -> None:
    for test in (
        "[ -f data.bin ]",
        "grep -q x file",
        "[ $GIVEN = a ]",
        "[ $(hostname) = a ]",
        "[ $SLURM_NNODES -gt 1 ]",
    ):
        script = commands_of(
            f"GIVEN=$1; if {test}; then A=1; else A=2; fi\nif [ $A = 1 ]; then B=3; fi\nrun.py --b $B", "s.sh"
        )
        assert script.twice == ("A",)
        assert [word.text for word in script.commands[-1]] == ["run.py", "--b", "3"]


LINE = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length "
    "1024 --max-position-embeddings 1024 --vocab-size 1000 --micro-batch-size 1 --global-batch-size 16 "
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_arguments_and_variables_reach_a_script(folder: Path) -> None:
    folder.joinpath("train.sh").write_text(
        f'SIZE=$1\nTP=${{2:-1}}\nif [ "$SIZE" = big ]; then A="--bf16"; fi\n{LINE} $A '
        "--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP:-1}\n"
    )
    found = read_launch("PP=2 bash train.sh big 4")
    assert (found.options["parallel"], found.options["precision"]) == ("tp=4,pp=2,dp=1", "master-bf16")
    assert read_launch("bash train.sh small").options["parallel"] == "dp=8"


def test_a_script_that_is_sourced_sets_variables(folder: Path) -> None:
    folder.joinpath("conf").mkdir()
    folder.joinpath("conf/sizes.sh").write_text("ARGS=(--tensor-model-parallel-size 2)\n")
    script = folder / "run.sh"
    script.write_text(f'D=$(dirname "$0")\nsource "$(dirname $0)/conf/sizes.sh"\n{LINE} ${{ARGS[@]}}\n')
    assert read_launch(f"@{script}").options["parallel"] == "tp=2,dp=4"


def test_options_of_sbatch_go_before_those_of_its_script(folder: Path) -> None:
    folder.joinpath("job.sh").write_text(
        f"#SBATCH --nodes=2 --ntasks-per-node=1\n{LINE.replace('torchrun', 'srun torchrun --nnodes $SLURM_NNODES')}\n"
    )
    assert read_launch("sbatch --nodes=4 -p gpu job.sh").options["nodes"] == "4"
    assert read_launch("sbatch job.sh").options["nodes"] == "2"


@pytest.mark.parametrize(
    "loop",
    ['for A in "$@"; do export "$A"; done', "while [ $# -gt 0 ]; do case $1 in --tp) TP=$2;; esac; shift 2; done"],
)
def test_a_loop_over_arguments_is_refused(folder: Path, loop: str) -> None:
    folder.joinpath("run.sh").write_text(f"TP=1\n{loop}\n{LINE} --tensor-model-parallel-size $TP\n")
    assert read_launch("@run.sh").options["parallel"] == "dp=8"
    with pytest.raises(InputError, match=r"run\.sh:2:\d+: takes the script's arguments in a loop, which is not run"):
        read_launch("bash run.sh --tp 4")


@pytest.mark.parametrize("script", ["eval " * 400 + "run.py --a 1", "source s.sh\nrun.py --a 1"])
def test_what_reads_itself_is_refused(folder: Path, script: str) -> None:
    folder.joinpath("s.sh").write_text(script + "\n")
    with pytest.raises(InputError, match="more than 8 scripts read one another"):
        read_launch("@s.sh")


def test_the_output_of_a_command_is_one_word() -> None:
    assert read_launch(f"{LINE} --data-path $(python3 prepare.py -p data --all)").options["parallel"] == "dp=8"
    script = (
        'ADDR=$(scontrol show hostnames $L | head -n 1)\nL="python -m torch.distributed.run --nproc_per_node 8 '
        f'--rdzv_endpoint $ADDR:6000"\nsrun bash -c "$L {LINE.partition("8 ")[2]}"\n'
    )
    assert read_launch(script).options["parallel"] == "dp=8"


@pytest.mark.parametrize("count", ["$(nvidia-smi -L | wc -l)", '`python -c "import torch; torch.cuda.device_count()"`'])
def test_counted_gpus_are_all_of_a_machine(count: str) -> None:
    found = read_launch(f"N={count}\n{LINE.replace('--nproc-per-node 8', '--nproc-per-node $N')}", own=4)
    assert "gpus" not in found.options
