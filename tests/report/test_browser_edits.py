"""Edits in a real browser: made, exported, imported, refused, and taken up by the run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from holotype.cli import run_command
from holotype.report import build_report
from holotype.results.discovery import Discovery
from holotype.results.edits import read_edits
from report.browser import Page

command = partial(run_command, "report")

pytestmark = pytest.mark.xdist_group("browser")


def answer(tab, text: str) -> None:
    tab.locator("dialog input").fill(text)
    tab.keyboard.press("Enter")


def test_edits_go_round_trip(page, tmp_path, capsys):
    """Rename, merge, move, split off, confirm, reject; a reload; export; holotype report; the page again."""
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, '=Hawk, "the <i>first</i>"')
    tab.locator(".content > .gallery .tile").nth(0).click()
    tab.keyboard.press("c")
    tab.locator(".content > .gallery .tile").nth(1).click()
    tab.keyboard.press("n")
    answer(tab, "Käfer, neu")
    tab.locator(".content > .gallery .tile").nth(1).click()
    tab.keyboard.press("r")
    tab.locator(".content > .gallery .tile").nth(1).click()
    tab.keyboard.press("m")
    tab.locator(".choices").get_by_role("option", name="Sandal").click()
    page.open("category/new-02")
    tab.get_by_role("button", name="Merge").click()
    tab.locator(".choices").get_by_role("option", name="new-03").click()
    tab.reload()  # edits are kept by the browser
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#edits-button").inner_text() == "6 edits"
    tab.click("#edits-button")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "edits.csv")
    assert download.value.suggested_filename == "edits.csv"
    edits = read_edits(tmp_path / "edits.csv")
    assert [e.action for e in edits] == ["rename", "confirm", "move", "reject", "move", "merge"]
    shown = counts(page)
    assert command([str(page.report.parent), "--edits", str(tmp_path / "edits.csv")]) == 0
    assert "6 edits applied." in capsys.readouterr().out
    after = Discovery.load(page.report.parent)
    assert {c.name: c.n for c in after.categories} == shown
    assert after.category("new-01").name == '=Hawk, "the <i>first</i>"'
    assert "new-02" not in shown
    page.open()
    tab.reload()  # the new data
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#edits-button").inner_text() == "No edits"  # they are part of the run now
    assert counts(page) == shown


def counts(page) -> dict[str, int]:
    """Name and size of every category as the page tells them."""
    tab = page.open("category")
    rows = tab.locator(".list .links a").all()
    return {row.locator(".who").inner_text(): int(row.locator(".n").inner_text()) for row in rows}


def test_import_takes_each_edit_once_and_none_of_another_run(page, tmp_path):
    tab = page.open("category/new-01")
    own, foreign = "run-made-1,t1,rename,,new-01,'=Hawk", "other,t1,rename,,new-01,Owl"
    lines = ["run_id,time,action,image,category,value", own, foreign]
    (tmp_path / "edits.csv").write_text("\n".join(lines), encoding="utf-8")
    for said in (
        "1 edit imported, 0 were here already; 1 belongs to another run and was",
        "0 edits imported, 1 was here already",
    ):
        tab.click("#edits-button")
        tab.locator('dialog[open] input[type="file"]').set_input_files(tmp_path / "edits.csv")
        tab.get_by_text(said).wait_for()
        tab.locator("dialog[open] .close").click()
    assert tab.locator(".head h1").inner_text() == "=Hawk"
    tab.keyboard.press("u")
    assert tab.locator(".head h1").inner_text() == "new-01"


def bring(tab, file: Path, content: bytes, said: str) -> None:
    """Import a file and wait for what the page says of it."""
    file.write_bytes(content)
    tab.click("#edits-button")
    tab.locator('dialog[open] input[type="file"]').set_input_files(file)
    tab.get_by_text(said).wait_for()
    tab.locator("dialog[open] .close").click()


def test_a_file_that_holotype_would_refuse_is_not_imported(page, tmp_path):
    tab = page.open("category/new-01")
    head, line = "run_id,time,action,image,category,value", "run-made-1,t1,rename,,new-01,Hawk"
    for content, said in (
        (f"{head},format\n{line},2\n".encode(), "This file is of format 2, and this page reads format 1."),
        (f"{head}\n{line.replace('rename', 'delete')}\n".encode(), "There is no action delete"),
        (f"{head}\n{line}\n".encode("utf-16"), "This file is not UTF-8 text"),
        (b"a,b\n1,2\n", "it has no column run_id"),
    ):
        bring(tab, tmp_path / "edits.csv", content, said)
        assert tab.locator("#edits-button").inner_text() == "No edits"
    bring(tab, tmp_path / "edits.csv", f"{head},format\n{line},1\n".encode(), "1 edit imported")


def test_what_the_run_has_dealt_with_leaves_the_browser(page, tmp_path, capsys):
    """Refused edits, too: the run will not take them again, so the page must not show them as done."""
    lines = ["run_id,time,action,image,category,value", "run-made-1,t1,rename,,new-01,Sandal"]
    lines += ["run-made-1,t2,rename,,Sandal,Sandals"]
    tab = page.open("category/new-01")
    bring(tab, tmp_path / "edits.csv", "\n".join(lines).encode(), "2 edits imported")
    tab.click("#edits-button")
    assert "Another category is called Sandal" in tab.locator("dialog .log").inner_text()
    shown = counts(page)
    assert command([str(page.report.parent), "--edits", str(tmp_path / "edits.csv")]) == 0
    assert "another category is called so" in capsys.readouterr().out
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#edits-button").inner_text() == "No edits"
    assert counts(page) == shown
    assert {"new-01", "Sandals"} < set(shown)


def test_the_name_of_a_category_that_lost_its_images_is_free(page):
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Select all").click()
    tab.keyboard.press("m")
    tab.locator(".choices").get_by_role("option", name="new-02").click()
    page.open("category/new-02")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, "new-01")
    tab.get_by_text("new-02 is now called new-01").wait_for()
    assert counts(page)["new-01"] == 20
    assert "new-02" not in counts(page)


def test_a_name_that_is_taken_is_refused(page):
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, "Sandal")
    tab.get_by_text("Another category is called Sandal").wait_for()
    assert tab.locator("#edits-button").inner_text() == "No edits"


def test_what_an_image_could_also_be_follows_a_merge(browser, report):
    """new-02 goes into Sandal: no image could be new-02 any more."""
    run = report.parent
    found = Discovery.load(run)
    found.images["doubtful"] = found.images["category_id"] != ""
    features = np.random.default_rng(0).normal(size=(len(found.images), 8))
    page = Page(browser, build_report(found, run, features=features))
    tab = page.open("doubtful")
    assert "or new-02?" in tab.locator("main").inner_text()
    page.open("category/new-02")
    tab.get_by_role("button", name="Merge").click()
    tab.locator(".choices").get_by_role("option", name="Sandal").click()
    page.open("doubtful")
    text = tab.locator("main").inner_text()
    assert "or new-02?" not in text
    assert "or Sandal?" in text
    page.context.close()
    assert page.complaints == []
