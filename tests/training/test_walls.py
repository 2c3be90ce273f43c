"""What recent methods ask of a stage: another optimiser, clipping, samplers, views, gradients by term, side data.

That each trains, resumes and runs on two processes is tested with the other stubs (test_loop.py, test_processes.py).
"""

import dataclasses
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from holotype.data.arrays import read_side
from holotype.data.samplers import class_rows, keyed_generator, labelled_rows, pk_rows
from holotype.errors import InputError
from holotype.methods import Stage, Views, method_name
from holotype.runs.run import run_experiment
from holotype.runs.run_result import load
from tests.runs.conftest import tiny as tiny

from .conftest import assert_equal_weights, stop_and_resume, tiny_backbone, weights, whole_network
from .stubs import STUBS, TRAINED, Classifies, ReadsBeside, ReadsPatches, TermByTerm, ViewsOfItsOwn

LABEL = torch.tensor([0] * 30 + [1] * 6 + [2] * 3)


@pytest.mark.parametrize("name", ["simgcd", "two stages"])
def test_adamw_resumes_bit_for_bit_and_is_torchs_own(world, name, tmp_path):
    how = {"optimiser": "adamw", "lr": 1e-3, "weight_decay": 0.1, "epochs": 3}
    make = partial(world.loop, TRAINED[name], **how)
    whole = make()
    whole.fit()
    assert_equal_weights(weights(whole), weights(stop_and_resume(make, tmp_path, 4)))
    assert isinstance(whole.current.step.optimiser, torch.optim.AdamW)
    sgd = world.loop(TRAINED[name], epochs=3, lr=1e-3)
    sgd.fit()
    with pytest.raises(AssertionError):
        assert_equal_weights(weights(whole), weights(sgd))


def test_adamw_takes_the_steps_of_torch(world):
    """Its state stands before the first step, and biases do not decay."""
    loop = world.loop(STUBS["clusters"], epochs=1, optimiser="adamw", lr=1e-3, warmup=0.0, weight_decay=0.1)
    start = {n: p.detach().clone().requires_grad_() for n, p in loop.learnable.items()}
    groups = [{"params": [p], "weight_decay": 0.1 if p.ndim > 1 else 0.0} for p in start.values()]
    mine = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999))
    original = loop.method.after_step

    def follow():
        for name, parameter in loop.learnable.items():
            start[name].grad = None if parameter.grad is None else parameter.grad.clone()
        mine.step()
        original()

    loop.method.after_step = follow
    loop.fit()
    for name, parameter in loop.learnable.items():
        torch.testing.assert_close(parameter.detach(), start[name].detach())


def test_gradients_are_cut_to_a_norm_of_all_together(world):
    norms = []

    def watch(loop):
        def look():
            parts = [p.grad.norm() for p in loop.learnable.values() if p.grad is not None]
            norms.append(float(torch.stack(parts).norm()))

        loop.method.after_step = look
        loop.fit()
        found, norms[:] = list(norms), []
        return found

    free, cut = (watch(world.loop("simgcd", epochs=1, clip=clip)) for clip in (0.0, 0.3))
    assert max(free) > 0.3
    assert max(cut) <= 0.3 * (1 + 1e-5)


def test_samplers_of_labels():
    n = 4000
    draw = partial(keyed_generator, "draws")
    each = labelled_rows(LABEL, n, 8, 4, draw(0)).bincount(minlength=39)
    assert each.max() - each.min() <= 1
    share = LABEL[class_rows(LABEL, n, 8, 4, draw(1))].bincount() / n
    assert share.tolist() == pytest.approx([1 / 3] * 3, abs=0.03)
    for step in LABEL[pk_rows(LABEL, 160, 8, 4, draw(2))].view(-1, 8):
        assert sorted(step.bincount()[step.unique()].tolist()) == [4, 4]
    three = LABEL[pk_rows(LABEL, 80, 16, 4, draw(3))].view(-1, 16)  # four classes of three that there are
    assert all(set(step.bincount().tolist()) == {4, 8} for step in three)


def test_what_a_batch_cannot_be_is_refused(world):
    class Odd(Classifies):
        def stages(self):
            return [Stage(sampler="pk", batch_size=10, per_class=4)]

    class Large(Classifies):
        def stages(self):
            return [Stage(batch_size=100)]

    with pytest.raises(InputError, match="no multiple of the 4 images of a class"):
        world.loop(Odd).fit()
    with pytest.raises(InputError, match="batch size 100 is larger than the 48"):
        world.loop(Large)


def test_views_of_ones_own_pass_the_token_cache_by(world, tmp_path):
    """The stage after it draws from the cache."""
    loop = world.loop(ViewsOfItsOwn, epochs=2, cache=world.cache(tmp_path))
    loop.fit()
    assert loop.mode == "exact 2 epochs, cached 4+2 1 epoch"


def test_a_transform_must_keep_the_shape(world):
    class Halves(Classifies):
        def stages(self):
            return [Stage(views=Views(weak_transform=lambda image: image[:, ::2]))]

    with pytest.raises(InputError, match="must keep"):
        world.loop(Halves).fit()


def test_the_sum_of_the_gradients_by_term_is_the_gradient_of_the_sum(world):
    class Sums(TermByTerm):
        combine = Classifies.combine

    class Plain(TermByTerm):
        def stages(self):
            return [Stage()]

    one, other = world.loop(Sums), world.loop(Plain)
    one.fit(), other.fit()
    for name, value in weights(one).items():
        torch.testing.assert_close(value, weights(other)[name])
    projected = world.loop(TermByTerm)
    projected.fit()
    assert projected.current.step.names == ("cls", "con")


def test_vectors_beside_the_images_reach_batch_and_images(world, tmp_path):
    """In the order of the table, whatever that of the file."""
    table = world.table
    vectors = np.arange(2 * len(table), dtype=np.float32).reshape(-1, 2)
    order = np.random.default_rng(0).permutation(len(table))
    columns = {"path": list(table.path[order]), "vector": list(vectors[order])}
    pq.write_table(pa.table(columns), tmp_path / "side.parquet")
    assert (read_side(tmp_path / "side.parquet", table) == vectors).all()
    beside = dataclasses.replace(table, side=vectors)
    assert beside.fingerprint() != table.fingerprint()
    seen = []

    class Watches(ReadsBeside):
        def loss(self, batch, now):
            seen.append((batch.image, batch.side))
            return super().loss(batch, now)

    loop = world.loop(Watches, table=beside)
    loop.fit()
    assert all(torch.equal(side, torch.tensor(vectors)[image]) for image, side in seen)
    pq.write_table(pa.table({"path": ["a"], "vector": [[1.0]]}), tmp_path / "short.parquet")
    with pytest.raises(InputError, match="no vector for 48 of the 48"):
        read_side(tmp_path / "short.parquet", table)
    with pytest.raises(InputError, match="is no Parquet file with a path"):
        read_side(tmp_path / "absent.parquet", table)


def test_patches_are_those_of_the_whole_network_also_from_a_cache(world, tmp_path):
    images = torch.randn(3, 3, 32, 32)
    whole, split, rows = whole_network(), tiny_backbone(patches=True), tiny_backbone()
    tokens = split.trunk(images)
    for inputs in (tokens, split.tail.prepare(tokens)):
        torch.testing.assert_close(split.tail.tokens(inputs), whole.forward_features(images))
    torch.testing.assert_close(split.tail(tokens), rows.tail(rows.trunk(images)))
    assert split.tail.n_prefix == 1
    with pytest.raises(InputError, match="patches = True"):
        rows.tail.tokens(tokens)
    loop = world.loop(ReadsPatches, cache=world.cache(tmp_path, patches=True))
    loop.fit()
    assert loop.mode == "cached 4+2"


def test_a_run_that_reads_patches_is_loaded_as_it_was_trained(tiny, monkeypatch):
    name = method_name(ReadsPatches)
    record = run_experiment(tiny(name, cache_views="4+2"))
    run = load(tiny(name).folder)
    free = (run.images.label == "").to_numpy()
    ids = np.array(run.model.ids, dtype=object)
    assert list(ids[run.logits.argmax(1)][free]) == list(run.images.category_id[free])
    assert record.made.mode == "cached 4+0"
