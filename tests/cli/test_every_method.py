"""Every command works with every method in METHODS, and what does not go together is refused in one sentence."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from holotype.cli import main
from holotype.discovery.estimator import Discoverer
from holotype.discovery.training_plan import CHEAP_PRESETS
from holotype.export.onnx import TRACED_BATCH, OnnxModel, parity_sample
from holotype.methods import METHODS
from holotype.runs.model_io import load_model
from tests.conftest import EACH
from tests.training.stubs import LEARNING

from .conftest import assert_sentence

PRESET = {
    name: next((p for p in CHEAP_PRESETS if p in kind.presets), "default") for name, kind in METHODS.items()
}


@pytest.fixture(scope="module")
def benched(tmp_path_factory, squares_folder, tiny_backbone_file) -> Path:
    """The run folders of all methods, made by one line that asks for cached views and for an estimated k."""
    out = tmp_path_factory.mktemp("bench")
    settings = ["k=auto", "train.epochs=1", "train.batch_size=16", "device=cpu", "uno:method.heads=2"]
    words = ["bench", "--methods", ",".join(f"{name}@{PRESET[name]}" for name in METHODS)]
    words += [word for one in (f"backbone.name={tiny_backbone_file}", *settings) for word in ("--set", one)]
    words += ["--datasets", str(squares_folder / "squares.csv"), "--cache-views", "4+2", "--no-progress"]
    words += ["--out", str(out / "runs"), "--results", str(out / "results")]
    with pytest.MonkeyPatch.context() as patch, (out / "said.txt").open("w") as said:
        patch.setattr(sys, "stderr", said)
        assert main(words) == 0
    return out


def folder_of(benched: Path, name: str) -> Path:
    (found,) = (benched / "runs").glob(f"squares-{name}-{PRESET[name]}-s0-*")
    return found


def test_one_line_benches_all_of_them(benched) -> None:
    table = (benched / "results" / "table.csv").read_text()
    assert all(f"squares,{name},{PRESET[name]}," in table for name in METHODS)
    said = (benched / "said.txt").read_text()
    assert "promptcal cannot use cached views, since all stages take images: exact mode." in said
    assert "Of sptnet, simgcd draws from the token cache, and prompts takes images." in said
    assert said.count("method.memory asks for 4,096 and there are only 64 images") == 1


@pytest.mark.parametrize("name", METHODS)
def test_new_images_are_placed_as_in_training(benched, name, squares_folder, tmp_path, holotype) -> None:
    run, where = folder_of(benched, name), squares_folder / "unlabelled"
    words = ("--out", tmp_path / "placed.csv", "--device", "cpu", "--no-progress")
    assert holotype("assign", run, where, *words).code == 0
    placed, trained = pd.read_csv(tmp_path / "placed.csv"), pd.read_csv(run / "assignments.csv")
    category = dict(zip(trained.path.map(lambda path: Path(path).name), trained.category_id, strict=True))
    assert len(placed) == 3 * EACH
    assert list(placed.category_id) == [category[Path(path).name] for path in placed.path]
    model = load_model(run, "cpu")
    one = where / Path(placed.path[0]).name
    assert list(model.place(model.features([one])).category_id) == [category[one.name]]


@pytest.mark.parametrize("name", METHODS)
def test_its_model_is_one_graph_from_pixels_to_logits(benched, name) -> None:
    """What export hands to ONNX, for any number of images."""
    trained = load_model(folder_of(benched, name), "cpu")
    expected, size = parity_sample(trained, 5, 0), trained.backbone.image_size
    example = torch.zeros(TRACED_BATCH, 3, size, size, dtype=torch.uint8)
    batch = torch.export.Dim("batch", min=1)
    model = OnnxModel(trained).eval()
    graph = torch.export.export(model, (example,), dynamic_shapes=({0: batch},), strict=False).module()
    features, logits = graph(torch.from_numpy(expected.images))
    np.testing.assert_allclose(features.detach().numpy(), expected.features, atol=1e-3)
    p = logits.softmax(-1).max(-1)
    np.testing.assert_array_equal(p.indices.numpy(), expected.category)
    np.testing.assert_allclose(p.values.detach().numpy(), expected.probability, atol=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_a_discovery_takes_the_steps_that_were_planned(name, squares_folder, tiny_backbone_file) -> None:
    paths = sorted(str(path) for path in squares_folder.rglob("*.png"))
    label = [Path(path).parent.name.replace("unlabelled", "") for path in paths]
    found = Discoverer(method=name, steps=8, backbone=str(tiny_backbone_file), device="cpu").fit(paths, label)
    steps = found.discovery_.facts.steps
    assert steps == (8 if name in LEARNING else 0)  # two epochs of four steps, of one stage or of two
    assert found.labels_.shape == (64,)
    given = np.array(label, dtype=object)
    assert (found.labels_[given != ""] == given[given != ""]).all()
    assert found.predict(paths[:1])[0]


def test_uno_needs_a_novel_category(holotype, squares_folder, tiny_flags, tiny_backbone_file, tmp_path):
    told = "UNO+ needs a novel category"
    words = ["--k", 2, "--device", "cpu", "--no-progress", "--out", tmp_path / "run"]
    tiny = ["--method", "uno", "--backbone", tiny_backbone_file]
    assert_sentence(holotype("discover", squares_folder, *tiny, *words), told)
    assert_sentence(holotype("train", "uno", squares_folder, *tiny_flags, *words), told)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "inert"), [("uno", True), ("sptnet", False)])
def test_a_warm_up_that_does_nothing_is_refused_and_the_help_says_so(holotype, name, inert) -> None:
    """UNO, RS+ and DCCL bring a pace of their own; the first stage of SPTNet does not."""
    words = ("train", name, "fashion-sample")
    given = holotype(*words, "--train.warmup", "0.1", "--print_config")
    assert ("Has no effect" in holotype(*words, "--help").out) == inert
    if inert:
        assert_sentence(given, "train.warmup has no effect", name, "leave it out")
        assert holotype(*words, "--train.warmup", "0.05", "--print_config").code == 0  # as config.yaml has it
    else:
        assert given.code == 0


@pytest.mark.parametrize("name", ["sptnet", "simgcd"])
def test_memory_that_runs_out(name, holotype, squares_folder, tiny_flags, tmp_path, monkeypatch) -> None:
    out, loss = tmp_path / "run", METHODS[name].loss

    def fails(self, batch, now):
        if batch.stage == METHODS[name].stages(self)[-1].name and int(now["epoch"]) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return loss(self, batch, now)

    words = ["train", name, squares_folder, *tiny_flags, "--train.epochs", 2, "--train.save_seconds", 0]
    words += ["--preset", PRESET[name], "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr(METHODS[name], "loss", fails)
        outcome = holotype(*words)
    told = "ran out of memory with 16 images in a step; lower --train.batch-size"
    assert_sentence(outcome, told, before="")
    assert ("runs images through the whole network" in outcome.err.splitlines()[-1]) == (name == "sptnet")
    assert (out / "state.json").exists()
    assert holotype(*words).code == 0  # the state that was saved before is sound
