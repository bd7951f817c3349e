"""Figures that every trial has, whatever its workload: CPU, wire, overhead."""

from typing import Final

from tunnelmark.model.metrics.metric import Metric

METRICS: Final = (
    Metric(
        "cpu_client_ratio",
        "CPU, client",
        "ratio",
        "busy time of the client's processes per second, as a share of one core",
        "proc(5)",
        "lower",
        headline=True,
    ),
    Metric(
        "cpu_server_ratio",
        "CPU, server",
        "ratio",
        "busy time of the server's processes per second, as a share of one core",
        "proc(5)",
        "lower",
    ),
    Metric(
        "cpu_tunnel_ratio",
        "CPU, tunnel",
        "ratio",
        "busy time of the tunnel's processes on both hosts per second, as a share of one core",
        "proc(5)",
        "lower",
        headline=True,
    ),
    Metric(
        "cpu_machine_ratio",
        "CPU, machine",
        "ratio",
        "busy share of all cores of the machine, softirq included",
        "proc(5)",
        "lower",
        headline=True,
    ),
    Metric(
        "cpu_steal_ratio",
        "CPU, stolen",
        "ratio",
        "share of time stolen by the hypervisor",
        "proc(5)",
    ),
    Metric(
        "cpu_cost_s_per_gib",
        "CPU cost per GiB",
        "s/GiB",
        "CPU seconds of the tunnel's processes per GiB of payload delivered",
        "docs/metrics.md",
        "lower",
        headline=True,
    ),
    Metric(
        "cpu_cost_s_per_mpkt",
        "CPU cost per million packets",
        "s/10^6",
        "CPU seconds of the tunnel's processes per million packets delivered",
        "docs/metrics.md",
        "lower",
    ),
    Metric(
        "wire_forward_bit_s",
        "Wire rate, forward",
        "bit/s",
        "bytes of the IP packets that the link handed on towards the server per second",
        "docs/metrics.md",
    ),
    Metric(
        "wire_reverse_bit_s",
        "Wire rate, reverse",
        "bit/s",
        "bytes of the IP packets that the link handed on towards the client per second",
        "docs/metrics.md",
    ),
    Metric(
        "compression_ratio",
        "Payload per byte on the wire",
        "ratio",
        "payload delivered in both directions per byte of the IP packets that the link handed on; "
        "above 1 the tunnel compresses",
        "docs/metrics.md",
        "higher",
        "log",
        headline=True,
    ),
    Metric(
        "overhead_ratio",
        "Overhead, of the trial",
        "ratio",
        "bytes of the IP packets that the link handed on, acknowledgements and all, above the "
        "payload delivered, as a share of it; negative where the tunnel compresses",
        "docs/metrics.md",
        "lower",
    ),
    Metric(
        "overhead_bytes",
        "Overhead",
        "byte",
        "bytes of the outer IP packets minus payload, for one datagram",
        "docs/metrics.md",
        "lower",
        headline=True,
    ),
    Metric(
        "outer_packets",
        "Outer packets",
        "1",
        "IP packets on the link for one datagram; more than one is fragmentation",
        "docs/metrics.md",
        "lower",
    ),
)
