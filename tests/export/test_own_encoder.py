"""A method that makes its own encoder, from training on tokens and images to new images: all go through `embed`."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from holotype.data.load import load_table
from holotype.errors import InputError
from holotype.export.onnx import compare_outputs, export_onnx, parity_sample
from holotype.methods import METHODS, Method
from holotype.models.backbone import load_backbone
from holotype.results.discovery import RunFacts
from holotype.runs.experiment import default_experiment
from holotype.runs.model_io import load_model
from holotype.runs.predict import RoundContext, fit_lda_of, place_images
from holotype.runs.resources import ResourceCache, RunData
from holotype.runs.run import Run, begin_run, finish_run
from holotype.training.encoder import Encoder
from small_run import frozen_features
from tests.export.test_onnx import TorchSession
from tests.training.stubs import ClustersAtTheEnd, TokensThenImages

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
    folder, run, _, record = trained_run
    trained = load_model(folder, "cpu")
    parity = compare_outputs([parity_sample(trained, 5, 0)], TorchSession(trained))
    assert parity.sound
    assert parity.features < 1e-4
    assert record.made.mode == "cached 4+0 3 epochs, images 2 epochs"
    assert record.made.epochs == 5
    assert record.identity.views == "4+0"
    stored = json.loads((folder / "scores.json").read_text())
    assert stored["made"]["mode"] == record.made.mode
    assert run.loop.position.counter == 5 * run.loop.steps


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
