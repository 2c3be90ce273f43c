"""From names and what somebody asks for to an experiment: order, keys, values, files, help."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

import pytest

from holotype.config.parse import value_text
from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.methods.simgcd import SimGCD
from holotype.runs.resolve import (
    default_experiment,
    describe_settings,
    nearest_setting,
    resolve,
    setting_values,
)

EVERY = [(name, preset) for name, method in METHODS.items() for preset in method.presets]

# -- order --------------------------------------------------------------------------------------------


def test_the_later_one_wins() -> None:
    """Defaults, recipe, preset, overrides."""
    assert resolve("debgcd", "some/folder").method.adl == 1
    assert resolve("debgcd", "cub").method.adl == 4
    assert resolve("rpc", "cub").method.base == "debgcd"
    assert resolve("rpc", "cub", "reading").method.base == "simgcd"
    assert resolve("rpc", "cub", "reading", {"method.base": "debgcd"}).method.base == "debgcd"
    with pytest.raises(InputError, match="simgcd has no preset 'reading'; its presets are default, as_run"):
        resolve("simgcd", "cub", "reading")


def test_settings_by_name_typed_or_as_text() -> None:
    typed = {"seed": 4, "train.lr": 1e-4, "method.pairing.filter": "none", "k": None, "progress": False}
    found = resolve("rpc", "cub", overrides=typed)
    assert found == resolve("rpc", "cub", overrides={key: value_text(value) for key, value in typed.items()})
    assert (found.seed, found.train.lr, found.method.pairing.filter, found.k) == (4, 1e-4, "none", None)
    unchanged = dataclasses.replace(
        found, seed=0, progress=True, train=default_experiment("rpc", "cub").train, method=None
    )
    assert unchanged == dataclasses.replace(default_experiment("rpc", "cub"), method=None)


def test_dashes_groups_and_paths() -> None:
    found = resolve("rpc", "cub", overrides={"cache-views": "4+2", "memory.host-gb": 3, "out": Path("a/b")})
    assert (found.cache_views, found.memory.host_gb, found.out) == ("4+2", 3.0, "a/b")
    grouped = {
        "train": {"epochs": 3},
        "method": {"new": {"sharpen": "2"}},
        "backbone": BackboneConfig("x.safetensors"),
    }
    found = resolve("rpc", "cub", overrides=grouped)
    assert (found.train.epochs, found.train.batch_size, found.method.new.sharpen) == (3, 128, 2.0)
    assert found.backbone == BackboneConfig("x.safetensors")


def test_what_is_resolved_is_nobody_elses() -> None:
    own = BackboneConfig()
    one, other = (resolve("rpc", "cub", overrides={"backbone": own}) for _ in range(2))
    one.train.epochs, one.method.ova.weight, one.backbone.name = 1, 9.0, "mine"
    assert (other.train.epochs, other.method.ova.weight, other.backbone.name, own.name) == (
        200,
        0.005,
        "embedded",
        "embedded",
    )


def test_names_may_stand_among_the_overrides_if_they_say_the_same() -> None:
    found = resolve("rpc", "cub", "reading", {"seed": 3})
    assert resolve("rpc", "cub", "reading", found.as_dict()) == found
    for key in ("method_name", "dataset", "preset"):
        with pytest.raises(InputError, match=f"{key} is given twice"):
            resolve("rpc", "cub", "reading", {key: "other"})


# -- keys and values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("sed", "seed"),
        ("lr", "train.lr"),
        ("train.lrr", "train.lr"),
        ("epochs", "train.epochs"),
        ("method.sharpen", "method.new.sharpen"),
        ("method.pairing.filtr", "method.pairing.filter"),
        ("train.cache-views", "cache_views"),
        ("k.lr", "train.lr"),
        ("train.lr.x", "train.lr"),
    ],
)
def test_a_key_that_is_not_there_comes_with_the_one_that_was_meant(key: str, meant: str) -> None:
    with pytest.raises(InputError) as refused:
        resolve("rpc", "cub", overrides={key: 1})
    assert str(refused.value) == f"The setting {key.replace('-', '_')!r} is unknown; did you mean {meant}?"


@pytest.mark.parametrize("key", ["", "qwertyuiop", "__class__", "folder", "as_dict"])
def test_a_key_like_no_other(key: str) -> None:
    with pytest.raises(InputError, match=r"is unknown; .* --help lists what there is\."):
        resolve("rpc", "cub", overrides={key: 1})
    assert nearest_setting("lr", ["seed"]) is None


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("train.epochs", "many", "train.epochs must be a whole number, not 'many'."),
        ("train.epochs", 2.5, "train.epochs must be a whole number, not 2.5."),
        ("train.epochs", [1, 2], "train.epochs must be a whole number, not [1, 2]."),
        ("train.epochs", None, "train.epochs must be a whole number, not None."),
        ("train.epochs", True, "train.epochs must be a whole number, not True."),
        ("train.epochs", 0, "train.epochs must be at least 1, not 0."),
        ("train.batch-size", "-1", "train.batch_size must be at least 1, not '-1'."),
        ("train.epochs", 2**31, "train.epochs must be at most 100,000, not 2147483648."),
        ("backbone.image_size", "9" * 30, f"backbone.image_size must be at most 4,096, not '{'9' * 30}'."),
        ("devices", 0, "devices must be at least 1, not 0."),
        ("train.lr", "0", "train.lr must be above 0 and at most 1e+30, not '0'."),
        ("train.lr", "-1e-3", "train.lr must be above 0 and at most 1e+30, not '-1e-3'."),
        ("train.lr", "inf", "train.lr must be above 0 and at most 1e+30, not 'inf'."),
        ("train.momentum", 1.0, "train.momentum must be at least 0 and below 1, not 1.0."),
        ("train.weight_decay", 1e308, "train.weight_decay must be at least 0 and at most 1e+30, not 1e+308."),
        ("train.weight_decay", -0.1, "train.weight_decay must be at least 0 and at most 1e+30, not -0.1."),
        ("train.save_seconds", "-1", "train.save_seconds must be at least 0 and at most 1e+30, not '-1'."),
        ("seed", 2**63, f"seed must be at least 0 and below 2**63, not {2**63}."),
        ("backbone.image_size", 0, "backbone.image_size must be at least 1, not 0."),
        ("k", 0, "k must be at least 1, not 0."),
        ("k", "all", "k must be a whole number, auto or null, not 'all'."),
        ("memory.disk_gb", "nan", "memory.disk_gb must be a number or null, not 'nan'."),
        ("memory.disk_gb", 0, "memory.disk_gb must be above 0 GB and finite, not 0."),
        ("store", "ram", "store must be auto, device, host or disk, not 'ram'."),
        ("progress", 3, "progress must be true or false, not 3."),
        ("device", "tpu", "device must be auto, cpu, mps, cuda, or cuda:1 for the second GPU, not 'tpu'."),
        (
            "device",
            "cpu:1",
            "device must be auto, cpu, mps, cuda, or cuda:1 for the second GPU, not 'cpu:1'.",
        ),
        ("train", 3, "train is a group of settings, not a value: 3."),
        ("method.ova", "null", "method.ova is a group of settings, not a value: 'null'."),
    ],
)
def test_a_value_that_a_setting_cannot_have(key: str, value: object, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        resolve("rpc", "cub", overrides={key: value})
    assert str(refused.value) == sentence


@pytest.mark.parametrize("views", ["16", "0+2", "1+8", "abc", "16+8+1", ""])
def test_cached_views_have_a_form(views: str) -> None:
    with pytest.raises(InputError, match=r"cache_views must be auto, off, or .*16\+8, not"):
        resolve("rpc", "cub", overrides={"cache_views": views})


# -- methods of one's own -----------------------------------------------------------------------------


def test_a_method_without_settings(monkeypatch) -> None:
    monkeypatch.setitem(
        METHODS, "plain", type("Plain", (SimGCD,), {"Config": dataclasses.make_dataclass("C", [])})
    )
    found = resolve("plain", "cub", overrides={"seed": 3, "method": {}})
    assert (found.seed, found.method) == (3, METHODS["plain"].Config())
    assert {row.key for row in describe_settings(found)} == {key for key, _, _ in setting_values(found)}
    with pytest.raises(InputError, match=r"'method\.lam' is unknown"):
        resolve("plain", "cub", overrides={"method.lam": 1})


@dataclasses.dataclass(frozen=True)
class Widths:
    """Settings of a method that somebody wrote."""

    widths: tuple[int, ...] = (8, 4)
    """Width of each layer, 100 % of which learn."""
    names: list[str] = dataclasses.field(default_factory=list)
    """Of the layers."""
    made: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        if len(self.names) > len(self.widths):
            raise ValueError("more names than layers")


def test_frozen_settings_lists_and_rules_of_ones_own(monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "wide", type("Wide", (SimGCD,), {"Config": Widths}))
    found = resolve("wide", "x", overrides={"method.widths": "[3, 2, 1]", "method.names": ["a", "b", "c"]})
    assert found.method == Widths((3, 2, 1), ["a", "b", "c"])
    assert resolve("wide", "x", overrides={"method": {"widths": [1]}}).method == Widths((1,))
    with pytest.raises(InputError, match=r"method\.\* do not go together: more names than layers"):
        resolve("wide", "x", overrides={"method.names": "[a, b, c]"})
    with pytest.raises(InputError, match=r"'method\.made' is unknown"):
        resolve("wide", "x", overrides={"method.made": 1})
    (row,) = (row for row in describe_settings(found) if row.key == "method.widths")
    assert (row.type, row.value) == ("a list [a whole number, ...]", "[3, 2, 1]")
    assert row.help == "Width of each layer, 100 % of which learn."
    assert row.group == "Settings of a method that somebody wrote"


# -- help ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "preset"), EVERY)
def test_every_setting_has_a_sentence_of_help(method: str, preset: str) -> None:
    experiment = default_experiment(method, "cub", preset)
    rows = describe_settings(experiment)
    assert {row.key for row in rows} == {key for key, _, _ in setting_values(experiment)}
    for row in rows:
        assert row.help.endswith(".") or row.help.endswith("(docs/how-many.md)."), row
        assert len(row.help) > 10, row
        assert "of type" not in row.type, row
        assert row.group, row


def test_help_tells_type_default_and_group() -> None:
    rows = {row.key: row for row in describe_settings(resolve("rpc", "cub"))}
    assert rows["k"][1:3] == ("a whole number (at least 1), auto or null", "null")
    assert rows["method.debias.threshold"][1:3] == ("a number (from 0 to 1) or null", "null")
    assert rows["method.debias.threshold"].help.startswith("Smallest classifier probability")
    assert [rows[key].group for key in ("seed", "train.lr", "method.lam", "method.new.tau")] == [
        "Everything that decides a run",
        "Settings of training",
        "Settings of RPC",
        "The relational consistency loss",
    ]


# -- presets of training --------------------------------------------------------------------------------


class Brief(SimGCD):
    """SimGCD with a preset that sets training, too."""

    presets: ClassVar = {"default": {}, "brief": {"lam": 0.5, "train.epochs": 20, "train.lr": 0.02}}


def test_a_preset_sets_training_and_an_override_wins(monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "brief", Brief)
    found = resolve("brief", "cub", "brief")
    assert (found.method.lam, found.train.epochs, found.train.lr) == (0.5, 20, 0.02)
    assert resolve("brief", "cub", "brief", {"train.epochs": 3}).train.epochs == 3
    assert resolve("brief", "cub").train.epochs == 200


@pytest.mark.parametrize(
    ("key", "full", "close"),
    [("lamb", "method.lamb", "method.lam"), ("train.epoch", "train.epoch", "train.epochs")],
)
def test_a_key_of_a_preset_that_does_not_exist_is_refused_with_the_nearest(
    monkeypatch, key, full, close
) -> None:
    monkeypatch.setitem(METHODS, "brief", Brief)
    monkeypatch.setattr(Brief, "presets", {"default": {}, "brief": {key: 1}})
    with pytest.raises(InputError) as refused:
        resolve("brief", "cub", "brief")
    assert f"The setting {full!r} in the preset brief of brief is unknown" in str(refused.value)
    assert close in str(refused.value)


@pytest.mark.parametrize("method", METHODS)
def test_every_number_of_a_method_says_what_it_may_be(method) -> None:
    """A number without a range is one that nobody has thought about: 0, -1 and inf are refused where they are none."""
    for row in describe_settings(default_experiment(method, "images")):
        if "number" in row.type and row.key not in (
            "backbone.mean",
            "backbone.std",
        ):  # config/schema.py looks at these
            assert "(" in row.type, row.key


HARMLESS = {
    **dict.fromkeys(("seed", "train.eval_every", "method.max_iter"), "it costs nothing"),
    **dict.fromkeys(
        ("k", "devices", "backbone.train_blocks"), "refused where it is known how many there are"
    ),
    **dict.fromkeys(("train.batch_size", "train.shards"), "no more than there are images"),
    "method.strongest": "of the numbers of a feature",
    **dict.fromkeys(("method.queue", "method.memory", "method.neighbours"), "of images"),
    **dict.fromkeys(("method.smallest", "method.recluster", "method.turn"), "a threshold"),
    **dict.fromkeys(("method.teacher_warmup", "method.ramp_epochs"), "of the epochs that there are"),
}
"""Whole numbers that may be as large as anybody likes, and why: each was tried with 2,147,483,648."""


@pytest.mark.parametrize("method", METHODS)
def test_an_enormous_whole_number_is_refused_or_harmless(method: str) -> None:
    """A slip of the finger neither trains for years nor fills the memory."""
    for key, _, hint in setting_values(default_experiment(method, "images")):
        if key not in HARMLESS and ("Annotated[int" in str(hint) or hint is int):
            with pytest.raises(InputError, match=f"{key} must be at most"):
                resolve(method, "images", overrides={key: 2**31})
