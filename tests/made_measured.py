"""Makes a simulated result say that it was measured, for tests of what needs a measured one."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from tunnelmark.model.block import Stratum
from tunnelmark.model.tunnel import DataPath
from tunnelmark.store import Writer, open_result


def as_measured(directory: Path, path: DataPath) -> None:
    """Make a simulated result say that it was measured."""
    result = open_result(directory)
    writer = Writer(directory)
    try:
        for block_id, block in result.blocks.items():
            agreed = tuple(replace(one, data_path=path) for one in block.negotiated)
            writer.write_block(replace(block, negotiated=agreed, stratum=Stratum.NAMESPACES))
            frame = result.trials().filter(pl.col("block_id") == block_id)
            writer.write_trials(block_id, frame.with_columns(stratum=pl.lit("namespaces")))
    finally:
        writer.close()
