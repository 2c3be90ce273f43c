"""A run folder belongs to one discovery with one backbone."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import BackboneConfig
from holotype.data.load import load_table
from holotype.discovery import backbone_choice
from holotype.discovery.collection import index_images
from holotype.discovery.pipeline import discover, discover_table
from holotype.discovery.plan import Round
from holotype.discovery.run_folder import (
    CLAIM_FORMAT,
    check_backbone,
    claim_folder,
    find_folder,
    read_backbone,
)
from holotype.errors import InputError, Stopped


def test_the_backbone_of_the_first_time_stays(small, squares_folder: Path, tmp_path: Path) -> None:
    table, config = load_table(squares_folder), small()
    first, chosen = claim_folder(tmp_path, table, config)
    assert chosen is not None
    assert json.loads((tmp_path / "identity.json").read_text())["format"] == CLAIM_FORMAT
    for asked in (config, small(backbone="auto"), small(k=7, seed=3)):
        again, none = claim_folder(tmp_path, table, asked)
        assert (again.backbone, none) == (first.backbone, None)
    with pytest.raises(InputError, match=r"was begun with backbone = .* not 'embedded'") as caught:
        claim_folder(tmp_path, table, small(backbone="embedded"))
    assert "\n" not in str(caught.value)


def test_what_is_not_said_of_a_network_stays() -> None:
    begun = BackboneConfig("vit", image_size=224)
    for wanted in (BackboneConfig("vit"), BackboneConfig("auto"), BackboneConfig("auto", image_size=224)):
        assert check_backbone(Path("run"), wanted, begun) == begun
    with pytest.raises(InputError, match="image_size = 224, not 98"):
        check_backbone(Path("run"), BackboneConfig("auto", image_size=98), begun)


def test_a_folder_of_another_kind_is_refused(small, squares_folder: Path, tmp_path: Path) -> None:
    table = load_table(squares_folder)
    for content in ({"format": 1, "backbone": {}}, [], {"format": CLAIM_FORMAT, "backbone": {"name": 3}}):
        (tmp_path / "identity.json").write_text(json.dumps(content) if content else "[1]")
        with pytest.raises(InputError):
            claim_folder(tmp_path, table, small())
    with pytest.raises(InputError, match="cannot be read"):
        read_backbone(tmp_path, {"backbone": None})
    assert [path.name for path in tmp_path.iterdir()] == ["identity.json"]


def test_what_cannot_be_trained_leaves_no_folder(small, squares_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        claim_folder(tmp_path / "run", load_table(squares_folder), small(backbone="nowhere.safetensors"))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_was_moved_and_renamed_finds_its_run(
    squares_folder: Path, tmp_path: Path, caplog
) -> None:
    photos = Path(shutil.copytree(squares_folder, tmp_path / "photos"))
    run, own = tmp_path / "runs" / "photos-discover", tmp_path / "runs" / "archive-discover"
    index_images(load_table(photos)).save(run)
    shutil.copytree(photos, tmp_path / "archive")
    table = load_table(tmp_path / "archive")
    assert find_folder(own, table) == own  # photos are where they were: these are others
    shutil.rmtree(photos)
    caplog.set_level("INFO", "holotype")
    assert find_folder(own, table) == run
    assert f"{run} holds a discovery of these images and is continued" in caplog.text
    assert find_folder(own, table.take(range(20))) == own  # too few of them are there
    (run / "collection.parquet").write_bytes(b"PAR1 not really")
    assert find_folder(own, table) == own
    index_images(load_table(tmp_path / "archive")).save(run)
    own.mkdir()
    assert find_folder(own, table) == own


@pytest.mark.parametrize("changes", [{}, {"k": 5}], ids=["no new round", "a new round"])
def test_a_folder_that_was_renamed_finds_its_run_every_time(
    squares_folder, small, tmp_path, monkeypatch, changes
) -> None:
    """The second time it began a discovery of its own, without names and edits."""
    monkeypatch.chdir(tmp_path)
    photos = Path(shutil.copytree(squares_folder, tmp_path / "photos"))
    settings = dataclasses.asdict(small(method="kmeans"))
    first = discover(photos, progress=False, **settings)
    photos.rename(tmp_path / "archive")
    for _ in range(3):
        found = discover(tmp_path / "archive", progress=False, **settings | changes)
        assert first.run_id in (found.run_id, *found.facts.earlier_runs)
    assert os.listdir("runs") == ["photos-discover"]


def test_a_list_of_labels_that_was_forgotten_the_second_time_is_asked_for(
    squares_folder, small, tmp_path
) -> None:
    table, run = load_table(squares_folder / "squares.csv"), tmp_path / "run"
    bare = dataclasses.replace(table, label=np.array([""] * len(table), dtype=object), known=())
    with pytest.raises(InputError, match=r"No usable image in squares is labelled"):
        discover_table(bare, small(), run, progress=False)
    index_images(table).save(run)
    with pytest.raises(InputError, match=r"No image of squares comes with a label, .* 16 did; .*--labels"):
        discover_table(bare, small(), run, progress=False)


def test_who_chose_the_backbone_is_known_in_every_round(
    small, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path, monkeypatch
) -> None:
    """The hint at better ones is for whoever reads the report, of a later round or after a stop as well."""
    load, tiny = backbone_choice.load_backbone, BackboneConfig(str(tiny_backbone_file))
    monkeypatch.setattr(backbone_choice, "load_backbone", lambda config: load(tiny))
    monkeypatch.setattr(backbone_choice, "best_public_backbone", lambda *_: (None, False))
    table, run, config = load_table(squares_folder), tmp_path / "run", small(backbone="auto", method="kmeans")

    def stop(round: Round) -> None:
        raise Stopped("the step of counting")

    hint = f"--backbone {backbone_choice.PUBLIC_BACKBONE[0]}"
    with monkeypatch.context() as stopped:
        stopped.setattr("holotype.discovery.pipeline.run_round", stop)
        with pytest.raises(Stopped):
            discover_table(table, config, run, progress=False)
    for number, k in enumerate((4, 5), start=1):
        found = discover_table(table, dataclasses.replace(config, k=k), run, progress=False)
        assert found.facts.round == number
        assert hint in found.facts.choice_of_backbone
