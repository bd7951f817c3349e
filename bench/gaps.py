"""The gaps between packets as a capture at the far end has them."""

import re
import time
from collections.abc import Callable, Sequence
from decimal import Decimal

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
    words, _ = capture.communicate(timeout=10)
    dropped = re.search(r"(\d+) packets? dropped by kernel", words)
    if dropped is None or int(dropped[1]):
        raise RuntimeError(f"{path}: the capture is not whole: {words.strip()[-200:]}")
    with path.open("rb") as file:
        times_s = [stamp for stamp, _ in dpkt.pcap.Reader(file)]
    if len(times_s) < _FEWEST:
        raise RuntimeError(f"{path}: {len(times_s)} packets in the capture")
    # The first packets of iperf3 set its test up.
    return errors_us(times_s[10:], gap_us)


def errors_us(times_s: Sequence[Decimal], gap_us: int) -> list[float]:
    """Return |gap - wanted| of consecutive times since 1970, µs.

    They are decimal: a float that has the seconds since 1970 is rounded to 0.24 µs.
    """
    since_first = np.asarray([float(time_s - times_s[0]) for time_s in times_s])
    return [float(error) for error in np.abs(np.diff(since_first) * 1e6 - gap_us)]
