"""`holotype report`: build the report of a run, with the corrections that people made in it, and one zip to mail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from holotype.cli.common import echo
from holotype.cli.options import ReportOptions
from holotype.discovery.constraints import is_all_labelled
from holotype.discovery.plan import pending_edits
from holotype.discovery.rounds import apply_log, count_edits, identify_images, next_constraints
from holotype.errors import InputError
from holotype.export.zip import MAIL_FOLDER, ZipResult, write_zip
from holotype.report import build_report
from holotype.report.page_data import locate_image
from holotype.report.projection import add_projection
from holotype.results.annotated import read_corrections
from holotype.results.discovery import Discovery
from holotype.results.edits import EDIT_LOG, AppliedEdits, Edit, append_edits
from holotype.results.names import NameProposals, rank_words, read_words, save_names
from holotype.results.review_queue import QUEUE_FILE, write_queue
from holotype.utils.atomic import clean_partial_tree, refuse_existing, refuse_links
from holotype.utils.device import pick_device
from holotype.utils.locks import lock_folder
from holotype.utils.text import format_bytes, plural

TOWER_SIDE = 512
"""Longer side of the images that are shown to a network with a text tower."""


def report_command(options: ReportOptions) -> None:
    folder, progress = options.run, options.progress
    found = Discovery.load(folder)  # before anything is touched: is it a run at all?
    if options.zip:
        refuse_existing(options.zip, options.overwrite, (".zip",))
    with lock_folder(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        add_projection(folder, device=options.device, progress=progress)
        new: Sequence[Edit] = ()
        if options.edits:
            edits = identify_images(folder, read_corrections(folder, options.edits))
            kept = f"{count_edits(folder, edits)}; all are kept in {folder / EDIT_LOG}"
            new = append_edits(folder, edits)
            echo(f"{options.edits}: {kept if edits else 'there is no edit in it'}.")
        if options.names:
            echo(propose_names(folder, options.names, options.tower, options.device))
        outcome = apply_log(folder)
        if options.edits or outcome.discovery.facts.edits.applied:
            echo(applied_text(outcome, new, found.facts.edits.applied))
        for line in (*(f"- {problem}" for problem in outcome.problems), *next_round_hint(folder, outcome)):
            echo(line)
        if (folder / QUEUE_FILE).is_file():  # answers take questions off it
            write_queue(folder, outcome.discovery)
        page = build_report(outcome.discovery, folder, progress=progress, with_paths=options.with_paths)
        echo(f"Report: {page}")
        if options.zip:
            echo(zip_text(write_zip(folder, options.zip, overwrite=options.overwrite), options.zip))


def propose_names(folder: Path, words: Path, tower: str, device: str) -> str:
    """Write proposals for the new categories of a run; return them in lines."""
    from holotype.data.decode import ImageProblem, read_resized
    from holotype.models.text_tower import TextTower

    listed, found = read_words(words), Discovery.load(folder)
    new = [category for category in found.categories if category.kind == "novel"]
    if not new:
        raise InputError(f"{folder} has no new category to name.")
    network, images = TextTower(tower, pick_device(device)), {}
    for category in new:
        pictures = []
        for path in category.exemplars:
            with contextlib.suppress(ImageProblem):
                pictures.append(
                    read_resized(locate_image(path, found.facts.root), TOWER_SIDE, min_side=TOWER_SIDE)
                )
        if pictures:
            images[category.id] = network.encode_images(pictures)
    if not images:
        raise InputError(
            f"No image of the new categories of {folder} can be read; names are proposed by images."
        )
    ranked = rank_words(images, listed, network.encode_words(listed), network.scale)
    save_names(folder, NameProposals(found.run_id, tower, ranked))
    lines = [
        f"  {category.name}: {', '.join(f'{word} {score:.2f}' for word, score in ranked[category.id])}"
        for category in new
        if category.id in ranked
    ]
    return "\n".join([f"Names by {tower}, with scores from 0 to 1:", *lines])


def applied_text(outcome: AppliedEdits, new: Sequence[Edit], before: Sequence[str]) -> str:
    """Return what was done, in a line. new: edits of a file; before: ids of those that the run held already."""
    held, facts = {*outcome.discovery.facts.edits.applied}, outcome.discovery.facts
    done = f"{plural(len(held - {*before}), 'edit')} applied."
    if held <= {*before}:
        done = f"No new edits to apply; {plural(len(held), 'edit')} had been applied before."
    if not held:
        done = "No edits to apply."
    late = sum(edit.run_id in facts.earlier_runs for edit in new)
    return (
        f"{done} {plural(late, 'edit')} of earlier rounds: see below what they still say." if late else done
    )


def zip_text(done: ZipResult, where: Path) -> str:
    """Return what is in a zip."""
    pictures, tables = plural(done.images, "small picture"), " and ".join(done.tables)
    words = f"To mail: {where}, {format_bytes(done.size)}: the report with {pictures}, {tables}"
    limit = (
        f" Many mail servers take no more than {format_bytes(MAIL_FOLDER)}."
        if done.size > MAIL_FOLDER
        else ""
    )
    return f"{words}; no originals, no paths of this computer.{limit}"


def next_round_hint(folder: Path, outcome: AppliedEdits) -> Iterator[str]:
    """Yield what the edits say to another round, where there can be one and it would be told something new."""
    if not outcome.discovery.facts.round:
        if outcome.confirmed:
            yield "Nothing learns from confirmed labels here: only a run of holotype discover has rounds."
        return
    given = next_constraints(folder)
    labels, out = pending_edits(folder, given)
    words = [plural(n, one) for n, one in ((labels, "label"), (out, "rejected image")) if n]
    if words and is_all_labelled(outcome.discovery, given):
        yield "Every image is labelled or rejected now, so another round has nothing to place until more come."
        yield f"holotype write {folder} --folders DIR takes the result out."
    elif words:
        counts = "counts" if labels + out == 1 else "count"
        yield f"{' and '.join(words)} {counts} in the next round: run the holotype discover command again."
