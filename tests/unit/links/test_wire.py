"""Point-to-point links: what cannot be is refused, everything else reaches the emulator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tunnelmark.engine.link import LinkSpec
from tunnelmark.links.ethernet import Ethernet, EthernetParams
from tunnelmark.links.serial import Serial, SerialParams


def serial(**params: object) -> LinkSpec:
    return Serial(SerialParams.model_validate({"rate": "8 Mbit/s", **params})).spec(1)


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"loss_forward": 0.9, "loss_burst": 2}, "loss_forward is 0.9, must be at most 0.666667"),
        ({"loss_reverse": 0.8, "loss_burst": 3}, "loss_reverse is 0.8, must be at most 0.75"),
        ({"queue": "1513 B"}, "queue is 1513 bytes, must hold a frame of 1514 bytes"),
        ({"queue": "9000 B", "mtu": 9000}, "must hold a frame of 9014 bytes"),
        ({"loss_burst": 0.5}, "greater than or equal to 1"),
        ({"loss_forward": "110 %"}, "less than or equal to 1"),
        ({"loss_forward": -0.1}, "greater than or equal to 0"),
        ({"rate": "0 bit/s"}, "greater than 0"),
        ({"mtu": 575}, "greater than or equal to 576"),
        ({"delay": "61 s"}, "less than or equal to"),
        ({"delay": "-1 ms"}, "must be a quantity"),
    ],
)
def test_what_cannot_be_is_refused(params: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        serial(**params)


@given(st.floats(0, 1), st.floats(1, 1000))
def test_every_loss_that_is_accepted_is_a_probability_and_the_one_asked_for(
    share: float, burst: float
) -> None:
    try:
        loss = serial(loss_forward=share, loss_burst=burst).a_to_b.loss
    except ValidationError:
        assert share > burst / (burst + 1)
        return
    if loss.type == "none":
        assert share == 0
    elif loss.type == "independent":
        assert loss.probability == share
    else:
        assert 0 <= loss.good_to_bad <= 1 + 1e-12
        assert 0 <= loss.bad_to_good <= 1
        stationary = loss.good_to_bad / (loss.good_to_bad + loss.bad_to_good)
        assert stationary * loss.loss_bad == pytest.approx(share)


@pytest.mark.parametrize("name", ["uniform", "normal", "exponential"])
def test_variation_has_the_distribution_that_was_asked_for(name: str) -> None:
    direction = serial(delay_variation="3 ms", delay_distribution=name, reorder=True).b_to_a
    assert (direction.delay_variation.type, direction.delay_variation.value_ns) == (name, 3_000_000)
    assert direction.reorder
    assert serial().a_to_b.delay_variation.type == "none"


def test_a_serial_line_counts_ip_packets_and_a_zero_reverse_delay_is_one() -> None:
    spec = serial(delay="5 ms", delay_reverse="0 ms", queue="10 KiB")
    assert (spec.a_to_b.frame_overhead_bytes, spec.a_to_b.frame_min_bytes) == (-14, 0)
    assert (spec.a_to_b.delay_ns, spec.b_to_a.delay_ns) == (5_000_000, 0)
    assert (spec.a_to_b.queue.type, spec.a_to_b.queue.limit) == ("bytes", 10_240)


@pytest.mark.parametrize(
    ("rate", "bit_s"),
    [("10 Mbit/s", 10**7), ("100 Mbit/s", 10**8), ("1 Gbit/s", 10**9), ("10 Gbit/s", 10**10)],
)
def test_ethernet_has_the_rates_of_the_standard(rate: str, bit_s: int) -> None:
    spec = Ethernet(EthernetParams.model_validate({"rate": rate})).spec(1)
    assert (spec.a_to_b.rate_bit_s, spec.b_to_a.rate_bit_s) == (bit_s, bit_s)
    with pytest.raises(ValidationError):
        EthernetParams.model_validate({"rate": "12 Mbit/s"})
