"""A year in one test: a first discovery and twelve rounds with everything that happens to a collection.

Pictures come, go, come back, are repaired, renamed and swapped, the folder is moved, a class is called otherwise,
labels are added, every kind of edit is made, K and seed change, and the command is killed at every step. After each
round no correction is lost and ids mean what they meant.
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from holotype.data.load import load_table
from holotype.discovery.pipeline import discover_table
from holotype.discovery.rounds import replay_edits
from holotype.results.discovery import Discovery
from tests.conftest import write_csv
from tests.discovery.made_year import KINDS, REJECTED, Held, Pictures, Row, accuracy, edits_of, homes

SEEDS = 2


class Killed(BaseException):
    """As good as kill -9: nothing is told, nothing is tidied up."""


class Year:
    """The same command, again and again."""

    def __init__(self, folder: Path, small: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pictures = Pictures(folder / "photos", folder / "away")
        self.run, self.held, self.small, self.monkeypatch = folder / "run", Held(), small, monkeypatch
        self.settings = {"method": "kmeans", "k": len(KINDS) - 1}
        self.round = 0
        self.home: dict[str, str] = {}
        """Kind to the id of its category."""

    def command(self, edits: Path | None = None) -> Discovery:
        table = load_table(self.pictures.root)
        return discover_table(table, self.small(**self.settings), self.run, progress=False, edits=edits)

    def month(self, *rows: Row, kill: str = "", apart: bool = False) -> Discovery:
        """A round with these edits, of which nothing is lost; ids are what they were.

        kill: where the command is killed at first. apart: categories may come apart, since there are more of them.
        """
        file = edits_of(self.run, self.pictures, self.held, list(rows)) if rows else None
        if kill:

            def die(*_: object, **__: object) -> None:
                raise Killed

            with self.monkeypatch.context() as patch:
                patch.setattr(kill, die)
                with pytest.raises(Killed):
                    self.command(file)
            file = None  # it was given once, and taken in
        found = self.command(file)
        self.round += 1
        assert found.facts.round == self.round
        self.held.check(self.run, found, self.pictures)
        assert set(self.home.values()) <= {category.id for category in found.categories}
        assert apart or not self.home or homes(found, self.pictures) == self.home
        return found


def test_a_year(small, tmp_path, monkeypatch, caplog) -> None:
    """Of 188 pictures, to which others come."""
    caplog.set_level("INFO", "holotype")
    year = Year(tmp_path, small, monkeypatch)
    year.pictures.arrive(3, "{kind}", ("red", "green"))
    year.pictures.arrive(26)
    assert len(year.pictures.place) == 188
    year.home = homes(year.month(), year.pictures)
    assert len(set(year.home.values())) == len(KINDS) - 1  # each kind has a category of its own,
    assert year.home["pink"] == year.home["purple"]  # but for one
    spring(year)
    year.held.check_everywhere(year.run, year.pictures)
    summer(year)
    assert "Since round 5: 10 images renamed, 6 labels new." in caplog.text
    autumn(year)
    assert "2 edits of 2 images now gone" in caplog.text
    found = winter(year)
    year.held.check_everywhere(year.run, year.pictures)
    assert caplog.text.count("'new-77' is not in this run") == 1  # told once, and counted from then on
    assert "1 edit is still not applied" in caplog.text
    assert "Kept from round 1" in caplog.text
    before = replay_edits(year.run, until=12).discovery
    frame = pd.read_csv(year.run / "rounds" / "13" / "changes.csv", keep_default_na=False)
    assert set(frame.category_id) >= {category.id for category in before.categories}
    assert len(year.pictures.place) == 257
    assert year.command().run_id == found.run_id  # nothing has changed since
    as_good_as_fresh(year, found, tmp_path)


def spring(year: Year) -> None:
    pictures, held, home = year.pictures, year.held, year.home
    # 1: names, and the first confirmations
    held.place |= {
        f"{kind}-{i:03d}": home[kind] for kind in ("blue", "yellow", "teal") for i in range(20, 24)
    }
    held.names |= {home["blue"]: "=sky <b>", home["yellow"]: "yellow"}
    names: list[Row] = [("rename", "", id, name) for id, name in held.names.items()]
    names.append(("rename", "", "new-77", "Boots"))  # it is told that there is no such category
    year.month(*names, *(("confirm", name, "", id) for name, id in held.place.items()))
    # 2: arrivals, and one that cannot be read
    pictures.arrive(4)
    pictures.file(pictures.place["teal-025"]).write_bytes(b"cut off")
    year.month(kill="holotype.discovery.plan.RoundPlan.start")
    # 3: repairs, of a confirmed one too
    pictures.repair("blue-020", "teal-025", "purple-001", "red-012")
    year.month()


def summer(year: Year) -> None:
    pictures, held, home = year.pictures, year.held, year.home
    # 4: images are moved, rejected and split off, which takes one more category
    year.settings |= {"k": len(KINDS)}
    held.place |= {"yellow-000": "red", "red-020": "red", "purple-000": REJECTED, "green-000": REJECTED}
    held.place |= {f"pink-{i:03d}": "pinks" for i in range(6)}
    split: list[Row] = [("move", f"pink-{i:03d}", home["purple"], "pinks") for i in range(6)]
    moves: list[Row] = [("move", name, "", "red") for name in ("yellow-000", "red-020")]
    rejected: list[Row] = [("reject", name, "", "") for name in ("purple-000", "green-000")]
    home["pink"] = "pinks"
    year.month(*split, *moves, *rejected, kill="holotype.discovery.pipeline.run_round")
    # 5: renames and a swap, of corrected ones too, and labels in a folder with the name that the report gave
    pictures.rename("yellow-000", "unlabelled/a/sun.png")
    pictures.rename("purple-000", "unlabelled/IMG_0001.png")
    pictures.swap("blue-021", "pink-002")
    for number in range(10, 16):
        pictures.rename(f"yellow-{number:03d}", f"yellow/{number}.png")
    held.place |= {f"yellow-{number:03d}": home["yellow"] for number in range(10, 16)}
    year.month(kill="holotype.discovery.plan.Collection.save")
    # 6: more categories than there are kinds, and another seed
    year.settings |= {"k": 10, "seed": 1}
    year.month(kill="holotype.discovery.pipeline.link_round", apart=True)


def autumn(year: Year) -> None:
    pictures, held, home = year.pictures, year.held, year.home
    # 7: what came apart is merged again
    found = Discovery.load(year.run)
    apart = sorted({category.id for category in found.categories} - set(home.values()))
    assert apart
    merges: list[Row] = [("merge", "", id, home[kind_of(found, pictures, id)]) for id in apart]
    held.gone |= set(apart)
    held.place |= {name: home[name.split("-")[0]] for name in ("teal-003", "purple-020")}
    year.settings |= {"k": len(KINDS)}
    year.month(*merges, *(("confirm", name, "", held.place[name]) for name in ("teal-003", "purple-020")))
    # 8: some are gone, corrected ones too, and the folder lies elsewhere
    pictures.lose("blue-022", "green-000", "yellow-001", "teal-001")
    archive = pictures.root.parent / "archive"
    archive.mkdir()
    pictures.move(archive / "pictures")
    year.month(kill="holotype.discovery.round_runner.check_embedded")
    # 9: some come back, under other names too; others arrive, and one has the path of one that is gone
    pictures.come_back("blue-022", "unlabelled/heaven.png")
    pictures.come_back("green-000", "unlabelled/green-000.png")
    pictures.arrive(5)
    pictures.paint("red-100", "unlabelled/yellow-001.png")
    year.month(kill="holotype.discovery.pipeline.build_report")


def winter(year: Year) -> Discovery:
    pictures, held, purple = year.pictures, year.held, year.home["purple"]
    # 10: a class is called otherwise, and a label is newer than an edit
    pictures.call_folder("red", "crimson")
    held.names |= {"red": "crimson"}
    held.edits += 1
    pictures.rename("yellow-000", "green/not red.png")
    held.place |= {"yellow-000": "green"}
    year.month()
    # 11: second thoughts
    held.place |= {"purple-000": purple, "teal-003": REJECTED, "pink-000": "else"}
    second: list[Row] = [("confirm", "purple-000", "", purple), ("move", "pink-000", "pinks", "else")]
    year.settings |= {"k": len(KINDS) + 1}
    year.month(*second, ("reject", "teal-003", "", ""), apart=True)
    # 12: a last arrival
    pictures.arrive(1)
    return year.month(kill="holotype.discovery.pipeline.write_changes")


def kind_of(found: Discovery, pictures: Pictures, id: str) -> str:
    """The kind that most pictures of a category show."""
    kind = pictures.kind()
    shown = [kind[path] for path in found.images.path[found.images.category_id == id]]
    return max(KINDS, key=shown.count)


def as_good_as_fresh(year: Year, found: Discovery, folder: Path) -> None:
    """On pictures that nobody has touched, no worse than new runs with the labels that there are in the end."""
    names = {year.pictures.path(name): name for name in year.pictures.place}
    rows = [(str(path), label) for path, label in zip(found.images.path, found.images.label, strict=True)]
    labels = write_csv(folder / "labels.csv", "path,label", rows)
    free = [names[path] for path, label in rows if not label and names[path] not in year.held.place]
    assert len(free) > 150
    fresh = []
    for seed in range(SEEDS):
        config = year.small(**{**year.settings, "seed": seed})
        other = discover_table(
            load_table(year.pictures.root, labels), config, folder / f"fresh-{seed}", progress=False
        )
        fresh.append(accuracy(other, year.pictures, free))
    mine = accuracy(found, year.pictures, free)
    assert mine >= min(fresh) - 0.01, (mine, fresh)
