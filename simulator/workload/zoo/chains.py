"""Networks whose layers follow one another (``chains.json``), VGG, LSTMs, NeuMF (docs/decisions/zoo.md)."""

from functools import partial
from typing import Any

from simulator.records import own_data
from simulator.workload.zoo.builder import NetworkBuilder, Tensor


def chain(x: Tensor, classes: int, layers: str) -> Tensor:
    """Return the logits of the network whose *layers* ``chains.json`` has under this name."""
    for method, *written in own_data("simulator.workload.zoo", "chains.json")[layers]:
        named = written[-1] if written and isinstance(written[-1], dict) else {}
        given: list[Any] = [classes if value == "classes" else value for value in written if value is not named]
        x = _local_norm(x, *given) if method == "local_norm" else getattr(x, method)(*given, **named)
    return x


def _local_norm(x: Tensor, name: str) -> Tensor:
    """Return *x* over a power of the mean square of neighbours, as Caffe composes it (``lrn_layer.cpp``)."""
    squares = x.apply(f"{name}.square", "square").pool(f"{name}.mean", 3, kind="avg", stride=1, pad=1)
    return x.apply(f"{name}.product", "mul", squares.apply(f"{name}.scale", "pow_scalar"))


def perceptron(
    net: NetworkBuilder, batch: int, inputs: int, widths: tuple[int, ...], activation: str = "relu"
) -> Tensor:
    """Return the output of linear layers of *widths*, with an activation between each two."""
    x = net.input(batch, inputs)
    for i, width in enumerate(widths[:-1]):
        x = x.linear(f"{2 * i}", width).apply(f"{2 * i + 1}", activation)
    return x.linear(f"{2 * len(widths) - 2}", widths[-1])


sigmoid_perceptron = partial(perceptron, activation="sigmoid")


def vgg(x: Tensor, classes: int, convolutions: tuple[int, ...]) -> Tensor:
    """Return the logits of VGG with so many *convolutions* before each pool, of 64, 128, 256, 512 and 512 channels."""
    i = 0
    for count, channels in zip(convolutions, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            x = x.conv(f"features.{i}", channels, 3, pad=1, bias=True).relu(f"features.{i + 1}")
            i += 2
        x = x.pool(f"features.{i}", 2)
        i += 1
    x = x.adaptive_avg_pool("avgpool", 7).flatten()
    for j in (0, 3):
        x = x.linear(f"classifier.{j}", 4096).relu(f"classifier.{j + 1}").dropout(f"classifier.{j + 2}")
    return x.linear("classifier.6", classes)


def lstm_language_model(x: Tensor, hidden: int, layers: int, vocabulary: int) -> Tensor:
    """Return the logits of each word: embedding, LSTM layers and a linear layer, all of one width."""
    x = x.embedding("embed", vocabulary, hidden)
    for i in range(layers):
        x = x.recurrent(f"lstm.{i}", hidden)
    return x.linear("decoder", vocabulary)


def neumf(net: NetworkBuilder, batch: int, users: int, items: int, factors: int, widths: tuple[int, ...]) -> Tensor:
    """Return a score for each of *batch* pairs of a user and an item.

    The score combines the product of two embeddings of *factors* elements with a perceptron.  *widths* are the
    perceptron's widths from its input on; half of the input is the user's embedding, half the item's.
    """
    user, item = net.input(batch), net.input(batch)
    product = user.embedding("mf_user", users, factors).apply("mf", "mul", item.embedding("mf_item", items, factors))
    half = widths[0] // 2
    x = user.embedding("mlp_user", users, half).join(item.embedding("mlp_item", items, half), "mlp.join")
    for i, width in enumerate(widths[1:]):
        x = x.linear(f"mlp.{i}", width).apply(f"mlp.{i}.relu", "relu").dropout(f"mlp.{i}.dropout")
    return product.join(x, "join").linear("final", 1)
