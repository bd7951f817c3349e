"""Who may ask: this computer's browser, with the token, and no page of another place."""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES: Final = 4096
"""Of a request: our forms have a few short fields."""
_MOST_URL_BYTES: Final = 4096


class Guard:
    """Middleware in front of everything: a request that it does not let through reaches no page.

    - ``Host`` must be ours: a name that somebody else resolves to 127.0.0.1 (DNS rebinding) is not.
    - The token comes once in the address (``/?token=…``) and then as a cookie that no script and
      no page of another place can use, or as ``Authorization: Bearer``.
    - A request that changes something must come from a page of ours (``Origin``).
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int, scripts: Iterable[str]) -> None:
        """Let through who has the token; ``scripts`` are those that stand in pages of ours."""
        self._app = app
        self._token = token
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        # Cookies are not kept apart by port: the name is.
        self._cookie = f"tunnelmark-{port}"
        hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
        self._headers = {
            "Content-Security-Policy": (
                f"default-src 'none'; script-src 'self' {hashes}; style-src 'unsafe-inline'; "
                "img-src data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
                "frame-ancestors 'none'"
            ),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no page of ours opens a web socket

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope)
        await (answer or self._app)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return what is answered here; None lets the request through."""
        headers = _headers(scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return PlainTextResponse("This server accepts requests to its own address only.", 421)
        query = scope["query_string"]
        if len(scope["path"]) + len(query) > _MOST_URL_BYTES:
            return PlainTextResponse("The address is too long.", 414)
        reads = scope["method"] in {"GET", "HEAD"}
        fields = _fields(query)
        if reads and "token" in dict(fields):
            return self._enter(fields, scope["path"])
        if not (self._known(_bearer(headers)) or self._known(self._from_cookie(headers))):
            return _refused()
        return None if reads else _change(headers, f"http://{host}")

    def _enter(self, fields: list[tuple[str, str]], path: str) -> Response:
        """Return the way to the page requested, now with the token as a cookie."""
        if not self._known(dict(fields)["token"]):
            return _refused()
        rest = urlencode([field for field in fields if field[0] != "token"])
        # One slash: two would be the address of another server.
        address = "/" + quote(path.lstrip("/\\")) + (f"?{rest}" if rest else "")
        answer = RedirectResponse(address, 303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return answer

    def _known(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _from_cookie(self, headers: dict[str, str]) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers; one that comes twice has no value that could be trusted."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        found[key] = "" if key in found else value.decode("latin-1")
    return found


def _fields(query: bytes) -> list[tuple[str, str]]:
    """Return the fields of a query; none of one that is not a query."""
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return []


def _change(headers: dict[str, str], ours: str) -> Response | None:
    """Return why a request may not change anything; None: it may."""
    if headers.get("origin") != ours:
        return PlainTextResponse("The request comes from another page.", 403)
    if not _short(headers.get("content-length")):
        return PlainTextResponse("The request is too large.", 413)
    return None


def _bearer(headers: dict[str, str]) -> str:
    kind, _, given = headers.get("authorization", "").partition(" ")
    return given if kind.lower() == "bearer" else ""


def _short(length: str | None) -> bool:
    """Say whether a body is announced, and short."""
    return (
        length is not None
        and length.isascii()
        and length.isdigit()
        and (int(length[:20]) <= MOST_BODY_BYTES)
    )


def _refused() -> Response:
    words = "Open the address that tunnelmark serve printed: it has the token of this server."
    return PlainTextResponse(words, 403)


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
