"""Labels for a next made, which `discover` reads back, and COCO JSON by its public description."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from export.made_results import edit, made_run, paths
from holotype.data.boxes import Box, with_box
from holotype.data.load import load_table
from holotype.errors import InputError
from holotype.export.coco import write_coco
from holotype.export.results_table import label_rows, read_results_table, write_labels
from holotype.results.describe import LABELLED_BY_BURST
from holotype.results.discovery import Discovery
from holotype.results.edits import FOLLOWS_NOTE


def by_path(run: Path, **how) -> dict[str, str]:
    results = read_results_table(run)
    return labels(results.path, label_rows(results, **how))


def labels(path, label) -> dict[str, str]:
    return {str(p): str(name) for p, name in zip(path, label, strict=True) if name}


def test_images_of_which_a_person_has_said_what_they_show_and_no_others(tmp_path) -> None:
    """A move is a label of the next round (docs/correct.md), and so of the next run; corrected names count."""
    run = made_run(tmp_path, 90)
    images = Discovery.load(run).images
    labelled = labels(images.path, images.label)
    assert by_path(run) == labelled
    mine = [path for path, label in labelled.items() if label == "Sandal"]
    assert len(mine) > 2
    (one, other), word = paths(run, "new-01")[:2], paths(run, "new-03")[0]
    edit(run, ("rename", "", "new-01", "=Hawk"), ("confirm", one, "", "new-01"), ("move", other, "", "Bag"))
    assert by_path(run) == {**labelled, one: "=Hawk", other: "Bag"}
    every = by_path(run, every=True)
    assert (len(every), every[other]) == (len(images), "Bag")
    edit(run, ("rename", "", "Sandal", "Sandals, all"), ("move", mine[0], "", "Bag"))
    edit(run, ("reject", mine[1], "", ""), ("confirm", word, "", "a word that no category has"))
    found = by_path(run)
    assert (found[mine[0]], found[word]) == ("Bag", "a word that no category has")
    assert mine[1] not in found
    assert {found[path] for path in mine[2:]} == {"Sandals, all"}
    discovery = Discovery.load(run)  # a labelled image that cannot be read keeps its label
    row = int((discovery.images.label == "Bag").to_numpy().argmax())
    discovery.images.loc[row, ["category", "category_id", "kind", "problem"]] = ["", "", "", "cut off"]
    discovery.save(run)
    assert by_path(run)[str(discovery.images.path[row])] == "Bag"


def test_discover_reads_the_same_labels_back(made, tmp_path) -> None:
    one, other = paths(made, "new-02")[:2]
    edit(made, ("rename", "", "new-01", '\'quoted, "twice"'), ("rename", "", "new-02", "=1+1"))
    edit(made, ("confirm", one, "", "new-02"), ("confirm", other, "", "-Käfer ✓"))
    edit(made, ("confirm", paths(made, "new-01")[0], "", "new-01"))
    done = write_labels(made, tmp_path / "labels.csv")
    wanted = by_path(made)
    assert {"=1+1", "-Käfer ✓", '\'quoted, "twice"'} <= set(wanted.values())
    assert (done.n, len(done.by_class)) == (len(wanted), len(set(wanted.values())))
    table = load_table(tmp_path / "my pictures", tmp_path / "labels.csv")
    assert labels(table.path, table.label) == wanted
    shutil.rmtree(tmp_path / "my pictures")  # it needs no images
    write_labels(made, tmp_path / "all.csv", all=True)
    raw = (tmp_path / "all.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbfpath,label\n")
    rows = list(csv.reader(raw.decode("utf-8-sig").splitlines()))
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]  # no formulas
    assert {("./=cmd().png", "Sneaker")} <= {tuple(row) for row in rows}


def test_without_labels_or_images_there_is_nothing_to_write(made, tmp_path) -> None:
    found = Discovery.load(made)
    found.images["label"] = ""
    found.save(made)
    with pytest.raises(InputError, match="labelled, moved or confirmed"):
        write_labels(made, tmp_path / "labels.csv")
    assert not (tmp_path / "labels.csv").exists()
    found.images = found.images[:0]
    found.save(made)
    with pytest.raises(InputError, match="has no images"):
        read_results_table(made)


def test_the_next_run_finds_every_box_but_the_rejected_ones_in_the_list_alone(made, tmp_path) -> None:
    """Pictures without a box in the list are left out, so that boxes without a label would be lost with them."""
    found = Discovery.load(made)
    box = Box(0.1, 0.2, 0.3, 0.4)
    found.images["path"] = [with_box(str(path), box) for path in found.images.path]
    found.save(made)
    one, other = paths(made, "new-01")[:2]
    edit(made, ("confirm", one, "", "new-01"), ("reject", other, "", ""))
    done = write_labels(made, tmp_path / "labels.csv")
    table = load_table(tmp_path / "my pictures", tmp_path / "labels.csv")
    assert set(table.path) == set(Discovery.load(made).images.path) - {other}
    assert labels(table.path, table.label) == by_path(made)
    assert done.n == len(by_path(made)) < len(table)


def test_groups_that_people_told_are_told_of_frames_without_a_label_too(made, tmp_path) -> None:
    found = Discovery.load(made)
    found.images["group"] = [f"seq {row // 2}" if row < 12 else "" for row in range(len(found.images))]
    found.save(made)
    told = labels(found.images.path, found.images.group)
    assert not set(told) <= set(by_path(made))
    write_labels(made, tmp_path / "labels.csv")
    table = load_table(tmp_path / "my pictures", tmp_path / "labels.csv")
    assert labels(table.path, table.group) == told
    assert labels(table.path, table.label) == by_path(made)


def test_labels_that_nobody_gave_are_no_labels_of_people(made) -> None:
    """The typical images of a merged category have its label in the next round: nobody has looked at them."""
    found = Discovery.load(made)
    mine = [row for row, id in enumerate(found.images.category_id) if id == "new-01"]
    found.images["group"] = ""
    found.images.loc[mine[:4], "label"] = "new-01"
    found.images.loc[mine[:2], "note"] = [FOLLOWS_NOTE, f"{FOLLOWS_NOTE}; the model would say Bag"]
    found.images.loc[mine[1:3], "group"] = "a burst"
    found.images.loc[mine[2], "note"] = LABELLED_BY_BURST
    found.save(made)
    results = read_results_table(made)
    assert [results.by_hand[row] for row in mine[:4]] == [False, False, False, True]
    assert {results.path[row] for row in mine} & set(by_path(made)) == {results.path[mine[3]]}
    found.images.loc[mine[1], "note"] = ""
    found.save(made)
    assert [read_results_table(made).by_hand[row] for row in mine[:4]] == [False, True, True, True]


def assert_coco(content: dict) -> None:
    """What https://cocodataset.org/#format-data asks for."""
    assert set(content) == {"info", "licenses", "images", "annotations", "categories"}
    words = ("version", "description", "contributor", "url", "date_created")
    kinds = dict.fromkeys(words, str) | {"year": int}
    assert {key: type(value) for key, value in content["info"].items()} == kinds
    for key in ("images", "annotations", "categories"):
        ids = [one["id"] for one in content[key]]
        assert all(type(id) is int for id in ids)
        assert len(set(ids)) == len(ids)
    images = {one["id"]: one for one in content["images"]}
    kinds = {one["id"]: one["supercategory"] for one in content["categories"]}
    assert set(kinds.values()) <= {"known", "new"}
    for one in content["annotations"]:
        width, height = images[one["image_id"]]["width"], images[one["image_id"]]["height"]
        assert type(width) is type(height) is int
        assert one["category_id"] in kinds
        assert (one["bbox"], one["area"], one["iscrowd"]) == ([0, 0, width, height], width * height, 0)
        assert one["segmentation"] == [[0, 0, width, 0, width, height, 0, height]]
        assert 0 <= one["score"] <= 1


def test_coco_says_what_the_run_says(made, tmp_path) -> None:
    one, other = paths(made, "new-02")[:2]
    found = edit(made, ("rename", "", "new-01", "Käfer"), ("move", one, "", "Bag"), ("reject", other, "", ""))
    Path(paths(made, "Bag")[-1]).unlink()
    done = write_coco(made, tmp_path / "out" / "coco.json")
    content = json.loads((tmp_path / "out" / "coco.json").read_text(encoding="utf-8"))
    assert_coco(content)
    n = len(found.images)
    assert (done.images, done.annotations, done.unread) == (n - 1, n - 2, 1)
    names = {c["id"]: (c["name"], c["supercategory"]) for c in content["categories"]}
    assert {("Käfer", "new"), ("Bag", "known")} <= set(names.values())
    said = {a["image_id"]: (names[a["category_id"]][0], a["score"]) for a in content["annotations"]}
    for image in content["images"]:
        path = tmp_path / "my pictures" / image["file_name"]
        assert Image.open(path).size == (image["width"], image["height"])
        row = found.images[found.images.path == str(path)].iloc[0]
        score = 1.0 if row.label != "" or str(path) == one else row.probability
        expected = None if str(path) == other else (row.category, pytest.approx(score, abs=1e-6))
        assert said.get(image["id"]) == expected


def test_what_has_no_probability_has_no_score_and_what_is_unreadable_is_left_out(made, tmp_path) -> None:
    with pytest.raises(InputError, match=r"does not end in \.json"):
        write_coco(made, tmp_path / "coco.txt")
    found = Discovery.load(made)
    found.images["probability"] = float("nan")
    found.images.loc[5, ["label", "category", "category_id", "kind", "problem"]] = ["", "", "", "", "cut off"]
    found.save(made)
    assert write_coco(made, tmp_path / "coco.json").unread == 1
    content = json.loads((tmp_path / "coco.json").read_text(encoding="utf-8"))
    scored = {one["image_id"] for one in content["annotations"] if "score" in one}
    assert scored == {i + 1 for i, label in enumerate(found.images.label) if label}
    assert 6 not in {one["id"] for one in content["images"]}
