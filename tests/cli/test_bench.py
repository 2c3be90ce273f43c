"""`holotype bench --study`: rows become experiments as the file says, flags win over it, and each is run once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from holotype.cli.train import read_request
from holotype.errors import InputError
from tests.runs.test_study import PARTS, SMALL, experiments
from tests.runs.test_study import written as written  # the fixture: a study file with a given text

from .test_bad_input import assert_sentence

# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("train.epoch: 3", ("'train.epoch'", "did you mean train.epochs?")),
        ("train.epochs: many", ("train.epochs must be a whole number, not 'many'",)),
        ("train.epochs: 2.5", ("train.epochs must be a whole number",)),
        ("train.epochs: [1, 2]", ("train.epochs must be a whole number",)),
        ("train.epochs: null", ("train.epochs must be a whole number",)),
        ("train.epochs: 0", ("train.epochs must be at least 1",)),
        ("progress: 3", ("progress must be true or false",)),
        ("method.n_init: 3", ("'method.n_init'",)),
    ],
)
def test_settings_are_checked_as_on_the_command_line(written, settings: str, words: tuple[str, ...]) -> None:
    file = written(SMALL + f"rows: {{good: {{method: rpc}}, bad: {{method: rpc, settings: {{{settings}}}}}}}")
    with pytest.raises(InputError) as refused:
        experiments(file)
    for word in (f"Row bad of {file}: ", *words):
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--methods rpc", ("--methods cannot be given with --study",)),
        ("--datasets cub", ("--datasets cannot be given with --study",)),
        ("--rows simgcd,nobody", ("'nobody'", "simgcd, no-new, reading")),
        ("--rows ,", ("--rows names no row", "simgcd, no-new, reading")),
        ("--seeds ,", ("--seeds", "','")),
        ("--seeds 0,x", ("--seeds", "'0,x'")),
        ("--set seed=3", ("seed=3",)),
        ("--set label=x", ("label=x",)),
        ("--set epochs", ("--set epochs", "SETTING=VALUE")),
        ("--set nobody:train.lr=1", ("'nobody'", "simgcd, no-new, reading")),
        ("--rows simgcd --set no-new:train.lr=1", ("'no-new'", "rows are simgcd.")),
        ("--cache-views 16", ("Row simgcd of", "'16'", "16+8")),
    ],
)
def test_flags_that_do_not_fit_the_study(holotype, written, words: str, told: tuple[str, ...]) -> None:
    assert_sentence(holotype("bench", "--study", written(PARTS), *words.split()), *told)


def test_rows_without_a_study_and_other_faults_of_the_row(holotype, written) -> None:
    assert_sentence(
        holotype("bench", "--methods", "rpc", "--datasets", "cub", "--rows", "a"), "--rows", "--study"
    )
    for row, word in (
        ("{method: rcp}", "'rcp'"),
        ("{method: rpc, preset: literal}", "'literal'"),
        ("{method: rpc, datasets: [cup]}", "'cup'"),
    ):
        assert_sentence(
            holotype("bench", "--study", written(SMALL + f"rows: {{a: {row}}}")), word, "Row a of"
        )


# -- from a study to experiments ----------------------------------------------------------------------


def test_every_row_on_its_data_sets_with_its_seeds(written) -> None:
    made = experiments(written(PARTS), "--root", "data", "--no-progress")
    assert [(e.label, e.method_name, e.preset, e.dataset, e.seed) for e in made] == [
        ("simgcd", "simgcd", "default", "cub", 0),
        ("simgcd", "simgcd", "default", "cub", 1),
        ("no-new", "rpc", "default", "cub", 0),
        ("no-new", "rpc", "default", "cub", 1),
        ("reading", "rpc", "reading", "cub", 4),
        ("reading", "rpc", "reading", "scars", 4),
    ]
    assert {(e.cache_views, e.root, e.progress) for e in made} == {("16+8", "data", False)}
    assert [made[n].train.epochs for n in (0, 2, 4)] == [100, 50, 20]
    assert {e.train.lr for e in made} == {0.001}
    assert {e.method.lambda_2 for e in made[2:]} == {0}


def test_flags_win_over_the_file(written) -> None:
    words = "--rows no-new,simgcd --seeds 7 --cache-views 4+2 --set train.epochs=3 --set no-new:train.lr=0.5"
    simgcd, no_new = experiments(written(PARTS), *words.split())
    assert [(e.label, e.seed, e.cache_views) for e in (simgcd, no_new)] == [
        ("simgcd", 7, "4+2"),
        ("no-new", 7, "4+2"),
    ]
    assert (simgcd.train.epochs, simgcd.train.lr) == (3, 0.001)
    assert (no_new.train.epochs, no_new.train.lr) == (3, 0.5)
    exact = experiments(written(PARTS), "--cache-views", "off")
    assert {e.cache_views for e in exact} == {"off"}


def test_set_reaches_a_row_or_else_the_rows_of_a_method(written) -> None:
    rows = "simgcd: {method: simgcd}, other: {method: simgcd}, x=0.1: {method: rpc}, r: {method: rpc, preset: reading}"
    file = written(SMALL + f"rows: {{{rows}}}")

    def reached(where: str) -> list[str | None]:
        return [e.label for e in experiments(file, "--set", f"{where}train.lr=0.7") if e.train.lr == 0.7]

    assert reached("") == ["simgcd", "other", "x=0.1", "r"]
    assert reached("simgcd:") == ["simgcd"]  # the row that is called so, and not the other of that method
    assert reached("simgcd@default:") == ["simgcd", "other"]
    assert reached("x=0.1:") == ["x=0.1"]
    assert reached("rpc:") == ["x=0.1", "r"]
    assert reached("rpc@reading:") == ["r"]


@pytest.mark.parametrize("label", ["no-new", "lambda_1=0.2", "off", "3-blocks", "a.b", "y"])
def test_the_label_survives_config_yaml(written, tmp_path: Path, label: str) -> None:
    (made,) = experiments(written(SMALL + f"rows: {{{label}: {{method: rpc}}}}"))
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(made.as_dict(), sort_keys=False, allow_unicode=True))
    assert made.label == label
    assert read_request(["--config", str(config)]).resolve() == made
