"""The zip to mail: whole, without paths of this machine, the same each time, and never over somebody's file."""

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
from report.made import make_discovery

command = partial(run_command, "report")

TABLES = ("assignments.csv", "categories.csv")


@pytest.fixture
def run(tmp_path) -> Path:
    found = make_discovery(tmp_path / "collection", 40)
    about = {"command": f"holotype discover {tmp_path}"}
    found.facts = RunFacts(title="Käfer", root=str(tmp_path / "collection"), provenance=about)
    found.images.loc[2, "problem"] = f"{found.images.path[2]} is cut off"
    found.save(tmp_path / "run")
    return tmp_path / "run"


def parts(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as opened:
        assert opened.testzip() is None
        return {name: opened.read(name) for name in opened.namelist()}


def test_it_holds_the_report_and_tables_and_nothing_of_this_machine(run, tmp_path, capsys):
    file = tmp_path / "to mail.zip"
    assert command([str(run), "--zip", str(file), "--no-progress"]) == 0
    said = capsys.readouterr().out
    assert f"To mail: {file}, {file.stat().st_size / 1000:.1f} kB" in said
    names = ("README.txt", "report.html", "report/data.js", "report/thumbs/00000.jpg", *TABLES)
    inside = parts(file)
    assert set(inside) == {f"to mail/{name}" for name in names}
    assert "Käfer" in inside["to mail/README.txt"].decode()
    table = pd.read_csv(io.BytesIO(inside["to mail/assignments.csv"]), encoding="utf-8-sig")
    assert len(table) == 40
    assert (tmp_path / "collection" / table.path.iloc[4]).is_file()
    assert inside["to mail/assignments.csv"].startswith("\ufeff".encode())  # Excel knows accents by it
    categories = pd.read_csv(io.BytesIO(inside["to mail/categories.csv"]))
    counts = {c.name: c.n for c in Discovery.load(run).categories}
    assert dict(zip(categories.category, categories.images, strict=True)) == counts
    for name, content in inside.items():
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


def test_a_file_that_exists_and_other_names_are_refused_before_anything_is_begun(run, tmp_path):
    (tmp_path / "thesis.zip").write_bytes(b"mine")
    (tmp_path / "folder.zip").mkdir()
    refusals = {"thesis.zip": "--overwrite", "report.html": "does not end in", "folder.zip": "is not a file"}
    for name, says in refusals.items():
        with pytest.raises(InputError, match=says):
            command([str(run), "--zip", str(tmp_path / name), "--no-progress"])
    assert (tmp_path / "thesis.zip").read_bytes() == b"mine"
    assert not (run / "report.html").exists()


def test_the_same_run_gives_the_same_file_and_a_stop_leaves_that_of_before(run, tmp_path, monkeypatch):
    file = tmp_path / "a.zip"
    command([str(run), "--zip", str(file), "--no-progress"])
    before = file.read_bytes()
    command([str(run), "--zip", str(file), "--no-progress", "--overwrite"])
    assert file.read_bytes() == before
    monkeypatch.setattr("holotype.export.zip.sheet_name", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_zip(run, file, overwrite=True)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "collection", "run"]
    monkeypatch.undo()
    changes = run / "rounds" / str(Discovery.load(run).facts.round) / "changes.csv"  # comes along
    changes.parent.mkdir(parents=True)
    changes.write_text("category_id\nnew-01\n")
    assert write_zip(run, file, overwrite=True).tables == (*TABLES, "changes.csv")
    assert "changes.csv what became" in parts(file)["a/README.txt"].decode()
