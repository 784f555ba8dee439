"""A simulator of machines for training neural networks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.api.session import Session
    from simulator.errors import InputError, TopocastError
    from simulator.python import compare, simulate, sweep
    from simulator.questions.calibration import Calibration
    from simulator.questions.collective import CollectiveQuestion
    from simulator.questions.input import InputQuestion
    from simulator.questions.layout import Layout
    from simulator.questions.options import StepOptions
    from simulator.questions.single import (
        AccessQuestion,
        CopyQuestion,
        CoreQuestion,
        DiskQuestion,
        LaunchQuestion,
        MessageQuestion,
        OperatorQuestion,
        ProgramQuestion,
    )
    from simulator.questions.step import CheckpointQuestion, StepQuestion
    from simulator.questions.where import Neighbour, SlowLink, Software, Where
    from simulator.results.program import ProgramResult
    from simulator.results.result import Result
    from simulator.results.single import SingleResult
    from simulator.results.training import TrainingResult

__all__ = ["AccessQuestion", "Calibration", "CheckpointQuestion", "CollectiveQuestion", "CopyQuestion"]
__all__ += ["CoreQuestion", "DiskQuestion", "InputError", "InputQuestion", "LaunchQuestion", "Layout"]
__all__ += ["MessageQuestion", "Neighbour", "OperatorQuestion", "ProgramQuestion", "ProgramResult", "Result"]
__all__ += ["Session", "SingleResult", "SlowLink", "Software", "StepOptions", "StepQuestion", "TopocastError"]
__all__ += ["TrainingResult", "Where", "compare", "simulate", "sweep"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that commands load only what they need."""
    if name not in __all__:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    from importlib import import_module

    from simulator.records import own_data

    return getattr(import_module(own_data(__name__, "names.json")[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
