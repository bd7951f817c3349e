"""The rate of a cipher: measured on the computer of a result, elsewhere left out with a reason."""

from collections.abc import Mapping, Sequence

from tunnelmark.lab.benchmarks import PLAIN_CODE
from tunnelmark.lab.rates import Rates
from tunnelmark.model.costs import CipherRate
from tunnelmark.model.host import Completed
from tunnelmark.model.tunnel import Encryption

HERE = {"architecture": "x86_64", "cpu": "A CPU", "cores": "2", "kernel": "6.12"}


class Bench:
    """A computer that something else slows down now and then."""

    def __init__(self, status: int = 0) -> None:
        self.ran: list[str] = []
        self.status = status

    def __call__(
        self, argv: Sequence[str], environment: Mapping[str, str], limit_s: float
    ) -> Completed:
        assert limit_s > 10
        assert environment in ({}, PLAIN_CODE)
        self.ran.append(argv[-1])
        rate = (210e6 if environment else 4000e6) * (0.5 + 0.25 * (len(self.ran) % 3))
        if argv[0] == "gocryptfs":
            said = f"XChaCha20-Poly1305-Go \t{rate / 1e6:.2f} MB/s\n"
            return Completed(tuple(argv), self.status, said.encode(), b"no such")
        return Completed(tuple(argv), self.status, f"+F:1:x:{rate:.2f}\n".encode(), b"no such")


def test_the_fastest_of_several_runs_counts_and_each_cipher_is_measured_once() -> None:
    bench = Bench()
    rates = Rates([{**HERE, "kernel": "6.18"}], here=HERE, bench=bench)
    assert rates.of(Encryption("AES-256-GCM")) == CipherRate("AES-256-GCM", 4000.0, 210.0)
    assert rates.of(Encryption("AES-256-GCM")) == CipherRate("AES-256-GCM", 4000.0, 210.0)
    assert bench.ran == ["aes-256-gcm"] * 6
    assert rates.of(Encryption("3DES-SHA1")) == CipherRate("DES-EDE3-CBC", 4000.0, 210.0)


def test_nothing_is_measured_for_a_result_of_another_computer() -> None:
    bench = Bench()
    rates = Rates([HERE, {**HERE, "cpu": "Another"}], here=HERE, bench=bench)
    assert rates.of(Encryption("AES-256-GCM")) == (
        "measured on another computer (x86_64, Another, 2; this is x86_64, A CPU, 2)"
    )
    assert bench.ran == []


def test_a_cipher_of_which_no_device_has_a_rate_is_left_out() -> None:
    bench = Bench()
    rates = Rates([HERE], here=HERE, bench=bench)
    for cipher, words in (
        ("AES-128-GCM", "no device has a rate of AES-128-GCM"),
        (None, "no device has a rate of its cipher"),
        ("system calls", "no device has a rate of system calls"),
    ):
        assert rates.of(Encryption(cipher)) == words
    assert bench.ran == []


def test_a_benchmark_that_fails_says_why() -> None:
    rates = Rates([HERE], here=HERE, bench=Bench(status=1))
    assert str(rates.of(Encryption("AES-256-GCM"))).endswith("no speed: no such")


def test_the_rate_is_that_of_the_library_of_the_program() -> None:
    bench = Bench()
    rates = Rates([HERE], here=HERE, bench=bench)
    by_go = CipherRate("ChaCha20-Poly1305", 4000.0, 210.0, "Go")
    assert rates.of(Encryption("CHACHA20-POLY1305", "Go")) == by_go
    assert by_go.describe() == "ChaCha20-Poly1305 of Go"
    assert bench.ran == ["-speed"] * 6
    # There is no benchmark of ring.
    by_openssl = rates.of(Encryption("CHACHA20-POLY1305", "ring"))
    assert by_openssl == CipherRate("ChaCha20-Poly1305", 4000.0, 210.0)
    assert bench.ran[6:] == ["chacha20-poly1305"] * 6
