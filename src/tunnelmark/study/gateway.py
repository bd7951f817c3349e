"""What a study may not ask of a gateway and its clients: found before anything is made. Pure."""

from tunnelmark.devices.registry import DEVICES, DeviceParams, params_type
from tunnelmark.engine.link import SharedLinkSpec
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.registry import make
from tunnelmark.study.study import Study
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.workloads.registry import workload_kinds


def gateway_refused(study: Study, tunnel: Tunnel) -> str | None:
    """Return why a tunnel cannot be a gateway with ``clients`` in this study, or None."""
    if reason := tunnel.no_gateway():
        return reason
    if study.topology.router != "none":
        return (
            f"topology.router is {study.topology.router}, which a gateway with clients cannot "
            "have: leave out clients, or the router"
        )
    if reason := _links_refused(study, shared=tunnel.params.shared):
        return reason
    for device in study.devices:
        limited = DEVICES[device.kind].limited
        params = params_type(device.kind).model_validate(dict(device.params))
        if limited and isinstance(params, DeviceParams) and params.endpoint != "server":
            return (
                f"device {device.label} limits the client, of which there are several: give it "
                'endpoint = "server"'
            )
    for workload in study.workloads:
        for kind in (workload.kind, *(one.kind for one in workload.background)):
            if not workload_kinds()[kind].many_clients:
                able = ", ".join(k for k, one in workload_kinds().items() if one.many_clients)
                return f"{kind} runs on one client, not on all of a gateway; those that do: {able}"
    return None


def _links_refused(study: Study, *, shared: bool) -> str | None:
    for spec in study.links:
        wire = make(link_kinds(), spec).spec(study.seed)
        if isinstance(wire, SharedLinkSpec):
            return (
                f"link {spec.label} is a medium that all clients would share as stations, which a "
                "gateway cannot have: choose a link of kind serial, ethernet or trace"
            )
        if shared and wire is None:
            return (
                f"shared is true, and link {spec.label} joins the hosts directly: choose a link of "
                "kind serial, ethernet or trace, or leave out shared"
            )
    return None
