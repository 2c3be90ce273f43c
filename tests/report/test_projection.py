"""The map is computed once, from what is kept or else from the model, and stays with the run."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from holotype.report import projection
from holotype.report.projection import add_projection, project_tsne, scale_to_frame
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


def groups(n_each: int = 40, n_groups: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    category = np.repeat(np.arange(n_groups), n_each)
    centre = random.normal(size=(n_groups, 64))
    return (centre[category] + 0.2 * random.normal(size=(len(category), 64))).astype(np.float32), category


def test_neighbours_stay_together_and_the_map_is_the_same_again() -> None:
    features, category = groups()
    place = project_tsne(features)
    assert place.shape == (120, 2)
    assert np.abs(place).max() == pytest.approx(1)
    distance = np.linalg.norm(place[:, None] - place[None], axis=-1) + 9 * np.eye(120)
    assert (category[distance.argmin(1)] == category).mean() > 0.95
    np.testing.assert_array_equal(project_tsne(features), place)


def test_beyond_the_limit_every_category_keeps_its_share() -> None:
    features, category = groups(20, 3)
    category = np.where(np.arange(60) < 55, category, 3)
    category[3] = -1
    place = project_tsne(features, category=category, limit=25)
    shown = np.isfinite(place).all(1)
    assert shown.sum() <= 25
    assert not shown[3]
    counts = np.bincount(category[shown], minlength=4)
    assert counts[0] >= 7
    assert counts[3] >= 1
    np.testing.assert_array_equal(project_tsne(features, category=category, limit=25), place)
    assert (np.isfinite(project_tsne(features, category=category, limit=25, seed=1)).all(1) != shown).any()


def test_odd_collections_have_places() -> None:
    """Few images are placed by their principal components, identical ones together, unread ones nowhere."""
    features = groups()[0]
    for n in (0, 1, 2, 3, 29):
        place = project_tsne(features[:n])
        assert place.shape == (n, 2)
        assert np.isfinite(place).all()
    assert (project_tsne(np.ones((100, 8), dtype=np.float32)) == 0).all()
    three = project_tsne(np.eye(3, dtype=np.float32)[np.arange(90) % 3])
    assert len(np.unique(three.round(4), axis=0)) == 3
    assert np.isfinite(project_tsne(np.random.default_rng(0).normal(size=(40, 1)))).all()
    features = features.astype(np.float16)
    features[5] = np.nan
    assert np.flatnonzero(np.isnan(project_tsne(features)).any(1)).tolist() == [5]


def test_a_frame_keeps_the_aspect() -> None:
    place = scale_to_frame(np.array([[0.0, 0.0], [4.0, 1.0], [2.0, 2.0]]))
    np.testing.assert_allclose(place, [[-1, -0.5], [1, 0], [0, 0.5]])
