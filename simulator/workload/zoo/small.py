"""Small networks: perceptrons, LeNet, and the networks of Shi et al. 2016, and NeuMF.

LeNet-5: LeCun et al., Proc. IEEE 86 (1998), section II.B, with every map of layer C3 connected to every map of S2.
``lenet-d2l``: the variant in *Dive into Deep Learning*'s chapter on several GPUs.  Shi et al. 2016 (arXiv 1608.07249)
state few sizes, so the sizes are those of their published programs, hclhkbu/dlbench: ``fcn-s``
synthetic/experiments/mxnet/fc/symbol_fcn5.py, ``fcn-r`` tools/mxnet/fc/train_mnist.py, ``alexnet-s``
synthetic/experiments/torch/cnn/alexnet and, where they differ, those of Caffe, TensorFlow and MXNet beside it,
``alexnet-r`` tools/torch/Models/alexnet.lua, ``alexnet-r-lrn`` tools/caffe/cnn/alexnet/alexnet.prototxt,
``lstm-shi2016`` tools/mxnet/rnn/train_rnn.py.

NeuMF: neural collaborative filtering (He et al., arXiv 1708.05031, section 3.4), NVIDIA DeepLearningExamples'.
"""

from __future__ import annotations

from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder


def perceptron(b: NetworkBuilder, x: LayerOutput, widths: tuple[int, ...], activation: str = "relu") -> LayerOutput:
    """Return the output of linear layers of *widths*, with an activation between each two."""
    for i, width in enumerate(widths[:-1]):
        x = b.linear(x, f"{2 * i}", width)
        x = b.elementwise(f"{2 * i + 1}", activation, x)
    return b.linear(x, f"{2 * len(widths) - 2}", widths[-1])


def lenet(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of LeNet-5 with its padded 28x28 images, average pools and sigmoids."""
    x = b.elementwise("1", "sigmoid", b.conv(x, "0", 6, 5, pad=2, bias=True))
    x = b.pool(x, "2", 2, kind="avg")
    x = b.elementwise("4", "sigmoid", b.conv(x, "3", 16, 5, bias=True))
    x = b.flatten(b.pool(x, "5", 2, kind="avg"))
    x = b.elementwise("8", "sigmoid", b.linear(x, "7", 120))
    x = b.elementwise("10", "sigmoid", b.linear(x, "9", 84))
    return b.linear(x, "11", classes)


def lenet_d2l(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of the book's variant: 20 and 50 channels, a dense layer of 128."""
    x = b.relu(b.conv(x, "conv1", 20, 3, bias=True), "relu1", in_place=False)
    x = b.pool(x, "pool1", 2, kind="avg")
    x = b.relu(b.conv(x, "conv2", 50, 5, bias=True), "relu2", in_place=False)
    x = b.flatten(b.pool(x, "pool2", 2, kind="avg"))
    x = b.relu(b.linear(x, "dense1", 128), "relu3", in_place=False)
    return b.linear(x, "dense2", classes)


def alexnet_s_mxnet(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of the program for MXNet, whose last layer takes the third convolution."""
    x = b.relu(b.conv(x, "conv1", 96, 11, stride=4, pad=1, bias=True), "relu1")
    x = b.pool(x, "pool1", 3, stride=2, ceil=True)
    x = b.relu(b.conv(x, "conv2", 256, 5, pad=1, bias=True), "relu2")
    x = b.pool(x, "pool2", 3, stride=2, ceil=True)
    x = b.relu(b.conv(x, "conv3", 384, 3, pad=1, bias=True), "relu3")
    return b.linear(b.flatten(b.pool(x, "pool5", 3, stride=2, ceil=True)), "fc8", classes)


def alexnet_s(
    b: NetworkBuilder, x: LayerOutput, classes: int, pads: tuple[int, int, int], pool_pad: int = 0, ceil: bool = False
) -> LayerOutput:
    """Return the logits of one undivided column of the AlexNet of 2012, padded by *pads*; *ceil* rounds pools up."""

    def pooled(x: LayerOutput, name: str) -> LayerOutput:
        return b.pool(x, name, 3, stride=2, pad=pool_pad, ceil=ceil)

    x = pooled(b.relu(b.conv(x, "conv1", 96, 11, stride=4, pad=pads[0], bias=True), "relu1"), "pool1")
    x = pooled(b.relu(b.conv(x, "conv2", 256, 5, pad=pads[1], bias=True), "relu2"), "pool2")
    for i, channels in zip((3, 4, 5), (384, 384, 256), strict=True):
        x = b.relu(b.conv(x, f"conv{i}", channels, 3, pad=pads[2], bias=True), f"relu{i}")
    x = b.flatten(pooled(x, "pool5"))
    for i in (6, 7):
        x = b.relu(b.linear(x, f"fc{i}", 4096), f"relu{i}")
    return b.linear(x, "fc8", classes)


def alexnet_r(b: NetworkBuilder, x: LayerOutput, classes: int, normalised: bool = False) -> LayerOutput:
    """Return the logits of the AlexNet for CIFAR-10: three 5x5 convolutions, *normalised* locally or not."""
    x = b.pool(b.conv(x, "conv1", 32, 5, pad=2, bias=True), "pool1", 3, stride=2)
    x = _normalised(b, b.relu(x, "relu1"), "norm1", normalised)
    x = b.relu(b.conv(x, "conv2", 32, 5, pad=2, bias=True), "relu2")
    x = _normalised(b, b.pool(x, "pool2", 3, stride=2), "norm2", normalised)
    x = b.relu(b.conv(x, "conv3", 64, 5, pad=2, bias=True), "relu3")
    x = b.pool(x, "pool3", 3, kind="avg", stride=2)
    return b.linear(b.flatten(x), "fc", classes)


def _normalised(b: NetworkBuilder, x: LayerOutput, name: str, normalised: bool) -> LayerOutput:
    """Return *x* over a power of the mean square of its neighbours, as Caffe composes it (``lrn_layer.cpp``)."""
    if not normalised:
        return x
    squares = b.pool(b.elementwise(f"{name}.square", "square", x), f"{name}.mean", 3, kind="avg", stride=1, pad=1)
    scale = b.elementwise(f"{name}.scale", "pow_scalar", squares)
    return b.elementwise(f"{name}.product", "mul", x, scale)


def lstm_language_model(
    b: NetworkBuilder, tokens: LayerOutput, hidden: int, layers: int, vocabulary: int
) -> LayerOutput:
    """Return the logits of each word: embedding, LSTM layers and a linear layer, all of one width."""
    x = b.embedding(tokens, "embed", vocabulary, hidden)
    for i in range(layers):
        x = b.recurrent(x, f"lstm.{i}", hidden)
    return b.linear(x, "decoder", vocabulary)


def neumf(b: NetworkBuilder, batch: int, users: int, items: int, factors: int, widths: tuple[int, ...]) -> LayerOutput:
    """Return a score for each of *batch* pairs of a user and an item.

    The score combines the product of two embeddings of *factors* elements with a perceptron.  *widths* are the
    perceptron's widths from its input on; half of the input is the user's embedding, half the item's.
    """
    user, item = b.input(batch), b.input(batch)
    half = widths[0] // 2
    product = b.elementwise(
        "mf", "mul", b.embedding(user, "mf_user", users, factors), b.embedding(item, "mf_item", items, factors)
    )
    x = b.join((b.embedding(user, "mlp_user", users, half), b.embedding(item, "mlp_item", items, half)), "mlp.join")
    for i, width in enumerate(widths[1:]):
        x = b.elementwise(f"mlp.{i}.relu", "relu", b.linear(x, f"mlp.{i}", width))
        x = b.dropout(x, f"mlp.{i}.dropout")
    return b.linear(b.join((product, x), "join"), "final", 1)
