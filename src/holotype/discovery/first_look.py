"""A first gallery: k-means on the frozen features, written before training begins, for whoever waits for its end.

    L = sum_i || f_i - c(i) ||^2   over unit features f; labelled images stay with the centre of their class

Semi-supervised k-means (Vaze et al., CVPR 2022), one start. It says nothing of how sure it is; the round replaces it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from holotype.clustering.kmeans import semi_supervised_centres
from holotype.data.table import Table
from holotype.utils.serialization import write_parquet

FIRST_LOOK_FILE = "first_look.parquet"
CLUSTERED = 20_000
"""Images that centres are found with, at most, drawn at random; the others go to the nearest one."""
LOOK = "look-{:02d}"
"""Names new categories by size. Categories of the round get ids of their own."""


@torch.no_grad()
def write_first_look(folder: Path, table: Table, features: np.ndarray, k: int, seed: int) -> Path:
    """Cluster the usable images of a table, and write a row for each: path, category, kind, cosine to the centre.

    features: (N, D) of the frozen backbone. k: number of categories, known and new.
    """
    import pyarrow as pa

    usable = np.flatnonzero(table.usable)
    x = F.normalize(torch.from_numpy(features[usable]).float(), dim=-1)
    target, generator = torch.from_numpy(table.target[usable]), torch.Generator().manual_seed(seed)
    known, free = (target >= 0).nonzero().flatten(), (target < 0).nonzero().flatten()
    drawn = torch.cat([known, free[torch.randperm(len(free), generator=generator)[:CLUSTERED]]])
    k = min(k, len(target[known].unique()) + len(drawn) - len(known))
    centres = F.normalize(
        semi_supervised_centres(x[drawn], target[drawn], k, n_init=1, generator=generator), dim=-1
    )
    cosine, category = torch.cat([part @ centres.T for part in x.split(CLUSTERED)]).max(1)
    category[known] = target[known]
    cosine[known] = (x[known] * centres[target[known]]).sum(1)
    n_known = len(table.known)
    sizes = category.bincount(minlength=k)[n_known:]
    rank = sizes.argsort(descending=True, stable=True).argsort()
    names = [*table.known, *(LOOK.format(int(place) + 1) for place in rank)]
    columns = {
        "path": [str(path) for path in table.path[usable]],
        "category": [names[at] for at in category.tolist()],
        "kind": ["known" if at < n_known else "novel" for at in category.tolist()],
        "cosine": pa.array(cosine.numpy(), pa.float32()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_parquet(folder / FIRST_LOOK_FILE, pa.table(columns))
    return folder / FIRST_LOOK_FILE
