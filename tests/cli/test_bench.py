"""`holotype bench`: rows of a study or flags become experiments, each is run once, and nothing is taken for a record
that is none."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holotype.runs.experiment import Experiment
from holotype.runs.record import Records
from tests.made_study import PARTS, asked_for

from .conftest import assert_sentence
from .test_train import read

SMALL = "question: Q?\ndatasets: [cub]\nseeds: [0]\n"
Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """A study file with this text."""

    def write(text: str, name: str = "parts") -> Path:
        (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / f"{name}.yaml"

    return write


def experiments(file: Path, *words: str) -> list[Experiment]:
    return asked_for(["--study", str(file), *words])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--methods rpc", ("--methods cannot be given with --study",)),
        ("--rows simgcd,nobody", ("'nobody'", "simgcd, no-new, reading")),
        ("--rows ,", ("--rows names no row", "simgcd, no-new, reading")),
        ("--seeds 0,x", ("--seeds", "'0,x'")),
        ("--set seed=3", ("seed=3",)),
        ("--set epochs", ("--set epochs", "SETTING=VALUE")),
        ("--rows simgcd --set no-new:train.lr=1", ("'no-new'", "rows are simgcd.")),
        ("--cache-views 16", ("Row simgcd of", "'16'", "16+8")),
        ("--reuse nowhere", ("--reuse nowhere is not a folder",)),
        ("--set reading:method.n_init=3", ("Row reading of", "'method.n_init'")),
    ],
)
def test_flags_that_do_not_fit_the_study(holotype, written: Write, words: str, told: tuple[str, ...]) -> None:
    assert_sentence(holotype("bench", "--study", written(PARTS), *words.split()), *told)


def test_flags_win_over_the_file(written: Write) -> None:
    words = "--rows no-new,simgcd --seeds 7 --cache-views 4+2 --set train.epochs=3 --set no-new:train.lr=0.5"
    simgcd, no_new = experiments(written(PARTS), *words.split())
    assert [(e.seed, e.cache_views) for e in (simgcd, no_new)] == [(7, "4+2")] * 2
    assert (simgcd.train.epochs, simgcd.train.lr) == (3, 0.001)
    assert (no_new.train.epochs, no_new.train.lr) == (3, 0.5)
    assert {e.cache_views for e in experiments(written(PARTS), "--cache-views", "off")} == {"off"}
    (one,) = experiments(written(SMALL + "rows: {x=0.1: {method: rpc}}"), "--set", "x=0.1:train.lr=0.7")
    assert (one.label, one.train.lr) == ("x=0.1", 0.7)
    # as holotype train, which the device decides
    words = ["--methods", "simgcd", "--datasets", "cub", "--set"]
    (usual,) = asked_for([*words, "device=cpu"])
    (cached,) = asked_for([*words, "device=cpu", "--cache-views", "16+8"])
    assert [one.cache_views for one in (usual, cached)] == ["4+2", "16+8"]
    assert read("simgcd", "cub").cache_views == "auto"


@pytest.fixture
def tiny(written: Write, squares_folder, tiny_backbone_file, tmp_path, monkeypatch) -> Write:
    """A study of coloured squares with these rows; results and runs go to folders below the current one."""
    monkeypatch.chdir(tmp_path)
    common = f"backbone.name: {tiny_backbone_file}, k: 4, train.batch_size: 16, train.epochs: 1, device: cpu"
    data = f"datasets: [{squares_folder / 'squares.csv'}]\nseeds: [0, 1]\n"

    def write(rows: str, name: str = "tiny") -> Path:
        return written(f"question: Q?\n{data}settings: {{{common}}}\nrows: {{{rows}}}", name)

    return write


@pytest.fixture
def bench(holotype):
    """Run a study."""
    return lambda study, *words: holotype("bench", "--study", study, "--no-progress", *words)


ROWS = "b: {method: simgcd, asks: as it is}, a: {method: simgcd, settings: {train.lr: 0.2, train.epochs: 2}}"
ONE = "one: {method: kmeans}"


def test_a_study_is_run_once_and_its_rows_stand_in_the_table(bench, tiny) -> None:
    first = bench(tiny(ROWS), "--parallel", 4)
    assert first.code == 0, first.err
    assert "tiny: Q?\n  b: as it is\n  a\n" in first.err
    names = r"4 runs at once: squares-simgcd-b-s0-\w+, \S+-b-s1-\w+, \S+-a-s0-\w+, \S+-a-s1-"
    assert re.search(names, first.err)
    found = Records("results").by_key
    made = sorted((r.made.variant, r.identity.seed, r.made.epochs) for r in found.values())
    assert made == [("a", 0, 2), ("a", 1, 2), ("b", 0, 1), ("b", 1, 1)]
    for (hash, seed), record in found.items():
        name = f"squares-simgcd-{record.made.variant}-s{seed}-{hash[:8]}"
        assert (Path("runs/tiny") / name / "scores.json").exists()
    assert [line.split(" | ")[2] for line in first.out.splitlines() if "squares" in line] == ["b", "a"]
    assert Path("results/tiny.md").read_text() == first.out
    assert len(Path("results/tiny.csv").read_text().splitlines()) == 3
    assert bench(tiny(ROWS), "--table-only").out == first.out


def test_other_processes_than_the_first_write_nothing(bench, tiny, monkeypatch) -> None:
    study = tiny(ONE)
    assert bench(study, "--results", "theirs").code == 0
    for module in ("sweep", "run"):
        monkeypatch.setattr(f"holotype.runs.{module}.rank", lambda: 1)
    monkeypatch.setenv("RANK", "1")
    outcome = bench(study, "--reuse", "theirs")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert not Path("results").exists()


def test_a_table_of_what_was_set_on_top_of_the_study(bench, tiny) -> None:
    study, more = tiny(ONE), ("--set", "method.n_init=2")
    made = bench(study, *more)
    assert made.code == 0, made.err
    assert bench(study, *more, "--table-only").out == made.out
    assert_sentence(bench(study, "--table-only"), "There is no record of tiny in")


def test_of_several_studies_a_run_that_two_name_is_made_once(holotype, tiny) -> None:
    one = tiny("old: {method: kmeans}")
    two = tiny("new: {method: kmeans}, more: {method: simgcd}", "other")
    outcome = holotype("bench", "--study", one, two, "--no-progress")
    assert outcome.code == 0, outcome.err
    found = [(r.made.variant, r.identity.seed) for r in Records("results").by_key.values()]
    assert sorted(found) == [("more", 0), ("more", 1), ("old", 0), ("old", 1)]
    first, second = (Path("results", name).read_text() for name in ("tiny.md", "other.md"))
    assert first + second == outcome.out
    rows = [[f"| {row} |" in text for row in ("old", "new", "more")] for text in (first, second)]
    assert rows == [[True, False, False], [False, True, True]]
    assert len(list(Path("runs").glob("*/*kmeans*"))) == 2
    assert_sentence(holotype("bench", "--study", one, two, "--rows", "new"), "--rows picks rows of one study")
    assert_sentence(holotype("bench", "--study", one, one), "same name")
