"""Texts for hostapd and wpa_supplicant, and what of a WLAN link real radios can do. Pure functions.

``medium`` is the engine's form of a WLAN (docs/engine.md); clauses are those of IEEE Std
802.11-2020.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tunnelmark.model.air import AIR_TYPES, AirCipher
from tunnelmark.model.tunnel import WireRule

Security = Literal["open", "wep", "wpa2-tkip", "wpa2-ccmp", "wpa3-sae"]

AIR_CIPHER: Final[Mapping[Security, AirCipher]] = {
    "open": "open",
    "wep": "wep",
    "wpa2-tkip": "tkip",
    "wpa2-ccmp": "ccmp",
    "wpa3-sae": "ccmp",
}
"""What each looks like on air."""
MTU_MAX_BYTES: Final = 2254
"""What hwsim takes from a medium is 2304 bytes long at most, header, cipher and SNAP included."""

_DSSS: Final = (1_000_000, 2_000_000, 5_500_000, 11_000_000)
_OFDM: Final = tuple(rate * 1_000_000 for rate in (6, 9, 12, 18, 24, 36, 48, 54))
_CHANNELS: Final = {"2.4 GHz": (6, 2437), "5 GHz": (36, 5180)}
_STREAMS_MAX: Final = 2
_MCS_A_STREAM: Final = 8
_THRESHOLD_MAX_BYTES: Final = 65535
_FRAGMENTS_MAX_BYTES: Final = 2346
_BEACON_MIN_TU: Final = 15


@dataclass(frozen=True)
class Radio:
    """What both radios are set to, worked out from the link."""

    standard: str
    band: Literal["2.4 GHz", "5 GHz"]
    channel: int
    frequency_mhz: int
    rates_bit_s: tuple[int, ...]
    """Legacy rates that are offered; the highest one is that of the link."""
    basic_bit_s: tuple[int, ...]
    mcs: int | None
    """The one MCS of 802.11n."""
    width_mhz: int
    short_guard: bool
    short_preamble: bool
    wmm: bool
    beacon_tu: int
    rts_bytes: int | None
    fragment_bytes: int | None

    @property
    def ht(self) -> bool:
        """Whether it is 802.11n."""
        return self.mcs is not None


@dataclass(frozen=True)
class Bss:
    """One network of the access point."""

    interface: str
    address: str
    ssid: str
    security: Security
    secret: str
    """Passphrase, or the WEP key in hexadecimal; empty where it is open."""


def radio_of(medium: Mapping[str, Any]) -> Radio | str:
    """Return the radios' settings, or why real radios cannot be what the link says."""
    phy = medium["phy"]
    standard = str(phy["standard"])
    reasons = {
        "standard": standard in {"802.11ac", "802.11ax"}
        and f"is {standard}, radios may be 802.11a, b, g or n",
        "security": medium["security"] != "none"
        and f"is {medium['security']}, but real encryption adds its own bytes",
        "background_stations": medium["stations"] != 1
        and f"is {medium['stations'] - 1}, but there are two radios",
        "greenfield": phy.get("greenfield", False) and "is true, which hostapd does not do here",
        "beacon_interval_tu": medium["beacon"] is None
        and f"is 0, a real access point has at least {_BEACON_MIN_TU}",
        "four_addresses": medium["four_addresses"] and "is true, stations have three",
        "protection": medium["protection"] != "none"
        and f"is {medium['protection']}, but the access point decides that itself",
    }
    for name, reason in reasons.items():
        if reason:
            return f"{name} {reason}"
    if medium["beacon"]["interval_tu"] < _BEACON_MIN_TU:
        return (
            f"beacon_interval_tu is {medium['beacon']['interval_tu']}, hostapd has at least "
            f"{_BEACON_MIN_TU}"
        )
    return _radio(medium, standard)


def hostapd_text(radio: Radio, networks: Sequence[Bss], *, control: str) -> str:
    """Return hostapd.conf for networks that share one radio."""
    first = networks[0]
    lines = [
        f"interface={first.interface}",
        "driver=nl80211",
        f"hw_mode={'a' if radio.band == '5 GHz' else 'b' if radio.standard == '802.11b' else 'g'}",
        f"channel={radio.channel}",
        f"beacon_int={radio.beacon_tu}",
        f"supported_rates={_hostapd_rates(radio.rates_bit_s)}",
        f"basic_rates={_hostapd_rates(radio.basic_bit_s)}",
        f"preamble={int(radio.short_preamble)}",
    ]
    if radio.ht:
        capabilities = "[HT40+]" if radio.width_mhz > 20 else ""  # noqa: PLR2004 - MHz
        if radio.short_guard:
            capabilities += f"[SHORT-GI-{radio.width_mhz}]"
        lines += ["ieee80211n=1", *([f"ht_capab={capabilities}"] if capabilities else [])]
    if radio.rts_bytes is not None:
        lines.append(f"rts_threshold={radio.rts_bytes}")
    if radio.fragment_bytes is not None:
        lines.append(f"fragm_threshold={radio.fragment_bytes}")
    for number, bss in enumerate(networks):
        if number:
            lines.append(f"bss={bss.interface}")
        lines += [
            f"bssid={bss.address}",
            f"ssid={bss.ssid}",
            f"ctrl_interface={control}",
            f"wmm_enabled={int(radio.wmm)}",
            # A client that was not heard is a full medium here, no reason to be turned away.
            "disassoc_low_ack=0",
            "ap_max_inactivity=65535",
            *_hostapd_security(bss),
        ]
    return "\n".join([*lines, ""])


def supplicant_text(radio: Radio, bss: Bss, *, control: str) -> str:
    """Return wpa_supplicant.conf for the one network of a station."""
    lines = [
        f"ctrl_interface={control}",
        "update_config=0",
        "network={",
        f' ssid="{bss.ssid}"',
        f" bssid={bss.address}",
        f" scan_freq={radio.frequency_mhz}",
        f" freq_list={radio.frequency_mhz}",
        # The access point would send with it to whoever can do it.
        *([" disable_sgi=1"] if radio.ht and not radio.short_guard else []),
        *(f" {line}" for line in _supplicant_security(bss)),
        "}",
        "",
    ]
    return "\n".join(lines)


def secured(medium: Mapping[str, object], security: Security) -> Mapping[str, object]:
    """Return a WLAN's medium, in the engine's form, with a tunnel's security in place of none."""
    cipher = AIR_CIPHER[security]
    return {**medium, "security": "none" if cipher == "open" else cipher}


def new_secret(security: Security) -> str:
    """Return a secret of this run: 104 bits for WEP, 190 for the others."""
    if security == "open":
        return ""
    return secrets.token_hex(13) if security == "wep" else secrets.token_urlsafe(24)


def _radio(medium: Mapping[str, Any], standard: str) -> Radio | str:
    phy, rate = medium["phy"], medium["rate"]
    band: Literal["2.4 GHz", "5 GHz"] = "5 GHz"
    if standard in {"802.11b", "802.11g"} or phy.get("band") == "2.4 GHz":
        band = "2.4 GHz"
    basic = tuple(sorted(medium["basic_rates_bit_s"]))
    dsss = _DSSS if standard == "802.11b" or min(basic) in _DSSS else ()
    rates = tuple(sorted(dsss + (() if standard == "802.11b" else _OFDM)))
    mcs = None
    if standard == "802.11n":
        if rate["type"] == "minstrel":
            # minstrel_ht leaves out frames of a block ack agreement without a status of their own
            return (
                "rate_control is minstrel, but the kernel's simulated radios give its rate control "
                "no status of aggregated frames; set mcs"
            )
        mcs = int(rate["mcs"])
        if mcs >= _STREAMS_MAX * _MCS_A_STREAM:
            return (
                f"mcs is {mcs}, the kernel's simulated radios have {_STREAMS_MAX} streams: "
                f"0 to {_STREAMS_MAX * _MCS_A_STREAM - 1}"
            )
        if medium["qos"] is None:
            return "wmm is false, but stations of 802.11n need it"
    elif rate["type"] == "fixed":
        rates = tuple(one for one in rates if one <= rate["rate_bit_s"])
    if not set(basic) <= set(rates):
        return (
            f"basic_rates has {max(basic) / 1e6:g} Mbit/s, but the highest rate is "
            f"{max(rates) / 1e6:g} Mbit/s"
        )
    rts, fragment = medium["rts_threshold_bytes"], medium["fragmentation_threshold_bytes"]
    channel, frequency_mhz = _CHANNELS[band]
    return Radio(
        standard=standard,
        band=band,
        channel=channel,
        frequency_mhz=frequency_mhz,
        rates_bit_s=rates,
        basic_bit_s=basic,
        mcs=mcs,
        width_mhz=int(phy.get("width_mhz", 20)),
        short_guard=phy.get("guard_interval_ns", 800) == 400,  # noqa: PLR2004 - ns
        short_preamble=bool(phy.get("short_preamble", False)),
        wmm=medium["qos"] is not None,
        beacon_tu=int(medium["beacon"]["interval_tu"]),
        rts_bytes=rts if rts <= _THRESHOLD_MAX_BYTES else None,
        fragment_bytes=fragment if fragment < _FRAGMENTS_MAX_BYTES else None,
    )


def _hostapd_security(bss: Bss) -> list[str]:
    match bss.security:
        case "open":
            return []
        case "wep":
            return ["wep_default_key=0", f"wep_key0={bss.secret}"]
        case "wpa3-sae":
            words = ["wpa_key_mgmt=SAE", "rsn_pairwise=CCMP", "ieee80211w=2"]
            return ["wpa=2", *words, f"sae_password={bss.secret}", "wpa_group_rekey=86400"]
        case "wpa2-tkip" | "wpa2-ccmp":
            cipher = AIR_CIPHER[bss.security].upper()
            words = ["wpa_key_mgmt=WPA-PSK", f"rsn_pairwise={cipher}"]
            return ["wpa=2", *words, f"wpa_passphrase={bss.secret}", "wpa_group_rekey=86400"]


def _supplicant_security(bss: Bss) -> list[str]:
    match bss.security:
        case "open":
            return ["key_mgmt=NONE"]
        case "wep":
            return ["key_mgmt=NONE", f"wep_key0={bss.secret}", "wep_tx_keyidx=0", "auth_alg=OPEN"]
        case "wpa3-sae":
            words = ["key_mgmt=SAE", "proto=RSN", "pairwise=CCMP", "group=CCMP", "ieee80211w=2"]
            return [*words, f'sae_password="{bss.secret}"']
        case "wpa2-tkip" | "wpa2-ccmp":
            cipher = AIR_CIPHER[bss.security].upper()
            words = ["key_mgmt=WPA-PSK", "proto=RSN", f"pairwise={cipher}", f"group={cipher}"]
            return [*words, f'psk="{bss.secret}"']


def _hostapd_rates(rates_bit_s: Sequence[int]) -> str:
    return " ".join(str(rate // 100_000) for rate in rates_bit_s)


def wire_rule(security: Security) -> WireRule:
    """Return what a capture on air must show."""
    cipher = AIR_CIPHER[security]
    return WireRule(
        encrypted=cipher != "open",
        describe=f"802.11 data, {cipher.upper() if cipher != 'open' else cipher}",
        ip_protocols=(),
        ether_types=(AIR_TYPES[cipher],),
    )
