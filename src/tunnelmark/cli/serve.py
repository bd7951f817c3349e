"""``tunnelmark serve``."""

import secrets
import socket
from pathlib import Path

import click

from tunnelmark.model.errors import LabError

_EPILOG = """
\b
examples:
  tunnelmark serve                          the results in ./results
  tunnelmark serve /data/results --port 0   on any free port
  tunnelmark serve --allow-runs             let the browser start studies

\b
Only this computer can reach the server. From another one, use SSH:
  ssh -L 8642:127.0.0.1:8642 HOST
"""
_MOST_REQUESTS = 32
"""At a time."""


@click.command(epilog=_EPILOG)
@click.argument(
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    required=False,
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--allow-runs", is_flag=True, help="Let the browser start and stop built-in studies.")
def serve(*, directory: Path, port: int, allow_runs: bool) -> None:
    """Browse and compare the results in DIRECTORY in a web browser."""
    import uvicorn  # noqa: PLC0415 - keeps --help quick

    from tunnelmark.serve.app import make_app  # noqa: PLC0415 - likewise
    from tunnelmark.serve.library import Library  # noqa: PLC0415 - likewise
    from tunnelmark.serve.runs import Runner  # noqa: PLC0415 - likewise

    if not directory.is_dir() and not allow_runs:
        raise click.UsageError(f"{directory} is not a directory; tunnelmark run creates results")
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise LabError(f"port {port}: {error.strerror}; --port 0 picks a free port") from error
    with listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        library = Library(directory)
        runner = Runner(library.folder) if allow_runs else None
        click.echo(f"http://127.0.0.1:{port}/?token={token}")
        click.echo("Press Ctrl-C to stop.", err=True)
        config = uvicorn.Config(
            make_app(library, token=token, port=port, runner=runner),
            log_level="warning",
            access_log=False,  # the first address has the token
            server_header=False,
            ws="none",
            limit_concurrency=_MOST_REQUESTS,
            h11_max_incomplete_event_size=16_384,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run(sockets=[listening])
