"""What the contract promises to methods of all kinds: a teacher, a clock, rows, rates, and an encoder of their own."""

import numpy as np
import pytest
import torch
from torch import nn

from holotype.config.schema import TrainConfig
from holotype.data.augment import centre_crops, normalise
from holotype.errors import InputError
from holotype.methods import ParamGroup, Progress, Stage, Task
from holotype.methods.schedules import cosine_lr
from holotype.training.loop import Loop
from holotype.utils.device import Device

from .conftest import metrics, tiny_backbone, weights
from .stubs import DrawsItsRows, FollowsATeacher, OwnEncoder, TellsTheTime, TokensThenImages


def after_each_step(loop, look) -> None:
    """Call `look` after every step, once the method has done its own work there."""
    after_step = loop.method.after_step

    def both():
        after_step()
        look()

    loop.method.after_step = both


def test_the_teacher_follows_the_tail_with_the_momentum_of_the_step(world):
    loop = world.loop(FollowsATeacher, epochs=2)
    name = next(name for name in loop.learnable if name.endswith("qkv.weight"))
    student = [loop.learnable[name].detach().clone()]
    after_each_step(loop, lambda: student.append(loop.learnable[name].detach().clone()))
    loop.fit()
    assert len(student) == 2 * loop.steps + 1
    expected = student[0].double()
    for number, now in enumerate(student[1:]):
        momentum = 0.5 + 0.4 * number / (2 * loop.steps)
        expected = momentum * expected + (1 - momentum) * now.double()
    found = weights(loop)[f"method.teacher.copies.0.{name.removeprefix('tail.')}"]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(found, student[-1])


def test_every_step_is_told_its_own_time_and_a_rate_of_its_own_follows_its_pace(world, tmp_path):
    loop = world.loop(TellsTheTime, epochs=3)
    loop.fit()
    steps = 3 * loop.steps
    expected = [1 + number / steps for number in range(steps)] + [0.0] * (64 - steps)
    torch.testing.assert_close(loop.method.ticks, torch.tensor(expected))
    loop = world.loop(TellsTheTime, epochs=2, out=tmp_path)
    seen = []

    def look():
        groups = loop.current.step.optimiser.param_groups
        seen.append({group["rate"].prefix: float(group["lr"]) for group in groups})

    after_each_step(loop, look)
    loop.fit()
    pace = loop.stages[0].rates[0].pace
    for number, rates in enumerate(seen):
        at = Progress(number // loop.steps, 2, number % loop.steps, loop.steps)
        assert rates["method.classifier"] == pytest.approx(0.02 * pace(at))
        assert rates[""] == pytest.approx(cosine_lr(0.05, at.epoch, 2))
    assert len({rates["method.classifier"] for rates in seen}) == len(seen) == 2 * loop.steps
    assert [line["lr"] for line in metrics(tmp_path)] == [cosine_lr(0.05, epoch, 2) for epoch in range(2)]


def test_a_method_that_draws_its_rows_sees_those_and_no_others(world, tmp_path):
    loop = world.loop(DrawsItsRows, epochs=2, out=tmp_path)
    chosen = []
    before = loop.method.before_epoch

    def spy(stage, epoch, images):
        before(stage, epoch, images)
        chosen.append(loop.method.chosen.clone())

    loop.method.before_epoch = spy
    loop.fit()
    expected = torch.zeros(48)
    for rows in chosen:
        expected[rows] += 1
    assert len(chosen) == 2
    assert torch.equal(loop.method.rows_seen, expected)
    assert loop.position.counter == 4  # two steps an epoch
    sums = loop.current.step.named_sums()
    assert metrics(tmp_path)[-1]["cls"] == pytest.approx(float(sums["cls"]) / 2)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (torch.zeros(4, dtype=torch.long), r"are \(4,\) of torch.int64; they must be whole numbers"),
        (torch.zeros(2, 4), r"are \(2, 4\) of torch.float32; they must be whole numbers"),
        (torch.full((2, 4), 48), "name images that are not there or cannot be read"),
        (torch.tensor([[3, 5]]), "name images that are not there or cannot be read"),
    ],
)
def test_rows_that_no_step_could_see_are_refused(world, monkeypatch, rows, says):
    problem = np.full(len(world.table), "", dtype=object)
    problem[5] = "it is broken"
    monkeypatch.setattr(DrawsItsRows, "rows", lambda *_: rows)
    loop = world.loop(DrawsItsRows, table=world.table.with_problems(problem))
    with pytest.raises(InputError, match=f"The rows of DrawsItsRows {says}"):
        loop.fit()


def test_the_source_switches_with_the_stage_and_the_record_names_both(world, tmp_path):
    loop = world.loop(TokensThenImages, epochs=4, cache=world.cache(tmp_path))
    assert loop.mode == "cached 4+2 4 epochs, images 2 epochs"
    assert world.loop(TokensThenImages, epochs=2).mode == "exact 2 epochs, images 1 epoch"
    assert world.loop(OwnEncoder).mode == "images"
    seen = []
    encode = loop.method.encode
    spy = lambda stage, x, now: seen.append((stage.name, x.shape)) or encode(stage, x, now)  # noqa: E731
    loop.method.encode = spy
    start = weights(loop)
    trunk = {name: p.clone() for name, p in loop.encoder.trunk.state_dict().items()}
    loop.fit()
    tokens = ("tokens", (2, 16, 6 * 32))  # CLS as it is, then CLS and four patches, standardised
    assert seen == [tokens] * 4 * loop.steps + [("prompt", (2, 16, 3, 32, 32))] * 2 * loop.steps
    assert not torch.equal(start["tail.prompt"], weights(loop)["tail.prompt"])
    assert all(torch.equal(trunk[name], p) for name, p in loop.encoder.trunk.state_dict().items())
    assert not any("trunk" in name for name in weights(loop))


def test_images_are_placed_as_the_last_stage_sees_them(world, tmp_path):
    loop = world.loop(TokensThenImages, epochs=1, cache=world.cache(tmp_path))
    loop.fit()
    store = world.store
    crops = centre_crops(store.height, store.width, 32)
    x = normalise(store.crop(torch.arange(48), crops), loop.encoder.mean, loop.encoder.std, torch.float32)
    with torch.no_grad():
        expected = loop.encoder.module(x)  # with the prompt, not the cached tokens
    torch.testing.assert_close(loop.features, expected)


def test_an_encoders_first_weights_depend_on_the_seed_alone(world):
    """Not on what else was drawn before: a token cache may have been built, or read from a file."""

    def first(seed, drawn=0):
        torch.manual_seed(seed)
        method = TokensThenImages(None, Task(2, 4, 32, 48, 12))
        torch.rand(drawn)
        config, compute, state = TrainConfig(batch_size=16), Device.on("cpu", "fp32"), torch.get_rng_state()
        loop = Loop(config, method, tiny_backbone(), world.store, world.table, compute, seed=seed)
        assert torch.equal(state, torch.get_rng_state())
        return weights(loop)["tail.prompt"]

    assert torch.equal(first(0), first(0, drawn=7))
    assert not torch.equal(first(0), first(1))


def test_an_encoder_that_registers_the_trunk_or_is_set_and_a_rate_of_nobody_are_refused(world, monkeypatch):
    takes_it = lambda self, trunk, tail: nn.ModuleList([trunk.module, tail])  # noqa: E731
    monkeypatch.setattr(TokensThenImages, "build_encoder", takes_it)
    with pytest.raises(InputError, match="The encoder of TokensThenImages registers the frozen trunk"):
        world.loop(TokensThenImages)

    class Sets(OwnEncoder):
        def __init__(self, config, task):
            super().__init__(config, task)
            self.encoder = nn.Linear(2, 2)

    with pytest.raises(InputError, match="sets `encoder` itself; let build_encoder return it"):
        world.loop(Sets)
    monkeypatch.setattr(TellsTheTime, "stages", lambda self: [Stage(rates=(ParamGroup("method.absent"),))])
    with pytest.raises(InputError, match=r"the rate of 'method\.absent' is nobody's"):
        world.loop(TellsTheTime).fit()
