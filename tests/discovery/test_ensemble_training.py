"""Several trainings of a round: they place the images together, one carries the model, and a stop loses nothing."""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import BackboneConfig
from holotype.data.load import load_table
from holotype.discovery.dry_run import Throughput
from holotype.discovery.ensemble_training import (
    applicable_methods,
    choose_trainings,
    default_trainings,
    stored_seeds,
)
from holotype.discovery.pipeline import discover_table
from holotype.errors import InputError, Stopped
from holotype.export.assign import load_corrected
from holotype.models.backbone import Backbone, load_backbone
from holotype.results.discovery import Discovery
from holotype.runs.model_io import load_model
from holotype.runs.resources import RunData
from tests.cli.test_bad_input import pressed


@pytest.fixture(scope="session")
def three(squares_folder: Path, tiny_backbone_file: Path, tmp_path_factory) -> Path:
    from holotype.config.schema import DiscoverConfig

    folder = tmp_path_factory.mktemp("three") / "run"
    config = DiscoverConfig(k=4, steps=12, backbone=str(tiny_backbone_file), device="cpu", seeds=3, seed=5)
    discover_table(load_table(squares_folder / "squares.csv"), config, folder, progress=False)
    return folder


def test_the_number_of_trainings_is_looked_up() -> None:
    assert [default_trainings("cpu", n) for n in (99, 100, 127, 128, 1_500, 5_000)] == [1, 9, 9, 5, 5, 5]
    assert [default_trainings("cuda:1", n) for n in (99, 100, 50_000, 200_000)] == [1, 3, 3, 1]
    assert default_trainings("mps", 1_000) == 1


def test_seeds_and_methods_that_do_not_train_come_before_the_table(tmp_path, small) -> None:
    assert choose_trainings(tmp_path, small(), 1_000) == 5
    assert choose_trainings(tmp_path, small(seeds=4), 1_000) == 4
    assert choose_trainings(tmp_path, small(method="kmeans"), 1_000) == 1
    assert choose_trainings(tmp_path, small(sample=110), 1_000) == 9


@pytest.mark.parametrize("seconds", [1e-9, 1e3])
def test_the_pace_of_the_machine_does_not_decide(
    tmp_path, squares_folder, small, monkeypatch, caplog, seconds: float
) -> None:
    monkeypatch.setattr("holotype.discovery.ensemble_training.TRAININGS", {"cpu": {64: 2}})
    monkeypatch.setattr(
        "holotype.discovery.dry_run.measure_throughput",
        lambda *_: Throughput(seconds, seconds, seconds),
    )
    table, run = load_table(squares_folder / "squares.csv"), tmp_path / "run"
    with caplog.at_level(logging.INFO):
        found = discover_table(table, small(steps=2), run, progress=False)
    assert found.facts.trainings == (0, 1)
    assert "2 trainings vote; --seeds changes it." in caplog.text
    assert "2 trainings vote; --seeds changes it." in (run / "report" / "data.js").read_text(encoding="utf-8")


def test_a_later_round_has_as_many_unless_the_settings_differ(run: Path, small, monkeypatch) -> None:
    """The first round had one training, and the collection has grown since."""
    assert stored_seeds(run / "rounds" / "1") == (0,)
    assert choose_trainings(run, small(), 1_000) == 1
    assert choose_trainings(run, small(steps=20, seed=3), 1_000) == 1
    assert choose_trainings(run, small(method="rpc"), 1_000) == 5
    assert choose_trainings(run, small(sample=500), 1_000) == 5
    monkeypatch.setattr("holotype.discovery.ensemble_training.pick_device", lambda _: "cuda")
    assert choose_trainings(run, small(), 1_000) == 3


def test_all_trainings_are_told_and_one_carries_the_model(three: Path) -> None:
    found = Discovery.load(three)
    assert found.facts.trainings == (5, 6, 7)
    assert found.facts.seed in found.facts.trainings
    best = found.facts.trainings.index(found.facts.seed)
    assert found.facts.agreement[best] == max(found.facts.agreement)
    assert all(0 <= c.comes_back <= 3 and (c.together <= 1 or c.n == 0) for c in found.categories)
    assert not (three / "rounds" / "1" / "trainings").exists()
    config = (three / "rounds" / "1" / "config.yaml").read_text()
    assert f"seed: {found.facts.seed}\n" in config
    assert "trainings" not in config
    assert json.loads((three / "scores.json").read_text())["made"]["parallel"] == 3


def test_methods_take_turns(three: Path) -> None:
    """On a CPU: the first and the third training are RPC's, the second is UNO+'s."""
    facts = Discovery.load(three).facts
    assert facts.methods == ("rpc", "uno")
    assert facts.method == {5: "rpc", 6: "uno", 7: "rpc"}[facts.seed]
    assert load_model(three, "cpu").method.__class__.__name__ == {"rpc": "RPC", "uno": "UNO"}[facts.method]


def test_the_model_that_is_kept_counts_categories_as_the_outcome_does(three: Path) -> None:
    """New images are placed by it and the second opinion: most images of the run lie where these would place them."""
    found, trained = Discovery.load(three), load_model(three, "cpu")
    read = trained.features(found.images.path)
    said = load_corrected(three, trained).place(read)
    same = (said.category_id == found.images.category_id.to_numpy()).mean()
    best = max(found.facts.agreement)
    assert same == pytest.approx(best, abs=0.1)  # labels have the last word in the run
    curve = np.array(found.facts.calibration_curve)
    if len(curve):
        assert (np.diff(curve[:, 1]) >= 0).all()


def test_a_stopped_round_goes_on_with_as_many(run, squares_folder, small, three, monkeypatch) -> None:
    table = load_table(squares_folder / "squares.csv")

    def ended(request):
        request.number = signal.SIGTERM
        return pressed(request)

    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", ended)
        patch.setattr("holotype.discovery.ensemble_training.TRAININGS", {"cpu": {2: 3}})
        with pytest.raises(Stopped) as stop:
            discover_table(table, small(seed=5, sample=64), run, progress=False)
    assert stop.value.number == signal.SIGTERM
    own = run / "rounds" / "2"
    assert stored_seeds(own) == (5, 6, 7)
    assert all((own / "trainings" / str(seed) / "state.json").is_file() for seed in (5, 6, 7))
    found = discover_table(table, small(seed=5, sample=64), run, progress=False)
    assert (found.facts.round, found.facts.trainings) == (2, (5, 6, 7))
    whole = Discovery.load(three).images  # its categories may have other names
    named = dict(zip(found.images.category_id, whole.category_id, strict=True))
    assert list(found.images.category_id.map(named)) == list(whole.category_id)
    assert len(set(named.values())) == len(named)
    np.testing.assert_allclose(found.images.probability, whole.probability)


def test_another_number_of_trainings_is_another_round(tmp_path, squares_folder, small, caplog) -> None:
    table, run = load_table(squares_folder / "squares.csv"), tmp_path / "run"
    first = discover_table(table, small(), run, progress=False)
    assert first.facts.trainings == ()  # 64 images: one
    assert all(c.comes_back == 0 and np.isnan(c.together) for c in first.categories)
    with caplog.at_level(logging.INFO):
        second = discover_table(table, small(seeds=2), run, progress=False)
    assert (second.facts.round, second.facts.trainings) == (2, (0, 1))
    assert "--seeds 2 (was auto)" in caplog.text
    assert "2 trainings with the seeds 0 to 1, rpc and uno in turn, side by side" in caplog.text


def test_one_method_trains_alone_where_it_is_asked_for(tmp_path, squares_folder, small, caplog) -> None:
    with caplog.at_level(logging.INFO):
        table = load_table(squares_folder / "squares.csv")
        found = discover_table(table, small(seeds=2, method="simgcd"), tmp_path / "run", progress=False)
    assert (found.facts.methods, found.facts.method) == (("simgcd",), "simgcd")
    assert "2 trainings with the seeds 0 to 1, side by side" in caplog.text


def test_a_method_that_cannot_train_leaves_its_turns_to_the_others(
    tmp_path, squares_folder, small, caplog
) -> None:
    """UNO+ needs a new category, and here all are known."""
    with caplog.at_level(logging.INFO):
        table = load_table(squares_folder / "squares.csv")
        found = discover_table(table, small(seeds=2, k=2), tmp_path / "run", progress=False)
    assert found.facts.methods == ("rpc",)
    assert caplog.text.count("uno does not take part.") == 1


@pytest.mark.parametrize(("asked", "times"), [("uno,rpc", 1), ("rpc,uno", 0)])
def test_another_method_than_the_first_never_trains_alone_without_a_word(
    tmp_path, squares_folder, small, caplog, asked: str, times: int
) -> None:
    with caplog.at_level(logging.INFO):
        table = load_table(squares_folder / "squares.csv")
        asked_for = small(seeds=1, k=2, method=asked)
        found = discover_table(table, asked_for, tmp_path / "run", progress=False)
    assert found.facts.method == "rpc"
    assert caplog.text.count("uno does not take part.") == times


def test_seeds_that_cannot_be_read_are_one_sentence(tmp_path) -> None:
    (tmp_path / "trainings.json").write_text("{}")
    with pytest.raises(InputError, match=r"trainings.json cannot be read"):
        stored_seeds(tmp_path)
    assert stored_seeds(tmp_path / "elsewhere") is None


# -- Methods that take turns: those that can train do, and the others say why not


@pytest.fixture(scope="module")
def backbone(tiny_backbone_file) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture
def data(squares_folder) -> RunData:
    return RunData(load_table(squares_folder / "squares.csv"), 4)


def test_all_that_can_train_do_in_their_order(data: RunData, backbone: Backbone) -> None:
    assert applicable_methods(["uno", "rpc"], data, backbone) == (("uno", "rpc"), [])


def test_without_a_new_category_uno_leaves_its_turns(data: RunData, backbone: Backbone) -> None:
    able, (remark,) = applicable_methods(["rpc", "uno"], RunData(data.table, 2), backbone)
    assert able == ("rpc",)
    assert remark.startswith("uno does not take part. ")
    assert "2" in remark


def test_different_sizes_are_for_methods_that_can_expect_them(data: RunData, backbone: Backbone) -> None:
    able, remarks = applicable_methods(["rpc", "uno"], data, backbone, long_tail=True)
    assert able == ("rpc",)
    assert remarks == ["uno does not take part. It expects categories of equal size, and those here differ."]


def test_where_none_can_train_the_first_says_why(data: RunData, backbone: Backbone) -> None:
    with pytest.raises(InputError, match="novel"):
        applicable_methods(["uno"], RunData(data.table, 2), backbone)
