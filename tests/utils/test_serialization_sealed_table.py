"""Tables of ours: no bit can be flipped in them so that other values are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from holotype.utils.serialization import (
    TABLE_CHECKSUM_KEY,
    CorruptFile,
    read_parquet_table,
    table_checksum,
    write_parquet,
)


def table(n: int = 6, d: int = 4) -> pa.Table:
    feature = np.random.default_rng(0).random((n, d), dtype=np.float32)
    feature[0, 0] = np.nan
    columns = {
        "path": [f"Vögel/{i}.png" for i in range(n)],
        "feature": pa.FixedSizeListArray.from_arrays(pa.array(feature.ravel()), d),
        "note": ["", None, *("x" * i for i in range(n - 2))],
        "size": np.arange(n),
        "here": [True] * n,
        "purity": [np.nan, None, *np.linspace(0, 1, n - 2)],
    }
    return pa.table(columns).replace_schema_metadata({b"holotype": b'{"root": "a"}', b"other": b"b"})


def test_what_was_written_comes_back(tmp_path):
    write_parquet(tmp_path / "deep" / "a.parquet", table())
    found = read_parquet_table(tmp_path / "deep" / "a.parquet")
    assert table_checksum(found) == table_checksum(table())
    assert found["path"].to_pylist() == table()["path"].to_pylist()
    assert found["feature"].combine_chunks().flatten().to_numpy().tobytes() == (
        table()["feature"].combine_chunks().flatten().to_numpy().tobytes()
    )


def test_no_flipped_bit_gives_other_values(tmp_path):
    file = tmp_path / "a.parquet"
    write_parquet(file, table())
    whole, noticed = file.read_bytes(), 0
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        try:
            found = read_parquet_table(file)
        except CorruptFile:
            noticed += 1
            continue
        assert table_checksum(found.replace_schema_metadata()) == table_checksum(
            table().replace_schema_metadata()
        )
    assert noticed > len(whole) // 9


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_what_is_no_table_is_broken(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(CorruptFile):
        read_parquet_table(tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError):
        read_parquet_table(tmp_path / "b.parquet")


def test_another_value_name_or_entry_has_another_checksum():
    one = table()
    others = [
        one.rename_columns(["p", *one.column_names[1:]]),
        one.slice(1),
        one.set_column(3, "size", [np.arange(6) + 1]),
        one.replace_schema_metadata({b"holotype": b'{"root": "b"}'}),
    ]
    assert len({table_checksum(each) for each in (one, *others)}) == 5
    assert table_checksum(
        one.replace_schema_metadata({b"holotype": b'{"root": "a"}', TABLE_CHECKSUM_KEY: b"x"})
    ) == table_checksum(one)
