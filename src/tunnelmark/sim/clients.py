"""Programs that ask in virtual time: what the simulator is asked for, and what it tells. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tunnelmark.engine import config
from tunnelmark.model.congestion import MODELLED
from tunnelmark.model.errors import LabError
from tunnelmark.sim.carriage import WINDOW_BYTES, Carriage
from tunnelmark.sim.simulate import Simulated
from tunnelmark.sim.tcp import payloads, segment_bytes
from tunnelmark.workloads.exchanges import Client, ClientEnds, Exchange, Requester, Stage


def client_config(
    clients: Sequence[Client] | Sequence[Requester], carried: Carriage, *, seed: int, files_dir: str
) -> dict[str, object]:
    """Return the configuration of ``tunnelmark-engine sim`` for clients."""
    places = {path.name: number for number, path in enumerate(carried.paths)}
    over_tcp = [one for one in clients if isinstance(one, Client)]
    over_udp = [one for one in clients if isinstance(one, Requester)]
    sizes, asked = _over_tcp(over_tcp, carried, places)
    for requester in over_udp:
        sizes[places[requester.path.name]] |= {requester.request_bytes, requester.response_bytes}
    return {
        "protocol": config.PROTOCOL,
        "seed": seed,
        **carried.link_json(files_dir),
        "paths": [carried.path_json(payloads) for payloads in sizes],
        "forward": None,
        "reverse": None,
        "clients": asked,
        "requesters": [
            {
                "path": places[requester.path.name],
                "count": requester.count,
                "request_bytes": requester.request_bytes,
                "response_bytes": requester.response_bytes,
                "lasts_ns": requester.lasts_ns,
                "timeout_ns": requester.timeout_ns,
            }
            for requester in over_udp
        ],
    }


def _over_tcp(
    clients: Sequence[Client], carried: Carriage, places: Mapping[str, int]
) -> tuple[list[set[int]], list[dict[str, object]]]:
    """Return the payloads of datagrams as long as the packets of each path, and the clients."""
    segments = [segment_bytes(carried, path.mtu_bytes) for path in carried.paths]
    lengths: list[set[int]] = [set() for _ in segments]
    asked = []
    for client in clients:
        place = places[client.path.name]
        if any(stage.turns is not None for stage in client.stages):
            # Where records end hangs on when requests come.
            lengths[place] |= set(range(segments[place]))
        else:
            lengths[place] |= {piece % segments[place] for piece in _pieces(client)}
        asked.append(
            {
                "path": place,
                "segment_bytes": segments[place],
                "window_bytes": max(WINDOW_BYTES, segments[place]),
                "congestion": client.congestion or MODELLED[0],
                "count": client.count,
                "stages": [_stage_json(stage) for stage in client.stages],
                "patience_ns": client.patience_ns,
                "limit_ns": client.limit_ns,
            }
        )
    if not clients:
        return lengths, asked
    sizes = [{*payloads(segment, *rest)} for segment, rest in zip(segments, lengths, strict=True)]
    return sizes, asked


def client_ends(found: Simulated) -> ClientEnds:
    """Return what became of the clients."""
    if found.asked is None:
        raise LabError("the simulator (sim) reported nothing of the clients")
    return ClientEnds(found.clients, found.asked)


def _pieces(client: Client) -> set[int]:
    exchanges = (one for stage in client.stages for one in (*stage.opening, *stage.exchanges))
    return {0, *(piece for one in exchanges for piece in (*one.request, *one.reply))}


def _stage_json(stage: Stage) -> dict[str, object]:
    return {
        "wait_ns": stage.wait_ns,
        "connections": stage.connections,
        "fresh": stage.fresh,
        "awaits_close": stage.awaits_close,
        "opening_counts": stage.opening_counts,
        "opening": [_exchange_json(one) for one in stage.opening],
        "exchanges": [_exchange_json(one) for one in stage.exchanges],
        "lasts_ns": stage.lasts_ns,
        "turns": None if stage.turns is None else asdict(stage.turns),
    }


def _exchange_json(exchange: Exchange) -> dict[str, object]:
    found: dict[str, object] = {
        "request": exchange.request,
        "reply": exchange.reply,
        "held": exchange.held,
    }
    further = {
        "goes_on": exchange.goes_on,
        "readable_bytes": exchange.readable_bytes,
        "ahead": exchange.ahead,
        "due_ns": exchange.due_ns,
        "request_due_ns": exchange.request_due_ns,
        "reply_due_ns": exchange.reply_due_ns,
    }
    # Few exchanges have these, and there may be a hundred thousand.
    return found | {name: value for name, value in further.items() if value}
