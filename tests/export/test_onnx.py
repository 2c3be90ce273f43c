"""The ONNX file says what torch says, for any number of images; so it is where a method makes its own encoder."""

import dataclasses
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
from holotype.data.load import load_table
from holotype.errors import InputError
from holotype.export import onnx as module
from holotype.export.assign import load_corrected
from holotype.export.onnx import (
    CHECKED_IMAGES,
    OnnxModel,
    ParitySample,
    compare_outputs,
    export_onnx,
    parity_sample,
)
from holotype.methods import METHODS, Method, Prediction
from holotype.methods.debgcd import DebGCD
from holotype.models.backbone import load_backbone
from holotype.models.zoo import import_timm
from holotype.results.discovery import RunFacts
from holotype.runs.experiment import default_experiment
from holotype.runs.model_io import TrainedModel, load_model
from holotype.runs.predict import RoundContext, fit_lda_of, place_images
from holotype.runs.resources import ResourceCache, RunData
from holotype.runs.run import Run, begin_run, finish_run
from holotype.training.encoder import Encoder
from small_run import RUN_ID, frozen_features, small_discovery, train_small
from tests.training.stubs import ClustersAtTheEnd, TokensThenImages

command = partial(run_command, "export")


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


@pytest.mark.parametrize("method", ["rpc", "rpc with an opinion", "debgcd", "simgcd", "kmeans"])
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


def test_features_category_and_probability_are_compared() -> None:
    p = 1 / (1 + np.exp(-4.0))
    one = ParitySample(np.zeros((1, 3, 4, 4)), np.array([[1.0, 2.0]]), np.array([0]), np.array([p]))
    # as it is; another feature; less sure; as sure of another category
    for feature, logits, sound in ((2.0, [4.0, 0.0], True), (2.1, [4.0, 0.0], False), (2.0, [3.0, 0.0], False),
                                   (2.0, [0.0, 4.0], False)):  # fmt: skip
        found = np.array([[1.0, feature]]), np.array([logits])
        session = SimpleNamespace(run=lambda *_, found=found: found)
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
        raise RuntimeError("You marked batch as dynamic\n  but your code made it a constant (2).")

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


HALF = np.arange(0, 64, 2)


class Stretched(TokensThenImages):
    """Places images by features that no encoder alone gives."""

    def embed(self, stage, inputs):
        assert stage.name == "prompt" or not self.training
        return 3 * super().embed(stage, inputs)


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory, squares_folder, tiny_backbone_file):
    """Trained on every second square."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "stretched", Stretched)
        folder = tmp_path_factory.mktemp("run")
        whole = load_table(squares_folder / "squares.csv")
        experiment = default_experiment("stretched", "images")
        experiment.k, experiment.device, experiment.progress = 4, "cpu", False
        experiment.out, experiment.backbone.name = str(folder), str(tiny_backbone_file)
        experiment.train.epochs, experiment.train.batch_size = 3, 16
        experiment.cache_views = "4+2"
        run = begin_run(experiment, ResourceCache(data=RunData(whole.take(HALF), 4)))
        assert isinstance(run, Run)
        prediction = run.loop.fit()
        context = RoundContext("own-1", RunFacts(title="squares"), table=whole, rows=HALF)
        placed = place_images(run.loop, prediction, run.prepared, context, folder)
        record = finish_run(run, prediction, 1.0, 1, context)
        yield folder, run, placed, record


def test_the_record_names_both_kinds_of_stages_and_the_exported_graph_is_the_encoder(trained_run) -> None:
    folder, _, _, record = trained_run
    trained = load_model(folder, "cpu")
    parity = compare_outputs([parity_sample(trained, 5, 0)], TorchSession(trained))
    assert parity.sound
    assert parity.features < 1e-4
    assert record.made.mode == "cached 4+0 3 epochs, images 2 epochs"


def test_images_that_were_not_trained_on_go_through_the_methods_own_encoder(trained_run) -> None:
    folder, run, placed, _ = trained_run
    others = np.setdiff1d(np.arange(64), HALF)
    read = load_model(folder, "cpu").features(list(placed.table.path))
    assert np.allclose(read.features[HALF], placed.features[HALF], atol=1e-4)
    assert np.allclose(read.features[others], placed.features[others], atol=1e-4)
    plain = run.loop.method.encoder(torch.zeros(1, 3, 32, 32)).detach().norm()
    assert np.median(np.linalg.norm(placed.features, axis=1)) > 2 * float(plain)  # stretched
    said = run.loop.method.predict(torch.from_numpy(placed.features[others])).category
    assert placed.said.category[others].tolist() == said.tolist()


def test_an_opinion_beside_a_stage_on_images_has_tokens_of_its_own(trained_run, tmp_path) -> None:
    folder, run, placed, _ = trained_run
    trained, embedded = load_model(folder, "cpu"), frozen_features(run, tmp_path)
    own = place_images(run.loop, run.loop.predict(), run.prepared, RoundContext("own-1", RunFacts()), folder)
    frozen = Encoder(load_backbone(run.experiment.backbone), trained.compute)
    asked = dataclasses.replace(trained, opinion=fit_lda_of(own, embedded).kept(), frozen=frozen)
    read = asked.features(list(run.loop.table.path))
    assert np.allclose(read.frozen, embedded, atol=1e-4)
    assert np.allclose(read.features, placed.features[HALF], atol=1e-4)
    samples = [parity_sample(asked, 5, 0)]
    assert compare_outputs(samples, TorchSession(asked)).sound
    assert compare_outputs(samples, TorchSession(trained)).probability > 0.01


def test_a_method_without_logits_is_not_exported(trained_run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("holotype.export.onnx._packages", lambda: (None, None))
    monkeypatch.delattr(TokensThenImages.__mro__[1], "logits")
    assert Stretched.logits is Method.logits is ClustersAtTheEnd.logits
    with pytest.raises(InputError, match="Stretched has no logits, by which an exported model"):
        export_onnx(trained_run[0], tmp_path / "model.onnx")
