"""What pluto and the kernel say of the security associations: pure text, read strictly."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.esp.sas import ChildSa, IkeSa

LONGEST_TEXT: Final = 1 << 20
"""64 tunnels take about 200 KiB."""

ESTABLISHED: Final = "ESTABLISHED_IKE_SA"
INSTALLED: Final = "ESTABLISHED_CHILD_SA"


def read_sas(status: str, kernel: str) -> tuple[IkeSa, ...]:
    """Return the associations.

    ``status`` is what ``whack --status`` of Libreswan 4 or 5 writes, ``kernel`` what
    ``ip xfrm state list nokeys`` writes: pluto itself tells neither the mode nor the encapsulation
    of what it installed. Raises ``TunnelError`` naming what is not as the two write it.
    """
    for text in (status, kernel):
        if len(text) > LONGEST_TEXT:
            raise _refused(f"{len(text)} characters, at most {LONGEST_TEXT} are read")
    states = list(_states(status))
    installed = _installed(kernel)
    algorithms = {
        (match["connection"], match["of"]): match["names"] for match in _ALGORITHM.finditer(status)
    }
    found = []
    for ike in states:
        if ike.parent is not None:
            continue
        children = [
            _child(one, status, algorithms, installed) for one in states if one.parent == ike.number
        ]
        suite = algorithms.get((ike.connection, "IKEv2"), "")
        found.append(
            IkeSa(
                name=ike.connection,
                version=2 if suite else 1,
                state="ESTABLISHED" if ike.state == ESTABLISHED else ike.state,
                suite="/".join(_GROUPS.get(part, part) for part in suite.split("-")),
                local_addresses=(),
                children=tuple(children),
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class _State:
    number: int
    connection: str
    state: str
    parent: int | None
    """Of a child: the IKE association under which it was made."""


@dataclass(frozen=True)
class _Installed:
    """An association of one direction in the kernel."""

    mode: str
    esn: bool
    udp_encapsulation: bool


def _states(status: str) -> Iterator[_State]:
    for match in _STATE.finditer(status):
        parent = _PARENT.search(match["more"])
        yield _State(
            number=int(match["number"]),
            connection=match["connection"],
            state=match["state"],
            parent=int(parent[1]) if parent else None,
        )


def _child(
    state: _State,
    status: str,
    algorithms: dict[tuple[str, str], str],
    installed: dict[int, _Installed],
) -> ChildSa:
    name = state.connection
    spis = next((m for m in _SPIS.finditer(status) if int(m["number"]) == state.number), None)
    selectors = next((m for m in _SELECTORS.finditer(status) if m["connection"] == name), None)
    if spis is None or selectors is None or (name, "ESP") not in algorithms:
        raise _refused(f"no indices, selectors or algorithms of {name}")
    encryption, _, integrity = algorithms[name, "ESP"].partition("-")
    bits = _KEY_BITS.fullmatch(encryption)
    ways = [installed.get(int(spis[side], 16)) for side in ("in", "out")]
    there = [way for way in ways if way is not None]
    group = next((m["group"] for m in _PFS.finditer(status) if m["connection"] == name), None)
    return ChildSa(
        name=name,
        state="INSTALLED" if state.state == INSTALLED and len(there) == len(ways) else state.state,
        mode=_same({way.mode.upper() for way in there}, name),
        protocol="ESP",
        udp_encapsulation=all(way.udp_encapsulation for way in there),
        ipcomp=False,
        spi_in=f"{int(spis['in'], 16):08x}",
        spi_out=f"{int(spis['out'], 16):08x}",
        encryption=bits["cipher"] if bits else encryption,
        key_bits=int(bits["bits"]) if bits else None,
        integrity=None if integrity == "NONE" else integrity,
        local=(selectors["own"],),
        remote=(selectors["other"],),
        esn=all(way.esn for way in there),
        group=None if group is None or group.startswith("<") else _GROUPS.get(group, group),
    )


def _installed(kernel: str) -> dict[int, _Installed]:
    """Return the associations of the kernel by their index."""
    found: dict[int, _Installed] = {}
    for block in re.split(r"^(?=src )", kernel, flags=re.MULTILINE):
        if not block.strip():
            continue
        head = _KERNEL_HEAD.search(block)
        if head is None:
            raise _refused(f"an association of the kernel that begins with {block[:60]!r}")
        flags = _KERNEL_FLAGS.search(block)
        found[int(head["spi"], 16)] = _Installed(
            mode=head["mode"],
            esn=flags is not None and "esn" in flags["flags"].split(),
            udp_encapsulation="encap type espinudp" in block,
        )
    return found


def _same(values: set[str], name: str) -> str:
    if len(values) > 1:
        raise _refused(f"two modes of {name}: {', '.join(sorted(values))}")
    return next(iter(values), "none in the kernel")


# Groups as pluto calls them, and their names in IANA's registry as charon shows them.
_GROUPS: Final = {"DH19": "ECP_256", "MODP2048": "MODP_2048", "DH31": "CURVE_25519"}

_CONNECTION: Final = r'"(?P<connection>[A-Za-z0-9_.-]{1,60})"'
_STATE: Final = re.compile(
    rf"^(?:000 )?#(?P<number>[0-9]{{1,9}}): {_CONNECTION}:[0-9]{{1,5}} "
    r"(?:STATE_V2_)?(?P<state>[A-Z0-9_]{1,60}) \([^()\n]*\);(?P<more>[^\n]*)$",
    re.MULTILINE,
)
_PARENT: Final = re.compile(r" IKE SA #([0-9]{1,9});")
# With a colon before an address of IPv6.
_SPIS: Final = re.compile(
    rf"^(?:000 )?#(?P<number>[0-9]{{1,9}}): {_CONNECTION} esp[.:](?P<out>[0-9a-f]{{1,8}})@\S+"
    r" esp[.:](?P<in>[0-9a-f]{1,8})@\S+ ",
    re.MULTILINE,
)
_SELECTORS: Final = re.compile(
    rf"^(?:000 )?{_CONNECTION}: (?P<own>[0-9a-f.:]+/[0-9]{{1,3}})===\S+?\.\.\.\S+?"
    r"===(?P<other>[0-9a-f.:]+/[0-9]{1,3});",
    re.MULTILINE,
)
_ALGORITHM: Final = re.compile(
    rf"^(?:000 )?{_CONNECTION}: +(?P<of>IKEv2|ESP) algorithm newest: "
    r"(?P<names>[A-Za-z0-9_-]{1,120})",
    re.MULTILINE,
)
_PFS: Final = re.compile(
    rf"^(?:000 )?{_CONNECTION}: +ESP algorithm newest: \S+; pfsgroup=(?P<group>\S+)$", re.MULTILINE
)
_KEY_BITS: Final = re.compile(r"(?P<cipher>.+)_(?P<bits>000|128|192|256)")
_KERNEL_HEAD: Final = re.compile(
    r"^src \S+ dst \S+ *\n\s+proto esp spi 0x(?P<spi>[0-9a-f]{1,8}) reqid \S+ "
    r"mode (?P<mode>[a-z_]+)"
)
_KERNEL_FLAGS: Final = re.compile(r"^\s+replay-window \S+ .*?flag (?P<flags>[^\n]*)$", re.MULTILINE)


def _refused(what: str) -> TunnelError:
    return TunnelError(f"libreswan's associations cannot be read: {what}")
