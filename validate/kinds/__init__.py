"""Kinds of measurements: how a row becomes a question to the simulator; nothing here predicts."""

from validate.kinds.kind import Kind
from validate.kinds.moves import COLLECTIVES, COPIES, MEMORY, STORAGE
from validate.kinds.operators import LAUNCH, OPERATORS
from validate.kinds.steps import STEPS

__all__ = ["COLLECTIVES", "COPIES", "KINDS", "LAUNCH", "MEMORY", "OPERATORS", "STEPS", "STORAGE", "Kind"]

KINDS: tuple[Kind, ...] = (COLLECTIVES, OPERATORS, STEPS, COPIES, MEMORY, LAUNCH, STORAGE)
