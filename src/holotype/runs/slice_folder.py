"""A folder of answers, one part for each slice of a collection: what it is of, what is missing, what failed.

manifest.json     of which images and which network; written after the plan, so that where it is, the plan is whole
plan.parquet      which image is in which slice (data/slices.py)
part-NNNNNN.parquet   the answers; beside and renamed
failed.json       slices that could not be done, with the reason; of --only 2/4 it is failed-2-of-4.json
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotype.data.paths import Paths
from holotype.data.slices import PLAN, Planned, count_paths, is_plan, parts_there, write_plan
from holotype.errors import InputError
from holotype.machine.engine import Done, Engine, Failed, run_twice
from holotype.utils.atomic import write_text
from holotype.utils.locks import wait_for_lock
from holotype.utils.serialization import CorruptFile, dump_json, read_json

MANIFEST = "manifest.json"
EACH = "images_per_shard"

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class Wanted:
    """What somebody asks for."""

    facts: Mapping[str, Any]
    """Of the network and the format: what must be equal for a part to be of use, and words for readers."""
    told: Mapping[str, str]
    """Those of the facts that must be equal, and how a person calls them."""
    source: str
    """As it was named; absolute."""
    paths: Callable[[], Paths]
    """Begins a new stream of the images each time."""
    each: int
    """Images of a slice, where the folder is new."""


@dataclass(frozen=True)
class SliceFolder:
    """A folder whose plan is there."""

    folder: Path
    n: int
    """Images."""
    each: int
    root: str
    boxed: bool
    only: tuple[int, int] = (0, 1)
    """Which share of the slices is ours: every second one's number, from the first one's on."""

    @property
    def slices(self) -> int:
        return -(-self.n // self.each)

    @property
    def own(self) -> range:
        return range(self.only[0], self.slices, self.only[1])

    @property
    def own_images(self) -> int:
        last = self.slices - 1
        return len(self.own) * self.each - ((last + 1) * self.each - self.n if last in self.own else 0)

    def numbers(self) -> Iterator[int]:
        """Ours: first those without a part, then those with one, which the job looks at."""
        there = parts_there(self.folder)
        missing = (number for number in self.own if number not in there)
        return itertools.chain(missing, (number for number in self.own if number in there))

    def run(self, engine: Engine, done: Done) -> Failed:
        """Do our slices; returns those that are still missing, with the reason."""
        failed = run_twice(engine, self.numbers(), done, self._note)
        there = parts_there(self.folder)
        for number in self.own:
            if number not in there:
                failed.setdefault(number, f"it was not tried, or its part is not in {self.folder}")
        self._note(failed)
        return failed

    def sentence(self, failed: Failed) -> str:
        """What to say of slices that are still missing."""
        first = min(failed)
        return (
            f"{len(failed):,} of the {len(self.own):,} slices could not be done, as slice {first} ({failed[first]}); "
            f"{self._failed_file} lists them, and the same command tries them again."
        )

    @property
    def _failed_file(self) -> Path:
        i, n = self.only
        return self.folder / ("failed.json" if n == 1 else f"failed-{i + 1}-of-{n}.json")

    def _note(self, failed: Failed) -> None:
        if failed:
            write_text(
                self._failed_file, dump_json({"slices": {str(one): failed[one] for one in sorted(failed)}})
            )
        else:
            self._failed_file.unlink(missing_ok=True)


def prepare(folder: Path, wanted: Wanted, only: tuple[int, int] | None = None) -> SliceFolder:
    """The folder with a plan of these images and this network: written, or found there and compared.

    Of several commands that come at once one writes it, and the others wait. only: which share is ours; a plan that is
    there is then believed, and the images are not listed again, as long as the source has the same name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with wait_for_lock(folder / MANIFEST, "the plan"):
            there = _agreed(folder, wanted, believed=only is not None)
    except InputError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # where nothing was there before
        raise
    return SliceFolder(folder, there["n"], there[EACH], there["root"], there["boxed"], only or (0, 1))


def _agreed(folder: Path, wanted: Wanted, believed: bool) -> dict[str, Any]:
    """The manifest, as it is in the folder now."""
    there = _read(folder, wanted)
    if there is None:
        return _begin(folder, wanted, wanted.each)
    if believed and there["source"] == wanted.source and (folder / PLAN).is_file():
        return there
    paths = wanted.paths()
    now = count_paths(paths)
    _compare(folder, _changed(there, now))
    if there["root"] == paths.root and is_plan(folder / PLAN, now, paths.root, there[EACH]):
        return there
    if there["root"] == paths.root:
        log.warning(f"{folder / PLAN} is gone or was damaged, and is made again.")
    return _begin(folder, wanted, there[EACH])  # else the images were moved


def _begin(folder: Path, wanted: Wanted, each: int) -> dict[str, Any]:
    """Write the plan, and then the manifest."""
    paths = wanted.paths()
    planned = write_plan(folder / PLAN, paths, each)
    made = {
        **wanted.facts,
        "images": planned.digest,
        "n": planned.n,
        "boxed": planned.boxed,
        "root": paths.root,
        "source": wanted.source,
        EACH: each,
    }
    write_text(folder / MANIFEST, dump_json(made))
    return made


def _read(folder: Path, wanted: Wanted) -> dict[str, Any] | None:
    """The manifest, once it was compared; None where there is none."""
    path = folder / MANIFEST
    if not is_begun(folder):
        return None
    try:
        there = read_json(path)
        each = int(there[EACH])
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = str(error) if isinstance(error, CorruptFile) else repr(error)
        raise InputError(f"{path} cannot be read ({reason}); remove {folder} and run it again.") from error
    differs = [told for key, told in wanted.told.items() if there.get(key) != wanted.facts.get(key)]
    _compare(folder, differs if each >= 1 else [*differs, "the size of a shard"])
    return dict(there)


def is_begun(folder: Path) -> bool:
    """Whether a manifest is there; InputError where shards are there without one."""
    there = (folder / MANIFEST).is_file()
    if not there and any(folder.glob("part-*.parquet")):
        raise InputError(
            f"{folder} holds shards but no {MANIFEST}, so nobody knows of what; remove the folder."
        )
    return there


def _changed(there: Mapping[str, Any], now: Planned) -> list[str]:
    words = {"the list of images": now.digest == there["images"], "the number of images": now.n == there["n"]}
    return [told for told, same in words.items() if not same]


def _compare(folder: Path, differs: list[str]) -> None:
    if differs:
        raise InputError(
            f"{folder} holds answers about something else (not the same: {', '.join(differs)}); choose another folder, "
            "or remove this one to begin again."
        )


def absolute_source(source: str, plain: bool) -> str:
    """What a source is called in a manifest. plain: it is a path, and no address or pattern."""
    return os.path.abspath(source) if plain else source
