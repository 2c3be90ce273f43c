"""The report's JavaScript does with edits what Python does: golden cases, random ones, and the CSV both ways."""

import dataclasses
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from holotype.errors import InputError
from holotype.report.page_data import page_data, select_shown
from holotype.results.describe import describe_all, suggest_names
from holotype.results.discovery import Discovery
from holotype.results.edits import (
    EDIT_COLUMNS,
    PLACED_NOTE,
    Edit,
    LearnedPlacement,
    apply_edits,
    can_move,
    edits_csv,
    in_effect,
    place_anew,
    read_edits,
    stripped,
)
from holotype.results.purity import check_text
from report.javascript import run_javascript
from report.made import make_discovery
from results.golden import CASES, NAMES, WORDS, case_edits, golden_discovery, outcome, random_edit

TIME = "2026-01-02T03:04:05.678Z"
ODD = ["", "=1+1", "+x", "-x", "@x", "\tx", "\rx", "'x", "''", "'=x", "'", '"', '""', "a, b", 'say "x", then', "a;b",
       "two\nlines", "two\r\nlines", "two\rlines", "ends\r", "\n", " blanks ", "Käfer ✓ 日本 🦉", "\ufeffbom",
       "<script>", "__proto__", "\x1f\x85", "null", "1"]  # fmt: skip


def page(found: Discovery, log: list[Edit]) -> dict[str, Any]:
    """What the page of this discovery would know."""
    return json.loads(json.dumps(page_data(found, select_shown(found), Path("run"), log, None)))


def rows(edits: list[Edit]) -> list[dict[str, str]]:
    return [dataclasses.asdict(edit) for edit in edits]


def same_words(result: dict[str, Any]) -> dict[str, Any]:
    """Pairs as dictionaries; JavaScript hands them over as lists, since a key there may not be __proto__."""
    pairs = {key: dict(result[key]) for key in ("images", "merged", "confirmed")}
    return {**result, **pairs}


@pytest.fixture(scope="module")
def golden_results() -> list[dict[str, Any]]:
    given = []
    for case in CASES:
        before, edits = case_edits(case)
        found = apply_edits(golden_discovery(case["discovery"]), before).discovery
        given.append({"discovery": page(found, before), "edits": rows(edits)})
    return [same_words(result) for result in run_javascript("apply", given)]


@pytest.mark.parametrize("position", range(len(CASES)), ids=NAMES)
def test_golden(position, golden_results):
    """Categories show themselves by the same images and signatures, too."""
    result, expected = golden_results[position], CASES[position]["expected"]
    assert {key: result[key] for key in expected} == expected
    before, edits = case_edits(CASES[position])
    found = apply_edits(golden_discovery(CASES[position]["discovery"]), before).discovery
    after = apply_edits(found, edits).discovery
    assert result["exemplars"] == [category.exemplars for category in after.categories]
    for signature, category in zip(result["signatures"], after.categories, strict=True):
        assert signature == pytest.approx(category.signature, abs=1e-4)


def test_random_edits_come_to_the_same():
    """Both at once, and in two sittings: the page begins from what Python made of the first."""
    rng = random.Random(20260504)
    cases, expected, measured = [], [], []
    for number in range(80):
        name = ("shoes", "copies")[number % 2]
        edits = [random_edit(rng.choice, i, name) for i in range(rng.randint(1, 30))]
        stop = rng.choice([0, 0, rng.randint(0, len(edits))])
        found = apply_edits(golden_discovery(name), edits[:stop]).discovery
        cases.append({"discovery": page(found, edits[:stop]), "edits": rows(edits[stop:])})
        after = apply_edits(found, edits[stop:])
        expected.append(outcome(after))
        told = page(after.discovery, edits)["categories"]
        measured.append([[c[key] for key in ("cohesion", "separation", "returns", "faint")] for c in told])
    results = [same_words(result) for result in run_javascript("apply", cases)]
    assert sum(len(result["refused"]) for result in expected) > 100
    assert sum(result["applied"] for result in expected) > 300
    for case, result, wanted in zip(cases, results, expected, strict=True):
        assert {key: result[key] for key in wanted} == wanted, case["edits"]
    assert [result["measured"] for result in results] == measured


def test_both_place_images_anew_and_leave_answered_ones():
    rng = random.Random(20261118)
    cases, expected, moved, answered = [], [], 0, 0
    for number in range(40):
        found = golden_discovery(("shoes", "copies")[number % 2])
        edits = [random_edit(rng.choice, i, "shoes") for i in range(rng.randint(1, 12))]
        corrected = apply_edits(found, edits).discovery
        order = select_shown(found).rows.tolist()
        ids = [rng.choice([*found.categories, *corrected.categories]).id for _ in order]
        cases.append({"discovery": page(found, []), "edits": rows(edits)})
        cases[-1]["placement"] = {"rows": list(range(len(order))), "ids": ids}
        after = place_anew(corrected, LearnedPlacement(found.run_id, 0, order, ids, [500] * len(order)))
        columns = ("path", "category_id", "note")
        expected.append(sorted(zip(*(after.images[name].fillna("") for name in columns), strict=True)))
        free = can_move(corrected)
        moved += sum(note == PLACED_NOTE for note in after.images["note"])
        answered += free.count(False)
        same = corrected.images["category_id"] == after.images["category_id"]
        assert all(same[row] for row in range(len(free)) if not free[row])
    results = run_javascript("apply", cases)
    found = [sorted((path, image[0], image[3]) for path, image in result["images"]) for result in results]
    assert found == expected
    assert moved > 100
    assert answered > 100


def test_words_suggested_names_and_notes_follow_categories_that_are_renamed():
    """The page says at once what the next report will say: closest to Clog, not to Sandal."""
    rng = random.Random(20260611)
    calls = ("Clog", "Sandal", "Boot", "a. b|c (d)", "$& and", "=x\\", " Käfer ✓ ", "new-01")
    cases, expected = [], []
    for _ in range(60):
        found = golden_discovery("shoes")
        words = describe_all(found.categories, found.known, found.known)
        names = suggest_names(found.categories, found.known)
        for category, said, name in zip(found.categories, words, names, strict=True):
            category.words, category.suggested = said, name
        found.images["note"] = [f"own; the model would say {rng.choice(WORDS)}" for _ in found.images.index]
        edits = [
            Edit(found.run_id, f"t{i}", "rename", "", rng.choice((*found.known, "new-02")), rng.choice(calls))
            for i in range(rng.randint(1, 6))
        ]
        edits.insert(rng.randint(0, len(edits)), Edit(found.run_id, "t", "merge", "", "new-01", "new-02"))
        stop = rng.choice([0, len(edits) // 2])
        before = apply_edits(found, edits[:stop]).discovery
        cases.append({"discovery": page(before, edits[:stop]), "edits": rows(edits[stop:])})
        after = apply_edits(before, edits[stop:]).discovery
        words = [[category.words, category.suggested] for category in after.categories]
        expected.append((words, dict(zip(after.images["path"], after.images["note"], strict=True))))
    for result, (words, notes) in zip(run_javascript("apply", cases), expected, strict=True):
        assert result["words"] == words
        assert {path: note for path, (*_, note, _) in result["images"]} == notes
    assert "Clog" in str(expected)


def test_images_that_the_page_does_not_show_are_counted(tmp_path):
    found = make_discovery(tmp_path, 300, files=10)
    chosen = select_shown(found, limit=100)
    kinds = found.images.kind.iloc[chosen.rows]
    shown = [path for path, kind in zip(chosen.paths, kinds, strict=True) if kind == "novel"]
    edits = [Edit(found.run_id, f"t{i}", "move", path, "", "split") for i, path in enumerate(shown[::3])]
    whole = (("merge", "new-01", "new-02"), ("reject", "new-03", ""), ("merge", "split", "Bag"))
    edits += [Edit(found.run_id, "t", action, "", of, to) for action, of, to in whole]
    data = json.loads(json.dumps(page_data(found, chosen, tmp_path, [], None)))
    assert data["total"]["shown"] < data["total"]["images"]
    (result,) = run_javascript("apply", [{"discovery": data, "edits": rows(edits)}])
    assert result["categories"] == outcome(apply_edits(found, edits))["categories"]


def test_a_category_that_has_changed_is_checked_by_the_images_that_it_has_now():
    sizes = [*range(130), 1000, 12_345]
    assert run_javascript("checkInWords", sizes) == [check_text(n) for n in sizes]
    found = golden_discovery("shoes")
    first, second, *_ = (c for c in found.categories if c.kind == "novel" and c.n > 1)
    first.purity, first.purity_low, first.purity_high = 0.8, 0.6, 0.9
    path = first.exemplars[0]
    edits = [Edit(found.run_id, "t", "move", path, first.id, second.id)]
    (told,) = run_javascript("checks", [{"discovery": page(found, []), "edits": rows(edits)}])
    assert dict(told)[first.id] == check_text(first.n - 1)
    assert dict(told)[second.id] == ""  # nothing is known of its purity
    (told,) = run_javascript("checks", [{"discovery": page(found, []), "edits": []}])
    assert dict(told)[first.id].startswith("About 80 % of its images are right (60 to 90 %). Look at")


def test_both_strip_the_same_signs():
    signs = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    blank = [sign for sign in signs if not stripped(sign)]
    assert {" ", "\t", "\n", "\xa0", "\u3000", "\ufeff", "\x85", "\x1f"} < set(blank)
    every = [f"{sign}a{sign}b{sign}" for sign in signs[:0x3100] + signs[0xE000 : 0xE000 + 0x2000]]
    assert run_javascript("stripped", every) == [stripped(text) for text in every]
    assert set(blank) <= set("".join(every))


def test_a_lasso_holds_what_it_winds_round():
    """Corners either way round, a hollow, and a shape that crosses itself: both loops count."""
    square = [[0, 0], [10, 0], [10, 10], [0, 10]]
    hollow = [[0, 0], [10, 0], [10, 10], [5, 2], [0, 10]]
    eight = [[0, 0], [10, 10], [10, 0], [0, 10]]
    asked = [
        (square, 5, 5, True), (square[::-1], 5, 5, True), (square, 11, 5, False), (square, -1, -1, False),
        (hollow, 5, 1, True), (hollow, 5, 6, False), (eight, 1, 5, True), (eight, 9, 5, True), (eight, 5, 1, False),
        (square * 2, 5, 5, True),
    ]  # fmt: skip
    answers = run_javascript("windsRound", [[shape, x, y] for shape, x, y, _ in asked])
    assert answers == [inside for *_, inside in asked]


def test_names_are_compared_as_people_compare_them():
    names = ["trip/IMG_0012.JPG", "trip\\b\\img_0013.jpg", "home/Ka\u0308fer.png", "<b>.png", "home/img.png"]
    asked = {"img_001": [0, 1], "TRIP/": [0, 1], "käfer": [2], "K\u00c4FER": [2], "<B>": [3], "home/": [2, 4],
             "  ": [], "nothing": []}  # fmt: skip
    assert run_javascript("findNames", [[names, words] for words in asked]) == list(asked.values())


def odd_edits() -> list[Edit]:
    edits = [Edit("run-2", TIME, "rename", "", "new-01", word) for word in ODD]
    edits += [Edit("run-2", TIME, "move", f"{word}.png", word, word, "d1") for word in ODD]
    return [*edits, Edit("=run", "'t", "reject", ODD[3], ODD[12]), Edit("run-2", "", "confirm", "x", "", "y")]


def test_both_write_the_same_file_and_read_what_the_other_writes(tmp_path):
    edits = odd_edits()
    written, empty = run_javascript("toCsv", [rows(edits), []])
    assert (written, empty) == (edits_csv(edits), edits_csv([]))
    (tmp_path / "edits.csv").write_bytes(written.encode())
    assert read_edits(tmp_path / "edits.csv") == edits
    assert run_javascript("readEdits", [edits_csv(edits)]) == [{"edits": rows(edits), "problem": ""}]


HEAD = ",".join(EDIT_COLUMNS)
TEXTS = {
    "without a format": f"{HEAD}\nr,t,rename,,new-01,Owl\n",
    "an empty format": f"{HEAD},format\nr,t,rename,,new-01,Owl,\nr,t,rename,,new-01,Hawk\n",
    "this format": f"{HEAD},format\nr,t,rename,,new-01,Owl, 2 \n",
    "another format": f"{HEAD},format\nr,t,rename,,new-01,Owl,1\nr,t,rename,,new-01,Owl,3\n",
    "digests": f"{HEAD},digest,format\nr,t,reject,a.png,,,d1,2\nr,t,reject,b.png,,,,2\n",
    "a format that is no number": f"{HEAD},format\nr,t,rename,,new-01,Owl,one\n",
    "semicolons and a mark": f"\ufeff{HEAD},mine\r\nr,t,rename,,a,b,x\r\n,,,,,,\r\n".replace(",", ";"),
    "only in a column of one's own": f"{HEAD},mine\nr,t,rename,,a,b,x\n,,,,,,x\n",
    "old line ends": f"{HEAD}\rr,t,rename,,a,b\rr,t,rename,,c,d\r",
    "columns in another order": "value,category,image,action,time,run_id\nOwl,new-01,,rename,t,r\n",
    "a column twice": f"{HEAD},value\nr,t,rename,,new-01,one,two\n",
    "no end of the last line": f"{HEAD}\nr,t,rename,,a,b",
    "empty lines": f"{HEAD}\n\n\nr,t,rename,,a,b\n\n",
    "quotes within a cell": f'{HEAD}\nr,t,rename,,a,"b"c"d"\nr,t,rename,,a,e"f"\nr,t,rename,,a,""g\n',
    "cells that guard themselves": f"{HEAD}\nr,t,rename,,a,'=b\nr,t,rename,,a,'b\nr,t,rename,,a,''b\n",
    "edits that were taken back": f"{HEAD},digest\nr,t1,move,a,x,y,d1\nr,t1,move,b,x,y,d2\nr,t1,rename,,x,Owl,\n"
    "r,t2,move,c,x,y,\nr,t3,undo,elsewhere/a,x,t1,d1\nr,t3,undo,,x,t1,\nr,t3,undo,c,,t2,\nr,t3,undo,b,,t2,d2\n"
    "s,t1,move,a,x,y,d1\nr,t4,move,a,x,y,d1\n",
    "an action unheard of": f"{HEAD}\nr,t,toString,,a,b\n",
    "a cell that is unheard of": f"{HEAD}\nr,t,rename,,a,Owl, snowy\n",
    "an empty cell more": f"{HEAD}\nr,t,rename,,a,Owl,\n",
    "a column is missing": "run_id,time,action,image,category\nr,t,reject,,a\n",
    "nothing": "",
    "no edits": HEAD + "\n",
}


@pytest.fixture(scope="module")
def read_by_the_page() -> dict[str, Any]:
    return dict(zip(TEXTS, run_javascript("readEdits", list(TEXTS.values())), strict=True))


@pytest.mark.parametrize("name", TEXTS)
def test_both_read_the_same(name, read_by_the_page, tmp_path):
    (tmp_path / "edits.csv").write_bytes(TEXTS[name].encode())
    try:
        expected, refused = rows(in_effect(read_edits(tmp_path / "edits.csv"))), False
    except InputError:
        expected, refused = [], True
    assert read_by_the_page[name]["edits"] == expected
    assert bool(read_by_the_page[name]["problem"]) == refused
    wrong = ("another format", "no number", "unheard", "missing", "nothing")
    assert refused == any(word in name for word in wrong)
