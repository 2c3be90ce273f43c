"""Study files: what is read from them, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.runs.experiment import Experiment
from holotype.runs.study import KEYS_OF_ROWS, Study, StudyRow, build_study, read_study, select_rows_by_name
from tests.made_study import asked_for

TOP = Path(__file__).resolve().parents[2]

PARTS = """
question: Which part costs the known classes?
datasets: [cub]
seeds: [0, 1]
cache_views: 16+8
reference: simgcd
settings: &common
  train.epochs: 100
  train.lr: 1e-3
rows:
  simgcd: {method: simgcd}
  no-new:
    method: rpc
    asks: L_new removed
    settings: &no_new {method.lambda_2: 0, train.epochs: 50}
  reading:
    method: rpc
    preset: reading
    settings: {<<: *no_new, train.epochs: 20}
    datasets: [cub, scars]
    seeds: [4]
"""


@pytest.fixture
def written(tmp_path: Path):
    """A study file with this text."""

    def write(text: str, name: str = "parts") -> Path:
        (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / f"{name}.yaml"

    return write


def experiments(file: Path, *words: str) -> list[Experiment]:
    return asked_for(["--study", str(file), *words])


# -- what is read -------------------------------------------------------------------------------------


def test_a_study_is_read_as_it_is_written(written) -> None:
    file = written(PARTS)
    study = read_study(file)
    common = {"train.epochs": "100", "train.lr": "1e-3"}
    fewer = {"train.epochs": "50", "train.lr": "1e-3", "method.lambda_2": "0"}
    rows = [
        StudyRow("simgcd", "simgcd", "default", "", common, ("cub",), (0, 1)),
        StudyRow("no-new", "rpc", "default", "L_new removed", fewer, ("cub",), (0, 1)),
        StudyRow("reading", "rpc", "reading", "", fewer | {"train.epochs": "20"}, ("cub", "scars"), (4,)),
    ]
    question = "Which part costs the known classes?"
    own = {"simgcd": (), "no-new": ("train.epochs", "method.lambda_2")}
    own["reading"] = own["no-new"]
    assert study == Study(file, question, "16+8", "simgcd", {row.name: row for row in rows}, None, own)
    assert list(study.rows) == ["simgcd", "no-new", "reading"]


def test_what_may_be_left_out(written) -> None:
    study = read_study(written("question: Q?\nrows: {a: {method: rpc, datasets: [cub], seeds: [3]}}"))
    assert (study.cache_views, study.reference) == ("off", None)
    assert study.rows["a"] == StudyRow("a", "rpc", "default", "", {}, ("cub",), (3,))


def test_values_stay_text_until_the_type_of_a_setting_is_known(written) -> None:
    row = "{method: rpc, settings: {a: off, b: 1e-4, d: null, f: [1, x], k-l: 2}}"
    study = read_study(written(f"{SMALL}cache_views: off\nrows: {{x: {row}}}"))
    assert study.rows["x"].settings == {"a": "off", "b": "1e-4", "d": None, "f": ["1", "x"], "k_l": "2"}
    assert study.cache_views == "off"


def test_a_study_in_memory_is_the_study_in_a_file(written) -> None:
    """Its name stands for the file, and what it is made of is left as it was."""
    import yaml

    content = yaml.safe_load(PARTS)
    before = repr(content)
    made, read = build_study(content, "parts"), read_study(written(PARTS))
    assert made.name == read.name == "parts"
    assert (made.rows["simgcd"].seeds, made.question, made.own) == ((0, 1), read.question, read.own)
    assert repr(content) == before
    with pytest.raises(InputError, match=r"^parts has no rows"):
        build_study({"question": "Q?"}, "parts")


def test_a_row_may_name_its_records(written) -> None:
    study = read_study(
        written(SMALL + "rows: {a: {method: rpc, record: 00ff00ff00ff00ff}, b: {method: rpc}}")
    )
    assert [row.record for row in study.rows.values()] == ["00ff00ff00ff00ff", None]
    with pytest.raises(InputError, match=r"row 'a' .* record = \['3'\], where text belongs"):
        read_study(written(SMALL + "rows: {a: {method: rpc, record: [3]}}"))


def test_rows_are_picked_in_the_order_of_the_file(written) -> None:
    study = read_study(written(PARTS))
    assert [row.name for row in select_rows_by_name(study, ["reading", "simgcd"])] == ["simgcd", "reading"]
    with pytest.raises(InputError, match="no row 'rpc'; its rows are simgcd, no-new, reading"):
        select_rows_by_name(study, ["simgcd", "rpc"])


def test_the_study_in_the_documents_can_be_run(written) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (TOP / "docs" / "protocol.md").read_text(), re.M | re.S)
    file = written(text, "shown")
    study = read_study(file)
    assert study.reference in study.rows
    assert {made.label for made in experiments(file)} == set(study.rows)


# -- what is refused ----------------------------------------------------------------------------------

SMALL = "question: Q?\ndatasets: [cub]\nseeds: [0]\n"
ROW = "rows: {a: {method: rpc}}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("no study", "question")),
        ("- a", ("no study",)),
        ("a: [", ("not valid YAML",)),
        (SMALL, ("no rows",)),
        (SMALL + "rows: {}", ("no rows",)),
        (SMALL + "rows: [a]", ("no rows",)),
        (SMALL + "row: {}\n" + ROW, ("unknown key 'row'", "did you mean rows?")),
        (SMALL + "zzzz: 3\n" + ROW, ("unknown key 'zzzz'", "question, commit, datasets")),
        (SMALL + ROW + "reference: b", ("reference 'b'", "rows a.")),
        (SMALL + ROW + "cache_views: [16]", ("cache_views = [", "quotes")),
        ("datasets: [cub]\nseeds: [0]\n" + ROW, ("lacks the key question",)),
        ("question: ''\ndatasets: [cub]\nseeds: [0]\n" + ROW, ("question = ''",)),
        ("question: Q?\nseeds: [0]\n" + ROW, ("lacks the key datasets", "[cub, scars]")),
        ("question: Q?\ndatasets: [cub]\n" + ROW, ("lacks the key seeds", "[0, 1, 2]")),
        ("question: Q?\ndatasets: cub\nseeds: [0]\n" + ROW, ("datasets = 'cub'", "list")),
        ("question: Q?\ndatasets: ['']\nseeds: [0]\n" + ROW, ("datasets = ['']",)),
        ("question: Q?\ndatasets: [cub]\nseeds: []\n" + ROW, ("seeds = []",)),
        ("question: Q?\ndatasets: [cub]\nseeds: [true]\n" + ROW, ("seeds = ['true']", "whole numbers")),
        ("question: Q?\ndatasets: [cub]\nseeds: [1, 1]\n" + ROW, ("seeds =", "twice")),
        (SMALL + "rows: {a: {method: rpc}, a: {method: simgcd}}", ("a stands twice",)),
        (SMALL + "rows: {a: }", ("row 'a'", "method")),
        (SMALL + "rows: {a: {preset: reading}}", ("row 'a'", "lacks the key method")),
        (SMALL + "rows: {a: {method: [3]}}", ("row 'a'", "method = ['3']")),
        (SMALL + "rows: {a: {method: rpc, presets: x}}", ("row 'a'", "'presets'", "did you mean preset?")),
        (SMALL + "rows: {a: {method: rpc, seeds: 3}}", ("row 'a'", "seeds = '3'")),
        *(
            (SMALL + f"rows: {{'{n}': {{method: rpc}}}}", ("cannot be called so",))
            for n in ("null", "a/b", "a:b", "-a")
        ),
        (SMALL + "settings: 3\n" + ROW, ("settings = '3'", "train.epochs: 100")),
        (SMALL + "settings: {train: {epochs: 3}}\n" + ROW, ("group train", "train.epochs: 100")),
        *((SMALL + f"settings: {{{key}: x}}\n" + ROW, (key, place)) for key, place in KEYS_OF_ROWS.items()),
    ],
)
def test_a_file_that_is_no_study(written, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as refused:
        read_study(written(text))
    sentence = str(refused.value)
    assert "parts.yaml" in sentence
    assert len(sentence.splitlines()) == 1
    assert sentence[-1] in ".?"
    for word in words:
        assert word in sentence


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml cannot be read: No such file"):
        read_study(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"bytes\.yaml is not valid YAML"):
        read_study(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rows", "no-nwe"], "has no row 'no-nwe' (did you mean no-new?); its rows are"),
        (["--set", "no-nwe:train.lr=1"], "names 'no-nwe' (did you mean no-new?), which is neither"),
    ],
)
def test_a_row_that_was_mistyped_is_told_with_the_nearest(written, words, told) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        experiments(written(PARTS), *words)


def test_a_file_that_was_mistyped_is_told_with_the_nearest(written) -> None:
    there = written(PARTS)
    with pytest.raises(InputError, match=re.escape(f"No such file or directory (did you mean {there}?).")):
        read_study(there.with_name("prats.yaml"))
