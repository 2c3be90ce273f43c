"""Studies: what is read and refused, what is run, and which records are whose."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from holotype.errors import InputError
from holotype.methods.rpc import RPC
from holotype.runs import study as module
from holotype.runs.experiment import Experiment
from holotype.runs.record import Record
from holotype.runs.study import SettingChange, Study, StudyRow, SweepRequest, read_study
from tests.made_study import PARTS, asked_for, made_identity, made_record

TOP = Path(__file__).resolve().parents[2]
SMALL = "question: Q?\ndatasets: [cub]\nseeds: [0]\n"
ROW = "rows: {a: {method: rpc}}\n"


def write(folder: Path, text: str, name: str = "parts") -> Path:
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """A study file with a given text."""
    return lambda text, name="parts": write(tmp_path, text, name)


def experiments(file: Path, *words: str) -> list[Experiment]:
    """All that `holotype bench --study FILE` would run."""
    return asked_for(["--study", str(file), *words])


def study(**content: Any) -> Study:
    rows = {"plain": {"method": "simgcd"}, "rpc": {"method": "rpc"}}
    rows["gone"] = {"method": "rpc", "record": "f" * 16}
    told = {"question": "Q?", "datasets": ["cub"], "seeds": [0, 1], "cache_views": "16+8", "rows": rows}
    return module.build_study(told | content, "parts.yaml")


def test_a_study_is_read_as_it_is_written(tmp_path) -> None:
    file = write(tmp_path, PARTS)
    common = {"train.epochs": "100", "train.lr": "1e-3"}
    fewer = {"method.lambda_2": "0", "train.epochs": "50"}
    rows = [
        StudyRow("simgcd", "simgcd", ("cub",), (0, 1), settings=common),
        StudyRow("no-new", "rpc", ("cub",), (0, 1), asks="L_new removed", settings=common | fewer),
        StudyRow("reading", "rpc", ("cub", "scars"), (4,), "reading", settings=common | fewer),
    ]
    rows[2].settings["train.epochs"] = "20"  # values stay text until the type of a setting is known
    question, named = "Which part costs the known classes?", {row.name: row for row in rows}
    found = read_study(file)
    assert found == Study(file, named, question, "16+8", "simgcd", None, common)
    assert list(found.rows) == ["simgcd", "no-new", "reading"]
    small = read_study(write(tmp_path, "question: Q?\nrows: {a: {method: rpc, datasets: [cub], seeds: [3]}}"))
    assert (small.cache_views, small.reference) == ("off", None)
    assert small.rows["a"] == StudyRow("a", "rpc", ("cub",), (3,))
    content = yaml.safe_load(PARTS)
    before = repr(content)
    assert read_study(content).rows.keys() == found.rows.keys()  # in memory
    assert (read_study(content).name, repr(content)) == ("study", before)
    picked = module.select_rows_by_name(found, ["reading", "simgcd"])
    assert [row.name for row in picked] == ["simgcd", "reading"]


def test_the_study_in_the_documents_can_be_run(tmp_path) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (TOP / "docs" / "protocol.md").read_text(), re.M | re.S)
    file = write(tmp_path, text, "shown")
    assert read_study(file).reference in read_study(file).rows
    assert {made.label for made in experiments(file)} == set(read_study(file).rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lacks the key question"), ("- a", "lacks the key question"), ("a: [", "not valid YAML"),
        (SMALL, "lacks the key rows"), (SMALL + "rows: {}", "no rows"), (SMALL + "rows: [a]", "rows = "),
        (SMALL + "row: {}\n" + ROW, "unknown key 'row'; did you mean rows?"),
        (SMALL + "zzzz: 3\n" + ROW, "unknown key 'zzzz'; it may have question, commit"),
        (SMALL + ROW + "reference: b", "'b'; its rows are a."), (SMALL + ROW + "cache_views: [16]", "cache_views = "),
        ("question: ''\ndatasets: [cub]\nseeds: [0]\n" + ROW, "question = ''"),
        ("question: Q?\nseeds: [0]\n" + ROW, "lacks the key datasets"),
        ("question: Q?\ndatasets: [cub]\n" + ROW, "lacks the key seeds"),
        *((f"question: Q?\ndatasets: {one}\nseeds: [0]\n{ROW}", "datasets = ") for one in ("cub", "['']")),
        *((f"question: Q?\ndatasets: [cub]\nseeds: {one}\n{ROW}", "seeds = ") for one in ("[]", "[true]", "[1, 1]")),
        (SMALL + "rows: {a: {method: rpc}, a: {method: simgcd}}", "a stands twice"),
        (SMALL + "rows: {a: }", "row 'a' of"),
        (SMALL + "rows: {a: {method: [3]}}", "method = ['3']"),
        (SMALL + "rows: {a: {method: rpc, presets: x}}", "'presets'; did you mean preset?"),
        *((SMALL + f"rows: {{'{n}': {{method: rpc}}}}", "cannot be called so") for n in ("null", "a/b", "-a")),
        (SMALL + "settings: 3\n" + ROW, "settings = '3'"),
        *((SMALL + f"settings: {{{key}: x}}\n" + ROW, f"{key} under settings") for key in sorted(module.NO_SETTINGS)),
    ],
)  # fmt: skip
def test_a_file_that_is_no_study(tmp_path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        read_study(write(tmp_path, text))
    assert "parts.yaml" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_what_was_mistyped_is_told_with_the_nearest(tmp_path) -> None:
    file = write(tmp_path, PARTS)
    with pytest.raises(InputError, match=re.escape(f"No such file or directory (did you mean {file}?).")):
        read_study(file.with_name("prats.yaml"))
    for words in (["--rows", "no-nwe"], ["--set", "no-nwe:train.lr=1"]):
        with pytest.raises(InputError, match=re.escape("'no-nwe' (did you mean no-new?)")):
            experiments(file, *words)


def test_what_is_asked_for_wins_over_the_study() -> None:
    change = [SettingChange("train.lr", "0.5")]
    asked = SweepRequest(rows=["rpc"], seeds=[7, 0, 7], changes=change, cache_views="off")
    made, other = module.experiments(study(settings={"train.lr": 0.2}), asked)
    assert (made.label, made.seed, made.train.lr, made.cache_views) == ("rpc", 7, 0.5, "off")
    made.method.alpha = 0.9
    assert (other.seed, other.method.alpha) == (0, RPC.Config().alpha)  # seeds share no settings
    for wrong, said in (({"rows": []}, "--rows names no row"), ({"seeds": []}, "no seed")):
        with pytest.raises(InputError, match=said):
            module.experiments(study(), SweepRequest(**wrong))
    with pytest.raises(InputError, match=r"Row plain of .*: seed must be at least 0"):
        module.experiments(study(seeds=[0, -1]), SweepRequest())


def test_a_row_of_another_version_is_passed_over_and_refused_where_it_is_asked_for() -> None:
    assert {made.label for made in module.experiments(study(), SweepRequest())} == {"plain", "rpc"}
    for commit, said in ((None, r"cannot be run by this version\."), ("abc", "check out commit abc")):
        named = study(commit=commit) if commit else study()
        with pytest.raises(InputError, match=rf"Row gone of parts\.yaml .*{said}"):
            module.experiments(named, SweepRequest(rows=["gone", "rpc"]))
    rows = {"old": {"method": "rpc", "settings": {"method.temperature": 3}}}
    with pytest.raises(InputError, match=r"Row old of parts\.yaml: .*method\.temperature.*commit abc"):
        module.experiments(study(rows=rows, commit="abc"), SweepRequest())


def test_changes_reach_a_row_a_method_or_all() -> None:
    rows = list(study().rows.values())
    words = [("a", 1), ("b", 2, "rpc"), ("c", 3, "simgcd"), ("a", 4, "plain")]
    found = module.changes_by_row([SettingChange(*one) for one in words], rows, study())
    assert found == {"plain": {"a": 4, "c": 3}, "rpc": {"a": 1, "b": 2}, "gone": {"a": 1}}
    for wrong, told in ((("seed", 1), "bench --help"), (("a", 1, "x"), "x:a=1 names 'x'")):
        with pytest.raises(InputError, match=told):
            module.changes_by_row([SettingChange(*wrong)], rows, study())


def recorded(row: str, seed: int = 0, changes: Any = None, dataset: str = "cub", of: Any = None) -> Record:
    of = of or study()
    identity = made_identity(module.resolve_row(of, of.rows[row], dataset), changes)
    return made_record(dataclasses.replace(identity, seed=seed), 60, 50)


def selected(row: str, records: list[Record], of: Study | None = None, dataset: str = "cub", **more: Any):
    of = of or study()
    return module.select_records(of, of.rows[row], dataset, records, **more)


def test_a_row_selects_its_records_by_what_it_resolves_to(tmp_path) -> None:
    """Whatever they were called when they were made, in whichever study."""
    mine = [recorded("plain", seed) for seed in (1, 0, 5)]
    others = [recorded("rpc"), *(recorded("plain", changes=c) for c in ({"train.lr": 9.0}, {"views": "off"}))]
    assert selected("plain", [*others, *mine]) == [mine[1], mine[0]]  # by seed; 5 is none of the row's
    renamed = study(rows={"renamed": {"method": "simgcd", "settings": {"train.eval_every": 3}}})
    assert selected("renamed", [*others, *mine], renamed) == [mine[1], mine[0]]
    assert selected("plain", []) == selected("plain", [recorded("rpc")]) == []
    (tmp_path / "birds.v2").mkdir()  # a data set that is a path is known by its name
    there = study(datasets=["cub", "scars", str(tmp_path / "birds.v2")])
    birds = recorded("rpc", dataset=str(tmp_path / "birds.v2"), of=there)
    scars = recorded("rpc", dataset="scars", of=there)
    assert selected("rpc", [recorded("rpc"), scars, birds], there, "scars") == [scars]
    assert selected("rpc", [recorded("rpc"), scars, birds], there, "birds.v2") == [birds]
    # with what was changed on top of the study
    other, asked = recorded("rpc", changes={"train.lr": 0.5, "views": "4+2"}), SweepRequest(cache_views="4+2")
    assert selected("rpc", [other]) == []
    assert selected("rpc", [other], ask=asked, changes={"train.lr": "0.5"}) == [other]


def test_records_of_another_algorithm_are_not_selected_unless_a_row_names_them(monkeypatch) -> None:
    for name, value in ((f"{RPC.__module__}.RPC.revision", 99), ("holotype.runs.identity.ENGINE", 99)):
        old = recorded("rpc")
        assert selected("rpc", [old]) == [old]
        monkeypatch.setattr(name, value)
        assert selected("rpc", [old, recorded("rpc")]) == [recorded("rpc")]
    old = recorded("rpc", changes={"method.settings.gone": 3, "method.revision": 1})
    rows = {"gone": {"method": "rpc", "record": old.identity.hash, "settings": {"method.gone": 3}}}
    assert selected("gone", [old, recorded("rpc")], study(rows=rows)) == [old]
    assert selected("gone", [old], study(rows=rows), "scars") == []


def test_records_of_two_kinds_are_refused() -> None:
    """Other images or weights under the same names: no table may mix them, nor choose."""
    for part in ("data.table", "backbone.digest", "train.precision"):
        with pytest.raises(InputError, match=f"row rpc of parts has records of two kinds, .* {part}; "):
            selected("rpc", [recorded("rpc", 0), recorded("rpc", 1, {part: "9"})])


def test_a_grid_is_every_combination_of_its_values() -> None:
    """A value with a comma is several, but where the setting itself is a list."""
    row = study().rows["rpc"]
    changes = {"train.lr": "0.05, 0.1", "train.epochs": [1, 2]}
    changes |= {"method.lam": 0.3, "backbone.mean": "0.5,0.5,0.5"}
    points = module.settings_grid(row, changes)
    assert [(point["train.lr"], point["train.epochs"]) for point in points] == [
        *(("0.05", 1), ("0.05", 2), ("0.1", 1), ("0.1", 2))
    ]
    assert {(point["method.lam"], point["backbone.mean"]) for point in points} == {(0.3, "0.5,0.5,0.5")}
    ask = SweepRequest(rows=["rpc"], seeds=[0, 1], changes=[SettingChange("train.lr", "0.05,0.1,0.05")])
    made = module.experiments(study(), ask)
    assert [(one.train.lr, one.seed) for one in made[:4]] == [(0.05, 0), (0.05, 1), (0.1, 0), (0.1, 1)]
    assert module.settings_grid(row, {}) == [{}]
