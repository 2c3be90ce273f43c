"""A collection of painted pictures that grows, moves and is corrected, and what must hold of it at every moment."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from scipy.optimize import linear_sum_assignment

from holotype.discovery.estimator import Discoverer
from holotype.export.assign import assign_images
from holotype.report.build import read_data
from holotype.results.discovery import Discovery, safe_cell
from holotype.results.edits import Edit, edits_csv, read_log

KINDS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (40, 60, 200), "yellow": (220, 200, 40)}
KINDS |= {"purple": (150, 40, 170), "teal": (30, 150, 160), "pink": (175, 60, 185)}
"""Pink is taken for purple until somebody splits it off."""
BLUR = 12
"""By which the colours of one kind differ from each other: some are nearer to another kind."""
SIDE = 24
"""Of a picture in pixels."""
REJECTED = ""

Row = tuple[str, str, str, str]
"""Of an edit: action, name of a picture, category, value."""


@dataclass
class Pictures:
    """The pictures by their names, which never change, wherever they lie and whatever they are called there."""

    root: Path
    away: Path
    """Where pictures go that are gone."""
    place: dict[str, str] = field(default_factory=dict)
    """Name to path from the root."""
    gone: dict[str, Path] = field(default_factory=dict)
    painted: int = 0

    def paint(self, name: str, path: str) -> None:
        """A picture of the kind that its name begins with, like no other."""
        self.painted += 1
        generator = np.random.default_rng(self.painted)
        noise = generator.integers(-40, 40, (SIDE, SIDE, 3))
        colour = np.array(KINDS[name.split("-")[0]]) + generator.normal(0, BLUR, 3)
        self.file(path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8)).save(self.file(path))
        self.place[name] = path

    def arrive(
        self, each: int, folder: str = "unlabelled", kinds: tuple[str, ...] = tuple(KINDS)
    ) -> list[str]:
        """As many new ones of each kind; returns their names."""
        count = Counter(name.split("-")[0] for name in (*self.place, *self.gone))
        names = [f"{kind}-{count[kind] + i:03d}" for kind in kinds for i in range(each)]
        for name in names:
            self.paint(name, f"{folder.format(kind=name.split('-')[0])}/{name}.png")
        return names

    def repair(self, *names: str) -> None:
        for name in names:
            self.paint(name, self.place[name])

    def rename(self, name: str, path: str) -> None:
        self.file(path).parent.mkdir(parents=True, exist_ok=True)
        self.file(self.place[name]).rename(self.file(path))
        self.place[name] = path

    def swap(self, one: str, two: str) -> None:
        """Each has the name of the other."""
        here, there = self.place[one], self.place[two]
        self.rename(two, "between.png")
        self.rename(one, there)
        self.rename(two, here)

    def lose(self, *names: str) -> None:
        self.away.mkdir(exist_ok=True)
        for name in names:
            self.gone[name] = self.file(self.place.pop(name)).rename(self.away / f"{name}.png")

    def come_back(self, name: str, path: str) -> None:
        self.gone.pop(name).rename(self.file(path))
        self.place[name] = path

    def move(self, root: Path) -> None:
        """All of them lie elsewhere."""
        self.root = self.root.rename(root)

    def call_folder(self, old: str, new: str) -> None:
        (self.root / old).rename(self.root / new)
        for name, path in self.place.items():
            self.place[name] = path.replace(f"{old}/", f"{new}/", 1) if path.startswith(f"{old}/") else path

    def file(self, path: str) -> Path:
        return self.root / path

    def path(self, name: str) -> str:
        return str(self.file(self.place[name]))

    def kind(self) -> dict[str, str]:
        """Path to what it shows."""
        return {self.path(name): name.split("-")[0] for name in self.place}


@dataclass
class Held:
    """What people have said so far."""

    place: dict[str, str] = field(default_factory=dict)
    """Name of a picture to the id of its category."""
    names: dict[str, str] = field(default_factory=dict)
    """Id to name."""
    gone: set[str] = field(default_factory=set)
    """Ids that were merged away."""
    edits: int = 0
    """Lines of the log."""

    def check(self, run: Path, found: Discovery, pictures: Pictures) -> None:
        """No correction is lost, not even one of a picture that is gone."""
        ids = dict(zip(found.images.path, found.images.category_id, strict=True))
        assert set(ids) == set(pictures.kind())
        here = {name: id for name, id in self.place.items() if name in pictures.place}
        assert {name: ids[pictures.path(name)] for name in here} == here
        called = {category.id: category.name for category in found.categories}
        assert {id: called.get(id) for id in self.names} == self.names
        assert len(set(called.values())) == len(called)
        assert not self.gone & called.keys()
        log = read_log(run)
        assert len(log) == self.edits
        assert all(edit.digest for edit in log if edit.image)

    def check_everywhere(self, run: Path, pictures: Pictures) -> None:
        """The same in the table, in the report, in Python, and for pictures that are placed anew."""
        sheet = pd.read_csv(run / "assignments.csv", keep_default_na=False).set_index("path")
        data, loaded = read_data(run), Discoverer.load(run)
        paths = [str(pictures.root / path) for path in data["images"]["path"]]
        shown = dict(zip(paths, data["images"]["category"], strict=True))
        called = {category.id: category.name for category in loaded.categories_}
        assert {category["id"]: category["name"] for category in data["categories"]} == called
        here = {pictures.path(name): id for name, id in self.place.items() if name in pictures.place}
        for path, id in here.items():
            assert (data["categories"][shown[path]]["id"] if shown[path] >= 0 else "") == id, path
            assert tuple(sheet.loc[path, ["category_id", "category"]]) == (id, safe_cell(called.get(id, "")))
        loaded.device = "cpu"
        placed = loaded.place(list(here))
        (run.parent / "list.csv").write_text("path\n" + "\n".join(here) + "\n")
        file = assign_images(run, run.parent / "list.csv", overwrite=True, device="cpu").out
        assigned = pd.read_csv(file, keep_default_na=False)
        assert list(assigned.category_id) == list(placed.category_id)
        assert list(placed.category) == [called.get(id, "") for id in placed.category_id]
        assert list(assigned.category) == [safe_cell(name) for name in placed.category]


def edits_of(run: Path, pictures: Pictures, held: Held, rows: list[Row]) -> Path:
    """The file that a person exports from the report."""
    found = Discovery.load(run)
    edits = [
        Edit(found.run_id, f"{held.edits + i:04d}", action, pictures.path(name) if name else "", *what)
        for i, (action, name, *what) in enumerate(rows)
    ]
    held.edits += len(edits)
    file = run.parent / f"edits-{held.edits}.csv"
    file.write_text(edits_csv(edits), encoding="utf-8")
    return file


def homes(found: Discovery, pictures: Pictures) -> dict[str, str]:
    """Kind to the id of the category that most pictures of it are in."""
    ids = dict(zip(found.images.path, found.images.category_id, strict=True))
    tally: dict[str, Counter[str]] = {}
    for path, kind in pictures.kind().items():
        tally.setdefault(kind, Counter())[ids[path]] += 1
    return {kind: count.most_common(1)[0][0] for kind, count in tally.items()}


def accuracy(found: Discovery, pictures: Pictures, names: list[str]) -> float:
    """Share of these pictures that are right under the best matching of categories to kinds."""
    ids = dict(zip(found.images.path, found.images.category_id, strict=True))
    pairs = Counter((ids[pictures.path(name)], name.split("-")[0]) for name in names)
    rows, columns = sorted({id for id, _ in pairs}), sorted(KINDS)
    table = np.array([[pairs[id, kind] for kind in columns] for id in rows])
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(names))
