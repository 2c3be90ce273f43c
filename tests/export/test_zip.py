"""The zip to mail: whole, without paths of this machine, the same each time, and never over somebody's file."""

from __future__ import annotations

import io
import json
import zipfile
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from holotype.cli import run_command
from holotype.errors import InputError
from holotype.export.zip import write_zip
from holotype.results.discovery import Discovery, RunFacts
from holotype.results.edits import Edit, edits_csv
from report.made import make_discovery

command = partial(run_command, "report")


@pytest.fixture
def run(tmp_path) -> Path:
    found = make_discovery(tmp_path / "collection", 40)
    found.facts = RunFacts(
        title="Käfer",
        root=str(tmp_path / "collection"),
        provenance={"command": f"holotype discover {tmp_path}"},
    )
    found.images.loc[2, "problem"] = f"{found.images.path[2]} is cut off"
    found.save(tmp_path / "run")
    return tmp_path / "run"


def parts(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as opened:
        assert opened.testzip() is None
        return {name: opened.read(name) for name in opened.namelist()}


def test_it_holds_the_report_and_tables_and_says_its_size(run, tmp_path, capsys):
    file = tmp_path / "to mail.zip"
    assert command([str(run), "--zip", str(file), "--no-progress"]) == 0
    said = capsys.readouterr().out
    assert f"To mail: {file}, {file.stat().st_size / 1000:.1f} kB: the report with 40 small pictures" in said
    assert "assignments.csv and categories.csv" in said
    inside = parts(file)
    assert set(inside) == {
        f"to mail/{name}"
        for name in ("README.txt", "report.html", "report/data.js", "report/thumbs/00000.jpg", "assignments.csv",
                     "categories.csv")
    }  # fmt: skip
    assert "Käfer" in inside["to mail/README.txt"].decode()
    table = pd.read_csv(
        io.BytesIO(inside["to mail/assignments.csv"]), encoding="utf-8-sig", keep_default_na=False
    )
    assert len(table) == 40
    assert (tmp_path / "collection" / table.path.iloc[4]).is_file()
    assert inside["to mail/assignments.csv"].startswith("\ufeff".encode())  # Excel knows accents by it
    categories = pd.read_csv(io.BytesIO(inside["to mail/categories.csv"]))
    assert dict(zip(categories.category, categories.images, strict=True)) == {
        c.name: c.n for c in Discovery.load(run).categories
    }


def test_nothing_of_this_machine_is_in_it(run, tmp_path):
    command([str(run), "--zip", str(tmp_path / "a.zip"), "--no-progress"])
    for name, content in parts(tmp_path / "a.zip").items():
        for part in filter(None, (str(tmp_path), str(Path.home()).rstrip("/"), str(Path.cwd()))):
            assert part.encode() not in content, name
            assert json.dumps(part)[1:-1].encode() not in content, name
        if name.endswith(".jpg"):
            assert not Image.open(io.BytesIO(content)).getexif()


def test_places_boxes_and_bursts(run, tmp_path):
    found = Discovery.load(run)
    plain = list(found.images.path)
    found.images["path"] = [f"{path}#xywh=percent:25,25,50,50" for path in plain]
    found.images["file"], found.images["box"] = plain, "0.25,0.25,0.5,0.5"
    found.images["group"] = [plain[0]] * 3 + [""] * 37
    found.images["taken"], found.images["camera"] = "2024-05-31T08:25:38", "HP2X 7"
    found.images["latitude"], found.images["longitude"] = 52.123456, 4.654321
    found.save(run)
    assert command([str(run), "--zip", str(tmp_path / "mail.zip"), "--no-progress"]) == 0
    inside = parts(tmp_path / "mail.zip")
    for content in inside.values():
        assert str(tmp_path).encode() not in content
        assert b"52.123456" not in content
    table = pd.read_csv(io.BytesIO(inside["mail/assignments.csv"]), encoding="utf-8-sig")
    assert table.file.iloc[4] == "my pictures/picture 00004.png"
    assert table.taken.eq("2024-05-31T08:25:38").all()
    categories = pd.read_csv(io.BytesIO(inside["mail/categories.csv"]), encoding="utf-8-sig")
    assert categories.cameras.eq(1).all()
    assert categories.bursts.sum() < 40


def test_the_same_run_gives_the_same_file_which_is_replaced(run, tmp_path):
    file = tmp_path / "a.zip"
    command([str(run), "--zip", str(file), "--no-progress"])
    before = file.read_bytes()
    command([str(run), "--zip", str(file), "--no-progress", "--overwrite"])
    assert file.read_bytes() == before


def test_what_is_not_ours_stays_and_nothing_is_begun(run, tmp_path):
    file = tmp_path / "thesis.zip"
    file.write_bytes(b"mine")
    with pytest.raises(InputError, match="--overwrite"):
        command([str(run), "--zip", str(file), "--no-progress"])
    assert file.read_bytes() == b"mine"
    assert not (run / "report.html").exists()
    with pytest.raises(InputError, match=r"does not end in \.zip"):
        command([str(run), "--zip", str(tmp_path / "report.html")])
    (tmp_path / "folder.zip").mkdir()
    with pytest.raises(InputError, match="is not a file"):
        command([str(run), "--zip", str(tmp_path / "folder.zip")])


def test_a_stop_leaves_the_zip_of_before(run, tmp_path, monkeypatch):
    file = tmp_path / "a.zip"
    command([str(run), "--zip", str(file), "--no-progress"])
    before = file.read_bytes()
    monkeypatch.setattr("holotype.export.zip.sheet_name", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_zip(run, file, overwrite=True)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "collection", "run"]


def test_a_table_of_what_changed_comes_along(run, tmp_path):
    found = Discovery.load(run)
    (run / "rounds" / "0").mkdir(parents=True)
    (run / "rounds" / str(found.facts.round) / "changes.csv").write_text("category_id\nnew-01\n")
    command([str(run), "--no-progress"])
    assert write_zip(run, tmp_path / "a.zip").tables == ("assignments.csv", "categories.csv", "changes.csv")
    assert "changes.csv what became" in parts(tmp_path / "a.zip")["a/README.txt"].decode()


def test_edits_that_come_back_find_their_images(run, tmp_path, capsys):
    """They call images by the names in the mailed report; once they are in the run, a new zip knows them."""
    command([str(run), "--zip", str(tmp_path / "a.zip"), "--no-progress"])
    script = parts(tmp_path / "a.zip")["a/report/data.js"].decode()
    data = json.loads(script.removeprefix("window.HOLOTYPE = ").removesuffix(";\n"))
    image = data["images"]["path"][7]
    row = ["run-made-1", "t", "move", image, "", "Owl"]
    (tmp_path / "edits.csv").write_text(edits_csv([Edit(*row)]), encoding="utf-8")
    words = [
        str(run),
        "--edits",
        str(tmp_path / "edits.csv"),
        "--zip",
        str(tmp_path / "a.zip"),
        *("--overwrite", "--no-progress"),
    ]
    assert command(words) == 0
    assert "1 edit applied." in capsys.readouterr().out
    (moved,) = Discovery.load(run).images.query("category == 'Owl'").path
    assert moved == str(tmp_path / "collection" / image)
    script = parts(tmp_path / "a.zip")["a/report/data.js"].decode()
    assert json.loads(script.removeprefix("window.HOLOTYPE = ").removesuffix(";\n"))["log"] == [row]
