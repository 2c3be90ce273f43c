"""The report is whole, escaped, and needs nothing from elsewhere."""

import base64
import hashlib
import html as html_module
import json
import re

import numpy as np
import pytest

from holotype.report import build_report
from holotype.results.discovery import Discovery, RunFacts
from report.made import KNOWN, make_discovery


def read(page) -> dict:
    text = (page.parent / "report" / "data.js").read_text(encoding="ascii")
    assert text.startswith("window.HOLOTYPE = ")
    return json.loads(text.removeprefix("window.HOLOTYPE = ").rstrip().rstrip(";"))


def test_it_lies_beside_its_data_and_foresees_other_numbers_of_categories(tmp_path):
    found = make_discovery(tmp_path, 120)
    page = build_report(found, tmp_path / "without")
    assert page == tmp_path / "without" / "report.html"
    data = read(page)
    assert [c["id"] for c in data["categories"]] == [c.id for c in found.categories]
    sheets = {cell // 64 for cell in data["thumbs"]["cell"]}
    assert all((page.parent / "report" / "thumbs" / f"{sheet:05d}.jpg").is_file() for sheet in sheets)
    assert data["around"] is None
    features = np.random.default_rng(0).normal(size=(120, 8))
    data = read(build_report(found, tmp_path / "run", features=features))
    assert (data["around"]["k"], data["around"]["low"]) == (9, 5)
    assert [k for k, _ in data["around"]["steps"]][:3] == [6, 7, 8]
    assert (tmp_path / "run" / "tree.json").is_file()


def test_names_are_escaped_in_the_page_and_in_the_script(tmp_path):
    found = make_discovery(tmp_path, 30)
    found.facts = RunFacts(title="</title><script>alert(2)</script>")
    found.category("new-01").name = "</script><img src=x onerror=alert(3)>"
    page = build_report(found, tmp_path)
    html = page.read_text(encoding="utf-8")
    assert html.count("<script") == 2
    for odd in ("<img src=x", "alert(2)</script>", KNOWN[3]):
        assert odd not in html
    script = (tmp_path / "report" / "data.js").read_text(encoding="utf-8")
    assert "<" not in script
    assert read(page)["known"] == list(found.known)


def test_nothing_comes_from_the_network_and_the_policy_names_the_one_script_by_its_content(tmp_path):
    html = build_report(make_discovery(tmp_path, 20), tmp_path).read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s'\"`)]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, not a place
    assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', html)[-1] == "report/data.js"
    policy = html_module.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1])
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src" in policy
        assert f"'sha256-{digest}'" in policy


def test_the_page_tells_neither_who_made_it_nor_where_things_lie(tmp_path, monkeypatch, caplog):
    """Unless it is asked to: then edits speak of whole paths, and originals are linked wherever they lie."""
    caplog.set_level("INFO")
    home = tmp_path / "people" / "alice"
    monkeypatch.setenv("HOME", str(home))
    found = make_discovery(home / "pictures", 20)
    about = {"command": f"holotype discover {home / 'pictures'}"}
    found.facts = RunFacts(title="mine", root=str(home / "pictures"), provenance=about)
    found.images.loc[3, "problem"] = f"{found.images.path[3]} is cut off"
    beside = build_report(found, home / "run")
    assert "alice" not in page_and_data(beside)
    assert str(tmp_path) not in page_and_data(beside)
    images = read(beside)["images"]
    assert images["link"] == "../pictures/my%20pictures/"
    assert images["path"][0] == f"my pictures/{images['file'][0]}"
    away = build_report(found, tmp_path / "run")
    assert "alice" not in page_and_data(away)
    assert read(away)["images"]["link"] is None
    assert "--with-paths" in caplog.text
    asked = build_report(found, tmp_path / "run", with_paths=True)
    assert str(home / "pictures") in page_and_data(asked)
    assert read(asked)["images"]["link"] == "../people/alice/pictures/my%20pictures/"


def page_and_data(page) -> str:
    return page.read_text(encoding="utf-8") + (page.parent / "report" / "data.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("lacking", ["categories", "known", "signature", "map", "count", "files"])
def test_it_is_built_whatever_is_lacking(lacking, tmp_path):
    found = make_discovery(tmp_path, 20)
    if lacking == "categories":
        found = Discovery("r", (), found.images.assign(category="", category_id="", kind=""), [])
    elif lacking == "known":
        found = make_discovery(tmp_path / "b", 20, known=0)
    elif lacking == "signature":
        for category in found.categories:
            category.signature, category.exemplars = [], []
    elif lacking == "map":
        found.images[["x", "y", "probability", "typicality"]] = float("nan")
    elif lacking == "count":
        found.count = None
    else:
        for path in (tmp_path / "my pictures").iterdir():
            path.unlink()
    data = read(build_report(found, tmp_path / "run"))
    assert len(data["images"]["path"]) == 20
    if lacking == "files":
        assert set(data["thumbs"]["cell"]) == {-1}
