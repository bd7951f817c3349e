"""``tunnelmark audit``."""

import dataclasses
import json
from collections import Counter

import click


@click.command(epilog="example: tunnelmark audit --study dymora-2014")
@click.option("--study", help="List only findings about this publication.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def audit(*, study: str | None, as_json: bool) -> None:
    """Check the published figures for internal inconsistencies."""
    from tunnelmark.analysis.audit import STEMS  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.analysis.audit import audit as check  # noqa: PLC0415 - likewise
    from tunnelmark.published import table  # noqa: PLC0415 - likewise
    from tunnelmark.study.messages import nearest  # noqa: PLC0415 - likewise

    claims = table("claims")
    known = dict.fromkeys(row["study"] for row in claims)
    if study is not None and study not in known:
        raise click.UsageError(f"--study {study} is unknown{nearest(study, known)}")
    tables = {stem: table(stem) for stem in STEMS}
    found = check(tables, {row["id"]: row for row in claims})
    if study is not None:
        found = tuple(finding for finding in found if finding.study == study)
    for finding in found:
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(finding)))
        else:
            click.echo(f"{finding.study}, {finding.place}: {finding.message}")
    if not as_json:
        kinds = Counter(finding.kind for finding in found)
        counts = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        click.echo(
            f"{len(found)} finding{'s' * (len(found) != 1)}: {counts}" if found else "no findings"
        )
