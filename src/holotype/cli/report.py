"""`holotype report`: build the report of a run, with the corrections that people made in it, and one zip to mail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.common import CodeOptions, File, Parser, RunDir, RunningOptions, echo
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.export.zip import ZipResult
    from holotype.results.apply_edits import AppliedEdits
    from holotype.results.edits import Edit


@dataclass(kw_only=True)
class ReportOptions(CodeOptions, RunningOptions):
    """Build the report of a run of holotype discover or holotype train, with corrections. The first report of a run
    computes its map, which takes a while."""

    run: RunDir
    """Folder of a finished run."""
    edits: File | None = None
    """edits.csv as exported from the report."""
    zip: File | None = None
    """Also write the report and its tables into one zip to mail, without paths of this computer."""
    with_paths: bool = False
    """Show the full paths of run and images in the page; they may contain your name (default: relative names)."""
    overwrite: bool = False
    """Replace the file --zip if it exists."""


def make_parser() -> Parser:
    return Parser("report", ReportOptions)


def command(argv: Sequence[str]) -> int:
    options: ReportOptions = make_parser().parse_args(argv)
    from holotype.discovery.rounds import apply_log, count_edits, identify_images
    from holotype.export.zip import write_zip
    from holotype.report import build_report
    from holotype.report.projection import add_projection
    from holotype.results.discovery import Discovery
    from holotype.results.edits import EDIT_LOG, append_edits, read_edits
    from holotype.results.review_queue import QUEUE_FILE as QUEUE
    from holotype.results.review_queue import write_queue
    from holotype.utils.atomic import clean_partial_tree, refuse_existing, refuse_links
    from holotype.utils.locks import lock_folder

    folder, progress = options.run, not options.no_progress
    found = Discovery.load(folder)  # before anything is touched: is it a run at all?
    if options.zip:
        refuse_existing(options.zip, options.overwrite, (".zip",))
    with lock_folder(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        add_projection(folder, device=options.device, progress=progress)
        new = None
        if options.edits:
            edits = identify_images(folder, read_edits(options.edits))
            kept = f"{count_edits(folder, edits)}; all are kept in {folder / EDIT_LOG}"
            new = append_edits(folder, edits)
            echo(f"{options.edits}: {kept if edits else 'there is no edit in it'}.")
        outcome = apply_log(folder)
        echo(applied_text(outcome, new, found.facts.edits.applied))
        for problem in outcome.problems:
            echo(f"- {problem}")
        for line in next_round_hint(folder, outcome):
            echo(line)
        if (folder / QUEUE).is_file():  # answers take questions off it
            write_queue(folder, outcome.discovery)
        page = build_report(outcome.discovery, folder, progress=progress, with_paths=options.with_paths)
        echo(f"Report: {page}")
        if options.zip:
            echo(zip_text(write_zip(folder, options.zip, overwrite=options.overwrite), options.zip))
    return 0


def applied_text(outcome: AppliedEdits, new: Sequence[Edit] | None, before: Sequence[str]) -> str:
    """What was done, in a line.

    new: edits that were not in the log before; None where no file was options. before: ids of those that the run
    held already.
    """
    held = {*outcome.discovery.facts.edits.applied}
    if new is None:
        if not held:
            return "No edits to apply."
        if more := len(held - {*before}):
            return f"{plural(more, 'edit')} of the log applied."
        return f"No new edits to apply; {plural(len(held), 'edit')} of the log had been applied before."
    count = sum(edit.id in held for edit in new)
    late = sum(edit.run_id in outcome.discovery.facts.earlier_runs for edit in new)
    done = f"{plural(count, 'edit')} applied." if count else "No new edits to apply."
    return (
        f"{done} {plural(late, 'edit')} of earlier rounds: see below what they still say." if late else done
    )


def zip_text(done: ZipResult, where: Path) -> str:
    from holotype.export.zip import MAIL_FOLDER
    from holotype.utils.text import format_bytes

    words = (
        f"To mail: {where}, {format_bytes(done.size)}: the report with {plural(done.images, 'small picture')}, "
        f"{' and '.join((', '.join(done.tables[:-1]), done.tables[-1]))}; no originals, no paths of this computer."
    )
    if done.size > MAIL_FOLDER:
        words += f" Many mail servers take no more than {format_bytes(MAIL_FOLDER)}."
    return words


def next_round_hint(folder: Path, outcome: AppliedEdits) -> list[str]:
    """What the edits say to another round, where there can be one and it would be told something new."""
    from holotype.discovery.constraints import is_all_reported
    from holotype.discovery.plan import pending_edits
    from holotype.discovery.rounds import next_constraints

    if not outcome.discovery.facts.round:
        if not outcome.confirmed:
            return []
        return ["Nothing learns from confirmed labels here: only a run of holotype discover has rounds."]
    given = next_constraints(folder)
    labels, out = pending_edits(folder, given)
    words = [plural(n, one) for n, one in ((labels, "label"), (out, "rejected image")) if n]
    if not words:
        return []
    if is_all_reported(outcome.discovery, given):
        return [
            "Every image is labelled or rejected now, so another round has nothing to place until further images "
            f"come; holotype write {folder} --folders DIR takes the result out."
        ]
    counts = "counts" if labels + out == 1 else "count"
    return [f"{' and '.join(words)} {counts} in the next round: run the holotype discover command again."]
