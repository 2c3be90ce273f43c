"""PromptCAL's affinity graph and its contrast, against the released code's numbers and by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.affinity import (
    affinity_contrast,
    affinity_graph,
    consensus,
    diffuse,
    draw_negatives,
    drop_weak_edges,
    neighbours,
    threshold,
)

GRAPHS = ["overlap_k4_q05", "overlap_k5_q08", "clean_clusters_k5_q08", "overlap_k3_q0"]
CONTRASTS = [f"{graph}_{kind}" for graph in GRAPHS for kind in ("allneg", "sampled")]
FP32 = {"rtol": 1e-4, "atol": 2e-6}
FP64 = {"rtol": 1e-7, "atol": 1e-9}


@pytest.fixture
def case(golden):
    """case("semiag_overlap_k4_q05")("knn"): an array of the released code."""
    arrays = golden("promptcal")
    return lambda name: lambda array: torch.as_tensor(arrays[f"{name}__{array}"])


def everyone(n: int) -> Tensor:
    return torch.ones(n, dtype=torch.bool)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_stage_of_the_graph_equals_the_released_code(case, name) -> None:
    get = case(f"semiag_{name}")
    rows, memory = get("features"), get("memory")
    valid = everyone(len(rows) + len(memory))
    near = neighbours(torch.cat([rows, memory]), valid, int(get("k")))
    assert torch.equal(near, torch.zeros_like(near).scatter_(1, get("knn").long(), 1.0))
    counts = consensus(near)
    assert torch.equal(counts, get("consensus").float())
    p = counts / counts.sum(1, keepdim=True)
    torch.testing.assert_close(p[: len(rows)], get("transition_rows_batch"), **FP32)
    q = diffuse(counts, valid, identity=True)
    torch.testing.assert_close(q[: len(rows)], get("diffused_rows_batch"), **FP32)
    torch.testing.assert_close(threshold(q, float(get("q"))), get("threshold"), **FP32)
    rest = everyone(len(memory)), int(get("k")), float(get("q"))
    for dtype in (torch.float32, torch.float64):
        found = affinity_graph(rows.to(dtype), memory.to(dtype), *rest, identity=True)
        assert torch.equal(found, get("affinity"))


@pytest.mark.parametrize("name", ["arcs_q00", "arcs_q05", "arcs_q08"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_arcs(case, golden, name, dtype) -> None:
    """With the identity as published and without; no pair joins the arcs, and none lies more than 7 steps apart."""
    get = case(name)
    rows, memory = get("features").to(dtype), get("memory").to(dtype)
    counts = consensus(neighbours(torch.cat([rows, memory]), everyone(120), int(get("k"))))
    for identity, prefix in ((True, ""), (False, "own_no_identity_")):
        q = diffuse(counts, everyone(120), identity)
        theta = threshold(q, float(get("q")))
        torch.testing.assert_close(theta.double(), get(f"{prefix}threshold"), rtol=1e-6, atol=0)
        found = affinity_graph(rows, memory, everyone(108), int(get("k")), float(get("q")), identity)
        if f"{name}__{prefix}n_positive" in golden("promptcal"):
            assert int(found.sum()) == int(get(f"{prefix}n_positive"))
        cosine = F.normalize(rows, dim=-1) @ F.normalize(memory, dim=-1).T
        assert (cosine[found] > math.cos(7.5 * 0.9 * math.pi / 59)).all()


def test_consensus_by_hand(case) -> None:
    for name in ("consensus_3cycle", "consensus_5nodes"):
        get = case(name)
        knn = get("knn")
        near = torch.zeros(len(knn), len(knn)).scatter_(1, knn, 1.0)
        assert torch.equal(consensus(near), get("consensus"))
    torch.testing.assert_close(diffuse(consensus(near), everyone(5), True), get("diffused"))


@pytest.mark.parametrize("identity", [True, False])
def test_rows_never_written_change_nothing(case, identity) -> None:
    get = case("semiag_overlap_k5_q08")
    rows, memory = get("features"), get("memory")
    filled = everyone(90)
    filled[70:] = False
    wide = torch.cat([memory, torch.zeros(20, 16)])
    found = affinity_graph(rows, wide, filled, 5, 0.8, identity)
    assert torch.equal(found[:, :70], affinity_graph(rows, memory, everyone(70), 5, 0.8, identity))
    assert not found[:, 70:].any()
    assert not affinity_graph(rows, wide, ~everyone(90), 5, 0.8, identity).any()


@pytest.mark.parametrize("q", [0.0, 0.31, 0.5, 0.8, 1.0])
def test_the_threshold_is_torchs_quantile_of_what_lies_above_the_mean(q) -> None:
    torch.manual_seed(0)
    x = torch.rand(30, 30, dtype=torch.float64) * (torch.rand(30, 30) < 0.6)
    above = x[x > x[x != 0].mean()]
    torch.testing.assert_close(threshold(x, q), above.quantile(q))
    assert threshold(torch.ones(4, 4), q) == math.inf  # nothing lies above the mean


@pytest.mark.parametrize("name", CONTRASTS)
def test_negatives_and_labels_equal_the_released_code(case, name) -> None:
    get = case(f"cal_{name}")
    positive, drawn, cap = get("affinity"), get("neg_before_cleaning"), int(get("neg_samples"))
    size = positive.shape[1]
    key = torch.where(drawn, 0.25, 0.75)  # those that the released code drew come first
    negative = draw_negatives(positive, everyone(size), key, size if cap < 0 else cap)
    assert torch.equal(negative, drawn)
    label = torch.where(get("labelled"), get("labels"), -1).repeat(2)
    memory_label = torch.where(get("labelled_mb"), get("labels_mb"), -1)
    positive, negative = drop_weak_edges(positive, negative, label, memory_label)
    assert torch.equal(positive, get("pos_after"))
    assert torch.equal(negative, get("neg_after"))


@pytest.mark.parametrize("name", CONTRASTS)
def test_the_contrast_and_its_gradient_equal_the_released_code(case, name) -> None:
    get = case(f"cal_{name}")
    student = get("student").requires_grad_()
    rest = (get("memory"), get("pos_after"), get("neg_after"), float(get("tau")))
    loss = affinity_contrast(student, get("teacher"), *rest)
    torch.testing.assert_close(loss, get("loss_same_view_teacher"), **FP64)
    swapped = affinity_contrast(student, get("teacher").roll(len(student) // 2, 0), *rest)
    torch.testing.assert_close(swapped, get("loss_swapped_view_teacher"), **FP64)
    loss.backward()
    theirs = get("grad_student")  # of rows that are taken as unit vectors: ours cannot leave the sphere
    theirs = theirs - (theirs * student.detach()).sum(-1, keepdim=True) * student.detach()
    torch.testing.assert_close(student.grad, theirs, rtol=1e-6, atol=1e-7)


def test_the_edges_of_the_contrast(case) -> None:
    get = case("cal_edges")
    student, teacher, memory = get("student"), get("teacher"), get("memory")
    nobody = torch.zeros(4, 5, dtype=torch.bool)
    cases = {"no_memory_used": (nobody, nobody), "no_graph_positive_all_negative": (nobody, ~nobody)}
    for name, masks in {**cases, "all_positive": (~nobody, nobody)}.items():
        found = affinity_contrast(student, teacher, memory, *masks, float(get("tau")))
        torch.testing.assert_close(found, get(f"loss_{name}"), **FP64)
    logits = torch.cat([(student * teacher).sum(-1, keepdim=True), student @ memory.T], 1) / 0.07
    info_nce = F.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(affinity_contrast(student, teacher, memory, nobody, ~nobody), info_nce, **FP64)
