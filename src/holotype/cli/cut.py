"""`holotype cut`: the categories of a run at another number, from their tree, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.common import CodeOptions, Dir, Parser, RunDir, RunningOptions, echo
from holotype.config.types import Count
from holotype.errors import InputError
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.results.discovery import Discovery
    from holotype.results.hierarchy import Tree

CUT_EDITS = "cut.csv"
"""Not edits.csv, which is the log of what people have corrected in the folder."""


@dataclass(kw_only=True)
class CutOptions(CodeOptions, RunningOptions):
    """Change the number of categories of a run without training: with fewer, the nearest ones are merged; with more,
    some are split. Known classes stay. The result goes to a new folder; the run stays as it is."""

    run: RunDir
    """Folder of a finished run."""
    k: Count | None = None
    """Number of categories, known and new together (default: say what would happen)."""
    out: Dir | None = None
    """Folder of the cut (default: RUN/cuts/K)."""
    overwrite: bool = False
    """Replace a cut in the folder --out."""


def make_parser() -> Parser:
    return Parser("cut", CutOptions)


def command(argv: Sequence[str]) -> int:
    options: CutOptions = make_parser().parse_args(argv)
    from holotype.report import build_report
    from holotype.results.discovery import Discovery, read_features
    from holotype.results.edits import edits_csv
    from holotype.results.hierarchy import cut_tree, preview_cut, reachable_counts
    from holotype.utils.atomic import refuse_links, write_text
    from holotype.utils.locks import lock_folder

    folder, k = options.run, options.k
    found = Discovery.load(folder)
    names = {category.id: category.name for category in found.categories}
    if k is None:
        with lock_folder(folder):
            refuse_links(folder)
            tree = tree_of(folder, found, options.device, not options.no_progress)
        echo(f"{plural(tree.k, 'category', 'categories')}; they {reachable_counts(tree)} (--k).")
        for k, words in preview_cut(tree, names):
            echo(f"  {k:>4}  {words}")
        return 0
    with lock_folder(folder):
        refuse_links(folder)
        tree = tree_of(folder, found, options.device, not options.no_progress)
        out = options.out or folder / "cuts" / str(k)
        check_apart(out, folder, overwrite=options.overwrite or not options.out)
        done = cut_tree(found, tree, k, datetime.now(UTC).isoformat(timespec="milliseconds"))
        have = plural(tree.k, "category", "categories")
        echo(f"{have} cut at {k}:" if done.edits else f"The run has {have} already; the cut is a copy of it.")
        for line in done.lines:
            echo(f"- {line}")
        write_text(out / CUT_EDITS, edits_csv(done.edits))  # first: by it a cut is known
        done.discovery.save(out)
        features = read_features(folder, len(found.images))
        page = build_report(done.discovery, out, features=features, progress=not options.no_progress)
        echo(f"Report: {page}")
        echo(f"Every image with its category: {out / 'assignments.csv'}")
    if done.edits:
        moved = " What leaves a category then counts as moved by hand." if k > tree.k else ""
        echo(
            f"The run is as it was. To keep the cut: holotype report {folder} --edits {out / CUT_EDITS}.{moved}"
        )
    return 0


def tree_of(folder: Path, found: Discovery, device: str, progress: bool) -> Tree:
    """The tree that the run folder keeps; where edits have come since, it is made anew, and features.npy with it."""
    from holotype.report.projection import stored_features
    from holotype.results.hierarchy import save_tree

    try:
        features = stored_features(folder, found, device, progress)
    except InputError:
        if tree := save_tree(folder, found, None):
            return tree
        raise
    tree = save_tree(folder, found, features)
    if tree is None:
        raise InputError(
            f"No image of {folder} can be read any more, so its categories cannot be cut; bring the images back."
        )
    return tree


def check_apart(out: Path, folder: Path, *, overwrite: bool) -> None:
    """Raise InputError where `out` holds a run, a cut that people have corrected, or other files.

    overwrite: it may hold a cut.
    """
    from holotype.results.edits import EDIT_LOG
    from holotype.runs.record import IDENTITY_FILE

    if out.resolve() == folder.resolve() or (out / IDENTITY_FILE).exists():
        raise InputError(f"{out} holds a run; choose another folder with --out.")
    if (out / EDIT_LOG).exists():
        raise InputError(
            f"{out} holds a cut that was corrected ({EDIT_LOG}), which stays; choose another folder with --out."
        )
    if out.is_dir() and any(not file.name.startswith(".") for file in out.iterdir()):
        if not (out / CUT_EDITS).exists():
            raise InputError(f"{out} holds other files; choose another folder with --out.")
        if not overwrite:
            raise InputError(
                f"{out} exists already; add --overwrite to replace it, or choose another folder."
            )
