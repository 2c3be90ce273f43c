"""Settings: text to values and back, YAML, files, help; defaults, recipe, preset and overrides to an experiment."""

import dataclasses
import types
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from holotype.config import parse
from holotype.config.parse import (
    CastError,
    Constraint,
    Count,
    Epochs,
    Factor,
    Gigabytes,
    Seed,
    cast,
    parse_yaml,
    value_text,
    write_yaml,
)
from holotype.config.schema import BackboneConfig, TrainConfig
from holotype.data.datasets.registry import BENCHMARKS
from holotype.errors import InputError
from holotype.methods import METHODS, Method, find_method
from holotype.methods.rpc import RPC
from holotype.methods.simgcd import SimGCD
from holotype.runs import experiment as settings
from holotype.runs.experiment import Experiment, default_experiment, recipe, resolve, setting_values

INF = float("inf")
EVERY = [(name, preset) for name, method in METHODS.items() for preset in method.presets]
Even = Annotated[int, Constraint("even", lambda number: number % 2 == 0)]


@dataclass
class Point:
    x: int = 0
    y: float = 0.5


@pytest.mark.parametrize(
    ("value", "hint", "wanted"),
    [
        ("200", int, 200), (" 7 ", int, 7), ("-3", int, -3), (np.int64(5), int, 5), ("6", Even, 6), (0, Seed, 0),
        ("0.1", float, 0.1), ("1e-4", float, 1e-4), ("3", float, 3.0), (3, float, 3.0), (np.float32(0.5), float, 0.5),
        (".inf", float, INF), ("-.inf", float, -INF), (INF, float, INF), (2.5, Gigabytes | None, 2.5),
        ("true", bool, True), ("False", bool, False), (True, bool, True),
        ("16+8", str, "16+8"), ("null", str, "null"), ("", str, ""), (Path("a/b"), str, "a/b"),
        ("a/b", Path, Path("a/b")), ("null", str | None, None), (None, str | None, None), ("2024", str | None, "2024"),
        ("null", int | None, None), ("5", int | None, 5), ("5", str | int, 5), ("5", float | int, 5),
        ("5.0", float | int, 5.0), ("auto", int | Literal["auto"] | None, "auto"),
        ("4", Count | Literal["auto"] | None, 4), ("high", Literal["high", "low"], "high"), ("2", Literal[1, 2], 2),
        ("true", Literal[True, "auto"], True), ("[1, 2]", tuple[int, ...], (1, 2)), ([1, "2"], tuple[int, ...], (1, 2)),
        ((1, 2), list[int], [1, 2]), ("[]", list[int], []), ("[1, off]", tuple[int, str], (1, "off")),
        ("[0.5, null]", Sequence[float | None], (0.5, None)), ("[[1], [2, 3]]", list[list[int]], [[1], [2, 3]]),
        ([1, "a"], list, [1, "a"]), ({"x": "3"}, Point, Point(3)), (Point(1), Point | None, Point(1)),
        ("null", Point | None, None), ({"a": 1}, dict[str, int], {"a": 1}), (object, Any, object),
    ],
)  # fmt: skip
def test_what_a_setting_takes(value: object, hint: object, wanted: object) -> None:
    found = cast(value, hint)
    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("words", "hint", "values"),
    [
        ("a whole number", int, ["3.0", 3.0, True, "", None, [1]]), ("a whole number", Count, ["nan", "many"]),
        ("a number", float, [True, "nan", float("nan"), 10**400]), ("a number or null", float | None, ["many"]),
        ("a whole number or null", int | None, ["None"]), ("true or false", bool, ["yes", 1]), ("a path", Path, [""]),
        ("text", str, [2024, b"bytes", None]), ("host or disk", Literal["host", "disk"], ["ram"]),
        ("true", Literal[True], [1]), ("a whole number, auto or null", int | Literal["auto"] | None, [True]),
        ("at least 1", Count | Literal["auto"] | None, ["0", 0]), ("at least 1", list[Count], [[0, 2]]),
        ("at most 100,000", Epochs, ["2147483648"]), ("above 0 and at most 100", Factor, [1e9]),
        ("above 0 GB and finite", Gigabytes | None, ["0", "inf"]), ("at least 0 and below 2**63", Seed, [-1, 2**63]),
        ("a list [a whole number, ...]", list[int], ["1, 2", "[1"]), ("a group of settings", Point, [{"x": "a"}]),
        ("a list [a whole number, text]", tuple[int, str], [[1, 2, 3]]), ("of type dict", dict[str, int], ["x"]),
        ("a group of settings or null", Point | None, [{"z": 1}]),
    ],
)  # fmt: skip
def test_what_it_does_not_take(words: str, hint: object, values: list[object]) -> None:
    for value in values:
        with pytest.raises(CastError) as refused:
            cast(value, hint)
        assert str(refused.value) == words, value


def test_in_yaml_values_stay_text() -> None:
    text = "a: off\nb: 1e-4\nc: 2024-01-01\nd: [1, yes]\ne: {f: 0x10}\ng: 'null'\nh: 007\ni: null\nj: ~\nk:"
    found = {"a": "off", "b": "1e-4", "c": "2024-01-01", "d": ["1", "yes"], "e": {"f": "0x10"}, "g": "null"}
    assert parse_yaml(text) == found | {"h": "007", "i": None, "j": None, "k": None}
    assert parse_yaml("one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}")["two"] == {"a": "1", "b": "3"}
    content = {"a": "off", "b": "1e5", "c": "grün", "d": None, "e": {"f": "null x"}, "g": ["yes", "3"]}
    assert parse_yaml(write_yaml(content)) == content


def test_what_is_not_yaml_is_said_on_one_line() -> None:
    wrong = {"a: 1\na: 2": "a stands twice", "t: {b: 1, b: 2}": "b stands twice", "a: [1": "expected"}
    wrong |= {"a: !!int many": "many", "a: !!python/tuple [1]": "python/tuple", "? {a: 1}\n: 2": "unhashable"}
    for text, word in (wrong | {"[" * 1_000: "recursion"}).items():
        with pytest.raises(ValueError, match=word) as refused:
            parse_yaml(text)
        assert "\n" not in str(refused.value)


def test_trees_and_the_folder_of_a_run() -> None:
    assert default_experiment("rpc", "cub", "reading").folder == Path("runs/cub-rpc-reading-s0")
    own = Experiment("my.module:Mine", "data/birds", seed=3)
    assert own.folder == Path("runs/birds-my.module.Mine-default-s3")
    assert dataclasses.replace(own, out="x/y").folder == Path("x/y")
    assert parse.flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {"a.b.c": 1, "a.d": [2], "e": None}
    assert parse.flatten({}) == parse.flatten({"a": {}}) == {}
    assert parse.plain_tree({"a": (1, 2.5), "b": {"c": ("x",)}}) == {"a": [1, 2.5], "b": {"c": ["x"]}}


STRATEGIES = {
    parse.Natural: st.integers(0, 10**6),
    parse.UnitInterval: st.floats(0, 1),
    parse.Positive: st.floats(0, 1e30, exclude_min=True),
    parse.Weight: st.floats(0, 1e30),
    parse.LabelShare: st.floats(0, 1, exclude_min=True),
    parse.SplitSeed: st.integers(0, 2**32 - 1),
    parse.Momentum: st.floats(0, 1, exclude_max=True),
    parse.Cosine: st.floats(-1, 1),
    parse.Factor: st.floats(0, 100, exclude_min=True),
    parse.Epochs: st.integers(1, 100_000),
    parse.Steps: st.integers(1, 1_000_000),
    parse.Side: st.integers(1, 4_096),
    parse.Width: st.integers(0, 100_000),
    parse.LargeInt: st.integers(1, 100_000),
    parse.RepeatCount: st.integers(1, 1_000),
    parse.SmallInt: st.integers(1, 100),
    parse.DeviceName: st.sampled_from(["auto", "cpu", "cuda", "cuda:3", "mps"]),
    Count: st.integers(1),
    Seed: st.integers(0, 2**63 - 1),
    Gigabytes: st.floats(0, exclude_min=True, allow_infinity=False),
    settings.CacheViewsText: st.sampled_from(["auto", "off", "16+8", "2+0"]),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))),
    type(None): st.none(),
}


def values(hint: Any) -> st.SearchStrategy:
    if hint in STRATEGIES:
        return STRATEGIES[hint]
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.tuples(*map(values, get_args(hint)))
    assert get_origin(hint) in (Union, types.UnionType), hint
    may_be_null = type(None) in get_args(hint)
    # as text, nobody can tell the word null from null
    return st.one_of(*map(values, get_args(hint))).filter(lambda value: value != "null" or not may_be_null)


def changes(experiment: Experiment) -> st.SearchStrategy[dict[str, Any]]:
    """Any settings with any values that they may have."""
    fixed = ["method_name", "dataset", "preset"]
    if find_method(experiment.method_name).stages is not Method.stages:
        fixed.append("train.warmup")  # may be refused where stages have a pace of their own
    each = {key: values(hint) for key, _, hint in setting_values(experiment) if key not in fixed}
    return st.fixed_dictionaries({}, optional=each)


@pytest.mark.parametrize(("method", "preset"), EVERY)
@tried(max_examples=tried.default.max_examples // 6)  # of each of two dozen methods and presets
@given(data=st.data())
def test_text_and_files_give_back_every_setting(method: str, preset: str, data, tmp_path_factory) -> None:
    asked = data.draw(changes(default_experiment(method, "cub", preset)))
    found = resolve(method, "cub", preset, asked)
    got = {key: value for key, value, _ in setting_values(found)}
    assert {key: got[key] for key in asked} == asked
    text = {key: value_text(value) for key, value, _ in setting_values(found)}
    assert resolve(method, "cub", preset, text) == found
    file = tmp_path_factory.getbasetemp() / "config.yaml"
    file.write_text(write_yaml(found.as_dict()), encoding="utf-8")
    assert resolve(method, "cub", preset, settings.read_settings(file)) == found


def test_settings_by_name_typed_or_as_text() -> None:
    typed = {"seed": 4, "train.lr": 1e-4, "method.pairing.filter": "none", "k": None, "progress": False}
    found = resolve("rpc", "cub", overrides=typed)
    assert found == resolve("rpc", "cub", overrides={key: value_text(value) for key, value in typed.items()})
    assert (found.seed, found.train.lr, found.method.pairing.filter, found.k) == (4, 1e-4, "none", None)
    found = resolve("rpc", "cub", overrides={"cache-views": "4+2", "memory.host-gb": 3, "out": Path("a/b")})
    assert (found.cache_views, found.memory.host_gb, found.out) == ("4+2", 3.0, "a/b")
    own = BackboneConfig("x.safetensors")
    grouped = {"train": {"epochs": 3}, "method": {"new": {"sharpen": "2"}}, "backbone": own}
    one, other = (resolve("rpc", "cub", overrides=grouped) for _ in range(2))
    assert (one.train.epochs, one.train.batch_size, one.method.new.sharpen) == (3, 128, 2.0)
    one.train.epochs, one.method.ova.weight, one.backbone.name = 1, 9.0, "mine"  # nobody else's
    assert (other.train.epochs, other.method.ova.weight, other.backbone) == (3, 0.005, own)
    assert own.name == "x.safetensors"

    # names may stand among the overrides if they say the same
    found = resolve("rpc", "cub", "reading", {"seed": 3})
    assert resolve("rpc", "cub", "reading", found.as_dict()) == found
    for key in ("method_name", "dataset", "preset"):
        with pytest.raises(InputError, match=f"{key} is given twice"):
            resolve("rpc", "cub", "reading", {key: "other"})


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        *(("train.epochs", value, "a whole number") for value in ("many", 2.5, [1, 2], None)),
        *((key, 0, "at least 1") for key in ("train.batch-size", "devices", "k")),
        ("train.lr", "inf", "above 0 and at most 1e+30"),
        ("k", "all", "a whole number, auto or null"),
        *(("device", v, "auto, cpu, mps, cuda, or cuda:1 for the second GPU") for v in ("tpu", "cpu:1")),
        *(("cache_views", v, "auto, off, or weak") for v in ("16", "0+2", "1+8", "abc", "16+8+1", "")),
    ],
)
def test_a_value_that_a_setting_cannot_have(key: str, value: object, rule: str) -> None:
    with pytest.raises(InputError) as refused:
        resolve("rpc", "cub", overrides={key: value})
    assert str(refused.value).startswith(f"{key.replace('-', '_')} must be {rule}")
    assert str(refused.value).endswith(f"not {value!r}.")


def test_a_group_is_no_value() -> None:
    for key, value in (("train", 3), ("method.ova", "null")):
        with pytest.raises(InputError, match=f"{key} is a group of settings, not a value: {value!r}"):
            resolve("rpc", "cub", overrides={key: value})


@dataclasses.dataclass(frozen=True)
class Widths:
    """Of somebody's method."""

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
    rows = {row.key: row for row in settings.describe_settings(found)}
    assert rows["k"][1:3] == ("a whole number (at least 1), auto or null", "null")
    assert rows["train.lr"].group == "Settings of training"
    row = rows["method.widths"]
    assert row[1:3] == ("a list [a whole number, ...]", "[3, 2, 1]")
    assert (row.help, row.group) == ("Width of each layer, 100 % of which learn.", "Of somebody's method")


def test_a_method_without_settings_and_one_whose_types_are_unknown(monkeypatch) -> None:
    plain = type("Plain", (SimGCD,), {"Config": make_dataclass("C", [])})
    monkeypatch.setitem(METHODS, "plain", plain)
    found = resolve("plain", "cub", overrides={"seed": 3, "method": {}})
    assert (found.seed, found.method) == (3, plain.Config())
    assert {row.key for row in settings.describe_settings(found)} == {one[0] for one in setting_values(found)}
    with pytest.raises(InputError, match=r"'method\.lam' is unknown"):
        resolve("plain", "cub", overrides={"method.lam": 1})
    monkeypatch.setattr(plain, "Config", make_dataclass("D", [("a", "Nowhere", 1)]))
    with pytest.raises(InputError, match=r"The types of .*D cannot be read: .*Nowhere"):
        resolve("plain", "cub")


class Mine(METHODS["debgcd"]):
    """Built on a method with recipes."""

    presets: ClassVar = {"default": {}, "brief": {"lam": 0.5, "adl": 7.0, "train.epochs": 20}}
    recipes: ClassVar = {"*": {"train.lr": 0.02, "method.adl": 3.0}, "cub": {"method.adl": 5.0}}


@pytest.fixture
def own_methods(monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "mine", Mine)
    monkeypatch.setitem(METHODS, "heir", type("Heir", (METHODS["debgcd"],), {}))  # without recipes of its own


def test_a_method_brings_recipes_and_presets_and_inherits_none(own_methods) -> None:
    everywhere = default_experiment("mine", "some/folder")
    assert (everywhere.train.lr, everywhere.method.adl) == (0.02, 3.0)
    assert recipe("mine", "cub") == {"train.lr": 0.02, "method.adl": 5.0}  # the data set's own wins
    assert recipe("heir", "cub") == {}
    assert default_experiment("heir", "cub").backbone.train_blocks == 1
    found = resolve("mine", "cub", "brief")
    assert (found.method.lam, found.method.adl, found.train.epochs, found.train.lr) == (0.5, 7.0, 20, 0.02)
    assert resolve("mine", "cub", "brief", {"train.epochs": 3}).train.epochs == 3
    assert resolve("mine", "cub").train.epochs == 200


def test_a_key_that_does_not_exist_is_refused_with_its_place(own_methods, monkeypatch) -> None:
    for place, key, full in (("preset brief of mine", "lamb", "method.lamb"),
                             ("recipe of mine for cub", "method.adk", "method.adk")):  # fmt: skip
        recipes = {"*": {key: 1}} if "recipe" in place else {}
        monkeypatch.setattr(Mine, "recipes", recipes)
        monkeypatch.setattr(Mine, "presets", {"default": {}, "brief": {} if recipes else {key: 1}})
        with pytest.raises(InputError, match=f"The setting '{full}' in the {place} is unknown; did you mean"):
            resolve("mine", "cub", "brief")


EPS = {"cifar10": 1, "cifar100": 4, "imagenet100": 1, "cub": 2, "scars": 1, "aircraft": 1, "herbarium19": 1}
"""SimGCD's weight of the mean-entropy term."""
DEBGCD = """
data set     grad_from_block batch thr  adl sdl
cub          10              128   0.65 4.0 0.005
scars        10              128   0.70 2.0 0.005
aircraft     10              128   0.85 2.0 0.01
cifar10      11              128   0.90 2.0 0.01
cifar100     11              256   0.55 0.5 0.001
imagenet100  11              128   0.85 2.0 0.005
"""
"""The released scripts; a ViT-B has blocks 0 to 11, and those from grad_from_block on learn."""
SCRIPTS = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in DEBGCD.splitlines()[2:]}


def test_simgcd_debgcd_and_rpc_are_set_as_in_their_scripts() -> None:
    for dataset, weight in EPS.items():
        for method in ("simgcd", "debgcd", "sptnet"):
            assert default_experiment(method, dataset).method.memax_weight == weight
    for dataset, (first_block, batch, *own) in SCRIPTS.items():
        found = default_experiment("debgcd", dataset)
        assert (found.backbone.train_blocks, found.train.batch_size) == (12 - first_block, batch)
        assert found.train.lr == pytest.approx(0.1 * batch / 128)
        assert [found.method.threshold, found.method.adl, found.method.sdl] == own
        assert found.train.epochs == 200
        rpc = default_experiment("rpc", dataset)
        assert (rpc.method, rpc.train, rpc.backbone) == (RPC.Config(), TrainConfig(), BackboneConfig())


def test_the_peers_are_set_as_their_scripts_are_known() -> None:
    for dataset in BENCHMARKS:
        fine = dataset in ("cub", "scars", "scars-8137", "aircraft", "herbarium19")
        peers = ("rs", "uno", "gcd", "protogcd")
        rs, uno, gcd, protogcd = (default_experiment(name, dataset) for name in peers)
        rate = 0.01 if dataset == "fashion-sample" else 0.001 if fine else 0.1
        assert (rs.train.lr, rs.train.weight_decay) == (rate, 1e-4)
        assert (uno.train.lr, uno.train.weight_decay, uno.train.batch_size) == (0.1, 1e-4, 128)
        assert (gcd.train.lr, gcd.train.weight_decay, gcd.method.proj_out) == (0.1, 5e-5, 65_536)
        generic = dataset.startswith(("cifar", "imagenet"))
        assert protogcd.method.separation == (0.1 if generic else 0.05)
        ramp = (rs.method.ramp * 200, rs.method.consistency)
        assert ramp == ((50, 5) if dataset == "cifar10" else (150, 50))
        assert recipe("kmeans", dataset) == {}
    for part, whole in (("cifar100-200", "cifar100"), ("scars-8137", "scars")):
        assert all(recipe(method, part) == recipe(method, whole) for method in METHODS)
        assert recipe("debgcd", part)


def written(folder: Path, text: str) -> Path:
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    return folder / "config.yaml"


def test_a_file_is_read_as_people_mean_it(tmp_path) -> None:
    text = "method_name: rpc\ncache-views: off\nout: 2024\ntrain: {lr: 1e-4, epochs: 1_000}\nk:\n"
    found = {"method_name": "rpc", "cache_views": "off", "out": "2024", "train.lr": 1e-4}
    found |= {"train.epochs": 1000, "k": None, "method.ova.weight": 2.0}
    assert settings.read_settings(written(tmp_path, text + "method: {ova: {weight: 2}}\n")) == found
    file = written(tmp_path, "method: {n_init: 3}")  # whose method is not named
    assert settings.read_settings(file) == {"method.n_init": "3"}
    assert settings.read_settings(file, "kmeans") == {"method.n_init": 3}
    assert resolve("kmeans", "cub", overrides=settings.read_settings(file)).method.n_init == 3
    with pytest.raises(InputError, match=r"'method\.n_init' in .*config\.yaml is unknown"):
        settings.read_settings(file, "simgcd")
    with pytest.raises(InputError, match="is a group of settings"):
        resolve("kmeans", "cub", overrides=settings.read_settings(written(tmp_path, "method: 3")))


def test_what_is_wrong_with_a_file_names_the_file(tmp_path) -> None:
    wrong = {
        "train: {epoch: 3}": "The setting 'train.epoch' in {} is unknown; did you mean train.epochs",
        "train: 3": "train in {} is a group of settings, not a value: '3'",
        "train: {epochs: many}": "train.epochs in {} must be a whole number, not 'many'",
        "seed: [1, 2]": r"seed in {} must be a whole number, not \['1', '2'\]",
        "method_name:": "method_name in {} must be text, not None",
        "- 1": "{} must hold settings as `name: value`",
        "a: {b": "{} is not valid YAML",
    }
    for text, sentence in wrong.items():
        file = written(tmp_path, text)
        with pytest.raises(InputError, match=sentence.replace("{}", str(file))):
            settings.read_settings(file)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="is not valid YAML"):
        settings.read_settings(tmp_path / "binary.yaml")
    with pytest.raises(InputError, match=r"cnfig\.yaml cannot be read: No such file .*did you mean .*config"):
        settings.read_settings(tmp_path / "cnfig.yaml")


HARMLESS = {
    *("seed", "protocol.split_seed", "train.eval_every", "method.max_iter"),  # it costs nothing
    *("k", "devices", "backbone.train_blocks"),  # refused where it is known how many there are
    *("train.batch_size", "train.shards"),  # no more than there are images
    "method.strongest",  # of the numbers of a feature
    *("method.queue", "method.memory", "method.neighbours"),  # of images
    *("method.smallest", "method.recluster", "method.turn"),  # a threshold
    *("method.teacher_warmup", "method.ramp_epochs"),  # of the epochs that there are
}
"""Whole numbers that may be as large as anybody likes: each was tried with 2,147,483,648."""


@pytest.mark.parametrize(("method", "preset"), EVERY)
def test_every_setting_has_help_and_every_number_a_range(method: str, preset: str) -> None:
    """0, -1 and inf are refused where they are none; a slip of the finger neither trains for years nor fills memory."""
    experiment = default_experiment(method, "images", preset)
    rows, checked_elsewhere = settings.describe_settings(experiment), ("backbone.mean", "backbone.std")
    hints = {key: hint for key, _, hint in setting_values(experiment)}
    assert {row.key for row in rows} == set(hints)
    for row in rows:
        assert row.help.endswith((".", "(docs/how-many.md).")), row
        assert len(row.help) > 10, row
        assert "of type" not in row.type, row
        assert row.group, row
        assert "(" in row.type or "number" not in row.type or row.key in checked_elsewhere, row
        if row.key not in HARMLESS and ("Annotated[int" in str(hints[row.key]) or hints[row.key] is int):
            with pytest.raises(InputError, match=f"{row.key} must be at most"):
                resolve(method, "images", overrides={row.key: 2**31})
