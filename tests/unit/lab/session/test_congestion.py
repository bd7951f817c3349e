"""The congestion control of a trial: set on both hosts, reported by name, and put back."""

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.session.congestion import InForce, congestion
from tunnelmark.model.errors import LabError
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.registry import workload_kinds


class Host:
    """A host whose kernel has three algorithms; namespaces may use what is allowed."""

    def __init__(self, own: str = "bbr", *, root: bool = True) -> None:
        self.now = own
        self.root = root
        self.allowed = ["reno", "cubic", "bbr"]
        self.set: list[str] = []

    def run(self, argv: list[str], *, check: bool = True) -> Any:
        assert check or argv[0] in {"sysctl", "cat", "test"}
        said = self.now
        if argv[0] == "sysctl":
            name = argv[2].partition("=")[2]
            self.set.append(name)
            if name in self.allowed:
                self.now = name
        elif argv[1].endswith("available_congestion_control"):
            said = "reno cubic bbr\n"
        elif argv[1].endswith("allowed_congestion_control"):
            said = " ".join(self.allowed)
        return SimpleNamespace(
            returncode=int(argv[0] == "test" and not self.root),
            text=lambda: f"{said}\n",
            last_words=lambda: "Operation not permitted",
        )

    def has(self, program: str) -> str:
        return f"/usr/bin/{program}"

    def has_kernel(self, _feature: str) -> bool:
        return True


def never(name: str) -> bool:
    pytest.fail(f"{name} was to be allowed")


def load(kind: str, **params: object) -> Workload:
    driver = workload_kinds()[kind]
    return driver(driver.params_type.model_validate(params))


@pytest.fixture
def hosts() -> dict[str, Any]:
    return {"client": Host(), "server": Host()}


@pytest.mark.parametrize("kind", ["tcp_bulk", "file_transfer", "web", "request_response"])
def test_every_workload_over_tcp_has_it_set_reported_and_put_back(
    hosts: dict[str, Any], kind: str
) -> None:
    with congestion(hosts, [load(kind, congestion="reno")], never) as found:
        assert [host.now for host in hosts.values()] == ["reno", "reno"]
    assert [host.now for host in hosts.values()] == ["bbr", "bbr"]
    assert found.reported() == {
        "congestion_control": {"client": "reno", "server": "reno", "chosen": True}
    }
    (check,) = found.check({})
    assert check.ok
    assert check.message == "TCP used the congestion control reno, as the study requires"


def test_without_a_word_it_is_the_kernels_own_by_name(hosts: dict[str, Any]) -> None:
    with congestion(hosts, [load("web")], never) as found:
        pass
    assert [host.set for host in hosts.values()] == [[], []]
    (check,) = found.check({})
    assert check.message == "TCP used the congestion control bbr, the kernel's default"


@pytest.mark.parametrize(
    ("kind", "params"), [("voip", {}), ("request_response", {"transport": "udp"})]
)
def test_without_tcp_nothing_is_said(
    hosts: dict[str, Any], kind: str, params: dict[str, object]
) -> None:
    with congestion(hosts, [load(kind, **params)], never) as found:
        pass
    assert found.reported() == {}
    assert found.check({}) == []


def test_a_background_over_tcp_counts_too(hosts: dict[str, Any]) -> None:
    with congestion(hosts, [load("voip"), load("tcp_bulk", congestion="cubic")], never) as found:
        assert hosts["server"].now == "cubic"
    assert found.wanted == "cubic"


def test_two_wishes_for_the_same_hosts_are_refused(hosts: dict[str, Any]) -> None:
    loads = [load("web", congestion="reno"), load("tcp_bulk", congestion="cubic")]
    with pytest.raises(LabError, match="cubic, reno"), congestion(hosts, loads, never):
        pass
    assert hosts["client"].set == []


def test_what_the_kernel_refuses_is_one_line_and_what_was_there_comes_back(
    hosts: dict[str, Any],
) -> None:
    with (
        pytest.raises(LabError, match="congestion is 'vegas', which the kernel refuses here"),
        congestion(hosts, [load("web", congestion="vegas")], never),
    ):
        pass
    assert [host.now for host in hosts.values()] == ["bbr", "bbr"]


def test_what_is_withheld_is_allowed_and_set(hosts: dict[str, Any]) -> None:
    asked = []

    def allow(name: str) -> bool:
        asked.append(name)
        for host in hosts.values():
            host.allowed.append(name)
        return True

    for host in hosts.values():
        host.allowed = ["reno", "bbr"]
    with congestion(hosts, [load("web", congestion="cubic")], allow) as found:
        assert [host.now for host in hosts.values()] == ["cubic", "cubic"]
    assert asked == ["cubic"]
    assert found.names == {"client": "cubic", "server": "cubic"}
    assert [host.now for host in hosts.values()] == ["bbr", "bbr"]


@pytest.mark.parametrize("says", [True, False])
def test_what_stays_refused_is_one_line(hosts: dict[str, Any], says: bool) -> None:
    hosts["server"].allowed = ["reno", "bbr"]
    asked = []
    with (
        pytest.raises(LabError, match="'cubic', which the kernel refuses here: Operation not"),
        congestion(
            hosts, [load("web", congestion="cubic")], lambda name: asked.append(name) or says
        ),
    ):
        pass
    assert asked == ["cubic"] * (3 if says else 1)
    assert [host.now for host in hosts.values()] == ["bbr", "bbr"]


def test_what_cannot_be_allowed_is_reported_before_the_run() -> None:
    host: Any = Host(root=False)
    assert load("web", congestion="cubic").unavailable(host) is None
    host.allowed = ["reno", "bbr"]
    reason = load("web", congestion="cubic").unavailable(host)
    assert reason is not None
    assert "namespaces use reno, bbr (as root: sysctl -w" in reason
    assert reason.endswith("='reno bbr cubic')")
    host.root = True
    assert load("web", congestion="cubic").unavailable(host) is None


def test_what_iperf3_says_of_itself_is_held_to_it() -> None:
    force = InForce({"client": "cubic", "server": "cubic"}, "cubic")
    assert force.check({"congestion": ["cubic"]})[0].ok
    (check,) = force.check({"congestion": ["bbr"]})
    assert not check.ok
    assert "bbr, cubic" in check.message


@pytest.mark.parametrize("kind", ["tcp_bulk", "file_transfer", "web", "request_response"])
def test_an_algorithm_that_the_kernel_has_not_is_reported_before_the_run(kind: str) -> None:
    host: Any = Host()
    assert load(kind, congestion="reno").unavailable(host) is None
    reason = load(kind, congestion="vegas").unavailable(host)
    assert reason is not None
    assert "congestion is 'vegas', the kernel has reno, cubic, bbr (modprobe tcp_vegas)" in reason


def test_udp_has_none() -> None:
    with pytest.raises(ValueError, match="congestion goes with transport tcp or connect"):
        load("request_response", transport="udp", congestion="reno")
