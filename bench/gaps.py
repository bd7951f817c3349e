"""The gaps between packets as a capture at the far end has them."""

import time
from collections.abc import Callable

import dpkt
import numpy as np
from pair import PORT, Pair

_SETTLE_S = 0.5
_FEWEST = 100


def gap_errors_us(made: Pair, gap_us: int, load: Callable[[], object]) -> list[float]:
    """Capture while ``load`` runs and return |gap - wanted| of consecutive packets, µs."""
    path = made.directory / "gaps.pcap"
    path.unlink(missing_ok=True)
    capture = made.start(
        made.server,
        [
            *("tcpdump", "-i", "eth0", "-n", "-s", "96", "-B", "16384", "-Z", "root"),
            *("--time-stamp-precision=nano", "-w", str(path)),
            *("udp", "and", "greater", "100", "and", "dst", "portrange", f"{PORT}-{PORT + 1}"),
        ],
    )
    time.sleep(_SETTLE_S)
    load()
    time.sleep(_SETTLE_S)
    capture.terminate()
    capture.communicate(timeout=10)
    with path.open("rb") as file:
        times_s = [stamp for stamp, _ in dpkt.pcap.Reader(file)]
    if len(times_s) < _FEWEST:
        raise RuntimeError(f"{path}: {len(times_s)} packets in the capture")
    # The first packets of iperf3 set its test up.
    gaps_us = np.diff(np.asarray(times_s[10:], dtype=float)) * 1e6
    return [float(error) for error in np.abs(gaps_us - gap_us)]
