"""What strangers hand over: images, tables, archives, edits, settings."""

from __future__ import annotations

import ast
import csv
import io
import os
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tools.torture.images import ENDINGS, OTHERS, png

from holotype.config.parse import parse_yaml
from holotype.data.decode import ImageProblem, read_image
from holotype.data.image_files import ArchiveProblem, read_array
from holotype.data.load import load_table
from holotype.data.readers.folder import read_folder, scan_folder
from holotype.errors import InputError
from holotype.results.edits import Edit, append_edits, edits_csv, read_log
from holotype.runs.record import RunFolder
from holotype.runs.tables import table_csv
from tests.conftest import draw_squares

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "holotype"


class Runs:
    """What a pickle runs when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


# -- images -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["EPS", "PDF", "SVG", "FITS", "PSD", "tar", "pickle"])
def test_what_is_called_an_image_and_is_none_meets_no_decoder_and_no_program(
    kind: str, tmp_path: Path
) -> None:
    started: list[str] = []
    sys.addaudithook(
        lambda event, words: started.append(event) if event.startswith(("subprocess", "os.sys")) else None
    )
    for ending in ENDINGS:
        (tmp_path / f"photo{ending}").write_bytes(OTHERS[kind])
        with pytest.raises(ImageProblem):
            read_image(str(tmp_path / f"photo{ending}"))
    assert started == []


def test_a_small_file_of_enormous_pictures_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png(60_000, 60_000, 2))
    with pytest.raises(ImageProblem, match="too large"):
        read_image(str(tmp_path / "bomb.png"))


def test_a_small_archive_of_enormous_arrays_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "|u1", "fortran_order": False, "shape": (600, 1000, 1000)}
    )
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("x.npy", "w") as part,
    ):
        part.write(head.getvalue())
        for _ in range(600):
            part.write(bytes(1_000_000))
    assert (tmp_path / "bomb.npz").stat().st_size < 2_000_000
    with pytest.raises(ArchiveProblem, match=r"holds 0\.6 GB that are packed into"):
        read_array(str(tmp_path / "bomb.npz"), 0)


def test_an_archive_of_arrays_is_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([Runs(tmp_path / "owned")], dtype=object), allow_pickle=True)
    with pytest.raises(ArchiveProblem):
        read_array(str(tmp_path / "a.npz"), 0)
    assert not (tmp_path / "owned").exists()


def test_archives_are_not_unpacked(tmp_path: Path) -> None:
    """What lies in a tar or a zip cannot land outside a folder: nothing of ours takes them apart."""
    draw_squares(tmp_path)
    for name in ("more.tar", "more.tar.gz", "more.zip", "more.7z"):
        (tmp_path / name).write_bytes(OTHERS["tar"])
    found = scan_folder(tmp_path)
    assert {path.suffix for path in found.images} == {".png"}
    assert {".tar", ".gz", ".zip", ".7z"} <= set(found.passed)
    # tars are read where they lie (data/readers/webdataset.py)
    assert {"extract", "extractall", "unpack_archive"} & names_in_the_package() == set()


def names_in_the_package() -> set[str]:
    """Modules that are imported, and attributes that are asked for, anywhere."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found


def test_links_among_images_are_followed_once_and_never_for_ever(tmp_path: Path) -> None:
    draw_squares(tmp_path)
    (tmp_path / "unlabelled" / "round").symlink_to(tmp_path, target_is_directory=True)
    assert len(read_folder(tmp_path)) == 64


# -- tables, edits, settings --------------------------------------------------------------------------------


def test_a_path_that_leads_out_of_the_folder_is_no_image_of_it(tmp_path: Path) -> None:
    """A table may list images that lie elsewhere; with a folder it labels the images of the folder alone."""
    draw_squares(tmp_path / "images")
    (tmp_path / "secret.png").write_bytes(b"not for you")
    (tmp_path / "labels.csv").write_text("path,label\n../secret.png,red\n")
    with pytest.raises(InputError, match="are not in"):
        load_table(tmp_path / "images", tmp_path / "labels.csv")


def test_settings_are_data_and_never_code(tmp_path: Path) -> None:
    for text in (
        f"a: !!python/object/apply:os.mkdir ['{tmp_path / 'owned'}']",
        "a: !!python/name:os.system",
    ):
        with pytest.raises(ValueError, match="python"):
            parse_yaml(text)
    assert not (tmp_path / "owned").exists()
    assert {"eval", "exec", "unsafe_load", "full_load"} & names_in_the_package() <= {"eval"}  # of a network
    lines = [line for file in PACKAGE.rglob("*.py") for line in file.read_text(encoding="utf-8").splitlines()]
    loading = [line for line in lines if "torch.load(" in line]
    assert loading
    assert [line for line in loading if "weights_only=True" not in line] == []


def test_edits_of_another_run_are_refused_and_odd_ones_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "discovery.json").write_text('{"run_id": "mine-1", "facts": {}}')
    odd = [
        Edit("mine-1", "t", "rename", "", "new-01", value)
        for value in ("=1+1", "<script>", "../x", "\x1b[2J")
    ]
    append_edits(tmp_path, odd)
    assert read_log(tmp_path) == odd
    with pytest.raises(InputError, match="run 'theirs-1'"):
        append_edits(tmp_path, [Edit("theirs-1", "t", "rename", "", "new-01", "x")])


# -- formulas -------------------------------------------------------------------------------------------------

FORMULAS = ("=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1")


def cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_table_holds_a_formula(name: str, tmp_path: Path) -> None:
    """assignments.csv and the tables of holotype write are tried by the campaign (tools/torture/names.py)."""
    edits = [Edit("r", "t", "rename", "", name, name)]
    rows = [{"class": name, "kind": "known", "n": 1, "correct": 1, "accuracy": 1.0, "category": 0}]
    RunFolder(tmp_path).write_per_class(rows)
    facts = dict.fromkeys(("data", "method", "variant", "backbone", "mode", "settings"), name)
    row = SimpleNamespace(facts=_Every(facts, name), seeds=[0], scores=_Every({}, None), published=None, seconds=1.0,
                          commits=[], hardware=[])  # fmt: skip
    for text in (edits_csv(edits), (tmp_path / "per_class.csv").read_bytes().decode(), table_csv([row])):
        assert [cell for cell in cells(text) if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


class _Every(dict):  # type: ignore[type-arg]
    """A dictionary that has every key."""

    def __init__(self, given: dict[str, Any], other: Any) -> None:
        super().__init__(given)
        self.other = other

    def __missing__(self, key: str) -> Any:
        return self.other
