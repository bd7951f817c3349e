"""What is recorded of a block, as a JSON file."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from tunnelmark.model.block import Attempt, BlockRecord, Layered, WireProof, WireSample
from tunnelmark.model.errors import ResultError
from tunnelmark.model.overhead import Layer
from tunnelmark.model.tunnel import Negotiated
from tunnelmark.store.formats import Converter
from tunnelmark.store.layout import first_fault, read_bounded, write_atomically

_PROOFS: Final = ("proofs", "baseline_proofs", "end_proofs")
_RECORD: Final = TypeAdapter(BlockRecord)


def write_block(directory: Path, record: BlockRecord) -> None:
    """Write it in place of what is there."""
    text = json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False)
    write_atomically(directory / "blocks" / f"{record.block_id}.json", text.encode())


def read_block(path: Path, converting: tuple[Converter, ...] = ()) -> BlockRecord:
    """Read one; ``ResultError`` names the file and what is wrong."""
    try:
        raw = json.loads(read_bounded(path))
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: is damaged: {error}") from error
    if not isinstance(raw, dict):
        raise ResultError(f"{path}: is damaged: it has no object")
    for step in converting:
        raw = step.block(raw)
    if unknown := _unknown(raw):
        raise ResultError(f"{path}: {unknown} is not a key of a block")
    try:
        record = _RECORD.validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise ResultError(f"{path}: {first_fault(error)}") from error
    if record.block_id != path.stem:
        raise ResultError(f"{path}: is the record of block {record.block_id[:80]}")
    return record


def _unknown(raw: dict[str, Any]) -> str | None:
    """Return a key that no block has: pydantic passes them over in dataclasses."""
    up = [raw, *(attempts := _parts(raw, "attempts"))]
    proofs = [proof for one in up for proof in _parts(one, *_PROOFS)]
    levels = (
        (BlockRecord, [raw]),
        (Attempt, attempts),
        (Negotiated, [n for one in up for n in _parts(one, "negotiated", "baseline_negotiated")]),
        (WireProof, proofs),
        (Layered, layered := _parts(raw, "layers")),
        (Layer, [layer for one in layered for layer in _parts(one, "layers")]),
        (WireSample, [sample for proof in proofs for sample in _parts(proof, "samples")]),
    )
    for kind, objects in levels:
        known = {field.name for field in dataclasses.fields(kind)}
        for one in objects:
            if strange := set(one) - known:
                return min(strange)
    return None


def _parts(raw: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    lists = [raw.get(key) for key in keys]
    return [
        part for one in lists if isinstance(one, list) for part in one if isinstance(part, dict)
    ]
