"""EAGC against slow loops: what the gradient of an unlabelled row loses, what is frozen when, what is logged."""

import pytest
import torch
from tests.training.conftest import metrics

from holotype.methods import Images, find_method
from holotype.methods.eagc import REFERENCE

from .test_compose import TASK, batch_for

NOW = {"teacher_temp": torch.tensor(0.07)}


def made(**settings):
    torch.manual_seed(0)
    config = find_method("eagc+simgcd").Config()
    for name, value in settings.items():
        setattr(config.eagc, name, value)
    method = find_method("eagc+simgcd")(config, TASK).double()
    g = torch.Generator().manual_seed(5)
    f = torch.randn(2, 12, 16, generator=g).double()
    known = torch.randn(40, 16, generator=g).double()
    r = known.T @ known / 40
    method.eagc_subspace.copy_(r @ torch.linalg.inv(r + torch.eye(16) / 4))
    method.eagc_known_energy.fill_(0.8)
    return method, f


def gradient(method, f):
    x = f.clone().requires_grad_()
    terms = method.loss(batch_for(method, torch.stack([x, f + 0.5], 2)), NOW)
    torch.stack([*terms.values()]).sum().backward()
    return terms, x.grad


def test_an_unlabelled_gradient_loses_its_part_in_the_subspace_and_a_labelled_one_nothing():
    method, f = made(pull=0.0)
    _, found = gradient(method, f)
    _, whole = gradient(*made(pull=0.0, project=0.0))
    s = method.eagc_subspace
    energy = torch.stack([torch.stack([row @ s @ row / (row @ row) for row in view]) for view in f])
    known = 0.95 * 0.8 + 0.05 * energy[:, ::2].mean()
    torch.testing.assert_close(method.eagc_known_energy, known)
    for v in range(2):
        for i in range(12):
            share = 0.0 if i % 2 == 0 else 0.5 * float((1 - energy[v, i] / (known + 1e-6)).clamp(0, 1))
            torch.testing.assert_close(found[v, i], whole[v, i] - share * (s @ whole[v, i]))
    assert not torch.allclose(found, whole)


def test_what_the_log_says_of_gradients_and_energies():
    method, f = made(pull=0.0)
    gradient(method, f)
    _, whole = gradient(*made(pull=0.0, project=0.0))
    s = method.eagc_subspace
    energy = torch.stack([torch.stack([row @ s @ row / (row @ row) for row in view]) for view in f])
    ours, every = whole[:, ::2].sum((0, 1)), whole.sum((0, 1))
    cosine = ours @ every / (ours.norm() * every.norm())
    seen = method.diagnostics()
    assert float(seen["gdc"]) == pytest.approx(1 - float(cosine))
    assert float(seen["soc"]) == pytest.approx(
        float(energy[:, 1::2].mean() / (method.eagc_known_energy + 1e-6))
    )


def test_labelled_features_are_pulled_to_the_reference():
    """The gradient that the paper adds: w (f - f_ref) / (n D) over the n labelled rows of both views."""
    _, with_pull = gradient(*made(project=0.0, pull=0.7))
    terms, without = gradient(*made(project=0.0, pull=0.0))
    added = torch.zeros(2, 12, 16, dtype=torch.double)
    added[:, ::2] = 0.7 * -0.5 / (12 * 16)
    torch.testing.assert_close(with_pull - without, added)
    assert float(terms["pull"].detach()) == 0


def test_the_first_stage_learns_from_labels_alone():
    method, f = made()
    batch = batch_for(method, f.requires_grad_())
    batch.stage = REFERENCE.name
    terms = method.loss(batch, {})
    terms["reference"].backward()
    assert terms.keys() == {"reference"}
    assert f.grad[:, 1::2].eq(0).all()
    assert f.grad[:, ::2].ne(0).any()
    assert {stage.name: stage.length(200) for stage in method.stages()} == {"reference": 15, "train": 200}
    assert "method" not in method.stages()[1].trains  # its own head rests there


def test_the_twin_is_the_tail_as_labels_left_it(world, tmp_path):
    loop = world.loop("eagc+simgcd", epochs=2, out=tmp_path)
    first = {name: p.clone() for name, p in loop.encoder.module.named_parameters()}
    loop.fit()
    twin = dict(loop.method.eagc_twin[0].named_buffers())
    last = dict(loop.encoder.module.named_parameters())
    moved = [name for name, p in last.items() if p.requires_grad and not torch.equal(twin[name], first[name])]
    assert moved
    assert any(not torch.equal(twin[name], last[name]) for name in moved)
    energies = torch.linalg.eigvalsh(loop.method.eagc_subspace)
    assert -1e-5 < energies.min() <= energies.max() < 1
    lines = metrics(tmp_path, "epoch")
    assert [line["stage"] for line in lines] == ["reference", "train", "train"]
    assert all(0 <= line["gdc"] <= 2 and line["soc"] > 0 for line in lines[1:])


def test_the_subspace_is_that_of_labelled_images_alone():
    method, _ = made()
    f = torch.randn(120, 16, dtype=torch.double)
    label = torch.where(torch.arange(120) < 30, torch.arange(120) % 3, -1)
    method.eagc_twin = torch.nn.Identity()
    method.eagc_twin.update = lambda m: None
    for hidden in (f[30:], torch.randn(90, 16, dtype=torch.double)):
        images = Images(
            torch.arange(120), label, 120, torch.Generator(), lambda h=hidden: torch.cat([f[:30], h])
        )
        method.before_epoch(method.stages()[1], 0, images)
        r = f[:30].T @ f[:30] / 30
        torch.testing.assert_close(method.eagc_subspace, r @ torch.linalg.inv(r + torch.eye(16) / 4))
