"""A trained model comes back from its folder and says of every image what it said before."""

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from holotype.data.image_store import ImageStore
from holotype.errors import InputError
from holotype.runs.model_io import MODEL_CONFIG_FILE, MODEL_WEIGHTS_FILE, load_model
from holotype.utils.serialization import read_json
from small_run import RUN_ID, frozen_features, seen, train_small


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "lda"])
def trained(request, tmp_path_factory, squares_folder, tiny_backbone_file):
    """Folder, run, features and categories of a run, without and with the LDA of a discovery."""
    folder = tmp_path_factory.mktemp("run")
    epochs = 2 if request.param else 8
    places = folder, squares_folder, tiny_backbone_file
    return folder, *train_small(*places, epochs=epochs, opinion=request.param)


@pytest.fixture
def copied(trained, tmp_path) -> Path:
    """The folder, to be damaged."""
    shutil.copytree(trained[0], tmp_path / "run")
    return tmp_path / "run"


def change(folder: Path, **values: Any) -> None:
    (folder / MODEL_CONFIG_FILE).write_text(json.dumps(read_json(folder / MODEL_CONFIG_FILE) | values))


def test_it_says_what_it_said_before(trained) -> None:
    folder, run, features, category = trained
    torch.manual_seed(3)
    state = torch.get_rng_state()
    model = load_model(folder, "cpu")
    assert torch.equal(state, torch.get_rng_state())  # loading leaves the generator alone
    assert (model.run_id, model.known, model.ids[:2]) == (RUN_ID, ("green", "red"), ("green", "red"))
    read = model.features(list(run.loop.table.path))
    assert np.allclose(read.features, features, atol=2e-2)  # the token cache keeps half precision
    assert not any(read.problem)
    placed, before = model.place(read), run.loop.predict()
    assert set(placed.kind) <= {"known", "novel"}
    assert placed.typicality.between(0, 1).all()
    assert placed.fits.mean() > 0.95
    assert np.allclose(placed.known_score, before.known_score, atol=1e-2)
    if model.opinion is None:
        assert (placed.category_id == np.array(model.ids, dtype=object)[category]).mean() > 0.95
        assert np.allclose(placed.probability, before.probability, atol=1e-2)
        return
    # an LDA looks at the backbone as it was, and images lie where the mean of both is largest
    assert np.allclose(read.frozen, frozen_features(run, folder / "embedded"), atol=1e-4)
    assert not np.allclose(read.frozen, read.features, atol=2e-2)  # something was trained
    m = model.method.logits(torch.from_numpy(read.features)).softmax(-1).detach().numpy()
    q = (m + model.opinion.shares(read.frozen)) / 2
    assert list(placed.category_id) == [model.ids[c] for c in q.argmax(1)]
    np.testing.assert_allclose(placed.probability, q.max(1), atol=1e-5)
    with pytest.raises(ValueError, match="frozen"):
        model.place(seen(read.features))
    assert model.alone().features(list(run.loop.table.path[:2])).frozen is None


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


def test_paths_pictures_and_arrays_are_one_and_unread_ones_nowhere(trained, tmp_path, monkeypatch) -> None:
    model, paths = load_model(trained[0], "cpu"), list(trained[1].loop.table.path[:3])
    pictures = [Image.open(path).convert("RGB") for path in paths]
    arrays = np.stack([np.asarray(picture) for picture in pictures])
    by_path, by_picture, by_array = (model.features(x).features for x in (paths, pictures, arrays))
    assert np.array_equal(by_path, by_picture)
    assert np.array_equal(by_path, by_array)
    none = model.features([])
    assert none.features.shape == (0, by_path.shape[1])
    assert (none.frozen is None) == (model.opinion is None)
    monkeypatch.setattr("holotype.runs.model_io.READ_BATCH", 2)  # several parts
    (tmp_path / "broken.png").write_bytes(b"nothing")
    read = model.features([paths[0], tmp_path / "broken.png", paths[1], tmp_path / "absent.png"])
    assert [bool(problem) for problem in read.problem] == [False, True, False, True]
    placed = model.place(read)
    assert (placed.category_id == "").tolist() == (placed.kind == "").tolist() == [False, True, False, True]
    assert placed[["probability", "typicality"]].isna().all(axis=1).tolist() == [False, True, False, True]
    assert not placed.fits[[1, 3]].any()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"weights": "0"}, "is not the one that model.json was written with"),
        ({"digest": "0"}, "is not the one that the model"),
        ({"method_name": "nonsense"}, "There is no method"),
        ({"method": {"nonsense": 1}}, "nonsense is not known"),
        ({"format": 0}, r"model\.json was written by another version \(format 0, not 1\)"),
        ({"task": {}}, r"task\.n_known is missing"),
        ({"run_id": None}, "run_id is None, not text"),
        ({"extra": 1}, "extra is not known"),
    ],
)
def test_a_model_of_something_else_is_one_sentence(copied, changes, says) -> None:
    change(copied, **changes)
    with pytest.raises(InputError, match=says) as told:
        load_model(copied, "cpu")
    assert "\n" not in str(told.value)


def test_damaged_and_missing_files_are_one_sentence(copied, tmp_path) -> None:
    (copied / MODEL_WEIGHTS_FILE).write_bytes(b"half")
    with pytest.raises(InputError, match="cannot be read"):
        load_model(copied, "cpu")
    for content in ("{", "[]", "3", "{}"):
        (copied / MODEL_CONFIG_FILE).write_text(content)
        with pytest.raises(InputError, match=r"model\.json .* another folder"):
            load_model(copied, "cpu")
    (copied / MODEL_CONFIG_FILE).unlink()
    for folder, says in ((tmp_path / "absent", "There is no folder"), (copied, "holds no trained model")):
        with pytest.raises(InputError, match=says):
            load_model(folder)


def test_a_backbone_that_was_carried_along_lies_beside_the_model(trained, copied, tiny_backbone_file) -> None:
    """On another machine its path is another one; its content is compared as ever."""
    backbone = read_json(copied / MODEL_CONFIG_FILE)["backbone"]
    change(copied, backbone=backbone | {"name": str(copied / "elsewhere" / "tiny.safetensors")})
    with pytest.raises(InputError, match=f"There is no backbone file .* a copy of it into {copied}"):
        load_model(copied)
    shutil.copy(tiny_backbone_file, copied / "tiny.safetensors")
    grey = np.full((1, 32, 32), 128, dtype=np.uint8)
    found, before = (load_model(folder).features(grey).features for folder in (copied, trained[0]))
    np.testing.assert_array_equal(found, before)
    (copied / "tiny.safetensors").write_bytes((copied / "tiny.safetensors").read_bytes() + b" ")
    with pytest.raises(InputError):
        load_model(copied)
