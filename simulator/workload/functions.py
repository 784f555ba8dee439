"""Names of element-wise functions that a user may write, in lower case as frameworks spell them.

Traced networks are not restricted to this list: any function they call counts as a pass over its inputs and outputs,
with the arithmetic that the models know for it.  A name that a user types is checked because a typing error would
silently cost as much as the simplest pass.
"""

from __future__ import annotations

from simulator.errors import nearest, one_line


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_OF_TWO = _names("add sub mul div pow fmod remainder eq ne lt le gt ge")
FUNCTIONS: tuple[str, ...] = (
    *_OF_TWO,
    *(f"{name}_scalar" for name in _OF_TWO),
    *_names("""
        relu gelu silu sigmoid tanh elu selu celu relu6 leaky_relu prelu mish softplus softsign hardtanh hardswish
        hardsigmoid hardshrink softshrink threshold log_sigmoid glu
        abs neg sign floor ceil round trunc frac square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p
        sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc erfinv sinc logit lgamma digamma clamp
        nan_to_num cast
        maximum minimum atan2 hypot lerp addcmul addcdiv where masked_fill tril triu
        logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not isnan isfinite
        dropout dropout_add uniform normal bernoulli random fill
        cumsum cumprod sort topk lstm_cell
        nll_loss mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss
    """),
)
_ENDINGS = ("_inplace", "_bwd")


def check_function(name: str) -> None:
    """Raise ValueError unless *name*, without its endings ``_inplace`` and ``_bwd``, is a known function."""
    plain = name
    for ending in _ENDINGS:
        plain = plain.removesuffix(ending)
    if plain not in FUNCTIONS:
        raise ValueError(f"function: there is no '{one_line(name, 40)}'; {nearest(plain, FUNCTIONS)}")
