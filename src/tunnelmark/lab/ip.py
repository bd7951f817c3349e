"""Many words for ``ip`` at one start of it: each start costs an emulated CPU 50 ms."""

from collections.abc import Mapping, Sequence
from typing import Final

from tunnelmark.model.host import Host
from tunnelmark.model.overhead import IpName

FAMILY: Final[Mapping[IpName, str]] = {"ipv4": "-4", "ipv6": "-6"}
"""Option of ``ip`` for what an address does not tell."""


def ip_batch(
    host: Host, lines: Sequence[str], *, ip: IpName | None = None, check: bool = True
) -> None:
    """Run each line as arguments of ``ip``, in order, of one IP version if given.

    The first that fails raises ``LabError``; without ``check`` the others are tried all the same.
    """
    family = () if ip is None else (FAMILY[ip],)
    words = ["ip", *family, *(() if check else ("-force",)), "-batch", "-"]
    host.run(words, stdin="".join(f"{line}\n" for line in lines).encode(), check=check)
