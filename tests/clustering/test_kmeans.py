"""k-means against scikit-learn, loops and the golden runs of the reference's semi-supervised k-means."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from holotype.clustering import kmeans as module
from holotype.clustering.kmeans import d2_seeds, kmeans, semi_supervised_kmeans
from holotype.errors import InputError
from tests.data.test_augment import MPS, PretendedMps

GOLDEN = dict(np.load(Path(__file__).parent.parent / "parity/ss_kmeans.npz", allow_pickle=False))
PEERS = dict(np.load(Path(__file__).parent.parent / "parity/peer_kmeans.npz", allow_pickle=False))
CASES = ["easy_k8", "hard_k10", "noncontiguous_labels_k6", "all_known_k4"]
DTYPES = [torch.float32, torch.float64]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs(n: int, k: int, dim: int, spread: float, dtype: torch.dtype = torch.float32) -> Tensor:
    g, kind = seeded(1), torch.float64
    centre = torch.randn(k, dim, generator=g, dtype=kind)
    x = centre[torch.randint(k, (n,), generator=g)] + spread * torch.randn(n, dim, generator=g, dtype=kind)
    return x.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k", "dim", "noise"), [(400, 5, 4, 0.3), (900, 30, 8, 0.6), (300, 7, 16, 1.5)])
def test_quality_matches_scikit_learn(n, k, dim, noise, dtype) -> None:
    x = blobs(n, k, dim, noise, dtype)
    ours = kmeans(x, k, generator=seeded())
    assert ours.centres.dtype == dtype
    oracle = KMeans(k, n_init=10, random_state=0).fit(x.numpy())
    assert ours.inertia <= 1.01 * oracle.inertia_


def test_labels_centres_and_inertia_belong_together() -> None:
    x = blobs(200, 6, 5, 0.8)
    result = kmeans(x, 6, n_init=3, generator=seeded())
    assert torch.equal(result.label, torch.cdist(x, result.centres).argmin(1))
    assert result.inertia == pytest.approx(float((x - result.centres[result.label]).square().sum()), rel=1e-5)
    for c in range(6):  # converged: every centre is the mean of its rows
        torch.testing.assert_close(result.centres[c], x[result.label == c].mean(0), atol=1e-2, rtol=0)


def test_a_far_origin_costs_no_digits() -> None:
    x = blobs(200, 4, 3, 0.1)
    near, far = kmeans(x, 4, generator=seeded()), kmeans(x + 1000, 4, generator=seeded())
    assert torch.equal(near.label, far.label)
    assert far.inertia == pytest.approx(near.inertia, rel=1e-2)


def test_chunks_do_not_matter(monkeypatch) -> None:
    x = blobs(120, 5, 4, 0.5, torch.float64)
    whole = kmeans(x, 5, n_init=4, generator=seeded())
    monkeypatch.setattr(module, "CHUNK", 150)
    parts = kmeans(x, 5, n_init=4, generator=seeded())
    assert torch.equal(whole.label, parts.label)
    torch.testing.assert_close(whole.centres, parts.centres)


def test_autocast_and_half_precision_do_not_reach_it() -> None:
    x = blobs(80, 4, 4, 0.3).bfloat16()
    plain = kmeans(x.float(), 4, generator=seeded())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = kmeans(x, 4, generator=seeded())
    assert torch.equal(plain.centres, inside.centres)


@pytest.mark.parametrize("k", [1, 3, 5, 12])
def test_duplicates_and_empty_clusters_give_no_nan(k) -> None:
    x = torch.tensor([[0.0, 0], [1, 0], [0, 5]]).repeat(4, 1)  # three distinct rows
    result = kmeans(x, k, generator=seeded())
    assert result.centres.isfinite().all()
    assert 0 <= result.label.min() <= result.label.max() < k
    assert k < 3 or result.inertia == pytest.approx(0, abs=1e-6)


def test_an_empty_cluster_is_reseeded_at_the_farthest_row() -> None:
    u = torch.tensor([[0.0, 0], [0.1, 0], [0, 0.1], [9, 9]])
    labelled, label = torch.tensor([[0.0, 0.05]]), torch.tensor([0])
    nobody_comes = torch.tensor([[0.0, 0], [100, 100]])
    result = semi_supervised_kmeans(u, labelled, label, 2, init=nobody_comes)
    assert result.label.tolist() == [0, 0, 0, 1]
    torch.testing.assert_close(result.centres[1], u[3])


def test_impossible_requests_are_refused() -> None:
    x, few = torch.randn(5, 2), torch.arange(3)
    for said, given, k in (("6 clusters of 5 rows", x, 6), ("NaN", x / 0 * 0, 2)):
        with pytest.raises(InputError, match=said):
            kmeans(given, k, generator=seeded())
    for said, k in (("with 3 known classes", 2), ("3 to 8", 9)):
        with pytest.raises(InputError, match=said):
            semi_supervised_kmeans(x, x[:3], few, k, generator=seeded())
    with pytest.raises(TypeError, match="generator"):
        semi_supervised_kmeans(x, x[:3], few, 4)


def slow_semi_supervised(u, labelled, pinned, centres, iterations):
    """Loops over rows, numpy, no tolerance: labels and inertia before the last update, centres after it."""
    x = np.concatenate([labelled, u])
    for _ in range(iterations):
        label, inertia = [], 0.0
        for i, row in enumerate(x):
            distance = [((row - c) ** 2).sum() for c in centres]
            label.append(pinned[i] if i < len(pinned) else int(np.argmin(distance)))
            inertia += distance[label[-1]]
        centres = np.stack([x[np.array(label) == c].mean(0) for c in range(len(centres))])
    return label, inertia, centres


def case(name: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, int]:
    u, labelled = (torch.from_numpy(GOLDEN[f"{name}.{k}_feats"]).to(dtype) for k in "ul")
    return u, labelled, torch.from_numpy(GOLDEN[f"{name}.l_targets"]), int(GOLDEN[f"{name}.K"])


@pytest.mark.parametrize("iterations", [1, 3])
def test_semi_supervised_is_the_slow_loop(iterations) -> None:
    u, labelled, label, k = case("hard_k10")
    init = GOLDEN["hard_k10.fixed.init_centers_f64"]
    pinned = np.searchsorted(np.unique(label.numpy()), label.numpy())
    expected = slow_semi_supervised(u.numpy(), labelled.numpy(), pinned, init, iterations)
    ours = semi_supervised_kmeans(
        u, labelled, label, k, max_iter=iterations, tol=0.0, init=torch.from_numpy(init)
    )
    assert ours.label.tolist() == expected[0][len(labelled) :]
    assert ours.inertia == pytest.approx(expected[1], rel=1e-12)
    np.testing.assert_allclose(ours.centres, expected[2], atol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_golden_from_given_centres(name, dtype) -> None:
    u, labelled, label, k = case(name, dtype)
    suffix, tol = ("f64", 1e-9) if dtype == torch.float64 else ("f32", 1e-5)
    init = torch.from_numpy(GOLDEN[f"{name}.fixed.init_centers_f64"]).to(dtype)
    caps = {"noncontiguous_labels_k6": [1, 3, 200], "all_known_k4": [1, 200]}.get(name, [1, 2, 5, 200])
    for cap in caps:
        key = f"{name}.fixed.iter{cap}"
        ours = semi_supervised_kmeans(u, labelled, label, k, max_iter=cap, init=init)
        assert ours.label.tolist() == GOLDEN[f"{key}.labels_{suffix}"][len(labelled) :].tolist()
        assert ours.inertia == pytest.approx(float(GOLDEN[f"{key}.inertia_{suffix}"]), rel=tol)
        np.testing.assert_allclose(ours.centres, GOLDEN[f"{key}.centers_{suffix}"], atol=tol, rtol=tol)


def class_means(labelled: Tensor, label: Tensor) -> Tensor:
    return torch.stack([labelled[label == c].mean(0) for c in label.unique()])


@pytest.mark.parametrize("name", CASES)
def test_golden_seeding_from_given_draws(name) -> None:
    u, labelled, label, k = case(name)
    known = class_means(labelled, label)
    draws = torch.from_numpy(GOLDEN[f"{name}.kpp.draws_f64"])
    seeds = d2_seeds(u, known, draws[..., None])
    assert seeds.tolist() == GOLDEN[f"{name}.kpp.chosen_u_index"].astype(int).tolist()
    for run, rows in enumerate(seeds):
        init = torch.cat([known, u[rows]])
        ours = semi_supervised_kmeans(u, labelled, label, k, init=init)
        assert ours.inertia == pytest.approx(float(GOLDEN[f"{name}.kpp.inertia_f64"][run]), abs=1e-9)
        assert ours.label.tolist() == GOLDEN[f"{name}.kpp.labels_f64"][run][len(labelled) :].tolist()


@pytest.mark.parametrize("name", CASES)
def test_golden_best_of_ten(name) -> None:
    u, labelled, label, k = case(name)
    known = class_means(labelled, label)
    draws = np.random.RandomState(0).random_sample((10, k - len(known)))
    seeds = d2_seeds(u, known, torch.from_numpy(draws)[..., None])
    init = torch.cat([known.expand(10, -1, -1), u[seeds]], 1)
    ours = semi_supervised_kmeans(u, labelled, label, k, init=init)
    assert ours.inertia == pytest.approx(float(GOLDEN[f"{name}.ninit10_seed0.inertia_f64"]), abs=1e-9)
    # Several starts end in the same partition with the new clusters numbered differently.
    theirs = GOLDEN[f"{name}.ninit10_seed0.labels_f64"][len(labelled) :]
    assert adjusted_rand_score(theirs, ours.label.numpy()) == 1


def peer(name: str) -> dict[str, np.ndarray]:
    return {key.removeprefix(f"{name}__"): x for key, x in PEERS.items() if key.startswith(f"{name}__")}


@pytest.mark.parametrize(
    "name", ["blobs", "non_contiguous_label_ids", "k_equals_old", "two_iterations_cap", "four_gaussians"]
)
def test_golden_constrained_runs(name) -> None:
    g = peer(f"semi_{name}")
    u, labelled = (torch.from_numpy(g[f"{key}_X"]) for key in ("unlabelled", "labelled"))
    label, k, cap = torch.from_numpy(g["labelled_y"]), int(g["K"]), int(g["max_iter"])
    known = class_means(labelled, label)
    seeds = d2_seeds(u, known, torch.from_numpy(g["uniform_draws"])[None, :, None])[0]
    init = torch.cat([known, u[seeds]])
    np.testing.assert_allclose(init, g["init_centers"], atol=1e-9)
    ours = semi_supervised_kmeans(u, labelled, label, k, max_iter=cap, tol=float(g["tol"]), init=init)
    assert ours.label.tolist() == g["labels_labelled_then_unlabelled"][len(labelled) :].tolist()
    np.testing.assert_allclose(ours.centres, g["centers"], rtol=1e-7, atol=1e-9)
    assert ours.inertia == pytest.approx(float(g["inertia"]), rel=1e-7)
    many = semi_supervised_kmeans(u, labelled, label, k, n_init=20, max_iter=cap, generator=seeded())
    assert many.inertia <= 1.05 * float(g["best20_inertia"])


@pytest.mark.parametrize("name", ["blobs5", "overlap6", "k1"])
def test_golden_plain_runs_are_not_beaten(name) -> None:
    g = peer(f"plain_{name}")
    x = torch.from_numpy(g["X"])
    ours = kmeans(x, len(g["centers"]), generator=seeded())
    assert ours.inertia <= 1.01 * float(g["best10_inertia"])
    if name != "overlap6":  # there the optimum is not unique
        assert adjusted_rand_score(g["best10_labels"], ours.label.numpy()) == 1


def test_a_device_without_float64_ends_where_the_others_do() -> None:
    """Three methods end with k-means, after hours of training."""
    x, label = torch.randn(60, 5, generator=seeded()), (torch.arange(60) % 6 - 3).clamp_min(-1)
    plain = kmeans(x, 4, n_init=2, generator=seeded())
    pinned = module.semi_supervised_centres(x, label, 5, n_init=2, generator=seeded())
    with PretendedMps():
        there = x.to(MPS)
        found = kmeans(there, 4, n_init=2, generator=seeded())
        centres = module.semi_supervised_centres(there, label.to(MPS), 5, n_init=2, generator=seeded())
        assert found.centres.device == found.label.device == centres.device == MPS
    assert torch.equal(found.centres, plain.centres)
    assert torch.equal(found.label, plain.label)
    assert torch.equal(centres, pinned)
