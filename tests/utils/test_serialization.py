"""Files of ours: what is cut or of another version is told by the name of the file, and never believed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import pytest

from holotype.errors import InputError
from holotype.utils.serialization import CorruptFile, FileSchema, dump_json, read_json

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
