"""Which rows take part: every readable image, with its label if it has one."""

import dataclasses

import numpy as np
import pytest
import torch

from holotype.data.samplers import keyed_generator
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Stage, Views
from holotype.training.batches import StageDraws, index_rows


@pytest.fixture
def table() -> Table:
    """Ten images; rows 0, 3, 6, 9 are labelled; rows 3 (labelled) and 4 (not) are broken."""
    label, problem = ["", "b", "a"], [""] * 10
    problem[3] = problem[4] = "the file is cut short"
    return Table(
        path=np.array([f"{i}.png" for i in range(10)], dtype=object),
        label=np.array([label[1 + i % 2] if i % 3 == 0 else "" for i in range(10)], dtype=object),
        known=("a", "b"),
        problem=np.array(problem, dtype=object),
        name="ten",
    )


def test_broken_images_take_no_part_and_batches_must_be_shared_evenly(table, monkeypatch):
    rows = index_rows(table, 3)
    assert rows.usable.tolist() == [0, 1, 2, 5, 6, 7, 8, 9]
    assert rows.labelled.tolist() == [0, 6, 9]
    assert rows.unlabelled.tolist() == [1, 2, 5, 7, 8]
    assert rows.steps == 2  # 8 usable images hold two full batches of 3
    assert rows.target.tolist() == [1, -1, -1, -1, -1, -1, 1, -1, -1, 0]
    assert table.target.tolist() == [1, -1, -1, 0, -1, -1, 1, -1, -1, 0]  # the table itself stays what it was
    monkeypatch.setattr("holotype.training.batches.world_size", lambda: 2)
    assert index_rows(table, 4).steps == 2
    with pytest.raises(InputError, match="batch size 3 cannot be shared evenly by 2 processes"):
        index_rows(table, 3)


def test_of_a_burst_one_frame_is_drawn_an_epoch() -> None:
    group = ["a"] * 4 + ["b"] * 3 + [""] * 5
    label = ["x"] * 4 + [""] * 8
    path, label, group = (np.array(x, dtype=object) for x in ([*"abcdefghijkl"], label, group))
    table = Table(path=path, label=label, known=("x",), group=group)
    rows = index_rows(table, 2)
    assert rows.steps == 3  # seven units
    seen = set()
    for epoch in range(30):
        labelled, unlabelled = rows.drawn(lambda epoch=epoch: keyed_generator(0, epoch))
        assert len(labelled) == 1
        assert len(unlabelled) == 6
        assert {7, 8, 9, 10, 11} < set(unlabelled.tolist())
        seen |= {*labelled.tolist(), *unlabelled.tolist()}
    assert seen == set(range(12))
    with pytest.raises(InputError, match="larger than the 7 usable images of , each burst counted once"):
        index_rows(table, 8)
    plain = index_rows(dataclasses.replace(table, group=None), 2)
    assert plain.drawn(lambda: pytest.fail("a generator"))[0] is plain.labelled


ROWS = torch.randint(48, (37, 16), generator=torch.Generator().manual_seed(0))
STAGE = Stage(views=Views(weak=2, strong=1, share="none"))


def draws(world, first=0, method="rpc", rows=ROWS):
    loop = world.loop(method)
    return loop, list(drawing(loop).draw(rows, 5, first))


def drawing(loop, stage=STAGE, epochs=10):
    return StageDraws(stage, loop.source, loop.method, loop.rows, 16, epochs, (0, 0))


@pytest.mark.parametrize("first", [0, 1, 15, 16, 36])
def test_draws_do_not_depend_on_where_the_epoch_is_entered(world, first):
    loop, whole = draws(world)
    _, later = draws(world, first)
    assert len(whole) == 37
    assert len(later) == 37 - first
    for mine, theirs in zip(later, whole[first:], strict=True):
        assert mine.tensors.keys() == theirs.tensors.keys() == {"image", "clock", "random.pairing"}
        for name, value in mine.tensors.items():
            assert torch.equal(value, theirs.tensors[name]), name
        views = [loop.source.fetch(drawn.request)["inputs"] for drawn in (mine, theirs)]
        assert torch.equal(*views)


@pytest.mark.parametrize(("method", "own"), [("dccl", True), ("simgcd", False)])
def test_a_method_that_draws_its_images_says_that_frames_of_bursts_count(world, caplog, method, own):
    group = np.array([f"burst {row // 2}" for row in range(len(world.table))], dtype=object)
    for table in (world.table, dataclasses.replace(world.table, group=group)):
        loop = world.loop(method, table=table)
        drawing(loop)
    told = [line for line in caplog.messages if "draws its images itself" in line]
    assert told == (["DCCL draws its images itself, so every frame of a burst counts."] if own else [])
