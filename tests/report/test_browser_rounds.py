"""A new round in a real browser: edits that were never exported are offered by its report, and none is lost."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest

from holotype.cli import run_command
from holotype.report import build_report
from holotype.results.discovery import Discovery
from holotype.results.edits import append_edits, read_edits

command = partial(run_command, "report")

pytestmark = pytest.mark.xdist_group("browser")


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


def edit_some(page) -> None:
    """One of the image that will be gone, one of the category that will be gone, a name and two moves."""
    tab = page.open("find/odd")
    tab.locator(".tile").click()
    tab.keyboard.press("r")
    page.open("category/new-01")
    tab.get_by_role("button", name="Rename").click()
    tab.locator("dialog input").fill("Hawk")
    tab.keyboard.press("Enter")
    for target in ("Sandal", "new-02", "new-04"):
        tab.locator(".content > .gallery .tile").first.click()
        tab.keyboard.press("m")
        tab.locator(".choices").get_by_role("option", name=target).click()
    assert tab.locator("#edits-button").inner_text() == "5 edits"


def reload(page):
    tab = page.open("overview")
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    return tab


def test_edits_that_were_not_exported_are_offered_by_the_next_round(page):
    edit_some(page)
    next_round(page.report.parent)
    tab = reload(page)
    panel = tab.locator(".earlier")
    assert (
        "5 edits of round 1 never reached the run folder. 3 can be taken over into this round; 2 cannot."
        in panel.inner_text()
    )
    panel.locator("summary").click()
    reasons = panel.locator("li").all_inner_texts()
    assert [
        "There is no image" in reasons[0],
        "There is no category new-04 in this round." in reasons[1],
    ] == [True, True]
    assert tab.locator("#edits-button").inner_text() == "No edits"
    tab.get_by_role("button", name="Take over 3 edits").click()
    assert tab.locator("#edits-button").inner_text() == "3 edits"
    assert tab.locator(".card", has_text="Hawk").count() == 1
    assert "2 edits of round 1" in tab.locator(".earlier").inner_text()  # not dropped
    tab.locator("#toast").get_by_role("button", name="Undo").click()
    assert tab.locator("#edits-button").inner_text() == "No edits"
    assert "5 edits of round 1" in tab.locator(".earlier").inner_text()


def test_they_reach_the_run_and_are_not_offered_again(page, tmp_path, capsys):
    edit_some(page)
    next_round(page.report.parent)
    tab = reload(page)
    tab.get_by_role("button", name="Take over 3 edits").click()
    tab.click("#edits-button")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Export edits.csv").click()
    download.value.save_as(tmp_path / "edits.csv")
    assert command([str(page.report.parent), "--edits", str(tmp_path / "edits.csv"), "--no-progress"]) == 0
    assert "3 edits applied." in capsys.readouterr().out
    tab = reload(page)
    assert tab.locator("#edits-button").inner_text() == "No edits"
    assert "2 edits of round 1" in tab.locator(".earlier").inner_text()
    tab.get_by_role("button", name="Forget").click()
    assert tab.locator(".earlier").count() == 0
    tab.locator("#toast").get_by_role("button", name="Undo").click()
    assert "2 edits of round 1" in tab.locator(".earlier").inner_text()
    tab.get_by_role("button", name="Forget").click()
    assert reload(page).locator(".earlier").count() == 0


def test_exported_as_they_were_they_count_in_the_next_round(page, tmp_path):
    """With the run in whose report they were made; once the log has them, nothing is offered."""
    edit_some(page)
    run = page.report.parent
    found = next_round(run)
    tab = reload(page)
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Export all 5").click()
    download.value.save_as(tmp_path / "edits.csv")
    edits = read_edits(tmp_path / "edits.csv")
    assert {edit.run_id for edit in edits} == {"run-made-1"}
    assert len(append_edits(run, edits)) == 5
    build_report(found, run)
    assert reload(page).locator(".earlier").count() == 0


def test_it_can_wait_and_other_runs_are_not_mixed_in(page):
    edit_some(page)
    run = page.report.parent
    next_round(run)
    tab = reload(page)
    tab.get_by_role("button", name="Later").click()
    assert tab.locator(".earlier").count() == 0
    assert reload(page).locator(".earlier").count() == 1
    found = Discovery.load(run)
    build_report(
        dataclasses.replace(found, facts=dataclasses.replace(found.facts, earlier_runs=("other",))), run
    )
    assert reload(page).locator(".earlier").count() == 0
