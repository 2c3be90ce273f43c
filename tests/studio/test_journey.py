"""The studio in a real browser: correct by keys, train another round, look at it, write folders, take it back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from holotype.results.discovery import Discovery, write_features
from holotype.results.edits import in_effect, read_log
from holotype.studio import app
from holotype.studio.jobs import JobContext
from holotype.studio.serve import bind
from studio.conftest import serving
from studio.window import JOB_MS, SAVED, Window, finished, press

PUBLISHED_HEADS = True  # children read what is trained here


IMPATIENT = """(() => {
  const signal = AbortSignal.timeout.bind(AbortSignal);
  let limit = 300;
  AbortSignal.timeout = (usual) => {
    const made = signal(limit);
    limit = usual;
    return made;
  };
})()"""
"""A page that waits for its first answer a moment only."""


def edit_by_keys(tab: Any) -> None:
    """Name a new category, confirm an image of it, reject one, split one off, and undo the last."""
    tab.evaluate("() => document.querySelector('main .tools ~ .gallery').gallery.focus(0)")
    press(tab, "c")
    tab.wait_for_selector("dialog.ask")
    tab.keyboard.type("Sky")
    press(tab, "Enter", "ArrowRight", "r", "n")
    tab.wait_for_selector("dialog.ask")
    tab.keyboard.type("Odd one")
    press(tab, "Enter")
    tab.wait_for_selector("dialog", state="detached")
    press(tab, "u")
    tab.wait_for_selector(SAVED)


def test_the_whole_loop_without_a_terminal(discovery: Path, serve, window) -> None:
    own = window()
    tab = own.open(serve(discovery).link)
    assert "#t=" not in tab.url
    novel = tab.evaluate("() => HOLOTYPE.categories.find((category) => category.kind === 'novel').id")
    own.view(f"category/{novel}")
    edit_by_keys(tab)
    assert [edit.action for edit in in_effect(read_log(discovery))] == ["rename", "confirm", "reject"]
    assert tab.inner_text("#edits-button") == "3 edits · saved"
    press(tab, "7")
    tab.click("text=Next round")
    tab.wait_for_selector(".job .facts-line", timeout=JOB_MS)
    tab.click("text=Stop")
    tab.wait_for_selector(".job h2:has-text('Next round: stopped')", timeout=JOB_MS)
    assert "the same command continues" in tab.inner_text(".said")
    assert not (discovery / "rounds" / "2" / "scores.json").exists()
    tab.click("button:text-is('Next round')")
    tab.wait_for_selector("#notices >> text=Round 2 is here", timeout=JOB_MS)
    finished(tab, "Next round")
    tab.click("#notices >> text=Look at it")
    tab.wait_for_selector("text=What round 2 has changed")
    tab.wait_for_selector("body[data-ready]")
    assert tab.inner_text("h1") == "Round 2"
    assert tab.inner_text("#edits-button") == "No edits"
    assert tab.evaluate("() => HOLOTYPE.categories.some((category) => category.name === 'Sky')")
    tab.click("text=Write folders")
    finished(tab, "Write folders")
    assert {"Sky", "red", "green"} <= {folder.name for folder in (discovery / "studio" / "folders").iterdir()}
    tab.click("text=Take back round 2")
    tab.wait_for_selector("#notices >> text=Round 1 is here", timeout=JOB_MS)
    tab.click("#notices >> text=Look at it")
    tab.wait_for_selector("h1:text-is('Round 1')")
    tab.wait_for_selector("body[data-ready]")
    assert tab.inner_text("#edits-button") == "3 edits · saved"
    assert not (discovery / "rounds" / "2").exists()


def test_answers_move_other_images(discovery: Path, serve, window, monkeypatch) -> None:
    """Where one looks nothing jumps: the new places are shown when one asks for them, or goes elsewhere."""
    monkeypatch.setattr(app, "ANSWERS", 3)
    own = window()
    tab = own.open(serve(discovery).link)
    novel = "HOLOTYPE.categories.filter((category) => category.kind === 'novel')"
    largest = tab.evaluate(f"() => {novel}.reduce((a, b) => (b.n > a.n ? b : a)).id")
    own.view(f"category/{largest}")
    tab.select_option(".tools select >> nth=1", "unlabelled")
    tiles = "main .tools ~ .gallery"
    tab.evaluate(f"() => document.querySelector('{tiles}').gallery.focus(0)")
    press(tab, "Space", "ArrowRight", "Space", "ArrowRight", "Space", "n")
    tab.wait_for_selector("dialog.ask")
    tab.keyboard.type("Sky")
    press(tab, "Enter")
    count = f"() => document.querySelector('{tiles}').gallery.list.length"
    shown = tab.evaluate(count)
    tab.wait_for_selector("#notices >> text=3 edits learned from")
    assert tab.evaluate(count) == shown
    tab.click("#notices >> text=Place the other images anew")
    assert tab.evaluate(count) < shown
    own.view("rounds")
    assert re.search("images? after 3 edits", tab.inner_text("main"))
    own.open(tab.url)
    tab.wait_for_selector("body[data-ready]")
    own.view(f"category/{largest}")
    tab.select_option(".tools select >> nth=1", "unlabelled")
    assert tab.evaluate(count) < shown


def test_questions_by_keys_alone(run: Path, serve, window) -> None:
    own = window()
    tab = own.open(serve(run).link)
    own.view("questions")

    def asked() -> tuple[str, int]:
        return tab.inner_text("h1"), int(tab.inner_text("main [role=status]").split()[0])

    def skip_until(words: str) -> None:
        while not re.search(words, asked()[0]):
            left = asked()[1]
            press(tab, "x")
            assert asked()[1] == left - 1

    skip_until(r"^Are these \d+ one thing\?$")
    press(tab, "c")
    tab.wait_for_selector("dialog.ask")
    tab.keyboard.type("Clog")
    press(tab, "Enter")
    tab.wait_for_selector("#edits-button:text-is('7 edits · saved')")
    assert [edit.action for edit in read_log(run)] == ["rename", *["confirm"] * 6]
    skip_until("one thing")
    second = asked()
    press(tab, "y")
    tab.wait_for_selector("dialog.ask")
    tab.keyboard.type("Clog")  # the two are the same, then
    press(tab, "Enter")
    tab.wait_for_selector(SAVED)
    assert "merge" in [edit.action for edit in read_log(run)[7:]]
    press(tab, "u")
    tab.wait_for_selector("#edits-button:text-is('7 edits · saved')")
    press(tab, "u")
    tab.wait_for_selector("#edits-button:text-is('No edits')")
    assert asked()[1] > second[1]
    skip_until("Is this")
    category = tab.inner_text(".examples figcaption")
    assert category.strip() in tab.inner_text("h1")
    press(tab, "1")
    tab.wait_for_selector("#edits-button:text-is('1 edit · saved')")
    assert read_log(run)[-1].action == "move"
    skip_until("Is this")
    press(tab, "n")
    tab.wait_for_selector("dialog.pick")
    press(tab, "ArrowDown", "Enter")
    tab.wait_for_selector("#edits-button:text-is('2 edits · saved')")
    press(tab, "?")
    assert "y yes" in tab.inner_text("dialog")


def test_labels_in_doubt_and_groups_of_strangers_are_asked(run: Path, serve, window) -> None:
    found = Discovery.load(run)
    images = found.images
    images["doubtful"] = False
    labelled = images.index[images["label"] != ""][0]
    images.loc[labelled, "note"] = "odd; the model would say new-01"
    strangers = images.index[(images["category_id"] == "new-02") & (images["label"] == "")][:4]
    images.loc[strangers, ["doubtful", "x", "y"]] = [True, 0.0, 0.0]
    found.save(run)
    own = window()
    tab = own.open(serve(run).link)
    own.view("questions")
    asked = set()
    for _ in range(200):
        words = tab.inner_text("h1")
        if "looks like new-01" in words:
            asked.add("label")
            press(tab, "n")
            tab.wait_for_selector("#edits-button:text-is('1 edit · saved')")
        elif words == "Are these 4 something else?":
            asked.add("strangers")
            press(tab, "y")
            tab.wait_for_selector("dialog.ask")
            tab.keyboard.type("Odd")
            press(tab, "Enter")
        elif "Nothing left" in words or len(asked) == 2:
            break
        else:
            press(tab, "x")
    tab.wait_for_selector("#edits-button:text-is('5 edits · saved')")
    edits = [(edit.action, edit.value) for edit in read_log(run)]
    assert sorted(edits) == [("confirm", "new-01"), *[("move", "Odd")] * 4]


def test_a_picture_of_ones_own_finds_those_like_it(discovery: Path, squares_folder, serve, window) -> None:
    own = window()
    tab = own.open(serve(discovery).link)
    own.view("picture")
    file = next((squares_folder / "red").iterdir())
    tab.set_input_files("main input[type=file]", file)
    tab.wait_for_selector("main .found .tile", timeout=JOB_MS)
    assert file.name in tab.locator("main .found .tile").first.get_attribute("aria-label")
    own.excused = ("409",)
    tab.fill("main input[type=search]", "a red square")
    press(tab, "Enter")
    tab.wait_for_selector(
        "main [role=status]:has-text('--names')", timeout=JOB_MS
    )  # no network knows words here


def say_as(own: Window, person: str, view: str, key: str, word: str = "") -> None:
    """Correct the first image of a view under a name."""
    tab = own.tab
    tab.click("#edits-button")
    tab.fill("dialog.edits .person input", person)
    press(tab, "Tab", "Escape")
    own.view(view)
    tab.evaluate("() => [...document.querySelectorAll('main .gallery')].at(-1).gallery.focus(0)")
    press(tab, key)
    if word:
        tab.keyboard.type(word)
        press(tab, "Enter")
    tab.wait_for_selector(SAVED)


def test_what_two_people_say_differently_is_asked(run: Path, serve, window) -> None:
    server, ann, ben = serve(run), window(), window()
    for own in (ann, ben):
        own.open(server.link)
    file = Path(Discovery.load(run).images["path"].iloc[30]).name
    say_as(ann, "Ann", f"find/{file}", "m", "new-01")
    say_as(ben, "Ben", f"find/{file}", "m", "new-02")
    ann.tab.wait_for_selector("#edits-button:text-is('2 edits · saved')")
    assert [edit.by for edit in read_log(run)] == ["Ann", "Ben"]
    ann.view("questions")
    ann.tab.wait_for_selector("h1:text-is('It is new-02 now, and new-01 to Ann. Should it stay?')")
    press(ann.tab, "n")
    ann.tab.wait_for_selector("#edits-button:text-is('3 edits · saved')")
    assert (read_log(run)[-1].by, read_log(run)[-1].value) == ("Ann", "new-01")
    assert "Should it stay" not in ann.tab.inner_text("h1")


def test_one_answer_serves_images_that_are_nearly_the_same(run: Path, serve, window) -> None:
    write_features(run, np.ones((len(Discovery.load(run).images), 8), dtype=np.float32))
    own = window()
    tab = own.open(serve(run).link)
    own.view("questions")
    left = [int(tab.inner_text("main [role=status]").split()[0])]
    for _ in range(20):
        tab.wait_for_timeout(100)  # the server says which images are like the one that is asked
        press(tab, "x")
        left.append(int(tab.inner_text("main [role=status]").split()[0]))
        if left[-2] - left[-1] >= 3:
            return
    raise AssertionError(left)


def test_a_spot_check_states_a_bound(run: Path, serve, window) -> None:
    own = window()
    tab = own.open(serve(run).link)
    own.view("category/new-01")
    tab.click("text=Spot check")
    tab.wait_for_selector("main.check")
    count = tab.locator(".tile").count()
    for right in (count, count - 1):
        words = tab.inner_text("main [role=status]")
        share = int(100 * beta.ppf(0.05, right, count - right + 1))
        assert words.startswith(f"{right} of {count} are right: you can be 95 % sure that at least {share} %")
        tab.evaluate("() => document.querySelector('main .gallery').gallery.focus(0)")
        press(tab, "r")


def test_other_numbers_of_categories_by_eye(discovery: Path, serve, window) -> None:
    own = window()
    tab = own.open(serve(discovery).link)
    own.view("number")
    cards = tab.locator("main .card").count()
    tab.focus("input[type=range]")
    press(tab, "ArrowLeft")
    assert tab.locator("main .card").count() == cards - 1
    assert not read_log(discovery)
    tab.click("text=Take this number")
    tab.wait_for_selector(SAVED)
    assert [edit.action for edit in read_log(discovery)] == ["merge"]


def test_a_telephone_in_the_dark(discovery: Path, serve, window) -> None:
    small = window(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    tab = small.open(serve(discovery).link)
    for view in ("overview", "category", "map", "doubtful", "rounds", "questions", "check", "number"):
        small.view(view)
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390, view
    novel = tab.evaluate("() => HOLOTYPE.categories.find((category) => category.kind === 'novel').id")
    small.view(f"category/{novel}")
    edit_by_keys(tab)
    small.view("rounds")
    assert "3 edits of this round" in tab.inner_text("#work")


def test_two_windows_show_the_same(run: Path, serve, window) -> None:
    server = serve(run)
    one, other = window(), window()
    tab, second = one.open(server.link), other.open(server.link)
    one.view("category/new-01")
    other.view("category/new-01")
    tab.evaluate("() => document.querySelector('main .tools ~ .gallery').gallery.focus(0)")
    press(tab, "r")
    second.wait_for_selector("#edits-button:text-is('1 edit · saved')")
    press(second, "u")
    tab.wait_for_selector("#edits-button:text-is('No edits')")
    assert in_effect(read_log(run)) == []


def test_two_windows_that_contradict_each_other_end_alike(run: Path, serve, window) -> None:
    """One is cut off, and both name a category: what was saved last counts in both, and the log has what both said."""
    server = serve(run)
    one, other = window(), window()
    tabs = [one.open(server.link), other.open(server.link)]
    other.excused = ("ERR_INTERNET_DISCONNECTED",)
    other.context.set_offline(True)
    for tab, owner, text in zip(tabs, (one, other), ("Hawk", "Owl"), strict=True):
        owner.view("category/new-01")
        tab.click("main >> text=Rename")
        tab.wait_for_selector("dialog.ask")
        tab.fill("dialog.ask input", text)
        press(tab, "Enter")
        tab.wait_for_selector(f"h1:has-text('{text}')")
    tabs[0].wait_for_selector(SAVED)
    other.context.set_offline(False)
    for tab in tabs:
        tab.wait_for_selector("h1:has-text('Owl')")
        tab.wait_for_selector(SAVED)
    assert [edit.value for edit in read_log(run)] == ["Hawk", "Owl"]


def test_what_could_not_be_sent_waits_in_the_browser(run: Path, window) -> None:
    """The server goes, edits go on, the page is closed, another server comes: nothing is lost."""
    own = window()
    own.excused = ("net::ERR_", "403")
    with bind(0) as listener:
        port = listener.getsockname()[1]
    with serving(JobContext(run), port=port) as server:
        tab = own.open(server.link)
        own.view("category/new-01")
    tab.evaluate("() => document.querySelector('main .tools ~ .gallery').gallery.focus(0)")
    press(tab, "r", "r")
    tab.wait_for_selector("#edits-button[data-state=away]")
    assert tab.inner_text("#edits-button") == "2 edits · 2 not saved"
    assert "does not answer" in tab.inner_text("#notices")
    with serving(JobContext(run), port=port) as server:
        tab.wait_for_selector("#notices >> text=was started anew")
        own.open(server.link)
        tab.wait_for_selector(SAVED)
        assert tab.inner_text("#edits-button") == "2 edits · saved"
    assert [edit.action for edit in read_log(run)] == ["reject", "reject"]


def test_every_window_hears_that_the_studio_was_started_anew(run: Path, window) -> None:
    """Also one that has nothing to send; and it goes on when the link was opened in another one."""
    own = window()
    own.excused = ("net::ERR_", "403")
    with serving(JobContext(run)) as server:
        tab = own.open(server.link)
        own.view("category/new-01")
    with serving(JobContext(run), port=server.port) as server:
        tab.wait_for_selector("#notices >> text=was started anew")
        assert tab.inner_text("#edits-button") == "No edits"
        tab.evaluate("() => document.querySelector('main .tools ~ .gallery').gallery.focus(0)")
        press(tab, "r")
        tab.wait_for_selector("#edits-button[data-state=away]")
        own.context.new_page().goto(server.link)
        tab.wait_for_selector(SAVED)
        tab.wait_for_selector("#notices:empty", state="attached")
    assert [edit.action for edit in read_log(run)] == ["reject"]


def test_an_edit_that_nobody_answers_is_sent_again(run: Path, serve, window) -> None:
    own = window()
    own.tab.add_init_script(IMPATIENT)
    tab = own.open(serve(run).link)
    lost: list[Any] = []
    tab.route("**/api/edits", lambda route: route.continue_() if lost else lost.append(route))
    own.view("category/new-01")
    tab.evaluate("() => document.querySelector('main .tools ~ .gallery').gallery.focus(0)")
    press(tab, "r")
    tab.wait_for_selector(SAVED)
    assert (tab.inner_text("#edits-button"), len(lost)) == ("1 edit · saved", 1)
    assert [edit.action for edit in read_log(run)] == ["reject"]


def test_who_may_only_look_is_told(run: Path, serve, window) -> None:
    own = window()
    tab = own.open(serve(run, read_only="Somebody else has it.").link)
    own.view("category/new-01")
    tab.evaluate("() => document.querySelector('main .tools ~ .gallery').gallery.focus(0)")
    press(tab, "r")
    tab.wait_for_selector("#toast >> text=Somebody else has it.")
    assert tab.inner_text("#edits-button") == "No edits"
    own.view("rounds")
    assert tab.locator(".jobs button:enabled").count() == 0


def test_many_images_are_few_cells(tmp_path: Path, serve, window) -> None:
    """Also after scrolling to the end; the keyboard comes back to where it was."""
    from report.made import make_discovery

    make_discovery(tmp_path / "pictures", 5_000, files=40).save(tmp_path / "run")
    own = window(viewport={"width": 2560, "height": 1440})
    tab = own.open(serve(tmp_path / "run").link)
    own.view("find/picture")
    count = "() => document.querySelectorAll('.tile').length"
    tab.wait_for_selector(".tile")
    most = 0
    for part in (0, 0.3, 0.31, 0.6, 1):
        tab.evaluate("part => scrollTo(0, part * document.documentElement.scrollHeight)", part)
        tab.wait_for_timeout(50)
        most = max(most, tab.evaluate(count))
    assert 50 < most < 400
    tab.evaluate("() => document.querySelector('main .gallery').gallery.focus(2000)")
    press(tab, "End")
    assert tab.evaluate("() => document.activeElement.getAttribute('aria-posinset')") == "4996"
    press(tab, "Home", "ArrowDown", "ArrowRight")
    across = tab.evaluate("() => document.querySelector('main .gallery').gallery.columns()")
    assert tab.evaluate("() => document.activeElement.getAttribute('aria-posinset')") == str(across + 2)
    assert tab.evaluate(count) < 400
