"""The facts of a run come back from JSON, and what is missing or of another type is told."""

from __future__ import annotations

import json

import pytest

from holotype.results.discovery import EditState, RunFacts
from holotype.utils.serialization import SchemaError, from_dict

MADE = RunFacts(
    title="=photos", root="photos", earlier_roots=("old",), method="rpc", k=5, seconds={"training": 1.5},
    earlier_runs=("r-1",), provenance={"backbone": {"name": "embedded", "caveat": "small"}},
    edits=EditState(("abc",), ("d",), {"new-01": "new-02"}, ("new-03",), {"new-04": {"name": "x"}}, {"a.png": "robin"}),
)  # fmt: skip


def test_they_come_back_as_they_were() -> None:
    assert from_dict(RunFacts, json.loads(json.dumps(MADE.as_dict()))) == MADE
    assert from_dict(RunFacts, json.loads(json.dumps(RunFacts().as_dict()))) == RunFacts()


def test_the_backbone_speaks_for_itself() -> None:
    assert MADE.backbone["caveat"] == "small"
    assert RunFacts().backbone == {}


@pytest.mark.parametrize("key", ["k", "root", "edits"])
def test_a_missing_key_is_told(key: str) -> None:
    content = MADE.as_dict()
    del content[key]
    with pytest.raises(SchemaError, match=f"{key} is missing"):
        from_dict(RunFacts, content)


def test_a_mistyped_key_is_told() -> None:
    with pytest.raises(SchemaError, match=r"edits\.merged is 3"):
        from_dict(RunFacts, MADE.as_dict() | {"edits": EditState().__dict__ | {"merged": 3}})
    with pytest.raises(SchemaError, match="scores is not known"):
        from_dict(RunFacts, MADE.as_dict() | {"scores": {"all": 1.0}})
