"""`Experiment`: everything that decides a run, and `resolve`, which fills it in: defaults, recipe, preset, overrides.

A setting is called by its dotted key: `seed`, `train.epochs`, `method.new.sharpen`. Dashes may stand for underscores.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

import numpy as np
import torch

from holotype.config.parse import (
    CastError,
    Constraint,
    Count,
    DeviceName,
    Seed,
    cast,
    describe_type,
    field_docs,
    first_line,
    flatten,
    parse_yaml,
    value_text,
)
from holotype.config.schema import BackboneConfig, ProtocolConfig, TrainConfig
from holotype.data.datasets.registry import BENCHMARKS
from holotype.data.load import folder_name
from holotype.errors import InputError
from holotype.methods import Method, Stage, Task, check_code_allowed, find_method
from holotype.models.token_cache import CacheViews
from holotype.utils.device import Precision, default_precision, pick_device
from holotype.utils.memory import MemoryConfig
from holotype.utils.text import suggest, suggest_path


def is_cache_views(text: str) -> bool:
    """Return whether text is auto, off or a number of views such as 16+8."""
    try:
        return text in ("auto", "off") or CacheViews.parse(text) is not None
    except InputError:
        return False


CACHE_VIEWS_RULE = "auto, off, or weak + strong views of each image, at least 2 weak ones, as in 16+8"
CacheViewsText = Annotated[str, Constraint(CACHE_VIEWS_RULE, is_cache_views)]


@dataclass
class Experiment:
    """Everything that decides a run."""

    method_name: str
    """Method: a name from `holotype methods`, or one of your own as package.module:Class."""
    dataset: str
    """Data set: the name of a benchmark, or the path of a folder of images or of a CSV or Parquet file."""
    root: str | None = None
    """Folder in which the benchmark lies, in its official layout."""
    labels: str | None = None
    """CSV or Parquet file with the labels of the images, where DATASET is a folder of your own."""
    side: str | None = None
    """Parquet file with the columns path and vector: what a method of your own reads beside each image, such as the
    vector of its caption. Paths are absolute, or from the folder of the images."""
    k: Count | Literal["auto"] | None = None
    """Number of categories, known and novel; a benchmark knows its own. auto estimates it."""
    seed: Seed = 0
    """Seed of everything random in training; the split into labelled and unlabelled images has its own
    (protocol.split_seed)."""
    out: str | None = None
    """Run folder; a run found there is continued. Default: runs/DATASET-METHOD-PRESET-sSEED."""
    preset: str = "default"
    """Named settings of the method; `holotype methods NAME` lists them."""
    label: str | None = None
    """Name of these settings in tables; default: the preset."""
    device: DeviceName = "auto"
    """Where to compute: cpu, mps, cuda, or cuda:1 for the second GPU; auto takes CUDA where there is a GPU."""
    devices: Count = 1
    """Number of processes, one per GPU (or CPU processes); any number gives the same result but for rounding."""
    progress: bool = True
    """Show progress bars."""
    log: str | None = None
    """Trackers that losses and scores go to besides metrics.jsonl: tensorboard (event files in the run folder), wandb;
    several with commas between them."""
    store: Literal["auto", "device", "host", "disk"] = "auto"
    """Where the decoded images lie: in GPU memory, in host memory, or in a memory-mapped file; auto takes the
    fastest place they fit into."""
    cache_views: CacheViewsText = "auto"
    """Token cache: so many fixed views per image, weak + strong, go through the frozen blocks once, as in 16+8.
    off computes every view anew (exact mode); auto is 4+2 on a CPU and off on a GPU."""
    method: Any = None
    """Settings of the method."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Settings of training."""
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """Which images are labelled, and which are scored."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    """The network that turns images into features."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """What images and cached tokens may take."""

    @property
    def folder(self) -> Path:
        if self.out:
            return Path(self.out)
        dataset = self.dataset if self.dataset in BENCHMARKS else folder_name(self.dataset)
        method = self.method_name.removeprefix("__main__:").replace(":", ".")
        return Path("runs") / f"{dataset}-{method}-{self.preset}-s{self.seed}"

    @property
    def variant(self) -> str:
        """What tables call these settings."""
        return self.label or self.preset

    @property
    def precision(self) -> Precision:
        """auto: the usual one of the device."""
        if self.train.precision != "auto":
            return self.train.precision
        return default_precision(pick_device(self.device))

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


RECIPE_PARENT = {"scars-8137": "scars", "cifar100-200": "cifar100"}
"""Parts of a data set, which take its values."""


def recipe(method_name: str, dataset: str) -> dict[str, Any]:
    """Return the dotted settings of a method on a data set, those of all (`*`) first; empty where defaults hold."""
    own = vars(find_method(method_name)).get("recipes", {})  # not those of a method that it is built on
    return {**own.get("*", {}), **own.get(RECIPE_PARENT.get(dataset, dataset), {})}


def preset_settings(kind: type[Method], preset: str) -> dict[str, Any]:
    """Return the dotted settings of a preset: keys of the method's own config, and train.* as they stand."""
    given = kind.presets[preset]
    return {key if key.startswith("train.") else f"method.{key}": value for key, value in given.items()}


def resolve(
    method: str, dataset: str, preset: str = "default", overrides: Mapping[str, Any] | None = None
) -> Experiment:
    """Return the experiment of a method on a data set: defaults, recipe, preset, overrides; the later one wins.

    Args:
        method: A name from `holotype methods`, or package.module:Class.
        dataset: The name of a benchmark, or a path.
        preset: Named settings of the method.
        overrides: Dotted key to value, typed or as text ("200", "true", "null", "16+8"); a whole group may be a
            mapping.

    Raises:
        InputError: For a key that does not exist, and for a value that the setting cannot have.
    """
    kind = find_method(method)
    if preset not in kind.presets:
        near = suggest(preset, kind.presets)
        raise InputError(f"{method} has no preset {preset!r}{near}; it has {', '.join(kind.presets)}.")
    experiment = Experiment(method, dataset, preset=preset, method=kind.Config())
    asked = _check(overrides or {}, experiment)
    for name, value in {"method_name": method, "dataset": dataset, "preset": preset}.items():
        if asked.get(name, value) != value:
            raise InputError(f"{name} is given twice, as {value!r} and {asked[name]!r}; leave one out.")
    usual = _check(recipe(method, dataset), experiment, f" in the recipe of {method} for {dataset}")
    usual |= _check(preset_settings(kind, preset), experiment, f" in the preset {preset} of {method}")
    made: Experiment = _changed(experiment, usual | asked)
    warmup = usual.get("train.warmup", experiment.train.warmup)
    if made.train.warmup != warmup and has_own_pace(made):
        raise InputError(f"train.warmup has no effect on {method}, which has its own pace; leave it out.")
    return made


def check_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return settings by their names, dashes as underscores and arrays as lists."""
    if settings is not None and not (
        isinstance(settings, Mapping) and all(isinstance(key, str) for key in settings)
    ):
        raise InputError(f"settings is {settings!r}; give them by name, as in {{'train.epochs': 20}}.")
    found = ((key.replace("-", "_"), value) for key, value in (settings or {}).items())
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in found}


def default_experiment(method: str, dataset: str, preset: str = "default") -> Experiment:
    """Return the experiment with the data set's recipe and the method's preset filled in."""
    return resolve(method, dataset, preset)


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file, values as text; raises InputError where it cannot be read."""
    try:
        return parse_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}{suggest_path(file)}.") from error
    except ValueError as error:
        raise InputError(f"{file} is not valid YAML: {error}.") from error


def read_settings(file: Path, method: str | None = None) -> dict[str, Any]:
    """Return the dotted settings that a YAML file such as a run's config.yaml holds, keys and values checked.

    method: whose settings the group `method` holds; by default that of the file's own `method_name`. Where neither
    says it, what is in that group is returned as it stands, for `resolve` to check.
    """
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise InputError(f"{file} must hold settings as `name: value`; see holotype train --print-config.")
    name = method or content.get("method_name")
    if not method and isinstance(name, str):
        check_code_allowed(name, file)
    config = find_method(name).Config() if isinstance(name, str) else None
    return flatten(_check(content, Experiment("", "", method=config), f" in {file}"))


T = TypeVar("T")
_toy_methods: dict[str, Method] = {}


def stages_of(experiment: Experiment) -> list[Stage]:
    """Return the stages of a run before it is made: those of its method on a toy task, which are the same."""
    key = repr((experiment.method_name, experiment.method, experiment.train.epochs))
    if key not in _toy_methods:
        task = Task(n_known=2, k=4, dim=8, n_images=16, n_labelled=4, epochs=experiment.train.epochs)
        method = find_method(experiment.method_name)
        _toy_methods[key] = build_on_meta(lambda: method(experiment.method, task))
    return _toy_methods[key].stages()


def has_own_pace(experiment: Experiment) -> bool:
    """Return whether every stage brings a pace of its own, so that the warm-up of training does nothing."""
    if find_method(experiment.method_name).stages is Method.stages:
        return False  # need not be built to know
    paced = [stage.paced for stage in stages_of(experiment)]
    return bool(paced) and all(paced)


def build_on_meta(build: Callable[[], T]) -> T:
    """Return what `build` makes, without weights; with them where it reads some, as a method of others may."""
    with torch.random.fork_rng(devices=[]):  # nobody's generator is to notice
        try:
            with torch.device("meta"):
                return build()
        except InputError:
            raise
        except Exception:  # torch and NumPy each have their own for a value that is not there
            return build()


class SettingInfo(NamedTuple):
    """A setting as its help tells it."""

    key: str
    type: str
    """In words, with the rules that go with it."""
    value: str
    """As text."""
    help: str
    """The docstring below the field; empty where there is none."""
    group: str
    """Title of the group that it stands in."""


def describe_settings(experiment: Experiment) -> list[SettingInfo]:
    """Describe every setting, those of the experiment before those of its groups."""
    rows, name = _describe(experiment, "", first_line(type(experiment))), experiment.method_name
    inert = f"Has no effect: the learning rate of {name} follows a pace of its own."
    idle = "train.warmup" if has_own_pace(experiment) else ""
    return [row._replace(help=inert) if row.key == idle else row for row in rows]


def _describe(target: Any, prefix: str, title: str) -> Iterator[SettingInfo]:
    docs, groups = field_docs(target.__class__), []
    for name, value, hint in _fields(target):
        key, doc = f"{prefix}{name}", docs.get(name, "")
        if _is_group(value):  # of a method, the class says more than the field of the experiment
            groups.append((value, f"{key}.", (first_line(type(value)) if key == "method" else doc) or key))
        else:
            yield SettingInfo(key, describe_type(hint, rules=True), value_text(value), doc, title.rstrip("."))
    for group in groups:
        yield from _describe(*group)


def setting_values(target: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield dotted key, value and type hint of every setting of an experiment, or of another dataclass."""
    for name, value, hint in _fields(target):
        if _is_group(value):
            yield from setting_values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, hint


def nearest_setting(key: str, known: Iterable[str]) -> str | None:
    """Return the key that was probably meant: of the same name in another group, or spelled alike."""
    known = list(known)
    same = [one for one in known if one.rpartition(".")[2] == key.rpartition(".")[2]]
    close = same or difflib.get_close_matches(key, known, n=1)
    return close[0] if close else None


def _check(given: Mapping[Any, Any], experiment: Experiment, where: str = "") -> dict[str, Any]:
    """Return dotted key -> typed value. where: ` in config.yaml`, for sentences about what is wrong."""
    known = {key: hint for key, _, hint in setting_values(experiment)}
    groups = {group for key in known for group in accumulate(key.split(".")[:-1], "{}.{}".format)}
    found = {}

    def walk(tree: Mapping[Any, Any], prefix: str) -> None:
        for name, value in tree.items():
            key = prefix + str(name).replace("-", "_")
            if key in groups or value == {}:  # a method may have no settings
                if _is_group(value):
                    value = {name: one for name, one, _ in _fields(value)}
                if not isinstance(value, Mapping):
                    raise InputError(f"{key}{where} is a group of settings, not a value: {value!r}.")
                walk(value, f"{key}.")
            elif key in known:
                try:
                    found[key] = cast(value, known[key])
                except CastError as error:
                    raise InputError(f"{key}{where} must be {error}, not {value!r}.") from error
            else:
                meant = nearest_setting(key, known)
                listed = "holotype train METHOD DATASET --help lists them."
                hint = f"did you mean {meant}?" if meant else listed
                raise InputError(f"The setting {key!r}{where} is unknown; {hint}")

    walk(given, "")
    return found


def _changed(target: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """Return a copy with some settings changed, all at once: a dataclass may be frozen, or check them when made."""
    changes = {}
    for name, value, _ in _fields(target):
        key = f"{prefix}{name}"
        if _is_group(value):
            changes[name] = _changed(value, values, f"{key}.")
        elif key in values:
            changes[name] = values[key]
    try:
        return dataclasses.replace(target, **changes)
    except ValueError as error:
        raise InputError(f"The settings {prefix}* do not go together: {error}.") from error


def _fields(target: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and type hint of the fields that can be set."""
    hints = _hints(target.__class__)
    for one in dataclasses.fields(target):
        if one.init:
            yield one.name, getattr(target, one.name), hints[one.name]


def _is_group(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        where = f"{kind.__module__}:{kind.__qualname__}"
        raise InputError(f"The types of {where} cannot be read: {error}; import them there.") from error
