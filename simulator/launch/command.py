"""The command of a script that launches the training, and its parts: :func:`find_command`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from simulator.errors import Fault, InputError
from simulator.launch.setting import set_by
from simulator.launch.shell import Script, commands_of
from simulator.launch.words import Word

_OTHERS = ("echo", "printf", "mkdir", "rm", "cp", "pip", "git", "tee", "cat", "set")
_STARTERS = frozenset(
    (
        *("torchrun", "deepspeed", "accelerate", "torch.distributed.run", "torch.distributed.launch"),
        *("accelerate.commands.launch", "colossalai", "composer", "tune"),
    )
)
_PYTHON = re.compile(r"python[\d.]*")
_ONE_UNLESS_TOLD = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
# Programs without a .py that are followed by a command of theirs (llamafactory-cli train).
_PROGRAMS = frozenset(
    [
        "llamafactory-cli",
        "axolotl",
        "litgpt",
        "trl",
        "fairseq-train",
        "nemo",
        "swift",
        "xtuner",
        "lightning",
        "train_gpt2cu",
        "train_gpt2fp32cu",
        "profile_gpt2cu",
    ]
)
_RECIPES = ("_distributed", "_single_device")  # of torchtune: tune run --nproc_per_node 8 full_finetune_distributed


@dataclass(frozen=True, slots=True)
class Command:
    """A command in its parts.

    ``outer`` are the words before the launcher that starts the processes of a node (``srun ...``), ``launcher`` its own
    and ``arguments`` those of ``program``, which is "" if none is named; ``starter`` is "" without such a launcher.
    ``environment`` are the variables that the script and the words before the program set.
    """

    outer: Sequence[Word]
    starter: str
    launcher: Sequence[Word]
    program: str
    arguments: Sequence[Word]
    environment: Mapping[str, Word] = field(default_factory=dict)

    @property
    def starts_one(self) -> bool:
        """Whether the launcher starts one process unless it is told otherwise."""
        return self.starter in _ONE_UNLESS_TOLD


def find_command(script: Script, file: str) -> Command:
    """Return the command that launches the training: the last one with options that runs a program, best by a launcher.

    Raises InputError if there is none.
    """
    unquoted = [(place, *_unquoted(outer, file)) for place, outer in enumerate(script.commands)]
    found = [each for each in unquoted if _name(each[1][0]) not in _OTHERS]
    programs = [each for each in found if _program_of(each[1]) is not None]
    started = [each for each in programs if any(_name(word) in (*_STARTERS, "srun", "mpirun") for word in each[1])]
    with_options = [each for each in programs if any(word.text.startswith("-") for word in each[1])]
    without_program = [each for each in found if any(word.text.startswith("--") for word in each[1])]
    for kind in (started, with_options, programs, without_program):
        if kind:
            place, words, inner = kind[-1]
            divided = _divided(words)
            of_words = set_by([*divided.outer, *divided.launcher])
            return replace(divided, environment={**script.environment(place), **of_words, **inner})
    raise InputError(
        Fault("no command with arguments is there; for example torchrun pretrain_gpt.py --num-layers 24 ...", file)
    )


def _divided(words: Sequence[Word]) -> Command:
    at = _program_of(words)
    before = words[: len(words) if at is None else at]
    start = next((i for i in reversed(range(len(before))) if _name(before[i]) in _STARTERS), None)
    outer, launcher = (words[:0], before) if start is None else (before[:start], before[start + 1 :])
    starter = "" if start is None else _name(before[start])
    python = next((i for i in reversed(range(len(launcher))) if _PYTHON.fullmatch(_name(launcher[i]))), None)
    launcher = launcher if at is None else launcher[:python]
    if at is not None:
        return Command(outer, starter, launcher, _name(words[at]), words[at + 1 :])
    if words[0].text.startswith("-"):  # arguments without a program
        return Command(words[:0], "", words[:0], "", words)
    return Command(outer, starter, launcher, "", launcher)  # without a program, the two are one


def _program_of(words: Sequence[Word]) -> int | None:
    """Return the place of the program among *words*: a Python file, a module, or a known one; None if it has none."""
    for i, word in enumerate(words):
        is_module = i > 0 and words[i - 1].text in ("-m", "--module") and _name(word) not in _STARTERS
        if (
            word.text.endswith((".py", *_RECIPES))
            or _name(word) in _PROGRAMS
            or (is_module and not word.text.startswith("-"))
        ):
            return i
    return None


def _name(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _unquoted(words: tuple[Word, ...], file: str) -> tuple[tuple[Word, ...], dict[str, Word]]:
    """Return *words*, with a quoted command (``bash -c "..."``) replaced by its own words, and what it sets."""
    inner = next((word for word in words if " " in word.text and ".py " in word.text and "-" in word.text), None)
    if inner is None:
        return words, {}
    script = commands_of(inner.text, file)
    deeper = (replace(inner, text=word.text) for command in script.commands for word in command)
    sets = script.environment(len(script.commands) - 1)
    return (*words[: words.index(inner)], *deeper), {name: replace(inner, text=w.text) for name, w in sets.items()}
