"""A simulator of machines for training neural networks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.api.session import Session
    from simulator.errors import InputError, TopocastError
    from simulator.python import compare, simulate
    from simulator.questions.calibration import Calibration
    from simulator.questions.collective import CollectiveQuestion
    from simulator.questions.input import InputQuestion
    from simulator.questions.layout import Layout
    from simulator.questions.options import StepOptions
    from simulator.questions.program import ProgramQuestion
    from simulator.questions.single import (
        AccessQuestion,
        CopyQuestion,
        CoreQuestion,
        DiskQuestion,
        LaunchQuestion,
        MessageQuestion,
        OperatorQuestion,
    )
    from simulator.questions.step import CheckpointQuestion, StepQuestion
    from simulator.questions.where import Neighbour, SlowLink, Software, Where
    from simulator.results.program import ProgramResult
    from simulator.results.result import Result
    from simulator.results.single import SingleResult
    from simulator.results.training import TrainingResult

__all__ = [
    "AccessQuestion",
    "Calibration",
    "CheckpointQuestion",
    "CollectiveQuestion",
    "CopyQuestion",
    "CoreQuestion",
    "DiskQuestion",
    "InputError",
    "InputQuestion",
    "LaunchQuestion",
    "Layout",
    "MessageQuestion",
    "Neighbour",
    "OperatorQuestion",
    "ProgramQuestion",
    "ProgramResult",
    "Result",
    "Session",
    "SingleResult",
    "SlowLink",
    "Software",
    "StepOptions",
    "StepQuestion",
    "TopocastError",
    "TrainingResult",
    "Where",
    "compare",
    "simulate",
]
__version__ = "0.1.0"

_WHERE = {
    "AccessQuestion": "simulator.questions.single",
    "Calibration": "simulator.questions.calibration",
    "CheckpointQuestion": "simulator.questions.step",
    "CollectiveQuestion": "simulator.questions.collective",
    "CopyQuestion": "simulator.questions.single",
    "CoreQuestion": "simulator.questions.single",
    "DiskQuestion": "simulator.questions.single",
    "InputError": "simulator.errors",
    "InputQuestion": "simulator.questions.input",
    "LaunchQuestion": "simulator.questions.single",
    "Layout": "simulator.questions.layout",
    "MessageQuestion": "simulator.questions.single",
    "Neighbour": "simulator.questions.where",
    "OperatorQuestion": "simulator.questions.single",
    "ProgramQuestion": "simulator.questions.program",
    "ProgramResult": "simulator.results.program",
    "Result": "simulator.results.result",
    "Session": "simulator.api.session",
    "SingleResult": "simulator.results.single",
    "SlowLink": "simulator.questions.where",
    "Software": "simulator.questions.where",
    "StepOptions": "simulator.questions.options",
    "StepQuestion": "simulator.questions.step",
    "TopocastError": "simulator.errors",
    "TrainingResult": "simulator.results.training",
    "Where": "simulator.questions.where",
    "compare": "simulator.python",
    "simulate": "simulator.python",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that commands load only what they need."""
    if name not in _WHERE:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
