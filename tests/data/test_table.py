"""The Table keeps what it is given, refuses what cannot be right, and fingerprints what methods see."""

import dataclasses
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.data.table import Table
from holotype.errors import InputError

# what file systems and people produce: separators, quotes, line ends, "NA", spaces, other scripts
TEXT = st.one_of(
    st.sampled_from(["NA", "001", "nan", " a ", 'say "x"', "a,b", "a\r\nb", "é", "鳥", "#", "🐦"]),
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


def small(**change: object) -> Table:
    values = {"path": ["a", "b", "c"], "label": ["x", "", "y"], "known": ("y", "x")} | change
    return Table(**{k: np.array(v, dtype=object) if isinstance(v, list) else v for k, v in values.items()})


@given(table=tables(), data=st.data())
def test_rows_stay_together_and_target_label_and_known_agree(table: Table, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(table))))
    rows = order[: data.draw(st.integers(0, len(table)))]
    part = table.take(rows)
    assert part.known == table.known
    frame = table.to_frame()
    assert part.to_frame().equals(frame.iloc[rows].reset_index(drop=True))
    assert table.take(np.ones(len(table), dtype=bool)).to_frame().equals(frame)
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


def test_fingerprint_sees_paths_labels_bursts_and_class_order_and_no_machine() -> None:
    others = [{"path": ["a", "b", "d"]}, {"label": ["x", "", ""]}, {"known": ("x", "y")}]
    others.append({"path": ["ab", "", "c"]})
    prints = {small(**change).fingerprint() for change in ({}, *others, {"group": ["1", "1", ""]})}
    assert len(prints) == 6

    def at(root: str) -> str:
        return small(path=[os.path.join(root, "s", name) for name in "abc"], root=root).fingerprint()

    assert at("/data/x") == at("/elsewhere/y") != small().fingerprint()


def test_columns_cannot_be_written_and_weights_of_a_sample_go_with_their_rows() -> None:
    table = small()
    marked = table.with_problems(["", "broken", ""])
    assert marked.usable.tolist() == [True, False, True]
    assert table.usable.all()
    with pytest.raises(ValueError, match="read-only"):
        table.label[0] = "y"
    table = small(weight=["2.5", "1", "3"])
    assert table.weights.tolist() == [2.5, 1.0, 3.0]
    assert table.take([1]).weights.tolist() == [1.0]
    assert small().weights.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": ["a", "a", "c"]}, "'a' is listed 2 times"),
        ({"label": ["x", "z", ""]}, "'z' is not among the 2 known classes"),
        ({"label": ["x", ""]}, "label has 2 rows where path has 3"),
        ({"truth": ["x"]}, "truth has 1 rows"),
        ({"problem": ["x"]}, "problem has 1 rows"),
        ({"known": ("x", "y", "x")}, "differ"),
        ({"known": ("x", "y", "")}, "not be empty"),
        ({"label": ["x", "", 3]}, "Row 2 of the column label is 3, not text"),
        ({"path": ["a", "b", "\udcff.jpg"]}, "not valid UTF-8"),
        *(({"weight": ["1", "2", x]}, "not a number above 0") for x in ("", "many", "0", "-1", "nan", "inf")),
    ],
)
def test_bad_tables_are_refused(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**change)
