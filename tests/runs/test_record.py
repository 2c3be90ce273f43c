"""What a run says of itself: an identity that holds all that decides the weights, and scores made by hand."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from holotype.cluster.evaluate import SCORES, clustering_accuracy, score
from holotype.data.sources import load_table
from holotype.data.store import ImageStore
from holotype.data.table import Table
from holotype.machine.device import Compute
from holotype.machine.memory import MemoryConfig
from holotype.methods import METHODS, Prediction
from holotype.models.cache import CacheViews
from holotype.runs.experiment import Experiment
from holotype.runs.parts import Data
from holotype.runs.provenance import describe
from holotype.runs.record import config_hash, count_placed, identify, make_record, score_held_out, score_table
from holotype.runs.settings import default_experiment
from holotype.train.config import TrainConfig
from holotype.train.sources import evaluation_features
from tests.train.conftest import N_KNOWN, World, draw_squares, tiny_backbone
from tests.train.conftest import world as world  # the fixture of the folder train
from tests.train.stubs import TwoStages

BACKBONE = tiny_backbone()


def flat(tree: dict, prefix: str = "") -> dict:
    found = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def other(value: object) -> object:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value}x"


def small_table(label: str = "a") -> Table:
    columns = [["0.png", "1.png", "2.png"], [label, "b", ""]]
    return Table(*(np.array(x, dtype=object) for x in columns), ("a", "b"), name="three")


def identity_of(
    experiment: Experiment, table: Table | None = None, k: int = 4, views: CacheViews | None = None
) -> dict:
    return identify(experiment, Data(table or small_table(), k), BACKBONE, views)


# -- the identity -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_hash_leaves_out_the_seed_and_nothing_else(method):
    identity = identity_of(default_experiment(method, "cub"))
    before = config_hash(identity)
    assert config_hash({**identity, "seed": 17}) == before
    keys = [key for key in flat(identity) if key != "seed"]
    assert {"table", "k", "dataset", "method_name", "train.lr", "backbone.digest", "cache_views"} <= set(keys)
    for key in keys:
        changed = json.loads(json.dumps(identity))
        *parents, last = key.split(".")
        target = changed
        for parent in parents:
            target = target[parent]
        target[last] = other(target[last])
        assert config_hash(changed) != before, key


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(TrainConfig)])
def test_settings_that_change_no_weight_are_left_out(field):
    experiment = default_experiment("rpc", "cub")
    before = identity_of(experiment)
    setattr(experiment.train, field, other(getattr(experiment.train, field)))
    same = field in ("eval_every", "save_seconds", "eager")
    assert (identity_of(experiment) == before) == same


@pytest.mark.parametrize(
    ("field", "value", "same"),
    [
        ("seed", 5, False),
        ("out", "elsewhere", True),
        ("label", "another-name", True),
        ("progress", False, True),
        ("device", "cpu", True),
        ("devices", 2, True),
        ("root", "elsewhere", True),
        ("store", "disk", True),
        ("memory", MemoryConfig(host_gb=1), True),
    ],
)
def test_where_a_run_takes_place_is_left_out(field, value, same):
    experiment = default_experiment("rpc", "cub")
    before = identity_of(experiment)
    setattr(experiment, field, value)
    assert (identity_of(experiment) == before) == same


def test_data_and_categories_are_part_of_the_identity():
    experiment = default_experiment("simgcd", "cub")
    before = identity_of(experiment)
    assert identity_of(experiment, small_table("b")) != before
    assert identity_of(experiment, k=5) != before
    experiment.method.lam = 0.5
    assert identity_of(experiment) != before
    with_truth = dataclasses.replace(small_table(), truth=np.array(["a", "b", "c"], dtype=object))
    assert identity_of(experiment, with_truth) == identity_of(experiment)


def test_another_token_cache_is_another_configuration():
    experiment = default_experiment("simgcd", "cub")
    views = [None, CacheViews(16, 8), CacheViews(4, 2)]
    assert len({config_hash(identity_of(experiment, views=one)) for one in views}) == 3
    assert identity_of(experiment)["cache_views"] == "off"


def test_an_exact_run_is_called_what_it_was_before_there_was_a_cache():
    """Results of that time stay the results of the same settings."""
    identity = identity_of(default_experiment("simgcd", "cub"))
    assert "eager" not in identity["train"]
    assert config_hash({key: identity[key] for key in identity if key != "cache_views"}) == config_hash(
        identity
    )


def test_a_setting_that_came_later_does_not_rename_old_runs():
    """memax_target joined the methods' settings after results had been recorded."""
    identity = identity_of(default_experiment("simgcd", "fashion-sample"))
    assert identity["method"]["memax_target"] == "uniform"
    before = json.loads(json.dumps(identity))
    del before["method"]["memax_target"]
    assert config_hash(before) == config_hash(identity)
    assert identity["method"]["memax_target"] == "uniform"  # hashing changes nothing
    eased = {**identity, "method": {**identity["method"], "memax_target": "estimated"}}
    assert config_hash(eased) != config_hash(identity)


def test_a_setting_that_is_gone_does_not_rename_old_runs():
    """RPC lost switches after results had been recorded with them."""
    identity = identity_of(default_experiment("rpc", "cub"))
    before = json.loads(json.dumps(identity))
    before["method"] |= {"temps": "simgcd_code", "rho": "ova_ema", "share": "batch"}
    before["method"]["ova"] |= {"mode": "joint", "score": "max", "pretrain_epochs": 20}
    before["method"]["fusion"] = {"space": "proj", "scope": "align_only", "topology": "chain"}
    before["method"]["new"] |= {"norm": "row_softmax", "detach": True}
    assert config_hash(before) == config_hash(identity)
    before["method"]["ova"]["mode"] = "two_stage"
    assert config_hash(before) != config_hash(identity)
    plain = identity_of(default_experiment("simgcd", "cub"))
    assert config_hash({**plain, "method": {**plain["method"], "temps": "simgcd_code"}}) == config_hash(plain)


def test_an_identity_survives_a_file():
    identity = identity_of(default_experiment("rpc", "cub"))
    assert json.loads(json.dumps(identity)) == identity
    assert config_hash(json.loads(json.dumps(identity))) == config_hash(identity)


# -- scores -------------------------------------------------------------------------------------------


def test_without_truth_every_score_is_none():
    nowhere = torch.full((3,), float("nan"))
    found = score_table(small_table(), Prediction(torch.tensor([0, 1, 2]), nowhere, nowhere))
    assert {key: found[key] for key in SCORES} == dict.fromkeys(SCORES)
    assert (found["n"], found["per_class"]) == (0, [])


@pytest.fixture(scope="module")
def trained(world):
    loop = world.loop("kmeans", k=5)
    return loop, loop.fit()


def test_with_truth_the_scores_are_those_of_evaluate(world, trained):
    _, prediction = trained
    assert score_table(world.table, prediction) == score(
        world.table, prediction.category.numpy(), prediction.known_score.numpy()
    )


@pytest.fixture
def held_out_table(world, tmp_path) -> Table:
    """21 of the training images without their labels, and a file among them that is no image."""
    (tmp_path / "broken.png").write_text("no image")
    rows = np.arange(1, 43, 2)
    path = np.array([*world.table.path[rows[:9]], str(tmp_path / "broken.png"), *world.table.path[rows[9:]]])
    truth = [f"colour {row // 12}" for row in rows]
    truth.insert(9, "colour 1")
    blank = np.full(len(path), "", dtype=object)
    return Table(path, blank, world.table.known, truth=np.array(truth, dtype=object), name="held out")


def test_held_out_images_are_scored_as_by_hand(world, trained, held_out_table):
    loop, _ = trained
    source = loop.source
    found = score_held_out(loop, *readable(held_out_table))
    rows = torch.arange(1, 43, 2)
    features = evaluation_features(source, rows)
    true = rows.numpy() // 12
    category = [int(loop.method.predict(feature[None]).category) for feature in features]
    accuracy = clustering_accuracy(true, category, N_KNOWN)
    assert found["n"] == 21  # all but the broken one
    assert (found["all"], found["old"], found["new"]) == (accuracy.all, accuracy.old, accuracy.new)
    known = true < N_KNOWN
    assert found["share_old"] == known.mean()
    assert found["known_accuracy"] == (np.array(category)[known] == true[known]).mean()
    assert "per_class" not in found
    assert loop.source is source  # the loop goes on with its own images


def readable(table: Table) -> tuple[Table, ImageStore]:
    store = ImageStore.decode(list(table.path), 32, progress=False)
    return table.with_problems(store.problem), store


def test_held_out_images_that_cannot_be_read_at_all(trained, tmp_path):
    loop, _ = trained
    (tmp_path / "broken.png").write_text("no image")
    columns = [[str(tmp_path / "broken.png")], [""]]
    test = Table(
        *(np.array(x, dtype=object) for x in columns),
        known=loop.table.known,
        truth=np.array(["colour 0"], dtype=object),
    )
    found = score_held_out(loop, *readable(test))
    assert (found["n"], found["all"]) == (0, None)


# -- the record ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "train_epochs", "epochs"), [("kmeans", 2, 0), ("simgcd", 3, 3), (TwoStages, 9, 2 + 1)]
)
def test_epochs_are_those_of_all_stages(world, method, train_epochs, epochs):
    loop = world.loop(method, epochs=train_epochs)
    assert make(world, loop)["epochs"] == epochs


def make(world: World, loop, **settings) -> dict:
    experiment = default_experiment("simgcd", "some/folder")
    for name, value in settings.items():
        setattr(experiment, name, value)
    data = Data(world.table, 4)
    compute = Compute.on("cpu", "fp32")
    identity = identify(experiment, data, BACKBONE, None)
    facts = describe(BACKBONE, data.table, compute)
    return make_record(experiment, data, BACKBONE, loop, loop.predict(), facts, identity)


def test_a_record_says_what_was_run_and_how_it_was_scored(world):
    loop = world.loop("simgcd")
    found = make(world, loop, seed=3, preset="default")
    assert json.loads(json.dumps(found)) == found
    expected = {
        "method": "simgcd",
        "dataset": "squares",
        "variant": "default",
        "seed": 3,
        "backbone": "tiny",
        "train_blocks": 1,
        "n": 36,
        "selection": "last epoch",
        "scored_on": "unlabelled training images",
        "precision": "fp32",
        "processes": 1,
        "mode": "exact",
        "captured": False,
    }
    assert {key: found[key] for key in expected} == expected
    r = found["share_old"]
    assert found["all"] == pytest.approx(r * found["old"] + (1 - r) * found["new"], abs=1e-12)
    assert sum(entry["n"] for entry in found["per_class"]) == 36
    assert found["config_hash"] == make(world, loop, seed=4)["config_hash"]
    changed = dataclasses.replace(default_experiment("simgcd", "some/folder").train, lr=0.7)
    assert found["config_hash"] != make(world, loop, train=changed)["config_hash"]


def test_a_label_names_the_variant_and_changes_nothing_else(world):
    loop = world.loop("simgcd")
    plain, labelled = make(world, loop), make(world, loop, label="no-new")
    assert (plain["variant"], labelled["variant"]) == ("default", "no-new")
    timeless = {"seconds": 0.0}  # the clock goes on between the two
    assert plain | {"variant": "no-new"} | timeless == labelled | timeless


def test_where_the_unlabelled_images_went():
    """Two known classes; images 0 and 7 do not count, since they are labelled; 5 and 7 cannot be read."""
    label, problem = ["a", *[""] * 6, "b"], ["", "", "", "", "", "cut short", "", "cut short"]
    path = [f"{i}.png" for i in range(8)]
    columns = (np.array(x, dtype=object) for x in (path, label))
    table = Table(*columns, ("a", "b"), problem=np.array(problem, dtype=object))
    category = torch.tensor([0, 1, 0, 5, 5, -1, 2, -1])
    found = count_placed(table, Prediction(category, torch.ones(8), torch.ones(8)))
    assert found == {"known": 2, "novel": 3, "novel_categories": 2, "unreadable": 1}


def test_a_folder_without_truth_gives_a_record_without_scores(world, tmp_path):
    for name in ("a", "b", "unlabelled"):
        (tmp_path / name).mkdir()
        draw_squares(tmp_path / name)
    plain = World(load_table(tmp_path).take(np.arange(0, 144, 3)), world.store)
    found = make(plain, plain.loop("simgcd"))
    assert [found[key] for key in ("all", "old", "new")] == [None] * 3
