"""How long, on what and how often a discovery is trained, and several trainings that place the images together."""

import itertools
import json
import logging
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery import training_plan
from holotype.discovery.dry_run import Throughput
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import Round, choose_seeds, read_round_config
from holotype.discovery.round_runner import make_experiment
from holotype.discovery.training_plan import (
    CPU,
    GPU,
    Effort,
    applicable_methods,
    default_trainings,
    draw_sample,
    pick_preset,
    pick_views,
    plan_length,
    plan_training,
    spread_epochs,
    with_few_labels,
)
from holotype.errors import InputError, Stopped
from holotype.export.assign import load_corrected
from holotype.methods import METHODS, Stage
from holotype.models.backbone import load_backbone
from holotype.results.discovery import Discovery
from holotype.runs.experiment import default_experiment, stages_of
from holotype.runs.model_io import load_model
from holotype.runs.resources import RunData
from tests.cli.test_bad_input import pressed
from tests.training.stubs import STUBS


def make_table(n_a: int, n_b: int, n_unlabelled: int) -> Table:
    label = np.array(["a"] * n_a + ["b"] * n_b + [""] * n_unlabelled, dtype=object)
    return Table(np.array([f"{i}.png" for i in range(len(label))], dtype=object), label, ("a", "b"))


def test_training_counts_steps_and_a_cache_is_used_where_it_saves_work() -> None:
    for device, largest in (("cpu", 64), ("cuda", 128)):
        for n in (8, 50, 1_000, 5_000, 200_000):
            plan = plan_length(n, 1_000, device)
            per_epoch = n // plan.batch_size
            assert per_epoch >= 1
            assert 1_000 <= plan.epochs * per_epoch < 1_000 + per_epoch
            assert plan.batch_size <= largest
    assert pick_views(10**6, 100, "cpu") == "4+2"  # a CPU never runs the trunk in every step
    found = [pick_views(n, 6_000 * 128 * 3, "cuda") for n in (5_000, 100_000, 200_000)]
    assert found == ["16+8", "4+2", "off"]


def test_a_sample_keeps_the_shares_and_every_class() -> None:
    small = make_table(5, 5, 20).with_problems(["broken", *[""] * 29])
    assert draw_sample(small, 100, 0).tolist() == list(range(1, 30))
    table = make_table(2_000, 12, 8_000)
    rows = draw_sample(table, 1_000, 0)
    target = table.target[rows]
    assert (target == 0).sum() == 200
    assert (target == 1).sum() == 10  # a twelfth would be one or two
    assert abs((target == -1).sum() - 800) <= 1
    assert (np.diff(rows) > 0).all()
    assert (draw_sample(table, 1_000, 0) == rows).all()
    assert (draw_sample(table, 1_000, 1) != rows).any()


@pytest.mark.parametrize("method", METHODS)
def test_all_stages_together_take_the_epochs_that_were_planned(method: str) -> None:
    for device, epochs in itertools.product(("cpu", "cuda"), (6, 37, 250)):
        stages = stages_of(default_experiment(method, "images", pick_preset(method, device)))
        found = spread_epochs(epochs, stages)
        assert sum(stage.length(found) for stage in stages) <= epochs
        assert not stages or sum(stage.length(found + 1) for stage in stages) > epochs


@pytest.mark.parametrize(
    ("labelled", "k", "target"), [(2, 8, "collection"), (3, 8, "uniform"), (3, 4, "collection")]
)
def test_the_share_of_labels_decides_what_is_balanced(labelled: int, k: int, target: str) -> None:
    """Of 80 images 20 are of two known classes among 8 categories, and 40 where there are 4."""
    planned = plan_training(
        "rpc", make_table(labelled, labelled, 80 - 2 * labelled), k, 10, "cpu", BackboneConfig()
    )
    assert planned.method.memax_target == target
    assert with_few_labels(planned).method.memax_target == "collection"
    assert planned.method.memax_target == target


def test_a_cpu_takes_what_costs_less() -> None:
    found = {method: pick_preset(method, "cpu") for method in METHODS}
    assert {method for method in found if found[method] == "light"} == {"gcd", "promptcal", "dccl"}
    assert (found["sptnet"], found["rpc"]) == ("short", "default")
    assert {pick_preset(method, "cuda") for method in METHODS} == {"default"}
    # stages of a fixed length are as short as they can be
    assert spread_epochs(5, [Stage(epochs=9), Stage(share=2.0)]) == 1
    assert spread_epochs(12, [Stage(epochs=4), Stage(share=2.0)]) == 4


# -- an experiment


def test_training_is_what_the_settings_say(round: Round, monkeypatch) -> None:
    experiment = make_experiment(round, round.table, 4, "rpc")
    assert (experiment.method_name, experiment.k, experiment.cache_views) == ("rpc", 4, "4+2")
    assert experiment.folder == round.own
    assert 100 <= experiment.train.epochs * (64 // experiment.train.batch_size) < 110
    monkeypatch.setitem(METHODS, "pictures", STUBS["images"])  # takes images alone
    monkeypatch.setitem(METHODS, "both", STUBS["tokens then images"])
    views = [make_experiment(round, round.table, 4, name).cache_views for name in ("pictures", "both")]
    assert views == ["off", "4+2"]
    named = make_experiment(round, replace(round.table, name="aircraft"), 4, "rpc")  # no benchmark: no recipe
    assert named.dataset == "aircraft"
    for part in ("method", "train", "backbone"):
        assert getattr(named, part) == getattr(experiment, part)


# -- which methods train, and how often


def test_methods_that_can_train_do_and_the_others_say_why_not(squares_folder, tiny_backbone_file) -> None:
    table = load_table(squares_folder / "squares.csv")
    backbone = load_backbone(BackboneConfig(str(tiny_backbone_file)))
    assert applicable_methods(["uno", "rpc"], RunData(table, 4), backbone) == (("uno", "rpc"), [])
    able, (remark,) = applicable_methods(["rpc", "uno"], RunData(table, 2), backbone)  # no new category
    assert (able, remark[:24]) == (("rpc",), "uno does not take part. ")
    with pytest.raises(InputError, match="novel"):
        applicable_methods(["uno"], RunData(table, 2), backbone)


def test_the_number_of_trainings_is_looked_up(monkeypatch) -> None:
    def trainings(device: str, *sizes: int, **settings: object) -> list[int]:
        monkeypatch.setattr(training_plan, "pick_device", lambda _: device)
        config = DiscoverConfig(**{"sample": 10**6, **settings})
        return [default_trainings(config, n) for n in sizes]

    for device, efforts in (("cpu", CPU.efforts), ("cuda:1", GPU.efforts)):
        for effort, (_, n) in efforts.items():
            assert trainings(device, 99, 100, 5_000, effort=effort) == [1, n, n]
    assert trainings("cuda", 200_000) == [1]  # its views are drawn anew in every step
    assert trainings("cpu", 1_000, method="kmeans") == [1]  # nothing is trained


def test_a_later_round_has_as_many_unless_the_settings_differ(run: Path, small, monkeypatch) -> None:
    """The first round had one training, and the collection has grown since."""
    assert read_round_config(run / "rounds" / "1").seeds == [0]
    assert choose_seeds(run, small(seeds=4, seed=2), 1_000) == [2, 3, 4, 5]
    several = ({"steps": 20}, {"method": "rpc"}, {"sample": 500})
    for settings, n in (({}, 1), ({"seed": 3}, 1), *((one, 4) for one in several)):
        assert len(choose_seeds(run, small(**settings), 1_000)) == n
    for module in ("plan", "training_plan"):
        monkeypatch.setattr(f"holotype.discovery.{module}.pick_device", lambda _: "cuda")
    assert len(choose_seeds(run, small(), 1_000)) == GPU.efforts["normal"].trainings


def test_the_pace_of_the_machine_does_not_decide(tmp_path, squares_folder, small, monkeypatch, caplog):
    monkeypatch.setitem(CPU.efforts, "normal", Effort(2, 2))
    monkeypatch.setattr(training_plan, "FEW_IMAGES", 2)
    monkeypatch.setattr("holotype.discovery.dry_run.measure_throughput", lambda *_: Throughput(1e3, 1e3))
    caplog.set_level(logging.INFO)
    table, run = load_table(squares_folder / "squares.csv"), tmp_path / "run"
    assert discover_table(table, small(steps=2), run, progress=False).facts.trainings == (0, 1)
    for text in (caplog.text, (run / "report" / "data.js").read_text(encoding="utf-8")):
        assert "2 trainings vote; --effort changes it." in text


# -- several trainings of a round


@pytest.fixture(scope="module")
def three(squares_folder: Path, tiny_backbone_file: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("three") / "run"
    config = DiscoverConfig(k=4, steps=12, backbone=str(tiny_backbone_file), device="cpu", seeds=3, seed=5)
    discover_table(load_table(squares_folder / "squares.csv"), config, folder, progress=False)
    return folder


def test_all_trainings_are_told_and_one_carries_the_model(three: Path) -> None:
    """On a CPU methods take turns: the first and the third training are RPC's, the second is UNO+'s."""
    found = Discovery.load(three)
    facts = found.facts
    assert (facts.trainings, facts.methods) == ((5, 6, 7), ("rpc", "uno"))
    assert facts.agreement[facts.trainings.index(facts.seed)] == max(facts.agreement)
    assert facts.method == {5: "rpc", 6: "uno", 7: "rpc"}[facts.seed]
    assert type(load_model(three, "cpu").method).__name__ == facts.method.upper()
    assert all(0 <= c.comes_back <= 3 and (c.together <= 1 or c.n == 0) for c in found.categories)
    assert not (three / "rounds" / "1" / "trainings").exists()
    config = (three / "rounds" / "1" / "config.yaml").read_text()
    assert f"seed: {facts.seed}\n" in config
    assert "trainings" not in config
    assert facts.blend
    assert json.loads((three / "scores.json").read_text())["made"]["parallel"] == 3
    # new images are placed by the model and the second opinion, mostly where those of the run lie
    trained = load_model(three, "cpu")
    placed = load_corrected(three, trained).place(trained.features(found.images.path))
    same = (placed.category_id == found.images.category_id.to_numpy()).mean()
    assert same == pytest.approx(max(facts.agreement), abs=0.1)  # labels have the last word in the run
    curve = np.array(facts.calibration_curve)
    assert not len(curve) or (np.diff(curve[:, 1]) >= 0).all()


def test_a_stopped_round_goes_on_with_as_many(run, squares_folder, small, three, monkeypatch) -> None:
    table = load_table(squares_folder / "squares.csv")

    def ended(request):
        request.number = signal.SIGTERM
        return pressed(request)

    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", ended)
        patch.setitem(CPU.efforts, "normal", Effort(12, 3))
        patch.setattr(training_plan, "FEW_IMAGES", 2)
        with pytest.raises(Stopped) as stop:
            discover_table(table, small(seed=5, sample=64), run, progress=False)
    assert stop.value.number == signal.SIGTERM
    own = run / "rounds" / "2"
    assert read_round_config(own).seeds == [5, 6, 7]
    assert all((own / "trainings" / str(seed) / "state.json").is_file() for seed in (5, 6, 7))
    found = discover_table(table, small(seed=5, sample=64), run, progress=False)
    assert (found.facts.round, found.facts.trainings) == (2, (5, 6, 7))
    whole = Discovery.load(three).images  # its categories may have other names
    named = dict(zip(found.images.category_id, whole.category_id, strict=True))
    assert list(found.images.category_id.map(named)) == list(whole.category_id)
    assert len(set(named.values())) == len(named)
    np.testing.assert_allclose(found.images.probability, whole.probability)


@pytest.mark.parametrize(
    ("settings", "methods", "words", "refused"),
    [
        ({"seeds": 2, "method": "simgcd"}, ("simgcd",), "2 trainings with the seeds 0 to 1, side by side", 0),
        ({"seeds": 2}, ("rpc", "uno"), "2 trainings with the seeds 0 to 1, rpc and uno in turn, side by", 0),
        ({"seeds": 2, "k": 2}, ("rpc",), "2 trainings with", 1),  # UNO+ needs a new category
        # another than the first: not without a word
        ({"seeds": 1, "k": 2, "method": "uno,rpc"}, ("rpc",), "", 1),
        ({"seeds": 1, "k": 2, "method": "rpc,uno"}, ("rpc",), "", 0),
    ],
)
def test_methods_take_turns_as_far_as_they_can(
    settings, methods, words, refused, tmp_path, squares_folder, small, caplog
) -> None:
    caplog.set_level(logging.INFO)
    table = load_table(squares_folder / "squares.csv")
    found = discover_table(table, small(steps=4, **settings), tmp_path / "run", progress=False)
    assert found.facts.methods == methods
    assert found.facts.method in (methods or ("rpc",))
    assert words in caplog.text
    assert caplog.text.count("uno does not take part.") == refused
    if settings["seeds"] == 1:
        assert found.facts.trainings == (0,)
