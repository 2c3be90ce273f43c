"""A Camtrap DP package: keys lead somewhere, values are those that the standard allows, people's own work stays."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from export.made_results import edit, made_run, paths
from export.test_image_header import photo
from holotype.errors import InputError
from holotype.export.camtrap import (
    BY_FOLDER,
    DEPLOYMENT_COLUMNS,
    MEDIA,
    OBSERVATIONS,
    Deployment,
    build_datapackage,
    deployments_of,
    media_address,
    merge_deployments,
    missing_fields,
    observation_type,
    parse_coordinates,
    read_deployments,
    read_package,
    scientific_name,
    write_camtrap,
)
from holotype.export.camtrap import DEPLOYMENT_COLUMNS as DEPLOYMENTS
from holotype.export.image_header import CAMERA_CLOCK, FILE_CLOCK
from holotype.export.results_table import read_results_table
from holotype.results.discovery import Category, Discovery
from tests.conftest import write_csv

FILE_PATH = re.compile(r"(?=^[^./~])(^((?!\.{2}).)*$).*$")
"""The standard's own pattern."""
REQUIRED = {
    "deployments": ("deploymentID", "deploymentStart", "deploymentEnd"),  # and a place, which nobody told us
    "media": ("mediaID", "deploymentID", "timestamp", "filePath", "filePublic", "fileMediatype"),
    "observations": (
        *("observationID", "deploymentID", "eventStart", "eventEnd"),
        *("observationLevel", "observationType"),
    ),
}


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def assert_valid(folder: Path) -> None:
    tables = {name: table(folder, name) for name in REQUIRED}
    for name, columns in (("deployments", DEPLOYMENTS), ("media", MEDIA), ("observations", OBSERVATIONS)):
        assert tuple(tables[name][0]) == columns
        assert all(row[column] for row in tables[name] for column in REQUIRED[name])
        ids = [row[columns[0]] for row in tables[name]]
        assert len(set(ids)) == len(ids)
    deployments = {row["deploymentID"] for row in tables["deployments"]}
    media = {row["mediaID"]: row for row in tables["media"]}
    assert {row["deploymentID"] for row in tables["media"]} <= deployments
    for row in media.values():
        assert FILE_PATH.match(row["filePath"])
        assert row["fileMediatype"].startswith("image/")
        assert datetime.fromisoformat(row["timestamp"]).tzinfo is not None
    for row in tables["observations"]:
        mine = media[row["mediaID"]]
        assert row["deploymentID"] == mine["deploymentID"]
        assert row["eventStart"] == row["eventEnd"] == mine["timestamp"]
        assert row["observationType"] in {"animal", "human", "vehicle", "blank", "unknown", "unclassified"}
        assert row["classificationMethod"] in {"human", "machine", ""}
        assert 0 <= float(row["classificationProbability"] or 0) <= 1


@pytest.fixture
def run(tmp_path) -> Path:
    return made_run(tmp_path)


def local(url: str) -> str:
    return unquote(url.removeprefix("file://"))


def test_it_says_what_the_run_says(run, tmp_path) -> None:
    moved, rejected, *_ = paths(run, "Bag")
    found = edit(
        run,
        ("rename", "", "new-01", "Vulpes vulpes"),
        ("rename", "", "new-02", "Human"),
        ("move", moved, "", "new-01"),
        ("reject", rejected, "", ""),
    )
    done = write_camtrap(run, tmp_path / "dp")
    assert_valid(tmp_path / "dp")
    assert (done.images, done.deployments, done.names, done.gone) == (40, 1, ["Vulpes vulpes"], 0)
    file_of = {row["mediaID"]: local(row["filePath"]) for row in table(tmp_path / "dp", "media")}
    assert set(file_of.values()) == set(found.images.path)
    said = {file_of[row["mediaID"]]: row for row in table(tmp_path / "dp", "observations")}
    for row in found.images.itertuples():
        mine = said[str(row.path)]
        if row.path == rejected:
            assert (mine["observationType"], mine["classificationMethod"]) == ("unclassified", "")
            continue
        human = row.label != "" or row.path == moved
        assert mine["classificationMethod"] == ("human" if human else "machine")
        assert mine["classificationProbability"] == ("" if human else f"{row.probability:.6g}")
        assert mine["classifiedBy"].startswith("Holotype") != human
        assert mine["scientificName"] == ("Vulpes vulpes" if row.category_id == "new-01" else "")
        kinds = {"new-02": "human", "new-03": "unknown", "new-04": "unknown"}
        assert mine["observationType"] == kinds.get(row.category_id, "animal")
        assert (
            f"category:{row.category} | kind:{'known' if row.kind == 'known' else 'new'}"
            in mine["observationTags"]
        )
        assert ("doubtful:true" in mine["observationTags"]) == row.doubtful
    content = json.loads((tmp_path / "dp" / "datapackage.json").read_text(encoding="utf-8"))
    assert content["taxonomic"] == [{"scientificName": "Vulpes vulpes"}]


def test_where_times_come_from_is_said(run, tmp_path) -> None:
    found = Discovery.load(run)
    taken = {0: {0x9003: "2020:05:30 04:57:37", 0x9011: "+02:00"}, 1: {0x9003: "2020:06:30 04:57:37"}}
    for row, exif in taken.items():
        photo(Path(found.images.path[row]), exif, format="JPEG")
    done = write_camtrap(run, tmp_path / "dp")
    assert dict(done.clocks) == {"camera": 1, "camera without a time zone": 1, "file": 38}
    rows = table(tmp_path / "dp", "media")
    assert (rows[0]["timestamp"], rows[0]["mediaComments"]) == ("2020-05-30T04:57:37+02:00", "")
    assert "time zone" in rows[1]["mediaComments"]
    assert "time of the file" in rows[2]["mediaComments"]
    (deployment,) = table(tmp_path / "dp", "deployments")
    assert deployment["deploymentStart"] == "2020-05-30T04:57:37+02:00"
    assert deployment["timestampIssues"] == "true"


def test_a_second_call_keeps_what_people_filled_in(run, tmp_path) -> None:
    folder = tmp_path / "dp"
    first = write_camtrap(run, folder)
    assert first.missing[0] == "latitude and longitude in deployments.csv"
    rows = table(folder, "deployments")
    rows[0] |= {"latitude": "-51.5", "longitude": "4.7", "habitat": "=dune"}
    with (folder / "deployments.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, DEPLOYMENTS)
        writer.writeheader()
        writer.writerows(rows)
    content = json.loads((folder / "datapackage.json").read_text())
    content["contributors"] = [{"title": "A. Person"}]
    content["project"] |= {"samplingDesign": "opportunistic", "captureMethod": ["activityDetection"]}
    (folder / "datapackage.json").write_text(json.dumps(content))
    edit(run, ("rename", "", "new-01", "Sus scrofa"))
    again = write_camtrap(run, folder, overwrite=True)
    assert again.missing == []
    assert_valid(folder)
    (row,) = table(folder, "deployments")
    assert (row["latitude"], row["habitat"]) == ("-51.5", "=dune")
    content = json.loads((folder / "datapackage.json").read_text())
    assert content["spatial"] == {"type": "Point", "coordinates": [4.7, -51.5]}
    assert content["contributors"] == [{"title": "A. Person"}]
    assert content["taxonomic"] == [{"scientificName": "Sus scrofa"}]


def test_what_others_made_or_changed_is_not_replaced(run, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "media.csv").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        write_camtrap(run, tmp_path / "mine")
    write_camtrap(run, tmp_path / "dp")
    with pytest.raises(InputError, match="--overwrite"):
        write_camtrap(run, tmp_path / "dp")
    with (tmp_path / "dp" / "observations.csv").open("a") as stream:
        stream.write("one of my own\n")
    before = {file.name: file.read_bytes() for file in (tmp_path / "dp").iterdir()}
    with pytest.raises(InputError, match=r"would be lost.*observations\.csv"):
        write_camtrap(run, tmp_path / "dp", overwrite=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "dp").iterdir()} == before


def test_images_can_be_part_of_the_package(run, tmp_path) -> None:
    folder = tmp_path / "dp"
    done = write_camtrap(run, folder, copy=True)
    assert done.copied == 40
    assert_valid(folder)
    for row in table(folder, "media"):
        assert row["filePath"].startswith("media/my pictures/")
        assert (folder / row["filePath"]).is_file()
    assert write_camtrap(run, folder, overwrite=True).copied == 0
    assert not (folder / "media").exists()  # unchanged copies, whose originals are there


def test_images_inside_a_container_always_are(run, tmp_path) -> None:
    np.savez(tmp_path / "pack.npz", x=np.zeros((2, 5, 7), dtype=np.uint8))
    found = Discovery.load(run)
    found.images.loc[4, "path"] = f"{tmp_path / 'pack.npz'}#1"
    found.images.loc[5, ["path", "problem"]] = [f"{tmp_path / 'pack.npz'}#7", "there is no image 7"]
    found.save(run)
    done = write_camtrap(run, tmp_path / "dp")
    assert (done.images, done.copied, done.gone) == (39, 1, 1)
    assert_valid(tmp_path / "dp")
    (inside,) = (row for row in table(tmp_path / "dp", "media") if row["filePath"].startswith("media/"))
    assert inside["filePath"] == "media/my pictures/pack.npz-1.png"


def test_several_deployments_and_ids_that_stay(run, tmp_path) -> None:
    found = Discovery.load(run)
    rows = [(str(path), f"cam {i % 2}") for i, path in enumerate(found.images.path)]
    write_csv(tmp_path / "cams.csv", "path,deployment", rows)
    before = write_camtrap(run, tmp_path / "one")
    after = write_camtrap(run, tmp_path / "two", deployments=str(tmp_path / "cams.csv"))
    assert (before.deployments, after.deployments) == (1, 2)
    assert_valid(tmp_path / "two")
    ids = [[row["mediaID"] for row in table(tmp_path / name, "media")] for name in ("one", "two")]
    assert ids[0] == ids[1]


def test_an_address_holds_no_two_dots() -> None:
    assert media_address("/a b/x..y#1.jpg") == "file:///a%20b/x%2E%2Ey%231.jpg"
    assert FILE_PATH.match(media_address("/../x.jpg"))


def as_boxes(run: Path, rows: tuple[int, int]) -> None:
    """Let two images of a run be boxes of one picture, that of the first."""
    found = Discovery.load(run)
    path = [str(one) for one in found.images.path]
    path[rows[0]], path[rows[1]] = (
        f"{path[rows[0]]}#xywh=percent:{corner},{corner},40,40" for corner in (0, 50)
    )
    replace(found, images=found.images.assign(path=path)).save(run)


def test_a_species_in_the_second_box_of_a_picture_is_named(run, tmp_path) -> None:
    images = edit(run, ("rename", "", "new-01", "Vulpes vulpes")).images
    others, foxes = np.flatnonzero(images.kind == "known"), np.flatnonzero(images.category_id == "new-01")
    as_boxes(run, (int(others[0]), int(foxes[0])))
    found = Discovery.load(run)
    keep = [row for row in range(len(found.images)) if row not in foxes[1:]]
    replace(found, images=found.images.iloc[keep].reset_index(drop=True)).save(run)
    done = write_camtrap(run, tmp_path / "dp")
    assert done.names == ["Vulpes vulpes"]
    content = json.loads((tmp_path / "dp" / "datapackage.json").read_text(encoding="utf-8"))
    assert content["taxonomic"] == [{"scientificName": "Vulpes vulpes"}]


def test_an_event_begins_before_it_ends_though_the_clock_is_set_back_in_it(run, tmp_path) -> None:
    found = Discovery.load(run)
    for row, (time, offset) in enumerate((("02:59:58", "+02:00"), ("02:00:01", "+01:00"))):
        photo(Path(found.images.path[row]), {0x9003: f"2024:10:27 {time}", 0x9011: offset}, format="JPEG")
    group = ["n-17" if row < 2 else "" for row in range(len(found.images))]
    replace(found, images=found.images.assign(group=group)).save(run)
    write_camtrap(run, tmp_path / "dp")
    events = [row for row in table(tmp_path / "dp", "observations") if row["eventID"] == "n-17"]
    assert len(events) == 2
    for row in events:
        assert (row["eventStart"], row["eventEnd"]) == (
            "2024-10-27T02:59:58+02:00",
            "2024-10-27T02:00:01+01:00",
        )


TIMES = (datetime(2020, 5, 30, tzinfo=UTC), datetime(2021, 4, 18, tzinfo=UTC))
SPECIES = ["Vulpes vulpes", "Canis lupus", "Canis latrans", "Sus scrofa", "Ursus arctos", "Lynx lynx", "Gulo gulo",
           "Puma concolor", "Panthera leo", "Rangifer tarandus", "Procyon lotor", "Capra ibex", "Ovis canadensis",
           "Alces alces", "Lynx rufus", "Canis lupus familiaris", "Bos taurus", "Marmota monax"]  # fmt: skip
OTHERS = ["Ankle boot", "Red kite", "red fox", "Lesser panda", "Common iguana", "Giant panda", "Roe deer", "Bag",
          "Canis", "new-01", "T-shirt", "Sea otter", "Sea lions", "Wild boar", "VULPES VULPES", "Vulpes Vulpes",
          "Vulpes sp.", "near Bag, new 1", "Guinea hens", ""]  # fmt: skip


def test_scientific_names_are_told_from_others() -> None:
    assert [name for name in SPECIES if scientific_name(name) != name] == []
    assert [name for name in OTHERS if scientific_name(name)] == []


def test_what_an_observation_is_of() -> None:
    def said(name: str, kind: str = "novel") -> str:
        return observation_type(Category("id", name, kind, 1))  # type: ignore[arg-type]

    assert said("new-03") == "unknown"
    assert said("new-03", "known") == "unknown"  # a class since it was split, and nobody knows what it is
    assert [said(name) for name in ("Red kite", "Human", "people", "vehicle", "Empty", "blank")] == [
        "animal",
        *("human", "human", "vehicle", "blank", "blank"),
    ]


@pytest.fixture
def results(tmp_path):
    return read_results_table(made_run(tmp_path))


def test_it_says_what_the_standard_asks_for_and_what_is_missing(results) -> None:
    content = build_datapackage(results, {}, TIMES, [], ["Sus scrofa", "Canis lupus", "Sus scrofa"])
    required = {"resources", "profile", "created", "project", "spatial", "temporal", "taxonomic"}
    assert required <= set(content)
    assert [one["name"] for one in content["resources"]] == ["deployments", "media", "observations"]
    for one in content["resources"]:
        assert one["profile"] == "tabular-data-resource"
        assert one["schema"].endswith(f"/1.0.2/{one['name']}-table-schema.json")
    assert content["profile"].endswith("/1.0.2/camtrap-dp-profile.json")
    assert datetime.fromisoformat(content["created"]).tzinfo is not None
    assert content["temporal"] == {"start": "2020-05-30", "end": "2021-04-18"}
    assert content["taxonomic"] == [{"scientificName": "Canis lupus"}, {"scientificName": "Sus scrofa"}]
    assert content["project"] == {
        "title": "my pictures",
        "individualAnimals": False,
        "observationLevel": ["media"],
    }
    assert content["name"] == "my-pictures"
    assert missing_fields(content) == ["contributors", "project.samplingDesign", "project.captureMethod"]


def test_what_people_add_stays(results) -> None:
    held = build_datapackage(results, {}, TIMES, [], [])
    held["contributors"] = [{"title": "A. Person"}]
    held["project"] |= {
        "samplingDesign": "opportunistic",
        "captureMethod": ["activityDetection"],
        "title": "Mine",
    }
    held["taxonomic"] = [
        {"scientificName": "Sus scrofa", "taxonRank": "species"},
        {"scientificName": "Old name"},
    ]
    held["sources"].append({"title": "Another"})
    held["resources"].append({"name": "individuals", "data": []})
    held["licenses"] = ["mine"]
    again = build_datapackage(results, held, TIMES, [(4.0, 50.7), (5.7, 51.5)], ["Sus scrofa"])
    assert missing_fields(again) == []
    assert again["project"]["title"] == "Mine"
    assert again["taxonomic"] == [{"scientificName": "Sus scrofa", "taxonRank": "species"}]
    assert [one["title"] for one in again["sources"]] == ["Another", "Holotype"]
    assert [one["name"] for one in again["resources"]] == [
        "deployments",
        "media",
        "observations",
        "individuals",
    ]
    assert again["licenses"] == ["mine"]
    ring = again["spatial"]["coordinates"][0]
    assert ring[0] == ring[-1] == [4.0, 50.7]
    assert [5.7, 51.5] in ring
    assert build_datapackage(results, held, TIMES, [(4.0, 50.7)], [])["spatial"] == {
        "type": "Point",
        "coordinates": [4.0, 50.7],
    }


def test_a_file_that_is_no_package_any_more_is_one_sentence(tmp_path) -> None:
    file = tmp_path / "datapackage.json"
    assert read_package(file) == {}
    for text in ("{", "[]", '{"project": 3}', '{"taxonomic": {}}', '{"sources": [1]}'):
        file.write_text(text)
        with pytest.raises(InputError, match="any more"):
            read_package(file)


MAY, JUNE, JULY = (datetime(2020, month, 1, tzinfo=UTC) for month in (5, 6, 7))


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
