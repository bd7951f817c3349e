"""What the machine was, for the manifest."""

import gzip
import json
import os
import platform
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import tunnelmark
from tunnelmark.lab.versions import answer, versions

_ACCOUNTING: Final = "CONFIG_IRQ_TIME_ACCOUNTING"
_ACCOUNTS: Final = "irqtime_account_irq"
"""The function that is there with it alone; kallsyms names it to everybody."""
_CONFIG: Final = Path("/proc/config.gz")
_SYMBOLS: Final = Path("/proc/kallsyms")
_CONGESTION: Final = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_ALWAYS: Final = ("ethtool", "ip", "tcpdump")


def describe(engine: str, programs: Iterable[str]) -> dict[str, str]:
    """Return kernel, CPU, memory and versions, by name; what cannot be read is left out."""
    memory = _field("/proc/meminfo", "MemTotal")
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    found = {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "system": _field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": memory,
        "clock source": clock.read_text(encoding="ascii").strip() if clock.exists() else "",
        "interrupt time": interrupt_time(_text(_CONFIG), _text(_SYMBOLS)),
        "TCP congestion control": _text(_CONGESTION).strip(),
        "python": platform.python_version(),
        "tunnelmark": tunnelmark.__version__,
        "engine": engine_version(engine),
    }
    found |= versions({*programs, *_ALWAYS})
    return {name: value for name, value in found.items() if value}


def interrupt_time(config: str, symbols: str) -> str:
    """Return in whose name the kernel counts interrupts, by its configuration or its symbols.

    Empty where neither shows it.
    """
    if config:
        apart = _ACCOUNTING + "=y" in config.splitlines()
    elif " schedule\n" in symbols:
        apart = any(line.endswith(f" {_ACCOUNTS}") for line in symbols.splitlines())
    else:
        return ""
    return (
        f"apart from processes ({_ACCOUNTING})"
        if apart
        else f"in the process that is interrupted (without {_ACCOUNTING})"
    )


def engine_version(engine: str) -> str:
    """Return the engine's version and protocol."""
    try:
        event = json.loads(answer([engine, "version"])[1])
        return f"{event['version']} (protocol {event['protocol']})"
    except (ValueError, KeyError):
        return ""


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("ascii", "replace")
    except (OSError, EOFError, zlib.error):
        return ""


def _field(path: str, name: str, separator: str = ":") -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, found, value = line.partition(separator)
        if found and key.strip() == name:
            return value.strip()
    return ""
