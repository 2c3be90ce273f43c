"""`holotype discover`: its flags, what it refuses, and what it prints. The work behind it: test_workflow.py."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from holotype.cli.discover import MAX_LINES, category_lines, discovery_summary, make_parser
from holotype.discovery import pipeline
from holotype.errors import Stopped
from holotype.results.discovery import Category, Discovery, RunFacts
from tests.data.cameras import photograph
from tests.discovery.made_round import made_discovery


def test_flags_reach_the_settings(holotype, squares_folder, tmp_path, monkeypatch) -> None:
    asked = []

    def fake(table, config, folder, *, progress, edits, embeddings):
        asked.append((config, folder, progress, edits))
        return small()

    monkeypatch.setattr(pipeline, "discover_table", fake)
    settings = {"k": 7, "steps": 20, "sample": 30, "seed": 3, "backbone": "embedded", "image-size": 64}
    flags = [word for name, value in settings.items() for word in (f"--{name}", value)] + [
        "--method",
        "simgcd",
    ]
    more = (
        "--device",
        "cpu",
        "--long-tail",
        "yes",
        "--no-progress",
        "--out",
        tmp_path,
        "--edits",
        "edits.csv",
    )
    assert holotype("discover", squares_folder, *flags, *more).code == 0
    ((config, folder, progress, edits),) = asked
    assert (config.k, config.steps, config.sample, config.seed, config.long_tail) == (7, 20, 30, 3, "yes")
    assert (config.backbone, config.image_size, config.device) == ("embedded", 64, "cpu")
    assert config.method == "simgcd"
    assert (folder, progress, edits) == (tmp_path, False, Path("edits.csv"))
    assert holotype("discover", "--table", squares_folder).code == 0
    assert (asked[1][0].k, asked[1][0].long_tail, asked[1][0].seeds) == ("auto", "auto", "auto")
    assert asked[1][0].backbone == "auto"
    assert asked[1][1] == Path("runs") / f"{squares_folder.name}-discover"


def test_images_are_named_once(holotype, squares_folder) -> None:
    for words in ((), (squares_folder, "--table", squares_folder)):
        outcome = holotype("discover", *words)
        assert outcome.code == 2
        assert "by IMAGES or by --table, one of the two" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--k", "many"), "--k must be"),
        (("--k", "0"), "--k must be"),
        (("--steps", "0"), "--steps must be"),
        (("--seed", "x"), "--seed must be"),
        (("--method", "magic"), "There is no method"),
        (("--label", "x.csv"), "did you mean --labels"),
        (("--labels", "nothing.csv"), "nothing.csv"),
    ],
)
def test_bad_words_are_one_sentence(words, said, holotype, squares_folder) -> None:
    outcome = holotype("discover", squares_folder, *words)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_labels_for_missing_files_are_one_sentence(holotype, squares_folder, tmp_path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\nnobody.png,red\n")
    outcome = holotype("discover", squares_folder, "--labels", labels)
    assert outcome.code == 2
    assert "1 of the 1 images" in outcome.err
    assert holotype("discover", tmp_path / "nowhere").code == 2


def test_a_dry_run_tells_and_writes_nothing(
    holotype, squares_folder, tmp_path, tiny_backbone_file, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline, "discover_table", lambda *_, **__: pytest.fail("discovered"))
    before = sorted(squares_folder.rglob("*"))
    outcome = holotype(
        "discover", squares_folder, "--dry-run", "--backbone", tiny_backbone_file, "--device", "cpu"
    )
    assert (outcome.code, outcome.err) == (0, "")
    first, *_, last = outcome.out.splitlines()
    assert first.startswith("64 images: 16 labelled in 2 classes, 48 unlabelled.")
    assert "with the network tiny at 32 pixels" in last
    assert last.endswith("One training, so there is no vote; --seeds changes it.")
    assert list(tmp_path.iterdir()) == []
    assert sorted(squares_folder.rglob("*")) == before


def test_a_folder_of_a_scanner_can_be_looked_at(
    holotype, squares_folder, tiny_backbone_file, tmp_path
) -> None:
    folder = shutil.copytree(squares_folder, tmp_path / "scans")
    photograph(folder / "unlabelled" / "scan.jpg", make="EPSON", model="V850")
    outcome = holotype("discover", folder, "--dry-run", "--backbone", tiny_backbone_file, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    assert "with which camera 1 of" in outcome.out


def test_a_dry_run_refuses_what_a_discovery_would(holotype, squares, squares_folder) -> None:
    """What was seen is told all the same."""
    for image in (squares / "red").iterdir():
        image.write_bytes(b"not an image")
    outcome = holotype("discover", squares, "--dry-run", "--device", "cpu")
    assert outcome.code == 2
    assert "No labelled image of red can be read" in outcome.out
    assert outcome.err == "Only one known class ('green') has usable images in squares; label two.\n"
    for words, said in (
        (("--k", "1"), "--k 1 is smaller than the 2 known classes"),
        (("--method", "magic"), "There is no method"),
        (("--backbone", "no.safetensors"), "no.safetensors"),
        (("--unlabelled", "reds"), "did you mean red?"),
    ):
        outcome = holotype("discover", squares_folder, "--dry-run", "--device", "cpu", *words)
        assert outcome.code == 2, words
        assert said in outcome.err.splitlines()[-1]


def test_heaps_and_missing_rows_by_flag(holotype, squares_folder, tmp_path, monkeypatch) -> None:
    tables = []
    monkeypatch.setattr(pipeline, "discover_table", lambda table, *_, **__: tables.append(table) or small())
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "path;label\nred\\red-00.png;red\ngone.png;red\nred/red-01.png;?\ngreen/green-00.png;green\n"
    )
    words = ("discover", squares_folder, "--labels", labels, "--skip-missing", "--unlabelled", "?")
    assert holotype(*words).code == 0
    assert tables[0].known == ("green", "red")
    assert int(tables[0].labelled.sum()) == 2
    outcome = holotype("discover", squares_folder, "--labels", labels)
    assert outcome.code == 2
    assert "'gone.png' (line 3)" in outcome.err
    assert "--skip-missing" in outcome.err


def test_a_stop_says_that_the_same_command_goes_on(holotype, squares_folder, monkeypatch) -> None:
    def stop(*_, **__):
        raise Stopped("the step of counting")

    monkeypatch.setattr(pipeline, "discover_table", stop)
    outcome = holotype("discover", squares_folder)
    assert outcome.code == 130
    assert "the same command continues" in outcome.err


def small() -> Discovery:
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    backbone = {"name": "embedded", "caveat": "A stand-in."}
    found.facts = RunFacts(round=1, k=4, seconds={"embedding": 2.0}, provenance={"backbone": backbone})
    found.category("new-01").words = "closest to a 0.71"
    return found


def test_the_summary_says_what_was_found_and_where(tmp_path: Path) -> None:
    found = small()
    found.count = {"low": 2, "high": 4, "best": 3}
    found.images.loc[0, "problem"] = "broken"
    text = discovery_summary(found, tmp_path)
    for part in (
        "12 images, 1 known class, 2 new categories; 1 image could not be read",
        "Number of categories: 2 to 4, most likely 3; trained with 4",
        "closest to a 0.71",
        "embedding 2 s",
        str(tmp_path / "report.html"),
        "A stand-in.",
    ):
        assert part in text, part
    assert (
        text.splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"
    )  # what to do next is not to be looked for


@pytest.mark.parametrize("count", [None, {"low": 2, "high": 4, "best": 3}])
def test_the_summary_says_how_many_categories_are_in_use(tmp_path: Path, count: dict | None) -> None:
    found = dataclasses.replace(small(), count=count)
    assert "in use" not in discovery_summary(found, tmp_path)
    found.facts = dataclasses.replace(found.facts, k=4, in_use=3)
    (line,) = [line for line in discovery_summary(found, tmp_path).splitlines() if "in use" in line]
    assert "trained with 4, 3 in use" in line.lower()


def test_without_a_new_category_the_summary_says_what_to_try(tmp_path: Path) -> None:
    found = made_discovery("r-1", {"a": list(range(12))})
    found.facts = RunFacts(round=1, k=1)
    assert f"holotype cut {tmp_path} shows what would split off" in discovery_summary(found, tmp_path)
    assert "holotype cut" not in discovery_summary(small(), tmp_path)


def named(kind: str, n: int) -> list[Category]:
    """Of growing size, so that the largest comes last."""
    return [Category(f"{kind}-{i}", f"{kind}-{i}", kind, i + 1) for i in range(n)]  # type: ignore[arg-type]


def test_of_many_categories_the_largest_of_both_kinds_are_listed() -> None:
    lines = category_lines([*named("known", 100), *named("novel", 60)])
    assert len(lines) == MAX_LINES + 1
    assert lines[0].split() == ["known-99", "100"]
    assert lines[MAX_LINES // 2].split() == ["novel-59", "60"]
    assert lines[-2].split() == ["novel-40", "41"]
    assert lines[-1] == "  and 80 known classes and 40 new categories more, all smaller, in the report"


@pytest.mark.parametrize(("known", "novel"), [(5, 100), (100, 5), (0, 41), (41, 0)])
def test_a_kind_of_few_leaves_its_lines_to_the_other(known: int, novel: int) -> None:
    lines = category_lines([*named("known", known), *named("novel", novel)])
    assert len(lines) == MAX_LINES + 1
    for kind, n in (("known", known), ("novel", novel)):
        assert sum(line.strip().startswith(kind) for line in lines) == min(n, MAX_LINES - min(known, novel))
    assert f"and {known + novel - MAX_LINES} " in lines[-1]
    assert lines[-1].count(" and ") == 1


def test_few_categories_are_listed_as_they_come() -> None:
    lines = category_lines([*named("known", 20), *named("novel", 20)])
    assert [line.split()[0] for line in lines] == [c.name for c in (*named("known", 20), *named("novel", 20))]


def test_one_burst_is_spoken_of_as_of_one() -> None:
    one, two = named("known", 2)
    assert category_lines([one, two], {one.id: 1, two.id: 2}) == [
        "  known-0       1 in     1 burst",
        "  known-1       2 in     2 bursts",
    ]


def test_help() -> None:
    assert "--edits" in make_parser().format_help()
