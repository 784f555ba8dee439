"""Any question: :data:`Question`.  What answers one that is at hand asks for its ``topic`` and loads no other."""

from simulator.questions.collective import CollectiveQuestion
from simulator.questions.single import ProgramQuestion, Single
from simulator.questions.step import StepQuestion

Question = CollectiveQuestion | StepQuestion | ProgramQuestion | Single
