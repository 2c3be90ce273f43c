"""`holotype cut`: the categories of a run at another number, from their tree, without training."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from holotype.cli.common import echo
from holotype.cli.options import CutOptions
from holotype.errors import InputError
from holotype.report import build_report
from holotype.report.projection import stored_features
from holotype.results.discovery import Discovery, read_features
from holotype.results.edits import EDIT_LOG, edits_csv
from holotype.results.hierarchy import Tree, cut_tree, preview_cut, reachable_counts, save_tree
from holotype.runs.record import IDENTITY_FILE
from holotype.utils.atomic import refuse_links, write_text
from holotype.utils.locks import lock_folder
from holotype.utils.text import plural

CUT_EDITS = "cut.csv"
"""Not edits.csv, which is the log of what people have corrected in the folder."""


def cut_command(options: CutOptions) -> None:
    folder = options.run
    found = Discovery.load(folder)
    with lock_folder(folder):
        refuse_links(folder)
        tree = tree_of(folder, found, options.device, options.progress)
        if options.k is not None:
            write_cut(options, options.k, found, tree)
            return
    names = {category.id: category.name for category in found.categories}
    echo(f"{plural(tree.k, 'category')}; they {reachable_counts(tree)} (--k).")
    for k, words in preview_cut(tree, names):
        echo(f"  {k:>4}  {words}")


def write_cut(options: CutOptions, k: int, found: Discovery, tree: Tree) -> None:
    """Write the cut at `k` as a folder of its own, and say what it merges or splits."""
    folder, out = options.run, options.out or options.run / "cuts" / str(k)
    check_apart(out, folder, overwrite=options.overwrite or not options.out)
    done = cut_tree(found, tree, k, datetime.now(UTC).isoformat(timespec="milliseconds"))
    have = plural(tree.k, "category")
    echo(f"{have} cut at {k}:" if done.edits else f"The run has {have} already; the cut is a copy of it.")
    for line in done.lines:
        echo(f"- {line}")
    write_text(out / CUT_EDITS, edits_csv(done.edits))  # first: by it a cut is known
    done.discovery.save(out)
    features = read_features(folder, len(found.images))
    page = build_report(done.discovery, out, features=features, progress=options.progress)
    echo(f"Report: {page}\nEvery image with its category: {out / 'assignments.csv'}")
    if done.edits:
        moved = " What leaves a category then counts as moved by hand." if k > tree.k else ""
        keep = f"holotype report {folder} --edits {out / CUT_EDITS}"
        echo(f"The run is as it was. To keep the cut: {keep}.{moved}")


def tree_of(folder: Path, found: Discovery, device: str, progress: bool) -> Tree:
    """The tree that the run folder keeps; where edits have come since, it is made anew, and features.npy with it."""
    try:
        features = stored_features(folder, found, device, progress)
    except InputError:
        if tree := save_tree(folder, found, None):
            return tree
        raise
    tree = save_tree(folder, found, features)
    if tree is None:
        raise InputError(f"No image of {folder} can be read, so that nothing can be cut; bring them back.")
    return tree


def check_apart(out: Path, folder: Path, *, overwrite: bool) -> None:
    """Raise InputError where `out` holds a run, a cut that people have corrected, or other files.

    overwrite: it may hold a cut.
    """
    reason = ""
    if out.resolve() == folder.resolve() or (out / IDENTITY_FILE).exists():
        reason = "holds a run"
    elif (out / EDIT_LOG).exists():
        reason = f"holds a cut that was corrected ({EDIT_LOG}), which stays"
    elif out.is_dir() and any(not file.name.startswith(".") for file in out.iterdir()):
        if not (out / CUT_EDITS).exists():
            reason = "holds other files"
        elif not overwrite:
            reason = "exists already; add --overwrite to replace it"
    if reason:
        raise InputError(f"{out} {reason}; choose another folder with --out.")
