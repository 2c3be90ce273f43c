"""A mailed report in a real browser: it opens wherever it is unpacked, and edits made in it come back."""

from __future__ import annotations

import zipfile
from functools import partial

import pytest

from holotype.cli import run_command
from holotype.results.discovery import Discovery
from report.browser import Page

command = partial(run_command, "report")

pytestmark = pytest.mark.xdist_group("browser")


def test_it_is_corrected_elsewhere_and_the_edits_come_home(browser, report, tmp_path, capsys):
    run = report.parent
    assert command([str(run), "--zip", str(tmp_path / "mail.zip"), "--no-progress"]) == 0
    with zipfile.ZipFile(tmp_path / "mail.zip") as opened:
        opened.extractall(tmp_path / "elsewhere")
    page = Page(browser, tmp_path / "elsewhere" / "mail" / "report.html")
    tab = page.open("category/new-01")
    tab.locator(".content > .gallery .tile").first.dblclick()
    assert tab.locator("dialog .large .thumb").is_visible()  # there is no original
    assert str(tmp_path) not in tab.locator("dialog").inner_text()
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")
    tab.locator(".content > .gallery .tile").first.click()
    tab.keyboard.press("m")
    tab.locator(".choices").get_by_role("option", name="Sandal").click()
    tab.click("#edits-button")
    assert "send the file to whoever sent you this report" in tab.locator("dialog").inner_text()
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "edits.csv")
    capsys.readouterr()
    assert command([str(run), "--edits", str(tmp_path / "edits.csv"), "--no-progress"]) == 0
    assert "1 edit applied." in capsys.readouterr().out
    assert Discovery.load(run).category("Sandal").n == 11
    assert page.complaints == []
    page.tab.goto(report.as_uri())  # one's own report calls images by other names: their edits are not mixed
    page.tab.wait_for_selector("body[data-ready]")
    assert page.tab.locator("#edits-button").inner_text() == "No edits"
    page.context.close()
