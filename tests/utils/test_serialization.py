"""Files of ours come back as they were; what is cut, changed or of another version is named."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from holotype.errors import InputError
from holotype.utils.serialization import (
    CorruptFile,
    FileSchema,
    SchemaError,
    dump_json,
    from_dict,
    read_json,
    read_parquet_table,
    table_checksum,
    to_dict,
    write_parquet,
)

CONTENT = {"k": 12, "lr": 0.1 + 0.2, "name": "Vögel “a”", "none": None, "sizes": (1, 2), "infinite": math.inf}
CONTENT["deep"] = {"b": [1, 2, {"a": True}], "0": -0.0}
FORM = FileSchema(3, "restore it from a copy")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    FORM.write(tmp_path / "deep" / "a.json", CONTENT)
    return tmp_path / "deep" / "a.json"


@pytest.mark.parametrize("content", [0, 1, 10, 60, b"[1]", b"7", b"\xff\xfe{}", None])
def test_what_is_cut_or_no_file_of_ours_or_gone_is_told(file: Path, content: bytes | int | None) -> None:
    file.write_bytes(file.read_bytes()[:content] if isinstance(content, int) else content or b"")
    if content is None:
        file.unlink()
    with pytest.raises(InputError, match=r"a\.json cannot be read \(.*\); restore it from a copy\."):
        FORM.read(file)
    for version in (2, "3", None):
        file.write_text(json.dumps({"k": 1} | ({"format": version} if version else {})))
        with pytest.raises(InputError, match=rf"a\.json .*format {version}, not 3"):
            FORM.read(file)


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    k: int | None
    rate: float
    mode: Literal["fast", "slow"]
    inner: Inner
    place: tuple[str, int]
    by_name: dict[str, float] = field(default_factory=dict)
    told: bool = False
    anything: Any = None


OUTER = Outer(3, 0.1 + 0.2, "slow", Inner("Käfer", (1, 2)), ("a", 1), {"x": 1.5}, True, {"a": [1]})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"k": "many"}, "k is 'many', not a whole number"),
        ({"k": True}, "k is True, not a whole number"),
        ({"rate": "0.1"}, "rate is '0.1', not a number"),
        ({"mode": "medium"}, "mode is 'medium', not one of fast, slow"),
        ({"inner": []}, "inner is [], not a group of keys"),
        ({"inner": {"name": "a", "sizes": [1, "2"]}}, "inner.sizes[1] is '2', not a whole number"),
        ({"inner": {"sizes": []}}, "inner.name is missing"),
        ({"place": ["a"]}, "place holds 1 values, not 2"),
        ({"place": "ab"}, "place is 'ab', not a list"),
        ({"by_name": {"x": None}}, "by_name.x is None, not a number"),
        ({"told": 1}, "told is 1, not true or false"),
        ({"extra": 1}, "extra is not known"),
    ],
)
def test_a_dataclass_comes_back_and_what_is_wrong_is_told_by_its_key(file, change: dict, says: str) -> None:
    content = json.loads(json.dumps(to_dict(OUTER))) | change
    FORM.write(file, content)
    if not says:
        assert from_dict(Outer, content) == FORM.make(file, Outer) == OUTER
        return
    with pytest.raises(SchemaError) as error:
        from_dict(Outer, content)
    assert str(error.value) == says
    with pytest.raises(InputError, match=r"a\.json cannot be read .* restore it from a copy\."):
        FORM.make(file, Outer)


def test_what_was_written_comes_back_and_keys_with_a_default_may_be_missing(file: Path) -> None:
    content = to_dict(OUTER)
    del content["told"]
    with pytest.raises(SchemaError, match="told is missing"):
        from_dict(Outer, content)
    assert from_dict(Outer, content, every=False).told is False
    with pytest.raises(SchemaError, match="not a group of keys"):
        from_dict(Outer, None)
    assert FORM.read(file) == CONTENT | {"sizes": [1, 2]}
    found = json.loads(file.read_text())
    assert list(found) == ["format", *CONTENT]
    assert "Vögel" in file.read_text()
    file.write_text(json.dumps(dict(sorted(found.items())), indent=4))  # as somebody may indent it anew
    assert FORM.read(file)["k"] == 12
    assert json.loads(dump_json(CONTENT, indent=None)) == json.loads(dump_json(CONTENT))


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


def test_a_table_comes_back_and_no_flipped_bit_gives_other_values(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "a.parquet"
    write_parquet(file, table())
    found = read_parquet_table(file)
    assert table_checksum(found) == table_checksum(table())
    columns = ["path", "note", "size", "here"]
    assert found.select(columns).equals(table().select(columns))
    whole, noticed = file.read_bytes(), 0
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        try:
            found = read_parquet_table(file).replace_schema_metadata()
        except CorruptFile:
            noticed += 1
            continue
        assert table_checksum(found) == table_checksum(table().replace_schema_metadata())
    assert noticed > len(whole) // 9


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_what_is_no_table_is_broken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    for read in (read_parquet_table, read_json):
        with pytest.raises(CorruptFile):
            read(tmp_path / "a.parquet")
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "b.parquet")
