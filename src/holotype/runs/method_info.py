"""Facts of a method without running it, for the command line and the documents.

All of it stands with the method: card, module docstring, settings and their docstrings, recipes, presets, stages.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holotype.errors import InputError
from holotype.methods import METHODS, Card, Method, Stage, find_method, plugin_names
from holotype.runs.experiment import (
    Experiment,
    SettingInfo,
    describe_settings,
    preset_settings,
    resolve,
    stages_of,
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


@dataclass(frozen=True)
class MethodInfo:
    """The facts of a method."""

    name: str
    """As the command line names it."""
    card: Card | None
    """Its own; None where it has none."""
    computes: str
    """Of its module's docstring: equation and notation, without the first paragraph."""
    differs: str
    """Of its module's docstring: from the line that begins with Differs."""
    title: str
    """The first paragraph of its docstring."""
    stages: tuple[Stage, ...]
    epochs: int
    """Of training by default, all data sets' recipe included."""
    settings: tuple[SettingInfo, ...]
    """Those of the method, by their keys `method.x`."""
    recipes: dict[str, dict[str, Any]]
    """Settings by data set; `*` for all of them."""
    presets: dict[str, dict[str, Any]]
    """Dotted settings by name; `default` has none."""
    costs: dict[str, str]
    """What a preset costs, in words."""

    @property
    def line(self) -> str:
        """What it does, in one sentence."""
        return re.split(r"(?<=[.!?]) ", self.card.line, maxsplit=1)[0] if self.card else self.title

    @property
    def cache(self) -> str:
        """In which stages the token cache applies."""
        return recipe_applies([stage.needs == "tokens" for stage in self.stages])

    @property
    def capture(self) -> str:
        """In which stages steps are captured as a CUDA graph."""
        return recipe_applies([stage.capturable for stage in self.stages])


def method_info(name: str) -> MethodInfo:
    """Return the facts of a method by its name; raises InputError for one that cannot be told."""
    try:
        kind = find_method(name)
        experiment = resolve(name, NOT_PUBLISHED)
        stages = tuple(stages_of(experiment))
    except InputError:
        raise
    except Exception as error:  # whatever a method of somebody else does when it is imported or built
        raise InputError(f"The method {name} cannot be built ({type(error).__name__}: {error}).") from error
    told = [split_docstring(paper_docstring(part)) for part in kind.parts or (kind,)]
    title, computes, differs = (
        end.join(texts) for end, texts in zip(("; ", "\n\n", "\n\n"), zip(*told, strict=True), strict=True)
    )
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
        costs={preset: preset_cost(name, preset) for preset in kind.presets if stages},
    )


def paper_docstring(kind: type[Method]) -> str:
    """Return the docstring that names the paper and shows the equation: that of its module, or its own."""
    module = sys.modules.get(kind.__module__)
    return inspect.cleandoc((module and module.__doc__) or vars(kind).get("__doc__") or "")


def list_methods() -> list[MethodInfo | InputError]:
    """Return the methods of the package, then those that installed packages bring; of a broken one, the sentence."""
    found: list[MethodInfo | InputError] = []
    for name in (*METHODS, *plugin_names()):
        try:
            found.append(method_info(name))
        except InputError as error:
            found.append(error)
    return found


def split_docstring(doc: str) -> tuple[str, str, str]:
    """Return first paragraph, what is computed, and from a line that begins with Differs on, what is not as
    published."""
    title, _, rest = doc.partition("\n\n")
    computes, *differs = re.split(r"^(?=Differs\b)", rest, maxsplit=1, flags=re.MULTILINE)
    return " ".join(title.split()).rstrip("."), computes.strip("\n"), "".join(differs).strip("\n")


def recipe_applies(stages: Sequence[bool]) -> str:
    """Return `yes`, `no`, `stage 1`; a dash where nothing is trained."""
    if not stages:
        return "-"
    if all(stages) or not any(stages):
        return "yes" if all(stages) else "no"
    numbers = [str(number) for number, it_does in enumerate(stages, start=1) if it_does]
    return f"stage{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def stage_names(found: MethodInfo) -> str:
    """Return `2: warm-up, affinity`; `none` where nothing is trained."""
    names = ", ".join(stage.name for stage in found.stages)
    return f"{len(found.stages)}: {names}" if found.stages else "none"


def stage_line(stage: Stage, epochs: int) -> str:
    """Return `train: 200 epochs, 2 weak views; from tokens; captured on a GPU`."""
    views = f"{stage.views.weak} weak" + (f" and {stage.views.strong} strong" if stage.views.strong else "")
    takes = "from tokens" if stage.needs == "tokens" else "from whole images"
    how = "captured on a GPU" if stage.capturable else "not captured"
    return f"{stage.name}: {stage.length(epochs)} epochs, {views} views; {takes}; {how}"


def view_passes(experiment: Experiment) -> float:
    """Return the views that the trained part sees for each image in a whole training; of whole images as of tokens."""
    stages, epochs = stages_of(experiment), experiment.train.epochs
    return float(sum(stage.length(epochs) * (stage.views.weak + stage.views.strong) for stage in stages))


def preset_cost(name: str, preset: str) -> str:
    """Return what a preset costs beside the default, in words; "" where both train as much."""
    usual, other = (view_passes(resolve(name, NOT_PUBLISHED, one)) for one in ("default", preset))
    if not usual or other == usual:
        return "trains as long as the default"
    return f"{other / usual:.2g} times the views of the default"


def recipe_title(dataset: str) -> str:
    return "all data sets" if dataset == "*" else dataset


def published_rows(name: str) -> list[tuple[str, Published, PublishedProgress | None]]:
    """Return data set, scores and p as printed, in the order of the printed table; empty for a method not in it."""
    printed = ((dataset, find_published(name, dataset)) for dataset in read_published()["main"]["cells"])
    return [(dataset, row, published_progress(name, dataset)) for dataset, row in printed if row is not None]
