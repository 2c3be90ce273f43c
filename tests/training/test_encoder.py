"""Images to features: the trunk in chunks, the tail with gradient, prepared tokens, placing of unread images."""

import pytest
import torch
from torch import nn

from holotype.data.augment import normalise
from holotype.errors import InputError
from holotype.methods import Method, Stage, Task
from holotype.models.ema import Teacher
from holotype.training import encoder as encode
from holotype.training.encoder import Encoder
from holotype.utils.device import Device

from .conftest import tiny_backbone, whole_network
from .stubs import Empty, TokensThenImages

FP32 = Device.on("cpu", "fp32")
TASK = Task(n_known=2, k=4, dim=32, n_images=8, n_labelled=2)


def pictures(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator)


def test_tokens_do_not_depend_on_the_chunks_and_give_the_features_of_the_images(monkeypatch):
    images = pictures(23)
    whole = Encoder(tiny_backbone(), FP32).inputs(images)
    monkeypatch.setitem(encode.CHUNK, "cpu", 5)
    encoder = Encoder(tiny_backbone(), FP32)
    assert encoder.chunk == 5
    torch.testing.assert_close(encoder.inputs(images), whole)
    x = normalise(images, encoder.mean, encoder.std, torch.float32)
    torch.testing.assert_close(whole, encoder.tail.prepare(encoder.trunk(x)))
    encoder = Encoder(tiny_backbone(), FP32)
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
    encoder = Encoder(tiny_backbone(train_blocks), FP32, Checked(Empty(), TASK))
    stage, images = encoder.method.stages()[number], pictures(6)
    inputs = encoder.inputs(images, stage.needs).unflatten(0, (2, 3))
    expected = whole_network()(normalise(images, encoder.mean, encoder.std, torch.float32))
    for found in encoder.encode(stage, inputs, {}):
        torch.testing.assert_close(found.flatten(0, 1), expected)


@pytest.mark.parametrize("train_blocks", [1, 2])
def test_the_tail_refuses_what_no_stage_gives(train_blocks):
    encoder = Encoder(tiny_backbone(train_blocks), FP32)
    prepared, x = encoder.inputs(pictures(4)), encoder.inputs(pictures(4), "images")
    tokens = encoder.trunk(x)
    # views that were not flattened, images, features, tokens of another width
    for given in (prepared.unflatten(0, (2, 2)), x, encoder.tail(tokens), tokens[..., 1:]):
        with pytest.raises(InputError):
            encoder.tail(given)
    with pytest.raises(InputError):  # twice
        encoder.tail.prepare(prepared)


def test_a_compiled_trunk_always_sees_one_shape(monkeypatch):
    seen = []
    stand_in = lambda trunk, *_: lambda x: seen.append(len(x)) or trunk(x.float())  # noqa: E731
    monkeypatch.setattr(encode, "CompiledTrunk", stand_in)
    encoder = Encoder(tiny_backbone(), FP32, compiled=True, images_at_once=8)
    images = pictures(19)
    found = encoder.inputs(images)
    assert seen == [8, 8, 8]
    torch.testing.assert_close(found, encoder.tail.prepare(encoder.trunk(images.float())))


def test_compiled_blocks_see_one_number_of_images_when_images_are_placed(monkeypatch, world):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: None)
    method = world.loop(TokensThenImages).method
    encoder = Encoder(tiny_backbone(), FP32, method, compiled_blocks=True, images_at_once=8)
    seen = []
    embed = method.embed
    method.embed = lambda stage, inputs: seen.append(len(inputs)) or embed(stage, inputs)
    x = encoder.inputs(pictures(11), "images")
    with torch.no_grad():
        found = torch.cat([encoder.embed(part) for part in x.split(8)])
        torch.testing.assert_close(found, encoder.module(x))
    assert seen == [8, 8]
