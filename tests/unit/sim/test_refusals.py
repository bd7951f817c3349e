"""What cannot be simulated is refused by name, point by point; the rest runs."""

from dataclasses import replace

import pytest

from tunnelmark.model.errors import StudyError
from tunnelmark.model.job import Job
from tunnelmark.model.trial import Point
from tunnelmark.sim.refusals import Sorted, sort_out
from tunnelmark.study import parse_study
from tunnelmark.study.plan import jobs

HEAD = 'format = 1\nname = "s"\ntitle = "S"\nprecision = { metric = "loss_forward_ratio" }\n'
LINK = '[[link]]\nkind = "serial"\nlabel = "slow"\nrate = "2 Mbit/s"\n'
ECHO = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 10\npayload_bytes = [64, 100]\n'
BULK = '[[workload]]\nkind = "tcp_bulk"\n'
FILE = '[[workload]]\nkind = "file_transfer"\n'
WEB = '[[workload]]\nkind = "web"\n'
ASK = '[[workload]]\nkind = "request_response"\n'
DNS = '[[workload]]\nkind = "dns"\n'
WIREGUARD = '[[tunnel]]\nkind = "wireguard"\n'


def sorted_out(*parts: str) -> Sorted:
    head = HEAD
    own = [
        f'{kind} = "{metric}"'
        for kind, metric in (
            ("tcp_bulk", "tcp_goodput_bit_s"),
            ("file_transfer", "transfer_goodput_bit_s"),
            ("web", "web_page_p50_ns"),
            ("request_response", "rr_latency_p50_ns"),
            ("dns", "dns_latency_p50_ns"),
        )
        if any(f'[[workload]]\nkind = "{kind}"' in part for part in parts)
    ]
    if own:
        head = head.replace("}", f", metrics = {{ {', '.join(own)} }} }}")
    return sort_out(jobs(parse_study(head + "\n".join(parts), "s.toml")), ())


def test_a_workload_of_programs_is_left_out_and_the_echo_beside_it_runs() -> None:
    found = sorted_out(LINK, WIREGUARD, ECHO, DNS)
    assert found.skipped == {
        "workload dns": "there is no model of what its programs send (2 points)"
    }
    (job,) = found.jobs
    assert [point.workload.kind for point in job.block.points] == ["udp_echo"] * 4
    assert job.block.baseline.kind == "none"
    assert found.omitted == ()


@pytest.mark.parametrize(
    ("tunnel", "name", "reason"),
    [
        ('kind = "openvpn"\noptions = ["--fragment 1300"]', "openvpn", "no model of its packets"),
        ('kind = "openvpn"\nfragment = 1300', "openvpn", "no model of its packets"),
    ],
)
def test_a_tunnel_without_a_model_is_left_out(tunnel: str, name: str, reason: str) -> None:
    found = sorted_out(LINK, WIREGUARD, f"[[tunnel]]\n{tunnel}\n", ECHO)
    (label,) = found.skipped
    assert label.startswith(name)
    assert reason in found.skipped[label]
    assert len(found.jobs) == len(found.omitted) == 1


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((LINK, WIREGUARD, DNS), "workload dns: there is no model of what its programs send"),
        ((LINK, WIREGUARD, WEB + 'congestion = "bbr"\n'), "congestion is 'bbr', only cubic and"),
        (
            (LINK, '[[tunnel]]\nkind = "ssh_tun"\ncongestion = "bbr"\n', ECHO),
            "ssh_tun-bbr: congestion is 'bbr', only cubic and reno are simulated (4 points)",
        ),
        (
            (LINK, WIREGUARD, BULK + 'congestion = "bbr"\n'),
            "congestion is 'bbr', only cubic and reno are simulated (2 points)",
        ),
        (
            (LINK, '[[tunnel]]\nkind = "wireguard"\ncount = 9\n', BULK + "parallel = 128\n"),
            "1152 connections are too many for a simulation: 1024 at most",
        ),
        (('[[link]]\nkind = "direct"\n', WIREGUARD, ECHO), "as fast as this computer"),
        (
            (LINK, '[[tunnel]]\nkind = "vxlan"\n', ECHO, '[topology]\nrouter = "nat"\n'),
            "vxlan: VXLAN (not encrypted) cannot pass a router with NAT",
        ),
        (
            (LINK, '[[tunnel]]\nkind = "pptp"\n', ECHO, '[[device]]\nkind = "pi-3"\n'),
            "device pi-3: no cost model of pptp on it, and no published rate of MPPE-128",
        ),
        (
            (LINK, '[[tunnel]]\nkind = "gre"\n', ECHO, '[[device]]\nkind = "pi-3"\n'),
            "device pi-3: no cost model of gre on it, and no published rate of its own cipher",
        ),
    ],
)
def test_where_nothing_is_left_the_study_is_refused(parts: tuple[str, ...], reason: str) -> None:
    with pytest.raises(StudyError, match="nothing of the study can be simulated") as failed:
        sorted_out(*parts)
    assert reason in str(failed.value)


def test_bulk_transfers_are_simulated_with_congestion_controls_that_are_known() -> None:
    found = sorted_out(LINK, WIREGUARD, BULK + 'congestion = ["cubic", "bbr", "reno"]\n')
    ((name, reason),) = found.skipped.items()
    assert name.startswith("workload tcp_bulk")
    assert reason == "congestion is 'bbr', only cubic and reno are simulated (2 points)"
    (job,) = found.jobs
    kept = {point.workload.columns["congestion"] for point in job.block.points}
    assert kept == {"cubic", "reno"}


def test_security_of_the_air_is_simulated() -> None:
    wlan = '[[link]]\nkind = "wlan"\nlabel = "air"\nstandard = "802.11g"\n'
    assert not sorted_out(wlan, WIREGUARD, '[[tunnel]]\nkind = "wpa2"\n', ECHO).skipped


def test_compression_is_simulated_for_payload_that_does_not_get_smaller() -> None:
    lzo = '[[tunnel]]\nkind = "openvpn"\ncompression = "lzo"\n'
    zeros = ECHO + 'content = ["random", "zero"]\n'
    found = sorted_out(LINK, lzo, zeros)
    ((name, reason),) = found.skipped.items()
    assert name == "workload udp_echo of zero payload over openvpn-lzo"
    assert "for random payload only" in reason
    (job,) = found.jobs
    of_tunnel = [point for point in job.block.points if point.tunnel.kind == "openvpn"]
    assert {point.workload.columns["content"] for point in of_tunnel} == {"random"}


def test_files_and_pages_that_are_encrypted_get_no_smaller() -> None:
    lzo = '[[tunnel]]\nkind = "openvpn"\ncompression = "lzo"\n'
    both = 'protocol = ["http", "https"]\n'
    found = sorted_out(LINK, lzo, FILE + both + 'corpus = "text"\n', WEB + both, ASK)
    assert set(found.skipped) == {
        "workload file_transfer of text payload over openvpn-lzo",
        "workload web of text payload over openvpn-lzo",
        "workload request_response of zero payload over openvpn-lzo",
    }
    (job,) = found.jobs
    of_tunnel = [point for point in job.block.points if point.tunnel.kind == "openvpn"]
    assert [point.workload.columns["protocol"] for point in of_tunnel] == ["https", "https"]


def test_a_router_forwards_what_the_tunnel_lets_it() -> None:
    found = sorted_out(LINK, WIREGUARD, ECHO, '[topology]\nrouter = "nat"\n')
    assert not found.skipped


def test_a_gateway_with_clients_is_left_out() -> None:
    with pytest.raises(StudyError) as caught:
        sorted_out(LINK, WIREGUARD + "clients = 2\n", ECHO)
    assert "a gateway with its clients is not simulated (count gives pairs)" in str(caught.value)


BULK_LOAD = '[[background]]\nkind = "tcp_bulk"\nlabel = "down"\n'


def test_loads_are_simulated_and_what_has_no_model_is_named_with_the_workload() -> None:
    loads = (
        BULK_LOAD
        + '[[background]]\nkind = "dns"\nlabel = "names"\n'
        + '[[background]]\nkind = "file_transfer"\nlabel = "copy"\ncongestion = "bbr"\n'
        + '[[background]]\nkind = "udp_load"\nlabel = "beside"\npath = "outside"\n'
        + "packet_rate = 100\npayload_bytes = 100\n"
    )
    each = 'background = ["none", "down", "names", "copy", "beside"]\n'
    found = sorted_out(LINK, WIREGUARD, loads, ECHO + each)
    assert found.skipped == {
        "workload udp_echo beside names": "there is no model of what the programs of dns send "
        "(4 points)",
        "workload udp_echo beside copy": "congestion is 'bbr', only cubic and reno are simulated "
        "(4 points)",
    }
    (job,) = found.jobs
    beside = {point.workload.columns["background"] for point in job.block.points}
    assert beside == {"none", "down", "beside"}


def test_a_load_that_names_another_congestion_control_is_left_out_as_a_lab_refuses_it() -> None:
    loads = BULK_LOAD.replace('"down"', '"down"\ncongestion = "reno"')
    measured = BULK + 'congestion = "cubic"\nbackground = ["none", "down"]\n'
    found = sorted_out(LINK, WIREGUARD, loads, measured)
    (reason,) = found.skipped.values()
    assert "different congestion controls (cubic, reno)" in reason
    (job,) = found.jobs
    assert {point.workload.columns["background"] for point in job.block.points} == {"none"}


def test_a_network_beside_the_one_of_a_wlan_is_not_simulated_inside_it_is() -> None:
    wlan = '[[link]]\nkind = "wlan"\nlabel = "air"\nstandard = "802.11g"\n'
    air = '[[tunnel]]\nkind = "wpa2"\n'
    found = sorted_out(wlan, air, BULK_LOAD, ECHO)
    assert not found.skipped
    with pytest.raises(StudyError, match="udp_echo beside down: outside of wpa2 is another netw"):
        sort_out(
            [
                replace(one, block=replace(one.block, points=tuple(_over(one, "wpa2"))))
                for one in jobs(
                    parse_study(
                        HEAD + "\n".join((wlan, air, BULK_LOAD + 'path = "outside"\n', ECHO)),
                        "s.toml",
                    )
                )
            ],
            (),
        )


def _over(job: Job, kind: str) -> list[Point]:
    return [point for point in job.block.points if point.tunnel.kind == kind]
