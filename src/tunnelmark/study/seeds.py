"""Named random streams: every stream's seed follows from the study's seed and the stream's name."""

import hashlib


def stream(seed: int, name: str) -> int:
    """Return the 63-bit seed of a stream such as ``link/wan/loss``."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def short_hash(text: str, length: int = 8) -> str:
    """Return the first hexadecimal digits of a hash, for identifiers that survive a resume."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]
