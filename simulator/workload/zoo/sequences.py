"""Networks of sequences and of speech, as NVIDIA's DeepLearningExamples train them (docs/decisions/zoo.md)."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import ceil, log, prod

from simulator.records import own_data
from simulator.workload.network import Parameter
from simulator.workload.operators import Conv2d, Elementwise, Linear, Reduction
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor, weights


def gnmt(tokens: Tensor, hidden: int, layers: int, vocabulary: int) -> Tensor:
    """Return the logits of each word of a translation as long as its source; raises SizeError for only one layer."""
    if layers < 2:
        raise SizeError(f"an encoder and a decoder have two layers at least; got {layers}")
    x = tokens.embedding("encoder.embed", vocabulary, hidden, "embed").dropout("encoder.0.dropout")
    forward, back = (x.recurrent(f"encoder.0.{way}", hidden) for way in ("forward", "back"))
    memory = forward.join(back, "encoder.0.join")
    for i in range(1, layers):
        y = memory.dropout(f"encoder.{i}.dropout").recurrent(f"encoder.{i}", hidden)
        memory = y.add(memory, f"encoder.{i}.add") if i > 1 else y
    words = tokens.net.input(*tokens.shape).embedding("decoder.embed", vocabulary, hidden, "embed")
    x = words.dropout("decoder.0.dropout").recurrent("decoder.0", hidden)
    context = _attend_all(x, memory)
    for i in range(1, layers):
        y = x.dropout(f"decoder.{i}.dropout").join(context, f"decoder.{i}.join").recurrent(f"decoder.{i}", hidden)
        x = y.add(x, f"decoder.{i}.add") if i > 1 else y
    return x.linear("classifier", vocabulary)


def _attend_all(x: Tensor, memory: Tensor) -> Tensor:
    batch, length, hidden = x.shape
    query = x.linear("attention.query", hidden, bias=False)
    key = memory.linear("attention.key", hidden, bias=False)
    pairs = batch, length, memory.shape[1], hidden
    n = batch * length * memory.shape[1] * hidden
    # One sum for each pair of words; both operands are small and stay in the cache.
    y = query.layer("attention.sum", Elementwise("add", n, summed=2), pairs, (), key)
    y = y.add_small("attention.bias", parameters=(Parameter("attention.normalize_bias", hidden),))
    y = y.apply("attention.tanh", "tanh")
    weights = Parameter("attention.linear", hidden), Parameter("attention.normalize_scalar", 1)
    scores = y.layer("attention.score", Reduction(n // hidden, hidden), pairs[:3], weights)
    return scores.softmax("attention.softmax").matmul(memory, "attention.context")


def transformer_xl(
    tokens: Tensor,
    hidden: int,
    heads: int,
    layers: int,
    inner: int,
    memory: int,
    vocabulary: int,
    cutoffs: tuple[int, ...],
    div_value: int,
) -> tuple[Tensor, ...]:
    """Return the logits of each next word: of common words and clusters of rarer ones, then of those in each cluster.

    *memory*: states before the segment that each layer reads; 0: as many as it has tokens.
    *cutoffs*: words before each cluster, as of ``torch.nn.AdaptiveLogSoftmaxWithLoss``; the vocabulary: one softmax.
    *div_value*: words of a cluster have vectors this many times as short as those of the one before.

    Shapes: ``(batch, length, cutoffs[0] + clusters)``, then ``(rows, words)`` of each cluster, with as many rows as it
    has tokens in English text.  Raises SizeError if *heads* do not divide *hidden* or *cutoffs* do not rise.
    """
    if hidden % heads:
        raise SizeError(f"hidden {hidden} is no multiple of {heads} heads")
    net, (batch, length) = tokens.net, tokens.shape
    ends = (0, *cutoffs) if cutoffs[-1] == vocabulary else (0, *cutoffs, vocabulary)
    if any(start >= end for start, end in pairwise(ends)):
        raise SizeError(f"cutoffs must rise, up to a vocabulary of {vocabulary}; got {ends[1:-1]}")
    tables = _tables(ends, hidden, div_value)
    x = _embed(tokens, ends, tables).apply("word_emb.scale", "mul_scalar", in_place=True).dropout("dropout")
    reach = memory or length
    positions = net.input(reach + length, hidden).dropout("pos_emb.dropout")
    for i in range(layers):
        name = f"layers.{i}"
        x = _attend(x, net.input(batch, reach, hidden), positions, name, heads)
        with net.part("feed-forward"):
            y = x.linear(f"{name}.ff1", inner).relu(f"{name}.relu").dropout(f"{name}.ff1.dropout")
            y = y.linear(f"{name}.ff2", hidden).dropout(f"{name}.ff2.dropout")
        x = x.add(y, f"{name}.ff.add").layer_norm(f"{name}.ff.norm")
    return _scores(x.dropout("out.dropout"), ends, tables)


def _tables(ends: tuple[int, ...], hidden: int, div_value: int) -> list[tuple[Parameter, int]]:
    """Return the table that has the words of each cluster, with the length of their vectors."""
    if div_value == 1 or len(ends) == 2:
        return [(Parameter("word_emb.weight", ends[-1] * hidden), hidden)] * (len(ends) - 1)
    sizes = [max(hidden // div_value**i, 1) for i in range(len(ends) - 1)]
    return [(Parameter(f"word_emb.{i}.weight", (ends[i + 1] - ends[i]) * n), n) for i, n in enumerate(sizes)]


def _rows(tokens: int, ends: tuple[int, ...]) -> list[int]:
    """Return how many of *tokens* of English text are words of each cluster.

    Beyond rank 33,278 are 2.6 % of Wikipedia's words, beyond 267,735 0.4 % (arXiv 1609.07843, table 1); a power of the
    rank between and around them.  Words outside the vocabulary share one of the first ranks.
    """
    steepness = log(0.026 / 0.004) / log(267735 / 33278)
    beyond = [0.004 * (267735 / rank) ** steepness for rank in ends[1:]]
    rare = [ceil(tokens * (more - fewer)) for more, fewer in pairwise(beyond)]
    return [tokens - sum(rare), *rare]


def _embed(tokens: Tensor, ends: tuple[int, ...], tables: list[tuple[Parameter, int]]) -> Tensor:
    hidden = tables[0][1]
    if tables[0] == tables[-1]:
        return tokens.embedding("word_emb", ends[-1], hidden)
    parts = []
    for i, rows in enumerate(_rows(tokens.elements, ends)):
        found = tokens.net.input(rows).embedding(f"word_emb.{i}", ends[i + 1] - ends[i], tables[i][1])
        parts.append(found.linear(f"word_emb.{i}.projection", hidden, bias=False))
    return parts[0].gather("word_emb.join", (*tokens.shape, hidden), *parts[1:])


def _scores(x: Tensor, ends: tuple[int, ...], tables: list[tuple[Parameter, int]]) -> tuple[Tensor, ...]:
    hidden, clusters = tables[0][1], len(ends) - 2

    def scored(y: Tensor, i: int, words: int, *also: Parameter) -> Tensor:
        table, size = tables[i]
        if tables[0] != tables[-1]:
            # The first projection is the softmax's own; those of the clusters are the embedding's.
            y = y.linear(f"out.{i}.projection", size, bias=False, of=f"word_emb.{i}.projection" if i else "")
        operator = Linear(prod(y.shape[:-1]), size, words, True)
        return y.layer(f"out.{i}", operator, (*y.shape[:-1], words), (table, *also, Parameter(f"out.{i}.bias", words)))

    if not clusters:
        return (scored(x, 0, ends[1]),)
    head = scored(x, 0, ends[1] + clusters, Parameter("out.clusters", clusters * hidden))
    found = [head.copy("out.sorted")]  # the scores of each cluster's tokens side by side
    for i, rows in enumerate(_rows(prod(x.shape[:-1]), ends)[1:], 1):
        found.append(scored(x.gather(f"out.{i}.rows", (rows, hidden)), i, ends[i + 1] - ends[i]))
    return tuple(found)


def _attend(x: Tensor, before: Tensor, positions: Tensor, name: str, heads: int) -> Tensor:
    """Return the normalised sum of *x* and its attention, by content and by distance (section 3.3)."""
    batch, length, hidden = x.shape
    reach, size = before.shape[1] + length, hidden // heads
    with x.net.part("attention"):
        qkv = before.gather(f"{name}.join", (batch, reach, hidden), x).linear(f"{name}.qkv", 3 * hidden, bias=False)
        distances = positions.linear(f"{name}.r", hidden, bias=False)
        # Two vectors, shared by all layers, replace the query's absolute position (u and v in the paper).
        query = qkv.view(*x.shape)
        content = query.add_small(f"{name}.content", parameters=(Parameter("r_w_bias", hidden),))
        place = query.add_small(f"{name}.place", parameters=(Parameter("r_r_bias", hidden),))
        keys = qkv.view(batch, reach, hidden).copy(f"{name}.split_k", batch, heads, reach, size)
        by_content = content.view(batch, heads, length, size).matmul(keys, f"{name}.scores", "NT")
        far = distances.view(heads, reach, size)
        by_place = place.view(heads, batch * length, size).matmul(far, f"{name}.distances", "NT")
        # Padding each row by one element shifts the rows against each other.
        moved = by_place.copy(f"{name}.shift", *by_content.shape)
        scores = by_content.add(moved, f"{name}.sum").apply(f"{name}.mask", "masked_fill", in_place=True)
        shares = scores.softmax(f"{name}.softmax").dropout(f"{name}.dropatt")
        values = qkv.view(batch, reach, hidden).copy(f"{name}.split_v", batch, heads, reach, size)
        y = shares.matmul(values, f"{name}.context").copy(f"{name}.merge", *x.shape)
        y = y.linear(f"{name}.o", hidden, bias=False).dropout(f"{name}.dropout")
    return x.add(y, f"{name}.add").layer_norm(f"{name}.norm")


_SIZES = own_data("simulator.workload.zoo", "stages.json")
_BANDS = 64
_REPEAT = 5


def _convolutional(net: NetworkBuilder, batch: int, spectrum: int, classes: int, *, model: str) -> Tensor:
    """Return the scores of *model* in ``stages.json``, ``(batch, classes, 1, frames / 2)``.

    Blocks add what enters all blocks up to them; separable ones, what enters them.  Raises SizeError for an odd number
    of frames.
    """
    if spectrum % 2:
        raise SizeError(f"frames must be even; got {spectrum}")
    (first, *blocks, last), separable = _SIZES[model]  # channels and kernel of each, and whether it is separable
    x = _layer(net.input(batch, _BANDS, 1, spectrum), "first", *first, stride=2, separable=separable)
    entered: list[Tensor] = []
    for i, (width, kernel) in enumerate(blocks):
        entered = [x] if separable else [*entered, x]
        x = _block(x, f"blocks.{i}", width, kernel, entered, separable=separable)
    x = _layer(x, "last.0", *last, dilation=2, separable=separable)
    return _layer(x, "last.1", 1024, 1).conv("letters", classes, 1, bias=True)


jasper, quartznet = partial(_convolutional, model="jasper"), partial(_convolutional, model="quartznet")


def _block(
    x: Tensor, name: str, width: int, kernel: int, residuals: Sequence[Tensor], *, separable: bool = False
) -> Tensor:
    """Return five layers whose last one adds each of *residuals*, through a convolution of its own."""
    for i in range(_REPEAT - 1):
        x = _layer(x, f"{name}.{i}", width, kernel, separable=separable)
    x = _convolved(x, f"{name}.{_REPEAT - 1}", width, kernel, separable=separable)
    for i, residual in enumerate(residuals):
        way = residual.conv(f"{name}.residual{i}", width, 1).batch_norm(f"{name}.residual{i}.norm")
        x = x.add(way, f"{name}.add{i}", in_place=True)
    return x.relu(f"{name}.relu").dropout(f"{name}.dropout")


def _layer(
    x: Tensor, name: str, width: int, kernel: int, *, stride: int = 1, dilation: int = 1, separable: bool = False
) -> Tensor:
    x = _convolved(x, name, width, kernel, stride, dilation, separable=separable)
    return x.relu(f"{name}.relu").dropout(f"{name}.dropout")


def _convolved(
    x: Tensor, name: str, width: int, kernel: int, stride: int = 1, dilation: int = 1, *, separable: bool
) -> Tensor:
    """Return the normalised convolution; a separable one goes channel by channel, then across channels."""
    batch, channels, _, frames = x.shape
    wide, groups, own = (channels, channels, f"{name}.along") if separable else (width, 1, f"{name}.conv")
    pad = (kernel - 1) // 2 * dilation
    operator = Conv2d(*(batch, channels, wide, 1, frames, 1, kernel, 1, stride, 0, pad, groups), dilation_w=dilation)
    x = x.layer(own, operator, (batch, wide, 1, operator.w_out), weights(own, weight=operator.weight_elements))
    return (x.conv(f"{name}.across", width, 1) if separable else x).batch_norm(f"{name}.norm")


# -- Tacotron 2 --------------------------------------------------------------------------

_MEL, _SYMBOLS, _WIDTH, _RNN, _PRENET, _ATTENTION = 80, 148, 512, 1024, 256, 128  # _MEL: bands of a spectrum
_FILTERS, _FILTER_WIDTH, _KERNEL = 32, 31, 5
_ENCODER_LAYERS, _POSTNET_LAYERS = 3, 5


def tacotron2(net: NetworkBuilder, batch: int, characters: int, frames: int) -> tuple[Tensor, Tensor]:
    """Return each frame's spectrum and end-of-text logit, for *batch* texts of *characters* and *frames* each."""
    memory = _encoder(net.input(batch, characters))
    keys = memory.linear("attention.memory", _ATTENTION, bias=False)
    heard = net.input(batch, frames, _MEL)
    for i in range(2):
        heard = heard.linear(f"prenet.{i}", _PRENET, bias=False).relu(f"prenet.{i}.relu").dropout(f"prenet.{i}.dropout")
    decoder = _Decoder(net, batch, memory, keys)
    (bands, *later), (end, *ends) = zip(*(decoder.frame(heard, i) for i in range(frames)), strict=True)
    x = spectrum = bands.gather("stack", (batch, _MEL, 1, frames), *later, transposed=True)
    last = end.gather("stack_ends", (batch, frames), *ends)
    for i in range(_POSTNET_LAYERS):
        width = _MEL if i == _POSTNET_LAYERS - 1 else _WIDTH
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
        return x.linear(f"{i}.bands", _MEL, of="projection"), x.linear(f"{i}.end", 1, of="gate")

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


# -- WaveGlow ----------------------------------------------------------------------------

_FLOWS, _LAYERS, _GROUP, _HOP, _WINDOW = 12, 8, 8, 256, 1024
_EVERY, _EARLY = 4, 2  # every 4 flows, 2 channels are output


def waveglow(net: NetworkBuilder, batch: int, samples: int, channels: int) -> Tensor:
    """Return the noise ``(batch * samples / 8, 8)``; raises SizeError unless *samples* is a multiple of 8."""
    if samples % _GROUP:
        raise SizeError(f"samples go by {_GROUP}; got {samples}")
    length, frames = samples // _GROUP, samples // _HOP + 1
    # The spectrum, upsampled to the sample rate, with groups of 8 samples as channels.
    heard = net.input(batch, _MEL, 1, frames).up("upsample", _MEL, (1, _WINDOW), (1, _HOP))
    heard = heard.copy("upsample.groups", batch, _MEL * _GROUP, 1, length, transposed=True)
    x = net.input(batch, _GROUP, 1, length)
    done: list[Tensor] = []
    for flow in range(_FLOWS):
        name = f"flows.{flow}"
        if flow and flow % _EVERY == 0:
            done.append(x.view(batch, _EARLY, 1, length))
            x = x.view(batch, x.shape[1] - _EARLY, 1, length)
        x = x.conv(f"{name}.mix", x.shape[1], 1)
        half = x.view(batch, x.shape[1] // 2, 1, length)
        y = _flow(half, heard, name, channels)
        part = y.view(*half.shape)
        scale = _of_part(f"{name}.exp", "exp", part, y)
        moved = scale.apply(f"{name}.scale", "mul", half).add(part, f"{name}.shift")
        x = half.gather(f"{name}.join", x.shape, moved)
    return done[0].gather("join", (batch * samples // _GROUP, _GROUP), *done[1:], x)


def _flow(x: Tensor, heard: Tensor, name: str, channels: int) -> Tensor:
    """Return the scales and shifts of one flow, with twice as many channels as *x*."""
    half = x.shape[1]
    x = _normed_conv(x, f"{name}.start", channels)
    wide = x.shape[0], channels, 1, x.shape[3]
    total = x
    for i in range(_LAYERS):
        layer, is_last = f"{name}.{i}", i == _LAYERS - 1
        y = _normed_conv(x, f"{layer}.in", 2 * channels, 3, 2**i)
        y = y.add(_normed_conv(heard, f"{layer}.condition", 2 * channels), f"{layer}.add")
        tanh, gate = (_of_part(f"{layer}.{f}", f, y.view(*wide), y) for f in ("tanh", "sigmoid"))
        y = tanh.apply(f"{layer}.mul", "mul", gate)
        y = _normed_conv(y, f"{layer}.out", channels if is_last else 2 * channels)
        part = y.view(*wide)
        if not is_last:
            residual = Elementwise("add", x.elements, 2, part_of=y.elements)
            x = x.layer(f"{layer}.residual", residual, None, (), part)
        skip = Elementwise("add", part.elements, 2, part_of=0 if is_last else y.elements)
        total = total.layer(f"{layer}.skip", skip, part.shape, (), part) if i else part
    return total.conv(f"{name}.end", 2 * half, 1, bias=True)


def _of_part(name: str, function: str, part: Tensor, whole: Tensor) -> Tensor:
    """Return *function* of *part*, a slice of *whole*."""
    return part.layer(name, Elementwise(function, part.elements, part_of=whole.elements))


def _normed_conv(x: Tensor, name: str, width: int, kernel: int = 1, dilation: int = 1) -> Tensor:
    batch, channels, _, length = x.shape
    pad = (kernel - 1) // 2 * dilation
    operator = Conv2d(batch, channels, width, 1, length, 1, kernel, pad_w=pad, bias=True, dilation_w=dilation)
    parameters = weights(name, weight=operator.weight_elements, norm=width, bias=width)
    return x.layer(name, operator, (batch, width, 1, length), parameters)
