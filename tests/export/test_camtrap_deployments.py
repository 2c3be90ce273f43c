"""Which deployment an image belongs to, and a table in which people's own cells stay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from export.made_results import made_run
from holotype.errors import InputError
from holotype.export.camtrap import (
    BY_FOLDER,
    DEPLOYMENT_COLUMNS,
    Deployment,
    deployments_of,
    merge_deployments,
    parse_coordinates,
    read_deployments,
)
from holotype.export.image_header import CAMERA_CLOCK, FILE_CLOCK
from holotype.export.results_table import read_results_table

MAY, JUNE, JULY = (datetime(2020, month, 1, tzinfo=UTC) for month in (5, 6, 7))


@pytest.fixture
def results(tmp_path):
    return read_results_table(made_run(tmp_path))


def test_one_unless_somebody_tells(results) -> None:
    assert set(deployments_of(results, None)) == {"my pictures"}


def test_folders_tell(results) -> None:
    root = Path(results.found.facts.root)
    results.path[:3] = [
        str(root / "cam 1" / "a" / "1.png"),
        str(root / "cam 2" / "1.png"),
        str(root / "1.png"),
    ]
    assert deployments_of(results, BY_FOLDER)[:3] == ["cam 1", "cam 2", "my pictures"]
    results.path[3] = "/elsewhere/1.png"
    with pytest.raises(InputError, match="folders tell no deployments"):
        deployments_of(results, BY_FOLDER)


def test_a_file_tells(results, tmp_path) -> None:
    names = [Path(path).name.replace('"', '""') for path in results.path]
    told = ("'=two", "one")
    rows = [f'"{name}",{told[i % 2]}' for i, name in enumerate(names)]
    (tmp_path / "cams.csv").write_text("\n".join(["path,deployment", *rows]), encoding="utf-8")
    assert deployments_of(results, str(tmp_path / "cams.csv"))[:3] == ["=two", "one", "=two"]
    (tmp_path / "cams.csv").write_text("\n".join(["path,deployment", *rows[1:]]), encoding="utf-8")
    with pytest.raises(InputError, match="names no deployment for 1 of the 40 images"):
        deployments_of(results, str(tmp_path / "cams.csv"))
    (tmp_path / "cams.csv").write_text("path,camera\nx,y\n")
    with pytest.raises(InputError, match="must have path and deployment"):
        deployments_of(results, str(tmp_path / "cams.csv"))
    with pytest.raises(InputError, match="does not exist"):
        deployments_of(results, str(tmp_path / "none.csv"))


def test_times_span_the_images_and_doubts_are_told() -> None:
    one = Deployment(JUNE, JUNE)
    one.add(JULY, CAMERA_CLOCK)
    one.add(MAY, CAMERA_CLOCK)
    assert (one.start, one.end, one.unsure) == (MAY, JULY, False)
    one.add(JUNE, FILE_CLOCK)
    assert one.unsure


def test_what_people_fill_in_stays(tmp_path) -> None:
    (row,) = merge_deployments({"a": Deployment(JUNE, JUNE)}, [])
    assert list(row) == list(DEPLOYMENT_COLUMNS)
    assert (row["deploymentStart"], row["timestampIssues"]) == ("2020-06-01T00:00:00+00:00", "false")
    filled = row | {
        "latitude": "-51.5",
        "habitat": "dune",
        "deploymentStart": MAY.isoformat(),
        "timestampIssues": "true",
    }
    other = dict.fromkeys(DEPLOYMENT_COLUMNS, "") | {"deploymentID": "b", "cameraID": "7"}
    bare = dict.fromkeys(DEPLOYMENT_COLUMNS, "") | {
        "deploymentID": "c",
        "deploymentStart": "x",
        "deploymentEnd": "y",
    }
    again = merge_deployments({"a": Deployment(JUNE, JULY)}, [filled, other, bare])
    assert [one["deploymentID"] for one in again] == ["a", "b"]  # nothing was filled into c
    first = again[0]
    assert (first["latitude"], first["habitat"], first["timestampIssues"]) == ("-51.5", "dune", "true")
    assert (first["deploymentStart"], first["deploymentEnd"]) == (MAY.isoformat(), JULY.isoformat())


def test_a_table_from_a_spreadsheet_is_read(tmp_path) -> None:
    file = tmp_path / "deployments.csv"
    assert read_deployments(file) == []
    file.write_bytes("\ufeffdeploymentID;latitude;longitude\r\n'=a;51.5;4.7\r\nb;;\r\nc;91;0\r\n".encode())
    rows = read_deployments(file)
    assert [row["deploymentID"] for row in rows] == ["=a", "b", "c"]
    assert parse_coordinates(rows) == [(4.7, 51.5)]
    file.write_text("id\n1\n")
    with pytest.raises(InputError, match="no column deploymentID"):
        read_deployments(file)
    file.write_bytes(b"deploymentID\n\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_deployments(file)
