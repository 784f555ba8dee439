"""Find the commands of a shell script without running it (docs/decisions/launch-lines.md)."""

import re
from collections.abc import Mapping, Sequence

from simulator.errors import Fault, InputError
from simulator.launch.arguments import Arguments, whole_sum
from simulator.launch.words import COMMANDS, NAMES, RawWord, Scanner, Word
from simulator.records import dataclass, field, replace

_SET = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_SAID = re.compile(
    r"\$\{(?P<name>[A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=](?P<other>[^{}]*))?\}|\$(?P<plain>[A-Za-z_]\w*)"
    r"|\$\(\((?P<sum>(?:(?!\$\(\().)*?)\)\)",
    re.DOTALL,
)
_SHORT = re.compile(r"-([A-Za-z])=?(\d\S*)")  # of an #SBATCH line
_GRES = re.compile(r"gpu(?::[\w.-]*[A-Za-z][\w.-]*)?:(\d{1,6})")
_MAX_EXPANDED = 4_000_000  # characters of all expansions: each may be ten times as long as the last


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable set *before* the command of this number, and for it *alone* or from there on; None: unset."""

    before: int
    name: str
    value: Word | None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """Commands as words; variables set ``twice``, comments, settings; and here-documents by path, with their line."""

    commands: tuple[tuple[Word, ...], ...]
    twice: tuple[str, ...]
    comments: tuple[Word, ...]
    settings: tuple[Setting, ...]
    written: Mapping[str, tuple[int, str]]

    def environment(self, place: int) -> dict[str, Word]:
        """Return the variables that the command at *place* gets, each as its value where it was set."""
        found: dict[str, Word] = {}
        for setting in self.settings:
            if setting.before == place or (setting.before < place and not setting.alone):
                found.pop(setting.name, None)
                if setting.value is not None:
                    found[setting.name] = setting.value
        return found


def commands_of(text: str, file: str) -> Script:
    """Return the commands of the script *text*; raises InputError for a quote or a bracket without an end."""
    return _Reader(text, file).run()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._scanner = Scanner(text, file)
        self._known: dict[str, list[str]] = {}
        self._twice: dict[str, None] = {}
        self._expanded_chars = 0
        self._here = (1, 1)
        self._job: dict[str, str] = {}
        self._comments_read = 0
        self._commands: list[tuple[Word, ...]] = []
        self._settings: list[Setting] = []

    def run(self) -> Script:
        written: dict[str, tuple[int, str]] = {}
        for raw in self._scanner.commands():
            written |= self._documents()
            first = len(self._settings)
            words = self._done(raw)
            if words:
                self._settings[first:] = [replace(setting, alone=True) for setting in self._settings[first:]]
                self._commands.append(tuple(words))
        written |= self._documents()
        comments, settings = tuple(self._scanner.comments), tuple(self._settings)
        return Script(tuple(self._commands), tuple(self._twice), comments, settings, written)

    def _documents(self) -> dict[str, tuple[int, str]]:
        """Return the here-documents since the last call, as they are written with the variables known so far."""
        found = {
            "".join(self._value(*piece) for piece in path.pieces): (line, self._value(text, "'" if literal else ""))
            for path, text, line, literal in self._scanner.documents
        }
        self._scanner.documents.clear()
        return found

    def _done(self, raw: list[RawWord | tuple[RawWord, list[RawWord]]]) -> list[Word]:
        words: list[Word] = []
        declares = False
        for each in raw:
            if isinstance(each, tuple):
                name, array = each
                self._here = name.line, name.column
                match = _SET.match(name.text)
                if match is not None:
                    self._set(match[1], [w for item in array for w in self._expanded(item)], added=bool(match[2]))
                continue
            self._here = each.line, each.column
            match = _SET.match(each.text) if not words and each.pieces and not each.pieces[0][1] else None
            if match is not None:
                value = [(each.pieces[0][0].partition("=")[2], ""), *each.pieces[1:]]
                joined = "".join(self._value(piece, quote) for piece, quote in value)
                self._set(match[1], [joined], added=bool(match[2]), again=f"${match[1]}" in each.text.replace("{", ""))
                continue
            if not words and (each.text in COMMANDS["keywords"] or (declares and each.text.startswith("-"))):
                declares |= each.text in COMMANDS["declares"]
                continue
            words += [Word(text, each.line, each.column) for text in self._expanded(each)]
        if words and words[0].text == "unset":
            if all(word.text != "-f" for word in words):  # which is about functions
                for word in words[1:]:
                    self._known.pop(word.text, None)
                    self._settings.append(Setting(len(self._commands), word.text, None))
            return []
        return words

    def _set(self, name: str, value: list[str], *, added: bool, again: bool = False) -> None:
        before = self._known.get(name)
        if added and before is not None:
            value = [*before, *value] if len(before) != 1 or len(value) != 1 else [before[0] + value[0]]
        elif before is not None and before != value and not again:
            self._twice[name] = None
        self._known[name] = value
        self._settings.append(Setting(len(self._commands), name, Word(" ".join(value), *self._here)))

    def _value(self, piece: str, quote: str) -> str:
        return piece if quote == "'" else _SAID.sub(lambda match: " ".join(self._said(match)), piece)

    def _expanded(self, raw: RawWord) -> list[str]:
        if len(raw.pieces) == 1 and raw.pieces[0][1] == '"':
            whole = re.fullmatch(r"\$\{(\w+)\[@\]\}", raw.text)
            if whole is not None and whole[1] in self._known:
                return self._counted(self._known[whole[1]])
        found: list[str] = [""]
        any_quoted = False
        for piece, quote in raw.pieces:
            text = self._value(piece, quote)
            if quote:
                found[-1] += text
                any_quoted = True
                continue
            parts = re.split(r"\s+", text)
            found[-1] += parts[0]
            found += parts[1:]
        return found if any_quoted and len(found) == 1 else [text for text in found if text]

    def _said(self, match: re.Match[str]) -> list[str]:
        if match["sum"] is not None:
            value = whole_sum(self._value(re.sub(r"(?<![\w$}])([A-Za-z_]\w*)", r"$\1", match["sum"]), ""))
            return [match[0] if value is None else str(value)]
        name = match["name"] or match["plain"]
        known = self._known[name] if name in self._known else self._of_job(name)
        if known is not None:
            return self._counted(known)
        other = match["other"]
        return [match[0]] if other is None else [self._value(other.strip("\"'"), "")]

    def _of_job(self, name: str) -> list[str] | None:
        """Return the value of a variable that Slurm sets, from the ``#SBATCH`` lines so far; None if they have none."""
        if not name.startswith("SLURM_"):
            return None
        comments = self._scanner.comments
        if len(comments) != self._comments_read:
            self._comments_read = len(comments)
            is_job = any(word.text.startswith("#SBATCH") for word in comments)
            self._job = job_variables(batch_arguments(comments, self._file)) if is_job else {}
        return [self._job[name]] if name in self._job else None

    def _counted(self, words: list[str]) -> list[str]:
        """Return *words*, a variable's value; raises InputError if all expansions together exceed the limit."""
        self._expanded_chars += len(words) + sum(map(len, words))
        if self._expanded_chars > _MAX_EXPANDED:
            told = f"variables stand for more than {_MAX_EXPANDED:,} characters up to here"
            raise InputError(Fault(told, self._file, *self._here))
        return words


def batch_arguments(comments: Sequence[Word], file: str) -> Arguments:
    """Return the arguments of the ``#SBATCH`` lines among *comments*; ``-N4`` is ``-N 4``."""
    asked = []
    for word in comments:
        if not word.text.startswith("#SBATCH"):
            continue
        for text in re.sub(r"\s+#.*", "", word.text).split()[1:]:
            short = _SHORT.fullmatch(text)
            asked += [Word(each, word.line, word.column) for each in ([f"-{short[1]}", short[2]] if short else [text])]
    return Arguments(asked, file)


def gpus_per_node(batch: Arguments) -> int | None:
    """Return the GPUs of each node that *batch* asks for; None if it does not say."""
    typed = batch.text("gpus-per-node") or ""
    if ":" in typed:  # a100:4
        return int(typed.rpartition(":")[2]) if re.fullmatch(r"[\w.-]+:\d{1,6}", typed) else None
    if typed:
        return batch.number("gpus-per-node")
    if "gpus-per-task" in batch and batch.number("ntasks-per-node") in (None, 1):
        return batch.number("gpus-per-task")
    gres = _GRES.search(batch.text("gres") or "")
    return int(gres[1]) if gres else None


def job_variables(batch: Arguments) -> dict[str, str]:
    """Return the variables of a job that *batch* asks for, by name; those that depend on the machine are left out."""
    nodes, tasks, each = batch.number("nodes", "N"), batch.number("ntasks", "n"), batch.number("ntasks-per-node")
    if nodes is None and tasks is not None and each is not None and tasks % each == 0:
        nodes = tasks // each
    nodes = nodes or 1
    tasks = tasks or nodes * (each or 1)
    gpus = gpus_per_node(batch)
    found: dict[str, int | None] = {
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks),
        "SLURM_NTASKS_PER_NODE": each,
        **dict.fromkeys(("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), gpus),
        "SLURM_GPUS_PER_TASK": batch.number("gpus-per-task"),
        "SLURM_GPUS": batch.number("gpus", "G"),
        "SLURM_CPUS_PER_TASK": batch.number("cpus-per-task", "c"),
    }
    return {name: str(value) for name, value in found.items() if value is not None}


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


def find_command(script: Script, file: str) -> Command:
    """Return the last command that runs a program with options, best by a launcher; raises InputError if none."""
    found = []
    for place, outer in enumerate(script.commands):
        whole, inner = _unquoted(outer, file)
        words = _bare(whole)
        if words and words[0].name not in COMMANDS["others"]:
            found.append((place, words, inner, whole))
    programs = [each for each in found if _program_of(each[1]) is not None]
    launchers = COMMANDS["starters"] | COMMANDS["of_clusters"]
    started = [each for each in programs if any(word.name in launchers for word in each[1])]
    with_options = [each for each in programs if any(word.text.startswith("-") for word in each[1])]
    without_program = [each for each in found if any(word.text.startswith("--") for word in each[1])]
    kind = next(filter(None, (started, with_options, programs, without_program)), None)
    if kind is None:
        told = "no command with arguments is there; for example torchrun pretrain_gpt.py --num-layers 24 ..."
        raise InputError(Fault(told, file))
    place, words, inner, whole = kind[-1]
    divided = _divided(words)
    before = whole if divided.launcher is divided.arguments else whole[: len(whole) - len(divided.arguments)]
    environment = {**script.environment(place), **_set_by(before), **inner}
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


def _unquoted(words: tuple[Word, ...], file: str) -> tuple[tuple[Word, ...], dict[str, Word]]:
    """Return *words*, with a quoted command (``bash -c "..."``) replaced by its own words, and what it sets."""
    inner = next((word for word in words if " " in word.text and ".py " in word.text and "-" in word.text), None)
    if inner is None:
        return words, {}
    script = commands_of(inner.text, file)
    deeper = (replace(inner, text=word.text) for command in script.commands for word in command)
    sets = script.environment(len(script.commands) - 1)
    return (*words[: words.index(inner)], *deeper), {name: replace(inner, text=w.text) for name, w in sets.items()}


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
