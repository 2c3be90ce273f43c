"""Groups around anchors, against an obvious loop over anchors and candidates."""

import torch

from holotype.methods._common import draw_pairs, select_rows


def slow_pairs(key, w_old, candidate, mu, mu_id):
    groups = []
    for i in range(len(key)):
        allowed = [j for j in range(len(key)) if candidate[i, j]]
        drawn = sorted(allowed, key=lambda j: -float(key[i, j]))[:mu]
        kept = sorted(drawn, key=lambda j: -float(w_old[j]))[:mu_id]
        groups.append(kept)
    return groups


def example(n=24, seed=0):
    g = torch.Generator().manual_seed(seed)
    labelled = torch.rand(n, generator=g) < 0.5
    candidate = (~labelled)[None, :].expand(n, -1) & (torch.rand(n, n, generator=g) < 0.6)
    return torch.rand(n, n, generator=g), torch.rand(n, generator=g), candidate, labelled


def test_pairs_equal_the_slow_loop():
    for seed in range(5):
        key, w_old, candidate, _ = example(seed=seed)
        for mu, mu_id in ((7, 2), (3, 3), (1, 1), (40, 5)):
            partner, weight = draw_pairs(key, w_old, candidate, mu, torch.tensor(float(mu_id)))
            for i, kept in enumerate(slow_pairs(key, w_old, candidate, mu, mu_id)):
                assert partner[i, : len(kept)].tolist() == kept
                assert torch.equal(weight[i, : len(kept)], w_old[kept])
                assert weight[i, len(kept) :].eq(0).all()


def test_an_anchor_without_candidates_keeps_nobody():
    key, w_old, candidate, _ = example()
    _, weight = draw_pairs(key, w_old, torch.zeros_like(candidate), 7, 2)
    assert weight.eq(0).all()


def test_the_shape_does_not_depend_on_the_data():
    key, w_old, candidate, _ = example()
    none, _ = draw_pairs(key, w_old, torch.zeros_like(candidate), 7, 2)
    some, _ = draw_pairs(key, w_old, candidate, 7, 2)
    assert none.shape == some.shape == (24, 7)


def test_rows_gathered_by_a_product_are_those_of_an_index() -> None:
    torch.manual_seed(0)
    x, row = torch.randn(2, 6, 5, requires_grad=True), torch.randint(6, (6, 3))
    found, expected = select_rows(x, row), x[:, row]
    assert torch.equal(found, expected)
    cotangent = torch.randn_like(expected)
    mine, reference = (torch.autograd.grad(out, x, cotangent)[0] for out in (found, expected))
    torch.testing.assert_close(mine, reference)
