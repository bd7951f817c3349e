"""What ``swanctl --list-sas --raw`` says of the security associations: pure text, read strictly."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.esp.sas import ChildSa, IkeSa

LONGEST_TEXT: Final = 1 << 20
"""64 tunnels take about 64 KiB."""
_DEEPEST: Final = 8

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<close>\})"
    r"|(?P<open>[^\s={}\[\]]+)\s\{"
    # A selector has its protocol and port in brackets of its own: ``198.18.0.1/32[udp/l2f]``.
    r"|(?P<list>[^\s={}\[\]]+)=\[(?P<items>(?:[^\[\]]|\[[^\[\]]*\])*)\]"
    # A value may hold spaces (the name in a certificate), so it ends where the next key begins.
    r"|(?P<key>[^\s={}\[\]]+)=(?P<value>[^{}\[\]]*?)"
    r"(?=\}|\s[^\s={}\[\]]+=|\s[^\s={}\[\]]+\s\{|\Z))"
)

Section = dict[str, "str | tuple[str, ...] | Section"]


def read_sas(text: str) -> tuple[IkeSa, ...]:
    """Return the associations; ``TunnelError`` names what is not as swanctl writes it."""
    if len(text) > LONGEST_TEXT:
        raise _refused(f"{len(text)} characters, at most {LONGEST_TEXT} are read")
    found: list[IkeSa] = []
    for line in text.splitlines():
        if line.startswith("list-sa event "):
            sections = _parse(line.removeprefix("list-sa event "))
            found += [_ike(name, _section(value, name)) for name, value in sections.items()]
        elif line.strip() and not line.startswith("list-sas reply "):
            raise _refused(f"a line that begins with {line[:40]!r}")
    return tuple(found)


def _parse(text: str) -> Section:
    """Return the message, which is one section in braces."""
    if not text.startswith("{"):
        raise _refused(f"no section but {text[:40]!r}")
    root: Section = {}
    open_ = [root]
    for match in _tokens(text, 1):
        if match["close"]:
            open_.pop()
            if not open_:
                break
        elif match["open"]:
            inner: Section = {}
            _put(open_[-1], match["open"], inner)
            open_.append(inner)
            if len(open_) > _DEEPEST:
                raise _refused(f"sections nested deeper than {_DEEPEST}")
        elif match["list"]:
            _put(open_[-1], match["list"], tuple(match["items"].split()))
        else:
            _put(open_[-1], match["key"], match["value"].strip())
    if open_:
        raise _refused("a section that does not end")
    return root


def _put(section: Section, key: str, value: "str | tuple[str, ...] | Section") -> None:
    if key in section:
        raise _refused(f"{key!r} twice")
    section[key] = value


def _tokens(text: str, at: int) -> Iterator[re.Match[str]]:
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at:].strip():
                raise _refused(f"{text[at : at + 40]!r}")
            return
        yield match
        at = match.end()


def _ike(name: str, section: Section) -> IkeSa:
    names = ("encr-alg", "encr-keysize", "integ-alg", "prf-alg", "dh-group")
    children = section.get("child-sas", {})
    parts = [value for key in names if isinstance(value := section.get(key), str)]
    return IkeSa(
        name=name,
        version=_number(_text(section, "version")),
        state=_text(section, "state"),
        suite="/".join(parts),
        local_addresses=tuple(_address(text) for text in _items(section, "local-vips"))
        if "local-vips" in section
        else (),
        children=tuple(
            _child(_section(value, key)) for key, value in _section(children, "child-sas").items()
        ),
    )


def _child(section: Section) -> ChildSa:
    bits = section.get("encr-keysize")
    return ChildSa(
        name=_text(section, "name"),
        state=_text(section, "state"),
        mode=_text(section, "mode"),
        protocol=_text(section, "protocol"),
        udp_encapsulation=section.get("encap") == "yes",
        ipcomp="cpi-in" in section and "cpi-out" in section,
        spi_in=_text(section, "spi-in"),
        spi_out=_text(section, "spi-out"),
        encryption=_text(section, "encr-alg"),
        key_bits=_number(bits) if isinstance(bits, str) else None,
        integrity=value if isinstance(value := section.get("integ-alg"), str) else None,
        local=_items(section, "local-ts"),
        remote=_items(section, "remote-ts"),
        esn=section.get("esn") == "1",
        group=value if isinstance(value := section.get("dh-group"), str) else None,
    )


def _section(value: "str | tuple[str, ...] | Section", name: str) -> Section:
    if not isinstance(value, dict):
        raise _refused(f"{name!r} is not a section")
    return value


def _text(section: Section, key: str) -> str:
    value = section.get(key)
    if not isinstance(value, str):
        raise _refused(f"no {key!r}")
    return value


def _items(section: Section, key: str) -> tuple[str, ...]:
    value = section.get(key)
    if not isinstance(value, tuple):
        raise _refused(f"no list {key!r}")
    return value


def _address(text: str) -> str:
    """Return an IP address in its shortest form."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _refused(f"{text!r} is not an address") from None


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise _refused(f"{text!r} is not a number")
    return int(text)


def _refused(what: str) -> TunnelError:
    return TunnelError(f"swanctl --list-sas wrote what cannot be read: {what}")
