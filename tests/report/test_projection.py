"""The map is computed once, from what is kept or else from the model, and stays with the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from holotype.report import projection
from holotype.report.projection import add_projection
from holotype.results.discovery import FEATURES, Discovery
from small_run import train_small

PUBLISHED_MAPS = True


@pytest.fixture(scope="module")
def trained(tmp_path_factory, squares_folder, tiny_backbone_file) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train_small(folder, squares_folder, tiny_backbone_file, "kmeans")
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_run_without_features_is_read_once_and_a_kill_before_the_map_is_saved_changes_nothing(
    run, monkeypatch, tmp_path
) -> None:
    """Features are kept rounded, so that the map must be made of rounded ones at the first time as well."""
    again = Path(shutil.copytree(run, tmp_path / "again"))
    assert Discovery.load(run).images.x.isna().all()
    assert not (run / FEATURES).exists()
    found = add_projection(run, device="cpu")
    xy, columns = found.images[["x", "y"]].to_numpy(), ["x", "y"]
    assert np.isfinite(xy).all()
    assert Discovery.load(run).images[columns].equals(found.images[columns])
    centre = {c.id: xy[found.images.category_id == c.id].mean(0) for c in found.categories}
    near = [min(centre, key=lambda id: np.linalg.norm(point - centre[id])) for point in xy]
    assert np.mean(np.array(near) == found.images.category_id) > 0.9  # what is alike lies together

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Discovery, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            add_projection(again, device="cpu")
    assert (again / FEATURES).exists()
    monkeypatch.setattr(projection, "compute_features", lambda *_: pytest.fail("the model was run"))
    assert add_projection(again, device="cpu").images[columns].equals(found.images[columns])
    monkeypatch.setattr(projection, "project_tsne", lambda *_, **__: pytest.fail("computed again"))
    add_projection(run)


def test_images_that_are_gone_make_no_map(run, monkeypatch, caplog) -> None:
    found = Discovery.load(run)
    found.images["path"] = [f"gone/{i}.png" for i in range(64)]
    found.save(run)
    assert add_projection(run, device="cpu").images.x.isna().all()
    assert "no map" in caplog.text
    assert not (run / FEATURES).exists()
