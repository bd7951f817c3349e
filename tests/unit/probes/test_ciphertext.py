"""A cipher in name only is distinguished from a cipher, whatever the payload looks like."""

import base64
import random
import secrets
from collections.abc import Callable

import pytest

from tunnelmark.probes.attribution import Probe
from tunnelmark.probes.ciphertext import HEAD_BYTES, Ciphertext

_SIZES = (300, 700, 1200)
Wrap = Callable[[bytes], bytes]


def _encrypt(payload: bytes) -> bytes:
    """Return what the best cipher gives: bytes that tell nothing."""
    return secrets.token_bytes(len(payload) + 28)


def _xor(key: bytes) -> Wrap:
    def wrap(payload: bytes) -> bytes:
        return bytes(28) + bytes(a ^ key[at % len(key)] for at, a in enumerate(payload))

    return wrap


def _base64(payload: bytes) -> bytes:
    return bytes(28) + base64.b64encode(payload)


def _in_records(payload: bytes) -> bytes:
    """Ciphertext of which every 100 bytes begin with the header of a TLS record."""
    body = secrets.token_bytes(len(payload) + 28)
    return b"".join(
        b"\x17\x03\x03\x00\x64" + body[at : at + 100] for at in range(0, len(body), 100)
    )


def _faults(wrap: Wrap, *, marker: bytes, repeats: int = 6) -> list[str]:
    rng = random.Random(5)  # noqa: S311
    judge = Ciphertext()
    for size in _SIZES:
        for number in range(repeats):
            # The header of a test packet differs from packet to packet, the filling does not.
            payload = rng.randbytes(24) + (marker * 9)[: size - 24]
            judge.add([Probe(number, size)], [[wrap(payload)]])
    return judge.faults()


_RANDOM = random.Random(1).randbytes(1024)  # noqa: S311
_TEXT = b"the quick brown fox jumps over the lazy dog. "


@pytest.mark.parametrize("marker", [_RANDOM, _TEXT, bytes(64)])
@pytest.mark.parametrize("wrap", [_encrypt, _in_records])
def test_ciphertext_passes_whatever_is_in_it(wrap: Wrap, marker: bytes) -> None:
    assert _faults(wrap, marker=marker) == []


@pytest.mark.parametrize("marker", [_RANDOM, _TEXT])
@pytest.mark.parametrize("key", [b"\x5a", b"secret", random.Random(2).randbytes(4096)])  # noqa: S311
def test_a_constant_added_to_each_byte_is_no_cipher(key: bytes, marker: bytes) -> None:
    (*_, fault) = _faults(_xor(key), marker=marker)
    assert "pairs that carried the same payload" in fault
    assert "100 %" in fault


@pytest.mark.parametrize("marker", [_RANDOM, _TEXT])
def test_another_alphabet_is_no_cipher(marker: bytes) -> None:
    faults = _faults(_base64, marker=marker)
    assert any("bits of entropy each, a cipher has at least 7.5" in fault for fault in faults)


def test_too_little_is_no_fault() -> None:
    assert Ciphertext().faults() == []
    judge = Ciphertext()
    judge.add([Probe(0, 300), Probe(1, 300)], [[bytes(HEAD_BYTES + 200)]] * 2)
    assert judge.faults() == []


def test_one_packet_that_was_sent_again_is_no_fault() -> None:
    judge = Ciphertext()
    once = _encrypt(bytes(700))
    judge.add([Probe(n, 700) for n in range(2)], [[once]] * 2)
    judge.add([Probe(n, 700) for n in range(9)], [[_encrypt(bytes(700))] for _ in range(9)])
    assert judge.faults() == []
