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
from tunnelmark.store.limits import LimitError, Limits


def read_parquet(data: bytes, place: str, limits: Limits) -> pl.DataFrame:
    """Return the rows of a Parquet file.

    ``ResultError`` names ``place`` where it is damaged or has more than the limits allow: a file of
    a megabyte may say that it has a billion rows alike, or a long text a million times.
    """
    try:
        return _read(data, limits)
    except LimitError as error:
        raise ResultError(f"{place}: {error}") from error
    # Arrow has a dozen kinds of exception for damage; Polars panics at types that it does not know.
    except (Exception, pl.exceptions.PanicException) as error:
        raise ResultError(f"{place}: is damaged: {error}") from error


def _read(data: bytes, limits: Limits) -> pl.DataFrame:
    metadata = pq.read_metadata(pa.BufferReader(data))
    limits.check(rows=metadata.num_rows, columns=len(metadata.schema))
    limits.check_values(_values(metadata))
    columns = [metadata.schema.column(index) for index in range(len(metadata.schema))]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    # Each text once, as it stands in the file; how long all are is known before they are repeated.
    file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=texts)
    table = file.read(use_threads=False)
    table.validate(full=True)
    plain = {
        name: _plain(column.combine_chunks(), limits)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return cast("pl.DataFrame", pl.from_arrow(pa.table(plain)))


def _values(metadata: Any) -> int:
    """Return how many there are in all columns, those in lists included."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    return sum(
        group.column(index).num_values for group in groups for index in range(group.num_columns)
    )


def _plain(column: Any, limits: Limits) -> Any:
    """Return a column with its texts in full."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        mask = column.is_null() if column.null_count else None
        values = _plain(column.values, limits)
        return type(column).from_arrays(column.offsets, values, mask=mask)
    if pa.types.is_dictionary(column.type):
        length = pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
        limits.check_text(length)
        return column.dictionary_decode()
    return column
