"""Run built-in studies and put their reports into a folder: python scripts/gallery.py.

Each study's page, figures as SVG and PDF, LaTeX tables and an index. Nothing of it is committed. A
study that was interrupted is resumed, one that is complete is not run again.
"""

import argparse
import html
import json
import subprocess
import sys
from pathlib import Path

from tunnelmark.study import SCALES, list_studies, load_study

COMMAND = (sys.executable, "-m", "tunnelmark.cli")
DEFAULT = (
    "quickstart",
    "munasinghe-2005",
    "caldas-calle-2017",
    "dymora-2014",
    "kolahi-2010",
    "pptp-vs-ssl-2011",
    "modern-2026",
)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tunnelmark: gallery</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem; max-width: 1120px; }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 1.5rem; }}
img {{ width: 100%; background: #fff; border-radius: 6px; }}
</style></head><body><h1>Gallery</h1><p>Reports of runs on this machine, at scale {scale}.</p>
<main>{entries}</main></body></html>
"""


def main() -> int:
    """Make the gallery; the exit status is that of the worst run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "studies", nargs="*", default=list(DEFAULT), help=f"default: {' '.join(DEFAULT)}"
    )
    parser.add_argument("--scale", choices=SCALES, default="short")
    parser.add_argument("--folder", type=Path, default=Path("gallery"))
    given = parser.parse_args()
    if unknown := set(given.studies) - set(list_studies()):
        parser.error(f"{', '.join(sorted(unknown))}: no built-in study")
    results = given.folder / "results"
    worst, entries = 0, []
    for name in given.studies:
        directory, status = run(name, given.scale, results)
        worst = max(worst, status)
        if directory is not None:
            entries.append(show(name, directory, given.folder))
    page = PAGE.format(scale=html.escape(given.scale), entries="\n".join(entries))
    (given.folder / "index.html").write_text(page, encoding="utf-8")
    print(f"gallery: {given.folder / 'index.html'}")
    return worst


def run(name: str, scale: str, results: Path) -> tuple[Path | None, int]:
    """Return the result directory of a study and the status of its run."""
    found = latest(name, scale, results)
    if found is not None and found[1] == "complete":
        return found[0], 0
    if found is not None:
        command: tuple[str, ...] = ("run", "--resume", str(found[0]))
    else:
        # A study without smaller versions is small itself.
        at = scale if f"[scale.{scale}]" in load_study(name).text else "full"
        command = ("run", name, "--scale", at, "--results", str(results))
    print(f"gallery: {name}", flush=True)
    # Hours in a log file without a word would look like a hang.
    reported = () if sys.stdout.isatty() else ("--lines",)
    status = subprocess.run([*COMMAND, *command, *reported], check=False).returncode
    now = latest(name, scale, results)
    return (None if now is None else now[0]), status


def latest(name: str, scale: str, results: Path) -> tuple[Path, str] | None:
    """Return the newest result of a study at a scale, and how it ended."""
    for path in sorted(results.glob(f"{name}-*/manifest.json"), reverse=True):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        own = manifest.get("scale", "full")
        if own == scale or (own == "full" and f"[scale.{scale}]" not in manifest["study_text"]):
            return path.parent, str(manifest.get("outcome"))
    return None


def show(name: str, directory: Path, folder: Path) -> str:
    """Write the reports of a result and return its entry of the index."""
    figures = folder / name
    for form, ending in (("html", "html"), ("latex", "tex")):
        # The figures with the last of them: drawing takes longest.
        more = ("--figures", str(figures)) if form == "latex" else ("--plotly", "beside")
        output = folder / f"{name}.{ending}"
        command = ("report", str(directory), "--format", form, "-o", str(output), *more)
        subprocess.run([*COMMAND, *command], check=True)
    first = next(iter(sorted(figures.glob("*.svg"))), None)
    picture = f'<img src="{name}/{first.name}" alt="">' if first is not None else ""
    title = html.escape(load_study(name).title)
    return (
        f'<article><h2><a href="{name}.html">{title}</a></h2>{picture}'
        f'<p><a href="{name}.tex">tables</a>, <a href="{name}/">figures</a></p></article>'
    )


if __name__ == "__main__":
    sys.exit(main())
