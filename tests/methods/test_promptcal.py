"""PromptCAL: heads, schedule and the assembled loss; what its memory holds, and when."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from holotype.losses.affinity import affinity_contrast, affinity_graph, draw_negatives, drop_weak_edges
from holotype.losses.contrastive import info_nce, sup_con
from holotype.methods import Batch, Progress, Task
from holotype.methods.promptcal import AFFINITY, PromptCAL, PromptCALConfig
from holotype.models.heads import GCDHead
from holotype.models.tail import split_backbone
from holotype.models.zoo import import_timm
from holotype.training.encoder import Unregistered

timm = import_timm()
PARITY = Path(__file__).parents[1] / "parity"
TASK = Task(n_known=2, k=4, dim=32, n_images=40, n_labelled=10)
SMALL = {"proj_out": 24, "memory": 40, "neighbours": 3, "negatives": 16}
B = 6


def built(task: Task = TASK, **settings) -> PromptCAL:
    torch.manual_seed(0)
    small = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 0}
    trunk, tail = split_backbone(timm.create_model("vit_tiny_patch16_224", **small), 1)
    method = PromptCAL(PromptCALConfig(**{**SMALL, **settings}), task)
    method.bind(method.build_encoder(Unregistered(trunk), tail))
    return method


def a_batch(step: int, stage: str = AFFINITY, p: int = 4) -> Batch:
    """Features of four categories, of which two are known; the same labels in every batch."""
    g = torch.Generator().manual_seed(step)
    truth = torch.arange(B) % 4
    centres = 3 * torch.randn(4, 32, generator=torch.Generator().manual_seed(99))
    features = centres[truth][:, None] + torch.randn(2, B, p, 32, generator=g)
    labelled = truth < 2
    key = {"negatives": torch.rand(2 * B, 40, generator=g)}
    return Batch(features.requires_grad_(), truth * labelled, labelled, torch.arange(B), key, stage)


def clock(w: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor(w)}


def test_the_head_equals_the_released_one():
    arrays = np.load(PARITY / "promptcal_network.npz", allow_pickle=False)

    def get(name: str) -> torch.Tensor:
        return torch.as_tensor(arrays[f"dinohead_a__{name}"])

    names = [f"mlp.{i}.{part}" for i in (0, 2, 4) for part in ("weight", "bias")]
    state = {f"projector.{name}": get("sd_" + name.replace(".", "_")) for name in names}
    assert (get("sd_last_layer_weight_g") == 1).all()
    head = GCDHead(8, hidden=10, bottleneck=6, out=13).double()
    head.load_state_dict({**state, "classifier.v": get("sd_last_layer_weight_v")})
    torch.testing.assert_close(head(get("x")), get("out"), rtol=1e-7, atol=1e-9)


def test_stages_and_the_weight_of_the_affinities_equal_the_released_code():
    arrays = np.load(PARITY / "promptcal.npz", allow_pickle=False)
    method = PromptCAL(PromptCALConfig(**SMALL), TASK)
    steps = int(arrays["cal_weight_ramp__batches_per_epoch"])
    first, second = method.stages()
    iterations = arrays["cal_weight_ramp__iteration"].tolist()
    moments = [Progress(i // steps, 100, i % steps, steps) for i in iterations]
    found = [method.schedule(second, at)["w"] for at in moments]
    np.testing.assert_allclose(found, arrays["cal_weight_ramp__w"], rtol=1e-7, atol=1e-9)
    assert (first.length(200), second.length(200)) == (200, 100)
    assert first.needs == second.needs == "images"
    assert second.fresh == ("method.prompt_head",)


@pytest.mark.parametrize(
    ("n_images", "k", "expected"),
    [(6000, 200, 5), (50_000, 100, 10), (6000, 10, 20), (6000, 1000, 3), (300, 10, 7)],
)
def test_neighbours_without_a_recipe(n_images, k, expected):
    method = PromptCAL(PromptCALConfig(proj_out=0), Task(2, k, 8, n_images, 10))
    assert method.k_nn == expected
    assert len(method.memory.rows) == min(4096, n_images)


def test_the_warm_up_is_gcds_loss_of_both_features():
    method, batch = built(), a_batch(0, "warm-up", p=2)
    terms = method.loss(batch, clock(0.0))
    f, label = batch.features, (batch.label, batch.labelled)
    expected = sum(
        weight * (0.65 * info_nce(head(f[:, :, i])) + 0.35 * sup_con(head(f[:, :, i]), *label))
        for i, (head, weight) in enumerate([(method.head, 1.0), (method.prompt_head, 0.35)])
    )
    torch.testing.assert_close(sum(terms.values()), expected)
    method.after_step()
    assert not method.memory.valid.any()


def filled(**settings) -> PromptCAL:
    """With a memory of three batches."""
    method = built(**settings)
    for step in range(3):
        method.loss(a_batch(step), clock(0.0))
        method.after_step()
    return method


@pytest.mark.parametrize("preset", ["default", "as_run"])
def test_the_second_stage_is_the_sum_of_its_formula(preset):
    settings = PromptCAL.presets[preset]
    method, batch, w = filled(**settings), a_batch(7), 0.3
    with torch.no_grad():  # a teacher that is not the student
        for buffer in method.teacher.buffers():
            buffer += 0.1 * torch.randn_like(buffer)
    terms = method.loss(batch, clock(w))
    expected, label = 0.0, torch.where(batch.labelled, batch.label, -1).repeat(2)
    valid = method.memory.valid
    assert 0 < valid.sum() < 40  # rows that nobody has written are no labelled ones of class 0
    memory_label = torch.where(valid, method.memory_label.rows.long(), -1)
    for i, (head, weight) in enumerate([(method.head, 1.0), (method.prompt_head, 0.35)]):
        f, taught, rows = batch.features[:, :, i], batch.features[:, :, 2 + i], method.memory.rows[:, i]
        found = affinity_graph(taught.flip(0).flatten(0, 1), rows, valid, 3, 0.8, preset == "as_run")
        negative = draw_negatives(found, valid, batch.random["negatives"], 16)
        pairs = drop_weak_edges(found, negative, label, memory_label)
        own = taught if preset == "as_run" and i == 0 else taught.flip(0)
        l_cal = affinity_contrast(f.flatten(0, 1), own.flatten(0, 1), rows, *pairs)
        z, z_taught = head(f), method.teacher[i](taught)
        supervised = sup_con(z, batch.label, batch.labelled, teacher=z_taught)
        part = 0.65 * ((1 - w) * info_nce(z, teacher=z_taught) + w * l_cal)
        expected = expected + weight * (0.35 * supervised + part)
    torch.testing.assert_close(sum(terms.values()), expected)
    assert terms["cal"] > 0


def test_the_memory_is_written_after_the_step_with_what_the_teacher_said_before_it_moved():
    method, batch = built(momentum=0.5), a_batch(0)
    terms = method.loss(batch, clock(0.3))
    assert terms["cal"] == terms["cal_prompt"] == 0  # nothing to be compared with yet
    assert not method.memory.valid.any()
    taught = method.teacher[0].classifier.v.clone()
    with torch.no_grad():
        for parameter in (*method.head.parameters(), *method.encoder.student.parameters()):
            parameter += 1
        method.after_step()
    assert int(method.memory.count) == int(method.memory_label.count) == 2 * B
    rows = F.normalize(batch.features[:, :, 2:].detach(), dim=-1).flatten(0, 1)
    torch.testing.assert_close(method.memory.rows[: 2 * B], rows)
    said = torch.where(batch.labelled, batch.label, -1).repeat(2)
    assert method.memory_label.rows[: 2 * B].tolist() == said.tolist()
    torch.testing.assert_close(method.teacher[0].classifier.v, taught + 0.5)
    torch.testing.assert_close(method.encoder.teacher[0].prompts, method.encoder.student.prompts - 0.5)


def test_the_graph_knows_earlier_batches_only_and_is_told():
    """The first loss after three batches does not depend on whether its own batch is written before or after."""
    one, other, batch = filled(), filled(), a_batch(9)
    assert one.loss(batch, clock(0.3))["cal"] == other.loss(batch, clock(0.3))["cal"]
    other.after_step()
    assert one.loss(batch, clock(0.3))["cal"] != other.loss(batch, clock(0.3))["cal"]
    method = filled(quantile=0.0)
    method.before_epoch(method.stages()[1], 1, None)
    assert method.diagnostics() == {}
    method.loss(a_batch(4), clock(0.3))
    told = method.diagnostics()
    assert told["positives"] > 0
    assert told["precision"] > 0.9  # four categories far apart
    assert 0 <= told["prompt_precision"] <= 1


def test_the_teacher_begins_as_the_student_that_enters_the_second_stage():
    method = built()
    first, second = method.stages()
    with torch.no_grad():
        for parameter in (*method.parameters(), *method.encoder.student.parameters()):
            parameter += torch.randn_like(parameter)
    for stage, epoch, same in ((first, 0, False), (second, 3, False), (second, 0, True)):
        method.before_epoch(stage, epoch, None)
        taught = {**dict(method.teacher[1].named_buffers()), "prompts": method.encoder.teacher[0].prompts}
        learnt = {**dict(method.prompt_head.named_parameters()), "prompts": method.encoder.student.prompts}
        assert all(torch.equal(taught[name], learnt[name]) for name in learnt) is same


def test_images_are_placed_by_the_students_cls_feature():
    method, images = built(), torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        features = method.embed(method.stages()[1], images)
        torch.testing.assert_close(features, method.encoder.student(images)[:, 0])
        views = images.expand(2, -1, -1, -1, -1)
        assert method.encode(method.stages()[0], views, {}).shape == (2, 3, 2, 32)
        both = method.encode(method.stages()[1], views, {})
        torch.testing.assert_close(both[0, :, 2:], method.encoder.teacher(images))
