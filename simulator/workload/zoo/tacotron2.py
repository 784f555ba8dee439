"""Tacotron 2 (Shen et al., arXiv 1712.05884), as NVIDIA's DeepLearningExamples train it.

The decoder is a Python loop: each frame of the spectrum runs its own kernels, for the attention and two LSTM cells.
"""

from __future__ import annotations

from simulator.workload.operators import Copy, Elementwise
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder

_BANDS, _SYMBOLS, _WIDTH, _RNN, _PRENET, _ATTENTION = 80, 148, 512, 1024, 256, 128
_FILTERS, _FILTER_WIDTH, _KERNEL = 32, 31, 5
_ENCODER_LAYERS, _POSTNET_LAYERS = 3, 5


def tacotron2(b: NetworkBuilder, batch: int, characters: int, frames: int) -> tuple[LayerOutput, LayerOutput]:
    """Return each frame's spectrum and end-of-text logit, for *batch* texts of *characters* and *frames* each."""
    memory = _encoder(b, b.input(batch, characters))
    keys = b.linear(memory, "attention.memory", _ATTENTION, bias=False)
    heard = b.input(batch, frames, _BANDS)
    for i in range(2):
        heard = b.relu(b.linear(heard, f"prenet.{i}", _PRENET, bias=False), f"prenet.{i}.relu")
        heard = b.dropout(heard, f"prenet.{i}.dropout")
    decoder = _Decoder(b, batch, memory, keys)
    outputs, ends = zip(*(decoder.frame(heard, i) for i in range(frames)), strict=True)
    spectrum = b.add_layer("stack", Copy(batch * frames * _BANDS, transposed=True), outputs, (batch, _BANDS, 1, frames))
    last = b.add_layer("stack_ends", Copy(batch * frames), ends, (batch, frames))
    return b.add(_postnet(b, spectrum), spectrum, "residual"), last


def _encoder(b: NetworkBuilder, text: LayerOutput) -> LayerOutput:
    batch, length = text.shape
    x = b.embedding(text, "embedding", _SYMBOLS, _WIDTH)
    x = b.copy(x, "embedding.transpose", (batch, _WIDTH, 1, length), transposed=True)
    for i in range(_ENCODER_LAYERS):
        x = b.batch_norm(b.conv(x, f"encoder.{i}", _WIDTH, (1, _KERNEL), pad=(0, 2), bias=True), f"encoder.{i}.norm")
        x = b.dropout(b.relu(x, f"encoder.{i}.relu", in_place=False), f"encoder.{i}.dropout")
    x = b.copy(x, "encoder.transpose", (batch, length, _WIDTH), transposed=True)
    both = tuple(b.recurrent(x, f"encoder.{way}", _WIDTH // 2) for way in ("forward", "back"))
    return b.add_layer("encoder.join", Copy(batch * length * _WIDTH), both, (batch, length, _WIDTH))


def _postnet(b: NetworkBuilder, x: LayerOutput) -> LayerOutput:
    for i in range(_POSTNET_LAYERS):
        width = _BANDS if i == _POSTNET_LAYERS - 1 else _WIDTH
        x = b.batch_norm(b.conv(x, f"postnet.{i}", width, (1, _KERNEL), pad=(0, 2), bias=True), f"postnet.{i}.norm")
        if width == _WIDTH:
            x = b.elementwise(f"postnet.{i}.tanh", "tanh", x)
        x = b.dropout(x, f"postnet.{i}.dropout")
    return x


class _Decoder:
    """The state between frames: both LSTM cells, the context, and the attention weights and their sum."""

    def __init__(self, b: NetworkBuilder, batch: int, memory: LayerOutput, keys: LayerOutput) -> None:
        self.b, self.batch, self.memory, self.keys = b, batch, memory, keys
        self.states = {name: (b.input(batch, _RNN), b.input(batch, _RNN)) for name in ("attention_rnn", "decoder_rnn")}
        self.context = b.input(batch, _WIDTH)
        self.weights = self.total = b.input(batch, memory.shape[1])

    def frame(self, heard: LayerOutput, i: int) -> tuple[LayerOutput, LayerOutput]:
        """Return the bands of frame *i*, and its end-of-text logit."""
        b = self.b
        query = self._cell(
            b.join((b.view(heard, self.batch, _PRENET), self.context), f"{i}.in.join"), "attention_rnn", i
        )
        self._attend(query, i)
        x = self._cell(b.join((query, self.context), f"{i}.both.join"), "decoder_rnn", i)
        x = b.join((x, self.context), f"{i}.out.join")
        return b.linear(x, f"{i}.bands", _BANDS, of="projection"), b.linear(x, f"{i}.end", 1, of="gate")

    def _attend(self, query: LayerOutput, i: int) -> None:
        """Attend to the text by content and by previous attention weights (location-sensitive attention)."""
        b, length = self.b, self.memory.shape[1]
        if i:
            self.total = b.add(self.total, self.weights, f"{i}.total")
        both = b.add_layer(
            f"{i}.weights", Copy(2 * self.total.elements), (self.weights, self.total), (self.batch, 2, 1, length)
        )
        size, pad = (1, _FILTER_WIDTH), (0, _FILTER_WIDTH // 2)
        where = b.conv(both, f"{i}.location", _FILTERS, size, pad=pad, of="attention.location")
        where = b.copy(where, f"{i}.location.transpose", (self.batch, length, _FILTERS), transposed=True)
        where = b.linear(where, f"{i}.location.dense", _ATTENTION, bias=False, of="attention.dense")
        asked = b.linear(query, f"{i}.query", _ATTENTION, bias=False, of="attention.query")
        shape = where.shape
        x = b.add_layer(f"{i}.sum", Elementwise("add", where.elements, summed=1), (where, asked), shape)
        x = b.elementwise(f"{i}.tanh", "tanh", b.add(x, self.keys, f"{i}.add"))
        scores = b.view(b.linear(x, f"{i}.score", 1, bias=False, of="attention.v"), self.batch, length)
        scores = b.elementwise(f"{i}.mask", "masked_fill", scores, in_place=True)
        self.weights = b.softmax(scores, f"{i}.softmax")
        context = b.matmul(b.view(self.weights, self.batch, 1, length), self.memory, f"{i}.context")
        self.context = b.view(context, self.batch, _WIDTH)

    def _cell(self, x: LayerOutput, name: str, i: int) -> LayerOutput:
        """Return the new state of an LSTM cell: two products, and one kernel for the gates, which are saved."""
        b, (state, cell) = self.b, self.states[name]
        gates = [b.linear(t, f"{i}.{name}.{w}", 4 * _RNN, of=f"{name}.{w}") for t, w in ((x, "ih"), (state, "hh"))]
        fresh = b.add_layer(
            f"{i}.{name}.gates", Elementwise("lstm_cell", self.batch * 4 * _RNN, 2), (*gates, cell), gates[0].shape
        )
        fresh_state = b.dropout(b.view(fresh, *state.shape), f"{i}.{name}.dropout")
        self.states[name] = fresh_state, b.view(fresh, *cell.shape)
        return fresh_state
