"""Find the command of a script that launches the training, in its parts (docs/decisions/launch-lines.md)."""

import re
from collections.abc import Mapping, Sequence
from os.path import isfile

from simulator.errors import Fault, InputError
from simulator.launch.shell import Script, script_arguments
from simulator.launch.words import COMMANDS, NAMES, Word
from simulator.records import dataclass, field, replace

_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".sub")
_PYTHON = re.compile(r"python[\d.]*")
_RECIPES = ("_distributed", "_single_device")  # of torchtune: tune run --nproc_per_node 8 full_finetune_distributed
_SETS = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BEFORE = ("-x", "-e", "--env")  # of Open MPI and docker: before NAME=value
_PAIRED = ("-genv", "-env")  # of MPICH: before NAME value
_SHOWS = "NVIDIA_VISIBLE_DEVICES"  # to a container; outside it has no effect
_DEVICES = re.compile(r'"?device=([\w.:/-]+(?:,(?!\w+=)[\w.:/-]+)*)')
_COUNT = re.compile(r"(?:count=)?(\d{1,4})(?:,.*)?")


@dataclass(frozen=True, slots=True)
class Command:
    """A command in its parts."""

    outer: Sequence[Word]  # before the launcher of a node's processes (``srun ...``)
    starter: str  # "" without such a launcher
    launcher: Sequence[Word]
    program: str  # "" if none is named
    arguments: Sequence[Word]
    environment: Mapping[str, Word] = field(default_factory=dict)  # as script and words before the program set it
    container: Word | None = None  # which GPUs that shows to a container it starts
    note: str = ""  # that it shows a container none


def started_script(script: Script) -> tuple[str, dict[str, list[str]], tuple[Word, ...]] | None:
    """Return the last script at hand that *script* runs, and its variables and job for :func:`commands_of`.

    None if it runs none, or launches a program itself.
    """
    found = None
    for place, words in enumerate(script.commands):
        if _program_of(words) is not None:
            return None
        at = next((i for i, word in enumerate(words) if word.text.endswith(_SCRIPTS) and isfile(word.text)), None)
        names = [word.name for word in words[:at]]
        if at is None or (names and not COMMANDS["shells"].intersection(names)):
            continue
        asked = [replace(word, text=f"#SBATCH {word.text}") for word in words[1:at] if names[:1] == ["sbatch"]]
        given = [word.text for word in words[at + 1 :]]
        known = {name: [word.text] for name, word in script.environment(place).items()}
        found = words[at].text, known | script_arguments(given), tuple(asked)
    return found


def find_command(script: Script, file: str) -> Command:
    """Return the last command that runs a program with options, best by a launcher; raises InputError if none."""
    found = []
    for place, whole in enumerate(script.commands):
        words = _bare(whole)
        if words and words[0].name not in COMMANDS["others"]:
            found.append((place, words, whole))
    programs = [each for each in found if _program_of(each[1]) is not None]
    launchers = COMMANDS["starters"] | COMMANDS["of_clusters"]
    started = [each for each in programs if any(word.name in launchers for word in each[1])]
    with_options = [each for each in programs if any(word.text.startswith("-") for word in each[1])]
    without_program = [each for each in found if any(word.text.startswith("--") for word in each[1])]
    kind = next(filter(None, (started, with_options, programs, without_program)), None)
    if kind is None:
        told = "no command with arguments is there; for example torchrun pretrain_gpt.py --num-layers 24 ..."
        raise InputError(Fault(told, file))
    place, words, whole = kind[-1]
    divided = _divided(words)
    before = whole if divided.launcher is divided.arguments else whole[: len(whole) - len(divided.arguments)]
    environment = {**script.environment(place), **_set_by(before)}
    container, note = _container(before)
    return replace(divided, environment=environment, container=container, note=note)


def _divided(words: Sequence[Word]) -> Command:
    at = _program_of(words)
    before = words[: len(words) if at is None else at]
    start = next((i for i in reversed(range(len(before))) if before[i].name in COMMANDS["starters"]), None)
    outer, launcher = (words[:0], before) if start is None else (before[:start], before[start + 1 :])
    starter = "" if start is None else before[start].name
    if at is not None:
        python = next((i for i in reversed(range(len(launcher))) if _PYTHON.fullmatch(launcher[i].name)), None)
        return Command(outer, starter, launcher[:python], words[at].name, words[at + 1 :])
    if words[0].text.startswith("-"):  # arguments without a program
        return Command(words[:0], "", words[:0], "", words)
    return Command(outer, starter, launcher, "", launcher)  # without a program, the two are one


def _program_of(words: Sequence[Word]) -> int | None:
    """Return the place of the program among *words*: a Python file, a module, or a known one; None if it has none."""
    for i, word in enumerate(words):
        is_module = i > 0 and words[i - 1].text in ("-m", "--module") and word.name not in COMMANDS["starters"]
        is_known = word.text.endswith((".py", *_RECIPES)) or word.name in COMMANDS["programs"]
        if is_known or (is_module and not word.text.startswith("-")):
            return i
    return None


def _set_by(words: Sequence[Word]) -> dict[str, Word]:
    """Return variables set by *words* (``env A=b``, ``mpirun -x``, ``srun --export``, ``-genv A b``), at their word."""
    found: dict[str, Word] = {}
    before, in_env = "", False
    for at, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        said: list[str] = []
        if before in _PAIRED and at + 1 < len(words):
            found[word.text] = words[at + 1]
        elif option == "--export" and equals:  # of Slurm: ALL,A=1,B=2
            said = value.split(",")
        elif before in _BEFORE or in_env or (option in _BEFORE and equals):
            said = [value if option in _BEFORE else word.text]
        found |= {match[1]: replace(word, text=match[2]) for each in said if (match := _SETS.fullmatch(each))}
        in_env = word.name == "env" or (in_env and bool(word.text.startswith("-") or _SETS.fullmatch(word.text)))
        before = word.text
    return found


def _bare(words: Sequence[Word]) -> Sequence[Word]:
    """Return *words* without wrappers and their options, up to a launcher, an interpreter or a program."""
    found: list[Word] = []
    within = False
    for at, word in enumerate(words):
        name = word.name
        is_file = word.text.endswith(".py") and ":" not in word.text  # not one that a container mounts
        if is_file or _PYTHON.fullmatch(name) or name in COMMANDS["starters"] | COMMANDS["programs"]:  # no wrapper
            return [*found, *words[at:]] if len(found) < at else words
        within = name in COMMANDS["wrappers"] or (within and name not in COMMANDS["of_clusters"] | {"env"})
        if not within:
            found.append(word)
    return found if len(found) < len(words) else words


def _container(words: Sequence[Word]) -> tuple[Word | None, str]:
    """Return which GPUs ``docker run --gpus`` shows, None if not said, and a note if a container sees none."""
    start = next((i for i, word in enumerate(words) if word.name in COMMANDS["containers"]), len(words))
    for before, word in zip(words[start:], words[start + 1 :], strict=False):
        option, equals, value = word.text.partition("=")
        said = None
        if before.text == "--gpus" or (option == "--gpus" and equals):
            said = word.text if before.text == "--gpus" else value
            devices, count = _DEVICES.match(said), _COUNT.fullmatch(said)
            if devices is not None:
                said = devices[1]
            elif count is not None:
                said = ",".join(map(str, range(int(count[1])))) or "none"
            else:
                said = said.partition(",")[0]
        elif word.text.startswith(f"--env={_SHOWS}="):
            said = word.text.split("=", 2)[2]
        elif before.text in ("-e", "--env") and option == _SHOWS:
            said = value
        if said is not None:
            return replace(word, text=said), ""
    name, *others = [words[start].name, *(word.text for word in words[start + 1 :])] if words[start:] else [""]
    verb, shows, options = NAMES["containers"].get(name, ("", "", ()))
    starts = bool(verb) and next((word for word in others if not word.startswith("-")), "") == verb
    if not starts or {word.partition("=")[0] for word in others}.intersection(options):
        return None, ""
    return None, f"{name} {verb}: shows its container no GPU, unless that is its default; simulated as with {shows}"
