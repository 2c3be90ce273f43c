"""The images of a discovery as a command saw them: path, size and time, content, label. What is gone stays known.

`collection.parquet` in the run folder is the last look, whose sizes and times save reading files again; that of a round
is the look that it was begun with. Paths are as seen from the root.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holotype.data.hashing import file_stamps, image_digests
from holotype.data.paths import relative
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.serialization import read_parquet_table, write_parquet

FILE = "collection.parquet"
META_KEY = b"holotype"
COLUMNS = ("path", "stamp", "digest", "label", "here", "relabelled")


@dataclass(frozen=True)
class Seen:
    """An image."""

    stamp: str
    """Size and time of its file (data/hashing.py)."""
    digest: str
    """Of its content (data/hashing.py); "" where that could not be read."""
    label: str = ""
    """The class that it came with; "" = none."""
    here: bool = True
    """Or gone, and known from before."""
    relabelled: bool = False
    """Came with another label than the last time: what edits said of it before does not count while it has one."""


@dataclass(frozen=True)
class Collection:
    """All images that a discovery knows."""

    root: str = ""
    images: dict[str, Seen] = field(default_factory=dict)
    """By path from the root."""
    means: dict[str, str] = field(default_factory=dict)
    """Label to the id of its class, where the two are not the same (classes.py)."""

    @property
    def here(self) -> dict[str, Seen]:
        """Those that are not gone, in the order of the table."""
        return {path: seen for path, seen in self.images.items() if seen.here}

    def labels(self, means: Mapping[str, str]) -> dict[str, str]:
        """The classes that those of them came with, by path, "" = none. means: what labels are known to mean."""
        return {path: means.get(seen.label, seen.label) for path, seen in self.here.items()}

    def moved(self, moves: Mapping[str, str], root: str) -> Collection:
        """With other paths. moves: path then to path now, where these differ."""
        images = {moves.get(path, path): seen for path, seen in self.images.items()}
        return replace(self, root=root, images=images)

    def with_gone(self, before: Collection) -> Collection:
        """With the images that were known before, by the paths of today, and are no longer there."""
        gone = {path: replace(seen, here=False, relabelled=False) for path, seen in before.images.items()}
        return replace(
            self, images={**self.images, **{p: s for p, s in gone.items() if p not in self.images}}
        )

    def save(self, folder: Path) -> None:
        import pyarrow as pa

        told = {"root": self.root, "means": self.means}
        rows = [(path, s.stamp, s.digest, s.label, s.here, s.relabelled) for path, s in self.images.items()]
        columns = zip(COLUMNS, zip(*rows, strict=True), strict=True) if rows else ()
        table = pa.table({name: pa.array(values) for name, values in columns})
        table = table.replace_schema_metadata({META_KEY: json.dumps(told)})
        write_parquet(folder / FILE, table)


def read_collection(folder: Path) -> Collection | None:
    """What `save` wrote; None where there is none."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        table = read_parquet_table(file)
        told = json.loads((table.schema.metadata or {})[META_KEY])
        rows = zip(*(table[name].to_pylist() for name in COLUMNS), strict=True) if table.num_rows else ()
        return Collection(str(told["root"]), {path: Seen(*rest) for path, *rest in rows}, dict(told["means"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} cannot be read ({' '.join(str(error).split())[:200]}); restore it from a copy, or run holotype "
            "discover with another --out."
        ) from error


def look_at(table: Table, last: Collection | None = None, progress: bool = False) -> Collection:
    """The images of a table as they are. last: an earlier look; its digests count where size and time are the same."""
    paths, stamp = relative([str(path) for path in table.path], table.root), file_stamps(list(table.path))
    known = last.images if last is not None else {}
    marks = [(known[path].stamp, known[path].digest) if path in known else None for path in paths]
    found = zip(
        paths, stamp, image_digests(list(table.path), stamp, marks, progress), table.label, strict=True
    )
    return Collection(table.root, {path: Seen(at, digest, str(label)) for path, at, digest, label in found})
