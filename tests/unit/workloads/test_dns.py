"""DNS queries: what dnsperf says, what is made of it, and what a study may ask for."""

import pytest
from pydantic import ValidationError

from tunnelmark.workloads.dns import Dns, DnsParams, figures
from tunnelmark.workloads.dnsperf import Account, parse_account

ACCOUNT = b"""DNS Performance Testing Tool
Version 2.10.0

[Status] Stopping after 1.000000 seconds
> NOERROR host-000000.tunnelmark.test A 0.041000
> T host-000001.tunnelmark.test A
> NXDOMAIN host-000002.tunnelmark.test A 0.043000
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         3
  Queries completed:    2 (66.67%)
  Queries lost:         1 (33.33%)

  Response codes:       NOERROR 1 (50.00%), NXDOMAIN 1 (50.00%)
  Average packet size:  request 28, response 36
  Run time (s):         2.000506
  Queries per second:   39.490009
"""


def test_an_account_is_read() -> None:
    assert parse_account(ACCOUNT) == Account(
        3, 2, 1, 2.000506, (0.041, 0.043), frozenset({"NOERROR", "NXDOMAIN"})
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"Queries sent", b"Queries cent", "did not report queries sent"),
        (b"Run time (s):         2", b"Run time (s):         -2", "did not report run time"),
        (b"completed:    2", b"completed:    3", "reports 3 answers and lists 2"),
        (b"> NOERROR", b"> no error", "reports 2 answers and lists 1"),
        (b"sent:         3", b"sent:         2", "2 \\+ 1 outcomes of 2 queries"),
    ],
)
def test_a_damaged_account_is_refused(old: bytes, new: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_account(ACCOUNT.replace(old, new))


def test_figures_of_several_paths() -> None:
    quick = Account(10, 10, 0, 2.0, (0.01,) * 10, frozenset({"NOERROR"}))
    slow = Account(10, 6, 4, 2.0, (0.03,) * 6, frozenset({"NOERROR"}))
    found = figures([quick, slow])
    assert found["dns_queries_per_s"] == 8
    assert found["dns_latency_p50_ns"] == pytest.approx(1e7)
    assert found["dns_latency_max_ns"] == pytest.approx(3e7)
    assert found["dns_lost_ratio"] == 0.2
    assert found["dns_latency_p95_ns"] is None, "the slowest of 16 answers is no 95th percentile"
    assert set(found) == set(Dns.metrics)


@pytest.mark.parametrize(
    ("count", "there"),
    [(59, set()), (60, {"p95"}), (299, {"p95"}), (300, {"p95", "p99"})],
)
def test_a_tail_needs_three_answers_beyond_it(count: int, there: set[str]) -> None:
    latencies = tuple(k / 1000 for k in range(count))
    found = figures([Account(count, count, 0, 1.0, latencies, frozenset({"NOERROR"}))])
    tails = {name: found[f"dns_latency_{name}_ns"] for name in ("p95", "p99")}
    assert {name for name, value in tails.items() if value is not None} == there
    for name in there:
        share = int(name[1:]) / 100
        assert tails[name] == pytest.approx((count - 1) * share * 1e6)
    assert found["dns_latency_max_ns"] == pytest.approx((count - 1) * 1e6)


def test_a_percentile_that_can_never_be_is_withheld() -> None:
    slow = Dns(DnsParams.model_validate({"rate": 5}))
    assert slow.withheld("dns_latency_p95_ns") == (
        "rate and duration allow 50 queries, a 95th percentile needs at least 60: send more"
    )
    assert slow.withheld("dns_latency_p99_ns") == (
        "rate and duration allow 50 queries, a 99th percentile needs at least 300: send more"
    )
    assert slow.withheld("dns_latency_max_ns") is None
    assert slow.withheld("dns_latency_p95_ns", 2) is None
    assert "50 queries on each of 2 paths" in str(slow.withheld("dns_latency_p99_ns", 2))
    quicker = Dns(DnsParams.model_validate({"rate": 30}))
    assert quicker.withheld("dns_latency_p99_ns") is None
    assert Dns(DnsParams()).withheld("dns_latency_p99_ns") is None, "as fast as answers come"


def test_no_answer_has_no_latency() -> None:
    found = figures([Account(2, 0, 2, 1.0, (), frozenset())])
    assert found["dns_latency_p50_ns"] is None
    assert found["dns_queries_per_s"] == 0
    assert found["dns_lost_ratio"] == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"duration": "1500 ms"}, "must be whole seconds"),
        ({"timeout": "1500 ms"}, "timeout is 1.5 s"),
        ({"duration": "101 s"}, "at most 10000000: shorten it or set rate"),
        ({"transport": "tls"}, "udp"),
    ],
)
def test_what_a_study_may_not_ask_for(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DnsParams.model_validate(values)


def test_a_rate_allows_a_longer_trial() -> None:
    assert DnsParams.model_validate({"duration": "1000 s", "rate": 100}).rate == 100
