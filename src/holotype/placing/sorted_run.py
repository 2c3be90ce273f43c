"""The whole collection of a run as folders, one per category, with what belongs to none apart."""

from __future__ import annotations

from pathlib import Path

from holotype.data.walk import REJECTED, UNREADABLE
from holotype.placing.folders import free_name, is_part
from holotype.placing.kept_folders import Sorted, Wanted, sort_images
from holotype.placing.written import Results, read_results


def write_folders(run: Path, folder: Path, *, copy: bool = False, progress: bool = False) -> Sorted:
    """Let `folder` hold every image of the run: links where the file system allows them, or copies."""
    results = read_results(run)
    results.check_files()
    found = results.found
    runs = (found.run_id, *found.facts.earlier_runs)
    return sort_images(folder, runs, wanted(results), copy=copy, progress=progress)


def wanted(results: Results) -> list[Wanted]:
    """Where each image belongs. A part of a file that cannot be read is no file, and is left out."""
    taken = {name.casefold() for name in (*set(results.category), UNREADABLE, REJECTED)}
    apart = {name: free_name(name, taken) for name in (UNREADABLE, REJECTED)}  # categories of such names
    found = []
    for path, category, problem in zip(results.path, results.category, results.problem, strict=True):
        if category:
            found.append(Wanted(path, apart.get(category, category)))
        elif not problem:
            found.append(Wanted(path, REJECTED))
        elif not is_part(path):
            found.append(Wanted(path, UNREADABLE))
    return found
