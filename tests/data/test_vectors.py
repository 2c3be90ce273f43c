"""Tables of feature vectors: what is read of one, and what is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from holotype.data.load import load_table
from holotype.data.readers.vectors import read_vectors, vector_digests
from holotype.errors import InputError

VECTORS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@pytest.fixture
def write(tmp_path):
    def file(**columns: object):
        place = tmp_path / "songs.parquet"
        pq.write_table(pa.table(columns), place)
        return place

    return file


def test_rows_are_called_after_their_ids(write) -> None:
    label, truth = ["owl", None, " owl "], ["owl", "jay", "owl"]
    file = write(id=["a", "b", "c"], vector=VECTORS, label=label, truth=truth)
    table = read_vectors(file)
    assert [path.rpartition("#")[2] for path in table.path] == ["a", "b", "c"]
    assert list(table.label) == ["owl", "", "owl"]
    assert table.known == ("owl",)
    assert table.features is not None
    assert table.features.tolist() == VECTORS
    assert table.take([2, 0]).features.tolist() == [VECTORS[2], VECTORS[0]]
    assert vector_digests(table.features)[1] == vector_digests(table.features[1:])[0]


def test_a_path_that_leads_to_an_image_is_that_image(write, tmp_path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "owl.png")
    file = write(path=["owl.png", "gone.png", "jay.png"], features=VECTORS, text=["x", "y", "z"])
    table = read_vectors(file)
    assert table.path[0] == str(tmp_path / "owl.png")
    assert table.path[1] == f"{file}#gone.png"
    assert list(table.text) == ["x", "y", "z"]


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.int64()), pa.list_(pa.float16())],
)
def test_any_list_of_numbers_is_a_vector(write, kind) -> None:
    values = pa.array([[np.float16(x) for x in row] for row in VECTORS], pa.list_(pa.float16())).cast(kind)
    assert read_vectors(write(whatever=values, n=[1, 2, 3])).features.tolist() == VECTORS


def test_a_list_of_labels_names_rows_by_their_ids(write, tmp_path) -> None:
    file = write(id=["a", "b", "c"], vector=VECTORS, label=["owl", "owl", "owl"])
    (tmp_path / "labels.csv").write_text("path,label\nsongs.parquet#b,jay\n", encoding="utf-8")
    table = load_table(file, tmp_path / "labels.csv", vectors=True)
    assert list(table.label) == ["", "jay", ""]
    assert table.features is not None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"vector": [[1.0, 2.0], [3.0], [5.0, 6.0]]}, "Row 2"),
        ({"vector": [[1.0, 2.0], None, [5.0, 6.0]]}, "Row 2"),
        ({"vector": [[1.0, 2.0], [3.0, 4.0], [float("nan"), 1.0]]}, "NaN"),
        ({"vector": [[1.0, 2.0], [3e30, 4.0], [5.0, 6.0]]}, "Row 2"),
        ({"vector": [[1.0, 2.0], [0.0, 0.0], [1.0, 1.0]]}, "zeros"),
        ({"vector": VECTORS, "id": ["a", "a", "b"]}, "'.*#a'"),
        ({"vector": VECTORS, "id": ["a", "", "b"]}, "Row 2"),
        ({"label": ["a", "b", "c"]}, "'vector'"),
        ({"one": VECTORS, "other": VECTORS}, "'vector'"),
        ({"vector": pa.array([], pa.list_(pa.float32()))}, "no rows"),
    ],
)
def test_bad_tables_are_refused(write, columns, said) -> None:
    with pytest.raises(InputError, match=said):
        read_vectors(write(**columns))


def test_vectors_of_another_length_than_those_of_a_run_are_refused(write, tmp_path) -> None:
    with pytest.raises(InputError, match=r"2 numbers.*384"):
        read_vectors(write(vector=VECTORS), 384)
    with pytest.raises(InputError, match="does not exist"):
        read_vectors(tmp_path / "none.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="not a readable"):
        read_vectors(tmp_path / "torn.parquet")
