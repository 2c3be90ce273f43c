"""k-means on the device, all starts at once, and its semi-supervised form (GCD, Vaze et al. 2022).

Rows are centred first, so that distances from inner products keep their digits. An empty cluster is
re-seeded at the row farthest from its centre; no result ever holds a NaN. Random numbers come from a CPU
generator, so that a seed means the same start on every device.

In the balanced form clusters share the rows evenly, rows may be fixed, and nothing is read back to the host. It goes on
from given centres for a given number of iterations: where features move little from one call to the next, a few are
enough. Evenness is that of optimal transport: Sinkhorn's iteration finds a bonus for each cluster, in squared distance,
with which every cluster takes its share, and each row then goes where distance less bonus is lowest.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from holotype.errors import InputError

CHUNK = 2**25
"""Entries of the largest temporary matrix of distances: 128 MB in float32."""


@dataclass(frozen=True)
class KMeansResult:
    """The best of all starts."""

    centres: Tensor
    """(K, D)"""
    label: Tensor
    """(N,) long: the centre of each row."""
    inertia: float
    """Sum of the squared distances of the rows to their centres."""


@torch.no_grad()
def kmeans(
    x: Tensor, k: int, *, n_init: int = 10, max_iter: int = 300, tol: float = 1e-4, generator: torch.Generator
) -> KMeansResult:
    """Lloyd's algorithm from `n_init` greedy k-means++ starts. Label and inertia belong to the centres given.

    x: (N, D). tol: centres that move by less than this share of the mean variance stand still.
    """
    if not 1 <= k <= len(x):
        raise InputError(f"k-means cannot make {k} clusters of {len(x)} rows: ask for 1 to {len(x)}.")
    device, x = x.device, _with_doubles(x)
    with torch.autocast(x.device.type, enabled=False):
        x, mean = _centred(x)
        free = x.new_full((len(x),), -1, dtype=torch.long)
        draws = torch.rand(n_init, k, 2 + int(math.log(k)), generator=generator, dtype=torch.float64)
        seeds = d2_seeds(x, x.new_zeros(0, x.shape[1]), draws)
        # The rule in _lloyd sums K shifts before it squares: k puts its threshold back on one centre's scale.
        still = tol * k * float(x.var(0, unbiased=False).mean())
        best = _lloyd(x, x[seeds], free, max_iter, still)
        label, distance = _assign(x, best.centres[None], free)
    inertia = float(distance.double().sum())
    return KMeansResult((best.centres + mean).to(device), label[:, 0].to(device), inertia)


@torch.no_grad()
def semi_supervised_kmeans(
    u: Tensor,
    l: Tensor,  # noqa: E741 (the paper's name)
    l_label: Tensor,
    k: int,
    *,
    n_init: int = 10,
    max_iter: int = 200,
    tol: float = 1e-4,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
) -> KMeansResult:
    """k-means in which labelled rows are pinned to the centre of their class.

    Centres 0 .. C_L - 1 start at the class means, in the order of the sorted class ids; the others are
    unlabelled rows drawn by D^2 sampling (`generator`), unless `init`, (K, D) or (R, K, D), gives all of
    them. As in the reference, `inertia` (over both sets) and `label` belong to the centres before the last
    update, `centres` are those after it.
    u: (N, D) unlabelled. l: (M, D) labelled, l_label: (M,) class ids. The result's label is (N,), of u.
    """
    device, both = u.device, _with_doubles(torch.cat([l, u]))
    with torch.autocast(both.device.type, enabled=False):
        x, mean = _centred(both)
        classes, pinned = l_label.to(x.device).unique(return_inverse=True)
        n_new = k - len(classes)
        if not 0 <= n_new <= len(u):
            low, high = len(classes), len(classes) + len(u)
            raise InputError(f"k = {k} does not fit the data: with {low} known classes use {low} to {high}.")
        if init is not None:
            start = init.to(x).view(-1, k, x.shape[1]) - mean
        elif generator is not None:
            draws = torch.rand(n_init, n_new, 1, generator=generator, dtype=torch.float64)
            means = _sums(x[: len(l)], pinned, len(classes)) / torch.bincount(pinned)[:, None]
            free = x[len(l) :]
            start = torch.cat([means.expand(n_init, -1, -1), free[d2_seeds(free, means, draws)]], 1)
        else:
            raise TypeError("semi_supervised_kmeans needs a generator or initial centres")
        fixed = torch.cat([pinned, pinned.new_full((len(u),), -1)])
        best = _lloyd(x, start, fixed, max_iter, tol)
    return KMeansResult((best.centres + mean).to(device), best.label[len(l) :].to(device), best.inertia)


def semi_supervised_centres(
    x: Tensor, label: Tensor, k: int, *, n_init: int, max_iter: int = 200, generator: torch.Generator
) -> Tensor:
    """What GCD and the methods after it end with: (K, D) centres, that of known class c at index c.

    Of L2-normalised rows. A category below the number of known classes is then that class, without any matching.
    x: (N, D). label: (N,) class index below k, -1 = unlabelled.
    """
    x, labelled = torch.nn.functional.normalize(x, dim=-1), label >= 0
    known, given = label[labelled], x[labelled]
    found = semi_supervised_kmeans(
        x[~labelled], given, known, k, n_init=n_init, max_iter=max_iter, generator=generator
    )
    # Classes follow their sorted ids there; one without a labelled row leaves its place to a free centre.
    taken = known.unique()
    free = torch.ones(k, dtype=torch.bool, device=x.device).index_fill_(0, taken, False).nonzero()[:, 0]
    return torch.empty_like(found.centres).index_copy_(0, torch.cat([taken, free]), found.centres)


def d2_seeds(x: Tensor, centres: Tensor, draws: Tensor) -> Tensor:
    """k-means++: rows drawn with probability proportional to the squared distance to the nearest centre.

    A uniform draw picks the first row whose cumulative probability reaches it. Of several trials a step
    keeps the one that lowers the sum of distances most.
    x: (N, D). centres: (C, D) that every start shares; with none the first row is drawn uniformly.
    draws: (R, S, T) in [0, 1): R starts, S steps, T trials. Returns (R, S) row indices.
    """
    if len(centres):
        nearest = _assign(x, centres[None], x.new_full((len(x),), -1, dtype=torch.long))[1][:, 0]
    else:
        nearest = x.new_full((len(x),), torch.inf)
    starts_at_once = max(1, CHUNK // max(1, draws.shape[2] * len(x)))
    parts = [_d2_walk(x, nearest, part) for part in draws.to(x.device).split(starts_at_once)]
    return torch.cat(parts)


def _d2_walk(x: Tensor, nearest: Tensor, draws: Tensor) -> Tensor:
    """The steps of `d2_seeds`. nearest: (N,) squared distance to the centres so far, inf: there is none."""
    start = torch.arange(len(draws), device=x.device)
    nearest, square = nearest.expand(len(draws), -1), x.square().sum(-1)
    chosen = [start.new_zeros(len(draws), 0)]
    for draw in draws.unbind(1):
        cumulative = nearest.double().nan_to_num(posinf=1.0).cumsum(-1)
        row = torch.searchsorted(cumulative, draw * cumulative[:, -1:]).clamp_max(len(x) - 1)  # (R, T)
        new = x[row.flatten()]
        distance = torch.addmm(square, new, x.T, alpha=-2) + new.square().sum(-1, keepdim=True)
        distance = torch.minimum(distance.clamp_min(0).view(*row.shape, -1), nearest[:, None])
        kept = distance.sum(-1).argmin(-1)
        nearest = distance[start, kept]
        chosen.append(row[start, kept][:, None])
    return torch.cat(chosen, 1)


def _lloyd(x: Tensor, centres: Tensor, fixed: Tensor, max_iter: int, tol: float) -> KMeansResult:
    """Move the centres of all starts together; the best labelling seen, with the centres it leads to.

    A start leaves when (sum_k ||shift_k||)^2 < tol. x: (N, D). centres: (R, K, D). fixed: (N,) the centre
    to which a row is pinned, -1 = free.
    """
    best = KMeansResult(centres[0], fixed, math.inf)
    for _ in range(max_iter):
        label, distance = _assign(x, centres, fixed)
        moved = _means(x, centres, label, distance.masked_fill(fixed[:, None] >= 0, -1))
        inertia = distance.double().sum(0)
        run = int(inertia.argmin())
        if float(inertia[run]) < best.inertia:
            best = KMeansResult(moved[run], label[:, run], float(inertia[run]))
        shift = (moved - centres).norm(dim=-1).sum(-1).square()
        centres = moved[shift >= tol]
        if len(centres) == 0:
            break
    return best


def _assign(x: Tensor, centres: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's centre, nearest or fixed, and the squared distance to it, in every start.

    x: (N, D), centres: (R, K, D), fixed: (N,), -1 = free. Returns (N, R) long and (N, R).
    """
    runs, k, dim = centres.shape
    flat = centres.reshape(-1, dim)
    label = fixed.new_empty(len(x), runs)
    distance = x.new_empty(len(x), runs)
    step = max(1, CHUNK // (runs * k))
    for rows in (slice(i, i + step) for i in range(0, len(x), step)):
        all_distances = torch.addmm(flat.square().sum(-1), x[rows], flat.T, alpha=-2).view(-1, runs, k)
        pin = fixed[rows, None]
        label[rows] = torch.where(pin < 0, all_distances.argmin(-1), pin)
        distance[rows] = all_distances.gather(-1, label[rows, :, None])[..., 0]
    return label, (distance + x.square().sum(-1, keepdim=True)).clamp_min(0)


def _means(x: Tensor, centres: Tensor, label: Tensor, distance: Tensor) -> Tensor:
    """The mean of each cluster's rows; empty clusters move to the farthest rows, one each.

    centres: (R, K, D) before. label, distance: (N, R). Returns (R, K, D).
    """
    moved = torch.empty_like(centres)
    for run, members in enumerate(label.unbind(1)):
        count = torch.bincount(members, minlength=centres.shape[1])
        moved[run] = _sums(x, members, len(count)) / count.clamp_min(1)[:, None]
        empty = (count == 0).nonzero()[:, 0]
        if len(empty):
            moved[run, empty] = x[distance[:, run].topk(len(empty)).indices]
    return moved


def _sums(x: Tensor, label: Tensor, k: int) -> Tensor:
    """Sum of the rows of each label, the same bits at every call. (N, D), (N,) -> (K, D)."""
    total = x.new_zeros(k, x.shape[1])
    if x.is_cuda:  # index_add_ adds in any order there; this one sorts
        return total.index_put_((label,), x, accumulate=True)
    return total.index_add_(0, label, x)


def _with_doubles(x: Tensor) -> Tensor:
    """Rows where sums can be taken in float64: on the CPU, of a device that has none."""
    return x.to(torch.device("cpu")) if x.device.type == "mps" else x


def _centred(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows less their mean, and the mean, in float32 or float64."""
    x = x if x.dtype == torch.float64 else x.float()
    if not bool(x.isfinite().all()):
        raise InputError("k-means was given features that are NaN or infinite: check images and model.")
    mean = x.mean(0)
    return x - mean, mean


SINKHORN_STEPS = 20
SOFT, SHARP = 0.5, 0.02
"""First and last temperature of the transport, as shares of the mean squared distance: a sharp one alone needs many
more steps where clusters lie far apart."""
LEAST_ROOM = 1e-3
"""Free rows of a cluster whose fixed rows are more than its share already."""


@torch.no_grad()
def balanced_kmeans(
    x: Tensor, centres: Tensor, fixed: Tensor, *, iterations: int = 3, balanced: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cluster (N,) of each row, the centres (K, D) that these rows have, and the last bonus (K,).

    x: (N, D). centres: (K, D) to begin with; one that no row chooses stays where it is. fixed: (N,) the cluster that a
    row is fixed to, -1 = free. balanced: whether every cluster takes N / K rows, as far as the fixed ones let it.
    """
    label, bonus = fixed, centres.new_zeros(len(centres))
    with torch.autocast(x.device.type, enabled=False):
        for _ in range(iterations):
            distance = squared_distances(x, centres)
            if balanced:
                bonus = even_bonus(distance, fixed)
            label = torch.where(fixed >= 0, fixed, (distance - bonus).argmin(-1))
            centres = centres_of(x, label, centres)
    return label, centres, bonus


def centres_of(x: Tensor, label: Tensor, centres: Tensor) -> Tensor:
    """The mean of each cluster's rows, its old centre where it has none. (N, D), (N,), (K, D) -> (K, D)."""
    member = F.one_hot(label, len(centres)).to(x.dtype)
    size = member.sum(0)[:, None]
    return torch.where(size > 0, member.T @ x / size.clamp_min(1), centres)


def squared_distances(x: Tensor, centres: Tensor) -> Tensor:
    """(N, D), (K, D) -> (N, K)."""
    return (x.square().sum(-1, keepdim=True) + centres.square().sum(-1) - 2 * x @ centres.T).clamp_min(0)


def even_bonus(distance: Tensor, fixed: Tensor) -> Tensor:
    """(K,) the bonus of each cluster with which, softly, its free rows are N / K less those fixed to it.

    distance: (N, K), squared. fixed: (N,), -1 = free.
    """
    k, free = distance.shape[1], (fixed < 0).to(distance.dtype)
    taken = torch.zeros_like(distance[0]).index_add(0, fixed.clamp_min(0), 1 - free)
    room = (len(distance) / k - taken).clamp_min(LEAST_ROOM)
    share = (room / room.sum() * free.sum().clamp_min(1)).log()
    outside = torch.where(fixed < 0, 0.0, -torch.inf).to(distance)[:, None]
    bonus = torch.zeros_like(share)
    for step in range(SINKHORN_STEPS):
        scale = (
            distance.mean().clamp_min(1e-12)
            * SOFT ** (1 - step / SINKHORN_STEPS)
            * SHARP ** (step / SINKHORN_STEPS)
        )
        row = outside - torch.logsumexp((bonus - distance) / scale, 1, keepdim=True)
        bonus = scale * (share - torch.logsumexp(row - distance / scale, 0))
    return bonus
