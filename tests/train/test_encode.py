"""From rows to features: views replayed by hand, evaluation that depends on the image alone, unread images."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from holotype.data.sampling import keyed_generator
from holotype.data.strong import apply_recipe, draw_recipe
from holotype.data.views import draw_crops, normalise
from holotype.methods import Prediction, Views
from holotype.train import encode
from holotype.train.encode import place

from .stubs import OwnEncoder

ROWS = torch.tensor([5, 0, 47, 5, 12, 30])
KEY = (3, 0, 7, 2)


@pytest.fixture
def encoder(world):
    return world.loop("simgcd").encoder


def crop_by_hand(encoder, rows, index):
    """Pixels of one weak view, drawn from the generator of its key."""
    store = encoder.store
    generator = keyed_generator(*KEY, "crop", index)
    crops = draw_crops(store.height[rows], store.width[rows], store.size, generator)
    return store.crop(rows, crops)


def features_by_hand(encoder, images):
    """(n, 3, S, S) uint8 -> (n, D)."""
    x = normalise(images, encoder.mean, encoder.std, torch.float32)
    with torch.no_grad():
        return encoder.tail(encoder.trunk(x))


def test_views_are_what_their_key_says(encoder):
    found = encoder.training_features(ROWS, Views(weak=2, strong=1, share="none"), KEY)
    images = [crop_by_hand(encoder, ROWS, index) for index in range(3)]
    recipe = draw_recipe(len(ROWS), keyed_generator(*KEY, "strong", 2), share="none")
    images[2] = apply_recipe(images[2], recipe)
    expected = features_by_hand(encoder, torch.cat(images)).view(3, len(ROWS), -1)
    assert torch.equal(found, expected)


def test_views_differ_and_repeat(encoder):
    views = Views(weak=2, strong=2)
    found = encoder.training_features(ROWS, views, KEY)
    assert torch.equal(found, encoder.training_features(ROWS, views, KEY))
    for first in range(4):
        for second in range(first):
            assert not torch.equal(found[first], found[second]), (first, second)
    assert not torch.equal(found, encoder.training_features(ROWS, views, (*KEY[:3], 3)))
    # the same image twice in a batch is cropped anew each time
    assert not torch.equal(found[0, 0], found[0, 3])


def test_weak_views_do_not_depend_on_the_strong_ones(encoder):
    alone = encoder.training_features(ROWS, Views(weak=2), KEY)
    with_strong = encoder.training_features(ROWS, Views(weak=2, strong=1), KEY)
    torch.testing.assert_close(alone, with_strong[:2])


@pytest.mark.parametrize(("share", "different"), [("batch", 1), ("group", 2), ("none", 6)])
def test_who_shares_the_strong_operations(encoder, monkeypatch, share, different):
    seen = []

    def spy(images, recipe):
        seen.append(recipe)
        return apply_recipe(images, recipe)

    monkeypatch.setattr(encode, "apply_recipe", spy)
    encoder.training_features(ROWS, Views(weak=1, strong=2, share=share, groups=2), KEY)
    assert len(seen) == 2
    for recipe in seen:
        drawn = [
            tuple(float(x) for f in dataclasses.fields(recipe) for x in getattr(recipe, f.name)[row])
            for row in range(len(ROWS))
        ]
        assert len(set(drawn)) == different
        if share == "group":
            assert drawn[0::2] == drawn[0:1] * 3
            assert drawn[1::2] == drawn[1:2] * 3
    assert not torch.equal(seen[0].cutout, seen[1].cutout)


def test_gradients_reach_the_tail_and_stop_at_the_trunk(encoder):
    encoder.training_features(ROWS, Views(), KEY).square().sum().backward()
    learning = [p for p in encoder.tail.parameters() if p.requires_grad]
    assert learning
    assert all(p.grad is not None for p in learning)
    assert all(p.grad is None for p in encoder.trunk.parameters())


def test_evaluation_sees_the_centre_of_each_image(encoder):
    """By hand: a stored image of 40 x 36 pixels at 32 is cut in its middle, without a mirror."""
    store, rows = encoder.store, torch.arange(10)
    centre = []
    for row in rows:
        height, width = int(store.height[row]), int(store.width[row])
        begin = int(store.offset[row])
        image = store.pixels[begin : begin + 3 * height * width].view(height, width, 3)
        top, left = round((height - 32) / 2), round((width - 32) / 2)
        centre.append(image[top : top + 32, left : left + 32].permute(2, 0, 1))
    assert torch.equal(encoder.evaluation_features(rows), features_by_hand(encoder, torch.stack(centre)))


def test_evaluation_depends_on_the_image_alone(encoder, monkeypatch):
    rows = torch.randperm(48, generator=torch.Generator().manual_seed(0))[:23]
    whole = encoder.evaluation_features(rows)
    assert not whole.requires_grad
    order = torch.randperm(23, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(encoder.evaluation_features(rows[order]), whole[order])
    monkeypatch.setattr(encode, "EVALUATION_BATCH", 5)
    torch.testing.assert_close(encoder.evaluation_features(rows), whole)
    torch.testing.assert_close(encoder.evaluation_features(rows[order]), whole[order])


def test_rows_of_several_processes_make_the_same_batch(encoder, monkeypatch):
    """Each of two processes encodes every second row of the batch; together they have all of it."""
    views = Views(weak=1, strong=1, share="none")
    whole = encoder.training_features(ROWS, views, KEY)
    centres = encoder.evaluation_features(ROWS[:5])
    parts, evaluated = [], []
    for rank in (0, 1):
        monkeypatch.setattr(encode, "local_rows", lambda x, rank=rank: x[rank::2])
        parts.append(encoder.training_features(ROWS, views, KEY))
        monkeypatch.setattr(encode, "world_size", lambda: 2)
        evaluated.append(encoder.evaluation_features(ROWS[:5]))
    torch.testing.assert_close(torch.stack(parts, dim=2).flatten(1, 2), whole)
    torch.testing.assert_close(torch.stack(evaluated, dim=1).flatten(0, 1)[:5], centres)


def test_images_that_cannot_be_read_have_features_of_zero(encoder):
    rows = torch.tensor([7, 2, 9])
    features = encoder.table_features(rows, 12)
    torch.testing.assert_close(features[rows], encoder.evaluation_features(rows))
    others = torch.tensor([row for row in range(12) if row not in rows])
    assert (features[others] == 0).all()
    assert (features[rows].norm(dim=1) > 0).all()


def test_a_table_of_which_nothing_can_be_read_has_features_of_zero(encoder):
    assert torch.equal(encoder.table_features(torch.arange(0), 3), torch.zeros(3, 32))


def test_a_method_with_an_encoder_of_its_own_gets_the_images(world):
    loop = world.loop(OwnEncoder)
    encoder = loop.encoder
    found = encoder.training_features(ROWS, Views(weak=2), KEY)
    images = torch.cat([crop_by_hand(encoder, ROWS, index) for index in range(2)])
    x = normalise(images, encoder.mean, encoder.std, torch.float32)
    assert torch.equal(found, loop.method.encode(x).view(2, len(ROWS), -1))


class Nearest:
    """Category = the largest feature; probability and score say which row was asked for."""

    def predict(self, features):
        return Prediction(features.argmax(-1), features[:, 0].double(), features[:, 1])


def test_images_that_cannot_be_read_are_placed_nowhere(monkeypatch):
    features = torch.rand(11, 4, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([0, 3, 4, 8, 10])
    whole = place(Nearest(), features, rows)
    for row in range(11):
        if row in rows:
            assert whole.category[row] == features[row].argmax()
            assert whole.probability[row] == features[row, 0]
            assert whole.known_score[row] == features[row, 1]
        else:
            assert whole.category[row] == -1
            assert whole.probability[row].isnan()
            assert whole.known_score[row].isnan()
    monkeypatch.setattr(encode, "EVALUATION_BATCH", 3)
    parts = place(Nearest(), features, rows)
    for field in ("category", "probability", "known_score"):
        assert torch.equal(getattr(parts, field).nan_to_num(9), getattr(whole, field).nan_to_num(9))
