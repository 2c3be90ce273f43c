"""A record survives a file, and nothing less than a whole one is taken for one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from holotype.errors import InputError
from holotype.runs.record import RECORD_FORMAT, AssignedCounts, Record, RunMeta, Scores, check_law
from holotype.runs.resolve import resolve
from holotype.training.divergence import Restart
from tests.made_study import made_identity, made_record


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
