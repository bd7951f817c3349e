import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.vmimage import build, packages, programs
from tunnelmark.vmimage.packages import Mirrors
from tunnelmark.vmimage.recipe import RECIPE
from tunnelmark.vmimage.suites import SUITES


def test_the_file_name_of_a_package_gives_name_and_version() -> None:
    file = Path("archives/openssh-client_1%3a9.2p1-2+deb12u10_amd64.deb")
    package = packages._package(file)
    assert (package.name, package.version) == ("openssh-client", "1:9.2p1-2+deb12u10")


@pytest.mark.parametrize("name", ["x.deb", "A_1_amd64.deb", "a_1_amd64.rpm", "../a_1_amd64_.deb"])
def test_another_file_is_no_package(name: str) -> None:
    with pytest.raises(LabError, match="is not named like a package"):
        packages._package(Path("archives") / name)


def test_the_metapackage_names_the_kernel() -> None:
    answer = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n"
    assert packages._kernel_name(answer) == "linux-image-6.1.0-56-amd64"
    newer = (
        "linux-image-amd64\n  Depends: linux-base-amd64\n  Depends: linux-image-7.3.4+deb13-amd64"
    )
    assert packages._kernel_name(newer) == "linux-image-7.3.4+deb13-amd64"
    with pytest.raises(LabError, match="no kernel is named"):
        packages._kernel_name("linux-image-amd64\n  Depends: -o=evil\n")


def test_apt_is_kept_from_the_machine_and_reported_whose_signature_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(packages, "_KEYRING", keyring)
    answer = 'Acquire::http::Proxy "http://proxy:3128";\nAcquire::Retries "9";\n'
    monkeypatch.setattr(programs, "run", lambda *_args, **_kwargs: answer)
    mirrors = Mirrors("http://mirror/debian", "http://mirror/security")
    env = packages._private_apt(RECIPE, mirrors, tmp_path / "work")
    lines = Path(env["APT_CONFIG"]).read_text(encoding="utf-8").splitlines()
    assert f'Dir::State::status "{tmp_path}/work/status";' in lines
    assert f'Dir::Cache::archives "{tmp_path}/work/archives/";' in lines
    assert 'Acquire::http::Proxy "http://proxy:3128";' in lines
    assert 'Acquire::Retries "3";' in lines
    assert 'Dir::Etc::sourceparts "/dev/null";' in lines
    sources = (tmp_path / "work/etc/sources.list").read_text(encoding="ascii").splitlines()
    assert sources[0] == f"deb [signed-by={keyring}] http://mirror/debian bookworm main"
    assert sources[2] == f"deb [signed-by={keyring}] http://mirror/security bookworm-security main"


def test_the_parts_of_a_kernel_are_found() -> None:
    image = "linux-image-7.3.4+deb13-amd64"
    answer = """linux-image-7.3.4+deb13-amd64
  PreDepends: linux-base
 |Depends: dracut
  Depends: linux-base-7.3.4+deb13-amd64
  Depends: linux-binary-7.3.4+deb13-amd64
  Depends: linux-modules-7.3.4+deb13-amd64
"""
    assert packages._kernel_parts(image, answer) == [
        "linux-base-7.3.4+deb13-amd64",
        "linux-binary-7.3.4+deb13-amd64",
        "linux-modules-7.3.4+deb13-amd64",
    ]
    assert packages._kernel_parts("linux-image-6.1.0-56-amd64", "  Depends: kmod\n") == []


def test_backports_are_taken_for_the_packages_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_KEYRING", tmp_path)
    monkeypatch.setattr(programs, "run", lambda *_args, **_kwargs: "")
    mirrors = Mirrors("http://mirror/debian", expired=True)
    env = packages._private_apt(SUITES["trixie-backports"], mirrors, tmp_path / "work")
    sources = (tmp_path / "work/etc/sources.list").read_text(encoding="ascii").splitlines()
    assert sources[3].endswith(" http://mirror/debian trixie-backports main")
    assert (tmp_path / "work/etc/preferences.d/tunnelmark").read_text(encoding="ascii") == (
        "Package: linux-image-amd64 openvpn\nPin: release n=trixie-backports\nPin-Priority: 900\n"
    )
    assert 'Acquire::Check-Valid-Until "false";' in Path(env["APT_CONFIG"]).read_text("utf-8")
    packages._private_apt(SUITES["trixie"], Mirrors(), tmp_path / "stable")
    assert not list((tmp_path / "stable/etc/preferences.d").iterdir())


def test_of_a_list_whose_time_is_over_the_option_that_takes_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old(*_: object) -> Never:
        raise LabError("apt-get: E: Release file for http://mirror is expired (invalid since 1d)")

    monkeypatch.setattr(packages, "download", old)
    with pytest.raises(
        LabError, match=r"since 1d\) \(tunnelmark vm build --expired takes it as it"
    ):
        build._downloaded(RECIPE, Mirrors(), tmp_path)
    with pytest.raises(LabError, match=r"since 1d\)$"):
        build._downloaded(RECIPE, Mirrors(expired=True), tmp_path)


def test_without_the_keyring_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_KEYRING", tmp_path / "none.gpg")
    with pytest.raises(LabError, match="apt-get install debian-archive-keyring"):
        packages._private_apt(RECIPE, Mirrors(), tmp_path)


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_PATH", "/nonexistent")
    with pytest.raises(
        LabError, match=r"sqfstar is not installed \(apt-get install squashfs-tools"
    ):
        programs.need("sqfstar")
    assert programs.find("qemu-system-x86_64") is None


def test_a_program_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "depmod"
    program.write_text("#!/bin/sh\necho first >&2\necho 'the reason' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(programs, "_PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LabError, match=r"^depmod: the reason$"):
        programs.run(["depmod"])


def test_what_excludes_another_is_asked_for_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def apt(argv: Sequence[str], **_more: object) -> str:
        if "install" in argv:
            asked.append(tuple(argv[argv.index("install") + 1 :]))
            (tmp_path / "archives" / f"{asked[-1][0]}_1_amd64.deb").touch()
        return ""

    monkeypatch.setattr(packages, "_KEYRING", tmp_path)
    monkeypatch.setattr(programs, "run", apt)
    recipe = replace(RECIPE, packages=("strongswan-charon",), own_kernel="0" * 64)
    system, kernel = packages.download(recipe, Mirrors(), tmp_path)
    assert asked == [("strongswan-charon",), ("libreswan",)]
    assert [one.name for one in system] == ["libreswan", "strongswan-charon"]
    assert kernel == ()
