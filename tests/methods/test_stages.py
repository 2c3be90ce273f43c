"""Stages: how long they are, and what a moment within one is."""

from __future__ import annotations

import pytest

from holotype.methods import Moment, Stage


@pytest.mark.parametrize(
    ("stage", "epochs", "length"),
    [
        (Stage(), 200, 200),
        (Stage(share=0.5), 200, 100),
        (Stage(share=0.3), 5, 2),
        (Stage(share=0.01), 5, 1),  # at least one
        (Stage(epochs=7, share=0.5), 200, 7),
    ],
)
def test_a_stage_is_a_share_of_training_or_a_fixed_number_of_epochs(stage, epochs, length):
    assert stage.length(epochs) == length


def test_progress_goes_from_nothing_to_all_of_the_stage_step_by_step():
    found = [Moment(epoch, 3, step, 4).progress for epoch in range(3) for step in range(4)]
    assert found == pytest.approx([n / 12 for n in range(12)])
    assert Moment(5, 10).progress == 0.5
