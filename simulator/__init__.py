"""A simulator of machines for training neural networks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.api.session import Session
    from simulator.errors import InputError, TopocastError
    from simulator.python import compare, simulate
    from simulator.results.program import ProgramResult
    from simulator.results.result import Result
    from simulator.results.single import SingleResult
    from simulator.results.training import TrainingResult

__all__ = [
    "InputError",
    "ProgramResult",
    "Result",
    "Session",
    "SingleResult",
    "TopocastError",
    "TrainingResult",
    "compare",
    "simulate",
]
__version__ = "0.1.0"

_WHERE = {
    "InputError": "simulator.errors",
    "ProgramResult": "simulator.results.program",
    "Result": "simulator.results.result",
    "Session": "simulator.api.session",
    "SingleResult": "simulator.results.single",
    "TopocastError": "simulator.errors",
    "TrainingResult": "simulator.results.training",
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
