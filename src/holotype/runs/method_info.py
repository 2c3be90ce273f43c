"""Facts of a method without running it, for the command line and the documents.

All of it stands with the method: card, module docstring, settings and their docstrings, recipes, presets, stages.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holotype.errors import InputError
from holotype.methods import METHODS, Card, Method, Stage, find_method, plugin_names
from holotype.runs.build import stages_of
from holotype.runs.resolve import (
    ANY_DATASET,
    SettingInfo,
    default_experiment,
    describe_settings,
    preset_settings,
)
from holotype.runs.tables import (
    Published,
    PublishedProgress,
    find_published,
    published_progress,
    read_published,
)

NOT_PUBLISHED = "DATASET"
"""A data set for which nobody has a recipe."""
DIFFERS = re.compile(r"^Differs\b", re.MULTILINE)
"""Begins the part of a docstring that says what is not as published."""


@dataclass(frozen=True)
class MethodInfo:
    """The facts of a method."""

    name: str
    """As the command line names it."""
    card: Card | None
    """Its own; None where it has none."""
    computes: str
    """Of its module's docstring: equation and notation, without the first line."""
    differs: str
    """Of its module's docstring: from the line that begins with Differs."""
    title: str
    """The first line of its docstring."""
    stages: tuple[Stage, ...]
    epochs: int
    """Of training by default, all data sets' recipe included."""
    settings: tuple[SettingInfo, ...]
    """Those of the method, by their keys `method.x`."""
    recipes: dict[str, dict[str, Any]]
    """Settings by data set; `*` for all of them."""
    presets: dict[str, dict[str, Any]]
    """Dotted settings by name; `default` has none."""

    @property
    def line(self) -> str:
        """What it does, in one sentence."""
        return first_sentence(self.card.line) if self.card else self.title

    @property
    def cache(self) -> str:
        """In which stages the token cache applies."""
        return recipe_applies([stage.needs == "tokens" for stage in self.stages])

    @property
    def capture(self) -> str:
        """In which stages steps are captured as a CUDA graph."""
        return recipe_applies([stage.capturable for stage in self.stages])


def method_info(name: str) -> MethodInfo:
    """The facts of a method by its name; raises InputError for one that cannot be told."""
    kind = find_method(name)
    if not dataclasses.is_dataclass(getattr(kind, "Config", None)):
        raise InputError(f"The method {name} has no settings to tell: give it a dataclass as `Config`.")
    try:
        experiment = default_experiment(name, NOT_PUBLISHED)
        stages = tuple(stages_of(experiment))
    except InputError:
        raise
    except Exception as error:  # whatever a method of somebody else does when it is built
        raise InputError(
            f"The method {name} cannot be built to be told about ({type(error).__name__}: {error}); mend it first."
        ) from error
    title, computes, differs = split_docstring(docstring(kind))
    return MethodInfo(
        name=name,
        card=vars(kind).get("card"),  # not that of a method that it is built on
        computes=computes,
        differs=differs,
        title=title,
        stages=stages,
        epochs=experiment.train.epochs,
        settings=tuple(row for row in describe_settings(experiment) if row.key.startswith("method.")),
        recipes=dict(vars(kind).get("recipes", {})),
        presets={preset: preset_settings(kind, preset) for preset in kind.presets},
    )


def list_methods() -> list[MethodInfo | InputError]:
    """The methods of the package, then those that installed packages bring; of one that is broken, the sentence."""
    found: list[MethodInfo | InputError] = [method_info(name) for name in METHODS]
    for name in plugin_names():
        try:
            found.append(method_info(name))
        except InputError as error:
            found.append(error)
        except Exception as error:  # importing somebody else's package may do anything
            found.append(
                InputError(f"The method {name} cannot be imported ({type(error).__name__}: {error}).")
            )
    return found


# -- docstrings ---------------------------------------------------------------------------------------


def docstring(kind: type[Method]) -> str:
    """Of the module, which names the paper and shows the equation; of the class where that is silent."""
    module = sys.modules.get(kind.__module__)
    return inspect.cleandoc((module and module.__doc__) or vars(kind).get("__doc__") or "")


def split_docstring(doc: str) -> tuple[str, str, str]:
    """First line, what is computed, and what differs."""
    title, _, rest = doc.partition("\n")
    begin = DIFFERS.search(rest)
    cut = begin.start() if begin else len(rest)
    return title.rstrip("."), rest[:cut].strip("\n"), rest[cut:].strip("\n")


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends one."""
    return re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]


# -- in words -----------------------------------------------------------------------------------------


def recipe_applies(stages: Sequence[bool]) -> str:
    """`yes`, `no`, `stage 1`; a dash where nothing is trained."""
    if not stages:
        return "-"
    if all(stages) or not any(stages):
        return "yes" if all(stages) else "no"
    numbers = [str(number) for number, it_does in enumerate(stages, start=1) if it_does]
    return f"stage{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def stage_names(found: MethodInfo) -> str:
    """`2: warm-up, affinity`; `none` where nothing is trained."""
    names = ", ".join(stage.name for stage in found.stages)
    return f"{len(found.stages)}: {names}" if found.stages else "none"


def stage_line(stage: Stage, epochs: int) -> str:
    """`train: 200 epochs, 2 weak views; from tokens; captured on a GPU`."""
    views = f"{stage.views.weak} weak" + (f" and {stage.views.strong} strong" if stage.views.strong else "")
    takes = "from tokens" if stage.needs == "tokens" else "from whole images"
    how = "captured on a GPU" if stage.capturable else "not captured"
    return f"{stage.name}: {stage.length(epochs)} epochs, {views} views; {takes}; {how}"


def recipe_title(dataset: str) -> str:
    return "all data sets" if dataset == ANY_DATASET else dataset


# -- published ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedScores:
    """What is printed of a method on one data set."""

    dataset: str
    scores: Published
    progress: PublishedProgress | None


def published_rows(name: str) -> list[PublishedScores]:
    """In the order of the printed table; empty for a method that is not in it."""
    found = []
    for dataset in read_published()["main"]["cells"]:
        scores = find_published(name, dataset)
        if scores is not None:
            found.append(PublishedScores(dataset, scores, published_progress(name, dataset)))
    return found
