"""What a sweep runs, and which records are whose: by what a row resolves to, whatever it is called."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from holotype.errors import InputError
from holotype.methods.rpc import RPC
from holotype.runs.record import Record
from holotype.runs.study import Study, build_study
from holotype.runs.sweep import (
    SettingChange,
    SweepRequest,
    changes_by_row,
    experiments,
    flags_study,
    resolve_row,
    select_records,
)
from tests.made_study import made_identity, made_record


def study(**content: Any) -> Study:
    rows = {
        "plain": {"method": "simgcd"},
        "rpc": {"method": "rpc"},
        "gone": {"method": "rpc", "record": "f" * 16},
    }
    told = {"question": "Q?", "datasets": ["cub"], "seeds": [0, 1], "cache_views": "16+8", "rows": rows}
    return build_study(told | content, "parts.yaml")


def recorded(
    row: str,
    seed: int = 0,
    changes: dict[str, Any] | None = None,
    dataset: str = "cub",
    of: Study | None = None,
) -> Record:
    of = of or study()
    experiment = resolve_row(of, of.rows[row], dataset)
    identity = made_identity(experiment, changes)
    return made_record(dataclasses.replace(identity, seed=seed), 60, 50)


# -- what is run ------------------------------------------------------------------------------------------


def test_methods_times_data_sets_times_seeds() -> None:
    changes = [SettingChange("train.epochs", 50), SettingChange("method.alpha", 0.1, "rpc")]
    changes += [SettingChange("method.alpha", 0.2, "rpc@reading")]
    asked = SweepRequest(changes=changes, root="data", progress=False)
    flags = flags_study(["rpc", "rpc@reading", "simgcd"], ["cub", "scars"], [0, 4])
    made = experiments(flags, asked, label=False)
    assert len(made) == 12
    assert {(e.method_name, e.preset, e.dataset, e.seed) for e in made} == {
        (method, preset, dataset, seed)
        for method, preset in (("rpc", "default"), ("rpc", "reading"), ("simgcd", "default"))
        for dataset in ("cub", "scars")
        for seed in (0, 4)
    }
    assert all(e.train.epochs == 50 and e.root == "data" and not e.progress for e in made)
    alpha = {e.preset: e.method.alpha for e in made if e.method_name == "rpc"}
    assert alpha == {"default": 0.1, "reading": 0.2}
    assert {e.method.memax_weight for e in made if e.dataset == "cub"} == {2.0}
    assert {e.label for e in made} == {None}
    assert {e.cache_views for e in made} == {"off"}


def test_seeds_share_no_settings() -> None:
    one, other = experiments(study(), SweepRequest(rows=["rpc"]))
    one.method.alpha = 0.9
    assert other.method.alpha != 0.9


def test_every_seed_is_looked_at_and_one_that_stands_twice_is_one_run() -> None:
    with pytest.raises(InputError, match=r"Row plain of .*: seed must be at least 0"):
        experiments(study(seeds=[0, -1]), SweepRequest())
    assert [made.seed for made in experiments(study(), SweepRequest(rows=["rpc"], seeds=[2, 0, 2]))] == [2, 0]


def test_what_is_asked_for_wins_over_the_study() -> None:
    asked = SweepRequest(
        rows=["rpc"], seeds=[7], changes=[SettingChange("train.lr", "0.5")], cache_views="off"
    )
    (made,) = experiments(study(settings={"train.lr": 0.2}), asked)
    assert (made.label, made.seed, made.train.lr, made.cache_views) == ("rpc", 7, 0.5, "off")


def test_a_row_that_names_its_records_is_passed_over_and_refused_where_it_is_asked_for() -> None:
    assert {made.label for made in experiments(study(), SweepRequest())} == {"plain", "rpc"}
    with pytest.raises(InputError, match=r"Row gone of parts\.yaml cannot be run by this version: "):
        experiments(study(), SweepRequest(rows=["gone", "rpc"]))
    with pytest.raises(InputError, match=r"belongs to commit abc"):
        experiments(study(commit="abc"), SweepRequest(rows=["gone"]))


def test_a_setting_that_is_gone_names_the_row_and_the_commit() -> None:
    rows = {"old": {"method": "rpc", "settings": {"method.temperature": 3}}}
    with pytest.raises(InputError, match=r"Row old of parts\.yaml: .*method\.temperature.*commit abc"):
        experiments(study(rows=rows, commit="abc"), SweepRequest())


def test_changes_reach_a_row_a_method_or_all() -> None:
    rows = list(study().rows.values())
    changes = [
        SettingChange("a", 1),
        SettingChange("b", 2, "rpc"),
        SettingChange("c", 3, "simgcd"),
        SettingChange("a", 4, "plain"),
    ]
    found = changes_by_row(changes, rows, study())
    assert found == {"plain": {"a": 4, "c": 3}, "rpc": {"a": 1, "b": 2}, "gone": {"a": 1}}
    for wrong, told in (
        (SettingChange("seed", 1), "holotype bench --help"),
        (SettingChange("a", 1, "x"), "'x'"),
    ):
        with pytest.raises(InputError, match=told):
            changes_by_row([wrong], rows, study())
    assert str(SettingChange("a", 1, "x")) == "x:a=1"
    assert str(SettingChange("a", 1)) == "a=1"


# -- whose a record is ------------------------------------------------------------------------------------


def test_a_row_selects_its_records_by_what_it_resolves_to() -> None:
    """Whatever they were called when they were made, in whichever study."""
    mine = [recorded("plain", seed) for seed in (1, 0, 5)]
    others = [
        recorded("rpc"),
        recorded("plain", changes={"train.lr": 9.0}),
        recorded("plain", changes={"views": "off"}),
    ]
    found = select_records(study(), study().rows["plain"], "cub", [*others, *mine])
    assert [record.key for record in found] == [mine[1].key, mine[0].key]  # by seed; 5 is none of the row's
    renamed = study(rows={"renamed": {"method": "simgcd", "settings": {"train.eval_every": 3}}})
    assert select_records(renamed, renamed.rows["renamed"], "cub", [*others, *mine]) == found


def test_a_row_finds_nothing_where_nothing_is_its() -> None:
    assert select_records(study(), study().rows["plain"], "cub", []) == []
    assert select_records(study(), study().rows["plain"], "cub", [recorded("rpc")]) == []
    there = study(datasets=["cub", "scars"])
    assert select_records(there, there.rows["rpc"], "scars", [recorded("rpc")]) == []
    (found,) = select_records(there, there.rows["rpc"], "scars", [recorded("rpc", dataset="scars", of=there)])
    assert found.identity.data["name"] == "scars"


@pytest.mark.parametrize("part", ["revision", "engine"])
def test_records_of_another_algorithm_are_not_selected(part: str, monkeypatch) -> None:
    old = recorded("rpc")
    assert select_records(study(), study().rows["rpc"], "cub", [old]) == [old]
    if part == "revision":
        monkeypatch.setattr(RPC, "revision", RPC.revision + 1)
    else:
        monkeypatch.setattr("holotype.runs.identity.ENGINE", 99)
    assert select_records(study(), study().rows["rpc"], "cub", [old]) == []
    assert select_records(study(), study().rows["rpc"], "cub", [old, recorded("rpc")]) == [recorded("rpc")]


def test_a_row_that_names_its_records_selects_them_and_no_others() -> None:
    old = recorded("rpc", changes={"method.settings.gone": 3, "method.revision": 1})
    rows = {"gone": {"method": "rpc", "record": old.identity.hash, "settings": {"method.gone": 3}}}
    named = study(rows=rows)
    assert select_records(named, named.rows["gone"], "cub", [old, recorded("rpc")]) == [old]
    assert select_records(named, named.rows["gone"], "scars", [old]) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data.table": "9"}, "data.table"),
        ({"backbone.digest": "9"}, "backbone.digest"),
        ({"train.precision": "bf16"}, "train.precision"),
    ],
)
def test_records_of_two_kinds_are_refused(changes: dict[str, Any], told: str) -> None:
    """Other images or weights under the same names: no table may mix them, nor choose."""
    records = [recorded("rpc", 0), recorded("rpc", 1, changes)]
    with pytest.raises(InputError, match=f"row rpc of parts has records of two kinds, .* differ in {told}; "):
        select_records(study(), study().rows["rpc"], "cub", records)


def test_what_was_changed_on_top_of_a_study_is_found_with_the_same_changes() -> None:
    other = recorded("rpc", changes={"train.lr": 0.5, "views": "4+2"})
    row, asked = study().rows["rpc"], SweepRequest(cache_views="4+2")
    assert select_records(study(), row, "cub", [other]) == []
    assert select_records(study(), row, "cub", [other], asked, {"train.lr": "0.5"}) == [other]


def test_a_data_set_that_is_a_path_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "birds.v2").mkdir()
    there = study(datasets=[str(tmp_path / "birds.v2")])
    mine = recorded("rpc", dataset=str(tmp_path / "birds.v2"), of=there)
    assert mine.identity.data["name"] == "birds.v2"
    assert select_records(there, there.rows["rpc"], "birds.v2", [mine]) == [mine]
