"""The run folder: whose it is, what is written into it, and that a bad moment leaves what was there."""

from __future__ import annotations

import errno
import json
import os

import pandas as pd
import pytest
import yaml

from holotype.config.parse import plain_tree
from holotype.errors import InputError
from holotype.results.discovery import category_name
from holotype.runs.identity import Identity
from holotype.runs.record import RunFolder, read_per_class
from holotype.runs.resolve import resolve
from holotype.training.checkpoint import MetricsLog
from tests.made_study import made_identity, made_record

IDENTITY = made_identity(resolve("rpc", "cub", overrides={"cache_views": "16+8"}))


# -- whose folder it is -------------------------------------------------------------------------------


def changed(path: str, value: object) -> Identity:
    return made_identity(resolve("rpc", "cub", overrides={"cache_views": "16+8"}), {path: value})


def test_a_folder_takes_its_own_run_back(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim(IDENTITY)  # an empty folder is anybody's
    folder.write_json("identity.json", IDENTITY.as_dict())
    folder.claim(IDENTITY)


def test_tuples_within_tuples_come_back_as_well(tmp_path):
    """What a method's settings hold is as JSON would give it back."""
    layers = {"layers": ((8, "relu"), (4, None)), "by_name": {"a": {"b": (1,)}}, "weight": 0.1 + 0.2}
    identity = changed("method.settings", plain_tree(layers))
    RunFolder(tmp_path).write_json("identity.json", identity.as_dict())
    RunFolder(tmp_path).claim(identity)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 1),
        ("engine", 9),
        ("views", "off"),
        ("data.k", 7),
        ("data.table", "another"),
        ("backbone.digest", "another"),
        ("method.name", "simgcd"),
        ("method.revision", 1),
        ("method.settings.pairing.filter", "none"),
        ("method.settings.ova.weight", 0.3),
        ("train.lr", 2e-5),
        ("train.added", True),
    ],
)
def test_another_run_is_refused_by_the_name_of_what_differs(tmp_path, path, value):
    """The revision among them: a run that an older version began is not carried on by this one."""
    RunFolder(tmp_path).write_json("identity.json", IDENTITY.as_dict())
    with pytest.raises(InputError) as refused:
        RunFolder(tmp_path).claim(changed(path, value))
    assert f"{path} = " in str(refused.value)
    assert repr(value) in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_setting_that_only_the_old_run_had_is_a_difference(tmp_path):
    RunFolder(tmp_path).write_json("identity.json", changed("train.dropped", 3).as_dict())
    with pytest.raises(InputError, match=r"train\.dropped"):
        RunFolder(tmp_path).claim(IDENTITY)


@pytest.mark.parametrize("content", [b"", b'{"seed": 0', b"\xff\xfe{}", b"[1, 2]", b"{}", b'{"format": 9}'])
def test_an_identity_that_cannot_be_read_is_said(tmp_path, content):
    (tmp_path / "identity.json").write_bytes(content)
    with pytest.raises(InputError, match=r"identity\.json"):
        RunFolder(tmp_path).claim(IDENTITY)


def test_a_run_is_finished_when_its_scores_are_there(tmp_path):
    folder = RunFolder(tmp_path / "not" / "there")
    assert folder.finished() is None
    record = made_record(IDENTITY, 100 * (0.1 + 0.2), 50, variant="Vögel “a”")
    folder.write_json("scores.json", record.as_dict())
    assert folder.finished() == record
    for wrong in ('{"all": 0.', "{}", '{"all": 0.5, "seed": 0}'):
        (folder.path / "scores.json").write_text(wrong)
        with pytest.raises(InputError, match=r"scores\.json (cannot be read|is no record)"):
            folder.finished()


def test_the_classes_come_back_as_they_were_written(tmp_path):
    rows = [
        {"class": 'grey, "robin"', "kind": "known", "n": 3, "correct": 1, "accuracy": 1 / 3, "category": 0},
        {"class": "ё 鳥", "kind": "novel", "n": 4, "correct": 0, "accuracy": 0.0, "category": None},
    ]
    RunFolder(tmp_path).write_per_class(rows)
    found = read_per_class(tmp_path / "per_class.csv")
    assert [{**row, "accuracy": float(row["accuracy"])} for row in found] == rows
    frame = pd.read_csv(tmp_path / "per_class.csv")
    assert list(frame.columns) == ["class", "kind", "n", "correct", "accuracy", "category"]


@pytest.mark.parametrize(
    "content", ["class,kind\na,known\n", "class,n,correct,category\na,many,1,0\n", "n\n\x00\n"]
)
def test_classes_that_cannot_be_read_are_told(tmp_path, content):
    (tmp_path / "per_class.csv").write_text(content)
    with pytest.raises(InputError, match=r"per_class\.csv cannot be read"):
        read_per_class(tmp_path / "per_class.csv")


def test_the_config_reads_as_plain_yaml(tmp_path):
    config = {"dataset": "Käfer: 1", "k": None, "train": {"lr": 1e-5, "sizes": [1, 2]}, "progress": True}
    RunFolder(tmp_path).write_config(config)
    text = (tmp_path / "config.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == config
    assert text.index("dataset") < text.index("train") < text.index("progress")
    assert "Käfer" in text


# -- names of categories ------------------------------------------------------------------------------


def test_names_of_categories_are_all_different_and_sort_as_they_are_numbered():
    for k, first, last in ((60, "new-01", "new-58"), (101, "new-01", "new-99"), (102, "new-001", "new-100")):
        names = [category_name(index, ("b", "a"), k) for index in range(k)]
        assert names[:3] == ["b", "a", first]
        assert names[-1] == last
        assert len(set(names)) == k
        assert names[2:] == sorted(names[2:])
    assert category_name(-1, ("b", "a"), 60) == ""


def test_a_class_that_was_new_in_an_earlier_run_keeps_its_name_to_itself():
    """Somebody labels the images of new-01 and new-03 with these very names and looks for more."""
    known = ("new-01", "robin", "new-03")
    for k in (8, 200):  # with 200 the new ones have three digits: new-001 beside new-01 would only confuse
        names = [category_name(index, known, k) for index in range(k)]
        assert names[:3] == list(known)
        numbers = [int(name.removeprefix("new-")) for name in names if name != "robin"]
        assert len(set(numbers)) == k - 1
        assert names[3:] == sorted(names[3:])


# -- the log ------------------------------------------------------------------------------------------


def test_rewinding_drops_what_came_after_the_state(tmp_path):
    metrics = MetricsLog(tmp_path / "deep" / "metrics.jsonl")
    metrics.rewind(5)  # nothing there, nothing to do
    assert not metrics.path.exists()
    for counter in (3, 6, 6, 9):
        metrics.append(kind="epoch", counter=counter, loss=0.1 + 0.2)
    metrics.path.open("a").write('{"kind": "epoch", "counter": 1')  # cut by a kill
    metrics.rewind(6)
    metrics.append(kind="epoch", counter=7, loss=None)
    lines = [json.loads(line) for line in metrics.path.read_text().splitlines()]
    assert [line["counter"] for line in lines] == [3, 6, 6, 7]
    assert lines[0]["loss"] == 0.1 + 0.2


def test_lines_that_are_not_ours_are_dropped(tmp_path):
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.append(kind="epoch", counter=1)
    whole = metrics.path.read_bytes()
    with metrics.path.open("ab") as file:
        file.write(b'5\n[1]\nnull\n{"counter": "two"}\n{"counter": null}\n\xff\xfe\n[\n')
    metrics.rewind(6)
    assert metrics.path.read_bytes() == whole


def test_rewinding_keeps_the_lines_as_they_were(tmp_path):
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.append(counter=1, stage="vögel", loss=1e-30)
    before = metrics.path.read_bytes()
    metrics.rewind(1)
    assert metrics.path.read_bytes() == before


# -- a full disk --------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr("holotype.utils.atomic.os.fsync", full)


def test_a_full_disk_keeps_the_old_files(tmp_path, full_disk):
    folder, metrics = RunFolder(tmp_path), MetricsLog(tmp_path / "metrics.jsonl")

    def write(value: float) -> list:
        return [
            lambda: folder.write_config({"lr": value}),
            lambda: folder.write_json("scores.json", {"all": value}),
        ]

    metrics.append(counter=1)
    for action in write(0.25):
        action()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    full_disk()
    for action in [*write(0.75), lambda: metrics.rewind(0)]:
        with pytest.raises(InputError, match="No space left on device"):
            action()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_log_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"metrics\.jsonl could not be written"):
        MetricsLog(tmp_path / "file" / "metrics.jsonl").append(counter=1)
