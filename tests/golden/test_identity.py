"""The hash that names the runs which may be averaged, of every method with the default settings of a data set.

A function of settings, revisions and ENGINE alone; data and network are stand-ins.
"""

import numpy as np
import pytest

from holotype.data.table import Table
from holotype.models.token_cache import CacheViews
from holotype.runs.experiment import resolve
from holotype.runs.identity import identify
from holotype.runs.resources import RunData

from .product import METHODS, tiny_backbone

DATASETS = ("cub", "cifar100", "fashion-sample", "photos.csv")
"""The last is a collection of somebody's own, for which no recipe is written."""


@pytest.mark.parametrize("dataset", DATASETS)
def test_default_settings_have_the_hashes_that_they_always_had(dataset: str, golden) -> None:
    columns = [["0.png", "1.png", "2.png"], ["a", "b", ""]]
    table = Table(*(np.array(x, dtype=object) for x in columns), ("a", "b"), name=dataset)
    backbone, found = tiny_backbone(), {}
    for method in METHODS:
        experiment = resolve(method, dataset)
        for views in (None, CacheViews(16, 8)):
            identity = identify(experiment, RunData(table, 4), backbone, views)
            found[f"{method} {views or 'exact'}"] = identity.hash
    assert golden("identity", dataset, found) == found
