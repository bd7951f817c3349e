"""The web application: addresses to pages, behind the guard."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tunnelmark.links.registry import link_kinds
from tunnelmark.model.errors import ResultError, TunnelmarkError
from tunnelmark.report import plotly
from tunnelmark.report.html import resource
from tunnelmark.serve.guard import MOST_BODY_BYTES, Guard
from tunnelmark.serve.library import Library
from tunnelmark.serve.pages import Pages
from tunnelmark.serve.runs import BusyError, Runner
from tunnelmark.study import list_studies, scales_of
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

Handler = Callable[[Request], Awaitable[Response]]

_JAVASCRIPT: Final = "text/javascript; charset=utf-8"


def make_app(library: Library, *, token: str, port: int, runner: Runner | None = None) -> Starlette:
    """Return the application; ``runner`` is None where it only reads."""
    pages = Pages(library, runner)

    def page(make: Callable[[Request], str]) -> Handler:
        async def handler(request: Request) -> Response:
            # Reading a result takes seconds: other requests are answered meanwhile.
            return HTMLResponse(await run_in_threadpool(make, request))

        return handler

    routes = [
        Route("/", page(lambda _: pages.index())),
        Route("/compare", page(lambda r: pages.compared(r.query_params))),
        Route("/results/{name}", page(lambda r: pages.report(_name(r)))),
        Route("/results/{name}/points", page(lambda r: pages.points(_name(r), r.query_params))),
        Route("/results/{name}/trials", page(lambda r: pages.trials(_name(r), r.query_params))),
        Route("/results/{name}/trial", page(lambda r: pages.trial(_name(r), r.query_params))),
        Route("/results/{name}/progress", page(lambda r: pages.progress(_name(r)))),
        Route("/results/{name}/progress/part", page(lambda r: pages.progress(_name(r), part=True))),
        Route("/static/{name}", _static),
    ]
    if runner is not None:
        routes += [
            Route("/run", page(lambda _: pages.run())),
            Route("/run/part", page(lambda _: pages.run(part=True))),
            Route("/run", _start(pages, runner), methods=["POST"]),
            Route("/run/stop", _stop(runner), methods=["POST"]),
        ]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(_load_drivers)
        yield
        if runner is not None:
            await run_in_threadpool(runner.close)

    async def failed(_request: Request, error: Exception) -> Response:
        status, title = 422, "Cannot show this page"
        if isinstance(error, HTTPException):
            status, title = error.status_code, f"{error.status_code} {error.detail}"
            return HTMLResponse(pages.error(title, "There is no page at this address."), status)
        if isinstance(error, ResultError):
            status = 404 if str(error).startswith("there is no") else 422
        return HTMLResponse(pages.error(title, str(error)), status)

    return Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: failed, TunnelmarkError: failed},
        middleware=[Middleware(Guard, token=token, port=port, scripts=[resource("page.js")])],
    )


def _load_drivers() -> None:
    """Import what reads a study: half a second that the first page would wait for."""
    for kinds in (tunnel_kinds, workload_kinds, link_kinds):
        kinds()


def _name(request: Request) -> str:
    return str(request.path_params["name"])


async def _static(request: Request) -> Response:
    if _name(request) == plotly.FILE_NAME:
        # The name has the version.
        kept = {"Cache-Control": "private, max-age=86400"}
        return Response(plotly.script(), media_type=_JAVASCRIPT, headers=kept)
    if _name(request) == "live.js":
        script = files(__package__).joinpath("live.js").read_bytes()
        return Response(script, media_type=_JAVASCRIPT)
    raise HTTPException(404)


def _start(pages: Pages, runner: Runner) -> Handler:
    async def handler(request: Request) -> Response:
        form = await _form(request)
        study, _, scale = form.get("study", "").partition(" ")
        if study not in list_studies() or scale not in scales_of(study):
            error = "choose one of the built-in studies and one of its scales"
            return HTMLResponse(await run_in_threadpool(pages.run, error=error), 422)
        try:
            await run_in_threadpool(runner.start, study, scale)
        except BusyError as busy:
            return HTMLResponse(await run_in_threadpool(pages.run, error=str(busy)), 409)
        return RedirectResponse("/run", 303)

    return handler


def _stop(runner: Runner) -> Handler:
    async def handler(_request: Request) -> Response:
        await run_in_threadpool(runner.stop)
        return RedirectResponse("/run", 303)

    return handler


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; what is longer than announced is cut off by the server."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY_BYTES:
            raise HTTPException(413)
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=20)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
