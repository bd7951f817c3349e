"""What a workload is handed where none of its programs is started."""

from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads.base import TrialContext


def context(paths: int = 1, **changes: Any) -> TrialContext:
    """Return the context of a trial over some paths between hosts that can do nothing."""
    host: Any = SimpleNamespace(work_dir=PurePosixPath("/none"))
    path = TrafficPath("0", "198.18.0.1", "198.18.0.2", "lo", "lo", 1500)
    given: dict[str, Any] = {
        "client": host,
        "server": host,
        "paths": (path,) * paths,
        "engine": "",
        "seed": 1,
        "samples_dir": None,
        "sample_stem": "trial",
        "progress": lambda _progress: None,
        "cancelled": lambda: False,
    }
    return TrialContext(**{**given, **changes})
