"""Edits survive their file, the log takes each once, and what people correct is corrected, never twice."""

import copy
import dataclasses
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.cli import main
from holotype.data.csv import escape_formula, unescape_formula
from holotype.errors import InputError
from holotype.report.page_data import page_data, select_shown
from holotype.results.describe import describe_all
from holotype.results.discovery import Category, Discovery, RunFacts
from holotype.results.edits import (
    EDIT_COLUMNS,
    MOST_EXEMPLARS,
    AppliedEdits,
    Edit,
    EditLog,
    append_edits,
    apply_edits,
    edits_csv,
    merge_exemplars,
    read_edits,
    read_log,
    refresh_exemplars,
)
from report.made import make_discovery
from results.golden import CASES, GOLDEN, NAMES, case_edits, golden_discovery, outcome, random_edit
from tests.discovery.made_round import made_discovery

RUN, TIME = "run-made-1", "2026-01-02T03:04:05.678Z"
HEAD = ",".join(EDIT_COLUMNS)
ODD = [
    *("=cmd()", "-x", "+1", "@a", "'=x", "''", 'a "b", c', "two\nlines", "two\rlines", "\rx", "two\r\nlines"),
    *("<script>", "Käfer ✓", " spaces "),
]


def rename(value: str, run: str = RUN) -> Edit:
    return Edit(run, TIME, "rename", "", "new-01", value)


@given(st.text())
def test_no_cell_looks_like_a_formula_and_all_come_back(cell):
    assert not escape_formula(cell).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unescape_formula(escape_formula(cell)) == cell


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.sampled_from(ODD)))
def test_any_text_survives_the_file(words):
    edits = [Edit(word, word, "rename", word, word, word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "edits.csv").write_bytes(edits_csv(edits).encode())
        assert read_edits(Path(folder) / "edits.csv") == edits


def test_a_spreadsheet_may_have_saved_it(tmp_path):
    """Semicolons, a byte order mark, carriage returns, empty lines, other columns."""
    file = tmp_path / "edits.csv"
    text = ";".join((*EDIT_COLUMNS, "mine")) + f"\r\nrun-1;{TIME};rename;;new-01;Hawk;x\r\n;;;;;;\r\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_edits(file) == [rename("Hawk", "run-1")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "has no column 'run_id'"),
        (b"", "has no column 'run_id'"),
        (HEAD.encode() + b"\nr,t,delete,,c,v\n", "line 2: there is no action 'delete'"),
        (b"\x81\x8d\x00", "neither UTF-8"),
        (HEAD.encode() + b"\nr,t,rename,,new-01,Owl, snowy\n", "line 2, has more cells"),
        (HEAD.encode() + b"\nr,t,rename,,new-01," + b"x" * 200_000, "is not CSV"),
        (None, "is not a file"),
    ],
)
def test_what_is_not_an_edits_file_is_one_sentence(content, words, tmp_path):
    if content is not None:
        (tmp_path / "edits.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_edits(tmp_path / "edits.csv")


def with_format(tmp_path: Path, version: str | None) -> Path:
    line = f"{RUN},{TIME},rename,,new-01,Hawk"
    rows = [HEAD, line] if version is None else [f"{HEAD},format", f"{line},{version}"]
    (tmp_path / "edits.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path / "edits.csv"


def test_every_line_carries_the_format_and_without_one_it_is_the_first(tmp_path):
    head, line, _ = edits_csv([rename("Hawk")]).split("\n")
    assert head == f"{HEAD},digest,by,format"
    assert line.endswith(",2")
    for version in (None, "", "1", " 1 ", "2"):
        assert read_edits(with_format(tmp_path, version)) == [rename("Hawk")]


@pytest.mark.parametrize("version", ["3", "one"])
def test_another_format_is_one_sentence_and_nothing_is_logged(version, tmp_path, capsys):
    make_discovery(tmp_path / "pictures", 20).save(tmp_path / "run")
    file = with_format(tmp_path, version)
    assert main(["report", str(tmp_path / "run"), "--edits", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"line 2, is of format '{version}'" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "edits.csv").exists()


def test_a_log_that_people_have_touched_is_added_to(tmp_path):
    """A spreadsheet has saved it, or a line was changed by hand."""
    file = with_format(tmp_path, None)
    assert append_edits(tmp_path, [rename("Hawk"), rename("Owl")]) == [rename("Owl")]
    assert file.read_text() == edits_csv([rename("Hawk"), rename("Owl")])
    file.write_text(file.read_text().replace("Hawk", "Kite"))
    assert read_log(tmp_path) == [rename("Kite"), rename("Owl")]


def test_edits_of_another_run_are_refused_and_the_log_is_untouched(tmp_path):
    make_discovery(tmp_path, 20).save(tmp_path)
    with pytest.raises(InputError, match=r"made in the report of run 'other', but .* holds run 'run-made-1'"):
        append_edits(tmp_path, [rename("Hawk", "other")])
    assert not (tmp_path / "edits.csv").exists()


def test_a_disk_that_fails_leaves_what_the_log_had(tmp_path, monkeypatch):
    append_edits(tmp_path, [rename("Hawk")])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holotype.utils.atomic.os.fsync", fail)
    with pytest.raises(InputError, match="No space left"):
        append_edits(tmp_path, [rename("Owl")])
    assert read_log(tmp_path)[0] == rename("Hawk")


@pytest.mark.parametrize("last", [rename("Käfer"), rename('two\nlines, "and" more'), rename("")])
def test_lines_are_added_and_one_that_a_kill_has_torn_is_dropped(last, tmp_path, caplog):
    file, hawk = tmp_path / "edits.csv", rename("Hawk")
    append_edits(tmp_path, [hawk])
    whole, inode = file.read_bytes(), file.stat().st_ino
    append_edits(tmp_path, [last])
    both = file.read_bytes()
    assert (both.startswith(whole), file.stat().st_ino) == (True, inode)  # nothing is written anew
    for length in range(len(both)):
        file.write_bytes(both[:length])
        expected = [hawk] if length >= len(whole) - 1 else []
        expected += [last] if length == len(both) - 1 else []  # but for the end of its line it is whole
        assert read_log(tmp_path) == expected, length
    file.write_bytes(both[:-3])
    assert append_edits(tmp_path, [last]) == [last]
    assert "ended in the middle of a line" in caplog.text
    assert file.read_bytes() == both
    file.write_bytes(both[:-1])
    append_edits(tmp_path, [rename("Owl")])
    assert read_log(tmp_path) == [hawk, last, rename("Owl")]


def test_an_edit_is_the_same_wherever_its_image_lies(tmp_path):
    first, moved, other = (
        Edit(RUN, TIME, "reject", path, digest=digest)
        for path, digest in (("/then/a.png", "d1"), ("/now/a.png", "d1"), ("/now/a.png", "d2"))
    )
    append_edits(tmp_path, [first])
    assert append_edits(tmp_path, [moved, other]) == [other]


def test_whoever_stays_with_a_log_reads_what_anybody_reads(tmp_path):
    """Whatever is added, torn, or written anew: by itself it parses no more than what was added."""
    file, log = tmp_path / "edits.csv", EditLog(tmp_path)
    whole = edits_csv([*map(rename, ODD), Edit("run-made-1", TIME, "undo", "", "new-01", TIME)]).encode()
    kept = []
    for end in (0, *range(40, len(whole), 7), len(whole)):
        file.write_bytes(whole[:end])
        before = log.edits
        assert log.read() == read_log(tmp_path)
        kept.append(log.edits is before)
    assert sum(kept) > len(kept) - len(ODD)
    assert log.append([rename("Owl")]) == [rename("Owl")]
    assert log.read() == read_log(tmp_path)
    file.write_text(edits_csv([rename("Hawk")]))
    assert log.read() == [rename("Hawk")]
    file.unlink()
    assert log.read() == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"The log of edits in .* cannot be written"):
        append_edits(tmp_path / "file", [rename("Hawk")])


APPEND_MANY = """
import pathlib, sys, time
from holotype.results.edits import Edit, append_edits
folder, who = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"ready-{who}").touch()
while len(list(folder.glob("ready-*"))) < 2:
    time.sleep(0.01)
for number in range(20):
    append_edits(folder, [Edit("r", "t", "rename", "", "new-01", f"{who} {number}")])
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fcntl")
def test_two_processes_lose_no_edit(tmp_path):
    command = [sys.executable, "-c", APPEND_MANY, str(tmp_path)]
    both = [subprocess.Popen([*command, who]) for who in "ab"]
    assert [process.wait(120) for process in both] == [0, 0]
    values = [edit.value for edit in read_log(tmp_path)]
    assert len(values) == 40
    for who in "ab":  # each in its order
        assert [v for v in values if v.startswith(who)] == [f"{who} {number}" for number in range(20)]


@pytest.fixture
def found(tmp_path) -> Discovery:
    return make_discovery(tmp_path, 60)


def edit(
    action: str, image: str = "", category: str = "", value: str = "", *, time: str = "t", run: str = RUN
) -> Edit:
    return Edit(run, time, action, image, category, value)


def paths(found: Discovery, id: str) -> list[str]:
    return list(found.images["path"][found.images["category_id"] == id])


def remarks(applied: AppliedEdits) -> list[str]:
    return [problem.split("but ")[1] for problem in applied.problems]


def test_where_the_run_had_put_an_image_is_remembered(found):
    one, two, three = paths(found, "new-01")[:3]
    edits = [
        edit("move", one, "new-01", "new-02"),
        edit("move", one, "new-02", "new-03", time="t2"),
        edit("confirm", two, "new-01", "new-01"),
        edit("reject", three, "new-01"),
    ]
    first = apply_edits(found, edits[:1]).discovery
    assert first.facts.edits.came_from == {one: "new-01"}
    assert apply_edits(first, edits).discovery.facts.edits.came_from == {one: "new-01", two: "new-01"}


def test_words_name_known_classes_as_they_are_called_now(found):
    known = found.known
    for category, words in zip(found.categories, describe_all(found.categories, known, known), strict=True):
        category.words = words
    new = next(c for c in found.categories if c.kind == "novel" and c.words.startswith("closest to"))
    named = next(name for name in known if f"closest to {name} " in new.words)
    merged = next(c for c in found.categories if c.kind == "novel" and c is not new)
    edits = [edit("merge", "", merged.id, new.id), edit("rename", "", named, "red fox")]
    applied = apply_edits(found, edits).discovery
    after = applied.category(new.id).words
    assert after.startswith(new.words.replace(named, "red fox"))
    assert after.endswith(f"(before {merged.name} was merged into it)")
    assert all("red fox" not in c.words or named in found.category(c.id).words for c in applied.categories)
    assert named in new.words
    again = apply_edits(applied, [*edits, edit("rename", "", named, "vixen", time="later")]).discovery
    assert again.category(new.id).words == after.replace("red fox", "vixen")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (edit("rename", "", "new-01", "Sandal"), "is called so; merge 'new-01' into 'Sandal' instead"),
        (edit("rename", "", "Sandal", "new-01"), "is called so; merge 'new-01' into 'Sandal' instead"),
        (edit("rename", "", "Sandal", "Bag"), "is called so; both are known, so move the images of one to"),
        (edit("rename", "", "new-01", "  "), "the new name is empty"),
        (edit("rename", "", "new-99", "Hawk"), "'new-99' is not in this run"),
        (edit("merge", "", "new-01", "new-01"), "one category already"),
        (edit("merge", "", "Sandal", "new-01"), "a known class stays; merge 'new-01' into it instead"),
        (edit("merge", "", "Sandal", "Bag"), "a known class stays; move its images instead"),
        (edit("merge", "", "new-01", "new-99"), "'new-99' is not in this run"),
        (edit("move", "gone.png", "new-01", "new-02"), "no such image"),
        (edit("confirm", "gone.png", "new-01", "new-02"), "no such image"),
        (edit("rename", "", "new-01", "Hawk", run="other"), "1 edit of run 'other' cannot be applied"),
    ],
)
def test_what_cannot_be_applied_is_told_and_the_rest_goes_on(wrong, words, found):
    applied = apply_edits(found, [wrong, edit("rename", "", "new-04", "Owl")])
    assert len(applied.problems) == 1
    assert words in applied.problems[0]
    assert applied.left == applied.problems
    assert applied.discovery.category("new-04").name == "Owl"
    assert applied.count == 1


def test_merge(found):
    before, categories = found.images.copy(), copy.deepcopy(found.categories)
    both = {*paths(found, "new-01"), *paths(found, "new-02")}
    edits = [edit("merge", "", "new-01", "new-02"), edit("rename", "", "new-01", "Hawk")]
    after = apply_edits(found, edits).discovery
    target = after.category("new-02")
    assert target.n == len(both)
    assert set(paths(after, "new-02")) == both
    assert target.name == "Hawk"  # what is said of a merged category holds for the one that it is in
    assert set(target.exemplars) <= both
    one, two = (found.category(id) for id in ("new-01", "new-02"))
    mean = (one.n * one.signature[0] + two.n * two.signature[0]) / (one.n + two.n)
    assert target.signature[0] == pytest.approx(mean)
    assert after.facts.edits.merged == {"new-01": "new-02"}
    assert all(c.nearest != "new-01" for c in after.categories)
    pd.testing.assert_frame_equal(found.images, before)  # the given one is not changed
    assert [(c.id, c.name, c.n) for c in found.categories] == [(c.id, c.name, c.n) for c in categories]


def test_what_was_confirmed_is_told_by_id(found):
    one, two = paths(found, "new-01")[0], paths(found, "Sandal")[0]
    edits = [
        edit("confirm", one, "new-01", "new-01"),
        edit("rename", "", "new-01", "Hawk"),
        edit("confirm", two, "Sandal", "Boot"),
    ]
    applied = apply_edits(found, edits)
    assert applied.confirmed == {one: "new-01", two: "Boot"}
    rows = applied.discovery.images.set_index("path")
    assert not rows["doubtful"][one]
    assert rows["category"][two] == "Sandal"  # nothing is called Boot before the next round


def test_what_contradicts_is_told_by_names_and_the_later_one_counts(found):
    """A label may be that of an edit of an earlier round, or of another frame of a burst."""
    one, two, three = paths(found, "new-01")[:3]
    found.images.loc[found.images["path"] == two, "label"] = "new-02"
    edits = [
        edit("rename", "", "new-01", "Hawk"),
        edit("rename", "", "new-02", "Owl"),
        edit("confirm", one, "new-01", "new-01"),
        edit("move", one, "new-01", "new-02"),
        edit("confirm", two, "new-01", "new-01"),
        edit("confirm", two, "new-01", "new-02"),
    ]
    applied = apply_edits(found, edits)
    assert applied.confirmed == {two: "new-02"}
    assert remarks(applied) == [
        "it had been confirmed as 'Hawk' before; the later one counts.",
        "the image had the label 'Owl'; the confirmed one counts in the next round.",
        "the image had been confirmed as 'Hawk' before; the later one counts.",
    ]
    edits = [edit("confirm", path, "new-01", "new-01") for path in (one, three)]
    applied = apply_edits(found, [*edits, edit("reject", one), edit("reject", "", "new-01")])
    assert applied.confirmed == {}
    assert remarks(applied) == [
        "it had been confirmed as 'new-01' before; the later one counts.",
        "1 of its images had been confirmed before; the later one counts.",
    ]


def test_what_was_refused_is_not_tried_again(found, tmp_path):
    """Else the report would show as done what the log says was not."""
    taken, free = edit("rename", "", "new-01", "Hawk"), edit("rename", "", "new-02", "Owl")
    found.category("new-02").name = "Hawk"
    first = apply_edits(found, [taken, free])
    assert (first.refused, first.discovery.category("new-01").name) == ([0], "new-01")
    first.discovery.save(tmp_path)
    again = apply_edits(Discovery.load(tmp_path), [taken, free])
    assert (again.count, again.refused, again.discovery.category("new-01").name) == (0, [], "new-01")
    page = page_data(first.discovery, select_shown(first.discovery), tmp_path, [taken, free], None)
    assert len(page["log"]) == 2


def category(id: str, n: int, exemplars: str, signature: list[float], kind: str = "novel") -> Category:
    return Category(
        id=id, name=id, kind=kind, n=n, exemplars=list(exemplars), borderline=[exemplars[-1]],
        signature=signature, words="closest to A", cohesion=0.5, separation=0.5,
    )  # fmt: skip


def test_two_speak_in_turn_and_by_their_numbers():
    target, source = category("one", 3, "abc", [0.4, 0.0]), category("two", 1, "xyzuvw", [0.8, 1.0])
    merge_exemplars(target, source)
    assert "".join(target.exemplars) == "axbyczuvw"
    assert (target.n, target.borderline) == (4, ["c", "w"])
    assert target.signature == pytest.approx([0.5, 0.25])
    assert target.words == "closest to A (before two was merged into it)"
    assert math.isnan(target.cohesion)
    known, target = category("A", 3, "abc", [1.0, 0.0], "known"), category("one", 0, "a", [0.4, 0.0])
    merge_exemplars(known, category("one", 3, "x", [0.0, 0.0]))
    merge_exemplars(target, category("two", 0, "x", [0.8, 1.0]))
    assert (known.signature, target.signature) == ([1.0, 0.0], [0.4, 0.0])  # known, or joined by nothing


def test_who_left_does_not_speak_and_the_most_typical_step_in():
    typicality = {path: i / 26 for i, path in enumerate("abcdefghijklmnopqrstuvwxyz")}
    shown = category("one", 3, "abc", [])
    refresh_exemplars(shown, {"b", "z"}, typicality)
    assert (shown.exemplars, shown.borderline) == (["b"], [])
    refresh_exemplars(shown, set("klmnopqrstuvwxyz"), typicality)
    assert shown.exemplars == list("zyxwvutsrqpo")
    assert len(shown.exemplars) == MOST_EXEMPLARS


def test_there_is_a_case_for_everything():
    assert len(CASES) == len(set(NAMES)) >= 100


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_golden(case):
    before, edits = case_edits(case)
    found = golden_discovery(case["discovery"])
    assert outcome(apply_edits(apply_edits(found, before).discovery, edits)) == case["expected"]


@st.composite
def edit_lists(draw: st.DrawFn) -> list[Edit]:
    size = draw(st.integers(0, 14))
    return [random_edit(lambda options: draw(st.sampled_from(options)), i) for i in range(size)]


def told(result: AppliedEdits) -> dict:
    """How things stand, without what is counted anew each time; split-off categories may stand in another order."""
    every = outcome(result)
    same = {key: every[key] for key in ("images", "merged", "rejected", "confirmed")}
    return {**same, "categories": sorted(every["categories"])}


@given(edit_lists())
def test_every_image_is_in_one_category_or_none_and_known_classes_stay(edits):
    found = golden_discovery("shoes")
    after = apply_edits(found, edits).discovery
    ids = [category.id for category in after.categories]
    assert len({category.name for category in after.categories}) == len(set(ids)) == len(ids)
    for column in ("path", "label"):
        assert list(after.images[column]) == list(found.images[column])
    assert set(after.images["category_id"]) <= {*ids, ""}
    for category in after.categories:
        mine = after.images[after.images["category_id"] == category.id]
        assert category.n == len(mine)
        assert set(mine["category"]) <= {category.name}
        assert set(mine["kind"]) <= {category.kind}
        assert set(category.exemplars) <= set(mine["path"])
        assert category.n > 0 or category.kind == "known"
    assert {c.id for c in after.categories if c.kind == "known"} == set(found.known)
    where, held = dict(zip(after.images["path"], after.images["category_id"], strict=True)), after.facts.edits
    for path, value in held.confirmed.items():
        if value in {category.id for category in found.categories}:  # else it is a label
            while value in held.merged:
                value = held.merged[value]
            assert where[path] == value


@given(edit_lists(), st.integers(0, 14))
def test_applying_twice_is_applying_once_and_it_does_not_matter_when_one_stops_for_the_day(edits, stop):
    found = golden_discovery("shoes")
    once = apply_edits(found, edits)
    again = apply_edits(once.discovery, [*edits, *edits])
    assert again.count == 0
    assert again.discovery.facts == once.discovery.facts
    morning = apply_edits(found, edits[:stop])
    evening = apply_edits(morning.discovery, edits[stop:])
    assert morning.count + evening.count == once.count
    assert told(once) == told(again) == told(evening)


@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_of_edits_on_different_images_does_not_matter(data, rng: random.Random):
    values = {
        "move": ["Sandal", "Boot", "new-01", "new-02", "new-03", "Owl"],
        "confirm": ["Boot", "new-02", "new-03"],
        "reject": [""],
    }
    images = [row["path"] for row in GOLDEN["discoveries"]["shoes"]["images"]]
    edits = []
    for image in data.draw(st.lists(st.sampled_from(images), unique=True)):
        action = data.draw(st.sampled_from(list(values)))
        edits.append(Edit("run-2", "t", action, image, "", data.draw(st.sampled_from(values[action]))))
    shuffled = rng.sample(edits, len(edits))
    one, other = (apply_edits(golden_discovery("shoes"), order) for order in (edits, shuffled))
    assert told(one) == told(other)
    assert one.refused == other.refused == []


GROUPS = {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]}


@pytest.fixture
def small() -> Discovery:
    """Every image is right with a probability of 0.6, as far as the run knows."""
    found = made_discovery(RUN, GROUPS)
    found.images["probability"] = 0.6
    for category in found.categories:
        category.purity, category.cohesion, category.separation = 0.6, 0.8, 0.3
        category.together, category.comes_back = 0.9, 4
    return dataclasses.replace(found, facts=RunFacts(round=1, calibration_curve=((0.0, 0.0), (1.0, 0.6))))


def test_what_people_say_raises_the_purity_of_the_categories_it_is_about(small):
    path = list(small.images["path"])
    edits = [edit("confirm", path[4], "new-01", "new-01"), edit("move", path[5], "new-01", "odd ones")]
    after = apply_edits(small, edits).discovery
    first = after.category("new-01")
    assert first.purity == pytest.approx((1 + 0.6 + 0.6) / 3)
    assert first.purity_low < first.purity < first.purity_high
    assert after.category("odd ones").purity == 1
    assert after.category("a").purity == after.category("new-02").purity == 0.6
    plain = made_discovery(RUN, GROUPS)  # nothing was calibrated, and edits invent no purity
    assert math.isnan(apply_edits(plain, edits).discovery.category("new-01").purity)


def test_what_was_measured_is_told_of_categories_whose_images_are_the_same(small):
    def measured(found: Discovery, id: str) -> list[float]:
        category = found.category(id)
        return [category.cohesion, category.separation, category.together, category.comes_back]

    path = list(small.images["path"])
    edits = [edit("confirm", path[8], "new-02", "new-02"), edit("move", path[5], "new-01", "a")]
    after = apply_edits(small, edits).discovery
    assert measured(after, "new-02") == [0.8, 0.3, 0.9, 4]
    for id in ("a", "new-01"):
        assert [math.isnan(value) for value in measured(after, id)] == [True, True, True, False]
        assert after.category(id).comes_back == 0
    rejected = apply_edits(small, [edit("reject", path[9], "new-02")]).discovery
    assert math.isnan(rejected.category("new-02").together)
    assert measured(rejected, "new-01") == [0.8, 0.3, 0.9, 4]


def test_notes_name_a_category_as_it_is_called_now_or_what_it_was_merged_into(small) -> None:
    small.images.loc[:2, "note"] = [f"the model would say {name}" for name in ("new-01", "new-02", "a")]
    edits = [edit("rename", "", "new-02", "kites"), edit("merge", "", "new-01", "new-02")]
    now = apply_edits(small, edits).discovery.images
    assert now.note[:3].tolist() == [f"the model would say {name}" for name in ("kites", "kites", "a")]
