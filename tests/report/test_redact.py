"""A report to hand on names nothing of the machine that it was made on, and edits made in it find their way back."""

import dataclasses
import json
from pathlib import Path

import pytest

from holotype.report.page_data import page_data, select_shown
from holotype.report.redact import build_redactor, redact_page, short_names
from holotype.results.discovery import RunFacts
from holotype.results.edits import Edit
from report.made import make_discovery


def test_names_begin_below_the_images_or_below_the_users_folder_and_no_two_are_alike(monkeypatch):
    monkeypatch.setattr("os.path.expanduser", lambda _: "/people/me")
    paths = ["/data/photos/a/x.jpg", "/people/me/more/y.jpg", "/other/z.npz#12", "here/w.jpg"]
    assert short_names(paths, "/data/photos") == ["a/x.jpg", "more/y.jpg", "other/z.npz#12", "here/w.jpg"]
    assert short_names(paths[:1], "") == ["x.jpg"]  # the folder that all of them lie in

    names = short_names(["/data/photos/a/x.jpg", "/people/me/a/x.jpg", "/data/photos/b.jpg"], "/data/photos")
    assert names == ["data/photos/a/x.jpg", "people/me/a/x.jpg", "b.jpg"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Backbone /opt/nets/vit.safetensors, as asked for.", "Backbone vit.safetensors, as asked for."),
        ("/data/my photos/a b/c.jpg is broken", "a b/c.jpg is broken"),
        (r"C:\Users\me\net.safetensors (D:/x/y.csv)", "net.safetensors (y.csv)"),
        ("~/nets/vit.bin", "vit.bin"),
        ("4/5 of 12 km/h and https://example.org/a", "4/5 of 12 km/h and https://example.org/a"),
        ("closest to Sneaker 0.71; unlike Bag", "closest to Sneaker 0.71; unlike Bag"),
    ],
)
def test_paths_in_sentences_are_cut(text, expected):
    hide = build_redactor(["/data/my photos/x.jpg"], "/data/my photos", Path("/data/run"))
    assert hide(text) == expected


def test_the_page_is_the_same_but_for_its_paths(tmp_path):
    found = make_discovery(tmp_path / "my photos", 40)
    root = str(tmp_path / "my photos")
    backbone = {"name": f"{tmp_path}/net.bin", "caveat": "Small."}
    about = {"command": f"holotype discover {root}", "backbone": backbone}
    run, log = tmp_path / "run", [Edit("run-made-1", "t", "reject", str(found.images.path[5]), "Sneaker")]
    edits = dataclasses.replace(found.facts.edits, applied=(log[0].id,))
    found.facts = RunFacts(title="Photos", root=root, provenance=about, edits=edits)
    found.images.loc[3, "problem"] = f"{found.images.path[3]} is cut off"
    data = page_data(found, select_shown(found), run, log, None)
    data["earlier_log"] = [["r", "t", "move", "/gone/x.png", "", "y", "d"]]
    before = json.dumps(data)
    hide = build_redactor([str(path) for path in found.images.path], root, run)
    sent = redact_page(data, hide)
    assert json.dumps(data) == before
    text = json.dumps(sent)
    assert str(tmp_path) not in text
    assert "/gone" not in text
    assert sent["facts"]["backbone"] == {"name": "net.bin", "caveat": "Small."}
    assert set(sent["images"]["path"]) == set(short_names(list(found.images.path), root))
    assert [row[3] for row in sent["log"]] == [hide.image(log[0].image)]
    kept = ("category", "probability", "x", "label", "doubtful")
    assert {key: sent["images"][key] for key in kept} == {key: data["images"][key] for key in kept}
    assert sent["categories"] == data["categories"]


def test_no_store_is_named_in_what_is_mailed(tmp_path: Path) -> None:
    root, query = "s3://secret-bucket/photos", "endpoint_override=10.example.org:9000"
    paths = [f"{root}/fox/1.jpg?{query}", f"{root}/a.tar?{query}#key"]
    hide = build_redactor(paths, f"{root}?{query}", tmp_path)
    assert [hide.image(path) for path in paths] == ["fox/1.jpg", "a.tar#key"]
    told = hide(f"{paths[0]} is damaged or cut off (x).")
    assert told == "1.jpg is damaged or cut off (x)."
