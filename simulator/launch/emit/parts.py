"""The parts of a launch line that is written: :class:`Emission`, :class:`Ranks`; stages, sizes, precision."""

import shlex
from collections.abc import Collection

from simulator.errors import mention, refused
from simulator.launch.stages import layout_text
from simulator.questions.layout import Layout
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, field
from simulator.workload.zoo import FUSED
from simulator.workload.zoo.registry import find_entry

_INDENT = " \\\n    "


@dataclass(frozen=True, slots=True)
class Ranks:
    """The GPUs of the step: ``each`` of ``nodes``, or those ``listed``; and PyTorch's kernels of attention there."""

    nodes: int
    each: int
    listed: tuple[int, ...] = ()
    attention: str = FUSED[0]

    @property
    def whole(self) -> int:
        """All of them."""
        return self.nodes * self.each

    @property
    def torchrun(self) -> list[str]:
        """Their launcher."""
        nodes = ["--nnodes", str(self.nodes)] if self.nodes > 1 else []
        return ["torchrun", *nodes, "--nproc-per-node", str(self.each)]


@dataclass(slots=True)
class Emission:
    """A launch line, its ``files`` and options (True: a switch; None: left out); and what the framework ``lacks``."""

    launcher: list[str]
    program: list[str]
    options: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    lacks: dict[str, bool] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        """The options as they are written."""
        said = {name: value for name, value in self.options.items() if value is not None and value is not False}
        return [name if value is True else f"{name} {shlex.quote(str(value))}" for name, value in said.items()]

    @property
    def cannot(self) -> list[str]:
        """What the framework does not say of the step."""
        return [why for why, holds in self.lacks.items() if holds]

    @property
    def line(self) -> str:
        """The command, on one line."""
        return " ".join([*self._begin(), *self.arguments])

    @property
    def text(self) -> str:
        """The script: comments, files, and the command with an option a line."""
        comments = [f"# not said: {why}" for why in self.cannot]
        files = [f"cat > {name} <<'EOF'\n{text}\nEOF" for name, text in self.files.items()]
        return "\n".join([*comments, *files, _INDENT.join([" ".join(self._begin()), *self.arguments])])

    def take_stages(self, layout: Layout, layers: int, further: int) -> None:
        """Add the parts of *layers* blocks and of *further* ones, which predict tokens, as Megatron-LM says them.

        Raises InputError for blocks that do not divide evenly, as Megatron-LM does.
        """
        parts, whole = layout.pp * layout.vp, layers + further
        blocks = layout.blocks or ((whole // parts,) * parts if further and layout.pp > 1 else ())
        self.options |= {
            "--pipeline-model-parallel-layout": layout_text(blocks, further) if blocks else None,
            "--num-virtual-stages-per-pipeline-rank": layout.vp if layout.vp > 1 and not blocks else None,
        }
        if layout.pp > 1 and whole % parts and not layout.blocks:
            each = mention("layout", f"pp={layout.pp},blocks=")
            uneven = f"divides blocks evenly, and not {whole} into {parts} parts; say how many: {each}"
            raise refused("emit", uneven, "megatron")

    def _begin(self) -> list[str]:
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items() if value]
        return [*variables, *self.launcher, *self.program]


def all_sizes(question: StepQuestion) -> dict[str, int | str]:
    """Return all sizes of the network of *question*, those of its name included."""
    return {**find_entry(question.workload).defaults, **dict(question.sizes)}


def other_sizes(question: StepQuestion, *said: str) -> str:
    """Return the sizes of *question* that are not those of its network's name, but for those that are *said*."""
    usual = find_entry(question.workload).defaults
    sizes = all_sizes(question).items()
    return ", ".join(f"{key}={size}" for key, size in sizes if size != usual.get(key) and key not in said)


def check_precision(question: StepQuestion, allowed: Collection[str], framework: str, within: str = "") -> None:
    """Raise InputError unless the precision of *question* is *allowed*; *within*: in which layout."""
    if question.options.precision not in allowed:
        said = mention("precision", question.options.precision)
        raise refused("emit", f"has no {said}{within}; {', '.join(allowed)} can be said", framework)


def other_attention(question: StepQuestion, ranks: Ranks) -> dict[str, bool]:
    """Return the attention of *question*, and whether it is another than a line has that says nothing of it."""
    own, asked = find_entry(question.workload).defaults.get("attention"), all_sizes(question).get("attention")
    trained = own if own in FUSED[1:] else ranks.attention
    return {f"{mention('sizes', f'attention={asked}')}; {trained} is simulated": asked != trained}
