"""Result directories: manifest and trial records, with a converter per format version."""

from tunnelmark.store.manifest import Manifest
from tunnelmark.store.result import Result, Writer, open_result

__all__ = ["Manifest", "Result", "Writer", "open_result"]
