"""The Table keeps what it is given, refuses what cannot be right, and fingerprints what methods see."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holotype.data.table import Table
from holotype.errors import InputError

# what file systems and people produce: separators, quotes, line ends, "NA", spaces, other scripts
TEXT = st.one_of(
    st.sampled_from(
        ["NA", "null", "001", "1", "nan", "None", " a ", 'say "x"', "a,b", "a\r\nb", "é", "鳥", "#", "🐦"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    path = draw(st.lists(st.one_of(st.just(""), TEXT), unique=True, max_size=8))
    known = draw(st.lists(TEXT, unique=True, min_size=1, max_size=4))

    def column(values: st.SearchStrategy[str]) -> np.ndarray:
        return np.array([draw(values) for _ in path], dtype=object)

    return Table(
        path=np.array(path, dtype=object),
        label=column(st.sampled_from(["", *known])),
        known=tuple(known),
        truth=column(st.one_of(st.just(""), TEXT)) if draw(st.booleans()) else None,
        problem=column(st.one_of(st.just(""), TEXT)),
        name=draw(TEXT),
    )


def same(a: Table, b: Table) -> bool:
    columns = ("path", "label", "problem", "truth")
    lists = [[None if getattr(t, c) is None else list(getattr(t, c)) for c in columns] for t in (a, b)]
    return lists[0] == lists[1] and (a.known, a.name, a.root) == (b.known, b.name, b.root)


def small(**change: object) -> Table:
    values = {"path": ["a", "b", "c"], "label": ["x", "", "y"], "known": ("y", "x")} | change
    return Table(**{k: np.array(v, dtype=object) if isinstance(v, list) else v for k, v in values.items()})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(table=small(problem=["", "\x85", " "]), suffix=".csv")
@example(table=small(truth=["\u2028", "\x1c", "\t"]), suffix=".csv")
@example(table=small(path=["\x85", "\xa0", " "], label=["", "", ""]), suffix=".csv")
@example(table=small(path=["", "a", "b"], label=["", "", ""]), suffix=".csv")
@example(table=small(truth=["x", "y", "\r"]), suffix=".csv")
@given(table=tables(), suffix=st.sampled_from([".csv", ".parquet"]))
def test_save_and_load_give_the_table_back(table: Table, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"table{suffix}"
    table.save(file)
    assert same(Table.load(file), table)
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".part") == []


@given(table=tables())
def test_frame_round_trip(table: Table) -> None:
    again = Table.from_frame(table.to_frame(), known=table.known, name=table.name, root=table.root)
    assert same(again, table)


@given(table=tables(), data=st.data())
def test_take_keeps_rows_together(table: Table, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(table))))
    rows = order[: data.draw(st.integers(0, len(table)))]
    part = table.take(rows)
    assert part.known == table.known
    assert part.path.tolist() == [table.path[i] for i in rows]
    assert part.target.tolist() == [table.target[i] for i in rows]
    assert part.problem.tolist() == [table.problem[i] for i in rows]
    assert same(table.take(np.ones(len(table), dtype=bool)), table)


@given(table=tables())
def test_target_label_and_known_agree(table: Table) -> None:
    assert table.target.dtype == np.int64
    for target, label, labelled in zip(table.target, table.label, table.labelled, strict=True):
        assert labelled == (label != "") == (target >= 0)
        assert target == -1 or table.known[target] == label


@given(table=tables(), other=tables())
def test_fingerprint_ignores_truth_and_problem(table: Table, other: Table) -> None:
    hidden = dataclasses.replace(table, truth=None, problem=np.empty(0, dtype=object), name="other")
    assert hidden.fingerprint() == table.fingerprint()
    seen = [(list(t.path), list(t.label), t.known) for t in (table, other)]
    assert (table.fingerprint() == other.fingerprint()) == (seen[0] == seen[1])


def test_fingerprint_sees_paths_labels_and_class_order() -> None:
    prints = {
        small().fingerprint(),
        small(path=["a", "b", "d"]).fingerprint(),
        small(label=["x", "", ""]).fingerprint(),
        small(known=("x", "y")).fingerprint(),
        small(path=["ab", "", "c"]).fingerprint(),
    }
    assert len(prints) == 5


def test_fingerprint_with_a_root_is_the_same_on_every_machine() -> None:
    def at(root: str) -> str:
        return small(path=[os.path.join(root, "s", name) for name in "abc"], root=root).fingerprint()

    assert at("/data/x") == at("/elsewhere/y") != small().fingerprint()


def test_problems_default_to_none_and_can_be_set() -> None:
    table = small()
    assert table.usable.all()
    marked = table.with_problems(["", "broken", ""])
    assert marked.usable.tolist() == [True, False, True]
    assert table.usable.all()


def test_columns_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        small().label[0] = "y"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": ["a", "a", "c"]}, r"'a' is listed 2 times \(1 paths"),
        ({"label": ["x", "z", ""]}, "'z' is not among the 2 known classes"),
        ({"label": ["x", ""]}, "label has 2 rows where path has 3"),
        ({"truth": ["x"]}, "truth has 1 rows"),
        ({"problem": ["x"]}, "problem has 1 rows"),
        ({"known": ("x", "y", "x")}, "different from each other"),
        ({"known": ("x", "y", "")}, "not empty"),
        ({"label": ["x", "", 3]}, "Row 2 of the column label is 3, not text"),
        ({"path": ["a", "b", "\udcff.jpg"]}, "not valid UTF-8"),
    ],
)
def test_bad_tables_are_refused(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**change)


def test_other_file_types_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"saved as \.parquet or \.csv"):
        small().save(tmp_path / "table.xlsx")
    (tmp_path / "foreign.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="columns a, b"):
        Table.load(tmp_path / "foreign.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="not a readable Parquet"):
        Table.load(tmp_path / "broken.parquet")
    with pytest.raises(InputError, match="does not exist"):
        Table.load(tmp_path / "absent.csv")


@pytest.mark.parametrize("meta", ["{", "[]", '{"known": ["a"]}'])
def test_a_damaged_sidecar_is_one_sentence(meta: str, tmp_path: Path) -> None:
    small().save(tmp_path / "t.csv")
    (tmp_path / "t.csv.json").write_text(meta)
    with pytest.raises(InputError, match="says of its classes cannot be read"):
        Table.load(tmp_path / "t.csv")


def test_weights_of_a_sample_go_with_their_rows(tmp_path: Path) -> None:
    table = Table(np.array(["a", "b"]), np.array(["", "x"]), ("x",), weight=np.array(["2.5", "1"]))
    assert table.weights.tolist() == [2.5, 1.0]
    assert table.take([1]).weights.tolist() == [1.0]
    table.save(tmp_path / "t.parquet")
    assert Table.load(tmp_path / "t.parquet").weights.tolist() == [2.5, 1.0]
    assert Table(table.path, table.label, ("x",)).weights.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("weight", ["", "many", "0", "-1", "nan", "inf"])
def test_a_weight_is_a_number_above_nothing(weight: str) -> None:
    with pytest.raises(InputError, match="not a number above 0"):
        Table(np.array(["a"]), np.array([""]), (), weight=np.array([weight]))
