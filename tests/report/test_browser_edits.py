"""Edits in a real browser: made, exported, imported, refused, mailed, and taken up by the run and by the next round."""

import dataclasses
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from holotype.cli import run_command
from holotype.report import build_report
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits, read_edits
from report.browser import press
from report.made import make_discovery

command = partial(run_command, "report")

TILES = ".content > .gallery .tile"


def answer(tab, text: str) -> None:
    tab.locator("dialog input").fill(text)
    press(tab, "Enter")


def choose(tab, name: str) -> None:
    tab.locator(".choices").get_by_role("option", name=name).click()


def n_edits(tab) -> str:
    return tab.locator("#edits-button").inner_text()


def export(tab, file: Path, button: str = "Export edits.csv") -> list[Edit]:
    with tab.expect_download() as download:
        tab.get_by_role("button", name=button).click()
    download.value.save_as(file)
    assert download.value.suggested_filename == "edits.csv"
    return read_edits(file)


def take_up(page, edits: Path) -> None:
    """Let the run have the edits."""
    assert command([str(page.report.parent), "--edits", str(edits), "--no-progress"]) == 0


def reload(page):
    """The new data."""
    tab = page.open("overview")
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    return tab


def counts(page) -> dict[str, int]:
    """Name and size of every category as the page tells them."""
    tab = page.open("category")
    rows = tab.locator(".list .links a").all()
    return {row.locator(".who").inner_text(): int(row.locator(".n").inner_text()) for row in rows}


def test_edits_go_round_trip(own_page, tmp_path, capsys):
    """Rename, merge, move, split off, confirm, reject; a reload; export; holotype report; the page again."""
    page = own_page
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, '=Hawk, "the <i>first</i>"')
    tiles = tab.locator(TILES)
    tiles.nth(0).click()
    press(tab, "c")
    tiles.nth(1).click()
    press(tab, "n")
    answer(tab, "Käfer, neu")
    tiles.nth(1).click()
    press(tab, "r")
    tiles.nth(1).click()
    press(tab, "m")
    choose(tab, "Sandal")
    page.open("category/new-02")
    tab.get_by_role("button", name="Merge").click()
    choose(tab, "new-03")
    tab.reload()  # edits are kept by the browser
    tab.wait_for_selector("body[data-ready]")
    assert n_edits(tab) == "6 edits"
    tab.click("#edits-button")
    edits = export(tab, tmp_path / "edits.csv")
    assert [e.action for e in edits] == ["rename", "confirm", "move", "reject", "move", "merge"]
    shown = counts(page)
    take_up(page, tmp_path / "edits.csv")
    assert "6 edits applied." in capsys.readouterr().out
    after = Discovery.load(page.report.parent)
    assert {c.name: c.n for c in after.categories} == shown
    assert after.category("new-01").name == '=Hawk, "the <i>first</i>"'
    assert "new-02" not in shown
    assert n_edits(reload(page)) == "No edits"  # they are part of the run now
    assert counts(page) == shown


HEAD = "run_id,time,action,image,category,value"
LINE = "run-made-1,t1,rename,,new-01,'=Hawk"


def bring(tab, file: Path, content: bytes, said: str) -> None:
    """Import a file and wait for what the page says of it."""
    file.write_bytes(content)
    tab.click("#edits-button")
    tab.locator('dialog[open] input[type="file"]').set_input_files(file)
    tab.get_by_text(said).wait_for()
    tab.locator("dialog[open] .close").click()


def test_import_takes_each_edit_once_none_of_another_run_and_no_bad_file(page, tmp_path):
    tab = page.open("category/new-01")
    for content, said in (
        (f"{HEAD},format\n{LINE},3\n".encode(), "This file is of format 3, and this page reads format 2."),
        (f"{HEAD}\n{LINE.replace('rename', 'delete')}\n".encode(), "There is no action delete"),
        (f"{HEAD}\n{LINE}\n".encode("utf-16"), "This file is not UTF-8 text"),
        (b"a,b\n1,2\n", "it has no column run_id"),
    ):
        bring(tab, tmp_path / "edits.csv", content, said)
        assert n_edits(tab) == "No edits"
    content = f"{HEAD}\n{LINE}\n{LINE.replace('run-made-1', 'other')}\n".encode()
    said = "1 edit imported, 0 were here already; 1 belongs to another run and was"
    bring(tab, tmp_path / "edits.csv", content, said)
    bring(tab, tmp_path / "edits.csv", content, "0 edits imported, 1 was here already")
    assert tab.locator(".head h1").inner_text() == "=Hawk"
    press(tab, "u")
    assert tab.locator(".head h1").inner_text() == "new-01"


def test_what_the_run_has_dealt_with_leaves_the_browser(own_page, tmp_path, capsys):
    """Refused edits, too: the run will not take them again, so the page must not show them as done."""
    page = own_page
    lines = [HEAD, "run-made-1,t1,rename,,new-01,Sandal", "run-made-1,t2,rename,,Sandal,Sandals"]
    tab = page.open("category/new-01")
    bring(tab, tmp_path / "edits.csv", "\n".join(lines).encode(), "2 edits imported")
    tab.click("#edits-button")
    assert "Another category is called Sandal" in tab.locator("dialog .log").inner_text()
    shown = counts(page)
    take_up(page, tmp_path / "edits.csv")
    assert "another category is called so" in capsys.readouterr().out
    assert n_edits(reload(page)) == "No edits"
    assert counts(page) == shown
    assert {"new-01", "Sandals"} < set(shown)


def test_copies_are_shown_and_an_edit_of_one_holds_for_all(open_page, tmp_path):
    """Two of the files have the same content."""
    found = make_discovery(tmp_path / "pictures", 90)
    digests = np.array([f"{i:04x}" for i in range(90)], dtype=object)
    one, other = np.flatnonzero(found.images["category_id"] == "new-01")[:2]
    digests[other] = digests[one]
    found.images["digest"] = digests
    page = open_page(found)
    tab = page.open("category/new-01")
    names = [Path(path).name for path in found.images["path"]]
    tile = tab.locator(f'{TILES}[aria-label*="{names[one]}"]')
    tile.locator(".zoomer").click()
    assert names[other] in tab.locator("dialog dl").inner_text()
    press(tab, "Escape")
    tile.click()
    press(tab, "r")
    assert counts(page)["new-01"] == found.category("new-01").n - 2
    tab.click("#edits-button")
    (edit,) = export(tab, tmp_path / "edits.csv")
    assert edit.digest == digests[one]
    take_up(page, tmp_path / "edits.csv")
    notes = Discovery.load(page.report.parent).images["note"]
    assert list(notes[[one, other]]) == ["rejected", "rejected"]


def test_a_mailed_report_is_corrected_elsewhere_and_the_edits_come_home(open_page, report, tmp_path, capsys):
    run, mail = report.parent, tmp_path / "mail.zip"
    assert command([str(run), "--zip", str(mail), "--no-progress"]) == 0
    with zipfile.ZipFile(mail) as opened:
        opened.extractall(tmp_path / "elsewhere")
    page = open_page(tmp_path / "elsewhere" / "mail" / "report.html")
    tab = page.open("category/new-01")
    tab.locator(TILES).first.dblclick()
    assert tab.locator("dialog .large .thumb").is_visible()  # there is no original
    assert str(tmp_path) not in tab.locator("dialog").inner_text()
    press(tab, "Escape", "Escape")
    tab.locator(TILES).first.click()
    press(tab, "m")
    choose(tab, "Sandal")
    tab.click("#edits-button")
    export(tab, tmp_path / "edits.csv")
    home = open_page(report)
    take_up(home, tmp_path / "edits.csv")
    assert "1 edit applied." in capsys.readouterr().out
    assert Discovery.load(run).category("Sandal").n == 11
    page.report = report  # one's own report calls images by other names: their edits are not mixed
    assert n_edits(page.open()) == "No edits"


def next_round(run: Path) -> Discovery:
    """Another round of the same run folder: another id, one image and one category fewer."""
    before = Discovery.load(run)
    gone = before.images["category_id"] == "new-04"
    images = before.images[~gone].iloc[1:].reset_index(drop=True)
    left = [category for category in before.categories if category.id != "new-04"]
    facts = dataclasses.replace(before.facts, round=2, earlier_runs=(before.run_id,))
    found = dataclasses.replace(before, run_id="run-made-2", images=images, categories=left, facts=facts)
    found.save(run)
    build_report(found, run)
    return found


@pytest.fixture
def edited(own_page):
    """A page of the next round, in a browser that holds an edit of the image that is gone, one of the category that is
    gone, a name and two moves."""
    page = own_page
    tab = page.open("find/odd")
    tab.locator(".tile").click()
    press(tab, "r")
    page.open("category/new-01")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, "Hawk")
    for target in ("Sandal", "new-02", "new-04"):
        tab.locator(TILES).first.click()
        press(tab, "m")
        choose(tab, target)
    assert n_edits(tab) == "5 edits"
    next_round(page.report.parent)
    return page


def test_edits_that_were_not_exported_are_offered_by_the_next_round(edited, tmp_path, capsys):
    tab = reload(edited)
    panel, undo = tab.locator(".earlier"), tab.locator("#toast").get_by_role("button", name="Undo")
    words = "5 edits of round 1 never reached the run folder. 3 can be taken over into this round; 2 cannot."
    assert words in panel.inner_text()
    assert n_edits(tab) == "No edits"
    tab.get_by_role("button", name="Take over 3 edits").click()
    assert n_edits(tab) == "3 edits"
    tab.click("#edits-button")
    export(tab, tmp_path / "edits.csv")
    take_up(edited, tmp_path / "edits.csv")
    assert "3 edits applied." in capsys.readouterr().out
    tab = reload(edited)
    assert n_edits(tab) == "No edits"
    assert "2 edits of round 1" in panel.inner_text()
    tab.get_by_role("button", name="Forget").click()
    undo.click()
    assert "2 edits of round 1" in panel.inner_text()
    tab.get_by_role("button", name="Forget").click()
    reload(edited)
    assert panel.count() == 0


def test_they_can_wait_other_runs_are_not_mixed_in_and_exported_as_they_were_they_count(edited, tmp_path):
    """With the run in whose report they were made; once the log has them, nothing is offered."""
    tab, run = reload(edited), edited.report.parent
    panel = tab.locator(".earlier")
    tab.get_by_role("button", name="Later").click()
    assert panel.count() == 0
    found = Discovery.load(run)
    other = dataclasses.replace(found.facts, earlier_runs=("other",))
    build_report(dataclasses.replace(found, facts=other), run)
    reload(edited)
    assert panel.count() == 0
    build_report(found, run)
    reload(edited)
    assert panel.count() == 1
    edits = export(tab, tmp_path / "edits.csv", "Export all 5")
    assert {edit.run_id for edit in edits} == {"run-made-1"}
    assert len(append_edits(run, edits)) == 5
    build_report(found, run)
    reload(edited)
    assert panel.count() == 0
