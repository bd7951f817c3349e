"""``tunnelmark hosts check``: what is found of two hosts and their line, and what is said of it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ssh_hosts import OWN, TwoHosts, two_hosts

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces stand for hosts"),
    pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs openssh-server"),
]


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with two_hosts() as made:
        yield made


def check(inventory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "tunnelmark.cli", "hosts", "check", str(inventory), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)


def found(done: "subprocess.CompletedProcess[str]") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all of it, and the findings of the line by name."""
    report = json.loads(done.stdout)
    line = {one["name"]: one for one in report["line"]["findings"]}
    return report, line


def test_hosts_that_serve_are_reported_with_their_line(hosts: TwoHosts) -> None:
    hosts.client.run("ip", "link", "set", "line0", "mtu", "1400")
    done = check(hosts.inventory(ports="[1194]"), "--json")
    report, line = found(done)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["ok"]
    assert report["line"]["mtu_bytes"] == 1400
    assert "passes both ways" in line["udp 1194"]["message"]
    assert "connects" in line["tcp 1194"]["message"]
    # One clock in truth: the offset is 0, within the error that is reported.
    clock = report["line"]["clock"]
    for least, most in zip(clock["least_ns"], clock["most_ns"], strict=True):
        assert least <= 0 <= most
    assert clock["drift_ppm"][0] <= 0 <= clock["drift_ppm"][1]
    tunnels = {one["kind"]: one for one in report["tunnels"]}
    assert tunnels["none"]["client"] is tunnels["none"]["server"] is None
    assert hosts.client.leftovers() == hosts.server.leftovers() == []


def test_what_is_in_the_way_is_reported_with_its_direction(hosts: TwoHosts) -> None:
    hosts.route()
    # What a firewall does, by the means that every kernel has.
    for rule in (
        ("udp", "dport", "1194", "type", "blackhole"),
        ("udp", "sport", "1195", "type", "blackhole"),
        ("tcp", "dport", "1194", "type", "prohibit"),
    ):
        hosts.server.run("ip", "rule", "add", "ipproto", *rule)
    done = check(hosts.inventory(attach='"routed"', ports="[1194, 1195]"), "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 3
    reported = [one["message"] for one in report["line"]["findings"] if not one["ok"]]
    server = [words for words in reported if "server 192.0.2.12" in words]
    assert any(words.startswith("UDP") and "does not arrive" in words for words in server)
    assert any("replies do not return" in words for words in server)
    assert any(words.startswith("TCP") for words in server)
    assert hosts.client.leftovers() == hosts.server.leftovers() == []


def test_a_host_that_cannot_be_reached_is_one_line(hosts: TwoHosts) -> None:
    (hosts.folder / "known_hosts").write_text("", encoding="ascii")
    done = check(hosts.inventory())
    assert done.returncode == 3
    assert done.stdout.count("--  ssh") == 2
    assert "the host's key is not known yet" in done.stdout


def test_routed_hosts_must_forward(hosts: TwoHosts) -> None:
    done = check(hosts.inventory(attach='"routed"'))
    assert done.returncode == 3
    assert "(sysctl -w net.ipv4.ip_forward=1)" in done.stdout
    assert hosts.client.run("cat", "/proc/sys/net/ipv4/ip_forward") == "0\n"


def test_what_is_missing_is_installed_only_when_that_is_asked_for(hosts: TwoHosts) -> None:
    apt = hosts.folder / "apt-get"
    apt.write_text('#!/bin/sh\necho "$@" >>/tmp/apt.log\n', encoding="ascii")
    apt.chmod(0o755)
    for program, instead in (("/usr/bin/apt-get", str(apt)), ("/usr/bin/ping", "/dev/null")):
        hosts.client.run("mount", "--bind", instead, program)
    done = check(hosts.inventory())
    assert done.returncode == 3
    assert "ping         is missing (apt-get install iputils-ping)" in done.stdout
    assert hosts.client.run("ls", "/tmp") == ""  # noqa: S108
    policy = Path("/usr/sbin/policy-rc.d")
    before = policy.exists()
    check(hosts.inventory(), "--install")
    log = hosts.client.run("cat", "/tmp/apt.log")  # noqa: S108
    assert "install iputils-ping" in log
    assert policy.exists() == before


def test_programs_that_only_some_systems_have_are_not_needed(hosts: TwoHosts) -> None:
    for program in ("timedatectl", "chrt", "getconf"):
        hosts.server.run("mount", "--bind", "/dev/null", f"/usr/bin/{program}")
    done = check(hosts.inventory(), "--json")
    report, _ = found(done)
    assert done.returncode == 0, done.stdout + done.stderr
    named = {role: {one["name"] for one in report["hosts"][role]} for role in OWN}
    assert "real time" in named["client"] - named["server"]
    assert re.search(r", [0-9]+ cores", report["hosts"]["server"][0]["message"])
