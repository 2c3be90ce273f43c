"""Images to features: the trunk in chunks, the tail with gradient, prepared tokens, placing of unread images."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from holotype.data.augment import normalise
from holotype.errors import InputError
from holotype.methods import Method, Prediction, Stage, Task
from holotype.models.ema import Teacher
from holotype.training import encoder as encode
from holotype.training.encoder import Encoder, Unregistered, predict_table, registers
from holotype.utils.device import Device

from .conftest import tiny_backbone, whole_network
from .stubs import Empty, OwnEncoder, TokensThenImages

TASK = Task(n_known=2, k=4, dim=32, n_images=8, n_labelled=2)


def fp32() -> Device:
    return Device.on("cpu", "fp32")


def pictures(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator)


def test_tokens_do_not_depend_on_the_chunks(monkeypatch):
    images = pictures(23)
    whole = Encoder(tiny_backbone(), fp32()).inputs(images)
    monkeypatch.setitem(encode.CHUNK, "cpu", 5)
    encoder = Encoder(tiny_backbone(), fp32())
    assert encoder.chunk == 5
    torch.testing.assert_close(encoder.inputs(images), whole)
    x = normalise(images, encoder.mean, encoder.std, torch.float32)
    torch.testing.assert_close(whole, encoder.tail.prepare(encoder.trunk(x)))


@pytest.mark.parametrize(("at_once", "chunk"), [(256, 256), (384, 192), (200, 200), (1, 1), (1000, 250)])
def test_a_step_is_cut_into_equal_chunks(monkeypatch, at_once, chunk):
    """So that a trunk compiled for one shape serves every pass of a training step."""
    monkeypatch.setitem(encode.CHUNK, "cpu", 256)
    assert Encoder(tiny_backbone(), fp32(), images_at_once=at_once).chunk == chunk


def test_gradients_reach_the_tail_and_stop_at_the_trunk():
    encoder = Encoder(tiny_backbone(), fp32())
    encoder.embed(encoder.inputs(pictures(4))).square().sum().backward()
    learning = [p for p in encoder.tail.parameters() if p.requires_grad]
    assert learning
    assert all(p.grad is not None for p in learning)
    assert all(p.grad is None for p in encoder.trunk.parameters())


def test_prepared_tokens_give_the_features_of_the_images():
    encoder = Encoder(tiny_backbone(), fp32())
    images = pictures(6)
    x = normalise(images, encoder.mean, encoder.std, torch.float32)
    exact = encoder.tail(encoder.trunk(x))
    assert torch.equal(encoder.embed(encoder.inputs(images)), exact)  # to the bit: exact mode prepares, too
    rounded = encoder.embed(encoder.inputs(images).half())
    torch.testing.assert_close(rounded, exact, atol=5e-3, rtol=5e-3)


class Checked(Method):
    """As a plug-in writes it: the tail and its teacher, called with what each stage gives."""

    Config = Empty

    def build_encoder(self, trunk, tail):
        self.trunk, self.teacher = trunk, Teacher(tail)
        return tail

    def stages(self):
        return [Stage("tokens"), Stage("images", needs="images")]

    def encode(self, stage, inputs, now):
        x = inputs.flatten(0, 1)
        x = self.trunk(x) if stage.needs == "images" else x
        return torch.stack([self.encoder(x), self.teacher(x)]).unflatten(1, inputs.shape[:2])


@pytest.mark.parametrize("train_blocks", [1, 2])
@pytest.mark.parametrize("number", [0, 1])
def test_one_call_of_the_tail_is_the_network_in_a_stage_of_either_kind(number, train_blocks):
    encoder = Encoder(tiny_backbone(train_blocks), fp32(), Checked(Empty(), TASK))
    stage, images = encoder.method.stages()[number], pictures(6)
    inputs = encoder.inputs(images, stage.needs).unflatten(0, (2, 3))
    expected = whole_network()(normalise(images, encoder.mean, encoder.std, torch.float32))
    for found in encoder.encode(stage, inputs, {}):
        torch.testing.assert_close(found.flatten(0, 1), expected)


@pytest.mark.parametrize("train_blocks", [1, 2])
def test_the_tail_refuses_what_no_stage_gives(train_blocks):
    encoder = Encoder(tiny_backbone(train_blocks), fp32())
    prepared, x = encoder.inputs(pictures(4)), encoder.inputs(pictures(4), "images")
    tokens = encoder.trunk(x)
    wrong = {
        "views not flattened": prepared.unflatten(0, (2, 2)),
        "images": x,
        "features": encoder.tail(tokens),
        "other width": tokens[..., 1:],
    }
    for what, given in wrong.items():
        with pytest.raises(InputError):
            raise AssertionError(f"{what}: {encoder.tail(given).shape}")
    with pytest.raises(InputError):  # twice
        encoder.tail.prepare(prepared)


def test_a_method_with_an_encoder_of_its_own_gets_the_images(world):
    encoder = world.loop(OwnEncoder).encoder
    images = pictures(4)
    x = normalise(images, encoder.mean, encoder.std, torch.float32)
    assert encoder.last.needs == "images"
    assert torch.equal(encoder.inputs(images, "images"), x)
    assert torch.equal(encoder.embed(x), encoder.module(x))
    both = encoder.encode(encoder.last, x.view(2, 2, *x.shape[1:]), {})
    assert torch.equal(both.flatten(0, 1), encoder.module(x))


def test_a_compiled_trunk_always_sees_one_shape(monkeypatch):
    seen = []
    monkeypatch.setattr(
        encode, "CompiledTrunk", lambda trunk, *_: lambda x: seen.append(len(x)) or trunk(x.float())
    )
    encoder = Encoder(tiny_backbone(), fp32(), compiled=True, images_at_once=8)
    images = pictures(19)
    found = encoder.inputs(images)
    assert seen == [8, 8, 8]
    torch.testing.assert_close(found, encoder.tail.prepare(encoder.trunk(images.float())))


def test_compiled_blocks_see_one_number_of_images_when_images_are_placed(monkeypatch, world):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: None)
    method = world.loop(TokensThenImages).method
    encoder = Encoder(tiny_backbone(), fp32(), method, compiled_blocks=True, images_at_once=8)
    seen = []
    embed = method.embed
    method.embed = lambda stage, inputs: seen.append(len(inputs)) or embed(stage, inputs)
    x = encoder.inputs(pictures(11), "images")
    with torch.no_grad():
        found = torch.cat([encoder.embed(part) for part in x.split(8)])
        torch.testing.assert_close(found, encoder.module(x))
    assert seen == [8, 8]


def test_blocks_that_cannot_be_compiled_run_as_they_are_and_learn(monkeypatch, world, caplog):
    def refuse(*given):
        raise RuntimeError("no compiler")

    def fails(self, **_):
        self._compiled_call_impl = refuse

    monkeypatch.setattr(nn.Module, "compile", fails)
    method = world.loop(TokensThenImages).method
    encoder = Encoder(tiny_backbone(), fp32(), method, compiled_blocks=True)
    x = encoder.inputs(pictures(4), "images").unflatten(0, (2, 2))
    encoder.encode(method.stages()[-1], x, {}).square().sum().backward()
    assert "could not be compiled (RuntimeError: no compiler)" in caplog.text
    assert encoder.module.prompt.grad.abs().sum() > 0
    assert all(p.grad is None for p in encoder.trunk.parameters())


class Nearest:
    """Category = the largest feature; probability and score say which row was asked for."""

    def predict(self, features):
        return Prediction(features.argmax(-1), features[:, 0].double(), features[:, 1])


def test_images_that_cannot_be_read_are_placed_nowhere(monkeypatch):
    features = torch.rand(11, 4, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([0, 3, 4, 8, 10])
    whole = predict_table(Nearest(), features, rows)
    for row in range(11):
        if row in rows:
            assert whole.category[row] == features[row].argmax()
            assert whole.probability[row] == features[row, 0]
            assert whole.known_score[row] == features[row, 1]
        else:
            assert whole.category[row] == -1
            assert whole.probability[row].isnan()
            assert whole.known_score[row].isnan()
    monkeypatch.setattr(encode, "PREDICT_BATCH", 3)
    parts = predict_table(Nearest(), features, rows)
    for field in ("category", "probability", "known_score"):
        assert torch.equal(getattr(parts, field).nan_to_num(9), getattr(whole, field).nan_to_num(9))


class Owner(nn.Module):
    def __init__(self, trunk) -> None:
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.trunk(x))


def test_it_is_called_and_looked_into_like_the_module():
    trunk = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    frozen, x = Unregistered(trunk), torch.randn(2, 4)
    assert torch.equal(frozen(x), trunk(x))
    assert frozen.training == trunk.training
    assert list(frozen.parameters()) == list(trunk.parameters())


def test_its_owner_neither_trains_nor_saves_nor_moves_nor_copies_it():
    trunk = nn.Linear(4, 3)
    owner = Owner(Unregistered(trunk)).double()
    assert set(owner.state_dict()) == {"head.weight", "head.bias"}
    assert trunk.weight.dtype == torch.float32
    assert copy.deepcopy(owner).trunk.module is trunk


def test_an_owner_that_registers_it_is_found_out():
    trunk = nn.Linear(4, 3)
    assert not registers(Owner(Unregistered(trunk)), trunk)
    assert registers(Owner(trunk), trunk)
