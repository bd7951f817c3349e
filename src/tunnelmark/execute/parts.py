"""Parts of a run that a cluster has sent back: one job each, kept until they are merged."""

import io
import shutil
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Final

from tunnelmark.execute.merge import merge
from tunnelmark.model.errors import LabError, ResultError
from tunnelmark.model.faults import writing
from tunnelmark.store import Result, Writer, open_result
from tunnelmark.study.plan import is_alike

LARGEST_PART_BYTES: Final = 1 << 30
"""Of what one job is sent back as; a scheduler and two processes hold it in memory."""
_FOLDER: Final = ".parts"
_MOST_MEMBERS: Final = 1_000_000


def pack(directory: Path) -> bytes:
    """Return a result directory as bytes; ``LabError`` if it is larger than may be sent."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    size = sum(path.stat().st_size for path in files)
    if size > LARGEST_PART_BYTES:
        raise LabError(
            f"the result of one job has {size} bytes, a worker sends at most {LARGEST_PART_BYTES}: "
            "run the study with --no-samples"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in files:
            archive.add(path, str(path.relative_to(directory)), recursive=False)
    return buffer.getvalue()


def keep(data: bytes, result: Path, job_id: str) -> Result:
    """Put a part beside a result that is under way: whole or not at all.

    Raises ``ResultError`` if it is not a result of this one job, with or without the one of its
    worker.
    """
    folder = result / _FOLDER
    begun, whole = folder / f".{job_id}", folder / job_id
    with writing(folder):
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir(parents=True)
        _unpack(data, begun, job_id)
        found = open_result(begun)
        (first, *more) = found.manifest.jobs or ("",)
        own = first == job_id and all(map(is_alike, more))
        if not own or set(found.jobs()) - {first, *more}:
            raise ResultError(f"{begun}: is not the result of job {job_id}")
        shutil.rmtree(whole, ignore_errors=True)
        begun.rename(whole)
    return open_result(whole)


def take_in(result: Path) -> None:
    """Merge the parts that are there into the result, which nobody writes to, and remove them."""
    with closing(Writer(result)):
        pass  # another run that is under way still adds to its parts
    folder = result / _FOLDER
    parts = sorted(path for path in folder.glob("*") if not path.name.startswith("."))
    if parts:
        merge(parts, result)
    shutil.rmtree(folder, ignore_errors=True)


def _unpack(data: bytes, folder: Path, job_id: str) -> None:
    place = f"part of job {job_id}"
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            size = 0
            for number, member in enumerate(archive, 1):
                size += member.size
                if not member.isfile() or number > _MOST_MEMBERS or size > LARGEST_PART_BYTES:
                    raise ResultError(
                        f"{place}: {member.name[:80]!r} is not a plain file, or there is more "
                        f"than {_MOST_MEMBERS} files or {LARGEST_PART_BYTES} bytes"
                    )
                archive.extract(member, folder, filter="data")
    except tarfile.TarError as error:
        raise ResultError(f"{place}: is damaged: {error}") from error
