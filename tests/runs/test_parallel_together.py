"""Runs made together are the runs made alone, and a resumed run draws from the views it began with."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

import pytest

from holotype.errors import InputError, Stopped
from holotype.models.backbone import load_backbone
from holotype.models.token_cache import CacheViews
from holotype.runs.experiment import Experiment
from holotype.runs.parallel import name_runs, run_together
from holotype.runs.record import Record
from holotype.runs.resolve import default_experiment
from holotype.runs.resources import ResourceCache
from holotype.runs.run import VIEWS_KEY, run_experiment
from holotype.training.loop import Loop
from tests.cli.test_bad_input import pressed
from tests.small_run import set_dotted

CLOCKS = {"seconds": 0.0, "wall_seconds": 0.0, "decode_seconds": 0.0, "cache_seconds": 0.0, "parallel": 0}


@pytest.fixture
def tiny(squares_folder, tiny_backbone_file, tmp_path):
    """A run of a second on 64 squares of 4 classes, 2 of them known."""

    def make(method: str = "simgcd", out: str = "run", **settings) -> Experiment:
        found = default_experiment(method, str(squares_folder / "squares.csv"))
        found.k, found.device, found.progress, found.out = 4, "cpu", False, str(tmp_path / out)
        found.backbone.name = str(tiny_backbone_file)
        found.train.epochs, found.train.batch_size = 2, 16
        found.cache_views, found.memory.cache_dir = "4+2", str(tmp_path / "cache")
        for key, value in settings.items():
            set_dotted(found, key.replace("__", "."), value)
        return found

    return make


def assert_same_run(mine: Path, theirs: Path) -> None:
    for name in ("model.safetensors", "assignments.csv", "cache.json"):
        if (mine / name).exists() or name != "cache.json":
            assert (mine / name).read_bytes() == (theirs / name).read_bytes(), name


def without_clocks(record: Record) -> Record:
    return dataclasses.replace(record, made=dataclasses.replace(record.made, **CLOCKS))


# -- together ---------------------------------------------------------------------------------------------


def test_runs_made_together_are_the_runs_made_alone(tiny):
    """SimGCD draws no strong views; that RPC beside it does makes no other run of it."""
    plans = [("kmeans", 0), ("simgcd", 0), ("simgcd", 1), ("rpc", 0)]
    together = run_together(
        [tiny(method, f"{method}{seed}", seed=seed) for method, seed in plans], ResourceCache()
    )
    assert {record.made.parallel for record in together} == {4}
    for (method, seed), record in zip(plans, together, strict=True):
        alone = run_experiment(tiny(method, f"alone-{method}{seed}", seed=seed))
        assert alone.made.parallel == 1
        assert without_clocks(alone) == without_clocks(record)
        assert_same_run(*(tiny(out=f"{part}{method}{seed}").folder for part in ("", "alone-")))
    assert [record.made.mode for record in together] == ["exact", "cached 4+0", "cached 4+0", "cached 4+2"]


def test_finished_runs_are_not_run_again_and_failed_ones_keep_nobody_from_running(tiny, monkeypatch):
    done = run_experiment(tiny(out="done", cache_views="off"))
    runs = [
        tiny(out="done", cache_views="off"),
        tiny(out="too-large", train__batch_size=65),
        tiny(out="other", seed=1, cache_views="off"),
        tiny(out="diverges", train__lr=1e30, cache_views="off"),
    ]
    first, large, other, diverged = run_together(runs)
    assert first == done
    assert isinstance(large, InputError)
    assert "65" in str(large)
    assert isinstance(diverged, InputError)
    assert (other.identity.seed, other.made.parallel, other.made.mode) == (1, 2, "exact")
    assert (runs[2].folder / "scores.json").exists()

    def fail(*_):
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(Loop, "training", fail)
    assert run_together([runs[0], runs[2]]) == [first, other]


def test_nothing_is_written_through_a_link_in_a_run_folder(tiny, tmp_path):
    """As where runs are made one by one; the others run all the same."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "linked"
    elsewhere.mkdir()
    folder.mkdir()
    (folder / "rest").symlink_to(elsewhere, target_is_directory=True)
    refused, made = run_together([tiny("kmeans", "linked"), tiny("kmeans", "plain", seed=1)], ResourceCache())
    assert "linked/rest is a link to another folder" in str(refused)
    assert isinstance(made, Record)


def test_a_stop_lets_every_run_save_before_it_is_raised(tiny, monkeypatch):
    def make(part: str) -> list[Experiment]:
        return [tiny("kmeans", f"{part}-k"), *(tiny(out=f"{part}-{seed}", seed=seed) for seed in (0, 1))]

    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped) as stopped:
            run_together(make("stopped"))
    told = str(stopped.value)
    assert told.count("epoch 1 of 2, step 1") == 2
    assert "simgcd s0: " in told
    finished = [(run.folder / "scores.json").exists() for run in make("stopped")]
    assert finished == [True, False, False]  # k-means had come to its end
    assert all((run.folder / "state.json").exists() for run in make("stopped")[1:])
    run_together(make("stopped"))
    run_together(make("whole"))
    for mine, theirs in zip(make("stopped"), make("whole"), strict=True):
        assert_same_run(mine.folder, theirs.folder)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("k", 5), ("store", "disk"), ("backbone.train_blocks", 2), ("train.matmul", "highest"), ("devices", 2)],
)
def test_runs_that_cannot_share_are_refused(tiny, setting, value):
    other = tiny(out="other", **{setting.replace(".", "__"): value})
    with pytest.raises(InputError, match="must share data set, backbone"):
        run_together([tiny(), other])


def test_two_runs_in_one_folder_are_refused(tiny):
    with pytest.raises(InputError, match="one folder"):
        run_together([tiny(), tiny(seed=1)])


def test_runs_have_names(tiny):
    assert name_runs([tiny(), tiny("rpc", seed=3)]) == ["simgcd s0", "rpc s3"]
    reading = default_experiment("rpc", "cub", "reading")
    assert name_runs([reading]) == ["rpc@reading s0"]
    assert name_runs([tiny("rpc", label="no-new"), tiny("rpc")]) == ["no-new s0", "rpc s0"]
    same = [tiny(out="a"), tiny(out="b", train__lr=0.3)]
    assert name_runs(same) == [str(run.folder) for run in same]


# -- the token cache of a run -----------------------------------------------------------------------------


def test_the_record_says_which_views_were_drawn(tiny):
    cached, exact = (
        run_experiment(tiny("rpc", "cached")),
        run_experiment(tiny("rpc", "exact", cache_views="off")),
    )
    assert (cached.made.mode, exact.made.mode) == ("cached 4+2", "exact")
    assert (cached.identity.views, exact.identity.views) == ("4+2", "off")
    assert cached.identity.hash != exact.identity.hash
    assert exact.made.cache_seconds == 0
    assert VIEWS_KEY.read(tiny("rpc", "cached").folder / "cache.json") == {"views": "4+2"}
    assert not (tiny("rpc", "exact").folder / "cache.json").exists()
    facts = json.loads((tiny("rpc", "cached").folder / "provenance.json").read_text())
    assert facts["images"].startswith("64 images, ")


def test_a_run_without_the_cache_it_was_asked_for_says_so(tiny, caplog):
    caplog.set_level(logging.INFO, "holotype")
    assert run_experiment(tiny("kmeans", "asked")).made.mode == "exact"
    assert [m for m in caplog.messages if "kmeans" in m and "without the token cache" in m]
    caplog.clear()
    run_experiment(tiny("kmeans", "auto", cache_views="auto"))
    assert not [m for m in caplog.messages if "token cache" in m]


def per_view(tiny) -> float:
    """GB that one view of every image takes."""
    experiment = tiny()
    tokens = load_backbone(experiment.backbone)
    return 64 * 2 * (1 + (tokens.image_size // 16) ** 2 + 1) * tokens.dim / 1e9


def test_a_run_stopped_and_resumed_under_a_smaller_budget_draws_the_same_views(tiny, monkeypatch, tmp_path):
    """20+10 views fit at first and not any more: the cache moves to a file, and the run ends as if nothing had been."""
    views = {"cache_views": "20+10", "store": "disk"}
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped):
            run_experiment(tiny("rpc", "stopped", **views))
    small = {"memory__host_gb": 12 * per_view(tiny), "memory__cache_dir": str(tmp_path / "elsewhere")}
    resumed = run_experiment(tiny("rpc", "stopped", **views, **small))
    whole = run_experiment(tiny("rpc", "whole", **views))
    assert without_clocks(resumed) == without_clocks(whole)
    assert (resumed.made.mode, resumed.identity.views) == ("cached 20+10", "20+10")
    assert_same_run(tiny(out="stopped").folder, tiny(out="whole").folder)


def test_a_run_that_began_with_fewer_views_keeps_to_them(tiny, monkeypatch, tmp_path):
    """The other way round: views shrank at first, and there is more room when the run goes on."""
    views = {"cache_views": "20+10", "store": "disk"}
    small = {"memory__host_gb": 12 * per_view(tiny), "memory__cache_dir": str(tmp_path / "small")}
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped):
            run_experiment(tiny("rpc", "stopped", **views, **small))
    resumed = run_experiment(tiny("rpc", "stopped", **views))
    whole = run_experiment(tiny("rpc", "whole", **views, **small))
    assert without_clocks(resumed) == without_clocks(whole)
    kept = CacheViews.parse(resumed.identity.views)
    assert 4 <= kept.weak < 20
    assert_same_run(tiny(out="stopped").folder, tiny(out="whole").folder)
    # asked for the same, got something else: another identity, never averaged with its brothers
    brother = run_experiment(tiny("rpc", "brother", seed=1, **views))
    assert (brother.made.mode, resumed.made.mode) == ("cached 20+10", f"cached {kept}")
    assert (brother.identity.views, resumed.identity.views) == ("20+10", str(kept))
    assert brother.identity.hash != resumed.identity.hash
    whole_brother = dataclasses.replace(brother.identity, views=str(kept))
    assert whole_brother.hash == resumed.identity.hash
    # and the folder goes on being that of what was asked for
    again = run_experiment(tiny("rpc", "stopped", **views))
    assert again == resumed


@pytest.mark.parametrize("content", ['{"views": "many"}', "{}", "[]", "3"])
def test_views_that_cannot_be_read_are_refused(tiny, content):
    tiny().folder.mkdir()
    (tiny().folder / "cache.json").write_text(content)
    with pytest.raises(InputError, match=r"cache\.json cannot be read \(it "):
        run_experiment(tiny())
