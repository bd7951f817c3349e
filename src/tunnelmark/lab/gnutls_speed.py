"""gnutls_speed.py NAME SECONDS: what GnuTLS does of a cipher, as ``openssl speed -mr`` says it.

``gnutls-cli --benchmark-ciphers`` takes 50 s for what no tunnel uses, and lacks AES-256-GCM. This
runs by itself, under the limit of a device.
"""

import ctypes
import sys
import time

_PIECE_BYTES = 65_536
"""So long that the call from Python, some 2 us, is little of it; still within a core's cache."""
_TAG_BYTES = 16
_NONCE_BYTES = 12
_KEY_BYTES = 32
_CALLS = 8
"""Between two looks at the clock."""


class _Datum(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint)]


def main(name: str, seconds: float) -> None:
    """Encrypt until the time is up and print bytes per second."""
    gnutls = ctypes.CDLL("libgnutls.so.30")
    cipher = gnutls.gnutls_cipher_get_id(name.encode())
    handle = ctypes.c_void_p()
    key = _Datum(bytes(_KEY_BYTES), _KEY_BYTES)
    if cipher == 0 or gnutls.gnutls_aead_cipher_init(
        ctypes.byref(handle), cipher, ctypes.byref(key)
    ):
        sys.exit(f"GnuTLS has no {name}")
    nonce, plain = bytes(_NONCE_BYTES), bytes(_PIECE_BYTES)
    sealed = ctypes.create_string_buffer(_PIECE_BYTES + _TAG_BYTES)
    size, calls = ctypes.c_size_t(), 0
    began = now = time.perf_counter()
    while now - began < seconds:
        for _ in range(_CALLS):
            size.value = len(sealed)
            if gnutls.gnutls_aead_cipher_encrypt(
                *(handle, nonce, ctypes.c_size_t(_NONCE_BYTES), None, ctypes.c_size_t(0)),
                *(ctypes.c_size_t(_TAG_BYTES), plain, ctypes.c_size_t(_PIECE_BYTES)),
                *(sealed, ctypes.byref(size)),
            ):
                sys.exit(f"GnuTLS does not encrypt with {name}")
        calls += _CALLS
        now = time.perf_counter()
    sys.stdout.write(f"+F:1:{name}:{calls * _PIECE_BYTES / (now - began):.2f}\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
