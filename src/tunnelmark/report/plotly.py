"""Plotly's basic build, which draws the figures: scatter, bars, nothing that needs WebGL.

``scripts/plotly`` fetches it from the npm package ``plotly.js-basic-dist-min`` (MIT licence, named
in its head) and packs it; the report carries it packed, the browser unpacks it.
"""

import base64
import gzip
from functools import cache
from importlib.resources import files
from typing import Final

VERSION: Final = "4.1.1"
FILE_NAME: Final = f"plotly-basic-{VERSION}.min.js"
"""Of the script where it stands beside reports: another version is another file."""


@cache
def packed() -> str:
    """Return the script as gzip (RFC 1952) in base64, to stand in a page."""
    return base64.b64encode(_gzip()).decode()


@cache
def script() -> bytes:
    """Return the script itself, for a file that several reports share."""
    return gzip.decompress(_gzip())


def _gzip() -> bytes:
    return files(__package__).joinpath("plotly-basic.min.js.gz").read_bytes()
