"""Predictions for Label Studio, CVAT and FiftyOne, what people say there as edits, and Darwin Core."""

import csv
import json
import shutil
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from export.made_results import edit, paths
from holotype.export.annotation_tools import write_cvat, write_fiftyone, write_label_studio
from holotype.export.darwin_core import OCCURRENCE, write_darwin_core
from holotype.export.results_table import read_results_table
from holotype.results.annotated import LOCAL_FILES, read_corrections
from holotype.results.discovery import Discovery
from holotype.results.edits import apply_edits
from tests.cli.conftest import assert_sentence


@pytest.fixture
def said(made) -> dict[str, tuple[str, float]]:
    """Category and score of every image that can be read, by its name."""
    results = read_results_table(made)
    rows = [row for row in range(len(results)) if not results.problem[row]]
    scores = [1.0 if results.by_hand[row] else results.probability[row] for row in rows]
    return {
        results.below_root(results.path[row]): (results.category[row], score)
        for row, score in zip(rows, scores, strict=True)
    }


def label_studio(made: Path, answers: dict[str, object], skip: tuple[str, ...] = ()) -> Path:
    """What Label Studio exports once people have answered."""
    file = made.parent / "tasks.json"
    write_label_studio(made, file, overwrite=True)
    tasks = json.loads(file.read_text(encoding="utf-8"))
    for number, task in enumerate(tasks):
        name = task["data"]["path"]
        if name in answers:
            result = [{"type": "choices", "value": {"choices": [answers[name]]}, "from_name": "category"}]
            late = {
                "result": result,
                "was_cancelled": name in skip,
                "updated_at": f"2026-01-02T00:00:{number:02d}Z",
            }
            never = [{"type": "choices", "value": {"choices": ["never"]}}]
            early = {"result": never, "updated_at": "2026-01-01"}
            task["annotations"] = [late] if name in skip else [late, early]
        del task["data"]["path" if number % 2 else "image"]
    out = made.parent / "export.json"
    out.write_text(json.dumps(tasks), encoding="utf-8")
    return out


def test_label_studio_gets_a_prediction_for_each_image(made, said, tmp_path) -> None:
    done = write_label_studio(made, tmp_path / "tasks.json")
    tasks = json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8"))
    found, root = {}, Path(Discovery.load(made).facts.root)
    for task in tasks:
        (prediction,) = task["predictions"]
        (one,) = prediction["result"]
        served = Path(root.parent, unquote(task["data"]["image"].removeprefix(LOCAL_FILES)))
        assert served == root / task["data"]["path"]  # with the folder above as document root
        score = pytest.approx(prediction["score"], abs=1e-5)
        found[task["data"]["path"]] = (one["value"]["choices"][0], score)
    assert said == found
    assert done.images == len(said)
    config = ET.fromstring((tmp_path / "tasks.config.xml").read_text(encoding="utf-8"))
    names = [category.name for category in Discovery.load(made).categories]
    assert [one.attrib["value"] for one in config.iter("Choice")] == names


def test_cvat_and_fiftyone_say_the_same(made, said, tmp_path) -> None:
    write_cvat(made, tmp_path / "a.xml")
    write_fiftyone(made, tmp_path / "a.json")
    images = ET.parse(tmp_path / "a.xml").getroot().findall("image")
    tags = {image.attrib["name"]: image.find("tag") for image in images}
    assert {name: tag.attrib["label"] for name, tag in tags.items()} == {n: c for n, (c, _) in said.items()}
    assert {tag.attrib["source"] for tag in tags.values()} == {"auto"}
    for name, (_, score) in said.items():
        assert float(tags[name].findtext("attribute")) == pytest.approx(score, abs=1e-4)
    labels = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["labels"]
    assert len(labels) == len({Path(name).with_suffix("") for name in said})
    for name, (category, score) in said.items():
        one = labels[str(Path(name).with_suffix(""))]
        assert (one["label"], one["confidence"]) == (category, pytest.approx(score, abs=1e-5))


def test_answers_of_label_studio_come_back_as_edits(made, said) -> None:
    names = [name for name, (category, _) in said.items() if category == "new-01"]
    other = next(category for category, _ in said.values() if category != "new-01")
    answers = {names[0]: "new-01", names[1]: other, names[2]: "owl", names[3]: "owl"}
    edits = read_corrections(made, label_studio(made, answers, skip=(names[3],)))
    root = Discovery.load(made).facts.root
    assert sorted((one.action, one.image.removeprefix(f"{root}/"), one.value) for one in edits) == sorted(
        [("confirm", names[0], "new-01"), ("move", names[1], other), ("move", names[2], "owl")]
    )
    found = Discovery.load(made)
    assert {one.run_id for one in edits} == {found.run_id}
    applied = apply_edits(found, edits)
    assert applied.problems == []
    lies = dict(zip(applied.discovery.images.path, applied.discovery.images.category, strict=True))
    assert [lies[f"{root}/{name}"] for name in names[:4]] == ["new-01", other, "owl", "new-01"]


def test_answers_of_cvat_come_back_and_what_nobody_touched_does_not(made, said, tmp_path) -> None:
    write_cvat(made, tmp_path / "a.xml")
    assert read_corrections(made, tmp_path / "a.xml") == []
    tree = ET.parse(tmp_path / "a.xml")
    first, second, *_ = tree.getroot().findall("image")
    first.find("tag").set("source", "manual")
    second.find("tag").set("source", "manual")
    second.find("tag").set("label", "owl")
    second.set("name", f"upload/{second.get('name')}")  # CVAT puts the folder of the upload in front
    tree.write(tmp_path / "b.xml")
    edits = read_corrections(made, tmp_path / "b.xml")
    root = Discovery.load(made).facts.root
    assert [(one.action, one.image.removeprefix(f"{root}/")) for one in edits] == [
        ("confirm", first.get("name")),
        ("move", second.get("name").removeprefix("upload/")),
    ]


def test_labels_are_written_as_names_are_and_empty_ones_say_nothing(made, said) -> None:
    first, second, *_ = (name for name, (category, _) in said.items() if category == "new-01")
    edits = read_corrections(made, label_studio(made, {first: " barn\n owl ", second: " "}))
    assert [(one.action, one.value) for one in edits] == [("move", "barn owl")]


@pytest.mark.parametrize("label", [7, "x" * 200_000])
def test_what_is_no_label_is_refused(made, said, holotype, label) -> None:
    before = {file: file.read_bytes() for file in made.iterdir() if file.is_file()}
    file = label_studio(made, {next(iter(said)): label})
    assert_sentence(holotype("report", made, "--edits", file), "label")
    assert {file: file.read_bytes() for file in before} == before


def test_tasks_of_another_run_are_refused_though_the_names_are_the_same(made, said, holotype) -> None:
    file = label_studio(made, {next(iter(said)): "owl"})
    file.write_text(file.read_text(encoding="utf-8").replace(Discovery.load(made).run_id, "another-1"))
    assert_sentence(holotype("report", made, "--edits", file), "another-1")
    assert not (made / "edits.csv").exists()


def test_the_report_takes_them(made, said, holotype) -> None:
    name = next(name for name, (category, _) in said.items() if category == "new-01")
    done = holotype("report", made, "--edits", label_studio(made, {name: "owl"}))
    assert done.code == 0, done.err
    assert "owl" in set(Discovery.load(made).images.category)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", '[{"data": {"image": "x/1.jpg"}, "annotations": '
         '[{"result": [{"type": "choices", "value": {"choices": ["owl"]}}]}]}]', "another project"),
        ("a.json", '{"info": {}}', "no export of Label Studio"),
        ("a.json", "[{", "no export of Label Studio"),
        ("a.xml", "<annotation/>", "no export of CVAT"),
        ("a.xml", "<annotations><image", "no export of CVAT"),
    ],
)  # fmt: skip
def test_files_of_other_projects_are_refused_and_nothing_is_lost(made, holotype, name, content, words):
    (made.parent / name).write_text(content, encoding="utf-8")
    before = (made / "discovery.json").read_bytes()
    assert_sentence(holotype("report", made, "--edits", made.parent / name), words)
    assert (made / "discovery.json").read_bytes() == before


def test_darwin_core_has_an_occurrence_for_each_image(made, said, tmp_path) -> None:
    confirmed = ("confirm", paths(made, "new-01")[0], "new-01", "new-01")
    edit(made, ("rename", "", "new-01", "Vulpes vulpes"), confirmed)
    done = write_darwin_core(made, tmp_path / "archive")
    rows = list(csv.DictReader((tmp_path / "archive/occurrence.txt").open(encoding="utf-8"), delimiter="\t"))
    assert len(rows) == done.occurrences == len(said)
    foxes = [row for row in rows if row["scientificName"] == "Vulpes vulpes"]
    assert len(foxes) == done.named == sum(category == "new-01" for category, _ in said.values())
    assert "verified" in {row["identificationVerificationStatus"] for row in foxes}
    assert {row["vernacularName"] for row in rows if row["verbatimIdentification"] == "new-02"} == {""}
    meta = ET.parse(tmp_path / "archive/meta.xml").getroot()
    core = meta.find("{*}core")
    assert [one.attrib["term"] for one in core.findall("{*}field")] == list(OCCURRENCE.values())
    media = (tmp_path / "archive/multimedia.txt").read_text(encoding="utf-8").splitlines()
    assert len(media) == len(rows) + 1
    assert np.all([len(line.split("\t")) == 3 for line in media])


@pytest.mark.packages
def test_the_sdk_of_label_studio_takes_tasks_and_predictions(made, tmp_path) -> None:
    sdk = pytest.importorskip("label_studio_sdk.label_interface", reason="pip install label-studio-sdk")
    write_label_studio(made, tmp_path / "tasks.json")
    interface = sdk.LabelInterface((tmp_path / "tasks.config.xml").read_text(encoding="utf-8"))
    interface.validate()
    for task in json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8")):
        assert interface.validate_task({"data": task["data"]})
        assert [interface.validate_prediction(one) for one in task["predictions"]] == [True]


@pytest.mark.packages
def test_datumaro_reads_what_cvat_takes(made, said, tmp_path) -> None:
    datumaro = pytest.importorskip("datumaro", reason="pip install datumaro")
    shutil.copytree(Discovery.load(made).facts.root, tmp_path / "task" / "images")
    write_cvat(made, tmp_path / "task" / "annotations.xml")
    found = datumaro.Dataset.import_from(str(tmp_path / "task"), "cvat")
    assert len(found) == len(said)
    names = [label.name for label in found.categories()[datumaro.AnnotationType.label]]
    assert {names[item.annotations[0].label] for item in found} == {category for category, _ in said.values()}


@pytest.mark.packages
def test_fiftyone_reads_the_labels(made, said, tmp_path) -> None:
    importers = pytest.importorskip("fiftyone.utils.data.importers", reason="pip install fiftyone")
    write_fiftyone(made, tmp_path / "labels.json")
    kind = importers.FiftyOneImageClassificationDatasetImporter
    with kind(data_path=Discovery.load(made).facts.root, labels_path=str(tmp_path / "labels.json")) as read:
        labels = {Path(path).name: label for path, _, label in read}
    assert {Path(name).name: category for name, (category, _) in said.items()} == {
        name: label.label for name, label in labels.items()
    }


@pytest.mark.packages
def test_a_reader_of_darwin_core_takes_the_archive(made, said, tmp_path) -> None:
    dwca = pytest.importorskip("dwca.read", reason="pip install python-dwca-reader")
    write_darwin_core(made, tmp_path / "archive")
    with dwca.DwCAReader(str(tmp_path / "archive")) as archive:
        rows = list(archive)
        assert len(rows) == len(said)
        assert all(len(row.extensions) == 1 for row in rows)
        term = "http://rs.tdwg.org/dwc/terms/basisOfRecord"
        assert {row.data[term] for row in rows} == {"MachineObservation"}
