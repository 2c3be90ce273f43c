"""SPTNet: schedules, turns and loss against the released code; who learns in which turn."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.errors import InputError
from holotype.methods import Batch, Progress, Task
from holotype.methods.sptnet import SPTNet, SPTNetConfig, model_schedule, prompt_schedule
from holotype.models.tail import split_backbone
from holotype.models.zoo import import_timm
from holotype.training.encoder import Unregistered

timm = import_timm()
GOLDEN = dict(np.load(Path(__file__).parents[1] / "parity/sptnet.npz", allow_pickle=False))
TASK = Task(n_known=2, k=4, dim=32, n_images=40, n_labelled=10)


def golden(key: str) -> torch.Tensor:
    return torch.as_tensor(GOLDEN[key])


def built(task: Task = TASK, **settings) -> tuple[SPTNet, torch.nn.Module]:
    """The method with its encoder, and the trunk that this does not own."""
    torch.manual_seed(0)
    small = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 0}
    trunk, tail = split_backbone(timm.create_model("vit_tiny_patch16_224", **small), 1)
    method = SPTNet(SPTNetConfig(**settings), task)
    method.bind(method.build_encoder(Unregistered(trunk), tail))
    return method, trunk


@pytest.mark.parametrize(("n", "turn"), [(46, 20), (19, 20), (20, 20), (100, 20), (391, 20), (10, 3)])
def test_turns_of_an_epoch_equal_the_released_code(n, turn):
    """Counted anew in each epoch, as released; the default agrees in the first epoch and goes on counting."""
    case = f"alternate_n{n}_f{turn}"
    as_run, default = (SPTNet(SPTNetConfig(turn=turn, count=count), TASK) for count in ("epoch", "stage"))
    for epoch in (0, 3):
        moments = [Progress(epoch, 1000, step, n) for step in range(n)]
        turns = [as_run.is_model_turn(at) for at in moments]
        assert turns == golden(f"{case}__model_step").bool().tolist()
        assert sum(turns) == golden(f"{case}__n_model")
    index = [at.epoch * at.steps + at.step for at in moments]
    assert index == golden(f"{case}__prompter_lr_step_index_epoch3").tolist()
    over_the_stage = [default.is_model_turn(Progress(e, 1000, s, n)) for e in range(6) for s in range(n)]
    assert over_the_stage[:n] == turns
    assert over_the_stage == [(i + 1) // turn % 2 == 1 for i in range(6 * n)]


def test_the_rates_equal_the_released_code():
    base, total = float(golden("prompter_lr__base_lr")), int(golden("prompter_lr__total_steps"))
    steps = golden("prompter_lr__step").tolist()
    moments = [Progress(step // 46, total // 46, step % 46, 46) for step in steps]
    found = [base * prompt_schedule(at) for at in moments]
    np.testing.assert_allclose(found, GOLDEN["prompter_lr__lr"], rtol=1e-7, atol=1e-9)
    epochs = int(golden("model_lr__epochs"))
    found = [0.05 * model_schedule(Progress(e, epochs, 7, 46)) for e in range(epochs)]
    np.testing.assert_allclose(found, GOLDEN["model_lr__lr"], rtol=1e-7)


def test_the_teacher_warms_up_again_in_the_second_stage():
    method = SPTNet(SPTNetConfig(), TASK)

    def temperature(stage: int, epoch: int, epochs: int) -> float:
        return method.schedule(method.stages()[stage], Progress(epoch, epochs))["teacher_temp"]

    found = [temperature(1, epoch, 1000) for epoch in range(len(GOLDEN["teacher_temp__tau"]))]
    np.testing.assert_allclose(found, GOLDEN["teacher_temp__tau"], rtol=1e-7)
    assert (temperature(1, 0, 200), temperature(1, 2, 200)) == (0.07, 0.04)
    assert temperature(0, 29, 200) == pytest.approx(0.04)


@pytest.mark.parametrize("case", ["loss_a", "loss_b"])
def test_the_loss_of_the_second_stage_equals_the_released_code(case):
    def get(name):
        return golden(f"{case}__{name}")

    labelled, k = get("labelled"), get("logits").shape[1]
    z, q = (get(name).unflatten(0, (2, -1)).requires_grad_() for name in ("projections", "logits"))
    weight = float(get("memax_weight"))
    method = SPTNet(SPTNetConfig(memax_weight=4.0, prompt_memax_weight=weight), Task(2, k, 32, 40, 10))
    batch = Batch(q, get("labels").clamp_min(0), labelled, torch.arange(len(labelled)), stage="prompts")
    time = method.schedule(method.stages()[1], Progress(int(get("epoch")), 1000))
    now = {name: torch.tensor(value, dtype=torch.float64) for name, value in time.items()}
    total = torch.stack(list(method.baseline(z, q, batch, now).values())).sum()
    torch.testing.assert_close(total, get("total"), rtol=1e-7, atol=1e-9)
    total.backward()
    theirs = get("grad_projections").unflatten(0, (2, -1))
    torch.testing.assert_close(z.grad, theirs, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(q.grad.flatten(0, 1), get("grad_logits"), rtol=1e-6, atol=1e-9)


def test_an_entropy_term_in_the_second_stage_alone_is_refused():
    with pytest.raises(InputError, match="set both, or neither"):
        SPTNet(SPTNetConfig(memax_weight=0.0, prompt_memax_weight=1.0), TASK)
    method = SPTNet(SPTNetConfig(memax_weight=0.0), TASK)
    assert method.schedule(method.stages()[1], Progress(0, 10))["me_share"] == 0


def test_a_prompt_of_zeros_gives_the_features_of_simgcd_to_the_bit():
    method, trunk = built()
    first, second = method.stages()
    with torch.no_grad():
        for parameter in method.encoder.prompt.parameters():
            parameter.zero_()
        images = torch.randn(3, 3, 32, 32)
        plain = method.encoder.tail(trunk(images))
        assert torch.equal(method.embed(second, images), plain)
        torch.testing.assert_close(method.embed(first, method.encoder.tail.prepare(trunk(images))), plain)


@pytest.mark.parametrize(("step", "model"), [(0, False), (1, True)])
def test_who_learns_in_a_turn(step, model):
    """The views of the turn, a gradient for one side, and none at all, not even of zeros, for the other."""
    method, trunk = built(turn=2)
    stage = method.stages()[1]
    images = torch.randn(2, 5, 3, 32, 32)
    now = {name: torch.tensor(v) for name, v in method.schedule(stage, Progress(0, 4, step, 8)).items()}
    assert bool(now["model_turn"]) is model
    features = method.encode(stage, images, now)
    with torch.no_grad():
        plain, prompted = method.encoder.tail(trunk(images[0])), method.encoder(images.flatten(0, 1))
    views = [plain, prompted[:5]] if model else prompted.chunk(2)
    torch.testing.assert_close(features, torch.stack([*views]))
    label, rows = torch.tensor([0, 1, 0, 0, 0]), torch.arange(5)
    batch = Batch(features, label, rows < 2, rows, stage=stage.name)
    torch.stack(list(method.loss(batch, now).values())).sum().backward()
    network = [*method.parameters(), *(p for p in method.encoder.tail.parameters() if p.requires_grad)]
    prompt = list(method.encoder.prompt.parameters())
    assert all((p.grad is not None) == model for p in network)
    assert all((p.grad is None) == model for p in prompt)
    assert all(p.grad is None for p in trunk.parameters())
    assert method.diagnostics()["model_steps"] == float(model)
