"""Random numbers that depend on keys alone."""

import torch

from holotype.data.samplers import keyed_uniforms


def test_keyed_uniforms_belong_to_their_own_keys() -> None:
    keys = [bytes([i]) * 16 for i in range(200)]
    some, all_ = keyed_uniforms(keys[50:], 3, "a", 1), keyed_uniforms(keys, 3, "a", 1)
    assert torch.equal(some, all_[:, 50:])
    assert not torch.equal(all_, keyed_uniforms(keys, 3, "a", 2))
    assert float(all_.min()) >= 0
    assert float(all_.max()) < 1
    assert abs(float(all_.mean()) - 0.5) < 0.05
    assert abs(float(torch.corrcoef(all_)[0, 1])) < 0.2
