"""Many words for ``ip`` at one start of it: each start costs an emulated CPU 50 ms."""

from collections.abc import Sequence

from tunnelmark.model.host import Host


def ip_batch(host: Host, lines: Sequence[str], *, check: bool = True) -> None:
    """Run each line as arguments of ``ip``, in order.

    The first that fails raises ``LabError``; without ``check`` the others are tried all the same.
    """
    words = ["ip", *(() if check else ("-force",)), "-batch", "-"]
    host.run(words, stdin="".join(f"{line}\n" for line in lines).encode(), check=check)
