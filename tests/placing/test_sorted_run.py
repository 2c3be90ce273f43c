"""A run as folders: one per category by its corrected name, and what belongs to none apart."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from holotype.categories.found import Discovery
from holotype.data.sources import load_table
from holotype.errors import InputError
from holotype.placing.sorted_run import REJECTED, UNREADABLE, write_folders
from placing.made_results import edit, made_run, paths


def sizes(root: Path) -> Counter[str]:
    """Images by folder."""
    return Counter(file.parent.name for file in root.rglob("*.png"))


def test_every_image_lies_in_its_category_and_moves_with_corrections(tmp_path) -> None:
    run, out = made_run(tmp_path), tmp_path / "sorted"
    first = write_folders(run, out)
    found = Discovery.load(run)
    assert first.images == len(found.images) == sum(sizes(out).values())
    assert sizes(out)["_script_alert(1)__script_"] == found.category("<script>alert(1)</script>").n
    assert sizes(out)["Käfer ✓"] == found.category("Käfer ✓").n
    one, other = paths(run, "Bag")[:2]
    edit(
        run,
        ("rename", "", "new-01", "a/b: c?"),
        ("merge", "", "new-03", "new-02"),
        ("move", one, "", "_rejected"),
        ("reject", other, "", ""),
    )
    write_folders(run, out)
    found = Discovery.load(run)
    named = sizes(out)
    assert named["a_b_ c_"] == found.category("new-01").n
    assert named["new-02"] == found.category("new-02").n
    assert named["_rejected (2)"] == 1  # the category of that name
    assert [file.name for file in (out / REJECTED).iterdir()] == [Path(other).name.replace('"', "_")]
    assert "new-03" not in named
    assert sum(named.values()) == len(found.images)
    # as a collection of its own: what was rejected comes back neither as a class nor among the rest
    read = load_table(out)
    assert len(read) == len(found.images) - 1
    assert not [name for name in read.known if name == REJECTED]


def test_what_cannot_be_read_lies_apart(tmp_path) -> None:
    run = made_run(tmp_path)
    found = Discovery.load(run)
    found.images.loc[5, ["category", "category_id", "kind", "problem"]] = ["", "", "", "cut off"]
    found.save(run)
    write_folders(run, tmp_path / "sorted")
    (file,) = (tmp_path / "sorted" / UNREADABLE).iterdir()
    assert file.name == Path(found.images.path[5]).name
    assert not (tmp_path / "sorted" / REJECTED).exists()


def test_unreadable_images_inside_a_container_are_no_files(tmp_path) -> None:
    run = made_run(tmp_path)
    found = Discovery.load(run)
    (tmp_path / "pack.npz").write_bytes(b"cut off")
    columns = ["path", "category", "category_id", "kind", "problem"]
    found.images.loc[5, columns] = [f"{tmp_path / 'pack.npz'}#1", "", "", "", "cut off"]
    found.save(run)
    assert write_folders(run, tmp_path / "sorted").images == len(found.images) - 1


def test_without_files_it_says_so(tmp_path) -> None:
    run = made_run(tmp_path)
    shutil.rmtree(tmp_path / "my pictures")
    with pytest.raises(InputError, match="is where it was"):
        write_folders(run, tmp_path / "sorted")
    assert not (tmp_path / "sorted").exists()
