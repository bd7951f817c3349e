"""Every metric that says it is a one-way delay, or is made of one, is known to need one clock."""

from tunnelmark.model.metrics import METRICS


def test_one_way_delays_need_one_clock() -> None:
    one_way = {name for name in METRICS if "owd_" in name}
    assert one_way
    assert [name for name in one_way if not METRICS[name].one_clock] == []


def test_what_is_made_of_differences_does_not() -> None:
    for name in ("rtt_p50_ns", "pdv_forward_p99_ns", "load_added_rtt_ns", "goodput_bit_s"):
        assert not METRICS[name].one_clock


def test_the_error_of_two_clocks_is_in_the_unit_of_what_it_is_the_error_of() -> None:
    for metric in METRICS.values():
        if metric.clock_error is not None:
            assert metric.one_clock
            assert METRICS[metric.clock_error].unit == metric.unit
