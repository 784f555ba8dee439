"""GPU generations: fallbacks for unknown ones, chips of half-size SMs, vendors without models."""

from __future__ import annotations

import pytest

from simulator.devices.gpu import MAKERS, Traits, gpu_from_part, traits_of
from simulator.errors import InputError
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart
from tests.devices import find_gpu
from validate.tables.names import device_names


def traits(name: str) -> Traits:
    found = find_gpu(name)
    return found.traits


def test_an_unknown_generation_is_like_the_newest_of_its_line_or_else_of_its_maker() -> None:
    assert traits_of("nvidia", "rubin", 128.0) == traits_of("nvidia", "", 128.0) == traits("b200")
    assert traits_of("amd", "cdna5", 128.0) == traits_of("amd", "something", 64.0) == traits("mi355x")
    assert traits_of("amd", "rdna4", 64.0) == traits("rx-6900-xt")
    assert traits_of("amd", "ampere", 64.0) == traits("mi355x")  # names are specific to a vendor


@pytest.mark.parametrize(("small", "large"), [("p100-pcie-16gb", "p4"), ("a100-pcie-40gb", "rtx-3090")])
def test_chips_for_data_centres_have_sms_of_half_as_many_lanes(small: str, large: str) -> None:
    assert traits(small).small_sms
    assert not traits(large).small_sms
    assert traits(small) != traits(large)


def test_lanes_of_the_other_generations_say_nothing() -> None:
    for lanes in (64.0, 128.0):
        assert traits_of("nvidia", "turing", lanes) == traits("t4")


def test_who_has_tensor_cores_and_how_they_are_fed() -> None:
    fed = [traits(name).operands for name in ("p4", "t4", "l4", "h100-pcie", "b200", "mi25", "mi300x")]
    assert fed == ["none", "registers", "copies", "warps", "warps", "none", "registers"]


def test_every_built_in_part_of_a_maker_with_models_is_of_a_known_generation() -> None:
    for name in part_names("gpu"):
        part = load_part(name)
        assert isinstance(part, GpuPart)
        if part.vendor in MAKERS:
            generation = part.architecture.split()[0].lower()
            with pytest.raises(InputError, match=rf"\b{generation}\b"):  # the error lists known generations
                traits_of("other", generation, 128.0)


def test_a_gpu_of_another_maker_has_no_model() -> None:
    part = load_part("knl-7250")
    assert isinstance(part, GpuPart)
    with pytest.raises(InputError, match=r"knl-7250: no model of GPUs of maker 'other'; .*amd \(.*nvidia \(kepler"):
        gpu_from_part("knl-7250", part)
    assert device_names()["knl-7250"] == "knl-7250-cpu"


def test_chips_of_blackwell_for_desks_have_the_sms_of_the_generation_before() -> None:
    assert traits("gb10") == traits("rtx-5090") == traits("rtx-4090")
    assert traits("gb10") != traits("b200") == traits("gb200")
