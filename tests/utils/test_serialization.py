"""Files of ours come back as they were; what is cut, changed or of another version is named."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from holotype.errors import InputError
from holotype.utils.serialization import (
    TABLE_CHECKSUM_KEY,
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

CONTENT = {
    "k": 12,
    "lr": 0.1 + 0.2,
    "name": "Vögel “a”",
    "none": None,
    "deep": {"b": [1, 2, {"a": True}], "0": -0.0},
    "sizes": (1, 2),
}
FORM = FileSchema(3, "restore it from a copy")


@dataclass(frozen=True)
class Small:
    k: int
    names: tuple[str, ...] = ()
    part: dict[str, float] = field(default_factory=dict)


def test_what_was_written_comes_back(tmp_path):
    file = tmp_path / "deep" / "file.json"
    FORM.write(file, CONTENT)
    assert FORM.read(file) == CONTENT | {"sizes": [1, 2]}
    assert list(json.loads(file.read_text())) == ["format", *CONTENT]
    assert "Vögel" in file.read_text()


def test_numbers_that_json_does_not_know_come_back(tmp_path):
    FORM.write(tmp_path / "a.json", {"x": math.inf, "y": math.nan})
    found = FORM.read(tmp_path / "a.json")
    assert found["x"] == math.inf
    assert math.isnan(found["y"])


def test_a_file_may_be_indented_anew(tmp_path):
    FORM.write(tmp_path / "a.json", CONTENT)
    found = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps(dict(sorted(found.items())), indent=4))
    assert FORM.read(tmp_path / "a.json")["k"] == 12
    assert json.loads(dump_json(CONTENT, indent=None)) == json.loads(dump_json(CONTENT))


@pytest.mark.parametrize("cut", [0, 1, 10, 60])
def test_a_file_that_was_cut_is_told(tmp_path, cut):
    FORM.write(tmp_path / "a.json", CONTENT)
    whole = (tmp_path / "a.json").read_bytes()
    (tmp_path / "a.json").write_bytes(whole[:cut])
    with pytest.raises(InputError, match=r"a\.json cannot be read \(it is .*\); restore it from a copy\."):
        FORM.read(tmp_path / "a.json")


@pytest.mark.parametrize("content", [b"[1]", b"7", b"\xff\xfe{}"])
def test_what_is_no_file_of_ours_is_told(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json cannot be read"):
        FORM.read(tmp_path / "a.json")


def test_a_file_that_is_gone_is_told(tmp_path):
    with pytest.raises(InputError, match=r"a\.json cannot be read \(No such file or directory\)"):
        FORM.read(tmp_path / "a.json")


@pytest.mark.parametrize("version", [2, 9, "3", None])
def test_another_version_is_named(tmp_path, version):
    (tmp_path / "a.json").write_text(json.dumps({"k": 1} | ({"format": version} if version else {})))
    with pytest.raises(InputError, match=rf"a\.json .*format {version}, not 3"):
        FORM.read(tmp_path / "a.json")


def test_wrong_types_and_missing_keys_are_told_by_their_key(tmp_path):
    file = tmp_path / "a.json"
    FORM.write(file, {"k": 1, "names": ["a"]})
    assert FORM.make(file, Small, every=False) == Small(1, ("a",))
    for content, said in (
        ({"names": []}, "k is missing"),
        ({"k": "many"}, "k is 'many', not a whole number"),
        ({"k": 1, "names": [2]}, r"names\[0\] is 2, not text"),
        ({"k": 1, "part": {"x": []}}, r"part\.x is \[\], not a number"),
        ({"k": 1, "other": 2}, "other is not known"),
    ):
        FORM.write(file, content)
        with pytest.raises(InputError, match=rf"a\.json cannot be read \({said}\); restore it from a copy\."):
            FORM.make(file, Small, every=False)
    file.write_text("{")
    with pytest.raises(CorruptFile):
        read_json(file)


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


MADE = Outer(3, 0.1 + 0.2, "slow", Inner("Käfer", (1, 2)), ("a", 1), {"x": 1.5}, True, {"a": [1]})


def test_it_comes_back_as_it_was() -> None:
    assert from_dict(Outer, json.loads(json.dumps(to_dict(MADE)))) == MADE


@pytest.mark.parametrize(
    ("change", "says"),
    [
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
def test_what_is_wrong_is_told_by_its_key(change: dict, says: str) -> None:
    with pytest.raises(SchemaError) as told:
        from_dict(Outer, to_dict(MADE) | change)
    assert str(told.value) == says


def test_keys_with_a_default_may_be_missing_where_that_is_said() -> None:
    content = to_dict(MADE)
    del content["told"]
    with pytest.raises(SchemaError, match="told is missing"):
        from_dict(Outer, content)
    assert from_dict(Outer, content, every=False).told is False
    for content in (None, 3, [], "text"):
        with pytest.raises(SchemaError, match="not a group of keys"):
            from_dict(Outer, content)


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


def test_a_table_comes_back(tmp_path):
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
