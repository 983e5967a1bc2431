"""A parquet file is compared with its twin without unpacking more than the twin holds."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medlive.snapshot.model import Column
from medlive.snapshot.parquet import (
    CANARY_KEY,
    ROWS_PER_GROUP,
    compare_twins,
    schema,
)


@pytest.mark.thorough
def test_a_long_entry_in_every_row_is_not_unpacked(tmp_path: Path) -> None:
    fields = [Column(name=n, type="string") for n in ("case_id", "narrative")]
    texts = [*[""] * (ROWS_PER_GROUP - 1), "x" * 1_000_000]
    bomb = pa.DictionaryArray.from_arrays(
        pa.array([0] * ROWS_PER_GROUP, pa.int32()), pa.array(texts[-1:])
    )
    ids = pa.array(["a"] * ROWS_PER_GROUP)
    typed = pa.schema(
        [
            pa.field("case_id", pa.string(), False),
            pa.field("narrative", bomb.type, False),
        ]
    )
    with pq.ParquetWriter(
        tmp_path / "x.parquet", typed, store_schema=False, compression="zstd"
    ) as writer:
        writer.write_table(pa.table({"case_id": ids, "narrative": bomb}, schema=typed))
        writer.add_key_value_metadata({CANARY_KEY: "canary"})
    assert (
        pq.read_schema(tmp_path / "x.parquet").remove_metadata().equals(schema(fields))
    )
    rows = [json.dumps({"case_id": "a", "narrative": text}) + "\n" for text in texts]
    (tmp_path / "x.jsonl").write_text("".join(rows))

    with (
        (tmp_path / "x.parquet").open("rb", 0) as source,
        (tmp_path / "x.jsonl").open("rb", 0) as twin,
    ):
        comparison = source.fileno(), twin.fileno(), fields, "canary"
        (fault,) = compare_twins([comparison])
    assert isinstance(fault, ValueError)
