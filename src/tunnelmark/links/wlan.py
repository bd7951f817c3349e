"""A WLAN with true airtime: the client is a station, the server stands behind the access point.

The engine's state machine (crates/link/src/wlan) does the rest; clauses are those of IEEE Std
802.11-2020.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine.link import SharedLinkSpec
from tunnelmark.links.base import Link
from tunnelmark.links.edca import Edca
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, RateBitS, Ratio, SizeBytes

Standard = Literal["802.11a", "802.11b", "802.11g", "802.11n", "802.11ac", "802.11ax"]

_DSSS: Final = (1_000_000, 2_000_000, 5_500_000, 11_000_000)
_OFDM: Final = tuple(rate * 1_000_000 for rate in (6, 9, 12, 18, 24, 36, 48, 54))
_RATES: Final[Mapping[str, tuple[int, ...]]] = {
    "802.11a": _OFDM,
    "802.11b": _DSSS,
    "802.11g": _DSSS + _OFDM,
}
_BASIC: Final[Mapping[str, str]] = {
    # the mandatory rates: 15.4.4.6, 17.3.8.1, 18.1.2
    "802.11a": "6 12 24",
    "802.11b": "1 2",
    "802.11g": "1 2 5.5 11 6 12 24",
    "802.11n": "6 12 24",
    "802.11ac": "6 12 24",
    "802.11ax": "6 12 24",
}
_WIDTHS: Final[Mapping[str, tuple[str, ...]]] = {
    "802.11n": ("20 MHz", "40 MHz"),
    "802.11ac": ("20 MHz", "40 MHz", "80 MHz"),
    "802.11ax": ("20 MHz", "40 MHz", "80 MHz"),
}
_SNAP_BYTES: Final = 8
_MSDU_MAX_BYTES: Final = 2304  # Table 9-25
_STREAMS_MAX: Final = 4
_GUARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "802.11n": ("800 ns", "400 ns"),
    "802.11ac": ("800 ns", "400 ns"),
    "802.11ax": ("800 ns", "1600 ns", "3200 ns"),
}
_MCS_MAX: Final[Mapping[str, int]] = {"802.11n": 31, "802.11ac": 9, "802.11ax": 11}
_AMPDU_BYTES: Final[Mapping[str, int]] = {
    # 9.4.2.55.3, 9.4.2.157.2; 802.11ax 9.4.2.248.2 has two doublings more
    "802.11n": (1 << 16) - 1,
    "802.11ac": (1 << 20) - 1,
    "802.11ax": (1 << 22) - 1,
}
_AMPDU_FRAMES: Final[Mapping[str, int]] = {"802.11n": 64, "802.11ac": 64, "802.11ax": 256}
_MCS_A_STREAM: Final = 8
_CATEGORIES: Final = ("background", "best_effort", "video", "voice")
_AP: Final = "ap_"


class WlanParams(Params):
    """A WLAN. What is not given is the default of its standard."""

    standard: Standard = Field(description="physical layer")
    rate: RateBitS | None = Field(
        None, description="data rate of 802.11a, b and g; default: the highest"
    )
    mcs: Annotated[int, Field(ge=0, le=31)] | None = Field(
        None,
        description="MCS: 0-31 with its streams in 802.11n, 0-9 in ac, 0-11 in ax",
    )
    streams: Annotated[int, Field(ge=1, le=4)] | None = Field(
        None, description="spatial streams; with minstrel the most that it may use"
    )
    rate_control: Literal["fixed", "minstrel"] = Field(
        "fixed", description="fixed: the rate given here; minstrel: adapts to what gets through"
    )
    band: Literal["2.4 GHz", "5 GHz"] | None = Field(None, description="band of 802.11n")
    width: Literal["20 MHz", "40 MHz", "80 MHz"] = Field("20 MHz", description="channel width")
    guard_interval: Literal["800 ns", "400 ns", "1600 ns", "3200 ns"] = Field(
        "800 ns", description="guard interval: 800 or 400 ns in 802.11n and ac, 800 or more in ax"
    )
    greenfield: bool = Field(default=False, description="802.11n preamble without legacy part")
    short_preamble: bool = Field(default=False, description="short preamble of 802.11b frames")
    short_slot: bool = Field(default=True, description="slots of 9 us where the standard has both")
    basic_rates: str | None = Field(
        None,
        pattern=r"^\s*[0-9.]+(\s+[0-9.]+)*\s*$",
        max_length=80,
        description="basic rate set in Mbit/s, such as '1 2 5.5 11'; control responses use it",
    )
    protection: Literal["none", "cts_to_self", "rts_cts"] = Field(
        "none", description="protection of OFDM frames from stations of 802.11b"
    )
    rts_threshold: Annotated[SizeBytes, Field(ge=0, le=1 << 20)] = Field(
        1 << 20, description="RTS and CTS before longer frames"
    )
    rts_counts: Literal["psdu", "mpdu"] = Field(
        "mpdu",
        description="what the threshold applies to: the PSDU, as in the standard, or each MPDU",
    )
    fragmentation_threshold: Annotated[SizeBytes, Field(ge=256, le=11500)] = Field(
        2346, description="longest MPDU that is not fragmented"
    )
    short_retry_limit: Annotated[int, Field(ge=1, le=255)] = Field(
        7, description="attempts without RTS, and attempts of RTS"
    )
    long_retry_limit: Annotated[int, Field(ge=1, le=255)] = Field(
        4, description="attempts after RTS"
    )
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        200, description="drop-tail queue of each station and access category, in frames"
    )
    wmm: bool | None = Field(
        None, description="access categories by DSCP; on by default in 802.11n, ac and ax"
    )
    background: Edca | None = Field(None, description="AC_BK of stations instead of its defaults")
    best_effort: Edca | None = Field(None, description="AC_BE of stations instead of its defaults")
    video: Edca | None = Field(None, description="AC_VI of stations instead of its defaults")
    voice: Edca | None = Field(None, description="AC_VO of stations instead of its defaults")
    ap_background: Edca | None = Field(
        None, description="AC_BK of the access point instead of hostapd's"
    )
    ap_best_effort: Edca | None = Field(
        None, description="AC_BE of the access point instead of hostapd's"
    )
    ap_video: Edca | None = Field(
        None, description="AC_VI of the access point instead of hostapd's"
    )
    ap_voice: Edca | None = Field(
        None, description="AC_VO of the access point instead of hostapd's"
    )
    ampdu_max: Annotated[int, Field(ge=0, le=4_194_303)] | None = Field(
        None, description="longest A-MPDU in bytes, a power of two less one; 0: none"
    )
    ampdu_frames: Annotated[int, Field(ge=1, le=256)] | None = Field(
        None, description="most MPDUs in an A-MPDU; default: 64, in 802.11ax 256"
    )
    amsdu_max: Literal[0, 3839, 7935, 11398] = Field(
        0, description="longest A-MSDU in bytes; 0: none"
    )
    mpdu_spacing: Annotated[DurationNs, Field(ge=0, le=16_000)] = Field(
        0, description="least time between the starts of two MPDUs of an A-MPDU"
    )
    security: Literal["none", "wep", "tkip", "ccmp", "gcmp"] = Field(
        "none", description="link security, by the bytes it adds to each frame"
    )
    four_addresses: bool = Field(default=False, description="MAC headers with four addresses")
    frame_errors: Ratio = Field(0.0, description="share of MPDUs lost, apart from collisions")
    snr_db: Annotated[float, Field(ge=-20, le=80)] | None = Field(
        None, description="signal-to-noise ratio: frame errors by rate and length"
    )
    beacon_interval_tu: Annotated[int, Field(ge=0, le=65535)] = Field(
        100, description="beacon interval in time units of 1024 us; 0: no beacons"
    )
    beacon_bytes: Annotated[int, Field(ge=60, le=2320)] = Field(
        200, description="length of a beacon frame with MAC header and FCS"
    )
    eifs: Literal["lowest_rate", "dynamic", "none"] = Field(
        "lowest_rate",
        description="how long stations defer after a frame that they could not receive (EIFS)",
    )
    background_stations: Annotated[int, Field(ge=0, le=2006)] = Field(
        0, description="further stations that always have a frame for the access point"
    )
    background_msdu: Annotated[int, Field(ge=1, le=_MSDU_MAX_BYTES)] = Field(
        1500, description="length of their MSDUs in bytes"
    )
    mtu: Annotated[int, Field(ge=576, le=_MSDU_MAX_BYTES - _SNAP_BYTES)] = Field(
        1500, description="MTU in bytes"
    )

    @property
    def ht(self) -> bool:
        """Whether it is 802.11n or later."""
        return self.standard in _WIDTHS

    @property
    def in_2ghz(self) -> bool:
        """Whether it is in the 2.4 GHz band."""
        if self.standard == "802.11n":
            return self.band == "2.4 GHz"
        return self.standard in {"802.11b", "802.11g"}

    @property
    def has_wmm(self) -> bool:
        """Whether there are access categories."""
        return self.ht if self.wmm is None else self.wmm

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._check_fields_of_standard()
        self._check_rate()
        if self.protection != "none" and (not self.in_2ghz or self.standard == "802.11b"):
            raise ValueError(
                f"protection is {self.protection}, but {self.standard} has no stations of 802.11b"
                " to protect from"
            )
        if self.ht and self.security in {"wep", "tkip"}:
            raise ValueError(f"security is {self.security}, which {self.standard} excludes")
        if self.frame_errors and self.snr_db is not None:
            raise ValueError("frame_errors and snr_db are both set, at most one is allowed")
        self._check_aggregation()
        return self

    def _check_fields_of_standard(self) -> None:
        """Refuse what another standard has."""
        owners: Mapping[str, tuple[str, ...]] = {
            "rate": ("802.11a", "802.11b", "802.11g"),
            "mcs": tuple(_WIDTHS),
            "streams": tuple(_WIDTHS),
            "band": ("802.11n",),
            "guard_interval": tuple(_WIDTHS),
            "greenfield": ("802.11n",),
            "short_preamble": ("802.11b", "802.11g", "802.11n"),
            "short_slot": ("802.11g", "802.11n"),
            "ampdu_max": tuple(_WIDTHS),
            "ampdu_frames": tuple(_WIDTHS),
            "amsdu_max": tuple(_WIDTHS),
            "mpdu_spacing": tuple(_WIDTHS),
        }
        for name, standards in owners.items():
            if name in self.model_fields_set and self.standard not in standards:
                value = getattr(self, name)
                raise ValueError(f"{name} is {value}, but {self.standard} has none")
        if self.standard == "802.11n" and self.band is None:
            raise ValueError("band is not set, must be 2.4 GHz or 5 GHz in 802.11n")
        if self.band == "5 GHz" and not self.short_slot:
            raise ValueError("short_slot is false, but slots in the 5 GHz band are 9 us")
        widths = _WIDTHS.get(self.standard, ("20 MHz",))
        if self.width not in widths:
            raise ValueError(f"width is {self.width}, {self.standard} has {' and '.join(widths)}")
        guards = _GUARDS.get(self.standard, ("800 ns",))
        if self.guard_interval not in guards:
            raise ValueError(
                f"guard_interval is {self.guard_interval}, {self.standard} has "
                + " and ".join(guards)
            )
        for name in (f"{prefix}{one}" for prefix in ("", _AP) for one in _CATEGORIES):
            if getattr(self, name) is not None and not self.has_wmm:
                raise ValueError(f"{name} is set, but wmm is off")

    def _check_rate(self) -> None:
        rates = _RATES.get(self.standard)
        if rates is not None:
            if self.rate is not None and self.rate_control == "minstrel":
                raise ValueError("rate is set, but minstrel chooses it")
            if self.rate is not None and self.rate not in rates:
                raise ValueError(
                    f"rate is {_mbit_s(self.rate)} Mbit/s, {self.standard} has "
                    + ", ".join(map(_mbit_s, rates))
                )
        elif self.rate_control == "minstrel":
            if self.mcs is not None:
                raise ValueError(f"mcs is {self.mcs}, but minstrel chooses it")
        else:
            self._check_mcs()
        allowed = {_mbit_s(rate) for rate in self._legacy_rates()}
        for rate in self._basic_rates():
            if _mbit_s(rate) not in allowed:
                raise ValueError(
                    f"basic_rates has {_mbit_s(rate)} Mbit/s, must be of "
                    + ", ".join(sorted(allowed, key=float))
                )

    def _check_mcs(self) -> None:
        if self.mcs is None:
            raise ValueError(f"mcs is not set, must be 0 to {_MCS_MAX[self.standard]}")
        if self.mcs > _MCS_MAX[self.standard]:
            raise ValueError(
                f"mcs is {self.mcs}, {self.standard} has 0 to {_MCS_MAX[self.standard]}"
            )
        if self.standard == "802.11n":
            streams = self.mcs // _MCS_A_STREAM + 1
            if self.streams not in {None, streams}:
                raise ValueError(
                    f"streams is {self.streams}, but MCS {self.mcs} of 802.11n has {streams}"
                )
        elif self.standard == "802.11ac" and not _vht_valid(
            self.mcs, self.streams or 1, int(self.width.split()[0])
        ):
            raise ValueError(
                f"mcs is {self.mcs}, which 802.11ac excludes at {self.width} with "
                f"{self.streams or 1} streams"
            )

    def _check_aggregation(self) -> None:
        if not self.ht:
            return
        most = _AMPDU_BYTES[self.standard]
        length = self.ampdu_max
        least = (1 << 13) - 1
        if length and (not least <= length <= most or length & (length + 1)):
            raise ValueError(
                f"ampdu_max is {length}, must be 0 or a power of two less one, {least} to {most}"
            )
        if (self.ampdu_frames or 0) > _AMPDU_FRAMES[self.standard]:
            raise ValueError(
                f"ampdu_frames is {self.ampdu_frames}, {self.standard} has at most "
                f"{_AMPDU_FRAMES[self.standard]}"
            )
        if self.standard == "802.11n" and self.amsdu_max > most >> 3:
            raise ValueError(f"amsdu_max is {self.amsdu_max}, 802.11n has at most 7935")
        if (length or self.amsdu_max) and not self.has_wmm:
            raise ValueError("ampdu_max or amsdu_max is set, but aggregation needs wmm")
        if self.mpdu_spacing not in {0, 250, 500, 1000, 2000, 4000, 8000, 16000}:
            raise ValueError(
                f"mpdu_spacing is {self.mpdu_spacing} ns, must be 0 or 250 ns doubled up to 16 us"
            )

    def _legacy_rates(self) -> tuple[int, ...]:
        dsss = _DSSS if self.in_2ghz else ()
        return dsss + (() if self.standard == "802.11b" else _OFDM)

    def _basic_rates(self) -> list[int]:
        text = self.basic_rates
        if text is None:
            text = _BASIC[self.standard]
            if self.standard == "802.11n" and self.protection != "none":
                text = f"1 2 5.5 11 {text}"
        try:
            return [round(float(word) * 1_000_000) for word in text.split()]
        except ValueError:
            raise ValueError(f"basic_rates is {text!r}, must be numbers in Mbit/s") from None

    def medium(self) -> dict[str, object]:
        """Return the engine's form, as ``docs/engine.md`` has it."""
        return {
            "type": "wlan",
            "phy": self._phy(),
            "rate": self._rate(),
            "basic_rates_bit_s": self._basic_rates(),
            "protection": self.protection,
            "rts_threshold_bytes": self.rts_threshold,
            "rts_counts": self.rts_counts,
            "fragmentation_threshold_bytes": self.fragmentation_threshold,
            "short_retry_limit": self.short_retry_limit,
            "long_retry_limit": self.long_retry_limit,
            "queue": {"type": "packets", "limit": self.queue},
            "qos": self._qos(),
            "aggregation": self._aggregation(),
            "security": self.security,
            "four_addresses": self.four_addresses,
            "errors": self._errors(),
            "beacon": (
                {"interval_tu": self.beacon_interval_tu, "bytes": self.beacon_bytes}
                if self.beacon_interval_tu
                else None
            ),
            "eifs": self.eifs,
            "stations": 1 + self.background_stations,
            "background": (
                {"msdu_bytes": self.background_msdu} if self.background_stations else None
            ),
        }

    def _phy(self) -> dict[str, object]:
        phy: dict[str, object] = {"standard": self.standard}
        if self.standard in {"802.11b", "802.11g", "802.11n"}:
            phy["short_preamble"] = self.short_preamble
        if self.standard in {"802.11g", "802.11n"}:
            phy["short_slot"] = self.short_slot
        if self.ht:
            phy["width_mhz"] = int(self.width.split()[0])
            phy["guard_interval_ns"] = int(self.guard_interval.split()[0])
        if self.standard == "802.11n":
            phy["band"] = self.band
            phy["greenfield"] = self.greenfield
        return phy

    def _rate(self) -> dict[str, object]:
        if self.rate_control == "minstrel":
            streams = (self.streams or _STREAMS_MAX) if self.ht else 1
            return {"type": "minstrel", "max_streams": streams}
        if self.mcs is None:
            rate = self.rate or max(_RATES[self.standard])
            return {"type": "fixed", "rate_bit_s": rate}
        if self.standard == "802.11n":
            return {"type": "mcs", "mcs": self.mcs, "streams": self.mcs // _MCS_A_STREAM + 1}
        return {"type": "mcs", "mcs": self.mcs, "streams": self.streams or 1}

    def _qos(self) -> dict[str, object] | None:
        if not self.has_wmm:
            return None
        return {"stations": self._categories(""), "access_point": self._categories(_AP)}

    def _categories(self, prefix: str) -> dict[str, object]:
        given: dict[str, Edca | None] = {name: getattr(self, prefix + name) for name in _CATEGORIES}
        return {name: None if edca is None else edca.to_json() for name, edca in given.items()}

    def _aggregation(self) -> dict[str, object] | None:
        if not self.ht or not self.has_wmm:
            return None
        default = _AMPDU_BYTES[self.standard]
        return {
            "ampdu_max_bytes": default if self.ampdu_max is None else self.ampdu_max,
            "ampdu_max_frames": self.ampdu_frames or _AMPDU_FRAMES[self.standard],
            "amsdu_max_bytes": self.amsdu_max,
            "mpdu_spacing_ns": self.mpdu_spacing,
        }

    def _errors(self) -> dict[str, object]:
        if self.snr_db is not None:
            return {"type": "snr", "snr_db": self.snr_db}
        if self.frame_errors:
            return {"type": "fixed", "probability": self.frame_errors}
        return {"type": "none"}


class Wlan(Link):
    """A WLAN: half duplex, shared, with the time that each frame really takes on air."""

    kind: ClassVar[str] = "wlan"
    title: ClassVar[str] = "WLAN"
    params_type: ClassVar[type[Params]] = WlanParams
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        # clause 16 with the defaults of Annex C; the network of munasinghe-2005
        "wlan-80211b-11": {"standard": "802.11b", "rate": "11 Mbit/s"},
        # clause 18, all stations of 802.11g: short slots, no protection
        "wlan-80211g-54": {
            "standard": "802.11g",
            "rate": "54 Mbit/s",
            "basic_rates": "6 12 24",
        },
        # clause 19 with one stream; MCS 7 is its highest
        "wlan-80211n-ht20": {"standard": "802.11n", "band": "5 GHz", "mcs": 7},
        # kolahi-2010: 40 MHz, two streams, beacon interval 100, RTS threshold 2347, fragmentation
        # threshold 2346, CTS protection off; 300 Mbit/s needs the short guard interval
        "wlan-80211n-ht40-2ss": {
            "standard": "802.11n",
            "band": "5 GHz",
            "width": "40 MHz",
            "guard_interval": "400 ns",
            "mcs": 15,
            "rts_threshold": "2347 B",
            "fragmentation_threshold": "2346 B",
            "beacon_interval_tu": 100,
        },
        # an access point and a client of today, each with two antennas, at their best
        "wlan-80211ac-80-2ss": {
            "standard": "802.11ac",
            "width": "80 MHz",
            "guard_interval": "400 ns",
            "mcs": 9,
            "streams": 2,
            "queue": 1000,
        },
        "wlan-80211ax-80-2ss": {
            "standard": "802.11ax",
            "width": "80 MHz",
            "mcs": 11,
            "streams": 2,
            "queue": 1000,
        },
        # the same client two rooms away
        "wlan-80211ax-20": {"standard": "802.11ax", "mcs": 4, "queue": 1000},
    }
    params: WlanParams

    @property
    def mtu_bytes(self) -> int:
        """MTU at both ends."""
        return self.params.mtu

    def spec(self, seed: int) -> SharedLinkSpec:
        """Return what the emulator is to do."""
        return SharedLinkSpec(self.params.medium(), seed)


def _mbit_s(rate_bit_s: int) -> str:
    return f"{rate_bit_s / 1_000_000:g}"


def _vht_valid(mcs: int, streams: int, width_mhz: int) -> bool:
    """Say whether 21.5 has the combination: punctured blocks must fill the symbol."""
    subcarriers = {20: 52, 40: 108, 80: 234}[width_mhz]
    bits, up, down = (
        *((1, 1, 2), (2, 1, 2), (2, 3, 4), (4, 1, 2), (4, 3, 4)),
        *((6, 2, 3), (6, 3, 4), (6, 5, 6), (8, 3, 4), (8, 5, 6)),
    )[mcs]
    coded = subcarriers * streams * bits
    data = coded * up // down
    encoders = -(-data // 2160)
    return coded % (encoders * down) == 0 and data % (encoders * up) == 0
