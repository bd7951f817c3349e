"""The E-model: how good a call sounds, from delay, loss and codec (ITU-T G.107, 06/2015).

Pure. All symbols are the Recommendation's; clause numbers stand beside the formulas.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Connection:
    """Input of the E-model; each default is that of G.107 table 2."""

    slr_db: float = 8.0
    """Send loudness rating."""
    rlr_db: float = 2.0
    """Receive loudness rating."""
    stmr_db: float = 15.0
    """Sidetone masking rating."""
    ds: float = 3.0
    dr: float = 3.0
    telr_db: float = 65.0
    """Talker echo loudness rating."""
    wepl_db: float = 110.0
    """Weighted echo path loss."""
    t_ms: float = 0.0
    """Mean one-way delay of the echo path."""
    tr_ms: float = 0.0
    """Round-trip delay in a 4-wire loop."""
    ta_ms: float = 0.0
    """Absolute delay in echo-free connections."""
    qdu: float = 1.0
    ie: float = 0.0
    """Equipment impairment factor of the codec."""
    bpl: float = 4.3
    """Packet-loss robustness factor of the codec."""
    ppl_percent: float = 0.0
    """Packet-loss probability."""
    burst_r: float = 1.0
    """Mean length of bursts of loss over that of random loss."""
    nc_dbm0p: float = -70.0
    nfor_dbmp: float = -64.0
    ps_db: float = 35.0
    pr_db: float = 35.0
    advantage: float = 0.0


def rating(c: Connection) -> float:
    """Return R (clause 7.1): 93.2 for the defaults; below 0 where nothing is understood."""
    noise = _noise(c)
    ro = 15 - 1.5 * (c.slr_db + noise)  # 7.2
    return ro - _simultaneous(c, ro, noise) - _delayed(c, ro, noise) - _equipment(c) + c.advantage


def mos(r: float) -> float:
    """Return the mean opinion score, 1 to 4.5, that goes with R (Annex B)."""
    if r <= 0:
        return 1.0
    if r >= 100:  # noqa: PLR2004 - the end of the scale
        return 4.5
    # Below 6.5 the polynomial dips under the end of the scale.
    return max(1.0, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6)


def call(
    delay_ms: float, loss_ratio: float, *, ie: float, bpl: float, burst_r: float = 1.0
) -> Connection:
    """Return an IP call: one delay from mouth to ear, the same back, everything else default."""
    return Connection(
        t_ms=delay_ms,
        tr_ms=2 * delay_ms,
        ta_ms=delay_ms,
        ie=ie,
        bpl=bpl,
        ppl_percent=100 * loss_ratio,
        burst_r=burst_r,
    )


def _noise(c: Connection) -> float:
    """Return No: circuit noise and that of both rooms and the receiver (7.2)."""
    olr = c.slr_db + c.rlr_db
    nos = c.ps_db - c.slr_db - c.ds - 100 + 0.004 * (c.ps_db - olr - c.ds - 14) ** 2
    lstr = c.stmr_db + c.dr
    pre = c.pr_db + 10 * math.log10(1 + 10 ** ((10 - lstr) / 10))
    nor = c.rlr_db - 121 + pre + 0.008 * (pre - 35) ** 2
    nfo = c.nfor_dbmp + c.rlr_db
    return 10 * math.log10(sum(10 ** (level / 10) for level in (c.nc_dbm0p, nos, nor, nfo)))


def _sidetone(c: Connection) -> float:
    """Return Ist (7.3.2)."""
    stmro = -10 * math.log10(
        10 ** (-c.stmr_db / 10) + math.exp(-c.t_ms / 4) * 10 ** (-c.telr_db / 10)
    )
    return (
        12 * _corner((stmro - 13) / 6, 8)
        - 28 * _corner((stmro + 1) / 19.4, 35)
        - 13 * _corner((stmro - 3) / 33, 13)
        + 29
    )


def _simultaneous(c: Connection, ro: float, noise: float) -> float:
    """Return Is: too loud, sidetone, quantizing (7.3)."""
    xolr = c.slr_db + c.rlr_db + 0.2 * (64 + noise - c.rlr_db)
    iolr = 20 * (_corner(xolr / 8, 8) - xolr / 8)
    q = 37 - 15 * math.log10(c.qdu)
    g = 1.07 + 0.258 * q + 0.0602 * q**2
    y = (ro - 100) / 15 + 46 / 8.4 - g / 9
    z = 46 / 30 - g / 40
    iq = 15 * math.log10(1 + math.pow(10, y) + math.pow(10, z))
    return iolr + _sidetone(c) + iq


def _delayed(c: Connection, ro: float, noise: float) -> float:
    """Return Id: talker echo, listener echo, too long a delay (7.4)."""
    terv = (
        c.telr_db
        - 40 * math.log10((1 + c.t_ms / 10) / (1 + c.t_ms / 150))
        + 6 * math.exp(-0.3 * c.t_ms**2)
    )
    ist = _sidetone(c)
    if c.stmr_db < 9:  # noqa: PLR2004 - 7.4: little sidetone loss masks the echo
        terv += ist / 2
    roe, re = -1.5 * (noise - c.rlr_db), 80 + 2.5 * (terv - 14)
    half = (roe - re) / 2
    idte = (half + math.sqrt(half**2 + 100) - 1) * (1 - math.exp(-c.t_ms))
    if c.stmr_db > 20:  # noqa: PLR2004 - likewise, the other way round
        idte = math.hypot(idte, ist)
    rle = 10.5 * (c.wepl_db + 7) * math.pow(c.tr_ms + 1, -0.25)
    idle = (ro - rle) / 2 + math.sqrt(((ro - rle) / 2) ** 2 + 169)
    return idte + idle + _absolute(c.ta_ms)


def _absolute(ta_ms: float) -> float:
    """Return Idd: nothing up to 100 ms."""
    if ta_ms <= 100:  # noqa: PLR2004 - mT of table 2
        return 0.0
    x = math.log2(ta_ms / 100)
    return 25 * (_corner(x, 6) - 3 * _corner(x / 3, 6) + 2)


def _corner(x: float, order: int) -> float:
    """Return a curve that is 1 for small and x for large x, which many clauses are made of."""
    return math.pow(1 + math.pow(x, order), 1 / order)


def _equipment(c: Connection) -> float:
    """Return Ie,eff: the codec, and what loss does to it (7.5)."""
    if c.ppl_percent <= 0:
        return c.ie
    return c.ie + (95 - c.ie) * c.ppl_percent / (c.ppl_percent / c.burst_r + c.bpl)
