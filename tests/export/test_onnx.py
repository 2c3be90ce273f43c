"""The ONNX file says what torch says, for any number of images, and knows its categories."""

from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.export.assign import load_corrected
from holotype.export.onnx import (
    CHECKED_IMAGES,
    OnnxModel,
    ParityResult,
    ParitySample,
    compare_outputs,
    export_onnx,
    model_facts,
    parity_sample,
)
from holotype.methods import Prediction
from holotype.methods.debgcd import DebGCD
from holotype.models.zoo import import_timm
from holotype.results.apply_edits import apply_edits
from holotype.results.edits import Edit
from holotype.runs.model_io import TrainedModel, load_model
from small_run import RUN_ID, small_discovery, train_small


@pytest.fixture(scope="module", params=["rpc", "rpc with an opinion", "debgcd", "simgcd", "kmeans"])
def run(request, tmp_path_factory, squares_folder, tiny_backbone_file):
    folder = tmp_path_factory.mktemp("run")
    method, _, opinion = request.param.partition(" ")
    train_small(folder, squares_folder, tiny_backbone_file, method, epochs=1, opinion=bool(opinion))
    return folder


@pytest.fixture
def runtime():
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    return pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


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
    assert parity.sound
    assert max(parity.features, parity.probability) < 1e-5


def test_onnx_places_images_as_torch_does(run, runtime, squares_folder, tmp_path) -> None:
    parity = export_onnx(run, tmp_path / "model.onnx")
    assert parity.sound
    assert max(parity.features, parity.probability) < 1e-3
    assert parity.size > 0
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    paths = sorted(str(path) for path in squares_folder.rglob("*.png"))[:7]
    assert len(paths) not in CHECKED_IMAGES  # a batch of a size that the export never saw
    trained = load_model(run, "cpu")
    read = trained.features(paths)
    placed = trained.place(read)
    # The squares are 40 x 40 and the network takes 32 x 32: shorter side to 36, then the middle.
    from PIL import Image

    pixels = [
        np.asarray(Image.open(p).convert("RGB").resize((36, 36), Image.Resampling.BICUBIC)) for p in paths
    ]
    images = np.stack([p[2:34, 2:34].transpose(2, 0, 1) for p in pixels])
    found, logits = session.run(["features", "logits"], {"images": images})
    assert np.allclose(found, read.features, atol=1e-4)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    told = session.get_modelmeta().custom_metadata_map
    ids = json.loads(told["categories"])
    assert [ids[i] for i in p.argmax(1)] == list(placed.category_id)
    assert np.allclose(p.max(1), placed.probability, atol=1e-4)
    assert (told["run_id"], told["image_size"]) == (RUN_ID, "32")
    assert "36 pixels" in told["resize"]
    assert json.loads(told["names"]) == ids


def test_a_file_of_somebody_else_is_not_replaced(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("holotype.export.onnx._packages", lambda: (None, None))
    (tmp_path / "model.onnx").write_bytes(b"of somebody else")
    with pytest.raises(InputError, match="--overwrite"):
        export_onnx(run, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == b"of somebody else"


def test_the_names_of_today_are_told(run, tmp_path, caplog) -> None:
    """In the order of the logits: merged categories share a name, and a rejected one has none."""
    trained = load_model(run, "cpu")
    found = small_discovery(trained.known, list(trained.ids), trained.run_id)
    one, two = trained.ids[2:4]
    rows = [("rename", "", "red", "crimson"), ("merge", "", one, "red"), ("reject", "", two, "")]
    rows += [("move", "0.png", "green", "limes")]
    made = [Edit(found.run_id, f"t{i}", *row) for i, row in enumerate(rows)]
    for file in ("model.json", "model.safetensors"):
        shutil.copy(run / file, tmp_path / file)
    apply_edits(found, made).discovery.save(tmp_path)
    told = model_facts(load_corrected(tmp_path, trained))
    assert told["licence"].startswith("unknown Nobody says")  # so that whoever gets the file reads it
    assert json.loads(told["categories"]) == list(trained.ids)
    names = {"green": "green", "red": "crimson", one: "crimson", two: ""}
    assert json.loads(told["names"]) == [names.get(id, id) for id in trained.ids]
    assert json.loads(told["kinds"])[:4] == ["known", "known", "known", ""]
    assert "no logits for what was split off by hand (limes)" in caplog.text


def test_the_command_prints_the_difference(run, tmp_path, monkeypatch, capsys) -> None:
    from holotype.cli.export import command

    monkeypatch.setattr("holotype.export.onnx.export_onnx", lambda *_, **__: ParityResult(1e-6, 2e-5, 3.0))
    assert command([str(run), str(tmp_path / "model.onnx")]) == 0
    said = capsys.readouterr().out
    assert "features 1.0e-06" in said
    assert "probability of the category 2.0e-05" in said


def test_what_cannot_be_exported_is_one_sentence(run, runtime, tmp_path, monkeypatch) -> None:
    with pytest.raises(InputError, match=r"written as \.onnx"):
        export_onnx(run, tmp_path / "model.pt")
    with pytest.raises(InputError, match="There is no folder"):
        export_onnx(tmp_path / "absent", tmp_path / "model.onnx")
    monkeypatch.setattr("holotype.export.onnx._trace", lambda *_: runtime_model())
    monkeypatch.setattr("holotype.export.onnx.compare_outputs", lambda *_: ParityResult(0.5, 0.0, 1.0))
    with pytest.raises(InputError, match=r"differs from the trained one \(features by 0\.5"):
        export_onnx(run, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def by_the_other_head(method: DebGCD, features: Tensor) -> Prediction:
    p = (method.debiased(features) / method.config.tau).softmax(-1)
    probability, category = p.max(-1)
    return Prediction(category, probability, probability)


class TorchSession:
    """Runs the graph that is exported, without ONNX."""

    def __init__(self, trained: TrainedModel) -> None:
        self.model = OnnxModel(trained)

    @torch.no_grad()
    def run(self, names: list[str], given: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [out.numpy() for out in self.model(torch.from_numpy(given["images"]))]


def test_the_graph_says_what_predict_says(run) -> None:
    trained = load_model(run, "cpu")
    samples = [parity_sample(trained, n, seed) for seed, n in enumerate((1, 8))]
    assert all(len(np.unique(one.images[i])) > 1 for one in samples for i in range(len(one.images)))
    parity = compare_outputs(samples, TorchSession(trained))
    assert parity.sound
    assert parity.probability < 1e-5


def test_a_graph_of_another_head_is_found_out(
    squares_folder, tiny_backbone_file, tmp_path, monkeypatch
) -> None:
    """The logits are those of the classifier, which a method need not place images by."""
    train_small(tmp_path, squares_folder, tiny_backbone_file, "debgcd", epochs=1)
    monkeypatch.setattr(DebGCD, "predict", by_the_other_head)
    trained = load_model(tmp_path, "cpu")
    assert not compare_outputs([parity_sample(trained, 8, 0)], TorchSession(trained)).sound


def test_a_method_that_places_images_otherwise_is_not_exported(
    runtime, squares_folder, tiny_backbone_file, tmp_path, monkeypatch
) -> None:
    train_small(tmp_path / "run", squares_folder, tiny_backbone_file, "debgcd", epochs=1)
    monkeypatch.setattr(DebGCD, "predict", by_the_other_head)
    with pytest.raises(InputError, match="may not place images by its classifier alone"):
        export_onnx(tmp_path / "run", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


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


def runtime_model():
    """Any ONNX model: one that returns what it is given."""
    from onnx import TensorProto, helper

    one = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", one[:1], one[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_without_the_extra_it_is_one_sentence(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'holotype\[onnx\]'"):
        export_onnx(run, tmp_path / "model.onnx")


def test_what_is_no_graph_is_refused_in_one_sentence(
    squares_folder, tiny_backbone_file, tmp_path, monkeypatch
) -> None:
    def fails(*_, **__):
        raise RuntimeError(
            "You marked batch as dynamic\n  but your code specialized it to be a constant (2)."
        )

    train_small(tmp_path / "run", squares_folder, tiny_backbone_file, "kmeans")
    monkeypatch.setattr("holotype.export.onnx._packages", lambda: (None, None))
    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(InputError, match=r"KMeans cannot be written as ONNX.*a constant") as refused:
        export_onnx(tmp_path / "run", tmp_path / "model.onnx")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "model.onnx").exists()
