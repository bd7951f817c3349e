"""A cost model with made-up figures, for tests."""

from datetime import date

from tunnelmark.model.block import Stratum
from tunnelmark.model.costs import (
    CostedDevice,
    CostedTunnel,
    CostModel,
    EndCosts,
    Fitted,
    Provenance,
    WorkCosts,
)

WORK = WorkCosts(
    Fitted(21_500.5, 20_000.0, 23_000.0),
    Fitted(900.0, 700.0, 1_100.0),
    Fitted(0.2, 0.1, 0.3),
    Fitted(500.0, 500.0, 500.0),
)
MODEL = CostModel(
    CostedTunnel("openvpn", "openvpn", {"cipher": "AES-256-GCM", "threads": 1, "lzo": False}),
    CostedDevice("host"),
    Provenance(
        "OpenVPN 2.6.14",
        'a "machine", Linux 6.12',
        Stratum.NAMESPACES,
        date(2026, 11, 22),
        "loads-20261122",
        "loads",
        40,
        "tunnelmark 0.1.0",
    ),
    EndCosts(WORK, WORK),
    EndCosts(WORK, WorkCosts(WORK.packet_ns, WORK.byte_ps), servers=2, in_order=False),
)
