"""A whole run of equal steps, :class:`RunQuestion`: its failures, checkpoints, evaluations and starts."""

from collections.abc import Iterator
from typing import Annotated

from simulator.errors import mention
from simulator.questions.checks import Checked, From
from simulator.questions.step import StepQuestion
from simulator.records import dataclass
from simulator.topology.schema import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion(Checked):
    """The time, failures and price of a run of ``tokens``, or of ``samples``, in steps of ``step`` (docs/run.md).

    Times are in seconds.  ``mtbf_s``: of the run; ``gpu_mtbf_s``: of one of its GPUs; None: nothing fails.
    ``every_steps``: None: the best interval.  ``write_s`` and ``storage_Bps``: None: the first disk of each node takes
    a part; ``asynchronous``: training goes on meanwhile.  ``restart_s``: from a failure to the first step;
    ``warmup_s``: what each start takes besides (compilation, autotuning, first steps).  ``evaluate_every`` steps,
    ``evaluate_samples`` are evaluated; 0: none.  ``gpu_hour``: None: the price in the machine's file, if it has one.

    Raises InputError for what the command refuses, in its words.
    """

    step: StepQuestion
    tokens: Annotated[float, From(0)] = 0.0
    samples: Annotated[float, From(0)] = 0.0
    mtbf_s: Annotated[float, From(0, above=True)] | None = None
    gpu_mtbf_s: Annotated[float, From(0, above=True)] | None = None
    every_steps: Annotated[int, From(1)] | None = None
    write_s: Annotated[float, From(0, above=True)] | None = None
    storage_Bps: Annotated[float, From(0, above=True)] | None = None
    asynchronous: bool = False
    restart_s: Annotated[float, From(0)] = 0.0
    warmup_s: Annotated[float, From(0)] = 0.0
    evaluate_every: Annotated[int, From(0)] = 0
    evaluate_samples: Annotated[int, From(0)] = 0
    gpu_hour: Price | None = None

    def _faults(self) -> Iterator[str]:
        if bool(self.tokens) == bool(self.samples):
            said = "give one of the two" if self.tokens else f"for example {mention('tokens', '1T')}"
            yield f"a run has {mention('tokens')} or {mention('samples')}: {said}"
        for one, other in (("mtbf_s", "gpu_mtbf_s"), ("write_s", "storage_Bps")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                yield f"{mention(one)}: {mention(other)} says it already; give one of the two"
        if bool(self.evaluate_every) != bool(self.evaluate_samples):
            both = f"{mention('evaluate_every')} and {mention('evaluate_samples')}"
            yield f"{both} go together: how often, and how many samples"
        if self.step.options.mode != "train":
            yield f"{mention('mode', self.step.options.mode)}: a run trains"
        if not self.is_saved:
            unread = {"write_s": self.write_s, "storage_Bps": self.storage_Bps, "asynchronous": self.asynchronous}
            why = f"is about checkpoints; add {mention('mtbf_s', '24h')} or {mention('every_steps', 1000)}"
            yield from (f"{mention(name)}: {why}" for name, value in unread.items() if value)
        if self.restart_s and not self.fails:
            yield f"{mention('restart_s')}: is about failures; add {mention('mtbf_s', '24h')}"

    @property
    def fails(self) -> bool:
        """Whether anything fails."""
        return self.mtbf_s is not None or self.gpu_mtbf_s is not None

    @property
    def is_saved(self) -> bool:
        """Whether the run writes checkpoints."""
        return self.fails or self.every_steps is not None
