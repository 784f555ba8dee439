"""Neural collaborative filtering (He et al., arXiv 1708.05031, section 3.4): NVIDIA DeepLearningExamples' NeuMF."""

from __future__ import annotations

from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder


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
