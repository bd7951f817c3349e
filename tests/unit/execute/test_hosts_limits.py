"""What a study may not ask of real hosts, and how much it sends at most."""

from pathlib import Path

import pytest

from tunnelmark.execute.hosts_limits import check_study, forwarded
from tunnelmark.hosts.inventory import Inventory, parse_inventory
from tunnelmark.model.errors import StudyError
from tunnelmark.study import FULL, Study, load_study, parse_study

ECHO = '[[workload]]\nkind = "udp_echo"\ngap = "10 ms"\npayload_bytes = 300\npackets = 1000\n'
BULK = '[[workload]]\nkind = "tcp_bulk"\nduration = "10 s"\n'
CALLS = '[[workload]]\nkind = "voip"\ncalls = 4\n'
LOAD = '[[workload]]\nkind = "udp_load"\nthroughput = "2 Mbit/s"\npayload_bytes = 1000\n'
FETCH = f'{BULK}direction = "reverse"\n'
STRICT = (
    '[[workload]]\nkind = "rate_search"\npayload_bytes = 1372\nloss = "0.01 %"\nmost_trials = 15\n'
)
METRICS = {
    BULK: "tcp_goodput_bit_s",
    FETCH: "tcp_goodput_reverse_bit_s",
    CALLS: "loss_forward_ratio",
    STRICT: "throughput_lower_bit_s",
}
OVPN = '[[tunnel]]\nkind = "openvpn"\n'
BARE_IPV6 = '[[tunnel]]\nkind = "none"\ninner = "ipv6"\n'
LINE = '[[link]]\nkind = "direct"\nlabel = "line"\n'
BACK = LOAD.replace("2 Mbit/s", "100 Mbit/s") + 'direction = "{way}"\n'
CHANGES = 'changes = [{ at = "5 s", rate = "1 Gbit/s" }, { at = "7 s", loss_forward = "1 %" }]\n'
SERIAL = '[[link]]\nkind = "serial"\nlabel = "slow"\nrate = "2 Mbit/s"\ndelay = "5 ms"\n'
FAST = SERIAL.replace("2 Mbit/s", "8 Mbit/s")


def study(*parts: str) -> Study:
    head = (
        'format = 1\nname = "s"\ntitle = "S"\nseed = 1\n'
        "precision = { min_repeats = 2, max_repeats = 2, bring_ups = 1, metric = "
    )
    metric = next((name for part, name in METRICS.items() if part in parts), "goodput_bit_s")
    head += f'"{metric}" }}\n'
    return parse_study(head + "\n".join(parts), "s.toml")


def inventory(max_rate: str = "") -> Inventory:
    lines = [
        f'max_rate = "{max_rate}"' if max_rate else "",
        '[client]\nssh = "a"\naddress = "192.0.2.1/24"',
        '[server]\nssh = "b"\naddress = "192.0.2.2/24"',
    ]
    return parse_inventory("\n".join(lines).encode(), "hosts.toml")


def test_a_suite_of_virtual_machines_is_refused() -> None:
    with pytest.raises(StudyError, match=r"place\.suite is trixie, which is of a virtual machine"):
        check_study(study('[place]\nsuite = "trixie"\n', LINE, ECHO), inventory())


def test_what_is_sent_is_reported_with_room_for_every_header() -> None:
    sent = check_study(study(OVPN, LINE, ECHO), inventory("1 Mbit/s"))
    # 500 bytes each 10 ms for at least 10 s, twice, with and without the tunnel, in 4 attempts.
    assert sent.bytes_most is not None
    assert 16 * 1000 * 500 <= sent.bytes_most < 2 * 16 * 1000 * 500
    assert "MB each way" in sent.describe()


@pytest.mark.parametrize(
    ("parts", "rate", "words"),
    [
        ((LINE, ECHO), "399 kbit/s", "sends 0.4 Mbit/s over link line"),
        ((LINE, BULK), "1 Gbit/s", "sends as much as the line carries over link line"),
        ((SERIAL, BULK), "1 Mbit/s", "sends 2 Mbit/s over link slow, max_rate is 1 Mbit/s"),
        ((LINE, CALLS), "700 kbit/s", "sends 0.8 Mbit/s"),
        ((LINE, LOAD), "2 Mbit/s", "sends 2.4 Mbit/s"),
        ((f"{OVPN}count = 3\n", LINE, f'{ECHO}load = "each"\n'), "1 Mbit/s", "sends 1.2 Mbit"),
        # The emulator stands at the client: what the server sends has crossed the line before.
        ((SERIAL, BACK.format(way="reverse")), "2 Mbit/s", "sends 120 Mbit/s to the client over"),
        ((SERIAL, BACK.format(way="both")), "2 Mbit/s", "sends 120 Mbit/s to the client over"),
        ((SERIAL, FETCH), "1 Gbit/s", "sends as much as the line carries to the client"),
        ((SERIAL + CHANGES, BULK), "2 Mbit/s", "sends 1000 Mbit/s over link slow"),
    ],
)
def test_more_than_the_inventory_allows_is_refused(
    parts: tuple[str, ...], rate: str, words: str
) -> None:
    with pytest.raises(StudyError) as caught:
        check_study(study(*parts), inventory(rate))
    assert words in str(caught.value)
    assert "s.toml: cannot run on real hosts: workload" in str(caught.value)


@pytest.mark.parametrize("load", [BULK, BACK.format(way="forward"), BACK.format(way="echo")])
def test_an_emulated_link_holds_what_the_client_sends_and_what_answers_it(load: str) -> None:
    sent = check_study(study(SERIAL, load), inventory("2 Mbit/s"))
    assert sent.bytes_most is not None
    assert sent.bytes_most == int(2e6 / 8 * sent.seconds)


def test_what_the_server_sends_is_held_by_the_workload() -> None:
    text = study(SERIAL, LOAD + 'direction = "both"\n')
    assert check_study(text, inventory("2400 kbit/s")).bytes_most
    with pytest.raises(StudyError, match=r"sends 2\.4 Mbit/s to the client .* at the client's end"):
        check_study(text, inventory("2 Mbit/s"))


def test_a_load_that_is_spread_over_tunnels_is_sent_once() -> None:
    load = LOAD.replace("2 Mbit/s", "1 Mbit/s")
    text = study(f"{OVPN}count = 4\n", LINE, load)
    assert check_study(text, inventory("2 Mbit/s")).bytes_most


def test_a_search_sends_as_much_as_its_loss_goal_needs_as_often_as_it_may_repeat() -> None:
    sent = check_study(study(FAST, STRICT), inventory())
    # 16 attempts at each of 15 trials, each up to three times.
    least = 16 * 15 * 3 * 60_000 * 1572
    assert sent.bytes_most is not None
    # Not as if the long trials of slow rates had the highest one.
    assert least <= sent.bytes_most < 1.2 * least
    # The lowest rate is 7 packets a second.
    assert sent.seconds > 16 * 15 * 3 * 60_000 / 8


def test_what_runs_beside_a_search_is_sent_as_long_as_that_lasts() -> None:
    beside = '[[background]]\nkind = "udp_load"\npayload_bytes = 300\npacket_rate = 10\n'
    sent = check_study(study(FAST, STRICT, beside), inventory())
    assert sent.bytes_most is not None
    assert sent.bytes_most >= sent.seconds * 10 * 500 + 16 * 15 * 3 * 60_000 * 1572


def test_invalid_trials_are_sent_again() -> None:
    def sent(most: int) -> int:
        text = study(LINE, ECHO).text.replace("bring_ups", f"max_invalid = {most}, bring_ups")
        found = check_study(parse_study(text, "s.toml"), inventory())
        assert "without set-ups, proofs" in found.describe()
        return found.bytes_most or 0

    assert sent(3) == pytest.approx(4 * sent(0), abs=3)


def test_a_line_without_a_limit_takes_all_and_that_is_reported() -> None:
    assert "use all that the line carries" in check_study(study(LINE, BULK), inventory()).describe()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ('[topology]\nrouter = "nat"\n', "topology.router is nat, which is emulated"),
        ('[[device]]\nkind = "pi-3"\n', "a real host has its own CPU"),
        ('[[tunnel]]\nkind = "openvpn"\nouter = "ipv6"\n', r'IPv4 only.* \(set outer = "ipv4"\)'),
        ('[[tunnel]]\nkind = "openvpn"\ninner = "ipv6"\n', r'IPv4 only.* \(set inner = "ipv4"\)'),
        ('[[tunnel]]\nkind = "openvpn"\nclients = 2\n', "clients are network namespaces"),
    ],
)
def test_what_only_an_emulated_lab_has_is_refused(part: str, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        check_study(study(part, LINE, ECHO), inventory())


def on_ipv6() -> Inventory:
    text = (
        '[client]\nssh = "a"\naddress = "2001:db8::1/64"\n'
        '[server]\nssh = "b"\naddress = "2001:db8::2/64"\n'
    )
    return parse_inventory(text.encode(), "hosts.toml")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("", r'kind = "none", inner = "ipv6"'),
        (OVPN, r'tunnel openvpn: the line carries IPv6 only.* \(set outer = "ipv6"\)'),
        (f'{OVPN}outer = "ipv6"\n', r'\(set inner = "ipv6"\)'),
        ('[[tunnel]]\nkind = "pptp"\n', "PPTP.* has no IPv6 outside, and the line has no other"),
    ],
)
def test_a_line_of_ipv6_takes_nothing_else(part: str, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        check_study(study(part, LINE, ECHO), on_ipv6())


def test_what_is_ipv6_inside_and_outside_is_taken() -> None:
    for part in (f'{OVPN}inner = "ipv6"\nouter = "ipv6"\n', BARE_IPV6):
        assert check_study(study(part, LINE, ECHO), on_ipv6()).bytes_most
    with pytest.raises(StudyError, match=r'IPv4 only.* \(set inner = "ipv4"\)'):
        check_study(study(BARE_IPV6, LINE, ECHO), inventory())


def test_the_ports_that_a_nat_must_forward_are_those_of_the_study() -> None:
    tunnels = '[[tunnel]]\nkind = "wireguard"\ncount = 2\n[[tunnel]]\nkind = "gre"\n'
    found = forwarded(study(f'{OVPN}transport = "tcp"\n{tunnels}', LINE, ECHO))
    assert [str(ports) for ports in found] == ["TCP 1194", "UDP 51820 to 51821"]


def test_each_load_beside_a_workload_has_ports_of_its_own() -> None:
    loads = "".join(
        f'[[background]]\nkind = "udp_load"\nlabel = "{size}"\npacket_rate = 10\n'
        f"payload_bytes = {size}\n"
        for size in (100, 200)
    )
    found = forwarded(study(OVPN, LINE, loads, ECHO))
    assert [str(ports) for ports in found] == ["UDP 1194", "UDP 7716 to 7747", "TCP 7716 to 7747"]


def test_a_study_without_a_link_takes_the_line(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(study(LINE, ECHO).text.replace(LINE, ""), encoding="utf-8")
    with pytest.raises(StudyError, match=r"no \[\[link\]\]"):
        load_study(str(file))
    found = load_study(str(file), FULL, on_line=True)
    assert [link.label for link in found.links] == ["line"]
    # What is kept of it is a whole study.
    assert parse_study(found.text, "s.toml").links == found.links
    file.write_text(study(SERIAL, ECHO).text, encoding="utf-8")
    assert [one.label for one in load_study(str(file), on_line=True).links] == ["slow"]
    file.write_text("x = [", encoding="utf-8")
    with pytest.raises(StudyError, match=r"s\.toml"):
        load_study(str(file), on_line=True)
