"""Where the proof by wire listens: at the lab's link, or on air."""

from collections.abc import Iterator
from contextlib import contextmanager

from tunnelmark.lab.lab import Lab
from tunnelmark.model.topology import wire_macs
from tunnelmark.model.tunnel import TrafficPath, TunnelUp
from tunnelmark.probes.air import HOUSEKEEPING, read_air
from tunnelmark.probes.wire import Watch


@contextmanager
def listening(lab: Lab, up: TunnelUp, path: TrafficPath) -> Iterator[Watch]:
    """Yield what to watch for one path; an interface on air listens only meanwhile.

    It would take CPU from the trials, since every frame is copied to it.
    """
    tap = up.tap
    if tap is None:
        # By its address: a driver may have passed a host of its own making.
        client = path.client or lab.client
        number = [one.ipv4 for one in lab.clients].index(client.ipv4)
        end = f"a{number or ''}" if lab.wires > 1 else "a"
        watched = (lab.client_hosts[number], "eth0") if lab.direct else (lab.link_host, end)
        mac, _ = wire_macs(number)
        # A line of the user's own may lose packets before this computer's end of it.
        yield Watch(*watched, client, mac=mac, behind_loss=lab.direct)
        return
    lab.client_host.run(["ip", "link", "set", "dev", tap.interface, "up"])
    try:
        yield Watch(
            lab.client_host,
            tap.interface,
            lab.client,
            mac=tap.macs[up.paths.index(path)],
            read=read_air,
            housekeeping=HOUSEKEEPING,
        )
    finally:
        lab.client_host.run(["ip", "link", "set", "dev", tap.interface, "down"], check=False)
