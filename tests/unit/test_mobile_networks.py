"""Networks of NVIDIA's segmentation examples and MobileFaceNet: parameters by closed form from their blocks."""

from __future__ import annotations

import pytest

from simulator.errors import InputError
from simulator.workload.zoo.registry import build_network


def parameters(name: str, **options: object) -> int:
    network = build_network(name, batch=2, **options)
    return sum(each.elements for layer in network.layers for each in layer.parameters)


def conv(entering: int, leaving: int, taps: int, *, bias: bool = True) -> int:
    return entering * leaving * taps + bias * leaving


def test_tiny_unet_has_the_parameters_of_its_blocks() -> None:
    down = conv(1, 32, 9) + conv(32, 32, 9)
    down += sum(conv(a, b, 9) + conv(b, b, 9) for a, b in ((32, 32), (32, 64), (64, 128)))
    bottom = conv(128, 256, 9) + conv(256, 256, 9) + conv(256, 128, 4)
    up = sum(conv(2 * c, c, 9) + conv(c, c // 2, 9) + conv(c // 2, c // 2, 4) for c in (128, 64, 32))
    head = conv(48, 32, 9) + conv(32, 32, 9) + conv(32, 1, 1)
    assert parameters("unet-industrial") == down + bottom + up + head


def test_vnet_has_the_parameters_of_its_blocks() -> None:
    def unit(entering: int, leaving: int, taps: int) -> int:
        return conv(entering, leaving, taps) + 2 * leaving  # with its normalisation

    down = unit(1, 16, 27) + sum(unit(c // 2, c, 8) + 3 * unit(c, c, 27) for c in (32, 64, 128))
    up = sum(unit(a, c, 8) + 3 * unit(2 * c, 2 * c, 27) for a, c in ((128, 64), (128, 32)))
    assert parameters("vnet") == down + up + unit(64, 16, 8) + conv(16, 3, 27)


def test_four_channels_and_a_wider_head_are_all_that_sets_the_volumes_of_brats_apart() -> None:
    more = 3 * 32 * 27 + (4 * 32 * 27 + 4) - (3 * 32 + 3)
    assert parameters("unet-3d-medical") == parameters("unet3d") + more


def test_mobile_face_net_is_a_million_parameters_and_its_identities() -> None:
    small, large = (parameters("mobilefacenet", classes=classes) for classes in (10, 1010))
    assert large - small == 1000 * 128
    assert 0.98e6 < small - 10 * 128 < 1.01e6  # arXiv 1804.07573, table 2: 0.99 million


@pytest.mark.parametrize(("name", "image"), [("vnet", 36), ("unet-industrial", 500)])
def test_sides_that_cannot_be_halved_are_refused(name: str, image: int) -> None:
    with pytest.raises(InputError, match="multiples of"):
        build_network(name, batch=1, image=image)
