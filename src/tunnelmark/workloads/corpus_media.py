"""Corpora that are compressed already: pictures, video, audio; pure functions of the seed."""

import io
import random
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

PICTURE: Final = (1600, 1200)
FRAME: Final = (1280, 720)
FRAMES: Final = 120
FRAMES_PER_S: Final = 25
AUDIO_FRAMES: Final = 9000

_Pixels = npt.NDArray[np.uint8]


def photos(seed: int, _wanted_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield synthetic pictures as JPEG and, one in four, as PNG."""
    stream = _stream(seed)
    number = 0
    while True:
        picture = Image.fromarray(_picture(stream, PICTURE))
        png = number % 4 == 3  # noqa: PLR2004 - each fourth
        number += 1
        yield ("png", _encode(picture, "PNG")) if png else ("jpg", _encode(picture, "JPEG"))


def videos(seed: int, wanted_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield AVI files of Motion JPEG: a picture that moves, with the noise of a camera.

    A video has no more frames than fill what is wanted.
    """
    stream = _stream(seed)
    while True:
        scene = _picture(stream, (FRAME[0] + 4 * FRAMES, FRAME[1]))
        frames: list[bytes] = []
        for number in range(FRAMES):
            view = scene[:, 4 * number : 4 * number + FRAME[0]]
            frames.append(_encode(Image.fromarray(_noisy(stream, view)), "JPEG"))
            wanted_bytes -= len(frames[-1])
            if wanted_bytes <= 0:
                break
        yield "avi", _avi(frames)


def audio(seed: int, _wanted_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield files as MPEG audio has them: headers that recur, and bodies without redundancy.

    There is no encoder here: a body is random, as entropy coding leaves it.
    """
    stream = random.Random(f"{seed}/audio")  # noqa: S311 - no secret
    # ISO/IEC 11172-3 section 2.4.1.3: layer III, 128 kbit/s, 44.1 kHz, joint stereo: 417 or 418
    # bytes a frame (144 * 128000 / 44100), by the padding bit.
    while True:
        rest, parts = 0, []
        for _ in range(AUDIO_FRAMES):
            rest += 144 * 128_000 % 44_100
            padded = rest >= 44_100  # noqa: PLR2004 - sampling rate
            rest -= 44_100 * padded
            length = 144 * 128_000 // 44_100 + padded
            header = bytes((0xFF, 0xFB, 0x90 | 2 * padded, 0x64))
            parts.append(header + stream.randbytes(length - len(header)))
        yield "mp3", b"".join(parts)


def _stream(seed: int) -> "np.random.RandomState":
    return np.random.RandomState(seed & 0xFFFFFFFF)


def _picture(stream: "np.random.RandomState", size: tuple[int, int]) -> _Pixels:
    """Return height by width by three: soft areas, edges, texture, and the noise of a sensor."""
    width, height = size
    coarse = stream.randint(0, 256, (height // 100 + 2, width // 100 + 2, 3)).astype(np.uint8)
    picture = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)).copy()
    for _ in range(40):
        left, top = stream.randint(0, width), stream.randint(0, height)
        right, bottom = left + stream.randint(10, width // 4), top + stream.randint(10, height // 4)
        picture[top:bottom, left:right] //= 2
        picture[top:bottom, left:right] += stream.randint(0, 128, 3).astype(np.uint8)
    return _noisy(stream, picture)


def _noisy(stream: "np.random.RandomState", picture: _Pixels) -> _Pixels:
    # One plane of noise, moved about: as random to an encoder, and made three times as fast.
    noise = stream.randint(0, 13, picture.shape[:2]).astype(np.int16) - 6
    planes = np.stack([noise, np.roll(noise, 17, 0), np.roll(noise, 31, 1)], axis=2)
    noisy: _Pixels = np.clip(picture.astype(np.int16) + planes, 0, 255).astype(np.uint8)
    return noisy


def _encode(picture: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "PNG":
        picture.save(out, kind, compress_level=6)
    else:
        picture.save(out, kind, quality=88)
    return out.getvalue()


def _avi(frames: list[bytes]) -> bytes:
    """Return a RIFF file of Motion JPEG without sound, as AVI 1.0 has it."""
    width, height = FRAME
    largest = max(len(frame) for frame in frames)
    main = struct.pack(
        "<14I",
        *(1_000_000 // FRAMES_PER_S, largest * FRAMES_PER_S, 0, 0x10, len(frames)),
        *(0, 1, largest, width, height, 0, 0, 0, 0),
    )
    stream = struct.pack(
        "<4s4s10I4H",
        *(b"vids", b"MJPG", 0, 0, 0, 1, FRAMES_PER_S, 0, len(frames), largest, 0, 0),
        *(0, 0, width, height),
    )
    form = struct.pack("<IiiHH4sIiiII", 40, width, height, 1, 24, b"MJPG", 0, 0, 0, 0, 0)
    lists = _list(b"strl", _chunk(b"strh", stream) + _chunk(b"strf", form))
    movie = b"".join(_chunk(b"00dc", frame) for frame in frames)
    header = _list(b"hdrl", _chunk(b"avih", main) + lists)
    return _chunk(b"RIFF", b"AVI " + header + _list(b"movi", movie))


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def _list(name: bytes, data: bytes) -> bytes:
    return _chunk(b"LIST", name + data)
