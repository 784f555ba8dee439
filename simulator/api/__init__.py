"""The library's entry point: machines, collectives, steps, and the class that answers every question."""

from simulator.api.collectives import compare, make_request, simulate
from simulator.api.machines import load_machine
from simulator.api.session import Device, Question, Session
from simulator.api.steps import simulate_step, simulate_training

__all__ = [
    "Device",
    "Question",
    "Session",
    "compare",
    "load_machine",
    "make_request",
    "simulate",
    "simulate_step",
    "simulate_training",
]
