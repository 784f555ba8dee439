"""Every command at 60, 80, 100 and 120 columns: no line is longer, key columns stay, and what leaves is named."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from simulator.cli import (
    LISTS,
    exchange_command,
    run,
    scale_command,
    search_command,
    single_command,
    step_command,
    table,
)
from simulator.cli.table import Column
from simulator.console import Style

WIDTHS = (60, 80, 100, 120)
KEYS = re.compile(r"step|time|busbw|memory.*|layout|way|strategy|machine|a million .*|per million")
QUESTIONS = """
--topology p3.16xlarge
--topology p3.16xlarge --strategy ring
--topology p3.16xlarge --strategy nccl,ring --slow-link gpu0-gpu3:0x@1ms..3ms
--topology p3.16xlarge --nodes 4 --strategy nccl,ring,hierarchical,parameter-server-colocated
--topology p3.16xlarge,dgx-2,dgx-h100 --workload bytes:1GB --strategy nccl,gpu0
--topology p3.16xlarge --workload bytes:8B --strategy nccl,gpu0,tree
--topology dgx-h100 --nodes 16 --workload bytes:1GB --strategy nccl
--topology linux-host --nodes 2 --fabric ethernet-10g --workload bytes:1MB --strategy gloo,parameter-server
--topology p3.16xlarge --workload sweep:1kB-1MB:10 --strategy all
--topology p3.16xlarge --workload sweep:1kB-1MB:10 --strategy nccl,ring
--topology p3.16xlarge,dgx-2 --workload sweep:1kB-1MB:10 --strategy nccl,ring
--topology dgx-h100 --workload sweep:8B-8GB:8 --strategy nccl
--topology p3.2xlarge --workload resnet50 --batch 64 --what-if
--topology p3.16xlarge --workload gpt2 --batch 2 --parallel pp=8 --micro-batches 8
--topology p3.16xlarge --workload alexnet --batch 8 --strategy nccl,ring --straggler gpu3:2x
--topology dgx-h100 --nodes 16 --workload gpt2 --batch 8 --mtbf 3h --checkpoint-time 30s
--topology p3.2xlarge --workload resnet50 --batch 64 --input imagenet,workers=4,disk=memory
--topology p3.8xlarge --workload lenet --batch 8 --strategy parameter-server --staleness 2
--topology p3.16xlarge --workload alexnet --batch 8 --strategy all
--topology p3.16xlarge --workload alexnet --batch 8 --parallel dp --parallel tp=2 --parallel pp=2,dp=4
--topology p3.16xlarge --workload alexnet --batch 8 --parallel dp,fsdp,loop --overlap none,bucket:25MiB
--topology p3.8xlarge,p3.16xlarge,dgx-h100 --workload alexnet --batch 8 --strategy nccl,ring,parameter-server
--topology p3.2xlarge,dgx-h100 --workload gpt2-xl --batch 1 --gpus 1
--topology p3.8xlarge --workload resnet18 --batch 4 --device cpu0
--topology dgx-h100,dgx-a100-40gb --workload op:mat_mul,m=512,n=512,k=512,precision=bf16
--topology p3.16xlarge --workload op:conv2d,batch=8,c-in=64,c-out=64,h-in=56,w-in=56,kernel-h=3,kernel-w=3
--topology dgx-h100 --workload access:chase,sweep:4KiB-1GiB
--topology cpu-2xe5-2690v4 --workload access:chase,size=1GiB
--topology linux-host --nodes 2 --fabric ethernet-10g --workload message:4KiB
--topology p3.16xlarge --workload copy:h2d,size=1MB
--topology p3.2xlarge --workload launch:stream,op=elementwise,function=relu,elements=64
best --topology p3.8xlarge --workload lenet --global-batch 64 --micro-batch 16 --top 6 --jobs 1
best --topology p3.8xlarge --workload gpt2 --global-batch 16 --micro-batch 2 --parallel tp=1,pp=1 --jobs 1
scale --topology p3.16xlarge --gpus 1,2,4,8 --workload alexnet --batch 8
scale --topology p3.16xlarge --nodes 1,2 --workload lenet --global-batch 64
scale --topology p3.16xlarge --gpus 1,8 --workload gpt2-xl --batch 1 --parallel fsdp
machines
machines --gpu a100
networks
parts
strategies
scenario --list
scenario a-barrier-each-batch
"""
Kept = dict[Any, Any]


@pytest.fixture(scope="module")
def kept() -> Kept:
    return {}


@pytest.fixture
def answered_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer each question once, as only its text depends on the width."""

    def once(module: Any, name: str, named: Callable[[Sequence[Any]], Any]) -> None:
        answer = getattr(module, name)

        def known(*given: Any, **more: Any) -> Any:
            key = name, named(given)
            if key not in kept:
                kept[key] = answer(*given, **more)
            return kept[key]

        monkeypatch.setattr(module, name, known)

    once(exchange_command, "answer_exchanges", lambda given: given[0])
    once(step_command, "answer_steps", lambda given: given[0])
    once(single_command, "answer_singles", lambda given: given[0])
    once(scale_command, "answer_scale", repr)
    once(search_command, "find_best", lambda given: repr(given[0]))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Column]]:
    """Return a list to which every table adds its columns."""
    found: list[Sequence[Column]] = []
    fitted = table.widths_of

    def noted(columns: Sequence[Column], room: int | None) -> list[int] | None:
        found.append(columns)
        return fitted(columns, room)

    monkeypatch.setattr(table, "widths_of", noted)
    return found


def words_of(text: str) -> set[str]:
    return set(re.split(r"[\s,]+", text))


@pytest.mark.usefixtures("answered_once")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=() if i % 4 == 0 else pytest.mark.slow)
        for i, line in enumerate(QUESTIONS.split("\n")[1:-1])
    ],
)
def test_at_any_width(line: str, tables: list[Sequence[Column]], monkeypatch, capsys) -> None:
    words = shlex.split(line)
    given = words if words[0] in (*LISTS, "scenario") else [*words, "--quiet"]
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        tables.clear()
        assert run(given) in (0, 1)
        text = capsys.readouterr().out
        assert [shown for shown in text.splitlines() if len(shown) > width] == []
        seen = words_of(text)
        for columns in tables:
            for column in columns:
                key = column.spare == 0
                assert key or not KEYS.fullmatch(column.head), f"{column.head} would leave"
                says = any(cell not in ("", "-") for cell in column.cells)
                assert not says or words_of(column.head) <= seen, f"{column.head} left without a word"
                if key:
                    assert [cell for cell in column.cells if not words_of(cell) <= seen | {"-"}] == []


COMMAND = """simulate --topology p3.8xlarge --set 'a  b'\\''c' --set "d \\" e" --set f\\ g""" + " --batch 64" * 20


def test_a_command_on_several_lines_is_one_to_a_shell() -> None:
    assert Style().wrap_command(COMMAND) == [COMMAND]
    for width in (20, 40, *WIDTHS):
        lines = Style(width).wrap_command(COMMAND)
        assert len(lines) > 1
        assert all(len(line) <= width for line in lines)
        shell = "simulate() { printf '%s\\n' simulate \"$@\"; }\n" + "\n".join(lines)
        said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
        assert said.splitlines() == shlex.split(COMMAND)
    assert Style(10).wrap_command("simulate --workload") == ["simulate \\", "    --workload"]


@pytest.mark.slow
def test_comparisons_of_steps_show_fit_time_and_rate(monkeypatch, capsys, tables: list[Sequence[Column]]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    run(["--topology", "p3.2xlarge,dgx-h100", "--workload", "gpt2-xl", "--batch", "1", "--gpus", "1"])
    out = capsys.readouterr().out
    assert "memory" in out
    heads = {column.head for column in tables[0] if not column.spare}
    assert {"machine", "step"} <= heads
    assert any(head.startswith("memory") for head in heads)
    assert re.search(r"\d GB over", out)
