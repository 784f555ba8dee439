"""Tacotron 2 (Shen et al., arXiv 1712.05884), as NVIDIA's DeepLearningExamples train it.

The decoder is a Python loop: each frame of the spectrum runs its own kernels, for the attention and two LSTM cells.
"""

from __future__ import annotations

from simulator.workload.operators import Elementwise
from simulator.workload.zoo.builder import NetworkBuilder, Tensor

_BANDS, _SYMBOLS, _WIDTH, _RNN, _PRENET, _ATTENTION = 80, 148, 512, 1024, 256, 128
_FILTERS, _FILTER_WIDTH, _KERNEL = 32, 31, 5
_ENCODER_LAYERS, _POSTNET_LAYERS = 3, 5


def tacotron2(net: NetworkBuilder, batch: int, characters: int, frames: int) -> tuple[Tensor, Tensor]:
    """Return each frame's spectrum and end-of-text logit, for *batch* texts of *characters* and *frames* each."""
    memory = _encoder(net.input(batch, characters))
    keys = memory.linear("attention.memory", _ATTENTION, bias=False)
    heard = net.input(batch, frames, _BANDS)
    for i in range(2):
        heard = heard.linear(f"prenet.{i}", _PRENET, bias=False).relu(f"prenet.{i}.relu").dropout(f"prenet.{i}.dropout")
    decoder = _Decoder(net, batch, memory, keys)
    (bands, *later), (end, *ends) = zip(*(decoder.frame(heard, i) for i in range(frames)), strict=True)
    x = spectrum = bands.gather("stack", (batch, _BANDS, 1, frames), *later, transposed=True)
    last = end.gather("stack_ends", (batch, frames), *ends)
    for i in range(_POSTNET_LAYERS):
        width = _BANDS if i == _POSTNET_LAYERS - 1 else _WIDTH
        x = x.conv(f"postnet.{i}", width, (1, _KERNEL), pad=(0, 2), bias=True).batch_norm(f"postnet.{i}.norm")
        x = (x.apply(f"postnet.{i}.tanh", "tanh") if width == _WIDTH else x).dropout(f"postnet.{i}.dropout")
    return x.add(spectrum, "residual"), last


def _encoder(text: Tensor) -> Tensor:
    batch, length = text.shape
    x = text.embedding("embedding", _SYMBOLS, _WIDTH)
    x = x.copy("embedding.transpose", batch, _WIDTH, 1, length, transposed=True)
    for i in range(_ENCODER_LAYERS):
        x = x.conv(f"encoder.{i}", _WIDTH, (1, _KERNEL), pad=(0, 2), bias=True).batch_norm(f"encoder.{i}.norm")
        x = x.relu(f"encoder.{i}.relu", in_place=False).dropout(f"encoder.{i}.dropout")
    x = x.copy("encoder.transpose", batch, length, _WIDTH, transposed=True)
    ahead, back = (x.recurrent(f"encoder.{way}", _WIDTH // 2) for way in ("forward", "back"))
    return ahead.join(back, "encoder.join")


class _Decoder:
    """The state between frames: both LSTM cells, the context, and the attention weights and their sum."""

    def __init__(self, net: NetworkBuilder, batch: int, memory: Tensor, keys: Tensor) -> None:
        self.batch, self.memory, self.keys = batch, memory, keys
        self.states = {
            name: (net.input(batch, _RNN), net.input(batch, _RNN)) for name in ("attention_rnn", "decoder_rnn")
        }
        self.context = net.input(batch, _WIDTH)
        self.shares = self.total = net.input(batch, memory.shape[1])

    def frame(self, heard: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """Return the bands of frame *i*, and its end-of-text logit."""
        heard = heard.view(self.batch, _PRENET)
        query = self._cell(heard.join(self.context, f"{i}.in.join"), "attention_rnn", i)
        self._attend(query, i)
        x = self._cell(query.join(self.context, f"{i}.both.join"), "decoder_rnn", i)
        x = x.join(self.context, f"{i}.out.join")
        return x.linear(f"{i}.bands", _BANDS, of="projection"), x.linear(f"{i}.end", 1, of="gate")

    def _attend(self, query: Tensor, i: int) -> None:
        """Attend to the text by content and by previous attention weights (location-sensitive attention)."""
        batch, length = self.batch, self.memory.shape[1]
        if i:
            self.total = self.total.add(self.shares, f"{i}.total")
        x = self.shares.gather(f"{i}.weights", (batch, 2, 1, length), self.total)
        size, pad = (1, _FILTER_WIDTH), (0, _FILTER_WIDTH // 2)
        x = x.conv(f"{i}.location", _FILTERS, size, pad=pad, of="attention.location")
        x = x.copy(f"{i}.location.transpose", batch, length, _FILTERS, transposed=True)
        x = x.linear(f"{i}.location.dense", _ATTENTION, bias=False, of="attention.dense")
        x = x.add_small(f"{i}.sum", query.linear(f"{i}.query", _ATTENTION, bias=False, of="attention.query"))
        x = x.add(self.keys, f"{i}.add").apply(f"{i}.tanh", "tanh")
        x = x.linear(f"{i}.score", 1, bias=False, of="attention.v").view(batch, length)
        self.shares = x.apply(f"{i}.mask", "masked_fill", in_place=True).softmax(f"{i}.softmax")
        context = self.shares.view(batch, 1, length).matmul(self.memory, f"{i}.context")
        self.context = context.view(batch, _WIDTH)

    def _cell(self, x: Tensor, name: str, i: int) -> Tensor:
        """Return the new state of an LSTM cell: two products, and one kernel for the gates, which are saved."""
        state, cell = self.states[name]
        of_input = x.linear(f"{i}.{name}.ih", 4 * _RNN, of=f"{name}.ih")
        of_state = state.linear(f"{i}.{name}.hh", 4 * _RNN, of=f"{name}.hh")
        operator = Elementwise("lstm_cell", self.batch * 4 * _RNN, 2)
        fresh = of_input.layer(f"{i}.{name}.gates", operator, None, (), of_state, cell)
        fresh_state = fresh.view(*state.shape).dropout(f"{i}.{name}.dropout")
        self.states[name] = fresh_state, fresh.view(*cell.shape)
        return fresh_state
