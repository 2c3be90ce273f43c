"""A finished run of a few images with odd names, for the tests of what is written from a run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, apply_edits
from report.made import make_discovery


def made_run(folder: Path, n: int = 40) -> Path:
    """folder/run of the images in folder/my pictures: five known classes, and new-01 to new-04."""
    found = make_discovery(folder, n)
    facts = replace(found.facts, title="my pictures", root=str(folder / "my pictures"), method="rpc")
    replace(found, facts=facts).save(folder / "run")
    return folder / "run"


def edit(run: Path, *edits: Sequence[str]) -> Discovery:
    """Apply edits, each (action, image, category, value), as holotype report does."""
    found = Discovery.load(run)
    applied = apply_edits(found, [Edit(found.run_id, f"t{i}", *one) for i, one in enumerate(edits)])
    assert applied.problems == []
    applied.discovery.save(run)
    return applied.discovery


def paths(run: Path, category: str) -> list[str]:
    """Of the images in a category, by its id."""
    images = Discovery.load(run).images
    return [str(path) for path in images.path[images.category_id == category]]
