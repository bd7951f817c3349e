"""Control groups: the arithmetic of quotas, where groups may be made, and what is never touched."""

import json
from pathlib import Path

import pytest

from tunnelmark.hosts import cgroup
from tunnelmark.hosts.cgroup import (
    Controller,
    Quota,
    Throttled,
    find_controller,
    own_group,
    quota_of,
    remove_group,
)
from tunnelmark.hosts.ledger import Entry, Ledger, read_journal
from tunnelmark.model.errors import LabError


@pytest.mark.parametrize(
    ("share", "quota_us", "period_us"),
    [(0.5, 2500, 5000), (1.0, 5000, 5000), (0.2, 1000, 5000), (0.1, 1000, 10_000)],
)
def test_a_share_has_the_shortest_period_that_the_kernel_takes(
    share: float, quota_us: int, period_us: int
) -> None:
    assert quota_of(share) == Quota(quota_us, period_us)


@pytest.mark.parametrize("share", [0.001, 0.0123, 0.0738, 0.31, 0.777, 0.99])
def test_a_quota_is_the_share_that_was_asked_for(share: float) -> None:
    quota = quota_of(share)
    assert quota.share == pytest.approx(share, rel=0.001)
    assert quota.quota_us >= 1000
    assert quota.period_us <= 1_000_000
    assert quota.times(4).share == pytest.approx(4 * quota.share)
    assert quota.stall_ms == pytest.approx((quota.period_us - quota.quota_us) / 1000)


@pytest.mark.parametrize("share", [0.0009, 0, -1])
def test_a_share_below_what_the_kernel_grants_is_refused(share: float) -> None:
    with pytest.raises(LabError, match=r"too small, the kernel grants at least 0\.001"):
        quota_of(share)


def mounted(tmp_path: Path, text: str, own: str = "") -> tuple[Path, Path]:
    mounts, groups = tmp_path / "mounts", tmp_path / "cgroup"
    mounts.write_text(text)
    groups.write_text(own)
    return mounts, groups


def test_version_1_is_found_with_our_own_group(tmp_path: Path) -> None:
    place = tmp_path / "cpu"
    (place / "box").mkdir(parents=True)
    found = find_controller(
        *mounted(
            tmp_path,
            f"x {tmp_path}/set cgroup rw,cpuset 0 0\nx {place} cgroup rw,cpu,cpuacct 0 0\n",
            "3:cpuset:/other\n2:cpu,cpuacct:/box\n0::/\n",
        )
    )
    assert found == Controller(1, place / "box")


def test_a_group_that_is_not_below_the_mount_is_not_taken(tmp_path: Path) -> None:
    place = tmp_path / "cpu"
    place.mkdir()
    for own in ("2:cpu:/gone\n", "2:cpu:/../..\n", "nonsense\n"):
        files = mounted(tmp_path, f"x {place} cgroup rw,cpu 0 0\n", own)
        assert find_controller(*files) == Controller(1, place)


def test_version_2_is_found_if_it_has_cpu(tmp_path: Path) -> None:
    place = tmp_path / "two"
    place.mkdir()
    (place / "cgroup.controllers").write_text("cpuset cpu io\n")
    files = mounted(tmp_path, f"x {place} cgroup2 rw 0 0\n")
    assert find_controller(*files) == Controller(2, place)
    (place / "cgroup.controllers").write_text("cpuset io\n")
    with pytest.raises(LabError, match="none is mounted"):
        find_controller(*files)


def test_names_of_others_are_refused(tmp_path: Path) -> None:
    for name in ("system.slice", "tm12345", "tm12345-../x", "tm1234g-client"):
        with pytest.raises(LabError, match="is not a name that a run uses"):
            Controller(1, tmp_path).group(name)


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, {"cpu.cfs_quota_us": "1000", "cpu.cfs_period_us": "8000", "cpu.shares": "20480"}),
        (2, {"cpu.max": "1000 8000", "cpu.weight": "2000"}),
    ],
)
def test_a_limit_is_written_as_the_version_wants_it(
    tmp_path: Path, version: int, files: dict[str, str]
) -> None:
    group = Controller(version, tmp_path).group("tm12345-client")  # type: ignore[arg-type]
    group.make()
    group.limit(Quota(1000, 8000))
    assert {path.name: path.read_text() for path in group.path.iterdir()} == files
    assert group.switch == (tmp_path if version == 2 else None)


def test_a_group_passes_the_controller_on_to_those_in_it(tmp_path: Path) -> None:
    group = Controller(2, tmp_path).group("tm12345-client")
    group.make()
    group.inner(0).make()
    assert (group.path / "cgroup.subtree_control").read_text() == "+cpu"
    assert not (tmp_path / "cgroup.subtree_control").exists()


def test_the_controller_is_switched_off_again_if_a_run_switched_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "find_controller", lambda: Controller(2, tmp_path))
    control, root = tmp_path / "cgroup.subtree_control", tmp_path / "runtime"
    root.mkdir(mode=0o700)

    control.write_text("memory cpu")
    with Ledger(root) as ledger:
        assert ledger.switch_on("cpu_controller", str(tmp_path))
        assert read_journal(ledger.directory) == []
    assert control.read_text() == "memory cpu"
    control.write_text("memory")
    with Ledger(root) as ledger:
        ledger.switch_on("cpu_controller", str(tmp_path))
        assert control.read_text() == "+cpu"
        assert read_journal(ledger.directory) == [Entry("cpu_controller", str(tmp_path))]
        control.write_text("memory cpu")
        assert ledger.close() == [f"CPU controller for the groups in {tmp_path}"]
    assert control.read_text() == "-cpu"


def test_a_journal_names_no_other_group_whose_controller_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "find_controller", lambda: Controller(2, tmp_path))
    directory = tmp_path / "tm12345"
    directory.mkdir()
    for name in (str(tmp_path / "other"), "/sys/fs/cgroup", "", "x"):
        line = json.dumps({"kind": "cpu_controller", "name": name})
        (directory / "journal.jsonl").write_text(line)
        assert read_journal(directory) == []


def test_where_a_process_stands_is_found(tmp_path: Path) -> None:
    two, one = tmp_path / "two", tmp_path / "one"
    (two / "a" / "b").mkdir(parents=True)
    one.mkdir()
    files = mounted(
        tmp_path,
        f"x {one} cgroup rw,pids 0 0\nx {two} cgroup2 rw 0 0\n",
        "3:pids:/elsewhere\n0::/a/b\n",
    )
    assert own_group("", *files) == two / "a" / "b"
    assert own_group("pids", *files) is None
    assert own_group("freezer", *files) is None
    (tmp_path / "cgroup").write_text("0::/../x\n3:pids:/\nnonsense\n")
    assert own_group("", *files) is None
    assert own_group("pids", *files) == one


def test_a_group_of_threads_within_a_group(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    for version, name in ((1, "tasks"), (2, "cgroup.threads")):
        group = Controller(version, tmp_path).group(f"tm12345-v{version}")  # type: ignore[arg-type]
        group.make()
        core = group.inner(0)
        core.make(threaded=True)
        core.limit(None)
        core.add_thread(77)
        assert (core.path / name).read_text() == "77"
        assert (core.path / "cgroup.type").exists() == (version == 2)
        unlimited = ("cpu.cfs_quota_us", "-1") if version == 1 else ("cpu.max", "max")
        assert (core.path / unlimited[0]).read_text() == unlimited[1]


def test_what_the_kernel_counts_is_read(tmp_path: Path) -> None:
    group = Controller(1, tmp_path).group("tm12345-client")
    group.make()
    (group.path / "cpu.stat").write_text("nr_periods 12\nnr_throttled 5\nthrottled_time 99\nx\n")
    (group.path / "tasks").write_text("4\n5\n6\n")
    assert group.throttled() == Throttled(12, 5)
    assert group.throttled().since(Throttled(10, 1)) == Throttled(2, 4)
    assert group.threads() == 3


def test_a_group_that_the_kernel_refuses_is_an_error_with_its_place(tmp_path: Path) -> None:
    group = Controller(1, tmp_path / "gone").group("tm12345-client")
    with pytest.raises(LabError, match=r"cannot make the control group .*gone/tm12345-client: No"):
        group.make()
    with pytest.raises(LabError, match=r"cgroup\.procs: cannot set 7: No such file"):
        group.add(7)


def test_only_groups_of_runs_are_removed(tmp_path: Path) -> None:
    foreign, plain = tmp_path / "system", tmp_path / "tm12345-client"
    for path in (foreign, plain):
        path.mkdir()
    (foreign / "cgroup.procs").write_text("")
    link = tmp_path / "tm12345-link"
    link.symlink_to(foreign)
    for path in (foreign, plain, link, tmp_path / "tm12345-none"):
        assert not remove_group(path)
    assert (foreign / "cgroup.procs").exists()
    assert plain.exists()


def test_the_journal_names_only_groups_of_its_own_run(tmp_path: Path) -> None:
    directory = tmp_path / "tm12345"
    directory.mkdir()
    (directory / "journal.jsonl").write_text(
        '{"kind": "cgroup", "name": "/sys/fs/cgroup/cpu/tm12345-client"}\n'
        '{"kind": "cgroup", "name": "/sys/fs/cgroup/cpu/tmabcde-client"}\n'
        '{"kind": "cgroup", "name": "/sys/fs/cgroup/../x/tm12345-client"}\n'
        '{"kind": "cgroup", "name": "/sys/fs/cgroup/system.slice"}\n'
    )
    assert read_journal(directory) == [Entry("cgroup", "/sys/fs/cgroup/cpu/tm12345-client")]
