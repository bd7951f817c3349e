"""CPU profiles of endpoints: data with the source of each figure, nothing measured here.

Where nobody published a figure it is scaled from clock and core and marked as an estimate.
docs/devices.md says how.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

SYSTEM_CALLS: Final = "system calls"
"""Name of the figure that is no algorithm."""


@dataclass(frozen=True)
class Figure:
    """One figure of a device, and where it comes from."""

    value: float
    source: str
    estimate: bool = False
    """Scaled from clock and core; nobody measured it."""


@dataclass(frozen=True)
class Device:
    """An endpoint's CPU."""

    kind: str
    title: str
    source: str
    """Where clock, cores and memory come from."""
    core: str = ""
    cores: int = 0
    mhz: int = 0
    memory_mib: int = 0
    speeds_mbyte_s: Mapping[str, Figure] = field(default_factory=lambda: MappingProxyType({}))
    """``openssl speed``, one core, pieces of 8192 bytes, in 1,000,000 bytes/s, by algorithm."""
    system_calls_per_s: Figure | None = None
    """Read and write of one byte (``dd bs=1``), one core: pairs of them each second."""
    wireguard_bit_s: Figure | None = None
    """WireGuard with both ends on one board; not calibrated to, for comparison."""
    aes_instructions: bool = False

    @property
    def limited(self) -> bool:
        """Whether it is anything but this machine as it is."""
        return self.cores > 0

    @property
    def figures(self) -> Mapping[str, Figure]:
        """What a limit can be calibrated to: ciphers, hashes, ``system calls``."""
        calls = self.system_calls_per_s
        return {**self.speeds_mbyte_s, **({SYSTEM_CALLS: calls} if calls else {})}

    def figure(self, name: str) -> Figure:
        """Return one of ``figures``."""
        return self.figures[name]


_CALDAS: Final = "Caldas-Calle 2017, table I"
_OPENSSL: Final = "openssl speed on the board, 8192 bytes"
_AES_586: Final = "OpenSSL, crypto/aes/asm/aes-586.pl, cycles per byte"
_VPAES: Final = "OpenSSL, crypto/aes/asm/vpaes-x86_64.pl, cycles per byte"
_CHACHA_32: Final = "OpenSSL, chacha-armv4.pl and poly1305-armv4.pl, cycles per byte:"
_CHACHA_64: Final = "OpenSSL, chacha-armv8.pl and poly1305-armv8.pl, cycles per byte:"
_CHACHA_X86: Final = "OpenSSL, chacha-x86_64.pl and poly1305-x86_64.pl, cycles per byte:"
_CHACHA_ARM11: Final = f"{_CHACHA_32} Cortex-A5 without vectors 19.3, ARM11 7.78"
_SBC: Final = "sbc-bench, results"
_GOCRYPTFS: Final = "gocryptfs issue 1002, blocks of 4096 bytes"
_N305: Final = f"{_GOCRYPTFS}: Core i3-N305, the same core, x 3.4/3.8 GHz"
_MT7621: Final = "openssl speed on a K2P with MT7621AT, one thread, 1024 bytes (public gist)"
_SHA1_586: Final = "OpenSSL, crypto/sha/asm/sha1-586.pl, cycles per byte"

# OpenSSL 3.0.22 on an x86-64 with every vector and AES instruction turned off: figures of the
# same integer code stand in about this ratio on any core.
_AES_256_OF_AES_128: Final = 0.72
_3DES_OF_BLOWFISH: Final = 0.209
_GCM_OF_CBC: Final = 0.43
_CHACHA_OF_BLOWFISH: Final = 4.72
_X86_3DES_CYCLES: Final = 110.0
"""Per byte, on x86 cores that execute out of order."""
_PAIR_CYCLES: Final = 900.0
"""Read and write of one byte through the kernel, on a core that does Blowfish in 24 cycles."""
_BLOWFISH_CYCLES: Final = 24.0


def _board(
    kind: str,
    title: str,
    core: tuple[str, int, int, int],
    known: Mapping[str, Figure],
    chacha: tuple[float, str],
) -> Device:
    """Return a classic Raspberry Pi: known figures, the rest scaled from its Blowfish.

    ``chacha`` is the cycles per byte of ChaCha20-Poly1305 with their source.
    """
    name, cores, mhz, memory_mib = core
    blowfish = known["BF-CBC"].value
    triple = Figure(
        round(blowfish * _3DES_OF_BLOWFISH, 2), f"BF-CBC x {_3DES_OF_BLOWFISH}", estimate=True
    )
    return Device(
        kind,
        title,
        _CALDAS,
        name,
        cores,
        mhz,
        memory_mib,
        MappingProxyType(
            {
                **known,
                "DES-EDE3-CBC": triple,
                "AES-256-GCM": _gcm(known["AES-256-CBC"]),
                "ChaCha20-Poly1305": _by_cycles(mhz, *chacha),
            }
        ),
        _system_calls(mhz, mhz / blowfish),
        _WIREGUARD.get(kind),
    )


def _pc(  # noqa: PLR0917 - a row of a table
    kind: str,
    title: str,
    source: str,
    core: tuple[str, int, int, int],
    aes: tuple[float, str, bool],
    sha1: tuple[float, str, bool],
    chacha: tuple[float, str] | None = None,
) -> Device:
    """Return a PC from the cycles per byte of its core; an unknown one is an estimate."""
    name, cores, mhz, memory_mib = core
    triple = mhz / _X86_3DES_CYCLES
    blowfish = triple / _3DES_OF_BLOWFISH
    aes_128 = Figure(round(mhz / aes[0], 1), aes[1], aes[2])
    aes_256 = Figure(
        round(aes_128.value * _AES_256_OF_AES_128, 1),
        f"AES-128-CBC x {_AES_256_OF_AES_128}",
        estimate=True,
    )
    by_clock = f"{_X86_3DES_CYCLES:g} cycles per byte of an x86 core out of order"
    speeds = {
        "AES-128-CBC": aes_128,
        "AES-256-CBC": aes_256,
        "AES-256-GCM": _gcm(aes_256),
        "ChaCha20-Poly1305": _by_cycles(mhz, *chacha)
        if chacha
        else Figure(
            round(blowfish * _CHACHA_OF_BLOWFISH, 1),
            f"BF-CBC x {_CHACHA_OF_BLOWFISH}",
            estimate=True,
        ),
        "BF-CBC": Figure(round(blowfish, 1), f"DES-EDE3-CBC / {_3DES_OF_BLOWFISH}", estimate=True),
        "DES-EDE3-CBC": Figure(round(triple, 2), by_clock, estimate=True),
        "SHA1": Figure(round(mhz / sha1[0], 1), sha1[1], sha1[2]),
    }
    calls = _system_calls(mhz, mhz / blowfish)
    return Device(
        kind, title, source, name, cores, mhz, memory_mib, MappingProxyType(speeds), calls
    )


def _gcm(aes_256_cbc: Figure) -> Figure:
    return Figure(
        round(aes_256_cbc.value * _GCM_OF_CBC, 1), f"AES-256-CBC x {_GCM_OF_CBC}", estimate=True
    )


def _by_cycles(mhz: int, cycles: float, source: str) -> Figure:
    return Figure(round(mhz / cycles, 1), source, estimate=True)


def _system_calls(mhz: int, blowfish_cycles: float) -> Figure:
    cycles = _PAIR_CYCLES * blowfish_cycles / _BLOWFISH_CYCLES
    return Figure(
        round(mhz * 1e6 / cycles, -3),
        f"{_PAIR_CYCLES:g} cycles a pair on a core that does Blowfish in {_BLOWFISH_CYCLES:g} "
        "cycles per byte, scaled by the core's own",
        estimate=True,
    )


def _known(aes_128: float, aes_256: float, blowfish: float, sha1: float) -> dict[str, Figure]:
    speeds = {"AES-128-CBC": aes_128, "AES-256-CBC": aes_256, "BF-CBC": blowfish, "SHA1": sha1}
    return {name: Figure(value, _OPENSSL) for name, value in speeds.items()}


_BOTH_ENDS: Final = "WireGuard with both ends on one board"
_WIREGUARD: Final = {
    "pi-b": Figure(16.1e6, _BOTH_ENDS),
    "pi-2": Figure(192e6, _BOTH_ENDS),
    "pi-3": Figure(522e6, _BOTH_ENDS),
}
_ZERO_BY_CLOCK: Final = "pi-b x 1000/700 MHz, the same core"

PROFILES: Final = (
    Device("host", "this machine, without a limit", "no limit"),
    _pc(
        "pc-300mhz",
        "PC of 300 MHz (Pentium II)",
        "Munasinghe 2005: a 300 MHz PC; core and memory are assumed",
        ("Pentium II (P6)", 1, 300, 128),
        (25.0, f"{_AES_586}: PIII 25, the same core", False),
        (11.5, f"{_SHA1_586}: PIII 11.5, the same core", False),
    ),
    _pc(
        "pc-1700mhz",
        "PC of 1700 MHz (Pentium 4)",
        "Munasinghe 2005: a 1.7 GHz PC; core and memory are assumed",
        ("Pentium 4 (NetBurst)", 1, 1700, 256),
        (24.0, f"{_AES_586}: P4 24", False),
        (10.6, f"{_SHA1_586}: P4 10.6", False),
        (13.94, f"{_CHACHA_X86} P4 9.48 + 4.46"),
    ),
    _pc(
        "core2duo-1870",
        "PC of 1.87 GHz (Core 2 Duo)",
        "Dymora 2014: Core 2 Duo 1.87 GHz; memory is assumed",
        ("Core 2", 2, 1870, 2048),
        (21.9, f"{_VPAES}: Core 2 21.9", False),
        (6.0, f"{_SHA1_586}: Core2 with SSSE3 6.0", False),
        (6.76, f"{_CHACHA_X86} Core2 4.35 + 2.41"),
    ),
    _pc(
        "amd-e450",
        "netbook (AMD E-450)",
        "AMD: E-450, two Bobcat cores at 1.65 GHz; memory is assumed",
        ("Bobcat", 2, 1650, 4096),
        (30.0, f"{_AES_586}: AMD K8 20, times 3/2 for two instead of three decoders", True),
        (10.7, f"{_SHA1_586}: AMD K8 7.1, times 3/2 for two instead of three decoders", True),
    ),
    _board(
        "pi-zero",
        "Raspberry Pi Zero",
        ("ARM1176JZF-S", 1, 1000, 512),
        {
            "AES-128-CBC": Figure(22.2, _OPENSSL),
            "AES-256-CBC": Figure(17.3, _OPENSSL),
            "BF-CBC": Figure(19.1, _ZERO_BY_CLOCK, estimate=True),
            "SHA1": Figure(43.0, _ZERO_BY_CLOCK, estimate=True),
        },
        (27.08, _CHACHA_ARM11),
    ),
    _board(
        "pi-b",
        "Raspberry Pi B",
        ("ARM1176JZF-S", 1, 700, 512),
        _known(15.7, 12.1, 13.4, 30.1),
        (27.08, _CHACHA_ARM11),
    ),
    _board(
        "pi-2",
        "Raspberry Pi 2",
        ("Cortex-A7", 4, 900, 1024),
        _known(21.7, 16.4, 19.6, 43.4),
        (17.1, f"{_CHACHA_32} Cortex-A5 14.1 + 3.0, for the Cortex-A7"),
    ),
    _board(
        "pi-3",
        "Raspberry Pi 3",
        ("Cortex-A53", 4, 1200, 1024),
        _known(47.9, 36.2, 37.6, 90.9),
        (6.19, f"{_CHACHA_64} Cortex-A53 4.72 + 1.47, a 64-bit system"),
    ),
    Device(
        "pi-4",
        "Raspberry Pi 4",
        "sbc-bench, results/3InF.txt: Raspberry Pi 4 B at 1.8 GHz, 64-bit; memory is assumed",
        "Cortex-A72",
        4,
        1800,
        4096,
        MappingProxyType(
            {
                "AES-128-CBC": Figure(50.6, f"{_SBC}/3InF.txt"),
                "AES-256-CBC": Figure(36.3, f"{_SBC}/3InF.txt"),
                "AES-256-GCM": Figure(
                    23.7,
                    "OpenSSL issue 16573: a Raspberry Pi 4, 64-bit, at 256 bytes; clock not stated",
                    estimate=True,
                ),
                "ChaCha20-Poly1305": _by_cycles(
                    1800, 5.57, f"{_CHACHA_64} Cortex-A57 4.43 + 1.14, the core before it"
                ),
            }
        ),
        _system_calls(1800, _BLOWFISH_CYCLES),
    ),
    Device(
        "pi-5",
        "Raspberry Pi 5",
        "sbc-bench, results/Au3jaA.txt: Raspberry Pi 5 B at 2.4 GHz; memory is assumed",
        "Cortex-A76",
        4,
        2400,
        8192,
        MappingProxyType(
            {
                "AES-128-CBC": Figure(1907.6, f"{_SBC}/Au3jaA.txt"),
                "AES-256-CBC": Figure(1365.2, f"{_SBC}/Au3jaA.txt"),
                "AES-256-GCM": Figure(1102.2, f"{_GOCRYPTFS}: Raspberry Pi 5 B"),
                "ChaCha20-Poly1305": Figure(478.7, f"{_GOCRYPTFS}: Raspberry Pi 5 B, XChaCha20"),
            }
        ),
        _system_calls(2400, _BLOWFISH_CYCLES),
        aes_instructions=True,
    ),
    Device(
        "mt7621",
        "router of 880 MHz (MediaTek MT7621)",
        "MediaTek: MT7621A, two MIPS 1004Kc cores at 880 MHz; memory is assumed",
        "MIPS 1004Kc",
        2,
        880,
        256,
        MappingProxyType(
            {
                "AES-128-CBC": Figure(12.92, _MT7621),
                "AES-256-CBC": Figure(9.46, _MT7621),
                "DES-EDE3-CBC": Figure(2.32, _MT7621),
                "SHA1": Figure(27.79, _MT7621),
                "AES-256-GCM": _gcm(Figure(9.46, _MT7621)),
                "ChaCha20-Poly1305": _by_cycles(
                    880, 25.65, f"{_CHACHA_32} Cortex-A5 without vectors 19.3 + 6.35"
                ),
            }
        ),
        _system_calls(880, 880 * _3DES_OF_BLOWFISH / 2.32),
    ),
    Device(
        "n100",
        "mini PC (Intel N100)",
        "sbc-bench, results/uHzXI7.txt: Intel N100 at 3.4 GHz; memory is assumed",
        "Gracemont",
        4,
        3400,
        8192,
        MappingProxyType(
            {
                "AES-128-CBC": Figure(
                    1725.6, "AES-256-CBC x 14/10, the rounds of the two", estimate=True
                ),
                "AES-256-CBC": Figure(1232.6, f"{_SBC}/uHzXI7.txt"),
                "AES-256-GCM": Figure(2165.7, _N305, estimate=True),
                "ChaCha20-Poly1305": Figure(708.5, f"{_N305}, XChaCha20", estimate=True),
            }
        ),
        _system_calls(3400, _BLOWFISH_CYCLES),
        aes_instructions=True,
    ),
)
"""Every profile, ``host`` first."""
