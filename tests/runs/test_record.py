"""What a run says of itself: scores made by hand, a record that survives a file, and nothing less for one."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from holotype.clustering.metrics import SCORES, clustering_accuracy, score
from holotype.config.parse import plain_tree
from holotype.data.image_store import ImageStore
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Prediction
from holotype.results.discovery import category_name
from holotype.runs.identity import Identity
from holotype.runs.record import (
    RECORD_FORMAT,
    AssignedCounts,
    Record,
    Records,
    RunFolder,
    RunMeta,
    Scores,
    check_agree,
    check_law,
    count_assigned,
    read_per_class,
    read_record,
    score_held_out,
    score_table,
)
from holotype.runs.resolve import resolve
from holotype.runs.resources import ResourceCache
from holotype.runs.run import Run, begin_run, finish_run
from holotype.training.checkpoint import MetricsLog
from holotype.training.divergence import Restart
from holotype.training.views import evaluation_features
from holotype.utils.serialization import read_json
from tests.made_study import made_identity, made_record
from tests.training.conftest import N_KNOWN
from tests.training.conftest import world as world  # the fixture of the folder train


def small_table(label: str = "a") -> Table:
    columns = [["0.png", "1.png", "2.png"], [label, "b", ""]]
    return Table(*(np.array(x, dtype=object) for x in columns), ("a", "b"), name="three")


# -- scores -------------------------------------------------------------------------------------------


def test_without_truth_every_score_is_none():
    nowhere = torch.full((3,), float("nan"))
    found = score_table(small_table(), Prediction(torch.tensor([0, 1, 2]), nowhere, nowhere))
    assert {key: found[key] for key in SCORES} == dict.fromkeys(SCORES)
    assert (found["n"], found["per_class"]) == (0, [])


@pytest.fixture(scope="module")
def trained(world):
    loop = world.loop("kmeans", k=5)
    return loop, loop.fit()


def test_with_truth_the_scores_are_those_of_evaluate(world, trained):
    _, prediction = trained
    assert score_table(world.table, prediction) == score(
        world.table, prediction.category.numpy(), prediction.known_score.numpy()
    )


@pytest.fixture
def held_out_table(world, tmp_path) -> Table:
    """21 of the training images without their labels, and a file among them that is no image."""
    (tmp_path / "broken.png").write_text("no image")
    rows = np.arange(1, 43, 2)
    path = np.array([*world.table.path[rows[:9]], str(tmp_path / "broken.png"), *world.table.path[rows[9:]]])
    truth = [f"colour {row // 12}" for row in rows]
    truth.insert(9, "colour 1")
    blank = np.full(len(path), "", dtype=object)
    return Table(path, blank, world.table.known, truth=np.array(truth, dtype=object), name="held out")


def test_held_out_images_are_scored_as_by_hand(world, trained, held_out_table):
    loop, _ = trained
    source = loop.source
    found = score_held_out(loop, *readable(held_out_table))
    rows = torch.arange(1, 43, 2)
    features = evaluation_features(source, rows)
    true = rows.numpy() // 12
    category = [int(loop.method.predict(feature[None]).category) for feature in features]
    accuracy = clustering_accuracy(true, category, N_KNOWN)
    assert found.n == 21  # all but the broken one
    assert (found.all, found.old, found.new) == (accuracy.all, accuracy.old, accuracy.new)
    known = true < N_KNOWN
    assert found.share_old == known.mean()
    assert found.known_accuracy == (np.array(category)[known] == true[known]).mean()
    assert loop.source is source  # the loop goes on with its own images


def readable(table: Table) -> tuple[Table, ImageStore]:
    store = ImageStore.decode(list(table.path), 32, progress=False)
    return table.with_problems(store.problem), store


def test_held_out_images_that_cannot_be_read_at_all(trained, tmp_path):
    loop, _ = trained
    (tmp_path / "broken.png").write_text("no image")
    columns = [[str(tmp_path / "broken.png")], [""]]
    test = Table(
        *(np.array(x, dtype=object) for x in columns),
        known=loop.table.known,
        truth=np.array(["colour 0"], dtype=object),
    )
    found = score_held_out(loop, *readable(test))
    assert (found.n, found.all) == (0, None)


# -- the record of a run ------------------------------------------------------------------------------


@pytest.fixture
def made(squares_folder, tiny_backbone_file, tmp_path):
    """The record of a short run."""

    def make(
        method: str = "simgcd", dataset: Path = squares_folder / "squares.csv", **settings: Any
    ) -> Record:
        overrides: dict[str, Any] = {"k": 4, "device": "cpu", "progress": False, "out": str(tmp_path / "run")}
        overrides |= {"backbone.name": str(tiny_backbone_file), "train.batch_size": 16, "cache_views": "off"}
        overrides |= {"train.epochs": 1}
        overrides |= {key.replace("__", "."): value for key, value in settings.items()}
        run = begin_run(resolve(method, str(dataset), overrides=overrides), ResourceCache())
        assert isinstance(run, Run)
        return finish_run(run, run.loop.fit(), 1.25, parallel=1)

    return make


@pytest.mark.parametrize(
    ("method", "train_epochs", "epochs"),
    [("kmeans", 2, 0), ("simgcd", 3, 3), ("tests.training.stubs:TwoStages", 9, 2 + 1)],
)
def test_epochs_are_those_of_all_stages(made, method, train_epochs, epochs):
    assert made(method, train__epochs=train_epochs).made.epochs == epochs


def test_a_record_says_what_was_run_and_how_it_was_scored(made, tmp_path):
    found = made(seed=3, out=str(tmp_path / "one"))
    identity = found.identity
    assert (identity.method["name"], identity.data["name"], identity.seed) == ("simgcd", "squares", 3)
    assert (identity.backbone["name"], identity.backbone["train_blocks"]) == ("tiny", 1)
    assert (identity.train["precision"], identity.views, identity.data["k"]) == ("fp32", "off", 4)
    how = found.made
    assert (how.variant, how.mode, how.captured, how.processes, how.parallel) == (
        "default",
        "exact",
        {"train": False},
        1,
        1,
    )
    assert (how.seconds, how.cache_seconds) == (1.2, 0.0)
    r = found.scores.share_old
    assert (found.scores.n, r) == (48, 1 / 3)
    assert found.scores.all == pytest.approx(r * found.scores.old + (1 - r) * found.scores.new, abs=1e-12)
    assert found.placed is not None
    assert found.placed.known + found.placed.novel == 48
    assert found.test is None
    assert found.key == (identity.hash, 3)
    assert read_json(tmp_path / "one" / "scores.json") == found.as_dict()
    other_seed, other_rate = (
        made(seed=4, out=str(tmp_path / "two")),
        made(seed=3, train__lr=0.7, out=str(tmp_path / "three")),
    )
    assert other_seed.identity.hash == identity.hash
    assert other_rate.identity.hash != identity.hash


def test_a_label_names_the_variant_and_changes_nothing_else(made, tmp_path):
    plain, labelled = (made(label=label, out=str(tmp_path / str(label))) for label in (None, "no-new"))
    assert (plain.made.variant, labelled.made.variant) == ("default", "no-new")
    assert timeless(plain, variant="no-new") == timeless(labelled)


def timeless(record: Record, **made: Any) -> Record:
    clocks = dict.fromkeys(("seconds", "wall_seconds", "decode_seconds", "cache_seconds"), 0.0)
    return dataclasses.replace(record, made=dataclasses.replace(record.made, **clocks, **made))


def test_where_the_unlabelled_images_went():
    """Two known classes; images 0 and 7 do not count, since they are labelled; 5 and 7 cannot be read."""
    label, problem = ["a", *[""] * 6, "b"], ["", "", "", "", "", "cut short", "", "cut short"]
    path = [f"{i}.png" for i in range(8)]
    columns = (np.array(x, dtype=object) for x in (path, label))
    table = Table(*columns, ("a", "b"), problem=np.array(problem, dtype=object))
    category = torch.tensor([0, 1, 0, 5, 5, -1, 2, -1])
    found = count_assigned(table, Prediction(category, torch.ones(8), torch.ones(8)))
    assert found == AssignedCounts(known=2, novel=3, novel_categories=2, unreadable=1)


def test_a_folder_without_truth_gives_a_record_without_scores(made, squares_folder):
    assert load_table(squares_folder).truth is None
    found = made(dataset=squares_folder)
    assert found.scores == Scores(None, None, None, None, 0)
    assert found.placed is not None
    check_law(found.scores, "")


def whole() -> Record:
    """A record in which nothing is missing."""
    record = made_record(
        made_identity(resolve("rpc", "cub")), 60, 50, captured={"train": True}, decode_seconds=2.5
    )
    scores = dataclasses.replace(record.scores, nmi=0.5, ari=0.25, auroc=0.75, known_accuracy=1)
    return dataclasses.replace(record, scores=scores, test=scores, placed=AssignedCounts(1, 2, 3, 4))


def test_a_record_survives_a_file():
    nothing = dataclasses.replace(whole(), scores=Scores(None, None, None, None, 0), placed=None, test=None)
    for record in (whole(), nothing):
        content = json.loads(json.dumps(record.as_dict()))
        assert content == record.as_dict()
        assert (content["format"], content["hash"]) == (RECORD_FORMAT, record.identity.hash)
        found = Record.from_dict(content, "scores.json")
        assert found == record
        assert (type(found.scores), type(found.made)) == (Scores, RunMeta)


def test_an_older_record_tells_of_captures_in_the_last_stage_alone():
    content = json.loads(json.dumps(whole().as_dict()))
    content["made"]["captured"] = False
    found = Record.from_dict(content, "scores.json")
    assert found.made.captured is False
    assert (found.identity, found.key) == (whole().identity, whole().key)
    assert found.as_dict() == content


def test_only_a_run_that_was_restarted_speaks_of_it():
    assert "restarts" not in whole().as_dict()
    restarted = dataclasses.replace(whole(), restarts=(Restart("train", 25, 23, 0.05),))
    content = json.loads(json.dumps(restarted.as_dict()))
    assert content["restarts"] == [{"stage": "train", "epoch": 25, "back_to": 23, "rate": 0.05}]
    assert {key: value for key, value in content.items() if key != "restarts"} == whole().as_dict()
    assert Record.from_dict(content, "scores.json") == restarted
    content["restarts"][0]["epoch"] = "late"
    with pytest.raises(
        InputError, match=r"^x\.json is no whole record of a run \(restarts\[0\]\.epoch is 'late'"
    ):
        Record.from_dict(content, "x.json")


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of everything in an object of objects, groups included."""
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def copy_and_holder(path: tuple[str, ...]) -> tuple[dict, dict]:
    content = json.loads(json.dumps(whole().as_dict()))
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    return content, holder


OPTIONAL = {
    *(
        ("made", field.name)
        for field in dataclasses.fields(RunMeta)
        if field.default is not dataclasses.MISSING
    ),
    *(
        (part, field.name)
        for part in ("scores", "test")
        for field in dataclasses.fields(Scores)
        if field.default is not dataclasses.MISSING
    ),
    ("test",),
    ("made", "captured", "train"),
}
"""Keys that came later, or may come: a record without them says the default."""
PATHS = list(leaves(whole().as_dict()))


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_record_that_lacks_something_is_refused_in_a_sentence(path: tuple[str, ...]):
    content, holder = copy_and_holder(path)
    del holder[path[-1]]
    if path in OPTIONAL:
        assert Record.from_dict(content, "x.json").identity == whole().identity
        return
    with pytest.raises(InputError, match=r"^x\.json ") as refused:
        Record.from_dict(content, "x.json")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_record_with_something_else_in_a_place_is_refused_in_a_sentence(path: tuple[str, ...]):
    """Everything of another kind, and in the identity everything that is not what it was."""
    for wrong in (None, True, 3, -2.5, "x", "", [], [1], {}, {"a": 1}, float("nan")):
        content, holder = copy_and_holder(path)
        before = holder[path[-1]]
        holder[path[-1]] = wrong
        if wrong == before or fits_there(path, before, wrong):
            continue
        with pytest.raises(InputError, match=r"^x\.json ") as refused:
            Record.from_dict(content, "x.json")
        assert len(str(refused.value).splitlines()) == 1, wrong


def fits_there(path: tuple[str, ...], before: Any, wrong: Any) -> bool:
    """Values that the field may have; All, Old and New are bound to each other."""
    number, part, name = type(wrong) in (int, float), path[0], path[-1]
    if path == ("identity", "seed"):
        return type(wrong) is int  # the file's name says it as well
    if path in (("placed",), ("test",)):
        return wrong is None
    if path == ("made", "captured"):
        return wrong is True or wrong == {}  # true or false in older records
    if len(path) != 2 or part == "identity":
        return False
    if part in ("scores", "test") and name != "n":
        return name not in ("all", "old", "new", "share_old") and (number or wrong is None)
    return type(wrong) is type(before) or (type(before) is float and number)


@pytest.mark.parametrize("content", [None, [], "x", 3, {}, {"scores": {}}, {"format": 1}, {"format": [2]}])
def test_what_is_no_record_is_refused(content: Any):
    with pytest.raises(InputError, match=r"^x\.json is (no|a) record"):
        Record.from_dict(content, "x.json")


def test_a_key_that_nobody_knows_is_refused():
    content, holder = copy_and_holder(("scores", "all"))
    holder["accuracy"] = 0.5
    with pytest.raises(InputError, match=r"scores\.accuracy is not known"):
        Record.from_dict(content, "x.json")


@pytest.mark.parametrize(
    ("scores", "lawful"),
    [
        (Scores(0.525, 0.6, 0.5, 0.25, 400), True),
        (Scores(0.525 + 1e-8, 0.6, 0.5, 0.25, 400), False),
        (Scores(0.6, 0.6, None, 1.0, 9), True),
        (Scores(0.5, None, 0.5, 0.0, 9), True),
        (Scores(0.5, None, 0.5, 0.5, 9), False),
        (Scores(float("nan"), 0.6, 0.5, 0.25, 9), False),
        (Scores(None, None, None, None, 0), True),
        (Scores(None, 0.6, 0.5, 0.25, 400), False),
    ],
)
def test_all_follows_from_old_and_new(scores: Scores, lawful: bool):
    if lawful:
        check_law(scores, "x.json")
        return
    with pytest.raises(InputError, match=r"x\.json says All = .* imply"):
        check_law(scores, "x.json")


TOP = Path(__file__).resolve().parents[2]
ROWS = [
    {"class": "a", "kind": "known", "n": 3, "correct": 2, "accuracy": 2 / 3, "category": 0},
    {"class": "“b”", "kind": "novel", "n": 4, "correct": 0, "accuracy": 0.0, "category": None},
]


def record(seed: int = 0, new: float = 50, **changes: Any) -> Record:
    return made_record(made_identity(resolve("rpc", "cub", overrides={"seed": seed}), changes), 60, new)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_record_is_written_under_its_name_and_comes_back(tmp_path: Path) -> None:
    one, other = record(), record(3)
    records = Records(tmp_path)
    assert records.by_key == {}
    assert records.add(one) == tmp_path / "runs" / f"{one.identity.hash}-s0.json" == records.path(one.key)
    records.add(other)
    assert records.by_key == Records(tmp_path).by_key == {one.key: one, other.key: other}
    assert read_record(records.path(one.key)) == one
    assert sorted(files(tmp_path)) == sorted(f"runs/{each.identity.name}.json" for each in (one, other))


def test_classes_stand_once_for_all_runs_of_a_table(tmp_path: Path) -> None:
    for seed in (0, 1):
        Records(tmp_path).add(record(seed), ROWS)
    found = {name: json.loads(text) for name, text in files(tmp_path / "classes").items()}
    table = record().identity.data["table"]
    assert found[f"table-{table[:16]}.json"] == {
        "format": 1,
        "table": table,
        "class": ["a", "“b”"],
        "kind": ["known", "novel"],
        "n": [3, 4],
    }
    mine = {"format": 1, "table": table, "correct": [2, 0], "category": [0, None]}
    assert [found[f"{record(seed).identity.name}.json"] for seed in (0, 1)] == [mine, mine]
    assert len(found) == 3


def test_a_second_record_of_one_run_must_say_the_same(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.add(record())
    before = files(tmp_path)
    with pytest.raises(InputError, match=r"contradicts .*scores\.all 0\.525 and 0\.5325") as refused:
        records.add(record(new=51))
    assert str(refused.value).count("\n") == 0
    assert files(tmp_path) == before
    later = dataclasses.replace(record(), made=dataclasses.replace(record().made, seconds=9.0))
    records.add(later)  # made once more, with the same end
    check_agree(record(), None, "")
    check_agree(None, record(), "")


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / "runs" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda told: told["scores"].update(all=0.54),
            "says All = 0.540000 where its Old and New imply 0.525",
        ),
        (lambda told: told["scores"].update(new=0.6), "says All = 0.525000"),
        (
            lambda told: told["identity"]["train"].update(epochs=7),
            "does not bear the hash of its own identity",
        ),
        (lambda told: told.update(hash="0" * 16), "does not bear the hash of its own identity"),
        (lambda told: told["identity"].update(seed=5), "holds the record of run"),
    ],
)
def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    content = json.loads(json.dumps(record().as_dict()))
    change(content)
    path = write(tmp_path, record().identity.name, content)
    with pytest.raises(InputError) as refused:
        _ = Records(tmp_path).by_key
    assert told in str(refused.value)
    assert str(path) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "copy", record().as_dict())
    with pytest.raises(InputError, match=rf"copy\.json holds the record of run {record().identity.name}"):
        _ = Records(tmp_path).by_key
    path.rename(path.with_name(f"{record().identity.name}.json"))
    assert list(Records(tmp_path).by_key) == [record().key]


@pytest.mark.parametrize(
    "content", ["", "[]", "3", '{"method": "rpc"}', json.dumps(record().as_dict())[:-9], '"\\ud800"']
)
def test_a_file_that_is_no_record(tmp_path: Path, content: str) -> None:
    write(tmp_path, "x", content)
    with pytest.raises(InputError, match=r"x\.json") as refused:
        _ = Records(tmp_path).by_key
    assert len(str(refused.value).splitlines()) == 1


def test_a_record_of_another_version_says_so(tmp_path: Path) -> None:
    write(tmp_path, "x", record().as_dict() | {"format": 1})
    with pytest.raises(InputError, match=r"record of another version \(format 1, not 2\)"):
        _ = Records(tmp_path).by_key


def test_files_of_other_kinds_are_nobodys_business(tmp_path: Path) -> None:
    """Tables and measurements lie beside the folder of records."""
    (tmp_path / "speed.json").write_text("{}")
    (tmp_path / "table.md").write_text("")
    assert Records(tmp_path).by_key == {}


def test_records_of_a_jsonl_file_are_read_beside_those_of_the_folder(tmp_path: Path) -> None:
    one, other = record(0), record(1)
    Records(tmp_path).add(one)
    lines = [json.dumps(other.as_dict()), json.dumps({"name": "h200", "parts": {}})]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines) + "\n")
    assert Records(tmp_path).by_key == {other.key: other, one.key: one}


def test_a_jsonl_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept.jsonl").write_text("{")
    with pytest.raises(InputError):
        _ = Records(tmp_path).by_key


def test_every_record_of_the_repository_can_be_read() -> None:
    assert len(Records(TOP / "experiments" / "results").by_key) > 400


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
