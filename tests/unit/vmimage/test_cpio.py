import stat

from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.vmimage.cpio import Member, archive

NAMES = st.text("abcxyz.-", min_size=1, max_size=8).filter(lambda name: name not in {".", ".."})
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def read(data: bytes) -> list[tuple[str, int, bytes]]:
    """Read newc archives strictly, one after the other, as the kernel does."""
    found = []
    at = 0
    while at < len(data):
        if data[at] == 0:  # between archives the kernel skips zeros
            at += 1
            continue
        assert at % 4 == 0
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        size, name_size = fields[6], fields[11]
        name = data[at + 110 : at + 110 + name_size]
        assert name.endswith(b"\0")
        at = -(-(at + 110 + name_size) // 4) * 4
        content = data[at : at + size]
        assert len(content) == size
        at = -(-(at + size) // 4) * 4
        if name != b"TRAILER!!!\0":
            found.append((name[:-1].decode(), fields[1], content))
    return found


@given(st.dictionaries(PATHS, st.binary(max_size=50), max_size=8))
def test_every_file_comes_back_after_its_parents(files: dict[str, bytes]) -> None:
    # A path that is also the parent of another cannot be a file.
    files = {p: d for p, d in files.items() if not any(q.startswith(f"{p}/") for q in files)}
    found = read(archive({path: Member(data, 0o755) for path, data in files.items()}))
    seen: set[str] = set()
    for path, mode, content in found:
        parent = path.rpartition("/")[0]
        assert not parent or parent in seen
        seen.add(path)
        if stat.S_ISREG(mode):
            assert (stat.S_IMODE(mode), content) == (0o755, files[path])
    assert {path for path, mode, _ in found if stat.S_ISREG(mode)} == set(files)


def test_archives_can_stand_one_after_the_other() -> None:
    both = archive({"a/b": Member(b"1")}) + archive({"payload/agent": Member(b"2", 0o755)})
    assert [path for path, _, _ in read(both)] == ["a", "a/b", "payload", "payload/agent"]


def test_the_same_members_give_the_same_bytes() -> None:
    members = {"b": Member(b"2"), "a": Member(b"1")}
    assert archive(members) == archive(dict(reversed(members.items())))
