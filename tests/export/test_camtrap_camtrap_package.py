"""datapackage.json: only what is known, and what people add stays."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from export.made_results import made_run
from holotype.errors import InputError
from holotype.export.camtrap import (
    build_datapackage,
    missing_fields,
    observation_type,
    read_package,
    scientific_name,
)
from holotype.export.results_table import read_results_table
from holotype.results.discovery import Category

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
