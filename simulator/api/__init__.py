"""The library's entry point: machines, and the class that answers every question."""

from simulator.api.context import load_machine
from simulator.api.session import Device, Question, Session

__all__ = ["Device", "Question", "Session", "load_machine"]
