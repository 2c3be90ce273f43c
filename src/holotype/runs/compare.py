"""Compare the runs of two settings: pairs of equal seeds, intervals, classes, agreement."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from holotype.errors import InputError
from holotype.runs.identity import Identity
from holotype.runs.run_result import RunResult, load
from holotype.runs.tables import SCORE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.95
PER_CENT = 100


@dataclass(frozen=True)
class Comparison:
    """Runs of two settings side by side; scores in per cent, differences as second - first."""

    names: tuple[str, str]
    seeds: tuple[int, ...]
    """Of the pairs."""
    settings: dict[str, tuple[Any, Any]]
    """Parts of the identity that differ, by dotted name; of two methods without the settings of each."""
    scores: pd.DataFrame
    """Rows All, Old, New; columns first, second, difference, and, of several pairs, low, high and p of Student's paired
    t."""
    pairs: pd.DataFrame
    """Differences by seed (row) and score (column)."""
    classes: pd.DataFrame | None
    """kind, n, first, second and difference of each class, means over seeds; None where the truth is not known."""
    agreement: float
    """Share of the images without a label that both place in the same category, after the best matching; the mean over
    the pairs."""


def compare(runs: Sequence[Path | str]) -> Comparison:
    """Compare finished runs of two settings on the same data; the settings of the first run are the first.

    Args:
        runs: Folders of runs. Those that differ in nothing but the seed belong together.

    Raises:
        InputError: Where there are not two settings, no seed in common, or other data.
    """
    if isinstance(runs, str | os.PathLike):
        raise InputError(
            f"One run was given, {os.fspath(runs)!r}, where a list of them is needed; name two or more."
        )
    groups: dict[str, dict[int, RunResult]] = {}
    for run in map(load, dict.fromkeys(map(str, runs))):
        groups.setdefault(run.record.identity.hash, {})[run.record.identity.seed] = run
    if len(groups) != 2:
        what = f"These {len(runs)} runs have {len(groups)} settings"
        raise InputError(f"{what} besides the seed; name runs of two, as runs/a-s0 runs/a-s1 runs/b-s0.")
    first, second = groups.values()
    seeds = tuple(sorted(first.keys() & second.keys()))
    if not seeds:
        raise InputError(f"No seed is in both: {_seeds(first)} against {_seeds(second)}; run the same ones.")
    pairs = [(first[seed], second[seed]) for seed in seeds]
    one, other = pairs[0][0].record.identity, pairs[0][1].record.identity
    if one.data["name"] != other.data["name"]:
        raise InputError(
            f"The runs are of {one.data['name']} and of {other.data['name']}; name runs on the same data."
        )
    if one.data.get("protocol") == other.data.get("protocol") and _labelled(pairs[0][0]) != _labelled(
        pairs[0][1]
    ):
        raise InputError(
            f"The runs are of two data sets called {one.data['name']}, with other images or other labels; name runs on "
            "the same data."
        )
    names = tuple(f"{run.record.identity.method['name']} ({run.record.made.variant})" for run in pairs[0])
    return Comparison(
        names=(names[0], names[1]),
        seeds=seeds,
        settings=differing_settings(one, other),
        scores=_scores(pairs),
        pairs=_pairs(pairs, seeds),
        classes=_classes(pairs),
        agreement=mean(placed_alike(*pair) for pair in pairs),
    )


def differing_settings(one: Identity, other: Identity) -> dict[str, tuple[Any, Any]]:
    """Return the parts in which two identities differ; of two methods without the settings of each."""
    same_method, found = one.method["name"] == other.method["name"], {}
    for key in dict.fromkeys([*one.parts, *other.parts]):
        own = key.startswith("method.") and key != "method.name" and not same_method
        values = one.parts.get(key), other.parts.get(key)
        if key not in ("seed", "data.table", "backbone.digest") and not own and values[0] != values[1]:
            found[key] = values
    return found


def paired_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return low and high of the interval of the mean, and p, by Student's paired t; NaN of fewer than two."""
    if len(differences) < 2:
        return math.nan, math.nan, math.nan
    from scipy.special import stdtr, stdtrit  # scipy.stats takes half a second to import

    middle, error = mean(differences), stdev(differences) / math.sqrt(len(differences))
    reach = float(stdtrit(len(differences) - 1, (1 + LEVEL) / 2)) * error
    p = 2 * float(stdtr(len(differences) - 1, -abs(middle) / error)) if error else math.nan
    return middle - reach, middle + reach, p


def placed_alike(one: RunResult, other: RunResult) -> float:
    """Return the share of images without a label that two runs place alike, after the best matching of categories."""
    import numpy as np
    import pandas as pd
    from scipy.optimize import linear_sum_assignment

    both = one.images.merge(other.images, on="path", suffixes=("", "_other"))
    both = both[(both.label == "") & (both.category_id != "") & (both.category_id_other != "")]
    counts = pd.crosstab(both.category_id, both.category_id_other).to_numpy()
    rows, columns = linear_sum_assignment(-counts)
    return float(np.sum(counts[rows, columns]) / max(len(both), 1))


def _labelled(run: RunResult) -> set[tuple[str, str]]:
    return set(zip(run.images["path"], run.images["label"], strict=True))


def _seeds(runs: dict[int, RunResult]) -> str:
    return ", ".join(map(str, sorted(runs)))


def _score(run: RunResult, name: str) -> float:
    value = getattr(run.record.scores, name)
    return math.nan if value is None else PER_CENT * value


def _pairs(pairs: Sequence[tuple[RunResult, RunResult]], seeds: Sequence[int]) -> pd.DataFrame:
    import pandas as pd

    rows = [{name: _score(b, name) - _score(a, name) for name in SCORE_COLUMNS} for a, b in pairs]
    return pd.DataFrame(rows, index=pd.Index(seeds, name="seed"))


def _scores(pairs: Sequence[tuple[RunResult, RunResult]]) -> pd.DataFrame:
    import pandas as pd

    rows = {}
    for name in SCORE_COLUMNS:
        values = [(_score(a, name), _score(b, name)) for a, b in pairs]
        first, second = (mean(column) for column in zip(*values, strict=True))
        low, high, p = paired_interval([b - a for a, b in values])
        figures = {"first": first, "second": second, "difference": second - first}
        rows[name.title()] = figures | {"low": low, "high": high, "p": p}
    return pd.DataFrame.from_dict(rows, orient="index")


def _classes(pairs: Sequence[tuple[RunResult, RunResult]]) -> pd.DataFrame | None:
    import pandas as pd

    frames = []
    for number, side in enumerate(("first", "second")):
        found = [one for pair in pairs if (one := pair[number].per_class) is not None]
        if not found:
            return None
        every = pd.concat(found).rename(columns={"accuracy": side}).groupby("class", sort=False)
        frames.append(pd.concat([every["kind"].first(), every[["n", side]].mean()], axis=1))
    both = frames[0].join(frames[1][["second"]], how="inner")
    both[["first", "second"]] *= PER_CENT
    return both.assign(difference=both.second - both["first"]).sort_values("difference")
