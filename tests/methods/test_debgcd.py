"""DebGCD: what each head is fed and who learns from what."""

import pytest
import torch

from holotype.losses.classification import debiased_loss
from holotype.losses.ova import certainty, detector_loss, known_score
from holotype.methods import Batch, Task
from holotype.methods.debgcd import DebGCD, DebGCDConfig, confidence_of_lead
from holotype.methods.simgcd import SimGCD

TASK = Task(n_known=5, k=9, dim=16, n_images=100, n_labelled=25)


def example():
    torch.manual_seed(0)
    method = DebGCD(DebGCDConfig(threshold=0.2, adl=2.0, sdl=0.01), TASK).double()
    features = torch.randn(2, 20, 16, dtype=torch.float64).requires_grad_()
    labelled = torch.arange(20) % 2 == 0
    batch = Batch(features, torch.randint(0, 5, (20,)) * labelled, labelled, torch.arange(20))
    return method, batch, {"teacher_temp": torch.tensor(0.05, dtype=torch.float64)}


def test_the_total_is_simgcd_plus_the_two_weighted_parts():
    method, batch, now = example()
    terms, simgcd = method.loss(batch, now), SimGCD.loss(method, batch, now)
    assert all(torch.equal(terms[name], simgcd[name]) for name in simgcd)
    p_in, labels = method.ova(batch.features).sigmoid(), (batch.label, batch.labelled)
    torch.testing.assert_close(terms["sdl"], 0.01 * detector_loss(p_in, *labels))
    q, d = (head(batch.features) for head in (method.classifier, method.debiased))
    expected = debiased_loss(d, q, certainty(known_score(p_in)), *labels, 0.2)
    torch.testing.assert_close(terms["adl"], 2.0 * expected)
    # it teaches neither the classifier nor the detector
    terms["adl"].backward()
    assert method.classifier.v.grad is None
    assert all(parameter.grad is None for parameter in method.ova.parameters())
    assert method.debiased.v.grad.abs().sum() > 0
    assert batch.features.grad.abs().sum() > 0


def test_inference_uses_the_first_classifier_and_returns_the_detectors_score():
    method, batch, _ = example()
    features = batch.features[0].detach()
    placed = method.predict(features)
    assert torch.equal(placed.category, method.classifier(features).argmax(-1))
    torch.testing.assert_close(placed.known_score, method.ova(features).sigmoid().amax(-1))


def test_a_lead_asks_the_same_of_any_number_of_categories():
    """The threshold of a lead is the softmax probability of a category that lies so far before all others."""
    for k in (2, 10, 200):
        q = torch.zeros(k, dtype=torch.float64)
        q[0] = 0.6
        assert confidence_of_lead(0.6, k) == pytest.approx((q / 0.1).softmax(0)[0].item())
    assert [round(confidence_of_lead(0.6, k), 2) for k in (10, 100, 200)] == [0.98, 0.80, 0.67]
    assert confidence_of_lead(0.6, 1) == 1
