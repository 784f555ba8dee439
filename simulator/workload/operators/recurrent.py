"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

from simulator.records import dataclass, field
from simulator.workload.kernels import Product, Shape
from simulator.workload.operator import Kernels, Operator
from simulator.workload.precision import ELEMENT_BYTES, Precision

Cell = Literal["rnn", "lstm", "gru"]


class Cells:
    """The arithmetic of a recurrent layer's cells."""

    __slots__ = ()

    cell: Cell
    batch: int
    timesteps: int
    inputs: int
    hidden: int

    @property
    def gates(self) -> int:
        """Gates per hidden unit, each a product with the state: 1 (rnn), 4 (lstm) or 3 (gru)."""
        return {"rnn": 1, "lstm": 4, "gru": 3}[self.cell]

    @property
    def flop(self) -> int:
        """FLOPs of the products with the input and with the state."""
        return 2 * self.timesteps * self.batch * self.gates * self.hidden * (self.inputs + self.hidden)


@dataclass(frozen=True, slots=True)
class Recurrence(Cells, Product):
    """All time steps of a recurrent layer, as a vendor's library runs it."""

    word = "recurrent layers"
    colour = "#2f4858"
    traced = "product"
    gpu_cost = "simulator.devices.gpu.recurrence:recurrence_cost"
    cpu_cost = "simulator.devices.cpu.products:recurrence_products"
    of_library = True
    apart = ("precision", "cell")
    axes: ClassVar = {"direction": 1.0, "batch": 0.15, "timesteps": 0.1, "hidden": 0.4}
    axis_words: ClassVar = {"direction": ("steps", "weights")}
    variety_words = get_args(Cell)

    cell: Cell
    direction: Literal["fwd", "bwd_data", "bwd_weight"]
    batch: int
    timesteps: int
    inputs: int
    hidden: int
    precision: Precision

    @property
    def bytes(self) -> int:
        """Least bytes moved: weights once; inputs, gates and states of each step."""
        weights = self.gates * self.hidden * (self.inputs + self.hidden)
        states = self.timesteps * self.batch * (self.inputs + (self.gates + 1) * self.hidden)
        return ELEMENT_BYTES[self.precision] * (weights + states)

    def place(self) -> Shape:
        """Return the values on the axes.

        Gradients of states repeat the forward pass step by step; those of weights are one product over all steps.
        """
        direction = "weights" if self.direction == "bwd_weight" else "steps"
        return direction, self.batch, self.timesteps, self.hidden

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return the bytes of the weights or, for their gradient, of the saved inputs and states."""
        rows = self.timesteps * self.batch if self.direction == "bwd_weight" else self.gates * self.hidden
        return float(rows * (self.inputs + self.hidden) * ELEMENT_BYTES[self.precision])


@dataclass(frozen=True, slots=True)
class Recurrent(Cells, Operator):
    """One recurrent layer over ``timesteps`` steps; with 0 ``inputs``, only the products with the state."""

    autocast = "half"
    saved = ("inputs", "output")
    per_token = ()
    host_constant = "recurrent_s"

    cell: Cell
    batch: int
    timesteps: int
    inputs: int = field(metadata={"least": 0})
    hidden: int

    @property
    def output_elements(self) -> int:
        """Elements of the result: the state after each step."""
        return self.timesteps * self.batch * self.hidden

    def _kernel(self, direction: Literal["fwd", "bwd_data", "bwd_weight"], precision: Precision) -> Kernels:
        return (Recurrence(self.cell, direction, self.batch, self.timesteps, self.inputs, self.hidden, precision),)

    def forward_kernels(self, precision: Precision) -> Kernels:
        return self._kernel("fwd", precision)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the gradients of inputs and states."""
        return self._kernel("bwd_data", precision)

    def parameter_gradients(self, precision: Precision) -> Kernels:
        return self._kernel("bwd_weight", precision)

    def gradient_flop(self, *, of_inputs: bool, of_state: bool) -> int:
        """Return the FLOPs of the backward pass: two products per forward one, less those of gradients not needed."""
        first = 2 * self.batch * self.gates * self.hidden
        without = (0 if of_state else first * self.hidden) + (0 if of_inputs else self.timesteps * first * self.inputs)
        return 2 * self.flop - without

    def backward_flop(self, trained: bool, needed: Sequence[bool]) -> int:
        """Return the FLOPs of the backward pass; the initial state needs no gradient."""
        return self.gradient_flop(of_inputs=needed[0], of_state=False)

    def saved_bytes(self, element_bytes: int) -> int:
        """Return the bytes of cuDNN's reserve space: the gates and the cell state of each time step."""
        return self.output_elements * (self.gates + 1) * element_bytes
