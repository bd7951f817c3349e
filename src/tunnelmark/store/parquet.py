"""Reads Parquet that others may have written: bounded, and damage is an exception.

By Arrow's C++ reader, which is fuzzed as a project of its own. That of Polars panics on damage, and
where a damaged page makes it ask for more memory than there is, the whole process ends.
"""

from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tunnelmark.model.errors import ResultError


def read_parquet(data: bytes, place: str, *, most_rows: int, most_text_bytes: int) -> pl.DataFrame:
    """Return the rows of a Parquet file.

    ``ResultError`` names ``place`` where it is damaged, has more rows than ``most_rows`` or, in a
    column, more text than ``most_text_bytes``: a file of a megabyte may say that it has a billion
    rows alike, or a long text a million times.
    """
    try:
        return _read(data, most_rows, most_text_bytes)
    except _LimitError as error:
        raise ResultError(f"{place}: {error}") from error
    # Arrow has a dozen kinds of exception for damage; Polars panics at types that it does not know.
    except (Exception, pl.exceptions.PanicException) as error:
        raise ResultError(f"{place}: is damaged: {error}") from error


class _LimitError(Exception):
    """More than is allowed."""


def _read(data: bytes, most_rows: int, most_text_bytes: int) -> pl.DataFrame:
    metadata = pq.read_metadata(pa.BufferReader(data))
    if metadata.num_rows > most_rows:
        raise _LimitError(f"has {metadata.num_rows} rows, at most {most_rows} are allowed")
    columns = [metadata.schema.column(index) for index in range(len(metadata.schema))]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    # Each text once, as it stands in the file; how long all are is known before they are repeated.
    file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=texts)
    table = file.read(use_threads=False)
    table.validate(full=True)
    plain = {
        name: _plain(column.combine_chunks(), most_text_bytes)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return cast("pl.DataFrame", pl.from_arrow(pa.table(plain)))


def _plain(column: Any, most_text_bytes: int) -> Any:
    """Return a column with its texts in full."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        mask = column.is_null() if column.null_count else None
        values = _plain(column.values, most_text_bytes)
        return type(column).from_arrays(column.offsets, values, mask=mask)
    if pa.types.is_dictionary(column.type):
        length = pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
        if length > most_text_bytes:
            raise _LimitError(
                f"has {length} bytes of text in a column, at most {most_text_bytes} are allowed"
            )
        return column.dictionary_decode()
    return column
