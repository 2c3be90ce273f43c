"""A trained model comes back from its folder and says of every image what it said before."""

from __future__ import annotations

import gc
import hashlib
import json
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from holotype.config.schema import BackboneConfig
from holotype.data.image_store import ImageStore
from holotype.errors import InputError
from holotype.methods import METHODS, Task
from holotype.runs.model_io import MODEL_CONFIG_FILE, MODEL_WEIGHTS_FILE, ModelConfig, load_model
from holotype.utils.serialization import dump_json, from_dict, read_json, to_dict
from small_run import RUN_ID, frozen_features, seen, train_small


@pytest.fixture(scope="module")
def trained(tmp_path_factory, squares_folder, tiny_backbone_file):
    folder = tmp_path_factory.mktemp("run")
    return folder, *train_small(folder, squares_folder, tiny_backbone_file)


@pytest.fixture
def copied(trained, tmp_path) -> Path:
    """The folder, to be damaged."""
    shutil.copytree(trained[0], tmp_path / "run")
    return tmp_path / "run"


def test_it_says_what_it_said_before(trained) -> None:
    folder, run, features, category = trained
    model = load_model(folder, "cpu")
    assert (model.run_id, model.known, model.ids[:2]) == (RUN_ID, ("green", "red"), ("green", "red"))
    read = model.features(list(run.loop.table.path))
    assert np.allclose(read.features, features, atol=2e-2)  # the token cache keeps half precision
    assert not any(read.problem)
    placed = model.place(read)
    before = run.loop.predict()
    assert (placed.category_id == np.array(model.ids, dtype=object)[category]).mean() > 0.95
    assert np.allclose(placed.probability, before.probability, atol=1e-2)
    assert np.allclose(placed.known_score, before.known_score, atol=1e-2)
    assert set(placed.kind) <= {"known", "novel"}
    assert placed.typicality.between(0, 1).all()
    assert placed.fits.mean() > 0.95


def test_any_number_of_images_takes_the_same_memory(trained, monkeypatch) -> None:
    """Of the parts of a stream, none that was read stays in memory."""
    model, paths = load_model(trained[0], "cpu"), list(trained[1].loop.table.path)
    stores: weakref.WeakSet[ImageStore] = weakref.WeakSet()
    decode = ImageStore.decode

    def noted(*given, **named) -> ImageStore:
        stores.add(store := decode(*given, **named))
        return store

    monkeypatch.setattr(ImageStore, "decode", noted)
    monkeypatch.setattr("holotype.runs.model_io.READ_BATCH", 8)
    gc.disable()
    try:
        assert [len(stores) for _ in model.stream(paths)] == [0] * (len(paths) // 8)
    finally:
        gc.enable()


def test_loading_leaves_the_generator_alone(trained) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    load_model(trained[0], "cpu")
    assert torch.equal(before, torch.get_rng_state())


def test_paths_pictures_and_arrays_are_one(trained) -> None:
    folder, run, _, _ = trained
    model = load_model(folder, "cpu")
    paths = list(run.loop.table.path[:3])
    pictures = [Image.open(path).convert("RGB") for path in paths]
    arrays = np.stack([np.asarray(picture) for picture in pictures])
    by_path, by_picture, by_array = (model.features(x).features for x in (paths, pictures, arrays))
    assert np.array_equal(by_path, by_picture)
    assert np.array_equal(by_path, by_array)
    assert model.features([]).features.shape == (0, by_path.shape[1])


def test_an_image_that_cannot_be_read_is_placed_nowhere(trained, tmp_path, monkeypatch) -> None:
    folder, run, _, _ = trained
    monkeypatch.setattr("holotype.runs.model_io.READ_BATCH", 2)  # several parts
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"nothing")
    model = load_model(folder, "cpu")
    read = model.features(
        [run.loop.table.path[0], str(broken), run.loop.table.path[1], tmp_path / "absent.png"]
    )
    assert [bool(problem) for problem in read.problem] == [False, True, False, True]
    placed = model.place(read)
    assert list(placed.category_id[[1, 3]]) == ["", ""]
    assert placed.probability[[1, 3]].isna().all()
    assert not placed.fits[[1, 3]].any()
    assert (placed.category_id[[0, 2]] != "").all()


@pytest.mark.parametrize("method", ["kmeans", "simgcd"])
def test_other_methods(method, tmp_path, squares_folder, tiny_backbone_file) -> None:
    _, features, category = train_small(tmp_path, squares_folder, tiny_backbone_file, method, epochs=1)
    model = load_model(tmp_path, "cpu")
    placed = model.place(seen(features))
    assert list(placed.category_id) == [model.ids[c] for c in category]


# -- the second opinion ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_opinion(tmp_path_factory, squares_folder, tiny_backbone_file):
    folder = tmp_path_factory.mktemp("opinion")
    return folder, *train_small(folder, squares_folder, tiny_backbone_file, epochs=2, opinion=True)


def test_a_second_opinion_looks_at_the_backbone_as_it_was(with_opinion) -> None:
    folder, run, features, _ = with_opinion
    model, paths = load_model(folder, "cpu"), list(run.loop.table.path)
    read = model.features(paths)
    frozen = frozen_features(run, folder / "embedded")
    assert np.allclose(read.frozen, frozen, atol=1e-4)
    assert np.allclose(read.features, features, atol=2e-2)
    assert not np.allclose(read.frozen, read.features, atol=2e-2)  # something was trained
    assert model.features([]).frozen.shape == (0, frozen.shape[1])


def test_images_lie_where_the_mean_of_both_is_largest(with_opinion) -> None:
    folder, run, _, _ = with_opinion
    model = load_model(folder, "cpu")
    read = model.features(list(run.loop.table.path))
    m = model.method.logits(torch.from_numpy(read.features)).softmax(-1).detach().numpy()
    q = (m + model.opinion.shares(read.frozen)) / 2
    placed = model.place(read)
    assert list(placed.category_id) == [model.ids[c] for c in q.argmax(1)]
    np.testing.assert_allclose(placed.probability, q.max(1), atol=1e-5)
    with pytest.raises(ValueError, match="frozen"):
        model.place(seen(read.features))


def test_a_model_without_a_second_opinion_places_alone(with_opinion, tmp_path) -> None:
    folder, run, _, _ = with_opinion
    for file in (MODEL_CONFIG_FILE, MODEL_WEIGHTS_FILE):
        shutil.copy(folder / file, tmp_path / file)
    stored = {
        name: one
        for name, one in load_file(tmp_path / MODEL_WEIGHTS_FILE).items()
        if not name.startswith("opinion.")
    }
    save_file(stored, tmp_path / MODEL_WEIGHTS_FILE)
    sheet = read_json(tmp_path / MODEL_CONFIG_FILE)
    digest = hashlib.sha256((tmp_path / MODEL_WEIGHTS_FILE).read_bytes()).hexdigest()
    (tmp_path / MODEL_CONFIG_FILE).write_text(dump_json(sheet | {"weights": digest}))
    model = load_model(tmp_path, "cpu")
    read = model.features(list(run.loop.table.path))
    assert model.opinion is read.frozen is None
    said = model.method.predict(torch.from_numpy(read.features))
    assert list(model.place(read).category_id) == [model.ids[c] for c in said.category]


def test_settings_within_settings_come_back() -> None:
    import dataclasses

    config = METHODS["rpc"].Config()
    config.pairing.filter, config.pairing.mu = "none", 5
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    assert from_dict(METHODS["rpc"].Config, stored, every=False) == config


# -- folders that are not what they should be -------------------------------------------------------------


def test_a_folder_without_a_model_is_one_sentence(tmp_path) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        load_model(tmp_path / "absent")
    with pytest.raises(InputError, match="holds no trained model"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weights": "0"}, "is not the one that model.json was written with"),
        ({"digest": "0"}, "its weights differ"),
        ({"method_name": "nonsense"}, "There is no method"),
        ({"method": {"nonsense": 1}}, "nonsense is not known"),
    ],
)
def test_a_model_of_something_else_is_one_sentence(copied, change, says) -> None:
    sheet = read_json(copied / MODEL_CONFIG_FILE)
    (copied / MODEL_CONFIG_FILE).write_text(json.dumps({**sheet, **change}))
    with pytest.raises(InputError, match=says):
        load_model(copied, "cpu")


def test_damaged_files_are_one_sentence(copied) -> None:
    (copied / MODEL_WEIGHTS_FILE).write_bytes(b"half")
    with pytest.raises(InputError, match="cannot be read"):
        load_model(copied, "cpu")
    (copied / MODEL_CONFIG_FILE).write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        load_model(copied, "cpu")
    (copied / MODEL_CONFIG_FILE).write_text("[]")
    with pytest.raises(InputError, match="cannot be read"):
        load_model(copied, "cpu")


def test_a_backbone_that_is_gone_is_one_sentence(copied) -> None:
    sheet = read_json(copied / MODEL_CONFIG_FILE)
    sheet["backbone"]["name"] = str(copied / "gone.safetensors")
    (copied / MODEL_CONFIG_FILE).write_text(json.dumps(sheet))
    with pytest.raises(InputError, match="There is no backbone file"):
        load_model(copied, "cpu")


def test_a_backbone_that_was_carried_along_lies_beside_the_model(trained, copied, tiny_backbone_file) -> None:
    """On another machine its path is another one; its content is compared as ever."""
    there = trained[0].parent / "elsewhere" / "tiny.safetensors"
    sheet = read_json(copied / MODEL_CONFIG_FILE)
    sheet["backbone"]["name"] = str(there)
    (copied / MODEL_CONFIG_FILE).write_text(json.dumps(sheet))
    with pytest.raises(InputError, match=f"a copy of it into {copied}"):
        load_model(copied)
    shutil.copy(tiny_backbone_file, copied / "tiny.safetensors")
    grey = np.full((1, 32, 32), 128, dtype=np.uint8)
    found, before = (load_model(folder).features(grey).features for folder in (copied, trained[0]))
    np.testing.assert_array_equal(found, before)
    (copied / "tiny.safetensors").write_bytes((copied / "tiny.safetensors").read_bytes() + b" ")
    with pytest.raises(InputError):
        load_model(copied)


MADE = ModelConfig(
    "r-1", ("a", "b"), ("a", "b", "new-01"), "rpc", {"tau": 0.1}, Task(2, 3, 8, 10, 4),
    BackboneConfig("embedded", image_size=32), "d", False, "w",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / MODEL_CONFIG_FILE).write_text(json.dumps(to_dict(MADE)))
    (tmp_path / MODEL_WEIGHTS_FILE).write_bytes(b"")
    return tmp_path


def test_it_comes_back_as_it_was(run: Path) -> None:
    assert ModelConfig.read(run) == MADE
    assert from_dict(ModelConfig, to_dict(MADE)) == MADE


def test_the_licence_of_the_backbone_goes_with_the_model(run: Path) -> None:
    (run / MODEL_CONFIG_FILE).write_text(json.dumps(to_dict(MADE) | {"licence": "dinov3-license"}))
    assert ModelConfig.read(run).licence == "dinov3-license"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 0}, r"model\.json was written by another version \(format 0, not 1\)"),
        ({"task": {}}, r"model\.json cannot be read \(task\.n_known is missing\)"),
        ({"run_id": None}, "run_id is None, not text"),
        ({"ids": "ab"}, "ids is 'ab', not a list"),
        ({"extra": 1}, "extra is not known"),
    ],
)
def test_what_is_not_a_sheet_is_one_sentence(run: Path, change: dict, says: str) -> None:
    (run / MODEL_CONFIG_FILE).write_text(json.dumps(to_dict(MADE) | change))
    with pytest.raises(InputError, match=says) as told:
        ModelConfig.read(run)
    assert "in another folder" in str(told.value)
    assert "\n" not in str(told.value)


def test_a_missing_key_is_told(run: Path) -> None:
    content = to_dict(MADE)
    del content["digest"]
    (run / MODEL_CONFIG_FILE).write_text(json.dumps(content))
    with pytest.raises(InputError, match="digest is missing"):
        ModelConfig.read(run)


@pytest.mark.parametrize("content", ["{", "[]", "3", "{}"])
def test_damage_is_one_sentence(run: Path, content: str) -> None:
    (run / MODEL_CONFIG_FILE).write_text(content)
    with pytest.raises(InputError, match=r"model\.json cannot be read"):
        ModelConfig.read(run)
