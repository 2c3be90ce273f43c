"""What asks for more than there is shrinks, and says so."""

from __future__ import annotations

import dataclasses

import pytest

from holotype.errors import InputError
from holotype.methods import METHODS, Task
from holotype.methods._common import warn_reduced

TASK = Task(n_known=2, k=4, dim=16, n_images=30, n_labelled=10)


def test_one_sentence_where_there_is_too_little():
    assert warn_reduced("method.memory", 20, 20, "images") == []
    assert warn_reduced("method.memory", 4096, 20, "images") == [
        "method.memory asks for 4,096 and there are only 20 images, so 20 are taken."
    ]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("uno", {"queue": 10}, ["method.queue asks for 40 and there are only 20 unlabelled images"]),
        ("uno", {"queue": 5}, []),
        ("dccl", {"neighbours": 31}, ["method.neighbours asks for 31 and there are only 30 images"]),
        ("dccl", {}, []),
        (
            "promptcal",
            {"memory": 31, "neighbours": 40},
            ["method.memory asks for 31", "method.neighbours asks for 40 and there are only 30 rows"],
        ),
        ("promptcal", {"memory": 30, "neighbours": 30}, []),
    ],
)
def test_memory_queue_and_neighbours(name, settings, words):
    heads = {"heads": 2} if name == "uno" else {"proj_out": 0}
    method = METHODS[name](METHODS[name].Config(**heads, **settings), TASK)
    said = method.check()
    assert len(said) == len(words)
    assert all(one in line for one, line in zip(words, said, strict=True))
    if name == "uno":
        assert len(method.queue.rows) == min(4 * settings["queue"], 20)
    if name == "promptcal":
        assert len(method.memory.rows) == 30
        assert method.k_nn == 30


@pytest.mark.parametrize("name", ["gcd", "dccl", "promptcal"])
def test_new_categories_that_nobody_could_be_in_are_refused_before_training(name):
    """Each of them ends with a centre that begins at an image without a label."""
    config = METHODS[name].Config(proj_out=0, **({"memory": 1} if name == "promptcal" else {}))
    METHODS[name](config, dataclasses.replace(TASK, k=22)).check()
    with pytest.raises(
        InputError, match="k = 23 asks for 21 new categories, and only 20 images have no label"
    ):
        METHODS[name](config, dataclasses.replace(TASK, k=23)).check()


@pytest.mark.parametrize("name", METHODS)
def test_most_have_nothing_to_say_of_enough_images(name):
    task = Task(n_known=2, k=4, dim=16, n_images=5000, n_labelled=1000)
    small = {"proj_out": 0} if hasattr(METHODS[name].Config(), "proj_out") else {}
    assert METHODS[name](METHODS[name].Config(**small), task).check() == []
