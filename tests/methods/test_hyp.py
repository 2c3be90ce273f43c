"""HypCD: the mix of angle and distance over training, the classifier, and what it refuses."""

import pytest
import torch

from holotype.errors import InputError
from holotype.losses.contrastive import info_nce, sup_con
from holotype.losses.hyperbolic import exp_at_centre, poincare_distance
from holotype.methods import Progress, find_method

from .test_compose import TASK, batch_for


def made():
    torch.manual_seed(0)
    return find_method("hyp+simgcd")(find_method("hyp+simgcd").Config(), TASK).double()


def test_contrast_goes_from_angles_to_distances():
    method, f = made(), torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(1)).double()
    z, batch = method.projector(f), batch_for(made(), f)
    weights = [method.schedule(method.stages()[0], Progress(e, 10))["by_distance"] for e in (0, 4, 9)]
    assert weights == pytest.approx([0.1, 0.5, 1.0])
    angle = info_nce(z, 0.3), sup_con(z, batch.label, batch.labelled, 0.3 * 0.07)
    found = method.contrast(z, batch, {"by_distance": torch.zeros(())})
    torch.testing.assert_close(found, angle)
    x = exp_at_centre(z.flatten(0, 1), 0.1)
    d, n = poincare_distance(x, 0.1), 24
    slow = (
        sum(float(d[i, (i + 12) % n] + torch.logsumexp(-d[i][torch.arange(n) != i], 0)) for i in range(n)) / n
    )
    far, far_s = method.contrast(z, batch, {"by_distance": torch.ones(())})
    assert float(far) == pytest.approx(slow)
    label, rows = batch.label.repeat(2), [i for i in range(n) if batch.labelled.repeat(2)[i]]
    terms = []
    for i in rows:
        others = [j for j in rows if j != i]
        total = torch.logsumexp(-d[i][others] / 0.07, 0)
        terms.append(
            float(torch.stack([d[i, j] / 0.07 + total for j in others if label[j] == label[i]]).mean())
        )
    assert float(far_s) == pytest.approx(sum(terms) / len(terms))
    half = method.contrast(z, batch, {"by_distance": torch.tensor(0.25)})
    torch.testing.assert_close(half[1], 0.75 * angle[1] + 0.25 * far_s)


def test_the_classifier_is_a_linear_layer_between_two_maps():
    method, f = made(), torch.randn(5, 16).double() * 9
    u = 2 * torch.nn.functional.normalize(f, dim=-1)
    torch.testing.assert_close(method.logits(f), exp_at_centre(u @ method.classifier.weight.T, 0.1) / 0.1)


@pytest.mark.parametrize("name", ["hyp+selex", "hyp+gcd", "hyp+sptnet"])
def test_it_needs_simgcds_heads(name):
    with pytest.raises(InputError, match="makes no sense"):
        find_method(name)
