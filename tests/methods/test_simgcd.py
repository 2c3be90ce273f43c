"""SimGCD: the assembled total against the released code's own training function."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.errors import InputError
from holotype.methods import Batch, Moment, Stage, Task, find_method
from holotype.methods.base import Images
from holotype.methods.simgcd import SimGCD, SimGCDConfig

GOLDEN = np.load(Path(__file__).parents[1] / "parity/simgcd_total.npz")
CASES = ["mixed", "one_labelled", "all_labelled", "dup_labels"]


def golden(key):
    return torch.from_numpy(GOLDEN[key])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epoch", [0, 15, 29, 30, 199])
def test_the_total_and_its_gradients_equal_the_released_code(case, epoch):
    z = golden(f"{case}.student_proj").double().view(2, 16, -1).requires_grad_()
    q = golden(f"{case}.student_out").double().view(2, 16, -1).requires_grad_()
    method = SimGCD(SimGCDConfig(memax_weight=2.0), Task(5, 20, 8, 16, 8))
    labelled = golden(f"{case}.mask_lab")
    label = golden(f"{case}.labels") * labelled
    batch = Batch(torch.zeros(2, 16, 8), label, labelled, torch.arange(16))
    schedule = method.schedule(Stage(), Moment(epoch, 200))
    now = {"teacher_temp": torch.tensor(schedule["teacher_temp"], dtype=torch.float64)}
    total = torch.stack(list(method.baseline(z, q, batch, now).values())).sum()
    torch.testing.assert_close(total, golden(f"{case}.epoch{epoch}.loss_f64"), rtol=1e-9, atol=1e-9)
    total.backward()
    for name, tensor in (("proj", z), ("out", q)):
        key = f"{case}.epoch{epoch}.grad_{name}_f64"
        if key in GOLDEN.files:
            torch.testing.assert_close(tensor.grad.flatten(0, 1), golden(key).double(), rtol=1e-9, atol=1e-9)


def test_without_a_labelled_image_the_labelled_terms_vanish():
    z = golden("none_labelled.student_proj").double().view(2, 16, -1)
    q = golden("none_labelled.student_out").double().view(2, 16, -1)
    method = SimGCD(SimGCDConfig(), Task(5, 20, 8, 16, 8))
    nobody = torch.zeros(16, dtype=torch.bool)
    batch = Batch(torch.zeros(2, 16, 8), torch.zeros(16, dtype=torch.long), nobody, torch.arange(16))
    terms = method.baseline(z, q, batch, {"teacher_temp": torch.tensor(0.07, dtype=torch.float64)})
    assert terms["cls_s"] == 0
    assert terms["con_s"] == 0
    assert all(torch.isfinite(term) for term in terms.values())


def test_known_ness_is_the_mass_on_known_classes():
    method = SimGCD(SimGCDConfig(), Task(5, 20, 8, 16, 8))
    features = torch.randn(7, 8)
    p = (method.classifier(features) / 0.1).softmax(-1)
    placed = method.predict(features)
    torch.testing.assert_close(placed.known_score, p[:, :5].sum(-1))
    assert torch.equal(placed.category, p.argmax(-1))


# -- a long tail --------------------------------------------------------------------------------------


def a_batch(n=16):
    generator = torch.Generator().manual_seed(0)
    z, q = torch.randn(2, n, 8, generator=generator), torch.rand(2, n, 20, generator=generator)
    q[..., 3] += 1.0  # one large class
    batch = Batch(z, torch.zeros(n, dtype=torch.long), torch.arange(n) < n // 2, torch.arange(n))
    return z, q, batch, {"teacher_temp": torch.tensor(0.04)}


def test_the_estimated_target_begins_at_equal_parts_and_then_eases_the_large_class():
    z, q, batch, now = a_batch()
    uniform, estimated = (
        SimGCD(SimGCDConfig(memax_target=target), Task(5, 20, 8, 16, 8))
        for target in ("uniform", "estimated")
    )
    before = estimated.baseline(z, q, batch, now)
    torch.testing.assert_close(before, uniform.baseline(z, q, batch, now))
    for _ in range(300):
        later = estimated.baseline(z, q, batch, now)
    assert 0 < later["me"] < before["me"] / 2
    assert estimated.class_share.argmax() == 3
    assert estimated.class_share.sum() == pytest.approx(1, abs=1e-4)
    others = {name: term for name, term in later.items() if name != "me"}
    torch.testing.assert_close(others, {name: before[name] for name in others})


def test_the_estimate_is_saved_and_takes_no_gradient():
    z, q, batch, now = a_batch()
    method = SimGCD(SimGCDConfig(memax_target="estimated"), Task(5, 20, 8, 16, 8))
    q.requires_grad_()
    method.baseline(z, q, batch, now)["me"].backward()
    assert not method.class_share.requires_grad
    again = SimGCD(SimGCDConfig(memax_target="estimated"), Task(5, 20, 8, 16, 8))
    again.load_state_dict(method.state_dict())
    assert torch.equal(again.class_share, method.class_share)
    assert "class_share" not in SimGCD(SimGCDConfig(), Task(5, 20, 8, 16, 8)).state_dict()


def four_groups(seed: int = 0) -> tuple[Images, torch.Tensor]:
    """Images of four groups, half of the first two labelled, and their groups."""
    random = torch.Generator().manual_seed(3)
    direction = torch.nn.functional.normalize(torch.randn(4, 8, generator=random), dim=-1)
    group = torch.arange(80) % 4
    features = direction[group] + 0.05 * torch.randn(80, 8, generator=random)
    label = torch.where((group < 2) & (torch.arange(80) < 40), group, -1)
    images = Images(torch.arange(80), label, 80, torch.Generator().manual_seed(seed), encode=lambda: features)
    return images, group


@pytest.mark.parametrize("name", ["simgcd", "debgcd", "rpc", "sptnet"])
def test_prototypes_that_begin_at_centres_place_images_before_the_first_step(name):
    kind = find_method(name)
    images, group = four_groups()
    lengths = []
    for seed, start in ((1, "random"), (1, "centres"), (2, "centres")):
        torch.manual_seed(seed)
        config = kind.Config()
        config.start = start
        method = kind(config, Task(2, 4, 8, 80, 20))
        lengths.append(method.classifier.v.norm(dim=-1))
        with torch.no_grad():
            method.before_epoch(method.stages()[0], 0, images)
            placed = method.classifier(images.features()).argmax(-1)
        torch.testing.assert_close(method.classifier.v.norm(dim=-1), lengths[-1])
        if start == "random":
            assert not torch.equal(placed[group < 2], group[group < 2])
            continue
        assert torch.equal(placed[group < 2], group[group < 2])
        assert len(set(zip(group.tolist(), placed.tolist(), strict=True))) == 4
        before = method.classifier.v.clone()
        method.before_epoch(method.stages()[0], 1, images)  # training has begun
        method.before_epoch(method.stages()[-1], 1, images)
        assert torch.equal(method.classifier.v, before)


def test_the_start_is_the_same_for_every_seed_and_new_methods_begin_anywhere():
    assert SimGCDConfig().start == "random"
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        method = SimGCD(SimGCDConfig(start="centres"), Task(2, 4, 8, 80, 20))
        with torch.no_grad():
            method.before_epoch(Stage(), 0, four_groups(seed)[0])
        found.append(torch.nn.functional.normalize(method.classifier.v, dim=-1))
    torch.testing.assert_close(*found)


def test_too_many_categories_for_a_start_at_centres_are_refused():
    method = SimGCD(SimGCDConfig(start="centres"), Task(2, 90, 8, 80, 20))
    with pytest.raises(InputError, match="k = 90 does not fit the data"):
        method.before_epoch(Stage(), 0, four_groups()[0])
