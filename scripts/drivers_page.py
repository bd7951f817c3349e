"""Renew docs/drivers.md from the drivers: python scripts/drivers_page.py."""

from collections.abc import Collection
from pathlib import Path

from schema_table import table

from tunnelmark.links.registry import link_kinds
from tunnelmark.model.params import Params
from tunnelmark.study.schema import bound_shares
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

PAGE = Path(__file__).parents[1] / "docs" / "drivers.md"
_HEAD = """\
# Every tunnel, link and workload, with its parameters

Made by `make drivers-page` from the drivers themselves; a test holds it to them. In a study each is
a table with `kind` and `label`, and what is set is written beside them. A list in place of a value
varies it: each value is a point of its own.
A share is written with `%` or as a number below 1 (`0.02` is 2 %); `1` and `"1"` could be 1 % or
all of it and are refused.
"""
_GIVEN = ("program", "options", "append", "mss_clamp", "congestion")
_OWN = """\
Every tunnel takes programs, options and lines of files of the study's own, beside its own keys. The
report names each, a program with its SHA-256; what has no effect is refused. A list of programs is
as many tunnels: two builds beside each other. `mss_clamp` changes SYNs where
they enter the tunnel, at both ends, by nft. `congestion` is for tunnels that TCP carries, and
refused for others: Linux's default differs from computer to computer, and on a line with loss BBR
and CUBIC differ more than tunnels do."""
_NOT_THERE = """\
### Tunnels that are not there

- shadowsocks-libev (Debian has 3.3.5): forwards ports and speaks SOCKS. It carries connections and
  datagrams, no IP packets, so it has no interface inside. `sing_box` speaks Shadowsocks behind a
  TUN device.
- Tailscale's userspace networking (`--tun=userspace-networking`): a node without an interface. It
  connects by SOCKS5 and HTTP proxies and hands what arrives to ports of 127.0.0.1, so IP packets of
  a workload cannot enter it. `tailscale` refuses `mode = "userspace"`.
- Headscale as the control server of `tailscale`: in no package index that the set-up uses. Ours is
  the one of Tailscale's own tests. Tailscale 1.104 needs Go 1.27.
- NetBird: a control server gives out keys and addresses; it is in no package index that the set-up
  uses.
- AmneziaWG: in no package index that the set-up uses.
- OpenVPN's module in Linux 6.16 and later (`ovpn`) on Debian 12 and 13, which have neither that
  kernel nor OpenVPN 2.7. A virtual machine of `suite = "trixie-backports"` or `"forky"` has both
  ([machines.md](machines.md#suites)). OpenVPN 2.6 uses an older module (`ovpn_dco_v2`) where a
  kernel has it.
- ML-KEM of IKE on Debian 12 and 13, whose strongSwan lacks it: `suite = "forky"` has it.
- IP-TFS (RFC 9347) with a kernel of Debian's: no suite has one. Linux has it since 6.14, but
  `CONFIG_XFRM_IPTFS` is off in 7.2 of `forky`, 7.3 of `trixie-backports` and their variants
  (`cloud`, `rt`); strongSwan knows it in 6.1 of `forky`, not in 6.0.1 of Debian 13. A module built
  from Debian's source brings it ([ipsec.md](ipsec.md#ip-tfs)).
- n2n 3, whose packets are others than those of n2n 1, which Debian 12 has: a recipe of one's own.
"""


def main() -> None:
    """Write the page again."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page."""
    lines = [_HEAD]
    lines += ["## Tunnels: `[[tunnel]]`", "", _OWN, "", *_parameters(TunnelParams, only=_GIVEN)]
    for kind, tunnel in sorted(tunnel_kinds().items()):
        routers = ", ".join(f"`{router}`" for router in tunnel.routers)
        lines += [f"### `{kind}`: {tunnel.title}", "", f"Routers on the way: {routers}.", ""]
        lines += _parameters(tunnel.params_type, without=_GIVEN)
        if tunnel.programs:
            words = ", ".join(f"`{name}`" for name in tunnel.programs)
            lines += [f"Programs that a study may give, the main one first: {words}.", ""]
        if tunnel.deviations:
            lines += ["Set although it is not the program's own default:", ""]
            lines += [f"- {what}: {why}." for what, why in tunnel.deviations.items()]
            lines += [""]
    lines += [_NOT_THERE]
    lines += ["## Links: `[[link]]`", ""]
    for kind, link in sorted(link_kinds().items()):
        lines += [f"### `{kind}`: {_first_sentence(link)}", "", *_parameters(link.params_type)]
    lines += ["## Workloads: `[[workload]]`, and `[[background]]` beside them", ""]
    for kind, workload in sorted(workload_kinds().items()):
        lines += [f"### `{kind}`: {workload.title}", "", *_parameters(workload.params_type)]
    return "\n".join(lines)


def _parameters(
    params: type[Params], *, only: Collection[str] = (), without: Collection[str] = ()
) -> list[str]:
    schema = params.model_json_schema()
    if "properties" in schema:
        bound_shares(schema, params)
    properties = schema.get("properties", {})
    wanted = {k: v for k, v in properties.items() if k not in without and (not only or k in only)}
    return table({**schema, "properties": wanted})


def _first_sentence(driver: type) -> str:
    words = (driver.__doc__ or "").split(". ")[0].splitlines()[0]
    return words.rstrip(".")


if __name__ == "__main__":
    main()
