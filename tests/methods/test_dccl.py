"""DCCL: schedule, concepts and memory against the released code; what a step sees, and what it does with it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holotype.data.samplers import keyed_generator
from holotype.losses.contrastive import concept_nce, info_nce, sup_con, update_concept_memory
from holotype.methods import Batch, Images, Progress, Stage, Task
from holotype.methods.dccl import DCCL, DCCLConfig, concept_order, concept_rows, dccl_schedule

GOLDEN = np.load(Path(__file__).parents[1] / "parity/dccl.npz")
GRAPHS = ["blobs12x20", "blobs30x20", "small_and_outliers", "touching_a", "labelled_edges"]
N_KNOWN, K = 3, 12
STAGE = Stage()


class Blobs:
    """12 groups of 10 images and 8 that stand alone; image 5 cannot be read. Half of three groups is labelled."""

    def __init__(self, n: int = 12) -> None:
        g = torch.Generator().manual_seed(0)
        self.truth = torch.cat([torch.arange(10 * n) % n, torch.full((8,), -1)])
        centres = torch.linalg.qr(torch.randn(n + 8, n + 8, generator=g))[0]
        self.x = torch.cat([centres[:n][self.truth[: 10 * n]], centres[n:]])
        self.x = 3 * self.x + 0.1 * torch.randn(self.x.shape, generator=g)
        self.row = torch.cat([torch.arange(5), torch.arange(6, len(self.x))])
        labelled = (self.truth >= 0) & (self.truth < N_KNOWN) & (torch.arange(len(self.x)) % (2 * n) < n)
        self.label = torch.where(labelled, self.truth, -1)
        self.passes = 0

    def encode(self) -> torch.Tensor:
        self.passes += 1
        return self.x[self.row]

    def images(self) -> Images:
        return Images(self.row, self.label[self.row], len(self.x), keyed_generator("images"), self.encode)

    def method(self, epochs: int = 0, **settings) -> DCCL:
        """After the start of so many epochs."""
        torch.manual_seed(0)
        task = Task(N_KNOWN, K, self.x.shape[1], len(self.x), int((self.label >= 0).sum()), epochs=10)
        method = DCCL(DCCLConfig(**{"proj_out": 16, "n_init": 2, **settings}), task)
        method.batch_size, method.steps = 24, 5
        for epoch in range(epochs):
            method.before_epoch(STAGE, epoch, self.images())
        return method

    def batch(self, method: DCCL, step: int = 0, epoch: int = 0) -> Batch:
        rows = method.rows(STAGE, epoch, keyed_generator(epoch, "rows"))[step]
        g = torch.Generator().manual_seed(step)
        features = self.x[rows] + 0.1 * torch.randn(2, len(rows), self.x.shape[1], generator=g)
        return Batch(features.requires_grad_(), self.label[rows].clamp_min(0), self.label[rows] >= 0, rows)


NOW = {"concept_weight": torch.tensor(0.25)}


def test_the_weight_of_the_concepts_equals_the_released_schedule():
    method = Blobs().method()
    ours = [method.schedule(STAGE, Progress(epoch, 200))["concept_weight"] for epoch in range(200)]
    np.testing.assert_allclose(ours, GOLDEN["concept_weight__w"], rtol=1e-7)
    half = [method.schedule(STAGE, Progress(epoch, 20))["concept_weight"] for epoch in range(20)]
    assert half[0] == pytest.approx(0.04)
    assert half[8] < half[9] == half[19] == pytest.approx(0.4)  # the first half of any training


@pytest.mark.parametrize("case", GRAPHS)
def test_concepts_and_centres_equal_the_released_ones(case):
    g = {key.removeprefix(f"graph_{case}__"): GOLDEN[key] for key in GOLDEN.files if f"graph_{case}__" in key}
    x = torch.from_numpy(g["features_raw"])
    k, smallest = int(g["k1"]), int(g["k2"]) + 1
    graph = {"neighbours": k, "least_similarity": float(g["min_sim"]), "smallest": smallest}
    method = DCCL(DCCLConfig(proj_out=16, **graph), Task(2, 4, x.shape[1], len(x), 0))
    rows = torch.arange(len(x))
    nobody = torch.full_like(rows, -1)
    method.before_epoch(STAGE, 0, Images(rows, nobody, len(x), keyed_generator(0), lambda: x))
    np.testing.assert_array_equal(method.concept.numpy(), g["community"])
    n = int(method.count)
    assert n == len(g["concept_memory"]) == g["n_communities"]
    assert len(method.memory) == len(x) // smallest
    np.testing.assert_allclose(method.memory[:n].numpy(), g["concept_memory"], rtol=1e-4, atol=2e-6)
    assert not method.memory[n:].any()
    assert method.diagnostics()["outliers"] == g["n_outliers"]


def test_the_rate_rises_in_fifths_and_is_never_zero():
    rates, short = ([dccl_schedule(Progress(epoch, n)) for epoch in range(n)] for n in (200, 10))
    assert rates[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert 1e-3 < rates[-1] < 1.1e-3 < min(short)
    assert short[0] == dccl_schedule(Progress(0, 1)) == 1.0  # five of 200 epochs are none of ten


def test_beside_the_balanced_batch_stand_eight_concepts_of_sixteen_images(caplog):
    blobs = Blobs()
    method = blobs.method(1)
    assert not caplog.records  # enough concepts are no news
    positives = pytest.approx((11 * 10 * 9 + 9 * 8) / 119)  # one cannot be read
    told = {name: float(value) for name, value in method.diagnostics().items()}
    assert told == {"concepts": 12, "outliers": 8, "positives": positives, "precision": 1.0}
    rows = method.rows(STAGE, 0, keyed_generator("rows"))
    assert rows.shape == (5, 24 + 128)
    assert not (rows == 5).any()  # the image that cannot be read
    assert (method.concept[rows[:, 24:]] >= 0).all()  # no outlier
    assert 0.3 < (blobs.label[rows[:, :24]] >= 0).float().mean() < 0.7
    method.loss(blobs.batch(method), NOW)
    method.after_step()  # the memory moves on; an epoch that is gone on with draws the same rows
    resumed = blobs.method()
    resumed.load_state_dict(method.state_dict())
    assert torch.equal(resumed.rows(STAGE, 0, keyed_generator("rows")), rows)
    assert not torch.equal(resumed.rows(STAGE, 0, keyed_generator("others")), rows)


@pytest.mark.parametrize(("recluster", "passes"), [(3, 3), (1, 7)])
def test_concepts_are_found_anew_every_so_many_epochs(recluster, passes):
    """Epochs 0, 3 and 6; no pass over all images in the others. New concepts leave nothing of the old ones."""
    blobs = Blobs()
    method = blobs.method(7, recluster=recluster)
    assert blobs.passes == passes
    blobs.x = torch.nn.functional.pad(Blobs(9).x[torch.randint(90, (len(blobs.x),))][:, :9], (0, 11))
    method.before_epoch(STAGE, 9, blobs.images())
    assert method.concept.max() == method.count - 1 < 11
    assert not method.memory[int(method.count) :].any()


def test_the_loss_is_that_of_gcd_and_that_of_the_concepts():
    blobs = Blobs()
    method = blobs.method(1)
    batch = blobs.batch(method)
    terms = method.loss(batch, NOW)
    f, label, labelled = batch.features, batch.label[:24], batch.labelled[:24]
    z = method.head(f[:, :24])
    target = method.concept[batch.image[24:]]
    expected = {
        "con_u": 0.65 * info_nce(z, 1.0),
        "con_s": 0.35 * sup_con(z, label, labelled, 0.07),
        "concept": 0.25 * concept_nce(f[:, 24:].flatten(0, 1), target.repeat(2), method.memory[:12], 12),
    }
    torch.testing.assert_close(terms, expected)
    terms["concept"].backward()
    assert not batch.features.grad[:, :24].any()
    assert batch.features.grad[:, 24:].any()
    assert all(p.grad is None for p in method.head.parameters())  # the concepts act below the head


def test_the_memory_follows_the_first_view_then_the_second_row_by_row():
    blobs = Blobs()
    method = blobs.method(1)
    before, batch = method.memory.clone(), blobs.batch(method)
    method.loss(batch, NOW)
    assert torch.equal(method.memory, before)  # loss and gradient use the old one
    method.after_step()
    expected = before
    for view in batch.features.detach():
        for row, image in zip(view[24:], batch.image[24:], strict=True):
            expected = update_concept_memory(expected, method.concept[image][None], row[None, None])
    torch.testing.assert_close(method.memory, expected)
    assert not torch.equal(method.memory, before)


@pytest.mark.parametrize("edges", ["labelled", "none"])
def test_labels_link_only_where_they_are_asked_to(edges):
    """The images of one group have labels of two classes: as edges these take it apart, else they change nothing."""
    blobs = Blobs()
    plain = blobs.method(1, edges="none").concept
    blobs.label[blobs.truth == 0] = torch.arange(10) % 2
    found = blobs.method(1, edges=edges)
    assert found.count == (13 if edges == "labelled" else 12)
    assert torch.equal(found.concept, plain) == (edges == "none")
    assert DCCL.presets["as_run"] == {"edges": "none"}


def test_without_a_concept_the_loss_is_zero_and_one_line_says_so(caplog):
    blobs = Blobs()
    method = blobs.method(3, least_similarity=1.1)
    (line,) = caplog.messages
    assert "--method.least-similarity" in line
    batch = blobs.batch(method)
    assert batch.features.shape[1] == 24 + 128  # the shape of a step does not depend on what was found
    terms = method.loss(batch, NOW)
    assert terms["concept"] == 0
    torch.stack(list(terms.values())).sum().backward()
    assert torch.isfinite(batch.features.grad).all()
    assert not batch.features.grad[:, 24:].any()
    before = method.memory.clone()
    method.after_step()
    assert torch.equal(method.memory, before)
    assert "precision" not in method.diagnostics()  # of nothing


@given(n=st.integers(1, 60), steps=st.integers(1, 30), seed=st.integers(0, 99))
def test_every_pass_has_every_concept_once_and_no_step_one_twice(n, steps, seed):
    order = concept_order(n, steps, 8, keyed_generator(seed))
    assert order.shape == (steps, 8)
    flat = order.flatten()
    for one_pass in flat.split(n):
        assert len(one_pass.unique()) == len(one_pass)
    assert 0 <= flat.min() <= flat.max() < n
    assert all(len(step.unique()) == min(n, 8) for step in order)
    assert torch.equal(order, concept_order(n, steps, 8, keyed_generator(seed)))  # a key is an order
    if n >= 50 and steps > 5:
        assert not torch.equal(order, concept_order(n, steps, 8, keyed_generator(-1)))


@pytest.mark.parametrize("n", [1, 3, 7, 12])
def test_a_step_holds_eight_concepts_of_sixteen_members_and_no_outlier(n):
    """Fewer than eight concepts repeat."""
    concept = torch.cat([torch.arange(60) % n, torch.full((20,), -1)])
    rows = concept_rows(concept, n, 30, 8, 16, keyed_generator("rows"))
    assert rows.shape == (30, 128)
    found = concept[rows].view(30, 8, 16)
    assert (found >= 0).all()
    assert (found == found[..., :1]).all()  # members of one concept stand side by side
    assert all(len(step[:, 0].unique()) == min(n, 8) for step in found)
    for members in rows.view(-1, 16):
        size = int((concept == concept[members[0]]).sum())
        assert len(members.unique()) == 16 if size >= 16 else len(members.unique()) <= size
    assert len(rows.unique()) == int((concept >= 0).sum())  # over thirty steps every member has its turn
