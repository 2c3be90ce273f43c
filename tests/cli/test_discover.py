"""`holotype discover`: its flags, what it refuses, and what it prints. The work behind it: tests/discovery."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from holotype.cli import discover as command
from holotype.cli.discover import MAX_LINES, category_lines, discovery_summary
from holotype.results.discovery import Category, Discovery, RunFacts
from tests.data.cameras import photograph
from tests.discovery.made_round import made_discovery

from .conftest import assert_sentence


@pytest.fixture
def asked(monkeypatch) -> list:
    """What a discovery is asked for: it is not made."""
    seen = []

    def fake(table, config, folder, *, progress, edits, embeddings, source):
        seen.append((table, config, folder, progress, edits))
        assert source.images
        return small()

    monkeypatch.setattr(command, "discover_table", fake)
    return seen


def test_flags_reach_the_settings(holotype, squares_folder, tmp_path, asked) -> None:
    words = "--k 7 --steps 20 --sample 30 --seed 3 --backbone embedded --image-size 64 --method simgcd"
    more = "--device cpu --effort quick --no-progress --edits edits.csv --out"
    assert holotype("discover", squares_folder, *words.split(), *more.split(), tmp_path).code == 0
    assert holotype("discover", "--table", squares_folder).code == 0
    (_, config, folder, progress, edits), (_, default, usual, *_) = asked
    assert (config.k, config.steps, config.sample, config.seed, config.effort) == (7, 20, 30, 3, "quick")
    assert (config.backbone, config.image_size, config.device) == ("embedded", 64, "cpu")
    assert (config.method, folder, progress, edits) == ("simgcd", tmp_path, False, Path("edits.csv"))
    assert {default.k, default.seeds, default.backbone} == {"auto"}
    assert usual == Path("runs") / f"{squares_folder.name}-discover"


def test_heaps_and_missing_rows_by_flag(holotype, squares_folder, tmp_path, asked) -> None:
    labels = tmp_path / "labels.csv"
    rows = ("red\\red-00.png;red", "gone.png;red", "red/red-01.png;?", "green/green-00.png;green")
    labels.write_text("\n".join(["path;label", *rows]))
    words = ("discover", squares_folder, "--labels", labels)
    assert holotype(*words, "--skip-missing", "--unlabelled", "?").code == 0
    assert (asked[0][0].known, int(asked[0][0].labelled.sum())) == (("green", "red"), 2)
    assert_sentence(holotype(*words), "'gone.png' (line 3)", "--skip-missing")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "IMAGES, --table or --features"),
        ("{images} --table {images}", "IMAGES, --table or --features"),
        ("{images} --k many", "--k must be"),
        ("{images} --steps 0", "--steps must be"),
        ("{images} --method magic", "There is no method"),
        ("{images} --label x.csv", "did you mean --labels"),
        ("{images} --embeddings nowhere", "nowhere"),
        ("nowhere", "nowhere"),
    ],
)
def test_bad_words_are_one_sentence(words: str, said: str, holotype, squares_folder) -> None:
    assert_sentence(holotype("discover", *words.format(images=squares_folder).split()), said)


def test_a_dry_run_writes_nothing(holotype, squares_folder, tmp_path, tiny_backbone_file, monkeypatch, asked):
    monkeypatch.chdir(tmp_path)
    before = sorted(squares_folder.rglob("*"))
    words = ("--dry-run", "--backbone", tiny_backbone_file, "--device", "cpu")
    outcome = holotype("discover", squares_folder, *words)
    assert (outcome.code, outcome.err, asked) == (0, "", [])
    first, *_, last = outcome.out.splitlines()
    assert first.startswith("64 images: 16 labelled in 2 classes, 48 unlabelled.")
    assert "with the network tiny at 32 pixels" in last
    assert list(tmp_path.iterdir()) == []
    assert sorted(squares_folder.rglob("*")) == before
    folder = shutil.copytree(squares_folder, tmp_path / "scans")
    photograph(folder / "unlabelled" / "scan.jpg", make="EPSON", model="V850")
    assert "with which camera 1 of" in holotype("discover", folder, *words).out


def test_a_dry_run_refuses_what_a_discovery_would(holotype, squares, squares_folder) -> None:
    """What was seen is told all the same."""
    for image in (squares / "red").iterdir():
        image.write_bytes(b"not an image")
    outcome = holotype("discover", squares, "--dry-run", "--device", "cpu")
    assert "No labelled image of red can be read" in outcome.out
    assert "Only one class has labelled images, so this round proposes groups" in outcome.out
    for words, said in (
        ("--k 1", "2 known classes"),
        ("--backbone no.safetensors", "no.safetensors"),
        ("--k 2 --method uno --backbone embedded", "needs a novel category"),
    ):
        outcome = holotype("discover", squares_folder, "--dry-run", "--device", "cpu", *words.split())
        assert_sentence(outcome, said)


def small() -> Discovery:
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    backbone = {"name": "embedded", "caveat": "A stand-in."}
    found.facts = RunFacts(round=1, k=4, seconds={"embedding": 2.0}, provenance={"backbone": backbone})
    found.category("new-01").words = "closest to a 0.71"
    return found


def test_the_summary_says_what_was_found_and_where(tmp_path: Path) -> None:
    found = small()
    found.facts = dataclasses.replace(found.facts, in_use=3)
    found.count = {"low": 2, "high": 4, "best": 3}
    found.images.loc[0, "problem"] = "broken"
    text = discovery_summary(found, tmp_path)
    assert "2 new categories; 1 image could not be read" in text
    assert all(part in text for part in ("2 to 4, most likely 3", "closest to a 0.71", "A stand-in."))
    assert text.splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"  # what to do next is easily found


def named(kind: str, n: int) -> list[Category]:
    """Of growing size, so that the largest comes last."""
    return [Category(f"{kind}-{i}", f"{kind}-{i}", kind, i + 1) for i in range(n)]  # type: ignore[arg-type]


def test_of_many_categories_the_largest_of_both_kinds_are_listed() -> None:
    lines = category_lines([*named("known", 100), *named("novel", 60)])
    assert len(lines) == MAX_LINES + 1
    assert lines[0].split() == ["known-99", "100"]
    assert lines[MAX_LINES // 2].split() == ["novel-59", "60"]
    assert lines[-1] == "  and 80 known classes and 40 new categories more, all smaller, in the report"
    lines = category_lines([*named("known", 5), *named("novel", 100)])
    assert (len(lines), "and 80 new categories more" in lines[-1]) == (5 + MAX_LINES // 2 + 1, True)
    few = [*named("known", 20), *named("novel", 20)]
    assert [line.split()[0] for line in category_lines(few)] == [c.name for c in few]
