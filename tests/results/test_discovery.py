"""A discovery survives its files, whatever its names look like, and damage is one sentence."""

import csv
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holotype.errors import InputError
from holotype.results.describe import burst_counts
from holotype.results.discovery import (
    DISCOVERY_FILE,
    DISCOVERY_SCHEMA,
    FEATURES,
    IMAGE_TABLE_COLUMNS,
    Discovery,
    EditState,
    RunFacts,
    category_name,
    read_features,
    weighted_sizes,
    write_features,
)
from holotype.utils.serialization import SchemaError, from_dict, read_json, to_dict, write_parquet
from tests.discovery.made_round import made_discovery

ODD = ["=cmd()", "<script>alert(1)</script>", 'a "quoted", name', "Käfer ✓"]


def small() -> Discovery:
    found = made_discovery("run-1", {"new-01": [0], **{name: [i + 1] for i, name in enumerate(ODD[1:])}},
        tuple(ODD[1:]), [f"folder with space/{i}.png" for i in range(4)])  # fmt: skip
    found.images["probability"], found.images["x"] = [0.5, 0.6, 0.7, np.nan], [0.0, 1.0, np.nan, 2.0]
    facts = RunFacts(seed=3, title=ODD[0])
    return replace(found.called({"new-01": ODD[0]}), count={"best": 4}, facts=facts)


def test_it_comes_back_as_it_was(tmp_path):
    found = small()
    found.save(tmp_path)
    again = Discovery.load(tmp_path)
    pd.testing.assert_frame_equal(again.images, found.images[[*IMAGE_TABLE_COLUMNS]])
    for name in ("run_id", "known", "count", "facts"):
        assert getattr(again, name) == getattr(found, name)
    assert repr(again.categories) == repr(found.categories)
    assert again.category("new-01").name == ODD[0]
    assert list(pd.read_csv(tmp_path / "assignments.csv").columns) == list(IMAGE_TABLE_COLUMNS)


def test_a_carriage_return_in_a_name_begins_no_row(tmp_path):
    """Before Python 3.13 its csv module left one bare, so that what follows it was a cell of its own: a formula."""
    found = small()
    found.images["path"] = ["a\r=1+1", *found.images["path"][1:]]
    found.save(tmp_path)
    with (tmp_path / "assignments.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.reader(stream))
    assert [len(row) for row in rows] == [len(IMAGE_TABLE_COLUMNS)] * 5
    assert rows[1][0] == "a\r=1+1"


def test_a_kill_between_the_tables_leaves_no_old_one_for_people(tmp_path, monkeypatch):
    """The parquet file is the one that is read: as long as it is old, everything is written again."""
    small().save(tmp_path)
    new = small()
    new.images["note"] = "new"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holotype.results.discovery.write_parquet", killed)
    with pytest.raises(KeyboardInterrupt):
        new.save(tmp_path)
    assert "new" not in set(Discovery.load(tmp_path).images["note"])
    assert set(pd.read_csv(tmp_path / "assignments.csv")["note"]) == {"new"}


def test_what_is_not_a_run_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="There is no folder"):
        Discovery.load(tmp_path / "absent")
    with pytest.raises(InputError, match="holds no run"):
        Discovery.load(tmp_path)
    (tmp_path / "identity.json").write_text("{}")
    with pytest.raises(InputError, match="is not finished"):
        Discovery.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 1}, r"discovery\.json was written by another version \(format 1, not 3\)"),
        ({"run_id": 3}, "run_id is 3, not text"),
        ({"facts": {}}, r"facts\.\w+ is missing"),
        ({"facts": None}, "facts is None, not a group of keys"),
        ({"categories": [{"id": "a"}]}, r"categories\[0\]\.name is missing"),
        ({"categories": 1}, "categories is 1, not a list"),
        ({"more": 1}, "more is not known"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
    ],
)
def test_a_file_of_another_kind_is_one_sentence(tmp_path, change, says):
    small().save(tmp_path)
    content = read_json(tmp_path / DISCOVERY_FILE)
    assert content["format"] == DISCOVERY_SCHEMA.format
    text = change if isinstance(change, str) else json.dumps({**content, **change})
    (tmp_path / DISCOVERY_FILE).write_text(text)
    with pytest.raises(InputError, match=says) as told:
        Discovery.load(tmp_path)
    assert str(tmp_path / DISCOVERY_FILE) in str(told.value)
    assert "another folder" in str(told.value)
    assert "\n" not in str(told.value)


def test_assignments_that_lack_a_column_are_told(tmp_path):
    found = small()
    found.save(tmp_path)
    write_parquet(tmp_path / "assignments.parquet", pa.Table.from_pandas(found.images.drop(columns="note")))
    with pytest.raises(InputError, match="has no column note"):
        Discovery.load(tmp_path)
    (tmp_path / "assignments.parquet").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        Discovery.load(tmp_path)


def test_categories_are_called_as_people_call_them() -> None:
    found = made_discovery("r", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    named = found.called({"new-02": "hats", "new-09": "gone"})
    assert [c.name for c in named.categories] == ["a", "new-01", "hats"]
    assert list(named.images.category[[0, 4, 8]]) == ["a", "new-01", "hats"]
    assert found.category("new-02").name == "new-02"
    # two that claim one name: nobody may take one for the other
    both = found.called({"new-01": "hats", "new-02": "hats"})
    assert [c.name for c in both.categories] == ["a", "hats", "new-02"]
    other = found.called({"new-01": "new-02"})
    assert [c.name for c in other.categories] == ["a", "new-02", "new-02 (2)"]


def test_numbers_that_mean_something_else_are_not_given_again() -> None:
    names = [category_name(i, ("a",), 3, ("new-01", "hats", "new-3")) for i in range(-1, 3)]
    assert names == ["", "a", "new-02", "new-04"]


MADE = RunFacts(
    title="=photos", root="photos", method="rpc", k=5, seconds={"training": 1.5},
    earlier_runs=("r-1",), provenance={"backbone": {"name": "embedded", "caveat": "small"}},
    edits=EditState(["abc"], ["d"], {"new-01": "new-02"}, ["new-03"], {"new-04": {"name": "x"}}, {"d1": "robin"}),
)  # fmt: skip


def test_facts_come_back_as_they_were_and_what_is_wrong_is_told() -> None:
    for facts in (MADE, RunFacts()):
        assert from_dict(RunFacts, json.loads(json.dumps(to_dict(facts)))) == facts
    assert (MADE.backbone["caveat"], RunFacts().backbone) == ("small", {})
    for change, words in (
        ({"edits": vars(EditState()) | {"merged": 3}}, r"edits\.merged is 3"),
        ({"scores": {"all": 1.0}}, "scores is not known"),
    ):
        with pytest.raises(SchemaError, match=words):
            from_dict(RunFacts, to_dict(MADE) | change)
    for key in ("k", "root", "edits"):
        with pytest.raises(SchemaError, match=f"{key} is missing"):
            from_dict(RunFacts, {name: value for name, value in to_dict(MADE).items() if name != key})


def test_weights_are_summed_by_category() -> None:
    images = pd.DataFrame({"category_id": ["a", "b", "a", ""], "weight": [2.5, 1.0, 4.0, 9.0]})
    assert weighted_sizes(images) == {"a": 6, "b": 1}
    assert burst_counts(images, ["a", "b", "empty"])["in_collection"] == ["6", "1", "0"]
    images = pd.DataFrame({"category_id": ["a"]})  # no sample
    assert weighted_sizes(images) == {}
    assert "in_collection" not in burst_counts(images, ["a"])


def test_features_come_back_in_half_precision_and_only_those_of_these_images(tmp_path) -> None:
    assert read_features(tmp_path, 5) is None
    features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    features[2] = np.nan
    write_features(tmp_path, features)
    found = read_features(tmp_path, 5)
    assert found is not None
    assert found.dtype == np.float16
    assert np.allclose(found, features, atol=2e-3, equal_nan=True)
    assert read_features(tmp_path, 4) is None
    (tmp_path / FEATURES).write_bytes(b"cut off")
    assert read_features(tmp_path, 5) is None


def test_every_flipped_bit_is_noticed_and_said(tmp_path, caplog) -> None:
    write_features(tmp_path, np.ones((2, 3)))
    whole = (tmp_path / FEATURES).read_bytes()
    for place in range(len(whole)):
        caplog.clear()
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        (tmp_path / FEATURES).write_bytes(flipped)
        assert read_features(tmp_path, 2) is None
        assert f"{FEATURES} was damaged" in caplog.text
