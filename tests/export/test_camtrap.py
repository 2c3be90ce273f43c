"""A Camtrap DP package: keys lead somewhere, values are those that the standard allows, people's own work stays.

Times, sizes and formats come from the headers of the images.
"""

import csv
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from export.made_results import edit, paths
from holotype.data.exif import (
    CAMERA_CLOCK,
    CAMERA_CLOCK_NO_ZONE,
    FILE_CLOCK,
    ImageHeader,
    read_headers,
)
from holotype.errors import InputError
from holotype.export import camtrap
from holotype.export.camtrap import DEPLOYMENTS, MEDIA, OBSERVATIONS, missing_fields, write_camtrap
from holotype.export.results_table import read_results_table
from holotype.results.discovery import Category, Discovery
from tests.conftest import write_csv

WRITTEN = datetime(2021, 4, 18, 20, 25, tzinfo=UTC)


def photo(path: Path, exif: dict[int, str] | None = None, orientation: int = 1, **how) -> str:
    image, data = Image.new("RGB", (40, 30)), Image.Exif()
    data[0x0112] = orientation
    data.get_ifd(0x8769).update(exif or {})
    data[0x8769] = 0  # TIFF is written without its EXIF data otherwise
    image.save(path, exif=data, **how)
    os.utime(path, (WRITTEN.timestamp(), WRITTEN.timestamp()))
    return str(path)


TAKEN = "2020:05:30 04:57:37"
HOURS = timedelta(hours=3.5)
NOON = datetime(2020, 5, 30, 4, 57, 37)


@pytest.mark.parametrize(
    ("exif", "clock", "time"),
    [
        ({0x9003: TAKEN, 0x9011: "+02:00"}, CAMERA_CLOCK, NOON.replace(tzinfo=timezone(timedelta(hours=2)))),
        ({0x9003: TAKEN, 0x9011: "-03:30"}, CAMERA_CLOCK, NOON.replace(tzinfo=timezone(-HOURS))),
        ({0x9004: f"{TAKEN}\0"}, CAMERA_CLOCK_NO_ZONE, NOON.astimezone()),
        ({0x9003: "0000:00:00 00:00:00"}, FILE_CLOCK, WRITTEN),
        ({0x9003: "yesterday"}, FILE_CLOCK, WRITTEN),
        ({}, FILE_CLOCK, WRITTEN),
    ],
)
@pytest.mark.parametrize("kind", ["jpeg", "png", "tiff", "webp"])
def test_time_size_and_kind_of_an_image_come_from_its_header(tmp_path, kind, exif, clock, time) -> None:
    """A turned image is measured upright."""
    (header,) = read_headers([photo(tmp_path / f"a.{kind}", exif, orientation=6)])
    assert header == ImageHeader(30, 40, f"image/{kind}", time, clock)
    assert header.time.utcoffset() == time.utcoffset() or clock == FILE_CLOCK


def test_what_is_no_image_has_no_size_and_one_inside_a_container_has_its_time(tmp_path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    (tmp_path / "b.xyz").write_bytes(b"")
    np.savez(tmp_path / "pack.npz", x=np.zeros((2, 5, 7), dtype=np.uint8))
    names = {"a.jpg": (0, 0, "image/jpeg"), "b.xyz": (0, 0, "image/unknown"), "pack.npz#1": (7, 5, "image/png"),
             "pack.npz#2": (0, 0, "image/png")}  # fmt: skip
    found = read_headers([str(tmp_path / name) for name in names] * 700, progress=False)  # in their order
    assert [(one.width, one.height, one.mediatype) for one in found] == [*names.values()] * 700


FILE_PATH = re.compile(r"(?=^[^./~])(^((?!\.{2}).)*$).*$")  # the standard's own pattern
COLUMNS = {"deployments": DEPLOYMENTS, "media": MEDIA, "observations": OBSERVATIONS}
REQUIRED = {
    "deployments": ("deploymentID", "deploymentStart", "deploymentEnd"),  # and a place, which nobody told us
    "media": ("mediaID", "deploymentID", "timestamp", "filePath", "filePublic", "fileMediatype"),
    "observations": ("observationID", "deploymentID", "eventStart", "eventEnd", "observationLevel", "observationType"),
}  # fmt: skip
MAY, JUNE, JULY = (datetime(2020, month, 1, tzinfo=UTC) for month in (5, 6, 7))


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def package(folder: Path) -> dict:
    return json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))


def assert_valid(folder: Path) -> None:
    tables = {name: table(folder, name) for name in REQUIRED}
    for name, columns in COLUMNS.items():
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
def dp(tmp_path) -> Path:
    return tmp_path / "dp"


def test_it_says_what_the_run_says(made, dp) -> None:
    moved, rejected, *_ = paths(made, "Bag")
    edit(made, ("rename", "", "new-01", "Vulpes vulpes"), ("rename", "", "new-02", "Human"))
    found = edit(made, ("move", moved, "", "new-01"), ("reject", rejected, "", ""))
    done = write_camtrap(made, dp)
    assert_valid(dp)
    assert (done.images, done.deployments, done.names, done.gone) == (40, 1, ["Vulpes vulpes"], 0)
    files = {row["mediaID"]: unquote(row["filePath"].removeprefix("file://")) for row in table(dp, "media")}
    assert set(files.values()) == set(found.images.path)
    said = {files[row["mediaID"]]: row for row in table(dp, "observations")}
    kinds = {"new-02": "human", "new-03": "unknown", "new-04": "unknown"}
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
        assert mine["observationType"] == kinds.get(row.category_id, "animal")
        kind = "known" if row.kind == "known" else "new"
        assert f"category:{row.category} | kind:{kind}" in mine["observationTags"]
        assert ("doubtful:true" in mine["observationTags"]) == row.doubtful
    content = package(dp)
    assert content["taxonomic"] == [{"scientificName": "Vulpes vulpes"}]
    for one in content["resources"]:
        assert one["schema"].endswith(f"/1.0.2/{one['name']}-table-schema.json")
    assert content["profile"].endswith("/1.0.2/camtrap-dp-profile.json")
    assert missing_fields(content) == ["contributors", "project.samplingDesign", "project.captureMethod"]
    rows = [(str(path), f"cam {i % 2}") for i, path in enumerate(found.images.path)]
    cams, two = write_csv(dp.parent / "cams.csv", "path,deployment", rows), dp.parent / "two"
    assert write_camtrap(made, two, deployments=str(cams)).deployments == 2
    assert_valid(two)
    assert [row["mediaID"] for row in table(two, "media")] == list(files)  # ids stay


def test_where_times_come_from_is_said(made, dp) -> None:
    found = Discovery.load(made)
    taken = {0: {0x9003: "2020:05:30 04:57:37", 0x9011: "+02:00"}, 1: {0x9003: "2020:06:30 04:57:37"}}
    for row, exif in taken.items():
        photo(Path(found.images.path[row]), exif, format="JPEG")
    done = write_camtrap(made, dp)
    assert dict(done.clocks) == {"camera": 1, "camera without a time zone": 1, "file": 38}
    assert "1 image without a time zone" in done.summary(dp)
    rows = table(dp, "media")
    assert (rows[0]["timestamp"], rows[0]["mediaComments"]) == ("2020-05-30T04:57:37+02:00", "")
    assert "time zone" in rows[1]["mediaComments"]
    assert "time of the file" in rows[2]["mediaComments"]
    (deployment,) = table(dp, "deployments")
    assert deployment["deploymentStart"] == "2020-05-30T04:57:37+02:00"
    assert deployment["timestampIssues"] == "true"


def test_a_second_call_keeps_what_people_filled_in(made, dp) -> None:
    assert write_camtrap(made, dp).missing[0] == "latitude and longitude in deployments.csv"
    with pytest.raises(InputError, match="--overwrite"):
        write_camtrap(made, dp)
    row = table(dp, "deployments")[0] | {"latitude": "-51.5", "longitude": "4.7", "habitat": "=dune"}
    write_csv(dp / "deployments.csv", ",".join(row), [tuple(row.values())])
    content = package(dp)
    content["contributors"] = [{"title": "A. Person"}]
    content["project"] |= {"samplingDesign": "opportunistic", "captureMethod": ["activityDetection"]}
    (dp / "datapackage.json").write_text(json.dumps(content))
    edit(made, ("rename", "", "new-01", "Sus scrofa"))
    assert write_camtrap(made, dp, overwrite=True).missing == []
    assert_valid(dp)
    (row,) = table(dp, "deployments")
    assert (row["latitude"], row["habitat"]) == ("-51.5", "=dune")
    assert package(dp)["spatial"] == {"type": "Point", "coordinates": [4.7, -51.5]}
    assert package(dp)["contributors"] == [{"title": "A. Person"}]
    assert package(dp)["taxonomic"] == [{"scientificName": "Sus scrofa"}]
    (dp / "media.csv").write_text("mine")  # what people changed elsewhere is not replaced
    with pytest.raises(InputError, match=r"would be lost.*media\.csv"):
        write_camtrap(made, dp, overwrite=True)
    assert (dp / "media.csv").read_text() == "mine"


def test_images_can_be_part_of_the_package_and_those_of_containers_always_are(made, dp, tmp_path) -> None:
    assert write_camtrap(made, dp, copy=True).copied == 40
    assert_valid(dp)
    for row in table(dp, "media"):
        assert row["filePath"].startswith("media/my pictures/")
        assert (dp / row["filePath"]).is_file()
    np.savez(tmp_path / "pack.npz", x=np.zeros((2, 5, 7), dtype=np.uint8))
    found = Discovery.load(made)
    found.images.loc[4, "path"] = f"{tmp_path / 'pack.npz'}#1"
    found.images.loc[5, ["path", "problem"]] = [f"{tmp_path / 'pack.npz'}#7", "there is no image 7"]
    found.save(made)
    done = write_camtrap(made, dp, overwrite=True)
    assert (done.images, done.copied, done.gone) == (39, 1, 1)
    assert_valid(dp)
    inside = [row["filePath"] for row in table(dp, "media") if row["filePath"].startswith("media/")]
    assert inside == ["media/my pictures/pack.npz-1.png"]  # the others, unchanged copies, are gone


def test_a_species_in_the_second_box_of_a_picture_is_named(made, dp) -> None:
    images = edit(made, ("rename", "", "new-01", "Vulpes vulpes")).images
    other = np.flatnonzero(images.kind == "known")[0]
    fox, *foxes = np.flatnonzero(images.category_id == "new-01")
    found, path = Discovery.load(made), [str(one) for one in images.path]
    path[other], path[fox] = (f"{path[other]}#xywh=percent:{corner},{corner},40,40" for corner in (0, 50))
    replace(found, images=images.assign(path=path).drop(index=foxes).reset_index(drop=True)).save(made)
    assert write_camtrap(made, dp).names == ["Vulpes vulpes"]
    assert package(dp)["taxonomic"] == [{"scientificName": "Vulpes vulpes"}]
    assert {row["bboxX"] for row in table(dp, "observations")} == {"", "0", "0.5"}


SPECIES = ["Vulpes vulpes", "Canis lupus", "Ursus arctos", "Lynx lynx", "Capra ibex"]
SPECIES.append("Canis lupus familiaris")
OTHERS = ["Ankle boot", "Red kite", "red fox", "Lesser panda", "Roe deer", "Canis", "new-01", "T-shirt", "Sea lions",
          "VULPES VULPES", "Vulpes Vulpes", "Vulpes sp.", "near Bag, new 1", "Guinea hens", ""]  # fmt: skip
TYPES = {"Red kite": "animal", "Human": "human", "people": "human", "vehicle": "vehicle", "Empty": "blank",
         "new-03": "unknown"}  # fmt: skip


def test_scientific_names_types_and_addresses() -> None:
    assert [name for name in SPECIES if camtrap.scientific_name(name) != name] == []
    assert [name for name in OTHERS if camtrap.scientific_name(name)] == []
    for kind in ("novel", "known"):  # a class since it was split, and nobody knows what it is
        assert {name: camtrap.observation_type(Category("id", name, kind, 1)) for name in TYPES} == TYPES
    assert camtrap.media_address("/a b/x..y#1.jpg") == "file:///a%20b/x%2E%2Ey%231.jpg"
    assert FILE_PATH.match(camtrap.media_address("/../x.jpg"))


def test_what_people_add_to_it_stays(made) -> None:
    results, sus = read_results_table(made), {"scientificName": "Sus scrofa", "taxonRank": "species"}
    held = camtrap.build_datapackage(results, {}, [MAY], [], [])
    held["project"] |= {"title": "Mine"}
    held["taxonomic"] = [sus, {"scientificName": "Old name"}]
    held["sources"].append({"title": "Another"})
    held["resources"].append({"name": "individuals", "data": []})
    again = camtrap.build_datapackage(results, held, [MAY], [(4.0, 50.7), (5.7, 51.5)], ["Sus scrofa"])
    assert (again["project"]["title"], again["taxonomic"]) == ("Mine", [sus])
    assert [one["title"] for one in again["sources"]] == ["Another", "Holotype"]
    assert again["resources"][-1]["name"] == "individuals"
    ring = again["spatial"]["coordinates"][0]
    assert ring[0] == ring[-1] == [4.0, 50.7]
    assert camtrap.build_datapackage(results, again, [MAY], [], [])["spatial"] == again["spatial"]


def test_a_file_that_is_no_package_any_more_is_one_sentence(tmp_path) -> None:
    file = tmp_path / "datapackage.json"
    assert camtrap.read_package(file) == {}
    for text in ("{", "[]", '{"project": 3}', '{"taxonomic": {}}', '{"sources": [1]}', '{"resources": 1}'):
        file.write_text(text)
        with pytest.raises(InputError, match="any more"):
            camtrap.read_package(file)


def test_one_folders_or_a_file_name_the_deployments(made, tmp_path) -> None:
    results = read_results_table(made)
    assert set(camtrap.deployment_names(results, None)) == {"my pictures"}
    cams = tmp_path / "cams.csv"
    names = [Path(path).name.replace('"', '""') for path in results.path]
    rows = [f'"{name}",{("one", "=two")[i % 2]}' for i, name in enumerate(names)]
    cams.write_text("\n".join(["path,deployment", *rows]), encoding="utf-8")
    assert camtrap.deployment_names(results, str(cams))[:3] == ["one", "=two", "one"]
    cams.write_text("\n".join(["path,deployment", *rows[1:]]), encoding="utf-8")
    with pytest.raises(InputError, match="names no deployment for 1 of the 40 images"):
        camtrap.deployment_names(results, str(cams))
    cams.write_text("path,camera\nx,y\n")
    with pytest.raises(InputError, match="must have the columns path and deployment"):
        camtrap.deployment_names(results, str(cams))
    root = Path(results.found.facts.root)
    results.path[:3] = [str(root / name) for name in ("cam 1/a/1.png", "cam 2/1.png", "1.png")]
    assert camtrap.deployment_names(results, camtrap.BY_FOLDER)[:3] == ["cam 1", "cam 2", "my pictures"]
    results.path[3] = "/elsewhere/1.png"
    with pytest.raises(InputError, match="share no folder"):
        camtrap.deployment_names(results, camtrap.BY_FOLDER)


def headers(times: Iterable[datetime], clock: str = CAMERA_CLOCK) -> list[ImageHeader]:
    return [ImageHeader(1, 1, "image/png", time, clock) for time in times]


def test_times_span_the_images_and_what_people_fill_in_stays() -> None:
    (row,) = camtrap.merge_deployments({"a": headers([JUNE, JULY, MAY])}, [])
    assert tuple(row) == DEPLOYMENTS
    assert (row["deploymentStart"], row["deploymentEnd"]) == (MAY.isoformat(), JULY.isoformat())
    assert row["timestampIssues"] == "false"
    assert camtrap.merge_deployments({"a": headers([JUNE], FILE_CLOCK)}, [])[0]["timestampIssues"] == "true"
    filled = row | {"latitude": "-51.5", "habitat": "dune", "deploymentEnd": "?", "timestampIssues": "true"}
    empty = dict.fromkeys(DEPLOYMENTS, "")
    other = empty | {"deploymentID": "b", "cameraID": "7"}
    bare = empty | {"deploymentID": "c", "deploymentEnd": "y"}
    first, second = camtrap.merge_deployments({"a": headers([JUNE])}, [filled, other, bare])
    assert second["deploymentID"] == "b"  # nothing was filled into c
    assert (first["latitude"], first["habitat"], first["timestampIssues"]) == ("-51.5", "dune", "true")
    assert (first["deploymentStart"], first["deploymentEnd"]) == (MAY.isoformat(), JUNE.isoformat())


def test_a_table_from_a_spreadsheet_is_read(tmp_path) -> None:
    file = tmp_path / "deployments.csv"
    assert camtrap.read_deployments(file) == []
    file.write_bytes("\ufeffdeploymentID;latitude;longitude\r\n'=a;51.5;4.7\r\nb;;\r\nc;91;0\r\n".encode())
    rows = camtrap.read_deployments(file)
    assert [row["deploymentID"] for row in rows] == ["=a", "b", "c"]
    assert camtrap.parse_coordinates(rows) == [(4.7, 51.5)]
    file.write_text("id\n1\n")
    with pytest.raises(InputError, match="no column deploymentID"):
        camtrap.read_deployments(file)
