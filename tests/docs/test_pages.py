"""Pages of docs/ on discoveries and what comes after, followed to the letter on coloured squares."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.data.load import load_table
from holotype.discovery import pipeline
from holotype.discovery.estimator import Discoverer
from holotype.embeddings import store
from holotype.export.assign import ASSIGN_COLUMNS
from holotype.export.camtrap import DEPLOYMENTS, MEDIA, OBSERVATIONS
from holotype.report import page_data
from holotype.results import discovery, edits
from holotype.results.describe import UNSURE, UNSURE_SHARE
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery, EditState, RunFacts, write_features
from holotype.results.edits import Edit, edits_csv, read_edits
from holotype.results.lda import FAR_QUANTILE
from holotype.results.purity import FAIRLY_PURE, UNIFORM_PURITY, sample_size_hint
from holotype.results.review_queue import QUEUE_COLUMNS
from holotype.runs import identity, model_io, record
from small_run import train_small
from tests.conftest import KNOWN, write_csv
from tests.discovery.made_round import made_discovery
from tests.discovery.test_round_runner import trap_folder
from tests.discovery.trap import trap_pictures

from .conftest import blocks, commands, page, run_python, table_cells

RUN = Path("runs/photos-discover")


def test_folder(photos: Path, follow, tiny_backbone_file, capsys) -> None:
    images = [path.relative_to(photos) for path in sorted(photos.glob("unlabelled/*.png"))]
    named = [(str(image), image.name.partition("-")[0]) for image in images]
    write_csv(photos.parent / "labels.csv", "path,label", [row for row in named if row[1] in KNOWN][::3])
    words = commands(page("folder"))
    assert len(words) >= 5
    for number, line in enumerate(words):
        if "--backbone" in line:
            line[line.index("--backbone") + 1] = str(tiny_backbone_file)
        if "--out" not in line:  # several lines make a run of their own in the same folder
            line += ["--out", f"runs/{number}"]
        said, run = follow(*line), Path(line[line.index("--out") + 1])
        if "--dry-run" in line:
            assert said.startswith("64 images: 16 labelled in 2 classes, 48 unlabelled.")
            assert "Time on this" in said
            assert not run.exists()
        else:
            assert f"Report: {run / 'report.html'}" in said
            assert len(pd.read_csv(run / "assignments.csv")) == 64
    told = [name.rstrip("/") for name in table_cells(page("folder"))]
    left = {file.name for file in run.iterdir()}
    assert left <= set(told)
    assert [name for name in left if f"`{name}" not in page("formats")] == []
    # these are there once there is something to keep
    assert set(told) - left <= {"edits.csv", "earlier.json", "heartbeat.json", "count.json"}
    (example,) = blocks(page("folder"), "python")
    run_python(example)
    assert "green" in capsys.readouterr().out
    assert Path("runs/photos/report.html").is_file()


def test_write(photos: Path, follow, capsys) -> None:
    follow("discover", "photos/")
    words = commands(page("write"))
    assert len(words) >= 6
    again = [[*line, "--overwrite"] for line in words if line[0] == "write" and "--overwrite" not in line]
    more = (("--folders", "sorted-copies/", "--copy"), ("--labels", "every-image.csv", "--all"))
    for line in [*words, *again, *(("write", RUN, *flags) for flags in more)]:
        follow(*line)
    run = Discovery.load(RUN)
    for folder in ("sorted", "sorted-copies"):
        assert len(list(Path(folder).rglob("*.png"))) == len(run.images) == 64
    table = load_table(Path("photos"), Path("next.csv"))
    labels, wanted = (dict(zip(of.path, of.label, strict=True)) for of in (table, run.images))
    assert labels == wanted
    assert Discovery.load(Path("runs/photos-next")).known == run.known
    files = {"every-image.csv": 65, "package/observations.csv": 65, "package/deployments.csv": 4}
    for name, lines in files.items():
        assert len(Path(name).read_text(encoding="utf-8-sig").splitlines()) == lines
    assert len(json.loads(Path("coco.json").read_text())["annotations"]) == 64
    capsys.readouterr()
    run_python(*blocks(page("write"), "python"))
    assert capsys.readouterr().out.splitlines()[0] == "64"
    fields_told = {name for name in table_cells(page("write")) if re.fullmatch(r"\w+", name)}
    assert fields_told
    assert fields_told <= {*MEDIA, *OBSERVATIONS, *DEPLOYMENTS}


def test_a_collection_that_grows(photos: Path, follow, holotype) -> None:
    again, look, other, elsewhere = commands(page("correct").partition("\n## When the collection grows\n")[2])
    heap = photos / "unlabelled"
    follow(*again)
    found = Discovery.load(RUN)
    images = [str(heap / f"{name}.png") for name in ("blue-00", "blue-01", "yellow-00")]
    made = [Edit(found.run_id, "t", "confirm", image, "", "red") for image in images]
    Path("edits.csv").write_text(edits_csv(made), encoding="utf-8")
    follow(*again, "--edits", "edits.csv")
    (heap / "blue-00.png").rename(heap / "IMG_0001.png")
    (heap / "blue-01.png").unlink()
    Image.new("RGB", (40, 40), (220, 200, 40)).save(heap / "yellow-00.png")
    Image.new("RGB", (40, 40), (40, 60, 200)).save(heap / "IMG_0002.png")
    (heap / "red-15.png").rename(photos / "red" / "red-15.png")
    changed = "Since round 2: 1 image new, 1 gone, 1 repaired, 2 renamed, 1 label new."
    assert changed in follow(*look)
    assert Discovery.load(RUN).facts.round == 2
    said = follow(*again)
    assert changed in said
    assert "Edits that take part in round 3: 2 confirmed. They give 2 labels and keep 0 images out." in said
    ids = dict(zip((found := Discovery.load(RUN)).images.path, found.images.category_id, strict=True))
    assert ids[str(heap / "IMG_0001.png")] == ids[str(heap / "yellow-00.png")] == "red"
    assert "Nothing has changed since round 3: its result stands." in follow(*again)
    assert "Settings that differ from round 3: --k 5 (was 4), --seed 1 (was 0)." in follow(*other)
    Path("archive").mkdir()
    photos.rename("archive/photos")
    said = follow(*elsewhere, *other[2:])
    assert "Nothing else has changed since round 4: its result stands." in said
    Path("archive/photos").rename("birds")
    follow("discover", "birds", *other[2:])
    assert [path.name for path in Path("runs").iterdir()] == ["photos-discover"]
    refused = holotype("discover", "birds", "--out", RUN, "--backbone", "embedded")
    assert (refused.code, "features of two networks cannot be compared" in refused.err) == (2, True)
    assert Discovery.load(RUN).facts.round == 4


def test_times_and_bursts(small: Path, follow) -> None:
    plain, seconds, no, told = commands(page("bursts-and-boxes"))[:4]
    trap_folder(small / "photos")
    said = follow(*plain)
    assert "72 of 72 images were taken (2024-05-01 to 2024-05-06), with which camera 72 were." in said
    assert re.search(r"red +18 in +6 bursts", said)
    table = pd.read_csv(RUN / "assignments.csv", keep_default_na=False)
    assert {"taken", "camera", "group"} <= set(table.columns)
    assert table.note.str.contains("has the label of a frame of its burst").sum() == 12
    assert "Settings that differ from round 1: --bursts 30 (was auto)." in follow(*seconds)
    assert "Settings that differ from round 2: --bursts no (was 30)." in follow(*no)
    assert "group" not in pd.read_csv(RUN / "assignments.csv").columns
    rows = [("red/red-0-0.jpg", "red", "n-17"), ("unlabelled/red-0-1.jpg", "", "n-17")]
    write_csv(small / "sequences.csv", "path,label,group", [*rows, ("green/green-0-0.jpg", "green", "")])
    assert "2 frames of 1 burst of up to 2 (as the column group says)" in follow(*told)
    assert Discovery.load(RUN).images.label.tolist().count("red") == 2


def test_boxes(small: Path, follow, capsys) -> None:
    boxes, sure, listed, *writes, assign = commands(page("bursts-and-boxes"))[4:]
    trap_pictures(small / "photos")
    shutil.move(small / "photos" / "detections.json", small / "detections.json")
    said = follow(*boxes)
    assert "detections.json: 44 boxes in 40 pictures. Left out: 1 person, 1 of less than 0.2" in said
    assert "2 labelled pictures with several boxes" in said
    table = pd.read_csv(RUN / "assignments.csv")
    assert table.path.str.contains(r"\.jpg#xywh=percent:[\d.,]+$").all()
    assert {"file", "box"} <= set(table.columns)
    for words in writes:
        follow(*words)
    assert len(json.loads(Path("found.json").read_text())["images"]) == 40
    assert list(pd.read_csv("labels.csv").columns) == ["path", "label", "box"]
    assert len(list(Path("sorted").rglob("*.jpg"))) == 44
    assert pd.read_csv("package/observations.csv").bboxX.notna().all()
    shutil.copytree("photos", "new")
    shutil.copy("detections.json", "new/detections.json")
    assert "44 images" in follow(*assign, "--device", "cpu")
    assert "Nothing has changed since round 1" in follow(*sure)  # all of them are surer than that
    rows = [("red/red-00.jpg", "red", "0.12,0.4,0.3,0.22"), ("red/red-00.jpg", "", "10,5,40,50")]
    rows += [("green/green-00.jpg", "green", "10,5,40,50")]
    names = [f"{colour}-0{n}" for colour in ("blue", "yellow", "red") for n in (6, 7, 8)]
    rows += [(f"unlabelled/{name}.jpg", "", "10,5,40,50") for name in names]
    write_csv(small / "boxes.csv", "path,label,box", rows)
    said = follow(*listed, "--out", "runs/listed")
    assert "Left out: 30 of the 41 pictures, which have no box in boxes.csv." in said
    assert len(pd.read_csv("runs/listed/assignments.csv")) == 12
    shutil.move("detections.json", "photos")
    run_python(*blocks(page("bursts-and-boxes"), "python"))
    assert "HP2X" in capsys.readouterr().out


def test_samples(photos: Path, follow, tiny_backbone_file: Path) -> None:
    first = blocks(page("scale").partition("\n## Slices\n")[0], "bash")[0]
    for words in commands(f"```bash\n{first}```\n"):
        words = ["40" if word == "200000" else word for word in words]
        more = [] if words[0] == "sample" else ["--device", "cpu"]
        more += ["--backbone", str(tiny_backbone_file)] if words[0] == "embed" else []
        follow(*words, *more, "--no-progress")
    assert len(pd.read_parquet("sample.parquet")) == 40
    assert len(pd.read_csv("assignments.csv")) == 64


def test_new_images(small: Path, follow, squares_folder, tiny_backbone_file) -> None:
    train_small(small / RUN, squares_folder, tiny_backbone_file, epochs=1)
    (small / "new").mkdir()
    for number, path in enumerate(sorted(squares_folder.rglob("*.png"))[::9]):
        (small / "new" / f"{number}.png").write_bytes(path.read_bytes())
    words = commands(page("place-new-images"))
    assert len(words) >= 3
    for line in [*words, ("assign", RUN, "new/", "--out", "placed.parquet")]:
        if line[0] == "export":
            pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
        follow(*line)
    n = len(list((small / "new").iterdir()))
    assert len(pd.read_csv(RUN / "assigned" / "new.csv")) == len(pd.read_parquet("placed.parquet")) == n
    assert len(list(Path("by-category").rglob("*.png"))) == n
    assert Path("model.onnx").is_file()


def test_new_images_in_python(tmp_path, monkeypatch, squares_folder, tiny_backbone_file) -> None:
    class Small(Discoverer):
        def __init__(self, k: object = 4, out: str | None = None) -> None:
            super().__init__(k=4, out=out, method="kmeans", backbone=str(tiny_backbone_file), device="cpu")

        def get_params(self, deep: bool = True) -> dict[str, object]:
            return {"k": self.k, "out": self.out}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("holotype.discovery.estimator.Discoverer", Small)
    frame = pd.read_csv(squares_folder / "squares.csv", keep_default_na=False)
    images = [np.asarray(Image.open(squares_folder / path)) for path in frame.path]
    names = {"images": images, "labels": list(frame.label), "new_images": images[:3]}
    text = page("place-new-images")
    first, service = blocks(text, "python")
    run_python(first, names)
    assert list(names["again"].labels_) == list(names["found"].labels_)
    run_python(service, names)
    told = names["answer"]((squares_folder / frame.path[0]).read_bytes())
    assert told["category_id"] == names["again"].predict([images[0]])[0]
    assert json.dumps(json.loads(json.dumps(told))) == json.dumps(told)  # it can be sent
    for content in (b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        assert names["answer"](content) == {"problem": "This is no image that can be read."}
    assert [name for name in ASSIGN_COLUMNS if f"| `{name}` |" not in text] == []
    assert f"{100 * (1 - FAR_QUANTILE):g} %" in text


def test_confidence(small: Path, capsys) -> None:
    """Its code runs, its numbers of looks are exact, and words and columns are told."""
    found = made_discovery("r", {"a": [0, 1, 2, 3], "new-01": list(range(4, 12))})
    found.save(RUN)
    write_features(RUN, found.images[["x", "y"]].to_numpy())
    text = page("confidence")
    run_python(*blocks(text, "python"))
    assert capsys.readouterr().out.splitlines()[-1].count(".png") == 8  # all of them
    rows = re.findall(r"^\| (?:images in the category|look at) \| (.*) \|$", text, re.MULTILINE)
    cells = [row.replace("very many", "1000000").replace(",", "").split(" | ") for row in rows]
    assert [sample_size_hint(int(size)) for size in cells[0]] == [int(look) for look in cells[1]]
    assert f"| uniform | at least {UNIFORM_PURITY} |" in text
    assert f"| fairly uniform | {FAIRLY_PURE} to {UNIFORM_PURITY} |" in text
    assert f"below {UNSURE}; if that is more than {UNSURE_SHARE:.0%}".replace("%", " %") in text
    assert set(QUEUE_COLUMNS) <= set(re.findall(r"`(\w+)`", text))


def test_formats_versions_and_keys_are_told(tmp_path) -> None:
    text = page("formats")
    assert {*table_cells(text)} >= {*IMAGE_TABLE_COLUMNS, *edits.EDIT_COLUMNS, *edits.ACTIONS}
    (example,) = blocks(text, "csv")
    (tmp_path / "edits.csv").write_text(example, encoding="utf-8")
    assert {edit.action for edit in read_edits(tmp_path / "edits.csv")} == set(edits.ACTIONS)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    told = {name: row for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    versions = {
        "discovery.json": discovery.DISCOVERY_SCHEMA.format,
        "model.json": model_io.MODEL_SCHEMA.format,
        "identity.json": identity.IDENTITY_SCHEMA.format,
        "scores.json": record.RECORD_FORMAT,
        "edits.csv": edits.LOG_FORMAT,
        "embeddings/": store.EMBEDDINGS_FORMAT,
        "report/": page_data.PAGE_FORMAT,
    }
    assert {name: told[name][1] for name in versions} == {name: str(n) for name, n in versions.items()}
    assert f"as a whole: {pipeline.CLAIM_FORMAT}," in told["identity.json"][2]
    assert [one.name for of in (RunFacts, record.Record) for one in fields(of) if one.name not in told] == []
    kinds = {
        "scores": record.Scores,
        "placed": record.AssignedCounts,
        "made": record.RunMeta,
        "edits": EditState,
    }
    for key, kind in kinds.items():
        assert [one.name for one in fields(kind) if f"`{one.name}`" not in told[key][1]] == [], key
