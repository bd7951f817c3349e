"""Corpora: the same from the same seed, of the size asked for, with what marks their kind."""

import hashlib
import io
import zipfile
import zlib

import pytest
from PIL import Image

from tunnelmark.workloads import corpus as corpus_module
from tunnelmark.workloads.corpus import KINDS, LARGEST_BYTES, Kind, corpus

MB = 1_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_corpus_has_the_size_and_plain_names(kind: Kind) -> None:
    files = corpus(kind, MB + 1, 1)
    assert sum(len(file.data) for file in files) == MB + 1
    names = [file.name for file in files]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").replace(".", "").isalnum() for name in names)
    assert files[0].sha256 == hashlib.sha256(files[0].data).hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind: Kind) -> None:
    first = corpus(kind, MB, 1)
    corpus.cache_clear()
    assert corpus(kind, MB, 1) == first
    assert (corpus(kind, MB, 2) == first) == (kind == "zero")


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("text", "16489fdf892ee31f2d4db2453bdd4a083244e506a2254d7f2873c1e2cd39f566"),
        ("binary", "d2ee2e85e6b924266523c1010ddc9559d1cd137bdf710e5069ca1a1bd93cda85"),
        ("audio", "61f0fea40d51118b555c2b16958ce8e6a4f6b4e639f0fabd7aaad21bf096a673"),
        ("zero", "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025"),
    ],
)
def test_what_no_encoder_makes_never_changes(kind: Kind, digest: str) -> None:
    files = corpus(kind, MB, 1)
    assert hashlib.sha256(b"".join(file.data for file in files)).hexdigest() == digest


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        ("video", 0.97, 1.03),
        ("photo", 0.97, 1.05),
        ("audio", 0.97, 1.03),
        ("compressed", 0.99, 1.02),
        ("binary", 1.5, 4.0),
        ("text", 2.0, 4.0),
        ("zero", 500, 2000),
    ],
)
def test_each_kind_compresses_as_such_files_do(kind: Kind, least: float, most: float) -> None:
    data = b"".join(file.data for file in corpus(kind, 2 * MB, 1))
    assert least <= len(data) / len(zlib.compress(data, 6)) <= most


def test_a_long_corpus_repeats_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "DISTINCT_BYTES", 500_000)
    corpus.cache_clear()
    files = corpus("text", 1_500_000, 1)
    corpus.cache_clear()
    # Three texts of 200 kB are more than half a megabyte.
    assert [file.data for file in files[3:]] == [
        *(file.data for file in files[:3]),
        files[0].data,
        files[1].data[:100_000],
    ]
    assert len({file.name for file in files}) == len(files)
    assert len({file.data for file in files[:3]}) == 3


def test_pictures_can_be_looked_at() -> None:
    *whole, _cut = corpus("photo", 6 * MB, 1)
    assert {file.name[-3:] for file in whole} == {"jpg", "png"}
    for file in whole:
        picture = Image.open(io.BytesIO(file.data))
        picture.load()
        assert picture.size == (1600, 1200)


def test_an_archive_holds_what_it_names() -> None:
    first, *_ = corpus("compressed", 5 * MB, 1)
    with zipfile.ZipFile(io.BytesIO(first.data)) as archive:
        assert archive.testzip() is None
        assert len(archive.namelist()) == 12


def test_a_video_is_a_riff_file_of_pictures() -> None:
    (file, *_) = corpus("video", 30 * MB, 1)
    data = file.data
    assert (data[:4], data[8:12]) == (b"RIFF", b"AVI ")
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    start = data.index(b"00dc")
    length = int.from_bytes(data[start + 4 : start + 8], "little")
    assert Image.open(io.BytesIO(data[start + 8 : start + 8 + length])).size == (1280, 720)


@pytest.mark.parametrize("size", [0, -1, LARGEST_BYTES + 1])
def test_a_size_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="a corpus has 1 to"):
        corpus("zero", size, 1)
