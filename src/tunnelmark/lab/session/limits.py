"""The limits of validity that hold where a block runs: an emulated CPU keeps other time."""

from tunnelmark.lab.place import Place
from tunnelmark.model.block import Stratum
from tunnelmark.model.rules import Limits


def limits_at(limits: Limits, place: Place) -> Limits:
    """Return a study's limits, those of lateness widened for an emulated CPU or a slow device.

    They never get narrower than the study set them. docs/validity.md gives the reasons.
    """
    sender_ns, link_ns = limits.sender_lateness, limits.link_lateness
    if place.stratum is Stratum.EMULATED:
        sender_ns = max(sender_ns, limits.emulated_lateness)
        if place.link_engine == place.engine:
            # The link is emulated too: it stands in the same machine.
            link_ns = max(link_ns, limits.emulated_lateness)
    # An engine that is on the device waits for the device's CPU as all its programs do.
    sender_ns += max((limit.engine_wait_ns for limit in place.limits.values()), default=0)
    return limits.model_copy(update={"sender_lateness": sender_ns, "link_lateness": link_ns})
