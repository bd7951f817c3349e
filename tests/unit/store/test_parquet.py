"""Parquet of others: what is too much or damaged is refused, all else is as Polars reads it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.errors import ResultError
from tunnelmark.store.limits import Limits
from tunnelmark.store.parquet import read_parquet

_GOOD = Path(__file__).parents[3] / "fuzz/seeds/door-result-trials/good"


def read(data: bytes) -> pl.DataFrame:
    limits = Limits(rows=1000, columns=300, values=50_000, text_bytes=1 << 20)
    return read_parquet(data, "b1.parquet", limits)


def written(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def test_trials_are_read_as_polars_reads_them() -> None:
    data = _GOOD.read_bytes()
    theirs = pl.read_parquet(io.BytesIO(data))
    assert read(data).equals(theirs)
    assert read(data).schema == theirs.schema


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "text": st.none() | st.text(max_size=20),
                "texts": st.none() | st.lists(st.none() | st.text(max_size=5), max_size=4),
                "figure": st.none() | st.floats(allow_nan=False),
                "count": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
                "is": st.none() | st.booleans(),
                "empty": st.none(),
            }
        ),
        max_size=20,
    )
)
def test_what_is_written_is_read(rows: list[dict[str, object]]) -> None:
    schema: dict[str, Any] = {
        "text": pl.String,
        "texts": pl.List(pl.String),
        "figure": pl.Float64,
        "count": pl.Int32,
        "is": pl.Boolean,
        "empty": pl.Null,
    }
    frame = pl.DataFrame(rows, schema=schema)
    found = read(written(frame))
    assert found.equals(frame)
    assert found.schema == frame.schema


def test_rows_are_bounded() -> None:
    with pytest.raises(ResultError, match=r"b1.parquet: has 1001 rows, at most 1000 are allowed"):
        read(written(pl.DataFrame({"figure": [1.0] * 1001})))


def test_columns_are_bounded() -> None:
    frame = pl.DataFrame({f"param_{n}": [1] for n in range(301)})
    with pytest.raises(ResultError, match=r"b1.parquet: has 301 columns, at most 300 are allowed"):
        read(written(frame))


def test_rows_alike_of_many_columns_are_refused_before_they_are_made() -> None:
    frame = pl.DataFrame({f"param_{n}": [None] * 1000 for n in range(51)})
    assert len(written(frame)) < 20_000
    with pytest.raises(ResultError, match=r"b1.parquet: has 51000 values, at most 50000 are"):
        read(written(frame))


def test_lists_alike_are_refused_before_they_are_made() -> None:
    frame = pl.DataFrame({"samples": [[""] * 60_000]})
    assert len(written(frame)) < 5000
    with pytest.raises(ResultError, match=r"b1.parquet: has 60000 values, at most 50000 are"):
        read(written(frame))


@pytest.mark.parametrize("nested", [False, True], ids=["text", "list"])
def test_a_long_text_in_every_row_is_refused_before_it_is_repeated(nested: bool) -> None:
    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, dtype="i4")), ["x" * 60_000])
    column = pa.ListArray.from_arrays(pa.array(range(1001), pa.int32()), once) if nested else once
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": column}), buffer, store_schema=False)
    assert len(buffer.getvalue()) < 100_000
    with pytest.raises(ResultError, match=r"has 60000000 bytes of text in a column, at most"):
        read(buffer.getvalue())


def test_damage_is_no_panic() -> None:
    data = _GOOD.read_bytes()
    with pytest.raises(ResultError, match=r"b1.parquet: is damaged: "):
        read(data[: len(data) // 2])
