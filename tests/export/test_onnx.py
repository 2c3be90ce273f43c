"""The ONNX file says what torch says, for any number of images, and knows its categories."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from export.made_results import edit
from holotype.cli import run_command
from holotype.errors import InputError
from holotype.export import onnx as module
from holotype.export.assign import load_corrected
from holotype.export.onnx import CHECKED_IMAGES, OnnxModel, ParitySample, compare_outputs, export_onnx
from holotype.methods import Prediction
from holotype.methods.debgcd import DebGCD
from holotype.models.zoo import import_timm
from holotype.runs.model_io import TrainedModel, load_model
from small_run import RUN_ID, small_discovery, train_small

command = partial(run_command, "export")

METHODS = ["rpc", "rpc with an opinion", "debgcd", "simgcd", "kmeans"]


@pytest.fixture(scope="module")
def trained_by(tmp_path_factory, squares_folder, tiny_backbone_file):
    """The run folder of a method, trained once."""
    folders: dict[str, Path] = {}

    def train(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("run")
            method, _, opinion = name.partition(" ")
            how = {"epochs": 1, "opinion": bool(opinion)}
            train_small(folders[name], squares_folder, tiny_backbone_file, method, **how)
        return folders[name]

    return train


@pytest.fixture
def run(trained_by) -> Path:
    return trained_by("simgcd")


@pytest.fixture
def runtime():
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    return pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


class TorchSession:
    """Runs the graph that is exported, without ONNX."""

    def __init__(self, trained: TrainedModel) -> None:
        self.model = OnnxModel(trained)

    @torch.no_grad()
    def run(self, names: list[str], given: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [out.numpy() for out in self.model(torch.from_numpy(given["images"]))]


def test_a_rotary_network_becomes_a_graph_too(runtime, squares_folder, tmp_path) -> None:
    """Its positions are a table here, and its class token is the only row of the last block."""
    from safetensors.torch import save_file

    small = {"embed_dim": 48, "depth": 2, "num_heads": 3}
    torch.manual_seed(0)
    network = import_timm().create_model("vit_small_patch16_dinov3", img_size=32, num_classes=0, **small)
    told = {"timm": "vit_small_patch16_dinov3.lvd1689m", "image_size": "32", "settings": json.dumps(small)}
    save_file(network.state_dict(), tmp_path / "rotary.safetensors", metadata=told)
    train_small(tmp_path / "run", squares_folder, tmp_path / "rotary.safetensors", "simgcd", epochs=1)
    parity = export_onnx(tmp_path / "run", tmp_path / "model.onnx")
    assert max(parity.features, parity.probability) < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_onnx_places_images_as_torch_does(method, trained_by, runtime, squares_folder, tmp_path) -> None:
    run = trained_by(method)
    assert export_onnx(run, tmp_path / "model.onnx").sound
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    paths = sorted(str(path) for path in squares_folder.rglob("*.png"))[:7]
    assert len(paths) not in CHECKED_IMAGES  # a batch of a size that the export never saw
    trained = load_model(run, "cpu")
    read = trained.features(paths)
    placed = trained.place(read)
    # The squares are 40 x 40 and the network takes 32 x 32: shorter side to 36, then the middle.
    pixels = [Image.open(p).convert("RGB").resize((36, 36), Image.Resampling.BICUBIC) for p in paths]
    images = np.stack([np.asarray(p)[2:34, 2:34].transpose(2, 0, 1) for p in pixels])
    found, logits = session.run(["features", "logits"], {"images": images})
    assert np.allclose(found, read.features, atol=1e-4)
    p = torch.from_numpy(logits).softmax(1).numpy()
    told = session.get_modelmeta().custom_metadata_map
    ids = json.loads(told["categories"])
    assert [ids[i] for i in p.argmax(1)] == list(placed.category_id)
    assert np.allclose(p.max(1), placed.probability, atol=1e-4)
    assert (told["run_id"], told["image_size"], json.loads(told["names"])) == (RUN_ID, "32", ids)
    assert "36 pixels" in told["resize"]


def test_the_names_of_today_are_told(run, tmp_path, caplog) -> None:
    """In the order of the logits: merged categories share a name, and a rejected one has none."""
    trained = load_model(run, "cpu")
    found = small_discovery(trained.known, list(trained.ids), trained.run_id)
    one, two = trained.ids[2:4]
    rows = [("rename", "", "red", "crimson"), ("merge", "", one, "red"), ("reject", "", two, ""),
            ("move", "0.png", "green", "limes")]  # fmt: skip
    for file in ("model.json", "model.safetensors"):
        shutil.copy(run / file, tmp_path / file)
    found.save(tmp_path)
    edit(tmp_path, *rows)
    told = module.model_facts(load_corrected(tmp_path, trained))
    assert told["licence"].startswith("unknown Nobody says")  # so that whoever gets the file reads it
    assert json.loads(told["categories"]) == list(trained.ids)
    names = {"green": "green", "red": "crimson", one: "crimson", two: ""}
    assert json.loads(told["names"]) == [names.get(id, id) for id in trained.ids]
    assert json.loads(told["kinds"])[:4] == ["known", "known", "known", ""]
    assert "no logits for what was split off by hand (limes)" in caplog.text


@pytest.mark.parametrize(
    ("features", "logits", "sound"),
    [
        ([[1.0, 2.0]], [[4.0, 0.0]], True),
        ([[1.0, 2.1]], [[4.0, 0.0]], False),
        ([[1.0, 2.0]], [[3.0, 0.0]], False),
        ([[1.0, 2.0]], [[0.0, 4.0]], False),  # as sure of another category
    ],
)
def test_features_category_and_probability_are_compared(features, logits, sound) -> None:
    p = 1 / (1 + np.exp(-4.0))
    one = ParitySample(np.zeros((1, 3, 4, 4)), np.array([[1.0, 2.0]]), np.array([0]), np.array([p]))
    session = SimpleNamespace(run=lambda *_: (np.array(features), np.array(logits)))
    assert compare_outputs([one], session).sound == sound


def by_the_other_head(method: DebGCD, features: Tensor) -> Prediction:
    p = (method.debiased(features) / method.config.tau).softmax(-1)
    probability, category = p.max(-1)
    return Prediction(category, probability, probability)


@pytest.mark.parametrize("other", [False, True])
def test_a_graph_of_another_head_is_not_written(trained_by, tmp_path, monkeypatch, capsys, other) -> None:
    """The logits are those of the classifier, which a method need not place images by."""
    run, file = trained_by("debgcd"), tmp_path / "model.onnx"
    if other:
        monkeypatch.setattr(DebGCD, "predict", by_the_other_head)
    graph, props = SimpleNamespace(SerializeToString=lambda: b"graph"), {}
    helper = SimpleNamespace(set_model_props=lambda _, facts: props.update(facts))
    session = SimpleNamespace(InferenceSession=lambda _: TorchSession(load_model(run, "cpu")))
    monkeypatch.setattr(module, "_packages", lambda: (SimpleNamespace(helper=helper), session))
    monkeypatch.setattr(module, "_trace", lambda *_: graph)
    if other:
        with pytest.raises(InputError, match="may not place images by its classifier alone"):
            export_onnx(run, file)
        assert list(tmp_path.iterdir()) == []
    else:
        assert command([str(run), str(file)]) == 0
        assert file.read_bytes() == b"graph"
        assert "probability of the category" in capsys.readouterr().out
    assert props["run_id"] == RUN_ID


def test_a_bad_name_a_file_of_others_and_what_is_no_graph_are_refused(run, tmp_path, monkeypatch) -> None:
    def fails(*_, **__):
        raise RuntimeError(
            "You marked batch as dynamic\n  but your code specialized it to be a constant (2)."
        )

    file = tmp_path / "model.onnx"
    monkeypatch.setattr(module, "_packages", lambda: (None, None))
    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(InputError, match=r"does not end in \.onnx"):
        export_onnx(run, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"SimGCD cannot be written as ONNX.*a constant") as refused:
        export_onnx(run, file)
    assert "\n" not in str(refused.value)
    assert not file.exists()
    file.write_bytes(b"of somebody else")
    with pytest.raises(InputError, match="--overwrite"):
        export_onnx(run, file)
    assert file.read_bytes() == b"of somebody else"
    file.unlink()
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'holotype\[onnx\]'"):
        export_onnx(run, tmp_path / "model.onnx")
