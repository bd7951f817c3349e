import io
import tarfile

import pytest

from tunnelmark.vmimage.recipe import RECIPE
from tunnelmark.vmimage.tree import Tree, finish


def package(*members: tuple[str, str, str]) -> tarfile.TarFile:
    """Make a package's tar of (kind, path, content or target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for kind, path, text in members:
            info = tarfile.TarInfo(path)
            info.mtime, info.uname, info.mode = 1234, "builder", 0o755
            if kind == "file":
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
                continue
            info.type = {"dir": tarfile.DIRTYPE, "sym": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE}[
                kind
            ]
            info.linkname = text
            tar.addfile(info)
    out.seek(0)
    return tarfile.open(fileobj=out)


def written(tree: Tree) -> dict[str, tarfile.TarInfo]:
    out = io.BytesIO()
    tree.write(out)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        members = tar.getmembers()
        assert [m.name for m in members] == sorted({m.name for m in members})
        return {member.name: member for member in members}


def test_top_directories_are_links_into_usr() -> None:
    tree = Tree()
    with package(
        ("dir", "./bin", ""), ("file", "./bin/ip", "x"), ("file", "./lib64/ld", "y")
    ) as tar:
        tree.add_tar(tar)
    found = written(tree)
    assert found["usr/bin/ip"].isfile()
    assert (found["bin"].issym(), found["bin"].linkname) == (True, "usr/bin")
    assert (found["lib64"].issym(), found["lib64"].linkname) == (True, "usr/lib64")
    assert "sbin" not in found


def test_times_and_names_of_owners_are_dropped_and_parents_are_made() -> None:
    tree = Tree()
    with package(("file", "./etc/a/b", "x")) as tar:
        tree.add_tar(tar)
    found = written(tree)
    assert found["etc"].isdir()
    assert found["etc/a"].isdir()
    assert (found["etc/a/b"].mtime, found["etc/a/b"].uname, found["etc/a/b"].mode) == (0, "", 0o755)


def test_what_is_left_out_is_left_out_by_whole_names() -> None:
    tree = Tree(["usr/share/doc", "lib/systemd/system"])
    with package(
        ("file", "./usr/share/doc/a", "x"),
        ("file", "./usr/share/docs", "x"),
        ("file", "./usr/lib/systemd/system/a.service", "x"),
    ) as tar:
        tree.add_tar(tar)
    assert [path for path, info in written(tree).items() if info.isfile()] == ["usr/share/docs"]


def test_a_hard_link_stands_without_its_first_name() -> None:
    tree = Tree()
    with package(("file", "./bin/perl", "text"), ("hard", "./bin/perl5", "./bin/perl")) as tar:
        tree.add_tar(tar)
    assert tree.get("usr/bin/perl5") == b"text"


def test_the_same_packages_give_the_same_bytes_whatever_the_order_of_paths() -> None:
    outs = []
    for members in ((("file", "./a", "1"), ("file", "./b", "2")),) * 2:
        tree = Tree()
        with package(*members) as tar:
            tree.add_tar(tar)
        out = io.BytesIO()
        tree.write(out)
        outs.append(out.getvalue())
    other = Tree()
    with package(("file", "./b", "2"), ("file", "./a", "1")) as tar:
        other.add_tar(tar)
    out = io.BytesIO()
    other.write(out)
    assert outs == [out.getvalue()] * 2


def test_accounts_are_added_to_those_of_the_distribution() -> None:
    tree = Tree()
    with package(
        ("file", "./usr/share/base-passwd/passwd.master", "root:*:0:0:root:/root:/bin/bash\n"),
        ("file", "./usr/share/base-passwd/group.master", "root:*:0:\n"),
    ) as tar:
        tree.add_tar(tar)
    finish(tree, RECIPE)
    passwd = tree.get("etc/passwd").decode().splitlines()
    assert passwd[0] == "root:x:0:0:root:/root:/bin/bash"
    assert "sshd:x:100:100::/run/sshd:/usr/sbin/nologin" in passwd
    assert "tcpdump:x:101:" in tree.get("etc/group").decode().splitlines()
    # No password opens any account.
    assert all(line.split(":")[1] == "*" for line in tree.get("etc/shadow").decode().splitlines())
    found = written(tree)
    assert found["etc/shadow"].mode == 0o640
    assert found["usr/bin/sh"].linkname == "dash"
    assert {"proc", "sys", "dev", "run", "tmp"} <= set(found)


def test_a_system_without_accounts_is_refused() -> None:
    with pytest.raises(KeyError):
        finish(Tree(), RECIPE)
