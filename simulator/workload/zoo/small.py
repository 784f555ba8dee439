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

from simulator.workload.zoo.builder import NetworkBuilder, Tensor


def perceptron(x: Tensor, widths: tuple[int, ...], activation: str = "relu") -> Tensor:
    """Return the output of linear layers of *widths*, with an activation between each two."""
    for i, width in enumerate(widths[:-1]):
        x = x.linear(f"{2 * i}", width).apply(f"{2 * i + 1}", activation)
    return x.linear(f"{2 * len(widths) - 2}", widths[-1])


def lenet(x: Tensor, classes: int) -> Tensor:
    """Return the logits of LeNet-5 with its padded 28x28 images, average pools and sigmoids."""
    x = x.conv("0", 6, 5, pad=2, bias=True).apply("1", "sigmoid").pool("2", 2, kind="avg")
    x = x.conv("3", 16, 5, bias=True).apply("4", "sigmoid").pool("5", 2, kind="avg").flatten()
    x = x.linear("7", 120).apply("8", "sigmoid").linear("9", 84).apply("10", "sigmoid")
    return x.linear("11", classes)


def lenet_d2l(x: Tensor, classes: int) -> Tensor:
    """Return the logits of the book's variant: 20 and 50 channels, a dense layer of 128."""
    x = x.conv("conv1", 20, 3, bias=True).relu("relu1", in_place=False).pool("pool1", 2, kind="avg")
    x = x.conv("conv2", 50, 5, bias=True).relu("relu2", in_place=False).pool("pool2", 2, kind="avg").flatten()
    return x.linear("dense1", 128).relu("relu3", in_place=False).linear("dense2", classes)


def alexnet_s_mxnet(x: Tensor, classes: int) -> Tensor:
    """Return the logits of the program for MXNet, whose last layer takes the third convolution."""
    x = x.conv("conv1", 96, 11, stride=4, pad=1, bias=True).relu("relu1").pool("pool1", 3, stride=2, ceil=True)
    x = x.conv("conv2", 256, 5, pad=1, bias=True).relu("relu2").pool("pool2", 3, stride=2, ceil=True)
    x = x.conv("conv3", 384, 3, pad=1, bias=True).relu("relu3").pool("pool5", 3, stride=2, ceil=True)
    return x.flatten().linear("fc8", classes)


def alexnet_s(x: Tensor, classes: int, pads: tuple[int, int, int], pool_pad: int = 0, ceil: bool = False) -> Tensor:
    """Return the logits of one undivided column of the AlexNet of 2012, padded by *pads*; *ceil* rounds pools up."""
    for i, channels in enumerate((96, 256, 384, 384, 256), 1):
        kernel, pad = ((11, 5)[i - 1], pads[i - 1]) if i <= 2 else (3, pads[2])
        x = x.conv(f"conv{i}", channels, kernel, stride=4 if i == 1 else 1, pad=pad, bias=True).relu(f"relu{i}")
        if i in (1, 2, 5):
            x = x.pool(f"pool{i}", 3, stride=2, pad=pool_pad, ceil=ceil)
    x = x.flatten()
    for i in (6, 7):
        x = x.linear(f"fc{i}", 4096).relu(f"relu{i}")
    return x.linear("fc8", classes)


def alexnet_r(x: Tensor, classes: int, normalised: bool = False) -> Tensor:
    """Return the logits of the AlexNet for CIFAR-10: three 5x5 convolutions.

    *normalised*: by a power of the mean square of neighbours, as Caffe composes it (``lrn_layer.cpp``).
    """

    def normed(x: Tensor, name: str) -> Tensor:
        if not normalised:
            return x
        squares = x.apply(f"{name}.square", "square").pool(f"{name}.mean", 3, kind="avg", stride=1, pad=1)
        return x.apply(f"{name}.product", "mul", squares.apply(f"{name}.scale", "pow_scalar"))

    x = normed(x.conv("conv1", 32, 5, pad=2, bias=True).pool("pool1", 3, stride=2).relu("relu1"), "norm1")
    x = normed(x.conv("conv2", 32, 5, pad=2, bias=True).relu("relu2").pool("pool2", 3, stride=2), "norm2")
    x = x.conv("conv3", 64, 5, pad=2, bias=True).relu("relu3").pool("pool3", 3, kind="avg", stride=2)
    return x.flatten().linear("fc", classes)


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
