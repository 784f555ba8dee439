"""Any question: :data:`Question`.  What answers one that is at hand asks for its ``topic`` and loads no other."""

from __future__ import annotations

from simulator.questions.collective import CollectiveQuestion
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
from simulator.questions.step import StepQuestion

Question = (
    CollectiveQuestion
    | StepQuestion
    | ProgramQuestion
    | OperatorQuestion
    | CopyQuestion
    | AccessQuestion
    | LaunchQuestion
    | DiskQuestion
    | MessageQuestion
    | CoreQuestion
)
