"""Make each operator of a description in torch: its module, its parameters, and the views it needs."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.built.description import OPERATORS, DescribedLayer
from validate.machine.measure.built.shapes import LayerMaker, Shape, TorchLayer, WithParameters, as_heads, itself


def needed(layer: DescribedLayer, position: int, whole: int) -> int:
    """Return how many of the *whole* elements of input number *position* the layer reads."""
    s, operator = layer.size, layer.operator
    if operator == "Attention":
        heads = (s("kv_heads") or s("heads")) if position else s("heads")
        length = s("key_length") if position else s("query_length")
        size = (s("value_size") or s("head_size")) if position == 2 else s("head_size")
        return min(s("batch") * heads * length * size, whole)
    turned = operator == "Conv2d" and layer.sizes.get("transposed")
    if operator not in OPERATORS["reads"] or turned or (operator == "Copy" and len(layer.inputs) > 1):
        return whole
    reads = OPERATORS["reads"][operator]  # the sizes of each input; of further ones, those of the last
    return min(prod(s(name, 1) for name in reads[min(position, len(reads) - 1)]), whole)


def _of_rows(have: Shape, rows: int, cols: int) -> Shape:
    return have if have[-1] == cols and prod(have) == rows * cols else (rows, cols)


def _steps(large: Shape, small: Shape, kernel: Shape) -> Iterator[tuple[Shape, Shape, bool]]:
    """Yield strides, paddings and rounding modes that give the wanted number of windows, the most usual first."""
    for ceil in (False, True):
        for pad in (tuple(0 for _ in kernel), tuple((k - 1) // 2 for k in kernel), tuple(k // 2 for k in kernel)):
            stride = []
            for a, b, k, p in zip(large, small, kernel, pad, strict=True):
                span = a + 2 * p - k
                fits = [s for s in range(1, span + 2) if _windows(span, s, ceil, a + p) == b]
                stride.append(min(fits, key=lambda s: abs(s - k / 2)) if fits else 0)
            if all(stride):
                yield tuple(stride), pad, ceil


def _windows(span: int, stride: int, ceil: bool, begins_before: int) -> int:
    if span < 0:
        return 0
    n = (-(-span // stride) if ceil else span // stride) + 1
    return n - 1 if ceil and (n - 1) * stride >= begins_before else n


_cloned = partial(TorchLayer, torch.clone)
_CELLS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class OperatorMaker(LayerMaker):
    """Makes layers of all operators."""

    def made(self) -> TorchLayer:
        """Return the layer by the method of its operator's name."""
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.layer.operator).lower()
        make: Callable[[], TorchLayer] | None = getattr(self, f"_make_{name}", None)
        if make is None:
            raise self.lacks(f"no way to build a {self.layer.operator}")
        return make()

    def _seen_as(self, function: Callable[[Any], Any], want: Shape, result: Shape | None = None) -> TorchLayer:
        """Return *function* of the first input as *want*, with the shape *result*; else that of the input again."""
        view, back = self.seen(want), itself if result is not None else self.seen(self.have, want)
        module = function if isinstance(function, nn.Module) else None
        return TorchLayer(lambda x: back(function(view(x))), self.have if result is None else result, module)

    def _make_linear(self) -> TorchLayer:
        inputs, outputs = self.size("inputs"), self.size("outputs")
        want = _of_rows(self.have, self.size("rows"), inputs)
        biased = self.sizes.get("bias", True) and len(self.parameters) > 1
        module = nn.Linear(inputs, outputs, bias=biased)
        tables = [each.elements // inputs for each in (self.parameters[:-1] if biased else self.parameters)]
        if sum(tables) != outputs:  # of an adaptive softmax: some words of a table, and the clusters after them
            first = outputs - sum(tables[1:])
            own = {f"table{i}": (rows, inputs) for i, rows in enumerate(tables)}

            def scores(x: Any, *weights: Any) -> Any:
                chosen = torch.cat((weights[0][:first], *weights[1 : len(own)]))
                return F.linear(x, chosen, *weights[len(own) :])

            module = WithParameters(scores, **own, **({"bias": (outputs,)} if biased else {}))
        return self._seen_as(module, want, (*want[:-1], outputs))

    def _make_grouped_linear(self) -> TorchLayer:
        count, rows, inputs, outputs = (self.size(name, 1) for name in ("experts", "rows", "inputs", "outputs"))
        if self.sizes.get("busiest") or self.sizes.get("grouping", "kernel") != "kernel":
            raise self.lacks("products of unlike numbers of rows, or one by one, are not measured")
        if not hasattr(F, "grouped_mm"):
            raise self.lacks(f"torch {torch.__version__} has no grouped_mm for experts; 2.10 and later have")
        if len(self.parameters) > 1 or prod(self.have) != rows * inputs:
            raise self.lacks(f"torch has no product of {rows} rows with {count} experts and biases")
        ends = torch.tensor([rows * (i + 1) // count for i in range(count)], dtype=torch.int32)

        def product(x: Any, weight: Any, ends: Any) -> Any:
            x, place = x.reshape(rows, inputs), x.device.type
            if place != "meta" and torch.is_autocast_enabled(place):  # autocast does not know this product
                x, weight = (each.to(torch.get_autocast_dtype(place)) for each in (x, weight))
            return F.grouped_mm(x, weight.transpose(-2, -1), offs=ends)

        module = WithParameters(product, weight=(count, outputs, inputs), ends=ends)
        nn.init.normal_(module.weight, std=inputs**-0.5)
        return TorchLayer(module, (rows, outputs), module)

    def _make_mat_mul(self) -> TorchLayer:
        m, n, k, batch = (self.size(name, 1) for name in ("m", "n", "k", "batch"))
        turn_a, turn_b = (way == "T" for way in self.sizes.get("layout", "NN"))
        first = as_heads(self.have, batch, *((k, m) if turn_a else (m, k)))
        second = as_heads(self.shapes[-1], batch, *((n, k) if turn_b else (k, n)))

        def call(a: Any, b: Any) -> Any:
            a, b = first(a), second(b)
            return torch.bmm(a.transpose(1, 2) if turn_a else a, b.transpose(1, 2) if turn_b else b)

        return TorchLayer(call, (batch, m, n))

    def _make_conv2d(self) -> TorchLayer:
        s = self.size
        if any(p.name.endswith(".norm") for p in self.parameters):
            raise self.lacks("what norms its weights is not in the description, and would be left out")
        if len(self.parameters) > 1 and not self.sizes.get("bias"):
            raise self.lacks("torch has no kernels of Mamba-2; those of mamba_ssm are not built")
        kernel, large, pad = (s("kernel_h"), s("kernel_w")), (s("h_in"), s("w_in")), (s("pad_h"), s("pad_w"))
        stride, dilation = (s("stride_h", 1), s("stride_w", 1)), (s("dilation_h", 1), s("dilation_w", 1))
        reach = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, pad, strict=True)]
        small = [(large[i] - reach[i]) // stride[i] + 1 for i in (0, 1)]
        images: Shape = (s("batch"), s("c_in"), *large)
        result: Shape = (s("batch"), s("c_out"), *small)
        last = s("groups", 1), bool(self.sizes.get("bias", False))
        module: Any
        if self.sizes.get("transposed"):
            images, result = result, images
            spare = tuple(large[i] - ((small[i] - 1) * stride[i] + reach[i]) for i in (0, 1))
            module = nn.ConvTranspose2d(images[1], result[1], kernel, stride, pad, spare, *last, dilation)
        else:
            module = nn.Conv2d(images[1], result[1], kernel, stride, pad, dilation, *last)
        if prod(images) > prod(self.have):
            raise self.lacks("reads images more than once, as convolutions of three dimensions are written")
        return self._seen_as(module, images, result)

    def _make_batch_norm(self) -> TorchLayer:
        want = tuple(self.size(name) for name in ("batch", "channels", "height", "width"))
        own = self.parameters[0].elements if self.parameters else want[1]
        if own >= want[1]:
            return self._seen_as(nn.BatchNorm2d(want[1], affine=bool(self.parameters)), want, want)
        by_image = (want[0] * want[1] // own, own, *want[2:])  # each image by itself (instance norm)
        if prod(self.have) != prod(want) or len(self.parameters) != 2:
            raise self.lacks("no norm of each image with such parameters")

        def by_itself(x: Any, weight: Any, bias: Any) -> Any:
            return F.instance_norm(x.reshape(by_image), weight=weight, bias=bias).reshape(x.shape)

        normed = WithParameters(by_itself, weight=(own,), bias=(own,))
        return TorchLayer(normed, self.have, normed)

    def _make_layer_norm(self) -> TorchLayer:
        cols = self.size("cols")
        want, affine = _of_rows(self.have, self.size("rows"), cols), bool(self.parameters)
        if self.sizes.get("kind") == "rms_norm":
            module: Any = nn.RMSNorm(cols, eps=1e-6, elementwise_affine=affine)
        else:
            module = nn.LayerNorm(cols, elementwise_affine=affine, bias=len(self.parameters) > 1)
        return self._seen_as(module, want)  # group norm treats groups of images as rows

    def _make_embedding(self) -> TorchLayer:
        rows, cols = self.size("rows"), self.size("cols")
        want = self.have if prod(self.have) == rows else (rows,)
        return self._seen_as(nn.Embedding(self.size("vocabulary"), cols), want, (*want, cols))

    def _make_recurrent(self) -> TorchLayer:
        if len(self.layer.inputs) > 1:
            raise self.lacks("a state that is fed in is not built")
        inputs, hidden = self.size("inputs"), self.size("hidden")
        module = _CELLS[self.sizes["cell"]](inputs, hidden, bias=len(self.parameters) > 2, batch_first=True)
        want = self.size("batch"), self.size("timesteps"), inputs
        view = self.seen(want)
        return TorchLayer(lambda x: module(view(x))[0], (*want[:2], hidden), module)

    def _make_attention(self) -> TorchLayer:
        s = self.size
        if self.sizes.get("library") == "flash1":
            raise self.lacks("torch has no FlashAttention 1; --set attention=fused is what it runs")
        if s("window") or self.parameters:
            raise self.lacks("torch's scaled_dot_product_attention has neither windows nor learned sinks")
        batch, heads, kv_heads = s("batch"), s("heads"), s("kv_heads") or s("heads")
        sizes = (s("head_size"), s("head_size"), s("value_size") or s("head_size"))
        lengths, counts = (s("query_length"), s("key_length"), s("key_length")), (heads, kv_heads, kv_heads)
        causal = bool(self.sizes.get("causal"))
        views = []
        for have, length, count, size in zip(self.shapes, lengths, counts, sizes, strict=True):
            turned = have != (batch, count, length, size)
            views.append((self.seen((batch, length, count, size) if turned else have, have), turned))
        shared = {"enable_gqa": True} if kv_heads != heads else {}
        result = batch, lengths[0], heads * sizes[2]

        def call(*tensors: Any) -> Any:
            seen_as = ((view(x), turned) for x, (view, turned) in zip(tensors, views, strict=True))
            q, k, v = (x.transpose(1, 2) if turned else x for x, turned in seen_as)
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **shared).transpose(1, 2).reshape(result)

        return TorchLayer(call, result)

    def _make_softmax(self) -> TorchLayer:
        if self.sizes.get("kernel"):
            told = "a softmax that masks and scales is Megatron-LM's kernel and not torch's"
            raise self.lacks(f"{told}; --set attention=eager or fused is")
        want = _of_rows(self.have, self.size("rows"), self.size("cols"))
        return self._seen_as(partial(torch.softmax, dim=-1), want)

    def _make_reduction(self) -> TorchLayer:
        want = (self.size("rows"), self.size("cols"))
        if not self.parameters:
            return self._seen_as(partial(torch.sum, dim=-1), want, want[:1])

        def product(x: Any, weight: Any, *scale: Any) -> Any:
            return torch.matmul(x, weight * scale[0] if scale else weight)

        sizes: dict[str, Any] = {"weight": want[1:]} | ({"scale": (1,)} if len(self.parameters) > 1 else {})
        return self._seen_as(WithParameters(product, **sizes), want, want[:1])

    def _make_pool(self) -> TorchLayer:
        s = self.size
        kernel, large = (s("kernel_h"), s("kernel_w")), (s("h_in"), s("w_in"))
        small, images = (s("h_out"), s("w_out")), (s("batch"), s("channels"), *large)
        result, is_max = (*images[:2], *small), self.sizes["kind"] == "max"
        if not is_max and kernel == tuple(-(-a // b) for a, b in zip(large, small, strict=True)):
            return self._seen_as(partial(F.adaptive_avg_pool2d, output_size=small), images, result)
        for stride, padding, ceil in _steps(large, small, kernel):
            how: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil}
            return self._seen_as(partial(F.max_pool2d if is_max else F.avg_pool2d, **how), images, result)
        raise self.lacks(f"no stride takes windows of {kernel} from {large} to {small}")

    def _make_cross_entropy(self) -> TorchLayer:
        view = self.seen((self.size("rows"), self.size("cols")))
        labels = self.seen((self.size("rows"),), self.shapes[1])
        return TorchLayer(lambda x, y: F.cross_entropy(view(x), labels(y)), ())

    def _make_copy(self) -> TorchLayer:
        elements, have = self.size("elements"), self.have
        if len(self.shapes) > 1:
            return self._joined(elements)
        if self.parameters:
            return self._led(elements)
        times, more = divmod(elements, prod(have))
        if more:
            raise self.lacks(f"{prod(have)} elements do not make {elements} by being repeated")
        if times > 1:  # grouped-query attention: each head of keys serves several heads of queries

            def repeat(x: Any) -> Any:
                return x.unsqueeze(-2).expand(*have[:-1], times, have[-1]).reshape(*have[:-1], times * have[-1])

            return TorchLayer(repeat, (*have[:-1], times * have[-1]))
        before = next((b for b in self.before if b is not None), None)
        after = next((a for a in self.after if a.operator == "MatMul"), None)
        if after is not None and self.layer.output in after.inputs and (have[-1] != have[0] or len(have) == 3):
            batch, k = after.size("batch", 1), after.size("k")
            is_second = after.inputs[-1] == self.layer.output
            cols = after.size("n") if is_second else k
            rows = k if is_second else after.size("m")
            turned = batch, rows, cols
            if self.sizes.get("transposed"):  # stored in the order in which the product reads it
                return TorchLayer(lambda x: x.reshape(cols, batch, rows).permute(1, 2, 0).contiguous(), turned)
            return TorchLayer(lambda x: x.reshape(rows, batch, cols).transpose(0, 1).contiguous(), turned)
        if before is not None and before.operator == "MatMul" and len(have) == 3:
            batch, rows, cols = have
            merged = rows, batch * cols
            return TorchLayer(lambda x: x.transpose(0, 1).reshape(merged), merged) if batch > 1 else _cloned(have)
        if self.sizes.get("transposed") and len(have) > 1:
            return TorchLayer(lambda x: x.transpose(-1, -2).contiguous(), (*have[:-2], have[-1], have[-2]))
        return _cloned(have)

    def _led(self, elements: int) -> TorchLayer:
        have, size = self.have, self.parameters[0].elements
        rows = prod(have) // have[0] // size
        if len(self.parameters) > 1 or have[0] * (rows + 1) * size != elements:
            raise self.lacks(f"{size} learned numbers and {prod(have)} do not make {elements}")
        images = len(have) == 4 and have[1] == size

        def led(x: Any, weight: Any) -> Any:
            pixels = x.flatten(2).transpose(1, 2) if images else x.reshape(have[0], rows, size)
            return torch.cat((weight.expand(pixels.shape[0], 1, -1), pixels), 1)

        module = WithParameters(led, weight=(size,))
        return TorchLayer(module, (have[0], rows + 1, size), module)

    def _joined(self, elements: int) -> TorchLayer:
        if sum(map(prod, self.shapes)) != elements:
            raise self.lacks(f"{sum(map(prod, self.shapes))} elements do not make {elements} side by side")
        first = self.have
        if len(first) == 4 and all(len(s) == 4 and (s[0], *s[2:]) == (first[0], *first[2:]) for s in self.shapes):
            return TorchLayer(lambda *xs: torch.cat(xs, 1), (first[0], sum(s[1] for s in self.shapes), *first[2:]))
        if all(s[:-1] == first[:-1] for s in self.shapes):
            return TorchLayer(lambda *xs: torch.cat(xs, -1), (*first[:-1], sum(s[-1] for s in self.shapes)))
        return TorchLayer(lambda *xs: torch.cat([x.reshape(-1) for x in xs]), (elements,))
