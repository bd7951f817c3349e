"""The rates at which two radios send once mac80211's rate control has come to them."""

from collections.abc import Mapping
from typing import Final

from tunnelmark.model.host import Host
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.tunnels.support import wait_until
from tunnelmark.tunnels.wpa2 import says
from tunnelmark.tunnels.wpa2.agreed import is_wanted
from tunnelmark.tunnels.wpa2.config import Radio

_LIMIT_S: Final = 30.0
_PACKETS: Final = 50
# Voice is never under a block ack agreement, of whose frames minstrel_ht learns nothing here.
_VOICE: Final = "0xc0"


def settled_rates(
    radio: Radio, path: TrafficPath, ends: Mapping[str, tuple[Host, str]]
) -> dict[str, says.Bitrate]:
    """Send over the path until both sides send at the link's rate, and return the rates.

    ``ends`` are the hosts ``client`` and ``server``, each with its wireless interface. Raises
    ``TunnelError`` with the rates that were seen where they are others after 30 s.
    """
    client, _ = ends["client"]
    seen: dict[str, says.Bitrate | None] = {}

    def settled() -> dict[str, says.Bitrate] | None:
        words = ["-n", "-q", "-c", str(_PACKETS), "-i", "0.01", "-s", "1000", "-W", "1"]
        words += ["-Q", _VOICE] if radio.ht else []
        target = ("-I", path.client_address, path.server_address)
        client.run(["ping", *words, *target], timeout_s=30, check=False)
        for side, (host, interface) in ends.items():
            dump = host.run(["iw", "dev", interface, "station", "dump"]).text()
            seen[side] = says.bitrate(dump, "tx")
        found = {side: rate for side, rate in seen.items() if rate is not None}
        fine = len(found) == len(ends) and all(is_wanted(r, radio) for r in found.values())
        return found if fine else None

    wanted = f"MCS {radio.mcs}" if radio.ht else f"{max(radio.rates_bit_s) / 1e6:g} Mbit/s"
    return wait_until(
        settled,
        limit_s=_LIMIT_S,
        poll_s=0.1,
        late=lambda: (
            f"the link's rate is {wanted}, but after {_LIMIT_S:g} s the radios send at "
            + " and ".join(f"{rate} ({side})" for side, rate in seen.items())
        ),
    )
