"""What a workload saw itself makes its trial invalid: answers, contents, ciphers, streams."""

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.engine.transactions import AskedFlow, AskSummary
from tunnelmark.model.validity import Check
from tunnelmark.workloads import curl
from tunnelmark.workloads.calls import Calls
from tunnelmark.workloads.dns import _answers as dns_answers
from tunnelmark.workloads.dnsperf import Account
from tunnelmark.workloads.echo_exchange import Exchanged
from tunnelmark.workloads.file_transfer import _Trial as FileTrial
from tunnelmark.workloads.file_transfer_params import FileTransferParams
from tunnelmark.workloads.rate_search import _ended
from tunnelmark.workloads.request_response import RequestResponse, RequestResponseParams
from tunnelmark.workloads.search import Found, Goal
from tunnelmark.workloads.streams import Streamed, _judged
from tunnelmark.workloads.web import _agreed

TLS_1_2 = "12:00:00.000000 * SSL connection using TLSv1.2 / ECDHE-RSA-AES256-GCM-SHA384"
TLS_1_3 = "12:00:00.000000 * SSL connection using TLSv1.3 / TLS_AES_256_GCM_SHA384"
SSH = "debug1: kex: server->client cipher: aes256-ctr MAC: hmac-sha2-256 compression: none"


def asked(transport: str, flows: tuple[AskedFlow, ...]) -> dict[str, Check]:
    workload = RequestResponse(RequestResponseParams.model_validate({"transport": transport}))
    context: Any = SimpleNamespace(paths=[SimpleNamespace(name="0")])
    found = workload._outcome(context, AskSummary(10**9, None, flows), [])
    return {check.name: check for check in found.checks}


def test_queries_that_nobody_answered_or_with_an_error_are_seen() -> None:
    silent = Account(3, 0, 3, 1.0, (), frozenset())
    refused = Account(1, 1, 0, 1.0, (0.01,), frozenset({"SERVFAIL"}))
    well = Account(1, 1, 0, 1.0, (0.01,), frozenset({"NOERROR"}))
    assert dns_answers([("0", well)]).ok
    assert not dns_answers([("0", well), ("1", silent)]).ok
    found = dns_answers([("0", refused)])
    assert (found.ok, found.message) == (False, "the server answered SERVFAIL on path 0")


def test_requests_that_nobody_answered_are_a_fault_over_tcp_and_a_loss_over_udp() -> None:
    silent = (AskedFlow(5, 0, 5, 0, None),)
    assert not asked("tcp", silent)["answers"].ok
    assert asked("udp", silent)["answers"].ok


def test_another_number_of_flows_than_was_asked_for_is_seen() -> None:
    two = (AskedFlow(5, 5, 0, 0, None), AskedFlow(5, 5, 0, 0, None))
    assert asked("tcp", two)["flows"].message == "ask reports 2 flows, not 1"
    sent: Any = SimpleNamespace(flows=[SimpleNamespace(flow=1)])
    flow: Any = SimpleNamespace(session=SimpleNamespace(flow=0))
    nothing: Any = SimpleNamespace()
    exchanged = Exchanged(sent=sent, send=nothing, reflect=nothing)
    alive = Check("processes", ok=True, message="")
    checks = _judged(nothing, [flow], exchanged, alive, drain_ns=0, apart_ns=None).checks
    assert [(check.name, check.ok) for check in checks] == [("processes", True), ("flows", False)]


@pytest.mark.parametrize(
    ("params", "log", "ok"),
    [
        ({"protocol": "https", "tls": "1.3"}, TLS_1_3, True),
        ({"protocol": "https", "tls": "1.3"}, TLS_1_2, False),
        ({"protocol": "scp", "ssh_cipher": "AES-256-CTR"}, SSH, True),
        ({"protocol": "scp", "ssh_cipher": "AES-128-GCM"}, SSH, False),
    ],
)
def test_files_over_another_cipher_than_was_asked_for_are_seen(
    params: dict[str, str], log: str, ok: bool
) -> None:
    one: Any = SimpleNamespace(_params=FileTransferParams.model_validate(params))
    assert FileTrial._negotiated(one, [log]).ok is ok


def test_pages_over_another_version_of_tls_are_seen() -> None:
    wanted = curl.Tls("1.3", None)
    assert _agreed({("TLSv1.3", "TLS_AES_256_GCM_SHA384")}, wanted).ok
    assert not _agreed({("TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384")}, wanted).ok


def test_a_search_that_spent_its_trials_is_no_figure() -> None:
    goal = Goal(0.0, 1.0, 1000.0, 0.01, 1.0, 1, 4)
    assert _ended(Found(10.0, 11.0, ()), goal).ok
    assert not _ended(Found(10.0, 1000.0, (), complete=False), goal).ok


def test_calls_are_judged_by_the_streams_of_both_directions() -> None:
    good = Streamed((Check("sender_lateness", ok=True, message="0.1 ms"),))
    late = Streamed((Check("sender_lateness", ok=False, message="9 ms late"),))
    found = {check.name: check for check in Calls((), (), (good, late)).checks}
    assert found["sender_lateness_sent_forward"].ok
    assert not found["sender_lateness_sent_reverse"].ok
